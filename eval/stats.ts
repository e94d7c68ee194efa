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

/** The mean of window means and its standard error, `s / sqrt(n)` with the sample deviation `s`. */
export function estimate(windowMeans: readonly number[]): Estimate {
  const n = windowMeans.length;
  const mean = windowMeans.reduce((a, b) => a + b, 0) / n;
  if (n < 2) return { mean, se: null };
  const variance = windowMeans.reduce((sum, x) => sum + (x - mean) ** 2, 0) / (n - 1);
  return { mean, se: Math.sqrt(variance / n) };
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
