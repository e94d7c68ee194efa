/**
 * How many tokens to guess. A guess is worth the share of its like that were right; a step costs what steps of so many rows were
 * measured to take. Guessing that loses time in spite of that is stopped by an account: a hundredth of the time that plain steps take is
 * there to try guesses with, and no more.
 *
 * Widths depend on the clock. What is answered does not depend on widths.
 * @module
 */

/** Share of the time that may be lost by trying. */
const TRIED = 0.01;
/** Plain steps whose time the account begins with, and the most it holds. */
const FIRST_CREDIT = 8, MOST_CREDIT = 12;
/** Weight of a new measurement. */
const FRESH = 0.1;
/** Guesses that the share of right ones remembers, about. */
const MEMORY = 64;
/** What is assumed before anything was seen: this share, as if of so many guesses. */
const PRIOR = 0.6, PRIOR_WEIGHT = 2;

/** Milliseconds of steps by their rows. */
export class StepCosts {
  /** The first step of a size also prepares its program: its time says nothing. */
  readonly #seen = new Set<number>();
  readonly #ms = new Map<number, number>();

  measured(rows: number, ms: number): void {
    if (!this.#seen.has(rows)) {
      this.#seen.add(rows);
      return;
    }
    const known = this.#ms.get(rows);
    // A faster step counts at once: slow ones have other reasons.
    this.#ms.set(rows, known === undefined || ms < known ? ms : known + FRESH * (ms - known));
  }

  knows(rows: number): boolean {
    return this.#ms.has(rows);
  }

  /** Between sizes that were measured, in proportion; beyond them at the rate of the last two. Undefined before the first. */
  of(rows: number): number | undefined {
    const known = this.#ms.get(rows);
    if (known !== undefined) return known;
    const sizes = [...this.#ms.keys()].sort((a, b) => a - b);
    if (sizes.length === 0) return undefined;
    const above = sizes.find((s) => s > rows), below = sizes.findLast((s) => s < rows);
    if (below === undefined) return this.#ms.get(above!)!;
    if (above !== undefined) return this.#line(below, above, rows);
    const before = sizes.findLast((s) => s < below);
    // One size alone: a row more is taken to cost a tenth of it.
    if (before === undefined) return this.#ms.get(below)! * (1 + 0.1 * (rows - below));
    return this.#line(before, below, rows);
  }

  #line(a: number, b: number, rows: number): number {
    const from = this.#ms.get(a)!, to = this.#ms.get(b)!;
    return from + Math.max(0, to - from) * (rows - a) / (b - a);
  }
}

/** The share of guesses that were right, recent ones foremost. */
export class Acceptance {
  #right: number;
  #all = PRIOR_WEIGHT;

  constructor(prior: number = PRIOR) {
    this.#right = prior * PRIOR_WEIGHT;
  }

  get share(): number {
    return this.#right / this.#all;
  }

  /** Of `n` guesses in a row the first `n_right` were right; those behind a wrong one say nothing. */
  judged(n: number, n_right: number): void {
    const said = Math.min(n, n_right + 1), keep = (1 - 1 / MEMORY) ** said;
    this.#right = this.#right * keep + n_right;
    this.#all = this.#all * keep + said;
  }
}

/** A sequence of a step that is being planned. */
export interface Candidate {
  readonly acceptance: Acceptance;
  /** Rows that are computed in any case. */
  readonly rows: number;
  /** The most guesses. */
  readonly most: number;
}

/** Chooses widths for the sequences of a step, and keeps the account of what guessing costs. */
export class WidthPolicy {
  readonly costs = new StepCosts();
  /** Milliseconds that may be lost; undefined before a plain step was measured. */
  #credit: number | undefined;
  /** Milliseconds that a guess takes its proposer, which also asks in vain. */
  #msPerGuess = 0;

  /**
   * Guesses of each sequence.
   * @param n_others Further sequences that have a row in the step.
   */
  widths(candidates: readonly Candidate[], n_others = 0): number[] {
    const widths = candidates.map(() => 0), rows = candidates.reduce((n, c) => n + c.rows, n_others);
    const n_sequences = candidates.filter((c) => c.rows > 0).length + n_others;
    const base = this.costs.of(rows);
    if (base === undefined || this.#credit === undefined || this.#credit < 0) return widths;
    // The guess that is most likely needed comes first.
    const gains = candidates.flatMap(({ acceptance, most }, at) =>
      Array.from({ length: most }, (_, k) => ({ at, gain: acceptance.share ** (k + 1) }))
    ).sort((a, b) => b.gain - a.gain);
    let tokens = n_sequences, best = tokens / base, n = 0;
    gains.forEach(({ gain }, i) => {
      tokens += gain;
      const rate = tokens / (this.costs.of(rows + i + 1)! + this.#msPerGuess * (i + 1));
      if (rate > best) [best, n] = [rate, i + 1];
    });
    // Nothing is worth it as far as is known: one guess now and then finds out whether that is still so.
    if (n === 0 && gains.length > 0 && this.#credit > 2 * this.#price(rows, base)) n = 1;
    for (const { at } of gains.slice(0, n)) widths[at]++;
    return widths;
  }

  #price(rows: number, base: number): number {
    return this.costs.of(rows + 1)! - base + this.#msPerGuess;
  }

  /** Takes notice of a step that has run. */
  stepped(step: SteppedRows): void {
    const { rows, n_guesses, n_right, n_sequences, ms, guess_ms } = step;
    const first = !this.costs.knows(rows + n_guesses);
    this.costs.measured(rows + n_guesses, ms);
    if (n_guesses > 0) {
      const each = guess_ms / n_guesses;
      this.#msPerGuess += (this.#msPerGuess === 0 ? 1 : FRESH) * (each - this.#msPerGuess);
    }
    const plain = this.costs.of(n_sequences);
    if (plain === undefined) return;
    const before = this.#credit ?? FIRST_CREDIT * plain;
    // The first step of a size prepares its program, which happens once.
    const won = n_guesses === 0 ? TRIED * ms : first ? 0 : plain * (1 + n_right / n_sequences) - ms;
    this.#credit = Math.min(MOST_CREDIT * plain, before + won - guess_ms);
  }
}

/** What a step computed. */
export interface SteppedRows {
  /** Rows without those of guesses. */
  readonly rows: number;
  readonly n_guesses: number;
  /** Each is a row less of a plain step. */
  readonly n_right: number;
  readonly n_sequences: number;
  /** Milliseconds of the step, and of what guessed for it. */
  readonly ms: number;
  readonly guess_ms: number;
}
