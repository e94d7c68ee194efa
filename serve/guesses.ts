/**
 * Guessed tokens of the runs in the slots: made before a step, computed with it, judged when its rows were sampled.
 * @module
 */
import type { Drafter } from "../core/draft/drafter.ts";
import type { TokenEngine } from "../core/engine/types.ts";
import type { Run, Slot } from "./slot.ts";

/** Floats of whole rows of logits that the guesses of one step may bring back. */
const MAX_LOGITS = 1 << 23;

export class Guesses {
  /** The last step found no room in the cache: the next one goes without. */
  tight = false;

  constructor(readonly engine: TokenEngine, readonly drafter: Drafter) {}

  /** Guesses for every answer under way; prompts are shown to the proposer. */
  async make(slots: readonly Slot[]): Promise<void> {
    const active = slots.filter((slot) => slot.run !== undefined && !slot.run.cancelled);
    for (const slot of active) slot.run!.guesses = [];
    const drafted = active.filter((slot) => slot.run!.draft !== undefined && !slot.run!.shifted);
    if (drafted.length === 0) return;
    const others = active.filter((slot) => !drafted.includes(slot) && slot.isAnswering);
    // The last token of a prompt is no answer yet.
    const answers = (slot: Slot) => slot.isAnswering && slot.run!.times.prompted > 0;
    let room = this.engine.n_ubatch - active.filter((s) => s.isAnswering).reduce((n, s) => n + s.n_pending, 0);
    const asks = drafted.map((slot) => {
      const run = slot.run!, most = Math.max(0, Math.min(this.#most(run, active.length), room));
      const wants = answers(slot) && !this.tight;
      if (wants) room -= most;
      return {
        draft: run.draft!,
        tokens: run.tokens,
        rows: answers(slot) ? slot.n_pending : 0,
        most: wants ? most : 0,
      };
    });
    this.tight = false;
    const guesses = await this.drafter.guess(asks, others.length);
    drafted.forEach((slot, i) => slot.run!.guesses = guesses[i]);
  }

  /** Guesses that a run has use for. */
  #most(run: Run, n_runs: number): number {
    const { n_ctx, n_vocab } = this.engine;
    const wanted = Math.min(run.job.maxTokens - run.n_generated - 1, n_ctx - run.tokens.length);
    return run.job.want === "candidates" ? wanted : Math.min(wanted, Math.floor(MAX_LOGITS / n_vocab / n_runs) - 1);
  }

  /**
   * Takes back the guesses that were wrong, or whose rows were not needed.
   * @param length Of the sequence without guesses.
   */
  judge(slot: Slot, length: number, n_guesses: number, n_right: number): void {
    const { run, sequence } = slot;
    if (run === undefined || n_guesses === 0) return;
    run.n_owed = length + n_right - sequence!.rewind(length + n_right);
    this.drafter.judged(run.draft!, n_guesses, n_right);
  }
}
