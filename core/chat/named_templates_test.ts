import assert from "node:assert/strict";
import { NAMED_TEMPLATES } from "./named_templates.ts";
import { ChatTemplate } from "./template.ts";

const CONVERSATION = [
  { role: "system", content: "Be kind" },
  { role: "user", content: "Hi" },
  { role: "assistant", content: "Yes" },
  { role: "user", content: "Bye" },
];

Deno.test("templates by name write each family's marks, in their order, and open the answer", () => {
  const written: Record<string, string> = {
    "chatml": "<|im_start|>system\nBe kind<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes" +
      "<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
    "llama2": "[INST] <<SYS>>\nBe kind\n<</SYS>>\n\nHi [/INST]Yes</s>[INST] Bye [/INST]",
    "llama3":
      "<|start_header_id|>system<|end_header_id|>\n\nBe kind<|eot_id|><|start_header_id|>user<|end_header_id|>" +
      "\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nYes<|eot_id|><|start_header_id|>user" +
      "<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral-v3": "[INST] Be kind\n\nHi[/INST] Yes</s>[INST] Bye[/INST]",
    "mistral-v7": "[SYSTEM_PROMPT] Be kind[/SYSTEM_PROMPT][INST] Hi[/INST] Yes</s>[INST] Bye[/INST]",
    "gemma": "<start_of_turn>user\nBe kind\n\nHi<end_of_turn>\n<start_of_turn>model\nYes<end_of_turn>\n" +
      "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
    "vicuna": "Be kind\n\nUSER: Hi\nASSISTANT: Yes</s>\nUSER: Bye\nASSISTANT:",
    "command-r": "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be kind<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|>" +
      "<|USER_TOKEN|>Hi<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>Yes<|END_OF_TURN_TOKEN|>" +
      "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Bye<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
  };
  for (const [name, source] of Object.entries(NAMED_TEMPLATES)) {
    const template = new ChatTemplate(source, { bosToken: "", eosToken: "", name });
    const prompt = template.render({ messages: CONVERSATION, addGenerationPrompt: true });
    if (name in written) assert.equal(prompt, written[name], name);
    const places = ["Be kind", "Hi", "Yes", "Bye"].map((text) => prompt.indexOf(text));
    assert.ok(places.every((at, i) => at >= 0 && (i === 0 || at > places[i - 1])), `${name}: ${prompt}`);
  }
});
