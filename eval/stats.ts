/**
 * Means with standard errors over windows.
 * @module
 */

export interface Estimate {
  /** Over windows. */
  readonly mean: number;
  /** Standard error of the mean over windows; null for a single window, which has none. */
  readonly se: number | null;
}

/**
 * The mean over all tokens, from the means of windows and the tokens of each, with its standard error clustered by window: the
 * error of a ratio of two sums. With windows of one length that is `s / sqrt(n)` with the sample deviation `s`.
 * @param n_tokens Of each window; equal ones where left out.
 */
export function estimate(windowMeans: readonly number[], n_tokens?: readonly number[]): Estimate {
  const n = windowMeans.length;
  const weight = (i: number) => n_tokens?.[i] ?? 1;
  const total = windowMeans.reduce((sum, _, i) => sum + weight(i), 0);
  const mean = windowMeans.reduce((sum, x, i) => sum + weight(i) * x, 0) / total;
  if (n < 2) return { mean, se: null };
  const squares = windowMeans.reduce((sum, x, i) => sum + (weight(i) * (x - mean)) ** 2, 0);
  return { mean, se: Math.sqrt(squares * n / (n - 1)) / total };
}

/** `exp` of an estimate; the error to first order. */
export function expEstimate(e: Estimate): Estimate {
  const mean = Math.exp(e.mean);
  return { mean, se: e.se === null ? null : mean * e.se };
}

/** `1.234 ± 0.005`, and `-` for a standard error that there is none of. */
export function estimateText(e: Estimate, digits: number, scale = 1): string {
  return `${(e.mean * scale).toFixed(digits)} ± ${e.se === null ? "-" : (e.se * scale).toFixed(digits)}`;
}

export function meanOf(values: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i];
  return sum / values.length;
}
