/**
 * llama-server's own routes: POST /completion, /tokenize, /detokenize, /apply-template.
 * @module
 */
import { type App, json } from "./app.ts";
import { collectAll } from "./collect.ts";
import { renderChat } from "./conversation.ts";
import { unsupported } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import type { Generation, GenerationEnd } from "./generation.ts";
import { logprobEntry, type TokenRecord } from "./logprobs.ts";
import { checkIds, promptsOf } from "./prompts.ts";
import { describeSampling } from "./sampling.ts";
import {
  type CompletionRequest,
  completionSchema,
  conversationSchema,
  detokenizeSchema,
  parseBody,
  tokenizeSchema,
} from "./schemas.ts";
import { sseResponse } from "./sse.ts";
import { merge } from "./streams.ts";
import { timingsOf } from "./timings.ts";

/** One object for one prompt, an array of them for several; or a stream of events. */
export function completion(app: App, exchange: Exchange): Promise<Response> | Response {
  const request = parseBody(completionSchema, exchange.body);
  refuse(request);
  const { tokenizer } = app.model;
  const n_probs = request.n_probs ? Math.min(request.n_probs, tokenizer.n_vocab) : undefined;
  const prompts = promptsOf(request.prompt, tokenizer);
  const plans = prompts.map((prompt, index) => ({ ...app.plan(request, prompt, index), n_probs }));
  const { generations, leave } = app.start(plans, exchange);
  if (request.stream) return sseResponse(exchange, chunks(app, request, generations), leave);
  return whole(app, request, generations, leave);
}

function refuse(request: CompletionRequest): void {
  if (request.post_sampling_probs) {
    throw unsupported("post_sampling_probs", "only probabilities before sampling are given");
  }
  if ((request.n_indent ?? 0) > 0) throw unsupported("n_indent", "answers are not cut by indentation");
  if ((request.t_max_predict_ms ?? 0) > 0) throw unsupported("t_max_predict_ms", "answers are not limited by time");
}

/** What the end of an answer tells, in both forms. */
function summary(app: App, request: CompletionRequest, generation: Generation, end: GenerationEnd): object {
  const { tokenizer } = app.model;
  return {
    id_slot: generation.slot,
    stop: true,
    model: app.model.id,
    tokens_predicted: end.n_generated,
    tokens_evaluated: generation.prompt.length,
    generation_settings: {
      ...describeSampling(app.model, request),
      seed: generation.seed,
      n_predict: generation.maxTokens,
      max_tokens: generation.maxTokens,
      stop: request.stop ?? [],
      stream: request.stream ?? false,
      n_probs: request.n_probs ?? 0,
      ignore_eos: request.ignore_eos ?? false,
    },
    prompt: tokenizer.decode(generation.prompt, { special: true }),
    truncated: end.truncated,
    stop_type: end.stopType,
    stopping_word: end.stoppingWord,
    tokens_cached: generation.prompt.length + Math.max(0, end.n_generated - 1),
    timings: timingsOf(generation),
  };
}

function probabilities(app: App, request: CompletionRequest, tokens: TokenRecord[]): object {
  if (!request.n_probs) return {};
  return { completion_probabilities: tokens.map((token) => logprobEntry(app.model.tokenizer, token)) };
}

async function whole(
  app: App,
  request: CompletionRequest,
  generations: Generation[],
  leave: () => void,
): Promise<Response> {
  const all = await collectAll(generations, leave);
  const results = all.map(({ text, tokens, end }, index) => ({
    index,
    content: text,
    tokens: request.return_tokens ? tokens.map((t) => t.id) : [],
    ...summary(app, request, generations[index], end),
    has_new_line: text.includes("\n"),
    ...probabilities(app, request, tokens),
  }));
  return json(results.length === 1 ? results[0] : results);
}

async function* chunks(
  app: App,
  request: CompletionRequest,
  generations: Generation[],
): AsyncGenerator<string, void, void> {
  const newLine = generations.map(() => false);
  const n_told = generations.map(() => 0);
  for await (const [index, event] of merge(generations.map((g) => g[Symbol.asyncIterator]()))) {
    const generation = generations[index];
    if (event.type === "end") {
      const told = summary(app, request, generation, event);
      yield JSON.stringify({ index, content: "", tokens: [], ...told, has_new_line: newLine[index] });
      continue;
    }
    newLine[index] ||= event.text.includes("\n");
    n_told[index] += event.tokens.length;
    yield JSON.stringify({
      index,
      content: event.text,
      tokens: event.tokens.map((t) => t.id),
      stop: false,
      id_slot: generation.slot,
      tokens_predicted: n_told[index],
      tokens_evaluated: generation.prompt.length,
      ...probabilities(app, request, event.tokens),
    });
  }
}

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Ids of a text; with pieces, bytes that are no text on their own come as numbers. */
export function tokenize(app: App, { body }: Exchange): Response {
  const request = parseBody(tokenizeSchema, body);
  const { tokenizer } = app.model;
  const { content = [], add_special = false, parse_special = true } = request;
  const pieces = typeof content === "string" ? [content] : content;
  const ids = pieces.flatMap((piece, i) =>
    typeof piece === "number"
      ? [piece]
      : Array.from(tokenizer.encode(piece, { addSpecial: add_special && i === 0, parseSpecial: parse_special }))
  );
  checkIds(ids, tokenizer, "content");
  if (!request.with_pieces) return json({ tokens: ids });
  const piece = (id: number) => {
    const bytes = tokenizer.pieceBytes(id, true);
    try {
      return strict.decode(bytes);
    } catch {
      return Array.from(bytes);
    }
  };
  return json({ tokens: ids.map((id) => ({ id, piece: piece(id) })) });
}

/** The text of ids; bytes that are no text become U+FFFD. */
export function detokenize(app: App, { body }: Exchange): Response {
  const request = parseBody(detokenizeSchema, body);
  const { tokenizer } = app.model;
  checkIds(request.tokens, tokenizer, "tokens");
  return json({ content: tokenizer.decode(request.tokens, { special: true }) });
}

/** The prompt that a conversation becomes. */
export function applyTemplate(app: App, { body }: Exchange): Response {
  return json({ prompt: renderChat(app, parseBody(conversationSchema, body)).prompt });
}
