/**
 * Waits for whole answers.
 * @module
 */
import type { Generation, GenerationEnd } from "./generation.ts";
import type { TokenRecord } from "./logprobs.ts";

export interface Collected {
  text: string;
  tokens: TokenRecord[];
  end: GenerationEnd;
}

/**
 * Waits for an answer.
 * @throws The error that ended it.
 */
export async function collect(generation: Generation): Promise<Collected> {
  let text = "";
  const tokens: TokenRecord[] = [];
  for await (const event of generation) {
    if (event.type === "end") return { text, tokens, end: event };
    if (event.type !== "text") continue;
    text += event.text;
    tokens.push(...event.tokens);
  }
  throw new Error("a generation ended without its end event");
}

/**
 * Waits for several answers to one request. When one fails, the others are cancelled.
 * @param leave Cancels all of them.
 */
export async function collectAll(generations: readonly Generation[], leave: () => void): Promise<Collected[]> {
  try {
    return await Promise.all(generations.map(collect));
  } catch (error) {
    leave();
    throw error;
  }
}

/** Indices of the `n` answers with the highest mean log-probability, best first. With no more than `n` answers, all in their order. */
export function bestOf(answers: readonly Collected[], n: number): number[] {
  if (answers.length <= n) return [...answers.keys()];
  const scores = answers.map(({ tokens }) =>
    tokens.length === 0 ? -Infinity : tokens.reduce((sum, t) => sum + t.logprob, 0) / tokens.length
  );
  return [...answers.keys()].sort((a, b) => scores[b] - scores[a] || a - b).slice(0, n);
}
