/**
 * POST /v1/chat/completions: a conversation to an answer, with reasoning and tool calls taken apart as they stream.
 * @module
 */
import { type App, type ClientRequest, json, randomId } from "./app.ts";
import { startChat } from "./chat_answer.ts";
import { badRequest, unsupported } from "./errors.ts";
import type { Generation, GenerationEnd } from "./generation.ts";
import { logprobEntry, type TokenRecord } from "./logprobs.ts";
import type { ChatDelta, OutputParser } from "./model.ts";
import { type ChatRequest, chatSchema, parseBody } from "./schemas.ts";
import { sseResponse } from "./sse.ts";
import { timingsOf, usageOf } from "./timings.ts";

export function chatCompletions(app: App, { body, signal }: ClientRequest): Promise<Response> | Response {
  const request = parseBody(chatSchema, body);
  refuse(request);
  const n_probs = request.logprobs ? request.top_logprobs ?? 0 : undefined;
  const { generation, parser, leave } = startChat(app, request, signal, n_probs);
  const answer: Answer = {
    generation,
    parser,
    withLogprobs: request.logprobs ?? false,
    head: {
      id: randomId("chatcmpl-"),
      created: Math.floor(Date.now() / 1000),
      model: app.model.id,
      system_fingerprint: app.settings.build,
    },
  };
  if (request.stream) return sseResponse(chunks(app, request, answer), leave);
  return whole(app, answer);
}

/** What would change the answer and cannot be honoured. */
function refuse(request: ChatRequest): void {
  if ((request.n ?? 1) !== 1) throw unsupported("n", "only 1 answer can be given");
  if (request.functions !== undefined) throw unsupported("functions", "use tools, which replaced them");
  if (request.function_call !== undefined) throw unsupported("function_call", "use tool_choice, which replaced it");
  if (request.modalities?.some((m) => m !== "text")) {
    throw unsupported("modalities", "this server answers in text only");
  }
  if (request.top_logprobs !== undefined && !request.logprobs) {
    throw badRequest("top_logprobs: needs logprobs to be true", "top_logprobs");
  }
}

interface Answer {
  generation: Generation;
  parser: OutputParser;
  withLogprobs: boolean;
  head: Record<string, unknown>;
}

/** Calls get an id here where the model's format has none, and each keeps it over the stream. */
class Calls {
  readonly list: { id: string; type: "function"; function: { name: string; arguments: string } }[] = [];

  /** Takes a parser's piece in and gives the piece for the client. */
  add(piece: NonNullable<ChatDelta["tool_call"]>): Record<string, unknown> {
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

/** @param cut What came last is a call that is not complete. */
function finishReason(end: GenerationEnd, calls: Calls, cut: boolean): string {
  if (calls.list.length > 0 && !(cut && end.stopType === "limit")) return "tool_calls";
  return end.stopType === "limit" ? "length" : "stop";
}

async function whole(app: App, answer: Answer): Promise<Response> {
  const { generation, parser } = answer;
  let content = "", reasoning = "", text = "";
  let malformed = false, cut = false;
  const calls = new Calls();
  const records: TokenRecord[] = [];
  let end: GenerationEnd | undefined;
  for await (const event of generation) {
    if (event.type === "end") end = event;
    else {
      text += event.text;
      if (answer.withLogprobs) records.push(...event.tokens);
    }
  }
  for (const delta of [...parser.push(text), ...parser.finish()]) {
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
  const logprobs = answer.withLogprobs ? { content: records.map((r) => logprobEntry(app.model.tokenizer, r)) } : null;
  return json({
    ...answer.head,
    object: "chat.completion",
    choices: [{ index: 0, message, logprobs, finish_reason: finishReason(end!, calls, cut) }],
    usage: usageOf([generation]),
    timings: timingsOf(generation),
  });
}

async function* chunks(app: App, request: ChatRequest, answer: Answer): AsyncGenerator<string, void, void> {
  const { generation, parser } = answer;
  const include_usage = request.stream_options?.include_usage ?? false;
  const calls = new Calls();
  const chunk = (choices: unknown[], more: object = {}) =>
    JSON.stringify({
      ...answer.head,
      object: "chat.completion.chunk",
      choices,
      ...(include_usage ? { usage: null } : {}),
      ...more,
    });
  const choice = (delta: object, records: TokenRecord[] = [], finish_reason: string | null = null) => ({
    index: 0,
    delta,
    logprobs: records.length > 0 ? { content: records.map((r) => logprobEntry(app.model.tokenizer, r)) } : null,
    finish_reason,
  });
  const forClient = (delta: ChatDelta) => {
    const { tool_call, ...rest } = delta;
    return tool_call === undefined ? rest : { ...rest, tool_calls: [calls.add(tool_call)] };
  };
  yield chunk([choice({ role: "assistant", content: "" })]);
  let end: GenerationEnd | undefined;
  // Records wait for the next delta: text of a tag or a call's beginning gives none of its own.
  let records: TokenRecord[] = [];
  let cut = false;
  const chunksOf = function* (deltas: ChatDelta[]) {
    for (const delta of deltas) {
      cut = delta.malformed ?? false;
      yield chunk([choice(forClient(delta), records)]);
      records = [];
    }
  };
  for await (const event of generation) {
    if (event.type === "end") {
      end = event;
      break;
    }
    if (answer.withLogprobs) records.push(...event.tokens);
    yield* chunksOf(parser.push(event.text));
  }
  yield* chunksOf(parser.finish());
  yield chunk([choice({}, records, finishReason(end!, calls, cut))], { timings: timingsOf(generation) });
  if (include_usage) yield chunk([], { usage: usageOf([generation]) });
  yield "[DONE]";
}
