/**
 * Log probabilities of tokens under a row of logits, as APIs report them.
 * @module
 */
import { bestIds, logSumExp } from "./candidates.ts";

export interface TokenLogprob {
  id: number;
  /** Natural logarithm. */
  logprob: number;
}

/**
 * Log probability of the chosen token and the `n` best, best first, from the unmodified row.
 * Cost: one exponential per vocabulary entry near the best, one pass for the best.
 */
export function topLogprobs(
  logits: Float32Array,
  n: number,
  chosen: number,
): { logprob: number; top: TokenLogprob[] } {
  const lse = logSumExp(logits);
  const top = n > 0 ? Array.from(bestIds(logits, n), (id) => ({ id, logprob: logits[id] - lse })) : [];
  return { logprob: logits[chosen] - lse, top };
}
