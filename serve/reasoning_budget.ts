/**
 * Limits reasoning: after a number of tokens within the block, the server forces the tokens of the closing tag.
 * @module
 */
import type { AnswerTracker } from "../core/chat/tracker.ts";
import type { Tokenizer } from "./tokenizer.ts";

export class ReasoningBudget {
  readonly #tracker: AnswerTracker;
  readonly #tokenizer: Tokenizer;
  readonly #end: string;
  #left: number;
  /** The next token is one of the block. */
  #inside: boolean;
  /** Tokens of the closing tag that remain to be forced. */
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

  /** Ends the reasoning as soon as it may end. @returns whether the answer is within it */
  end(): boolean {
    if (this.#inside) this.#left = 0;
    return this.#inside;
  }

  /** The token that must come next; undefined where the model chooses. */
  next(): number | undefined {
    const { splitsCharacter, callFrom } = this.#tracker;
    // Text that looks like a call may turn out to end the reasoning.
    if (this.#inside && this.#left <= 0 && !splitsCharacter && callFrom === undefined && this.#ending.length === 0) {
      this.#ending = [...this.#tokenizer.encode(this.#end, { addSpecial: false, parseSpecial: true })];
    }
    return this.#ending[0];
  }

  /** Takes the chosen token. The tracker must have taken it already. */
  accept(token: number): void {
    if (token === this.#ending[0]) this.#ending.shift();
    else if (this.#inside) this.#left--;
    this.#inside = this.#tracker.place === "reasoning";
  }
}
