/** Vectors of texts: as llama.cpp gives them, the same bits alone and in company, and what routes refuse. */
import assert from "node:assert/strict";
import OpenAI from "npm:openai@7.59.0";
import { openModel } from "../../ffi/mod.ts";
import { normalized, type Pooling } from "../../serve/embedder.ts";
import { servedModel } from "../../serve/language_model.ts";
import { type RunningServer, startServer } from "../../serve/server.ts";
import { FAMILY_MODELS, writeFamilyModel } from "../family_models.ts";
import { bloomNano, testFolder } from "../models.ts";
import { VOCABULARY } from "../peer_models.ts";

const TEXT = "What is 27 + 58?";

/** The first numbers of `llama-embedding -p TEXT --pooling ... --embd-normalize 2`, F32 weights and caches. */
const PEER: Readonly<Record<string, readonly number[]>> = {
  mean: [-0.0064616, -0.0719601, 0.0416343, -0.0508159, 0.0290674, 0.0255066, -0.0038954, 0.0121263],
  cls: [-0.0044279, -0.0132591, 0.0650790, -0.0079398, 0.0263363, 0.0668719, -0.0944631, -0.0649796],
  last: [-0.0665179, -0.0563660, -0.0166436, -0.0659976, 0.0126679, 0.0093849, 0.0079499, 0.0170696],
};

async function withServer(
  embeddings: Pooling | "file" | undefined,
  test: (server: RunningServer) => Promise<void>,
  options: { path?: string; n_ubatch?: number; n_ctx?: number } = {},
): Promise<void> {
  const { path = await bloomNano("f32"), n_ubatch = 32, n_ctx = 256 } = options;
  using opened = await openModel(path, {
    device: "cpu",
    n_ctx,
    n_seq: 4,
    n_ubatch,
    cacheTypeK: "f32",
    cacheTypeV: "f32",
  });
  const server = await startServer({ model: servedModel(opened.model), port: 0, n_slots: 4, embeddings });
  try {
    await test(server);
  } finally {
    await server.stop();
  }
}

async function post(server: RunningServer, path: string, body: unknown) {
  const response = await fetch(server.url + path, { method: "POST", body: JSON.stringify(body) });
  return { status: response.status, body: await response.json() };
}

for (const [pooling, want] of Object.entries(PEER)) {
  Deno.test(`pooling ${pooling}: vectors are llama.cpp's`, async () => {
    await withServer(pooling as Pooling, async (server) => {
      const { body } = await post(server, "/v1/embeddings", { input: TEXT });
      const [{ embedding, index, object }] = body.data;
      assert.deepEqual([index, object, body.object], [0, "embedding", "list"]);
      assert.deepEqual(body.usage, { prompt_tokens: 10, total_tokens: 10 });
      want.forEach((x, i) => assert.ok(Math.abs(x - embedding[i]) <= 1e-4, `${i}: ${embedding[i]}, expected ${x}`));
      const length = embedding.reduce((n: number, x: number) => n + x * x, 0);
      assert.ok(Math.abs(length - 1) <= 1e-5);
    });
  });
}

Deno.test("the openai client reads vectors, as floats and as base64", async () => {
  await withServer("mean", async (server) => {
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none" });
    const input = [TEXT, "Add 2 and 2."];
    const floats = await client.embeddings.create({ model: "any", input, encoding_format: "float" });
    const coded = await client.embeddings.create({ model: "any", input }); // base64, which the client decodes
    assert.equal(floats.data.length, 2);
    floats.data.forEach(({ embedding }, i) => {
      assert.deepEqual(coded.data[i].embedding, embedding.map(Math.fround));
      assert.equal(coded.data[i].index, i);
    });
  });
});

Deno.test("a text's vector has the same bits alone, in company, in pieces and as ids", async () => {
  const long = "Ask and it is given to you. ".repeat(8);
  const texts = [TEXT, long, "a", "One more text, of some words."];
  for (const pooling of ["mean", "last"] as const) {
    const alone: number[][] = [];
    await withServer(pooling, async (server) => {
      for (const input of texts) alone.push((await post(server, "/v1/embeddings", { input })).body.data[0].embedding);
      const { body: ids } = await post(server, "/tokenize", { content: TEXT });
      assert.deepEqual((await post(server, "/v1/embeddings", { input: ids.tokens })).body.data[0].embedding, alone[0]);
    }, { n_ubatch: 256 });
    await withServer(pooling, async (server) => {
      const requests = Array.from({ length: 6 }, () => post(server, "/v1/embeddings", { input: texts }));
      for (const { body } of await Promise.all(requests)) {
        assert.deepEqual(body.data.map((d: { embedding: number[] }) => d.embedding), alone);
      }
    });
  }
});

