/**
 * WordPiece: text is normalised and cut into words; each word is the longest token from its start, then the longest from
 * there, and so on; a word with a place that no token covers is unknown as a whole.
 * @module
 */

import type { IdBuffer } from "./id_buffer.ts";
import type { TextTable } from "./text_table.ts";
import type { FragmentEncoder } from "./types.ts";
import { firstOfDecomposition, generalCategory, isWhitespace, lowerCase } from "./unicode.ts";

export interface WpmOptions {
  lowercase: boolean;
  stripAccents: boolean;
  unk: number | null;
}

const encoder = new TextEncoder();

export class WpmEncoder implements FragmentEncoder {
  constructor(private readonly tokens: TextTable, private readonly options: WpmOptions) {}

  encode(text: string, out: IdBuffer): void {
    for (const word of this.words(text)) this.encodeWord(word, out);
  }

  /** Words in the form tokens have them, without the leading U+2581. */
  private words(text: string): string[] {
    const { lowercase, stripAccents } = this.options;
    const words: string[] = [];
    let word = "";
    for (const character of text) {
      const given = character.codePointAt(0)!;
      const cp = stripAccents ? firstOfDecomposition(given) : given;
      if (isWhitespace(cp)) {
        if (word) words.push(word);
        word = "";
        continue;
      }
      const category = cp === 0 || cp === 0xfffd ? "C" : generalCategory(cp);
      if (category === "C" || (stripAccents && category === "M")) continue;
      const shown = String.fromCodePoint(lowercase ? lowerCase(cp) : cp);
      if (category === "P" || (category === "S" && cp < 0x7f) || isCjk(cp)) {
        if (word) words.push(word);
        words.push(shown);
        word = "";
      } else word += shown;
    }
    if (word) words.push(word);
    return words;
  }

  private encodeWord(word: string, out: IdBuffer): void {
    const bytes = encoder.encode("\u2581" + word);
    const first = out.length;
    for (let at = 0; at < bytes.length;) {
      let id = -1;
      let end = Math.min(bytes.length, at + this.tokens.maxLength + 1);
      for (; end > at; end--) {
        id = this.tokens.find(bytes, at, end);
        if (id >= 0) break;
      }
      if (id < 0) {
        out.length = first;
        if (this.options.unk !== null) out.push(this.options.unk);
        return;
      }
      out.push(id);
      at = end;
    }
  }
}

/** Ideographs that are words of their own; U+2B820 to U+2B91F are left out, as the peer leaves them out. */
function isCjk(cp: number): boolean {
  return cp >= 0x3400 && ((cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0x3400 && cp <= 0x4dbf) ||
    (cp >= 0x20000 && cp <= 0x2a6df) || (cp >= 0x2a700 && cp <= 0x2b73f) || (cp >= 0x2b740 && cp <= 0x2b81f) ||
    (cp >= 0x2b920 && cp <= 0x2ceaf) || (cp >= 0xf900 && cp <= 0xfaff) || (cp >= 0x2f800 && cp <= 0x2fa1f));
}
