/**
 * What guesses the next tokens of a sequence. A guess costs rows of a step when it is wrong and saves steps when it is right; it never
 * changes what is answered.
 * @module
 */

/** What a proposer keeps of one sequence, whose tokens only grow. */
export interface DraftSeat {
  /** Gives back what it holds. */
  dispose(): void;
}

/** A sequence that wants guesses. */
export interface DraftAsk<S extends DraftSeat = DraftSeat> {
  readonly seat: S;
  /** All tokens that are certain. */
  readonly tokens: readonly number[];
  /** The most guesses; 0 where the proposer only reads a prompt, or a part of it. */
  readonly n: number;
}

export interface Proposer<S extends DraftSeat = DraftSeat> extends Disposable {
  /** As flags name it. */
  readonly name: string;
  /** @param n_known First tokens that an earlier sequence had too. */
  open(n_known: number): S;
  /** Guesses for each sequence, none where there is nothing to say. */
  propose(asks: readonly DraftAsk<S>[]): Promise<readonly (readonly number[])[]>;
}