Deno.test("llama-server's own route gives a row a token where nothing is pooled", async () => {
  await withServer("none", async (server) => {
    const { body } = await post(server, "/embedding", { content: TEXT });
    assert.equal(body.length, 1);
    assert.equal(body[0].embedding.length, 10);
    const refused = await post(server, "/v1/embeddings", { input: TEXT });
    assert.equal(refused.status, 400);
    assert.match(refused.body.error.message, /Pooling type 'none' is not OAI compatible/);
    // Its mean is what pooling gives.
    const rows: number[][] = body[0].embedding;
    const mean = normalized(Float32Array.from(rows[0], (_, i) => rows.reduce((n, r) => n + r[i], 0) / rows.length), 2);
    PEER.mean.forEach((x, i) => assert.ok(Math.abs(x - mean[i]) <= 1e-4));
  });
  await withServer("last", async (server) => {
    const { body } = await post(server, "/embeddings", { input: [TEXT, "b"], embd_normalize: -1 });
    assert.deepEqual(body.map((d: { index: number; embedding: number[][] }) => [d.index, d.embedding.length]), [
      [0, 1],
      [1, 1],
    ]);
    const length = Math.hypot(...body[0].embedding[0]);
    assert.ok(Math.abs(length - 1) > 0.1, "not normalised");
  });
});

Deno.test("norms: the largest value, sums of sizes, lengths, or none", () => {
  const v = Float32Array.of(3, -4);
  assert.deepEqual([...normalized(v, 2)].map((x) => x.toFixed(6)), ["0.600000", "-0.800000"]);
  assert.deepEqual([...normalized(v, 1)].map((x) => x.toFixed(6)), ["0.428571", "-0.571429"]);
  assert.deepEqual([...normalized(v, 0)], [24570, -32760]);
  assert.deepEqual([...normalized(v, -1)], [3, -4]);
  assert.deepEqual([...normalized(Float32Array.of(0, 0), 2)], [0, 0]);
});

Deno.test("a server for vectors refuses answers, a server for answers refuses vectors", async () => {
  await withServer("mean", async (server) => {
    for (
      const [path, body] of [["/completion", { prompt: "a" }], ["/v1/chat/completions", {
        messages: [{ role: "user", content: "a" }],
      }]] as const
    ) {
      const { status, body: answer } = await post(server, path, body);
      assert.equal(status, 501);
      assert.match(answer.error.message, /does not support completions\. Start it without `--embeddings`/);
    }
    const empty = await post(server, "/v1/embeddings", { input: [] });
    assert.equal(empty.status, 400);
    assert.equal((await post(server, "/v1/embeddings", {})).status, 400);
    const large = await post(server, "/v1/embeddings", { input: Array(257).fill(5) });
    assert.equal(large.status, 500);
    assert.match(large.body.error.message, /too large/);
    assert.equal((await post(server, "/v1/embeddings", { input: TEXT })).status, 200, "the server goes on");
    assert.equal((await post(server, "/rerank", { query: "a", documents: ["b"] })).status, 501);
  });
  await withServer(undefined, async (server) => {
    const { status, body } = await post(server, "/v1/embeddings", { input: "a" });
    assert.equal(status, 501);
    assert.match(body.error.message, /does not support embeddings\. Start it with `--embeddings`/);
  });
});

Deno.test("the file's pooling is used where none is asked for; scores of a model without a head for them are refused by name", async () => {
  const made = (n: number) =>
    writeFamilyModel(`${testFolder()}/pooling-${n}.gguf`, {
      ...FAMILY_MODELS.qwen3,
      keys: { ...FAMILY_MODELS.qwen3.keys, pooling_type: n },
    }, {
      written: VOCABULARY,
    });
  await withServer("file", async (server) => {
    const { body } = await post(server, "/embedding", { content: "abc" });
    assert.equal(body[0].embedding.length, 1);
  }, { path: await made(3) });
  await assert.rejects(withServer("file", async () => {}, { path: await made(4) }), { code: "usage.pooling" });
});
