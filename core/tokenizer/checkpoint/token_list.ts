/**
 * The tokens of a vocabulary while it is put together: texts, types and scores by id.
 * @module
 */

import { TextError } from "../../errors.ts";
import { TOKEN_TYPE } from "../types.ts";
import { type AddedToken, looksSpecial } from "./files.ts";

/** More tokens than any vocabulary has; a count from a file beyond it is damage. */
const MAX_TOKENS = 1 << 24;

export class TokenList {
  readonly texts: string[] = [];
  readonly types: number[] = [];
  readonly scores: number[] = [];

  /** @param n Tokens the model has; ids without a text stay `[PAD<id>]`, unused. */
  constructor(readonly n: number, readonly file: string) {
    if (!Number.isSafeInteger(n) || n < 0 || n > MAX_TOKENS) {
      throw new TextError("text.checkpoint", `Cannot read ${file}: ${n} tokens, expected 0 to ${MAX_TOKENS}`, {
        at: { file, got: n },
      });
    }
    for (let id = 0; id < n; id++) {
      this.texts.push(`[PAD${id}]`);
      this.types.push(TOKEN_TYPE.unused);
      this.scores.push(-10000);
    }
  }

  set(id: number, text: string, type: number, score: number = 0): void {
    if (!Number.isSafeInteger(id) || id < 0 || id >= this.n) {
      throw new TextError(
        "text.checkpoint",
        `Cannot read ${this.file}: token ${
          JSON.stringify(text)
        } has id ${id}, expected less than the model's vocab_size ` +
          `of ${this.n}`,
        { at: { file: this.file, token: text, got: id, n_vocab: this.n } },
      );
    }
    this.texts[id] = text;
    this.types[id] = type;
    this.scores[id] = score;
  }

  /** An added token: control if it is special or looks so, else user-defined with its spaces written as such. */
  setAdded(token: AddedToken, score: number = 0): void {
    const isControl = token.special || looksSpecial(token.content);
    const text = isControl ? token.content : token.content.replaceAll("\u2581", " ");
    this.set(token.id, text, isControl ? TOKEN_TYPE.control : TOKEN_TYPE.userDefined, score);
  }
}
