/** Scores of texts for a question: llama-server's, in the forms of Jina and text-embeddings-inference, and what is refused. */
import assert from "node:assert/strict";
import OpenAI from "npm:openai@7.59.0";
import { ggufValue, Metadata } from "../../core/gguf/metadata.ts";
import { tokenizerFromGguf } from "../../core/tokenizer/mod.ts";
import { openModel } from "../../ffi/mod.ts";
import type { Pooling } from "../../serve/embedder.ts";
import { servedModel } from "../../serve/language_model.ts";
import { pairIds } from "../../serve/rerank.ts";
import { type RunningServer, startServer } from "../../serve/server.ts";
import { ENCODER_MODELS } from "../encoder_models.ts";
import { writeFamilyModel } from "../family_models.ts";
import { testFolder } from "../models.ts";
import { PIECES, RERANK_TEMPLATE, WORDPIECE } from "../peer_encoders.ts";
import { VOCABULARY } from "../peer_models.ts";

const QUERY = "what is the cat", DOCUMENTS = ["the cat sat on the mat", "dog", "who is on the dog?"];

/** What llama-server answers for these texts, F32 weights and caches: best first. */
const PEER = {
  "word pieces": {
    model: "bert, reranker",
    written: WORDPIECE,
    n_tokens: 31,
    scores: [[2, 2.2372875], [0, 1.9742316], [1, 1.6885134]],
    tolerance: 4e-4, // its GELU
  },
  "pieces with scores": {
    model: "bert, reranker",
    written: PIECES,
    n_tokens: 37,
    scores: [[2, 1.1447328], [0, 0.8810689], [1, 0.7154259]],
    tolerance: 4e-4,
  },
  "a template": {
    model: "qwen3, reranker",
    written: { ...VOCABULARY, "tokenizer.chat_template.rerank": ggufValue.str(RERANK_TEMPLATE) },
    n_tokens: 88,
    scores: [[2, 0.7380363], [0, 0.4647875], [1, 0.1528907]],
    tolerance: 1e-5,
  },
} as const;

type Case = typeof PEER[keyof typeof PEER];

