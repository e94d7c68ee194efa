/**
 * Adds the chunks of a streamed answer to its message.
 * @module
 */
import type { Message, Rival, Stats, TokenRecord } from "./types.ts";

interface WireToken {
  id?: number;
  token?: string;
  bytes?: number[] | null;
  logprob?: number;
  top_logprobs?: WireToken[];
}

interface Chunk {
  error?: { message?: string };
  model?: string;
  choices?: {
    delta?: {
      content?: string | null;
      reasoning_content?: string | null;
      tool_calls?: { index?: number; id?: string; function?: { name?: string; arguments?: string } }[];
    };
    finish_reason?: string | null;
    logprobs?: { content?: WireToken[] | null } | null;
  }[];
  timings?: Record<string, number>;
  usage?: { prompt_tokens_details?: { cached_tokens?: number } } | null;
}

/** The server refused, or broke off with an error. */
export class AnswerError extends Error {}

/**
 * Takes one event.
 * @returns whether the stream has ended
 * @throws {AnswerError} with the server's words when the event is an error
 */
export function addEvent(message: Message, data: string): boolean {
  if (data === "[DONE]") return true;
  const chunk = JSON.parse(data) as Chunk;
  if (chunk.error) throw new AnswerError(chunk.error.message ?? "The server failed");
  if (chunk.model !== undefined) message.model = chunk.model;
  const choice = chunk.choices?.[0];
  if (choice !== undefined) {
    const { delta } = choice;
    message.content += delta?.content ?? "";
    message.reasoning += delta?.reasoning_content ?? "";
    for (const call of delta?.tool_calls ?? []) {
      const known = message.calls[call.index ?? message.calls.length] ??= { id: "", name: "", arguments: "" };
      known.id ||= call.id ?? "";
      known.name += call.function?.name ?? "";
      known.arguments += call.function?.arguments ?? "";
    }
    if (choice.finish_reason) message.finish = choice.finish_reason;
    const records = choice.logprobs?.content;
    if (records?.length) (message.tokens ??= []).push(...records.map(recordOf));
  }
  if (chunk.timings !== undefined) message.stats = statsOf(chunk.timings);
  return false;
}

function rivalOf(token: WireToken): Rival {
  return {
    id: token.id ?? -1,
    bytes: token.bytes ?? Array.from(new TextEncoder().encode(token.token ?? "")),
    logprob: token.logprob ?? -Infinity,
  };
}

function recordOf(token: WireToken): TokenRecord {
  return { ...rivalOf(token), top: (token.top_logprobs ?? []).map(rivalOf) };
}

function statsOf(t: Record<string, number>): Stats {
  const of = (name: string) => Number.isFinite(t[name]) ? t[name] : 0;
  return {
    n_prompt: of("prompt_n") + of("cache_n"),
    n_cached: of("cache_n"),
    n_predicted: of("predicted_n"),
    prompt_rate: of("prompt_per_second"),
    predicted_rate: of("predicted_per_second"),
  };
}

/** Back to how the answer was when its stream began: the stream is read again from its first event. */
export function rewind(message: Message): void {
  const { content, reasoning, n_tokens } = message.start ?? { content: "", reasoning: "", n_tokens: 0 };
  message.content = content;
  message.reasoning = reasoning;
  message.calls = [];
  if (message.tokens !== undefined) message.tokens = message.tokens.slice(0, n_tokens);
  delete message.finish;
  delete message.stats;
}
