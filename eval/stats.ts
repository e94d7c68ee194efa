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

/** Values of one window. */
type Cluster = readonly number[];

/**
 * A quantile of all values, and its standard error clustered by window: how far the quantile moves when the share of values below it
 * moves by the error of that share (Woodruff's interval).
 * @param share From 0 to 1.
 */
export function quantileEstimate(clusters: readonly Cluster[], share: number): Estimate {
  const sorted = Float64Array.from(clusters.flat()).sort();
  /** The least value with at least this share of all at or below it. */
  const at = (p: number) => sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(p * sorted.length) - 1))];
  const mean = at(share);
  const below = clusters.map((values) => values.filter((x) => x <= mean).length / values.length);
  const { se } = estimate(below, clusters.map((values) => values.length));
  return { mean, se: se === null ? null : (at(share + se) - at(share - se)) / 2 };
}

/** `ln Γ(x)` for x > 0: Stirling's series, after the argument was moved to where it is exact. */
function logGamma(x: number): number {
  let shift = 0;
  for (; x < 10; x++) shift -= Math.log(x);
  const inverse = 1 / (x * x);
  const series = (1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse / 1680))) / x;
  return shift + (x - 0.5) * Math.log(x) - x + Math.log(2 * Math.PI) / 2 + series;
}

/** The probability of a value of Student's t, with `df` degrees of freedom, as far from 0 as `t` or farther, on both sides. */
export function studentP(t: number, df: number): number {
  if (!Number.isFinite(t)) return Number.isNaN(t) ? NaN : 0;
  const a = df / 2, b = 0.5, x = df / (df + t * t);
  const front = Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x));
  if (x === 1) return 1;
  // The continued fraction of the incomplete beta function converges fast below its mean; above, the other side's does.
  return x < (a + 1) / (a + b + 2)
    ? Math.min(1, front * betaFraction(a, b, x) / a)
    : Math.max(0, 1 - front * betaFraction(b, a, 1 - x) / b);
}

/** The continued fraction of the incomplete beta function, evaluated from its end. */
function betaFraction(a: number, b: number, x: number): number {
  let value = 0;
  for (let m = 200; m >= 1; m--) {
    const odd = -(a + m - 1) * (a + b + m - 1) * x / ((a + 2 * m - 2) * (a + 2 * m - 1));
    const even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    value = odd / (1 + even / (1 + value));
  }
  return 1 / (1 + value);
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
