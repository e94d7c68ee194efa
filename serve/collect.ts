/**
 * A generation as a whole.
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
 * @throws What went wrong with it.
 */
export async function collect(generation: Generation): Promise<Collected> {
  let text = "";
  const tokens: TokenRecord[] = [];
  for await (const event of generation) {
    if (event.type === "end") return { text, tokens, end: event };
    text += event.text;
    tokens.push(...event.tokens);
  }
  throw new Error("a generation ended without its end event");
}

/**
 * Waits for several answers to one request. When one fails the others are given up.
 * @param leave Gives them all up.
 */
export async function collectAll(generations: readonly Generation[], leave: () => void): Promise<Collected[]> {
  try {
    return await Promise.all(generations.map(collect));
  } catch (error) {
    leave();
    throw error;
  }
}

/** Places of the `n` answers whose tokens were likeliest on average, the best first; all in their order where there are no more. */
export function bestOf(answers: readonly Collected[], n: number): number[] {
  if (answers.length <= n) return [...answers.keys()];
  const scores = answers.map(({ tokens }) =>
    tokens.length === 0 ? -Infinity : tokens.reduce((sum, t) => sum + t.logprob, 0) / tokens.length
  );
  return [...answers.keys()].sort((a, b) => scores[b] - scores[a] || a - b).slice(0, n);
}