async function withServer(
  { model, written }: { model: string; written: Case["written"] },
  embeddings: Pooling | "file" | undefined,
  test: (server: RunningServer) => Promise<void>,
): Promise<void> {
  const path = await writeFamilyModel(`${testFolder()}/rerank.gguf`, ENCODER_MODELS[model], { written });
  using opened = await openModel(path, { device: "cpu", n_ctx: 256, n_seq: 4, cacheTypeK: "f32", cacheTypeV: "f32" });
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

for (const [what, want] of Object.entries(PEER)) {
  Deno.test(`${what}: scores are llama-server's`, async () => {
    await withServer(want, "file", async (server) => {
      const { body } = await post(server, "/v1/rerank", { query: QUERY, documents: DOCUMENTS, model: "any" });
      assert.deepEqual([body.object, body.model], ["list", "any"]);
      assert.deepEqual(body.usage, { prompt_tokens: want.n_tokens, total_tokens: want.n_tokens });
      body.results.forEach((r: { index: number; relevance_score: number }, i: number) => {
        assert.equal(r.index, want.scores[i][0]);
        const apart = Math.abs(r.relevance_score - want.scores[i][1]);
        assert.ok(apart <= want.tolerance, `a score differs by ${apart}`);
      });
      assert.equal(body.results.length, 3);
      for (const path of ["/rerank", "/reranking", "/v1/reranking"]) {
        const again = await post(server, path, { query: QUERY, documents: DOCUMENTS, model: "any" });
        assert.deepEqual(again.body, body, path);
      }
    });
  });
}

Deno.test("a question that names a place of the template is a question", () => {
  const tokenizer = tokenizerFromGguf(new Metadata("a", Object.entries(VOCABULARY)));
  const ids = pairIds(tokenizer, "{document}", "{query}$&", RERANK_TEMPLATE);
  assert.deepEqual([...ids], [...tokenizer.encode("Q:{document};D:{query}$&<end>", { parseSpecial: true })]);
});

Deno.test("scores are not normalised, where they are asked for as vectors", async () => {
  await withServer(PEER["word pieces"], "rank", async (server) => {
    const { body } = await post(server, "/v1/embeddings", { input: "the cat" });
    assert.equal(body.data[0].embedding.length, 1);
    assert.ok(Math.abs(Math.abs(body.data[0].embedding[0]) - 1) > 1e-3);
  });
});

Deno.test("forms: the best few, texts beside their scores, and text-embeddings-inference's bare list", async () => {
  await withServer(PEER["word pieces"], "rank", async (server) => {
    const first = await post(server, "/rerank", { query: QUERY, documents: DOCUMENTS, top_n: 1 });
    assert.deepEqual(first.body.results.map((r: { index: number }) => r.index), [2]);
    assert.deepEqual(
      (await post(server, "/rerank", { query: QUERY, documents: DOCUMENTS, top_n: 0 })).body.results,
      [],
    );
    const bare = await post(server, "/rerank", { query: QUERY, texts: DOCUMENTS, return_text: true });
    assert.deepEqual(bare.body.map((r: { index: number; text: string }) => [r.index, r.text]), [
      [2, DOCUMENTS[2]],
      [0, DOCUMENTS[0]],
      [1, DOCUMENTS[1]],
    ]);
    assert.equal(bare.body[0].score, first.body.results[0].relevance_score);
    const short = await post(server, "/rerank", { query: QUERY, texts: DOCUMENTS, top_n: 2 });
    assert.deepEqual(short.body, bare.body.slice(0, 2).map(({ text: _, ...rest }: { text: string }) => rest));
    // Both texts may be empty where the vocabulary puts tokens around them.
    assert.equal((await post(server, "/rerank", { query: "", documents: [""] })).status, 200);
  });
});

Deno.test("refusals: missing or mistyped fields, texts that are too long, servers that do not rank", async () => {
  await withServer(PEER["word pieces"], "rank", async (server) => {
    const bad: [unknown, RegExp][] = [
      [{}, /query/],
      [{ query: 1, documents: ["a"] }, /query/],
      [{ query: "a" }, /documents/],
      [{ query: "a", documents: [] }, /documents/],
      [{ query: "a", documents: "x" }, /documents/],
      [{ query: "a", documents: [1] }, /documents/],
      [{ query: "a", texts: [] }, /texts/],
      [{ query: "a", documents: ["b"], top_n: -1 }, /top_n/],
    ];
    for (const [body, text] of bad) {
      const answer = await post(server, "/rerank", body);
      assert.equal(answer.status, 400, JSON.stringify(body));
      assert.match(answer.body.error.message, text);
    }
    const large = await post(server, "/rerank", { query: "a", documents: ["b ".repeat(300)] });
    assert.equal(large.status, 500);
    assert.match(large.body.error.message, /too large/);
    assert.equal((await post(server, "/completion", { prompt: "a" })).status, 501);
    assert.equal((await post(server, "/rerank", { query: "a", documents: ["b"] })).status, 200, "the server goes on");
  });
  await withServer(PEER["word pieces"], "mean", async (server) => {
    const { status, body } = await post(server, "/rerank", { query: "a", documents: ["b"] });
    assert.equal(status, 501);
    assert.match(body.error.message, /Start it with `--reranking`/);
  });
  await assert.rejects(withServer(PEER["word pieces"], undefined, async () => {}), { code: "usage.encoder" });
  await assert.rejects(withServer({ model: "bert", written: WORDPIECE }, "rank", async () => {}), {
    code: "usage.pooling",
  });
});

Deno.test("the openai client reads the vectors of a bert model, alone and several at once by the same bits", async () => {
  await withServer({ model: "bert", written: WORDPIECE }, "file", async (server) => {
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none" });
    const all = await client.embeddings.create({ model: "any", input: DOCUMENTS });
    assert.deepEqual(all.data.map((d) => d.embedding.length), [64, 64, 64]);
    assert.equal(all.usage.prompt_tokens, 8 + 3 + 8, "[CLS] and [SEP] around each");
    for (const [i, input] of DOCUMENTS.entries()) {
      const { data: [{ embedding }] } = await client.embeddings.create({ model: "any", input });
      assert.deepEqual(embedding, all.data[i].embedding);
    }
  });
});
