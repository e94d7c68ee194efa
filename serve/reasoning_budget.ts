/**
 * An end to reasoning: after so many tokens within the block, its closing tag is said for the model.
 * @module
 */
import type { AnswerTracker } from "../core/chat/tracker.ts";
import type { Tokenizer } from "./model.ts";

export class ReasoningBudget {
  readonly #tracker: AnswerTracker;
  readonly #tokenizer: Tokenizer;
  readonly #end: string;
  #left: number;
  /** The next token is one of the block. */
  #inside: boolean;
  /** Tokens of the closing tag that are yet to be said. */
  #ending: number[] = [];

  /**
   * @param end The tag that closes the block.
   * @param budget Most tokens within the block.
   */
  constructor(tracker: AnswerTracker, end: string, budget: number, tokenizer: Tokenizer) {
    this.#tracker = tracker;
    this.#end = end;
    this.#left = budget;
    this.#tokenizer = tokenizer;
    this.#inside = tracker.place === "reasoning";
  }

  /** The token that must come next; undefined where the model chooses. */
  next(): number | undefined {
    const { splitsCharacter, callFrom } = this.#tracker;
    // What looks like a call may end the reasoning by itself.
    if (this.#inside && this.#left <= 0 && !splitsCharacter && callFrom === undefined && this.#ending.length === 0) {
      this.#ending = [...this.#tokenizer.encode(this.#end, { addSpecial: false, parseSpecial: true })];
    }
    return this.#ending[0];
  }

  /** Goes on by the token that came; the tracker has taken it before. */
  accept(token: number): void {
    if (token === this.#ending[0]) this.#ending.shift();
    else if (this.#inside) this.#left--;
    this.#inside = this.#tracker.place === "reasoning";
  }
}
