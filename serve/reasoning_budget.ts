/**
 * An end to reasoning: after so many tokens within the block, its closing tag is said for the model. Where a call may end
 * the block too, its beginning ends it.
 * @module
 */
import type { ReasoningBlock } from "./constraint.ts";
import type { Tokenizer } from "./model.ts";

export class ReasoningBudget {
  readonly #block: ReasoningBlock;
  /** Texts that end the block. */
  readonly #ends: readonly string[];
  readonly #tokenizer: Tokenizer;
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #phase: "before" | "reasoning" | "ending" | "after";
  #left: number;
  /** Bytes to come of the character that the last token left open. */
  #open = 0;
  #text = "";
  #ending: number[] = [];

  /**
   * @param budget Most tokens within the block.
   * @param calls Texts that begin a call and so end the block.
   */
  constructor(block: ReasoningBlock, budget: number, tokenizer: Tokenizer, calls: readonly string[] = []) {
    this.#block = block;
    this.#ends = [block.end, ...calls];
    this.#tokenizer = tokenizer;
    this.#left = budget;
    this.#phase = block.open ? "reasoning" : "before";
  }

  /** The token that must come next; undefined where the model chooses. */
  next(): number | undefined {
    if (this.#phase === "reasoning" && this.#left <= 0 && this.#open === 0) {
      this.#phase = "ending";
      this.#ending = [...this.#tokenizer.encode(this.#block.end, { addSpecial: false, parseSpecial: true })];
    }
    return this.#phase === "ending" ? this.#ending[0] : undefined;
  }

  /** Goes on by the token that came. */
  accept(token: number): void {
    if (this.#phase === "after") return;
    if (this.#phase === "ending") {
      this.#ending.shift();
      if (this.#ending.length === 0) this.#phase = "after";
      return;
    }
    const bytes = this.#tokenizer.pieceBytes(token, true);
    for (const b of bytes) {
      this.#open = b >= 0xf0 ? 3 : b >= 0xe0 ? 2 : b >= 0xc0 ? 1 : b >= 0x80 ? Math.max(0, this.#open - 1) : 0;
    }
    this.#text += this.#decoder.decode(bytes, { stream: true });
    const { start } = this.#block;
    if (this.#phase === "before") {
      const begun = this.#text.trimStart();
      if (begun.startsWith(start)) {
        this.#phase = "reasoning";
        this.#text = begun.slice(start.length);
      } else if (!start.startsWith(begun)) this.#phase = "after";
      return;
    }
    this.#left--;
    if (this.#ends.some((end) => this.#text.includes(end))) this.#phase = "after";
    this.#text = this.#text.slice(-Math.max(...this.#ends.map((end) => end.length)));
  }
}
