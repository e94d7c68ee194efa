/**
 * Vectors of texts: OpenAI's /v1/embeddings and llama-server's own /embedding.
 * @module
 */
import { z } from "zod";
import { type App, json } from "./app.ts";
import { type Embedder, normalized, type Pooling } from "./embedder.ts";
import { badRequest, notSupported } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import { promptsOf } from "./prompts.ts";
import { parseBody, parseJsonBody, promptSchema } from "./schemas.ts";

const shape = {
  input: promptSchema.nullish().transform((v) => v ?? undefined),
  embd_normalize: z.int({ error: "expected a whole number" }).min(-1).nullish().transform((v) => v ?? undefined),
};

/** /v1/embeddings */
export const embeddingsSchema = z.object({
  ...shape,
  model: z.string().nullish().transform((v) => v ?? undefined),
  encoding_format: z.enum(["float", "base64"], { error: "expected float or base64" }).nullish().transform((v) =>
    v ?? "float"
  ),
});

/** /embedding and /embeddings */
export const embeddingSchema = z.object({
  ...shape,
  content: promptSchema.nullish().transform((v) => v ?? undefined),
});

/** @throws ApiError 501 when the server was started for answers */
function embedderOf(app: App): Embedder {
  if (app.embedder) return app.embedder;
  throw notSupported("This server does not support embeddings. Start it with `--embeddings`");
}

/** Rows of tokens, and scores: they stay as long as they are. */
const NOT_VECTORS: ReadonlySet<Pooling> = new Set(["none", "rank"]);

/** The vectors of a request's texts, and the tokens of all. */
export async function embedInputs(
  app: App,
  field: unknown,
  name: "input" | "content",
  norm: number | undefined,
): Promise<{ vectors: Float32Array[][]; n_tokens: number }> {
  const embedder = embedderOf(app);
  if (field === undefined) throw badRequest(`${name}: expected a text, token ids, or an array of them`, name);
  const inputs = promptsOf(field as Parameters<typeof promptsOf>[0], app.model.tokenizer, name);
  const size = norm ?? app.settings.embdNormalize;
  const rows = await embedder.embed(inputs);
  return {
    vectors: rows.map((of) => of.map((v) => NOT_VECTORS.has(embedder.pooling) ? v : normalized(v, size))),
    n_tokens: inputs.reduce((n, ids) => n + ids.length, 0),
  };
}

/** POST /v1/embeddings */
export async function embeddings(app: App, { body }: Exchange): Promise<Response> {
  const request = parseBody(embeddingsSchema, body);
  const embedder = embedderOf(app);
  if (embedder.pooling === "none") {
    throw badRequest(
      "Pooling type 'none' is not OAI compatible. Please use a different pooling type",
      undefined,
      "pooling_none",
    );
  }
  const { vectors, n_tokens } = await embedInputs(app, request.input, "input", request.embd_normalize);
  const data = vectors.map(([v], index) => ({
    object: "embedding",
    index,
    embedding: request.encoding_format === "base64" ? base64(v) : Array.from(v),
    ...(request.encoding_format === "base64" ? { encoding_format: "base64" } : {}),
  }));
  const usage = { prompt_tokens: n_tokens, total_tokens: n_tokens };
  return json({ object: "list", model: request.model ?? app.model.id, data, usage });
}

/** POST /embedding, /embeddings */
export async function embedding(app: App, { body }: Exchange): Promise<Response> {
  const raw = parseJsonBody(body);
  const request = parseBody(embeddingSchema, body);
  const name = typeof raw === "object" && raw !== null && "content" in raw ? "content" : "input";
  const { vectors } = await embedInputs(app, request[name], name, request.embd_normalize);
  return json(vectors.map((rows, index) => ({ index, embedding: rows.map((v) => Array.from(v)) })));
}

/** Little-endian floats. */
function base64(v: Float32Array): string {
  const bytes = new Uint8Array(v.length * 4), view = new DataView(bytes.buffer);
  v.forEach((x, i) => view.setFloat32(4 * i, x, true));
  return bytes.toBase64();
}
