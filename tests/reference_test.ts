/** The reference backend on bloom-nano: the oracle against the oracle. */
import { openReferenceBackend } from "../core/program/reference.ts";
import { bloomNano, referencePrompts } from "./models.ts";
import { checkBatch, checkGreedy, checkLogits, checkPromptSplits, withEngine } from "./logits_checks.ts";

Deno.test("reference backend: logits and greedy ids of bloom-nano", async () => {
  const prompts = referencePrompts();
  using backend = openReferenceBackend();
  await withEngine(await bloomNano("bf16"), backend, { cacheTypeK: "f32", cacheTypeV: "f32" }, async (engine) => {
    await checkLogits(engine, prompts.chat_plain, "chat_plain");
    await checkGreedy(engine, prompts.chat_plain, "chat_plain", 6);
  });
});

Deno.test("reference backend: pieces, batches and forks give the same bits", async () => {
  const ids = referencePrompts().chat_plain.ids;
  using backend = openReferenceBackend();
  await withEngine(await bloomNano("bf16"), backend, {}, async (engine) => {
    await checkPromptSplits(engine, ids.slice(0, 7), [1, 3]);
    await checkBatch(engine, [ids.slice(0, 4), ids.slice(2, 5)], 1);
  });
});
