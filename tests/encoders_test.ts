/** Models that give vectors: as llama.cpp computes them (`scripts/peer_vectors.ts`), by bits alone and in company, and what they refuse. */
import assert from "node:assert/strict";
import { tokenizerFromGguf } from "../core/tokenizer/mod.ts";
import { openGguf } from "../core/gguf/read.ts";
import { openReferenceBackend } from "../core/program/reference.ts";
import { openBackend } from "../ffi/mod.ts";
import { Embedder, normalized } from "../serve/embedder.ts";
import { ENCODER_MODELS } from "./encoder_models.ts";
import { withEngine } from "./logits_checks.ts";
import { testFolder } from "./models.ts";
import { encoderModel, PEER_VECTORS_PATH, type PeerVectors, poolingsOf } from "./peer_encoders.ts";
import { peerText } from "./peer_models.ts";

/** Of vectors of length 1. */
const TOLERANCE = 1e-4;

/** Of scores, which are as they are: llama.cpp takes GELU from a table of 16 bits. */
const SCORE_TOLERANCE = 4e-4;

const { models }: { models: Record<string, PeerVectors> } = JSON.parse(Deno.readTextFileSync(PEER_VECTORS_PATH));
const OPTIONS = { n_ctx: 256, contexts: 4 } as const;

Deno.test("every model of vectors is compared with llama.cpp", () => {
  assert.deepEqual(Object.keys(models).toSorted(), Object.keys(ENCODER_MODELS).toSorted());
});

for (const [name, want] of Object.entries(models)) {
  Deno.test(`${name}: vectors are llama.cpp's`, async () => {
    const path = await encoderModel(`${testFolder()}/encoder.gguf`, name);
    const ids = tokenizerFromGguf(openGguf(path).metadata).encode(peerText(name));
    assert.deepEqual([...ids], want.ids);
    using opened = openBackend("cpu");
    for (const backend of [opened.backend, openReferenceBackend()]) {
      await withEngine(path, backend, { ...OPTIONS, cacheTypeK: "f32", cacheTypeV: "f32" }, async (engine) => {
        for (const { pooling, n } of poolingsOf(name)) {
          const embedder = new Embedder(engine, { pooling, n_seq: 4 });
          const [[got]] = await embedder.embed([ids]), scores = pooling === "rank";
          assert.equal(got.length, n);
          const size = (v: Float32Array) => normalized(v, scores ? -1 : 2);
          const expected = size(Float32Array.from(want.vectors[pooling]));
          const worst = size(got).reduce((most, x, i) => Math.max(most, Math.abs(x - expected[i])), 0);
          assert.ok(worst <= (scores ? SCORE_TOLERANCE : TOLERANCE), `${pooling}: a number differs by ${worst}`);
        }
      });
    }
  });
}

for (const [name, model] of Object.entries(ENCODER_MODELS)) {
  Deno.test(`${name}: a text has the same bits alone and in company`, async () => {
    const path = await encoderModel(`${testFolder()}/encoder.gguf`, name);
    const texts = [70, 1, 33, 64, 5].map((n) => Int32Array.from({ length: n }, (_, i) => (i * 31 + n * 7) % 90));
    const pooling = model.keys.pooling_type === 4 ? "rank" : "none";
    const of = async (threads: number, n_ubatch: number) => {
      using opened = openBackend("cpu", { threads });
      return await withEngine(path, opened.backend, { ...OPTIONS, n_ubatch }, async (engine) => {
        const embedder = new Embedder(engine, { pooling, n_seq: 4 });
        const alone = [];
        for (const text of texts) alone.push((await embedder.embed([text]))[0]);
        assert.deepEqual(await embedder.embed(texts), alone, `steps of ${n_ubatch} rows`);
        return alone;
      });
    };
    const once = await of(1, 256);
    assert.deepEqual(await of(3, 128), once);
  });
}

Deno.test("texts that do not all fit into the cache go through one after the other", async () => {
  const path = await encoderModel(`${testFolder()}/encoder.gguf`, "bert");
  using opened = openBackend("cpu");
  await withEngine(path, opened.backend, { n_ctx: 96 }, async (engine) => {
    assert.equal(engine.n_free, 128, "two pages");
    const texts = [70, 3, 90, 65].map((n) => Int32Array.from({ length: n }, (_, i) => (i * 7) % 90));
    const embedder = new Embedder(engine, { pooling: "mean", n_seq: 4 });
    assert.deepEqual((await embedder.embed(texts)).map((v) => v.length), [1, 1, 1, 1]);
    assert.equal(engine.n_free, 128);
  });
});

Deno.test("an encoder refuses to continue a text, to take it in two steps, and to rank without a head", async () => {
  const path = await encoderModel(`${testFolder()}/encoder.gguf`, "bert");
  using opened = openBackend("cpu");
  await withEngine(path, opened.backend, { n_ctx: 100_000, n_ubatch: 64 }, async (engine) => {
    using sequence = engine.createSequence();
    const step = (n: number, want?: "candidates" | "hidden" | "rank") =>
      engine.step([{ sequence, tokens: new Int32Array(n), output: "all", ...(want ? { want } : {}) }]);
    await assert.rejects(step(3), { code: "engine.no_logits" });
    await assert.rejects(step(3, "rank"), { code: "engine.no_classifier" });
    await assert.rejects(step(65, "hidden"), { code: "engine.one_step" });
    assert.equal(sequence.length, 0);
    assert.equal((await step(64, "hidden"))[0].hidden!.length, 64 * 64);
    await assert.rejects(step(1, "hidden"), { code: "engine.one_step" });
    const embedder = new Embedder(engine, { pooling: "cls", n_seq: 4 });
    await assert.rejects(embedder.embed([new Int32Array(65)]), /input \(65 tokens\) is too large.*batch size: 64/);
    await assert.rejects(embedder.embed([new Int32Array(513)]), /input \(513 tokens\) is too large.*context holds 512/);
  });
});
