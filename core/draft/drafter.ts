/**
 * Guesses for the sequences of an engine: a proposer, the widths that pay, and what came of it. Whoever steps the engine asks for
 * guesses, has them computed with the step (`StepRequest.guesses`), samples row by row, and says how many were right.
 * @module
 */
import { Acceptance, type SteppedRows, WidthPolicy } from "./policy.ts";
import type { DraftSeat, Proposer } from "./proposer.ts";

/** How guesses are made. */
export interface DrafterOptions {
  /** The most guesses of a sequence in a step. Default: 16. */
  readonly max?: number;
  /** Fewer guesses than this are not worth a step. Default: 1. */
  readonly min?: number;
  /** `max` guesses wherever the proposer has them, whatever they cost; for measurements. */
  readonly fixed?: boolean;
}

/** What came of guesses. */
export interface DraftCounts {
  /** Runs of guesses. */
  n_runs: number;
  /** Guesses in them. */
  n_guesses: number;
  /** Of these, right ones. */
  n_right: number;
  /** Right guesses by their place in a run. */
  readonly rightAt: number[];
}

export const MOST_GUESSES = 32;

/** A sequence that gets guesses. Dispose of it when its tokens are complete. */
export class Draft implements Disposable {
  /** Guesses that were computed, and those of them that were right. */
  n_guesses = 0;
  n_right = 0;

  /** @internal use `Drafter.open` */
  constructor(
    /** @internal */
    readonly seat: DraftSeat,
    /** @internal */
    readonly acceptance: Acceptance,
  ) {}

  [Symbol.dispose](): void {
    this.seat.dispose();
  }
}

/** A sequence of the step that comes next. */
export interface GuessAsk {
  readonly draft: Draft;
  /** All tokens that are certain. */
  readonly tokens: readonly number[];
  /** Rows that are computed in any case; 0 while the prompt is computed, which the proposer then reads too. */
  readonly rows: number;
  /** The most guesses that there is room for. */
  readonly most: number;
}

/** Guesses tokens of an engine's sequences, as many as pay. Close it by holding it with `using`. */
export class Drafter implements Disposable {
  /** Since the start. */
  readonly counts: DraftCounts = { n_runs: 0, n_guesses: 0, n_right: 0, rightAt: [] };
  readonly #policy = new WidthPolicy();
  readonly #max: number;
  readonly #min: number;
  readonly #fixed: boolean;
  /** Milliseconds that the guesses of the step at hand took. */
  #guess_ms = 0;

  /** @internal use `openDrafter` */
  constructor(
    /** @internal */
    readonly proposer: Proposer,
    options: DrafterOptions = {},
  ) {
    this.#max = Math.min(options.max ?? 16, MOST_GUESSES);
    this.#min = Math.max(options.min ?? 1, 1);
    this.#fixed = options.fixed ?? false;
  }

  /**
   * @param n_known First tokens that an earlier sequence had too.
   * @internal
   */
  open(n_known = 0): Draft {
    const { n_guesses, n_right } = this.counts;
    // A new sequence is taken to be like the others.
    const acceptance = n_guesses === 0 ? new Acceptance() : new Acceptance(n_right / n_guesses);
    return new Draft(this.proposer.open(n_known), acceptance);
  }

  /**
   * Guesses for each sequence of a step; none where they do not pay.
   * @param n_others Further sequences that have a row in the step.
   * @internal
   */
  async guess(asks: readonly GuessAsk[], n_others = 0): Promise<readonly (readonly number[])[]> {
    const candidates = asks.map(({ draft, rows, most }) => ({
      acceptance: draft.acceptance,
      rows,
      most: Math.max(0, Math.min(most, this.#max)),
    }));
    const widths = this.#fixed ? candidates.map((c) => c.most) : this.#policy.widths(candidates, n_others);
    const guesses: (readonly number[])[] = asks.map(() => []), start = performance.now();
    // Where no guess pays, even the proposer's reading would cost something.
    const wanted = asks.map((_, i) => i).filter((i) => widths[i] > 0 || asks[i].rows === 0);
    if (wanted.length > 0) {
      const got = await this.proposer.propose(
        wanted.map((i) => ({ seat: asks[i].draft.seat, tokens: asks[i].tokens, n: widths[i] })),
      );
      wanted.forEach((i, at) => guesses[i] = got[at].length < this.#min ? [] : got[at].slice(0, widths[i]));
    }
    this.#guess_ms = widths.some((n) => n > 0) ? performance.now() - start : 0;
    return guesses;
  }

  /**
   * Of a run of guesses the first `n_right` were right.
   * @internal
   */
  judged(draft: Draft, n_guesses: number, n_right: number): void {
    if (n_guesses === 0) return;
    draft.acceptance.judged(n_guesses, n_right);
    for (const c of [draft, this.counts]) {
      c.n_guesses += n_guesses;
      c.n_right += n_right;
    }
    this.counts.n_runs++;
    for (let i = 0; i < n_right; i++) this.counts.rightAt[i] = (this.counts.rightAt[i] ?? 0) + 1;
  }

  /**
   * A step that had nothing but these sequences' rows has run.
   * @internal
   */
  stepped(step: Omit<SteppedRows, "guess_ms">): void {
    this.#policy.stepped({ ...step, guess_ms: this.#guess_ms });
  }

  /** Gives back what guesses. */
  [Symbol.dispose](): void {
    this.proposer[Symbol.dispose]();
  }
}
