/**
 * Scores of texts for a question: /rerank, in the forms of Jina and llama-server, and of text-embeddings-inference.
 * @module
 */
import { z } from "zod";
import { type App, json } from "./app.ts";
import { badRequest, notSupported } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import { pairIds } from "./rerank.ts";
import { parseBody } from "./schemas.ts";

const texts = z.array(z.string({ error: "expected a text" }), { error: "expected an array of texts" });

/** /rerank and its other names */
export const rerankSchema = z.object({
  model: z.string().nullish().transform((v) => v ?? undefined),
  query: z.string({ error: "expected a text" }),
  documents: texts.nullish().transform((v) => v ?? undefined),
  texts: texts.nullish().transform((v) => v ?? undefined),
  top_n: z.int({ error: "expected a whole number" }).min(0).nullish().transform((v) => v ?? undefined),
  return_text: z.boolean().nullish().transform((v) => v ?? false),
});

/** POST /rerank, /reranking, /v1/rerank, /v1/reranking. */
export async function rerank(app: App, { body }: Exchange): Promise<Response> {
  const { embedder } = app;
  if (embedder?.pooling !== "rank") {
    throw notSupported("This server does not support reranking. Start it with `--reranking`");
  }
  const request = parseBody(rerankSchema, body);
  // `texts` are text-embeddings-inference's, which gets an answer in its form.
  const bare = request.texts !== undefined, name = bare ? "texts" : "documents";
  const documents = request.texts ?? request.documents ?? [];
  if (documents.length === 0) throw badRequest(`${name}: expected an array of texts that is not empty`, name);
  const { tokenizer, rerankTemplate } = app.model;
  const inputs = documents.map((document) => pairIds(tokenizer, request.query, document, rerankTemplate));
  const empty = inputs.findIndex((ids) => ids.length === 0);
  if (empty >= 0) throw badRequest(`${name}[${empty}]: expected at least one token, found none`, `${name}[${empty}]`);
  const scores = await embedder.embed(inputs);
  const best = scores.map(([[score]], index) => ({ index, score })).sort((a, b) => b.score - a.score)
    .slice(0, request.top_n);
  if (bare) {
    const text = (index: number) => request.return_text ? { text: documents[index] } : {};
    return json(best.map(({ index, score }) => ({ index, score, ...text(index) })));
  }
  const n_tokens = inputs.reduce((n, ids) => n + ids.length, 0);
  return json({
    model: request.model ?? app.model.id,
    object: "list",
    usage: { prompt_tokens: n_tokens, total_tokens: n_tokens },
    results: best.map(({ index, score }) => ({ index, relevance_score: score })),
  });
}
