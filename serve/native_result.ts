/**
 * A finished answer in llama-server's own shape: what /completion answers, and what `__verbose` holds on other routes.
 * @module
 */
import type { App } from "./app.ts";
import type { Collected } from "./collect.ts";
import type { Generation, GenerationEnd } from "./generation.ts";
import { logprobEntry, type TokenRecord } from "./logprobs.ts";
import { timingsOf } from "./timings.ts";

/** An answer's text and tokens; a stream's last event has neither, because the events before it had them. */
export interface NativeAnswer {
  index: number;
  content: string;
  /** Ids to show; empty where the request does not ask for them. */
  tokens: number[];
  /** Records of the tokens, where their probabilities are asked for. */
  records?: TokenRecord[] | undefined;
  end: GenerationEnd;
}

export function nativeResult(app: App, generation: Generation, answer: NativeAnswer): Record<string, unknown> {
  const { index, content, tokens, records, end } = answer;
  const { tokenizer, id } = app.model;
  return {
    index,
    content,
    tokens,
    id_slot: generation.slot,
    stop: true,
    model: id,
    tokens_predicted: end.n_generated,
    tokens_evaluated: generation.prompt.length,
    generation_settings: generation.settings,
    prompt: tokenizer.decode(generation.prompt, { special: true }),
    has_new_line: generation.hasNewLine,
    truncated: end.truncated,
    stop_type: end.stopType,
    stopping_word: end.stoppingWord,
    tokens_cached: generation.prompt.length + Math.max(0, end.n_generated - 1),
    timings: timingsOf(generation),
    ...(records === undefined ? {} : { completion_probabilities: records.map((r) => logprobEntry(tokenizer, r)) }),
  };
}

/** What `__verbose` holds: the first answer as /completion would give it. */
export function verboseOf(app: App, generation: Generation, { text, tokens, end }: Collected): object {
  const ids = tokens.map((t) => t.id);
  return nativeResult(app, generation, { index: 0, content: text, tokens: ids, end });
}

/** Of an object only what `response_fields` names: a member, or one of a member's as `a/b`, which keeps that name. */
export function pickFields(from: Record<string, unknown>, fields: readonly string[] | undefined): object {
  if (fields === undefined || fields.length === 0) return from;
  const picked: Record<string, unknown> = {};
  for (const field of fields) {
    let value: unknown = from;
    for (const name of field.split("/")) {
      const has = typeof value === "object" && value !== null && Object.hasOwn(value, name);
      value = has ? (value as Record<string, unknown>)[name] : undefined;
    }
    if (value !== undefined) picked[field] = value;
  }
  return picked;
}

/** `prompt_progress` as clients know it. */
export function progressOf({ total, cache, processed, time_ms }: {
  total: number;
  cache: number;
  processed: number;
  time_ms: number;
}): object {
  return { total, cache, processed, time_ms };
}
