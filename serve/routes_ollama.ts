/**
 * ollama's API over the one model of this server: chats, prompts, vectors, and what there is.
 * @module
 */
import { z } from "zod";
import { type App, json } from "./app.ts";
import type { OutputParser } from "../core/chat/reasoning.ts";
import { startChat } from "./chat_answer.ts";
import type { Exchange } from "./exchange.ts";
import type { Generation, GenerationEnd } from "./generation.ts";
import { ndjsonResponse } from "./ndjson.ts";
import {
  chatRequestOf,
  conversationOf,
  ollamaChatSchema,
  type OllamaGenerate,
  ollamaGenerateSchema,
  samplingOf,
} from "./ollama.ts";
import { promptsOf } from "./prompts.ts";
import { embedInputs } from "./routes_embeddings.ts";
import { completionSchema, parseBody, promptSchema } from "./schemas.ts";
import { timingsOf } from "./timings.ts";

/** Errors as ollama writes them. */
export const ollamaErrorBody = (error: { message: string }): object => ({ error: error.message });

const NS = 1e6; // in a millisecond

/** The model's name as ollama's clients know it. */
function nameOf(app: App): string {
  const { id } = app.model;
  return id.includes(":") ? id : `${id}:latest`;
}

/** An answer that runs, and what reads it. */
interface Running {
  generation: Generation;
  parser: Pick<OutputParser, "push" | "finish">;
}

interface Piece {
  content?: string;
  thinking?: string;
  tool_calls?: object[];
}

/** What an answer gives, piece by piece; a call comes whole. */
async function* pieces({ generation, parser }: Running): AsyncGenerator<Piece | GenerationEnd> {
  const calls: { name: string; arguments: string }[] = [];
  const read = function* (deltas: ReturnType<typeof parser.push>): Generator<Piece> {
    for (const d of deltas) {
      if (d.reasoning_content) yield { thinking: d.reasoning_content };
      if (d.content) yield { content: d.content };
      if (d.tool_call) {
        const call = calls[d.tool_call.index] ??= { name: "", arguments: "" };
        call.name += d.tool_call.name ?? "";
        call.arguments += d.tool_call.arguments;
      }
    }
  };
  for await (const event of generation) {
    if (event.type === "text") yield* read(parser.push(event.text));
    if (event.type !== "end") continue;
    yield* read(parser.finish());
    const whole = calls.flatMap((c) => {
      try {
        return [{ function: { name: c.name, arguments: JSON.parse(c.arguments || "{}") } }];
      } catch {
        return []; // the limit cut it
      }
    });
    if (whole.length > 0) yield { tool_calls: whole };
    yield event;
  }
}

function endOf(generation: Generation, end: GenerationEnd): object {
  const { prompt_ms, predicted_ms, predicted_n } = timingsOf(generation);
  return {
    done: true,
    done_reason: end.stopType === "limit" ? "length" : "stop",
    total_duration: Math.round((prompt_ms + predicted_ms) * NS),
    load_duration: 0,
    prompt_eval_count: generation.prompt.length,
    prompt_eval_duration: Math.round(prompt_ms * NS),
    eval_count: predicted_n,
    eval_duration: Math.round(predicted_ms * NS),
  };
}

/** One line of an answer. */
type Line = (piece: Piece) => object;

async function answer(
  app: App,
  exchange: Exchange,
  stream: boolean,
  started: { answer: Running; leave: () => void },
  line: Line,
): Promise<Response> {
  const head = () => ({ model: nameOf(app), created_at: new Date().toISOString() });
  const { generation } = started.answer;
  async function* lines(): AsyncGenerator<object, void, void> {
    for await (const piece of pieces(started.answer)) {
      if ("stopType" in piece) yield { ...head(), ...line({ content: "" }), ...endOf(generation, piece) };
      else yield { ...head(), ...line(piece), done: false };
    }
  }
  if (stream) return ndjsonResponse(exchange, lines(), started.leave);
  const whole: Piece = { content: "" };
  try {
    for await (const piece of pieces(started.answer)) {
      if ("stopType" in piece) return json({ ...head(), ...line(whole), ...endOf(generation, piece) });
      whole.content += piece.content ?? "";
      if (piece.thinking) whole.thinking = (whole.thinking ?? "") + piece.thinking;
      if (piece.tool_calls) whole.tool_calls = piece.tool_calls;
    }
  } catch (error) {
    started.leave();
    throw error;
  }
  throw new Error("a generation ended without its end event");
}

/** What ollama answers to a request without a prompt: the model is loaded. */
function loaded(app: App, line: Line): Response {
  return json({
    model: nameOf(app),
    created_at: new Date().toISOString(),
    ...line({ content: "" }),
    done: true,
    done_reason: "load",
  });
}

