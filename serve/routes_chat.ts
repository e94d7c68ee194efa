/**
 * POST /v1/chat/completions: answers a conversation, and splits reasoning and tool calls from the content as they stream.
 * @module
 */
import { type App, json, randomId } from "./app.ts";
import { type ChatAnswer, startChat } from "./chat_answer.ts";
import { chatTokens, renderChat } from "./conversation.ts";
import { bestOf, collectAll, type Collected } from "./collect.ts";
import type { Delta } from "../core/chat/reasoning.ts";
import { badRequest, unsupported } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import type { Generation, GenerationEnd } from "./generation.ts";
import { logprobEntry, type TokenRecord } from "./logprobs.ts";
import { nativeResult, progressOf, verboseOf } from "./native_result.ts";
import { type ChatRequest, chatSchema, choicesOf, conversationSchema, parseBody } from "./schemas.ts";
import { sseResponse } from "./sse.ts";
import { merge } from "./streams.ts";
import { timingsOf, usageOf } from "./timings.ts";

export function chatCompletions(app: App, exchange: Exchange): Promise<Response> | Response {
  const request = parseBody(chatSchema, exchange.body);
  exchange.sends(request);
  refuse(request);
  const { n, best_of } = choicesOf(request);
  const n_probs = request.logprobs ? request.top_logprobs ?? 0 : best_of > n ? 0 : undefined;
  const { answers, leave } = startChat(app, request, exchange, { n: best_of, n_probs });
  const head = {
    id: randomId("chatcmpl-"),
    created: Math.floor(Date.now() / 1000),
    model: app.model.id,
    system_fingerprint: app.settings.build,
  };
  if (request.reasoning_control) keepControl(app, head.id, answers);
  if (request.stream) return sseResponse(app, exchange, chunks(app, request, answers, head), leave);
  return whole(app, request, answers, head, leave);
}

/** Lets POST /v1/chat/completions/control find the answers while they run. */
function keepControl(app: App, id: string, answers: readonly ChatAnswer[]): void {
  app.controlled.set(id, answers.flatMap((a) => a.endReasoning ?? []));
  Promise.all(answers.map((a) => a.generation.ended)).then(() => app.controlled.delete(id));
}

/** Tokens that a conversation's prompt has. */
export function chatInputTokens(app: App, { body }: Exchange): Response {
  const { prompt } = renderChat(app, parseBody(conversationSchema, body));
  return json({ object: "response.input_tokens", input_tokens: chatTokens(app.model.tokenizer, prompt).length });
}

/** Refuses fields that would change the answer and are not supported. */
function refuse(request: ChatRequest): void {
  if (request.functions !== undefined) throw unsupported("functions", "use tools, which replaced them");
  if (request.function_call !== undefined) throw unsupported("function_call", "use tool_choice, which replaced it");
  if (request.modalities?.some((m) => m !== "text")) {
    throw unsupported("modalities", "this server answers in text only");
  }
  if (request.top_logprobs !== undefined && !request.logprobs) {
    throw badRequest("top_logprobs: needs logprobs to be true", "top_logprobs");
  }
}

/** Gives each call an id when the model's format has none; a call keeps its id over the whole stream. */
class Calls {
  readonly list: { id: string; type: "function"; function: { name: string; arguments: string } }[] = [];

  /** Takes the parser's piece and returns the piece for the client. */
  add(piece: NonNullable<Delta["tool_call"]>): Record<string, unknown> {
    const known = this.list[piece.index];
    if (known !== undefined) {
      known.function.arguments += piece.arguments;
      return { index: piece.index, function: { arguments: piece.arguments } };
    }
    const call = {
      id: piece.id ?? randomId(""),
      type: "function" as const,
      function: { name: piece.name ?? "", arguments: piece.arguments },
    };
    this.list[piece.index] = call;
    return { index: piece.index, ...call, function: { ...call.function } };
  }
}

/** @param cut The answer ends with an incomplete call. */
function finishReason(end: GenerationEnd, calls: Calls, cut: boolean): string {
  if (calls.list.length > 0 && !(cut && end.stopType === "limit")) return "tool_calls";
  return end.stopType === "limit" ? "length" : "stop";
}

async function whole(
  app: App,
  request: ChatRequest,
  answers: ChatAnswer[],
  head: object,
  leave: () => void,
): Promise<Response> {
  const generations = answers.map((a) => a.generation);
  const all = await collectAll(generations, leave);
  const best = bestOf(all, choicesOf(request).n);
  return json({
    ...head,
    object: "chat.completion",
    choices: best.map((i, index) => choiceOf(app, request, answers[i], all[i], index)),
    usage: usageOf(generations),
    ...(generations.length === 1 ? { timings: timingsOf(generations[0]) } : {}),
    ...(request.verbose ?? app.settings.verbose ? { __verbose: verboseOf(app, generations[0], all[0]) } : {}),
  });
}

