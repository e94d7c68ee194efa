/**
 * Guesses from what was said before: the n-grams of the sequence itself, and of the sequences that ended before it.
 * @module
 */
import { NgramStore } from "./ngrams.ts";
import type { DraftAsk, DraftSeat, Proposer } from "./proposer.ts";

/** Tokens of past sequences that are kept, about 14 bytes each. */
const SHARED_TOKENS = 2 ** 20;
/** Tokens of one sequence that are kept. */
const OWN_TOKENS = 2 ** 18;

class LookupSeat implements DraftSeat {
  readonly store = new NgramStore(OWN_TOKENS);
  tokens: readonly number[] = [];
  #disposed = false;

  constructor(readonly shared: NgramStore, readonly n_known: number) {}

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    if (this.tokens.length === this.n_known) return;
    for (let i = this.n_known; i < this.tokens.length; i++) this.shared.push(this.tokens[i]);
    this.shared.end();
  }
}

export class Lookup implements Proposer<LookupSeat> {
  readonly name = "lookup";
  readonly #shared: NgramStore;

  /** @param capacity Tokens of past sequences that are kept. */
  constructor(capacity: number = SHARED_TOKENS) {
    this.#shared = new NgramStore(capacity);
  }

  open(n_known: number): LookupSeat {
    return new LookupSeat(this.#shared, n_known);
  }

  propose(asks: readonly DraftAsk<LookupSeat>[]): Promise<readonly (readonly number[])[]> {
    return Promise.resolve(asks.map(({ seat, tokens, n }) => {
      for (let i = seat.store.length; i < tokens.length; i++) seat.store.push(tokens[i]);
      seat.tokens = tokens;
      const own = seat.store.find(tokens, n, true), other = this.#shared.find(tokens, n);
      const best = (other?.length ?? 0) > (own?.length ?? 0) ? other : own;
      return best?.tokens ?? [];
    }));
  }

  [Symbol.dispose](): void {}
}
