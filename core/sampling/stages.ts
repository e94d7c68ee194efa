/**
 * Stages of the chain that narrow or reshape a list of candidates, each a few lines after its paper's definition.
 * All keep at least `keep` candidates.
 * @module
 */
import type { Candidates } from "./candidates.ts";

/** Nucleus: the shortest head whose mass reaches `p`. Holtzman et al. 2019, arXiv 1904.09751. */
export function topP(c: Candidates, p: number, keep: number, mass: Float64Array = c.probabilities()): void {
  let sum = 0;
  for (let i = 0; i < c.length; i++) {
    sum += mass[i];
    if (sum >= p && i + 1 >= keep) return c.slice(0, i + 1);
  }
}

/** Candidates at least `p` times as probable as the best. Nguyen et al. 2024, arXiv 2407.01082. */
export function minP(c: Candidates, p: number, keep: number): void {
  const floor = c.logits[0] + Math.log(p);
  let n = 1;
  while (n < c.length && (n < keep || c.logits[n] >= floor)) n++;
  c.slice(0, n);
}

/** Candidates whose surprise is nearest the entropy, up to mass `p`. Meister et al. 2022, arXiv 2202.00666. */
export function typical(c: Candidates, p: number, keep: number): void {
  const probability = c.probabilities();
  const surprise = probability.map((x) => x > 0 ? -Math.log(x) : Infinity);
  let entropy = 0;
  for (let i = 0; i < c.length; i++) if (probability[i] > 0) entropy += probability[i] * surprise[i];
  const order = Array.from(probability, (_, i) => i);
  order.sort((a, b) => Math.abs(surprise[a] - entropy) - Math.abs(surprise[b] - entropy) || a - b);
  let sum = 0, n = 0;
  while (n < order.length && (sum <= p || n < keep)) sum += probability[order[n++]];
  const kept = order.slice(0, Math.max(1, n)).sort((a, b) => a - b); // best first again
  [c.ids, c.logits] = [Int32Array.from(kept, (i) => c.ids[i]), Float64Array.from(kept, (i) => c.logits[i])];
}

/** Exclude Top Choices: drops all candidates of probability >= threshold but the least of them. */
export function xtc(c: Candidates, threshold: number, keep: number): void {
  if (threshold > 0.5 || c.length < 2) return; // two candidates cannot both reach it
  const p = c.probabilities();
  let last = 0;
  while (last + 1 < c.length && p[last + 1] >= threshold) last++;
  if (p[0] >= threshold && last > 0 && c.length - last >= keep) c.slice(last, c.length);
}

/** Divides the logits; with a range, by a temperature between t - range and t + range that grows with entropy. */
export function temperature(c: Candidates, t: number, range: number, exponent: number): void {
  let divisor = t;
  if (range > 0 && c.length > 1) {
    const p = c.probabilities();
    let entropy = 0;
    for (const x of p) if (x > 0) entropy -= x * Math.log(x);
    const low = Math.max(0, t - range);
    divisor = low + (t + range - low) * Math.pow(entropy / Math.log(c.length), exponent);
  }
  if (divisor <= 0) return c.slice(0, 1);
  for (let i = 0; i < c.length; i++) c.logits[i] /= divisor;
}

/** Width, in probability, of the peak around the target, its height, and how steeply it falls, all of the last draw. */
const PEAK = { width: 0.3, height: 5, steepness: 10 };

/**
 * Adaptive-p, in place of the plain draw: candidates are weighed by how near their probability is to a target, which moves
 * so that the average over the chosen tokens, an exponential one, stays at the asked value.
 */
export class AdaptiveTarget {
  readonly #target: number;
  readonly #decay: number;
  /** Probabilities of the chosen tokens and their number, both fading; they begin as a long past at the target. */
  #sum: number;
  #n: number;

  constructor(target: number, decay: number) {
    this.#target = Math.min(1, target);
    this.#decay = Math.min(0.99, Math.max(0, decay));
    this.#n = 1 / (1 - this.#decay);
    this.#sum = this.#target * this.#n;
  }

  /** The probability that the next token should have. */
  get next(): number {
    return Math.min(1, Math.max(0, 2 * this.#target - this.#sum / this.#n));
  }

  /** Probabilities of the draw, from those of the candidates. */
  weigh(probabilities: Float64Array): Float64Array {
    const target = this.next;
    const weights = probabilities.map((p) => {
      const distance = Math.abs(p - target) / PEAK.width;
      return Math.exp(PEAK.height - PEAK.steepness * distance * distance / (1 + distance));
    });
    const sum = weights.reduce((a, b) => a + b);
    return weights.map((w) => w / sum);
  }

  /** A token of this probability was chosen. */
  accept(probability: number): void {
    this.#sum = probability + this.#decay * this.#sum;
    this.#n = 1 + this.#decay * this.#n;
  }
}

/**
 * Penalties of DRY ("don't repeat yourself"): for every token that would extend a repetition of the text's end longer
 * than `allowed`, `multiplier * base^(length - allowed)`. Linear in the history: lengths come from the Z function of
 * the reversed text.
 */
export function dryPenalties(
  history: readonly number[],
  breakers: ReadonlySet<number>,
  { multiplier, base, allowed }: { multiplier: number; base: number; allowed: number },
): Map<number, number> {
  let reach = 0; // A repetition must not cross the last breaker.
  while (reach < history.length && !breakers.has(history[history.length - 1 - reach])) reach++;
  const n = history.length;
  const at = (i: number) => history[n - 1 - i];
  const z = new Int32Array(n);
  const longest = new Map<number, number>();
  for (let i = 1, left = 0, right = 0; i < n; i++) {
    if (i < right) z[i] = Math.min(right - i, z[i - left]);
    while (i + z[i] < n && at(z[i]) === at(i + z[i])) z[i]++;
    if (i + z[i] > right) [left, right] = [i, i + z[i]];
    const length = Math.min(z[i], reach);
    const next = at(i - 1); // the token that followed this earlier occurrence
    if (length >= allowed && length > (longest.get(next) ?? 0)) longest.set(next, length);
  }
  const penalties = new Map<number, number>();
  for (const [token, length] of longest) {
    if (breakers.has(token)) continue;
    penalties.set(token, multiplier * Math.pow(base, Math.min(length - allowed, 200)));
  }
  return penalties;
}
