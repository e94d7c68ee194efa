/**
 * WordPiece: text is normalised and cut into words; each word is the longest token from its start, then the longest from
 * there, and so on; a word with a place that no token covers is unknown as a whole.
 * @module
 */

import type { IdBuffer } from "./id_buffer.ts";
import { HASH_START, hashBytes, hashEnd, type TextTable } from "./text_table.ts";
import type { FragmentEncoder } from "./types.ts";
import { firstOfDecomposition, generalCategory, isWhitespace, lowerCase } from "./unicode.ts";
import { WordCache } from "./word_cache.ts";

export interface WpmOptions {
  lowercase: boolean;
  stripAccents: boolean;
  unk: number | null;
}

const encoder = new TextEncoder();

/** What an ASCII character does: 0 is part of a word, 1 ends one, 2 (punctuation and symbols) is a word. */
const ASCII_ROLE: Uint8Array = Uint8Array.from(
  { length: 128 },
  (_, cp) => isWhitespace(cp) ? 1 : cp > 0x20 && cp < 0x7f && !/[0-9A-Za-z]/.test(String.fromCharCode(cp)) ? 2 : 0,
);

export class WpmEncoder implements FragmentEncoder {
  private readonly runs = new WordCache((run, out) => this.encodeRun(run, out));

  private bytes = new Uint8Array(256); // UTF-8 of a word

  constructor(private readonly tokens: TextTable, private readonly options: WpmOptions) {}

  /** ASCII spaces and punctuation always end a word; the runs between them repeat, and are remembered. */
  encode(text: string, out: IdBuffer): void {
    let start = 0;
    for (let i = 0; i < text.length; i++) {
      const unit = text.charCodeAt(i);
      const role = unit < 128 ? ASCII_ROLE[unit] : 0;
      if (role === 0) continue;
      if (i > start) this.runs.encode(text.substring(start, i), out);
      if (role === 2) this.runs.encode(text[i], out);
      start = i + 1;
    }
    if (start < text.length) this.runs.encode(text.substring(start), out);
  }

  private encodeRun(run: string, out: IdBuffer): void {
    if (/^[0-9A-Za-z]+$/.test(run)) this.encodeWord(this.options.lowercase ? run.toLowerCase() : run, out);
    else for (const word of this.words(run)) this.encodeWord(word, out);
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
    if (this.bytes.length < 3 + word.length * 3) this.bytes = new Uint8Array(3 + word.length * 3);
    const { bytes } = this;
    const length = encoder.encodeInto("\u2581" + word, bytes).written;
    const first = out.length;
    for (let at = 0; at < length;) {
      let best = -1;
      let bestEnd = at;
      const limit = Math.min(length, at + this.tokens.maxLength);
      for (let end = at + 1, hash = HASH_START; end <= limit; end++) {
        hash = hashBytes(hash, bytes, end - 1, end);
        const id = this.tokens.findHashed(hashEnd(hash), bytes, at, end);
        if (id < 0) continue;
        best = id;
        bestEnd = end;
      }
      if (best < 0) {
        out.length = first;
        if (this.options.unk !== null) out.push(this.options.unk);
        return;
      }
      out.push(best);
      at = bestEnd;
    }
  }
}

/** Ideographs that are words of their own; U+2B820 to U+2B91F are left out, as the peer leaves them out. */
function isCjk(cp: number): boolean {
  return cp >= 0x3400 && ((cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0x3400 && cp <= 0x4dbf) ||
    (cp >= 0x20000 && cp <= 0x2a6df) || (cp >= 0x2a700 && cp <= 0x2b73f) || (cp >= 0x2b740 && cp <= 0x2b81f) ||
    (cp >= 0x2b920 && cp <= 0x2ceaf) || (cp >= 0xf900 && cp <= 0xfaff) || (cp >= 0x2f800 && cp <= 0x2fa1f));
}
