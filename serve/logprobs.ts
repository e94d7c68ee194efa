/**
 * Log-probabilities of tokens, from a row of the engine to the three shapes that clients know.
 * @module
 */
import { type TokenLogprob, type TokenProb, topLogprobs } from "../core/sampling/mod.ts";
import type { Row } from "./slot.ts";
import type { Tokenizer } from "./tokenizer.ts";

export type { TokenLogprob };

/** A chosen token with its rivals. */
export interface TokenRecord extends TokenLogprob {
  /** Code points of the answer before this token. */
  offset: number;
  /** Best first. */
  top: TokenLogprob[];
  /** Behind all stages of the sampler, where the request asks for it. */
  post?: { prob: number; top: TokenProb[] };
}

/** OpenAI writes this for a token that cannot occur; JSON has no infinity. */
const LOWEST = -9999;

/** The log-probability of `id` in a row; a token that is not among the row's candidates needs the whole row. */
export function logprobOf(row: Row, id: number): number {
  if (row.full !== undefined) return clamp(row.full[id] - row.lse);
  const i = row.ids.indexOf(id);
  return i < 0 ? LOWEST : clamp(row.logits[i] - row.lse);
}

/** The `n` likeliest tokens of a row, best first; equal ones by id. */
export function topOf(row: Row, n: number): TokenLogprob[] {
  if (n === 0) return [];
  if (n <= row.ids.length || row.full === undefined) {
    const m = Math.min(n, row.ids.length);
    return Array.from({ length: m }, (_, i) => ({ id: row.ids[i], logprob: clamp(row.logits[i] - row.lse) }));
  }
  return topLogprobs(row.full, n, row.ids[0]).top.map(({ id, logprob }) => ({ id, logprob: clamp(logprob) }));
}

/** What JSON can carry. */
export function clamp(x: number): number {
  return x >= LOWEST ? x : LOWEST; // also for NaN
}

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const lenient = new TextDecoder("utf-8", { ignoreBOM: true });

/** The token's text for display, U+FFFD where its bytes are no text on their own. */
export function tokenText(tokenizer: Tokenizer, id: number): string {
  return lenient.decode(tokenizer.pieceBytes(id, true));
}

/** The text of the legacy shape, where tokens are keys: bytes that are no text are spelled out, as OpenAI does. */
function tokenKey(tokenizer: Tokenizer, id: number): string {
  const bytes = tokenizer.pieceBytes(id, true);
  try {
    return strict.decode(bytes);
  } catch {
    return "bytes:" + Array.from(bytes, (b) => "\\x" + b.toString(16).padStart(2, "0")).join("");
  }
}

/**
 * An entry of `choices[].logprobs.content` and of `completion_probabilities`. `bytes` are exact. A record with probabilities
 * behind the sampler gives those instead of logarithms.
 */
export function logprobEntry(tokenizer: Tokenizer, record: TokenRecord): Record<string, unknown> {
  const entry = (id: number) => ({
    id,
    token: tokenText(tokenizer, id),
    bytes: Array.from(tokenizer.pieceBytes(id, true)),
  });
  const { post } = record;
  if (post !== undefined) {
    return {
      ...entry(record.id),
      prob: post.prob,
      top_probs: post.top.map(({ id, prob }) => ({ ...entry(id), prob })),
    };
  }
  return {
    ...entry(record.id),
    logprob: record.logprob,
    top_logprobs: record.top.map(({ id, logprob }) => ({ ...entry(id), logprob })),
  };
}

/** A token of the legacy shape; the first one of an echoed prompt has no probability. */
export type LegacyToken = TokenRecord | { id: number; offset: number };

/**
 * `choices[].logprobs` of /v1/completions.
 * @param n Rivals asked for; with 0 there are no `top_logprobs`.
 * @param start Offset of the first token, in code points of the text.
 */
export function legacyLogprobs(tokenizer: Tokenizer, tokens: LegacyToken[], n: number): Record<string, unknown> {
  const known = (t: LegacyToken): t is TokenRecord => "logprob" in t;
  return {
    tokens: tokens.map((t) => tokenKey(tokenizer, t.id)),
    token_logprobs: tokens.map((t) => (known(t) ? t.logprob : null)),
    top_logprobs: n === 0 ? null : tokens.map((t) => {
      if (!known(t)) return null;
      // The chosen token is always listed, even when it is not among the n best, and with the same number: a scorer takes it for
      // the best one where it equals the highest. The device rounds the two differently.
      const all = t.top.some((rival) => rival.id === t.id) ? t.top : [...t.top, t];
      return Object.fromEntries(
        all.map((rival) => [tokenKey(tokenizer, rival.id), rival.id === t.id ? t.logprob : rival.logprob]),
      );
    }),
    text_offset: tokens.map((t) => t.offset),
  };
}