function choiceOf(app: App, request: ChatRequest, { parser }: ChatAnswer, whole: Collected, index: number): object {
  let content = "", reasoning = "";
  let malformed = false;
  let cut = false;
  const calls = new Calls();
  for (const delta of [...parser.push(whole.text), ...parser.finish()]) {
    content += delta.content ?? "";
    reasoning += delta.reasoning_content ?? "";
    cut = delta.malformed ?? false;
    malformed ||= cut;
    if (delta.tool_call) calls.add(delta.tool_call);
  }
  const message = {
    role: "assistant",
    content: content === "" && calls.list.length > 0 ? null : content,
    ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
    ...(calls.list.length === 0 ? {} : { tool_calls: calls.list }),
    ...(malformed ? { malformed } : {}),
  };
  const logprobs = request.logprobs ? { content: whole.tokens.map((r) => logprobEntry(app.model.tokenizer, r)) } : null;
  return { index, message, logprobs, finish_reason: finishReason(whole.end, calls, cut) };
}

async function* chunks(
  app: App,
  request: ChatRequest,
  answers: ChatAnswer[],
  head: object,
): AsyncGenerator<string, void, void> {
  const include_usage = request.stream_options?.include_usage ?? false;
  const generations = answers.map((a) => a.generation);
  const chunk = (choices: unknown[], more: object = {}) =>
    JSON.stringify({
      ...head,
      object: "chat.completion.chunk",
      choices,
      ...(include_usage ? { usage: null } : {}),
      ...more,
    });
  const timings = () => generations.length === 1 ? { timings: timingsOf(generations[0]) } : {};
  const choices = answers.map(({ parser }, index) => new StreamedChoice(app, request, parser, index));
  const verbose = request.verbose ?? app.settings.verbose;
  for (const choice of choices) yield chunk([choice.begin()]);
  for await (const [i, event] of merge(generations.map((g) => g[Symbol.asyncIterator]()))) {
    const soFar = request.timings_per_token ? { timings: timingsOf(generations[i]) } : {};
    if (event.type === "progress") yield chunk([choices[i].begin()], { ...soFar, prompt_progress: progressOf(event) });
    else if (event.type === "text") {
      for (const piece of choices[i].push(event.text, event.tokens)) yield chunk([piece], soFar);
    } else {
      const pieces = choices[i].finish(event);
      const last = pieces.length - 1;
      const more = {
        ...(include_usage ? {} : timings()),
        ...(verbose ? { __verbose: choices[i].native(generations[i], event) } : {}),
      };
      for (const [k, piece] of pieces.entries()) yield chunk([piece], k === last ? more : {});
    }
  }
  if (include_usage) yield chunk([], { usage: usageOf(generations), ...timings() });
  yield "[DONE]";
}

/** One choice of a stream. */
class StreamedChoice {
  readonly #calls = new Calls();
  /** Records of tokens without a delta of their own, such as tags: the next delta carries them. */
  #records: TokenRecord[] = [];
  /** The answer ends with an incomplete call. */
  #cut = false;

  constructor(
    readonly app: App,
    readonly request: ChatRequest,
    readonly parser: ChatAnswer["parser"],
    readonly index: number,
  ) {}

  begin(): object {
    return this.#choice({ role: "assistant", content: null });
  }

  /** The end as /completion would tell it. */
  native(generation: Generation, end: GenerationEnd): object {
    const { index } = this;
    return nativeResult(this.app, generation, { index, content: "", tokens: [], end });
  }

  push(text: string, tokens: TokenRecord[]): object[] {
    if (this.request.logprobs) this.#records.push(...tokens);
    return this.#pieces(this.parser.push(text));
  }

  finish(end: GenerationEnd): object[] {
    const pieces = this.#pieces(this.parser.finish());
    return [...pieces, this.#choice({}, finishReason(end, this.#calls, this.#cut))];
  }

  #pieces(deltas: Delta[]): object[] {
    return deltas.map((delta) => {
      const { tool_call, ...rest } = delta;
      this.#cut = delta.malformed ?? false;
      if (tool_call === undefined) return this.#choice(rest);
      return this.#choice({ ...rest, tool_calls: [this.#calls.add(tool_call)] });
    });
  }

  #choice(delta: object, finish_reason: string | null = null): object {
    const records = this.#records;
    this.#records = [];
    const { tokenizer } = this.app.model;
    const logprobs = records.length > 0 ? { content: records.map((r) => logprobEntry(tokenizer, r)) } : null;
    return { index: this.index, delta, logprobs, finish_reason };
  }
}
