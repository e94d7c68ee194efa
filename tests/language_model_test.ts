/** Why generation ends, with bloom-nano on the reference backend. */
import assert from "node:assert/strict";
import type { EngineError } from "../core/errors.ts";
import type { GenerateOptions, LanguageModel, Piece, StopReason } from "../core/language_model.ts";
import { compileGbnf } from "../core/sampling/grammar/mod.ts";
import { openModel } from "../ffi/mod.ts";
import { bloomNano } from "./models.ts";

async function drain(pieces: AsyncGenerator<Piece, StopReason>): Promise<{ n: number; reason: StopReason }> {
  for (let n = 0;; n++) {
    const next = await pieces.next();
    if (next.done) return { n, reason: next.value };
  }
}

Deno.test("openModel() calls beforeWeights before it loads one, and what that throws ends the load", async () => {
  const loaded: number[] = [];
  const onProgress = (done: number) => loaded.push(done);
  const path = await bloomNano("bf16");
  const load = (beforeWeights: (model: LanguageModel) => void) =>
    openModel(path, { device: "reference", n_ctx: 24, onProgress, beforeWeights });
  await assert.rejects(load((model) => model.roomAfter(24)), { code: "engine.context_full" });
  assert.deepEqual(loaded, []);
  let seen: LanguageModel | undefined;
  using opened = await load((model) => {
    assert.deepEqual(loaded, []);
    assert.deepEqual([model.roomAfter(20), model.roomAfter(24, { maxTokens: 0 })], [4, 0]);
    seen = model;
  });
  assert.equal(seen, opened.model);
  assert.ok(loaded.length > 0);
});

Deno.test("generate() says why it ended, and refuses a prompt without room for an answer", async () => {
  using opened = await openModel(await bloomNano("bf16"), { device: "reference", n_ctx: 24 });
  const { model } = opened;
  const forever = new Map([...model.tokenizer.eogIds].map((id) => [id, -Infinity]));
  const end = (prompt: string | number[], options: GenerateOptions = {}) =>
    drain(model.generate(prompt, { ...options, sampling: { temperature: 0, ...options.sampling } }));
  const endless = { sampling: { logit_bias: forever } };
  assert.deepEqual(await end([5, 6, 7], { ...endless, maxTokens: 4 }), { n: 4, reason: "limit" });
  assert.deepEqual(await end([5, 6, 7], { ...endless, maxTokens: 0 }), { n: 0, reason: "limit" });
  const { n, reason } = await end(Array(20).fill(5), endless);
  assert.equal(reason, "context");
  assert.ok(n >= 4, "the context is used to its end");
  const stop = new AbortController();
  stop.abort();
  assert.deepEqual(await end([5, 6, 7], { signal: stop.signal }), { n: 0, reason: "aborted" });
  const [eog] = model.tokenizer.eogIds;
  const ended = await end([5], { sampling: { logit_bias: new Map([[eog, Infinity]]) } });
  assert.deepEqual(ended, { n: 0, reason: "end" });
  for (const [length, maxTokens] of [[24, 1], [24, undefined], [30, 0]] as const) {
    await assert.rejects(
      end(Array(length).fill(5), maxTokens === undefined ? {} : { maxTokens }),
      (error: EngineError) => {
        assert.equal(error.code, "engine.context_full");
        assert.deepEqual(error.at, { got: length, n_ctx: 24 });
        return true;
      },
    );
  }
  assert.deepEqual(await end(Array(24).fill(5), { maxTokens: 0 }), { n: 0, reason: "limit" });
});

Deno.test("generate() keeps to a grammar, and ends where nothing but the end may follow", async () => {
  using opened = await openModel(await bloomNano("bf16"), { device: "reference", n_ctx: 64 });
  const { model } = opened;
  for (const temperature of [0, 1]) {
    let text = "";
    const pieces = model.generate("The", {
      grammar: compileGbnf('root ::= [0-9]{3} "-" ("yes" | "no")'),
      sampling: { temperature, seed: 3 },
    });
    let reason: StopReason | undefined;
    while (reason === undefined) {
      const next = await pieces.next();
      if (next.done) reason = next.value;
      else text += next.value.text;
    }
    assert.match(text, /^\d{3}-(yes|no)$/);
    assert.equal(reason, "end");
  }
});
