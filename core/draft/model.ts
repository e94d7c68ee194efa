/**
 * Guesses of a smaller model with the same vocabulary: its likeliest tokens, one after the other.
 * @module
 */
import { EngineError } from "../errors.ts";
import type { Engine, Sequence, StepOutput } from "../engine/mod.ts";
import type { DraftAsk, DraftSeat, Proposer } from "./proposer.ts";

export interface DraftModelOptions {
  /** Guessing stops at a token that the model holds less likely than this. Default: 0. */
  readonly pMin?: number;
  /** Ids of the model that is guessed for; larger ones are padding of the draft model. */
  readonly n_vocab: number;
  /** Sequences that are kept, those in use included. */
  readonly n_seq: number;
  /** Disposed of with the proposer. */
  readonly owned?: Disposable;
}

class ModelSeat implements DraftSeat {
  sequence: Sequence | undefined;

  constructor(readonly release: (sequence: Sequence) => void) {}

  dispose(): void {
    if (this.sequence !== undefined) this.release(this.sequence);
    this.sequence = undefined;
  }
}

/** A run of guesses under way. */
interface Run {
  readonly at: number;
  readonly sequence: Sequence;
  readonly n: number;
  readonly guesses: number[];
}

export class DraftModel implements Proposer<ModelSeat> {
  readonly name = "model";
  /** Sequences that nobody uses, the latest last: a conversation comes back to them. */
  readonly #idle: Sequence[] = [];
  #n_used = 0;

  constructor(readonly engine: Engine, readonly options: DraftModelOptions) {}

  open(): ModelSeat {
    return new ModelSeat((sequence) => {
      this.#n_used--;
      this.#idle.push(sequence);
    });
  }

  async propose(asks: readonly DraftAsk<ModelSeat>[]): Promise<readonly (readonly number[])[]> {
    const guesses = asks.map((): number[] => []);
    try {
      await this.#propose(asks, guesses);
    } catch (error) {
      // A draft cache that is full costs guesses, not answers.
      if (!(error instanceof EngineError && error.code === "engine.no_pages")) throw error;
      if (this.#idle.length > 0) this.#idle.shift()!.dispose();
      else for (const { seat } of asks) this.#forget(seat);
      return asks.map(() => []);
    }
    return guesses;
  }

  #forget(seat: ModelSeat): void {
    if (seat.sequence === undefined) return;
    seat.sequence.dispose();
    seat.sequence = undefined;
    this.#n_used--;
  }

  async #propose(asks: readonly DraftAsk<ModelSeat>[], guesses: number[][]): Promise<void> {
    const { n_ctx, n_ubatch } = this.engine;
    let room = n_ubatch;
    const fed = asks.flatMap(({ seat, tokens, n }, at) => {
      if (tokens.length > n_ctx || room === 0) return [];
      const sequence = this.#follow(seat, tokens);
      const rows = tokens.slice(sequence.length, sequence.length + room);
      room -= rows.length;
      const reaches = sequence.length + rows.length === tokens.length;
      return rows.length === 0 ? [] : [{ at, sequence, rows, n: reaches ? Math.min(n, n_ctx - tokens.length) : 0 }];
    });
    if (fed.length === 0) return;
    const outputs = await this.engine.step(
      fed.map(({ sequence, rows, n }) => ({ sequence, tokens: rows, output: n > 0 ? 1 : "none" })),
    );
    const runs = fed.flatMap(({ at, sequence, n }, i): Run[] => {
      const guess = n > 0 ? this.#best(outputs[i]) : undefined;
      if (guess === undefined) return [];
      guesses[at].push(guess);
      // What cannot be cut back guesses on a copy; the rest is cut when the next tokens are known.
      return n > 1 ? [{ at, sequence: sequence.rewindable ? sequence : sequence.fork(), n, guesses: guesses[at] }] : [];
    });
    const copies = runs.filter((r) => !r.sequence.rewindable).map((r) => r.sequence);
    try {
      await this.#continue(runs);
    } finally {
      for (const copy of copies) copy.dispose();
    }
  }

  async #continue(runs: readonly Run[]): Promise<void> {
    for (let going = runs; going.length > 0;) {
      const outputs = await this.engine.step(
        going.map(({ sequence, guesses }) => ({ sequence, tokens: guesses.slice(-1), output: 1 })),
      );
      going = going.filter(({ guesses, n }, i) => {
        const guess = this.#best(outputs[i]);
        if (guess === undefined) return false;
        guesses.push(guess);
        return guesses.length < n;
      });
    }
  }

  /** The likeliest token; undefined where it is not likely enough, or padding. */
  #best(output: StepOutput): number | undefined {
    const [id] = output.ids, p = Math.exp(output.logits[0] - output.lse[0]);
    return id < this.options.n_vocab && p >= (this.options.pMin ?? 0) ? id : undefined;
  }

  /** The seat's sequence, cut back to what it shares with `tokens`; the last token is computed in any case. */
  #follow(seat: ModelSeat, tokens: readonly number[]): Sequence {
    const sequence = seat.sequence ??= this.#take(tokens);
    const n = commonPrefix(sequence, tokens);
    if (n < sequence.length) sequence.truncate(n);
    return sequence;
  }

  /** The idle sequence that shares most with `tokens`, or a new one. */
  #take(tokens: readonly number[]): Sequence {
    this.#n_used++;
    let best = -1, most = 0;
    this.#idle.forEach((s, i) => {
      const n = s.reach(commonPrefix(s, tokens));
      if (n > most) [best, most] = [i, n];
    });
    if (best >= 0) return this.#idle.splice(best, 1)[0];
    while (this.#idle.length > 0 && this.#idle.length + this.#n_used > this.options.n_seq) {
      this.#idle.shift()!.dispose();
    }
    return this.engine.createSequence();
  }

  [Symbol.dispose](): void {
    for (const s of this.#idle.splice(0)) s.dispose();
    this.options.owned?.[Symbol.dispose]();
  }
}

/** Tokens that a sequence shares with `tokens`, without the last of these. */
function commonPrefix(sequence: Sequence, tokens: readonly number[]): number {
  const most = Math.min(sequence.length, tokens.length - 1), known = sequence.tokens;
  let n = 0;
  while (n < most && known[n] === tokens[n]) n++;
  return n;
}
