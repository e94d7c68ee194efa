/**
 * Chat templates by the names that llama.cpp's `--chat-template` has for them: how conversations of well-known families look.
 * They know system messages, questions and answers; tools need a model's own template.
 * @module
 */

/** Every message in the same frame, and the frame's beginning for the answer. */
const framed = (begin: string, between: string, end: string, content = "m.content"): string =>
  `{% for m in messages %}${begin}{{ m.role }}${between}{{ ${content} }}${end}{% endfor %}` +
  `{% if add_generation_prompt %}${begin}assistant${between}{% endif %}`;

/** A text of its own for each role. */
const byRole = (system: string, user: string, assistant: string, open: string): string =>
  `{% for m in messages %}{% if m.role == "system" %}${system}{% elif m.role == "user" %}${user}` +
  `{% else %}${assistant}{% endif %}{% endfor %}{% if add_generation_prompt %}${open}{% endif %}`;

/** The system message stands within the first question. */
const withinFirst = (frame: string, system: string, assistant: string): string =>
  `{% set ns = namespace(system="") %}{% for m in messages %}{% if m.role == "system" %}` +
  `{% set ns.system = ${system} %}{% elif m.role == "user" %}` +
  `${
    frame.replace("TEXT", "{{ ns.system + m.content }}")
  }{% set ns.system = "" %}{% else %}${assistant}{% endif %}{% endfor %}`;

const SAY = "{{ m.content }}";
const END_OF_SENTENCE = "<｜end▁of▁sentence｜>";
const COMMAND = "<|START_OF_TURN_TOKEN|>", COMMAND_END = "<|END_OF_TURN_TOKEN|>";

export const NAMED_TEMPLATES: Readonly<Record<string, string>> = {
  "chatml": framed("<|im_start|>", "\n", "<|im_end|>\n"),
  "llama2": withinFirst("[INST] TEXT [/INST]", `"<<SYS>>\\n" + m.content + "\\n<</SYS>>\\n\\n"`, `${SAY}</s>`),
  "llama3": framed("<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", "m.content | trim"),
  "llama4": framed("<|header_start|>", "<|header_end|>\n\n", "<|eot|>", "m.content | trim"),
  "mistral-v3": withinFirst("[INST] TEXT[/INST]", `m.content + "\\n\\n"`, ` ${SAY}</s>`),
  "mistral-v7": byRole(
    `[SYSTEM_PROMPT] ${SAY}[/SYSTEM_PROMPT]`,
    `[INST] ${SAY}[/INST]`,
    ` ${SAY}</s>`,
    "",
  ),
  "phi3": framed("<|", "|>\n", "<|end|>\n"),
  "zephyr": framed("<|", "|>\n", "<|endoftext|>\n"),
  "vicuna": byRole(`${SAY}\n\n`, `USER: ${SAY}\n`, `ASSISTANT: ${SAY}</s>\n`, "ASSISTANT:"),
  "gemma": withinFirst(
    "<start_of_turn>user\nTEXT<end_of_turn>\n",
    `m.content + "\\n\\n"`,
    `<start_of_turn>model\n${SAY}<end_of_turn>\n`,
  ) + "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
  "granite": framed("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>\n"),
  "deepseek2": byRole(`${SAY}\n\n`, `User: ${SAY}\n\n`, `Assistant: ${SAY}${END_OF_SENTENCE}`, "Assistant:"),
  "deepseek3": byRole(
    `${SAY}\n\n`,
    `<｜User｜>${SAY}`,
    `<｜Assistant｜>${SAY}${END_OF_SENTENCE}`,
    "<｜Assistant｜>",
  ),
  "command-r": byRole(
    `${COMMAND}<|SYSTEM_TOKEN|>{{ m.content | trim }}${COMMAND_END}`,
    `${COMMAND}<|USER_TOKEN|>{{ m.content | trim }}${COMMAND_END}`,
    `${COMMAND}<|CHATBOT_TOKEN|>{{ m.content | trim }}${COMMAND_END}`,
    `${COMMAND}<|CHATBOT_TOKEN|>`,
  ),
};
