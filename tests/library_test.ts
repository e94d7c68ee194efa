/** The library's front door on the model in the repository. */
import assert from "node:assert/strict";
import { dequantizeRows, openModel, quantizeRows } from "../mod.ts";
import { bloomNano } from "./models.ts";

Deno.test("openModel() generates, chats and takes answers apart", async () => {
  using opened = await openModel(await bloomNano("bf16"), { device: "cpu", n_ctx: 512 });
  const { model } = opened;
  const messages = [{ role: "user", content: "What is 27 + 58?" }];
  let text = "";
  for await (const piece of model.chat(messages, { sampling: { temperature: 0 } })) text += piece.text;
  const { content, reasoning } = model.splitAnswer(text, model.renderChat(messages).generationPrompt);
  assert.match(content, /27 \+ 58 = 85/);
  assert.match(reasoning, /7 \+ 8 = 15/);
  const greedy = async () => {
    let out = "";
    for await (const p of model.generate("The", { maxTokens: 8, sampling: { temperature: 0 } })) out += p.text;
    return out;
  };
  assert.equal(await greedy(), await greedy());
});

Deno.test("quantizeRows() and dequantizeRows() go there and back", async () => {
  const rows = Float32Array.from({ length: 512 }, (_, i) => Math.sin(i));
  const back = await dequantizeRows("q8_0", await quantizeRows("q8_0", rows, 256), 256);
  rows.forEach((x, i) => assert.ok(Math.abs(x - back[i]) < 0.005));
  await assert.rejects(quantizeRows("q4_K", rows, 100), /multiple of 256/);
  await assert.rejects(quantizeRows("nonesuch", rows, 256), /nonesuch/);
});