const asMessage: Line = ({ content = "", thinking, tool_calls }) => ({
  message: { role: "assistant", content, ...(thinking ? { thinking } : {}), ...(tool_calls ? { tool_calls } : {}) },
});
const asResponse: Line = ({ content = "", thinking }) => ({ response: content, ...(thinking ? { thinking } : {}) });

/** POST /api/chat */
export async function ollamaChat(app: App, exchange: Exchange): Promise<Response> {
  const request = parseBody(ollamaChatSchema, exchange.body);
  if (!request.messages?.length) return loaded(app, asMessage);
  const { answers: [one], leave } = startChat(app, chatRequestOf(app, request), exchange);
  return await answer(app, exchange, request.stream ?? true, { answer: one, leave }, asMessage);
}

/** POST /api/generate */
export async function ollamaGenerate(app: App, exchange: Exchange): Promise<Response> {
  const request = parseBody(ollamaGenerateSchema, exchange.body);
  if (!request.prompt) return loaded(app, asResponse);
  const started = request.raw ? startRaw(app, request, exchange) : startConversation(app, request, exchange);
  return await answer(app, exchange, request.stream ?? true, started, asResponse);
}

function startConversation(
  app: App,
  request: OllamaGenerate,
  exchange: Exchange,
): { answer: Running; leave: () => void } {
  const { answers: [one], leave } = startChat(app, chatRequestOf(app, conversationOf(request)), exchange);
  return { answer: one, leave };
}

/** The prompt as it stands, without a template. */
function startRaw(app: App, request: OllamaGenerate, exchange: Exchange): { answer: Running; leave: () => void } {
  const { chat_template_kwargs: _kwargs, reasoning_effort: _effort, ...sampling } = samplingOf(app, request);
  const plain = parseBody(completionSchema, JSON.stringify({ ...sampling, prompt: request.prompt }));
  const [prompt] = promptsOf(plain.prompt, app.model.tokenizer);
  const { generations: [generation], leave } = app.start([app.plan(plain, prompt)], exchange);
  const parser = { push: (text: string) => [{ content: text }], finish: () => [] };
  return { answer: { generation, parser }, leave };
}

const embedShape = {
  model: z.string().nullish().transform((v) => v ?? undefined),
  keep_alive: z.union([z.string(), z.number()]).nullish().transform((v) => v ?? undefined),
  truncate: z.boolean().nullish().transform((v) => v ?? undefined),
};
/** /api/embed */
export const ollamaEmbedSchema = z.object({ ...embedShape, input: promptSchema });

/** POST /api/embed */
export async function ollamaEmbed(app: App, { body }: Exchange): Promise<Response> {
  const start = performance.now();
  const { vectors, n_tokens } = await embedInputs(app, parseBody(ollamaEmbedSchema, body).input, "input", 2);
  const total_duration = Math.round((performance.now() - start) * NS);
  const embeddings = vectors.map(([v]) => Array.from(v));
  return json({ model: nameOf(app), embeddings, total_duration, load_duration: 0, prompt_eval_count: n_tokens });
}

function details(app: App): object {
  const { architecture, n_params, ftype } = app.model.meta;
  return {
    parent_model: "",
    format: "gguf",
    family: architecture,
    families: [architecture],
    parameter_size: n_params >= 1e9 ? `${(n_params / 1e9).toFixed(1)}B` : `${(n_params / 1e6).toFixed(2)}M`,
    quantization_level: ftype ?? "unknown",
  };
}

function entry(app: App): Record<string, unknown> {
  const { created, meta } = app.model, name = nameOf(app);
  return {
    name,
    model: name,
    modified_at: new Date(created * 1000).toISOString(),
    size: meta.size,
    digest: "",
    details: details(app),
  };
}

/** GET /api/tags */
export function ollamaTags(app: App): Response {
  return json({ models: [entry(app)] });
}

/** GET /api/ps: the model stays loaded. */
export function ollamaPs(app: App): Response {
  const { modified_at: _, ...loaded } = entry(app);
  return json({
    models: [{ ...loaded, expires_at: "9999-12-31T23:59:59Z", size_vram: 0, context_length: app.model.engine.n_ctx }],
  });
}

/** GET /api/version */
export function ollamaVersion(app: App): Response {
  return json({ version: app.settings.build.replace(/^\D*/, "") || "0.0.0" });
}

/** POST /api/show */
export function ollamaShow(app: App): Response {
  const { meta, chat } = app.model;
  return json({
    modelfile: "",
    parameters: "",
    template: chat.source,
    details: details(app),
    model_info: {
      "general.architecture": meta.architecture,
      "general.parameter_count": meta.n_params,
      [`${meta.architecture}.context_length`]: meta.n_ctx_train,
      [`${meta.architecture}.embedding_length`]: meta.n_embd,
    },
    capabilities: app.embedder ? ["embedding"] : ["completion", "tools", ...(chat.reasoningTags ? ["thinking"] : [])],
  });
}
