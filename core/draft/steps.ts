/**
 * The steps of one sequence, with guesses where a drafter has them. The caller samples from row after row, as from steps of one row each.
 * @module
 */
import type { Engine, Sequence, StepOutput } from "../engine/mod.ts";
import type { Draft, Drafter } from "./drafter.ts";

export class DraftedSteps implements Disposable {
  /** The row of the step at hand that is sampled next. */
  row = 0;
  readonly #tokens: number[];
  readonly #draft: Draft | undefined;
  #guesses: readonly number[] = [];
  #step: { rows: number; ms: number; answering: boolean } | undefined;
  /** The prompt was computed. */
  #begun = false;
  /** Tokens that steps of one row each would have computed. */
  #n_wanted: number;

  constructor(
    readonly engine: Engine,
    readonly sequence: Sequence,
    prompt: ArrayLike<number>,
    readonly drafter?: Drafter,
  ) {
    this.#n_wanted = sequence.length;
    this.#tokens = [...sequence.tokens, ...Array.from(prompt)];
    this.#draft = drafter?.open(sequence.length);
  }

  /**
   * Computes what is not yet computed, and guesses behind it.
   * @param most Guesses that there is use for.
   */
  async next(want: "candidates" | "logits", most: number): Promise<StepOutput> {
    const { sequence, engine, drafter } = this, tokens = this.#tokens, n = tokens.length - sequence.length;
    const answering = this.#begun;
    this.#begun = true;
    this.#guesses = [];
    if (drafter && !answering) {
      for (let i = 0; i < n; i += engine.n_ubatch) {
        await drafter.guess([{ draft: this.#draft!, tokens, rows: 0, most: 0 }]);
      }
    }
    if (drafter && answering) {
      const room = Math.min(most, engine.n_ctx - tokens.length, engine.n_ubatch - n);
      const asks = [{ draft: this.#draft!, tokens, rows: n, most: room }];
      [this.#guesses] = await drafter.guess(asks);
    }
    const n_guesses = this.#guesses.length, start = performance.now();
    const [rows] = await engine.step([{
      sequence,
      tokens: [...tokens.slice(sequence.length), ...this.#guesses],
      output: 1 + n_guesses,
      guesses: n_guesses,
      want,
      // What was computed before is computed again only where a state had to go back: no place to come back to.
      ...(answering ? { keep: false } : {}),
    }]);
    this.#step = { rows: n, ms: performance.now() - start, answering };
    this.#n_wanted = tokens.length;
    this.row = 0;
    return rows;
  }

  /** The token that the row at hand gave. @returns whether the next row is that of this token */
  accept(token: number): boolean {
    this.#tokens.push(token);
    return this.#guesses[this.row] === token;
  }

  /** Goes on to the next row. */
  take(): void {
    this.row++;
    this.#n_wanted++;
  }

  /** Takes back the guesses whose rows were not sampled from. */
  judge(): void {
    const step = this.#step, n_guesses = this.#guesses.length, n_right = this.row;
    if (step === undefined) return;
    this.#step = undefined;
    this.#guesses = [];
    if (this.sequence.marked !== undefined) this.sequence.rewind(this.#n_wanted);
    if (!step.answering) return;
    if (this.#draft) this.drafter!.judged(this.#draft, n_guesses, n_right);
    this.drafter?.stepped({ rows: step.rows, n_guesses, n_right, n_sequences: 1, ms: step.ms });
  }

  /** Leaves the sequence with the tokens that steps of one row each leave it with. */
  async settle(): Promise<void> {
    const { sequence } = this, tokens = this.#tokens.slice(sequence.length, this.#n_wanted);
    if (tokens.length > 0) await this.engine.step([{ sequence, tokens, output: "none", keep: false }]);
  }

  [Symbol.dispose](): void {
    this.#draft?.[Symbol.dispose]();
  }
}
