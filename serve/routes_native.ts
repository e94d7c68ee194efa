/**
 * llama-server's own routes: POST /completion, /tokenize, /detokenize, /apply-template.
 * @module
 */
import { type AnswerPlan, type App, json } from "./app.ts";
import { collectAll } from "./collect.ts";
import { renderChat } from "./conversation.ts";
import { badRequest } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import type { Generation } from "./generation.ts";
import { logprobEntry } from "./logprobs.ts";
import { nativeResult, pickFields, progressOf } from "./native_result.ts";
import { checkIds, promptsOf } from "./prompts.ts";
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

/** Answers with one object for one answer, an array for several, or a stream of events. */
export function completion(app: App, exchange: Exchange): Promise<Response> | Response {
  const request = parseBody(completionSchema, exchange.body);
  return answerNatively(app, exchange, request, promptsOf(request.prompt, app.model.tokenizer));
}

/** Answers prompts in the shape of /completion. */
export function answerNatively(
  app: App,
  exchange: Exchange,
  request: Omit<CompletionRequest, "prompt">,
  prompts: readonly Int32Array[],
): Promise<Response> | Response {
  exchange.sends(request);
  const { n_vocab } = app.model.tokenizer;
  const n_probs = request.n_probs ? Math.min(request.n_probs, n_vocab) : undefined;
  if (request.n !== undefined && request.n_cmpl !== undefined && request.n !== request.n_cmpl) {
    throw badRequest(`n: expected the same as n_cmpl = ${request.n_cmpl}, found ${request.n}`, "n");
  }
  const n = request.n_cmpl ?? request.n ?? 1;
  const plans = prompts.flatMap((prompt, i) =>
    Array.from({ length: n }, (_, k): AnswerPlan => ({
      ...app.plan(request, prompt, i * n + k),
      n_probs,
      ...(k === 0 ? {} : { sharesPromptOf: i * n }),
    }))
  );
  const { generations, leave } = app.start(plans, exchange);
  if (request.stream) return sseResponse(app, exchange, chunks(app, request, generations), leave);
  return whole(app, request, generations, leave);
}

type NativeRequest = Pick<CompletionRequest, "n_probs" | "return_tokens" | "response_fields" | "timings_per_token">;

async function whole(
  app: App,
  request: NativeRequest,
  generations: Generation[],
  leave: () => void,
): Promise<Response> {
  const all = await collectAll(generations, leave);
  const results = all.map(({ text, tokens, end }, index) => {
    const result = nativeResult(app, generations[index], {
      index,
      content: text,
      tokens: request.return_tokens ? tokens.map((t) => t.id) : [],
      records: request.n_probs ? tokens : undefined,
      end,
    });
    return pickFields(result, request.response_fields);
  });
  return json(results.length === 1 ? results[0] : results);
}

async function* chunks(
  app: App,
  request: NativeRequest,
  generations: Generation[],
): AsyncGenerator<string, void, void> {
  const n_told = generations.map(() => 0);
  for await (const [index, event] of merge(generations.map((g) => g[Symbol.asyncIterator]()))) {
    const generation = generations[index];
    if (event.type === "end") {
      const last = { index, content: "", tokens: [], end: event };
      yield JSON.stringify(pickFields(nativeResult(app, generation, last), request.response_fields));
      continue;
    }
    const { text, tokens } = event.type === "text" ? event : { text: "", tokens: [] };
    n_told[index] += tokens.length;
    yield JSON.stringify({
      index,
      content: text,
      tokens: tokens.map((t) => t.id),
      stop: false,
      id_slot: generation.slot,
      tokens_predicted: n_told[index],
      tokens_evaluated: generation.prompt.length,
      ...(event.type === "progress" ? { prompt_progress: progressOf(event) } : {}),
      ...(request.timings_per_token ? { timings: timingsOf(generation) } : {}),
      ...(request.n_probs && event.type === "text"
        ? { completion_probabilities: tokens.map((t) => logprobEntry(app.model.tokenizer, t)) }
        : {}),
    });
  }
}

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Ids of a text. With pieces, a token that is not valid UTF-8 by itself comes as an array of bytes. */
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

/** The text of ids. Invalid UTF-8 becomes U+FFFD. */
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
