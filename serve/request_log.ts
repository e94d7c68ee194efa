/**
 * The request log: one line for each request, written when the request ends. It holds prompts only when the operator asks for
 * them.
 * @module
 */
import type { Exchange } from "./exchange.ts";
import type { Tokenizer } from "./tokenizer.ts";

export const LOG_FORMATS = ["text", "json"] as const;
export type LogFormat = typeof LOG_FORMATS[number];

/** One entry of the log. Unknown figures are absent. */
export interface RequestLogEntry {
  /** When it ended, ISO 8601. */
  time: string;
  /** Names the request, as its answer does. */
  id: string;
  /** HTTP method. */
  method: string;
  /** The path, without its query. */
  route: string;
  /** HTTP status; 499 when the client disconnected before the answer was complete. */
  status: number;
  /** `error.code` of a failure. */
  error?: string;
  /** From its arrival to its end. */
  ms: number;
  /** Prompt tokens, over all answers of the request. */
  tokens_in?: number;
  /** Of these, taken over from a cache. */
  tokens_cached?: number;
  /** Generated tokens, over all answers. */
  tokens_out?: number;
  /** From the request's arrival to its first token. */
  first_token_ms?: number;
  /** Of one answer, after its prompt. */
  tokens_per_second?: number;
  /** Texts of the prompts, where they are asked for. */
  prompts?: string[];
}

/** @param tokenizer Set it to include prompts. */
export function logEntry(exchange: Exchange, tokenizer?: Tokenizer): RequestLogEntry {
  const { generations, id, method, path, status, failure } = exchange;
  const entry: RequestLogEntry = {
    time: new Date().toISOString(),
    id,
    method,
    route: path,
    status,
    ...(failure === undefined ? {} : { error: failure }),
    ms: Math.round(performance.now() - exchange.started),
  };
  if (generations.length === 0) return entry;
  const sum = (of: (g: Exchange["generations"][number]) => number) => generations.reduce((n, g) => n + of(g), 0);
  const own = generations.filter((g) => g.after === undefined);
  entry.tokens_in = own.reduce((n, g) => n + g.prompt.length, 0);
  entry.tokens_cached = own.reduce((n, g) => n + g.n_cached, 0);
  entry.tokens_out = sum((g) => g.n_generated);
  const firsts = generations.map((g) => g.times.prompted).filter((t) => t > 0);
  if (firsts.length > 0 && entry.tokens_out > 0) {
    entry.first_token_ms = Math.round(Math.min(...firsts) - exchange.started);
    // The first token comes with the prompt's last row.
    const rates = generations.flatMap((g) => {
      const seconds = (g.times.ended - g.times.prompted) / 1000;
      return g.n_generated > 1 && seconds > 0 ? [(g.n_generated - 1) / seconds] : [];
    });
    if (rates.length > 0) {
      entry.tokens_per_second = Math.round(10 * rates.reduce((a, b) => a + b) / rates.length) / 10;
    }
  }
  if (tokenizer !== undefined) {
    entry.prompts = own.map((g) => tokenizer.decode(g.prompt, { special: true }));
  }
  return entry;
}

/** An entry as one line. */
export function formatEntry(entry: RequestLogEntry, format: LogFormat): string {
  if (format === "json") return JSON.stringify(entry);
  const { time, method, route, status, error, ms, tokens_in, tokens_cached, tokens_out, prompts } = entry;
  const words = [time, method, route, String(status)];
  if (error !== undefined) words.push(error);
  if (tokens_in !== undefined) words.push(`in ${tokens_in}`, `cached ${tokens_cached}`, `out ${tokens_out}`);
  if (entry.first_token_ms !== undefined) words.push(`first ${entry.first_token_ms} ms`);
  if (entry.tokens_per_second !== undefined) words.push(`${entry.tokens_per_second} tok/s`);
  words.push(`total ${ms} ms`);
  for (const prompt of prompts ?? []) words.push(JSON.stringify(prompt));
  return words.join("  ");
}
