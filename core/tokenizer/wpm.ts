/**
 * WordPiece: text is cut into words and these are normalised; each word is the longest token from its start, then the
 * longest from there, and so on; a word with a place that no token covers is unknown as a whole.
 * @module
 */

import type { IdBuffer } from "./id_buffer.ts";
import { PrefixFilter } from "./prefix_filter.ts";
import { HASH_START, hashEnd, type TextTable } from "./text_table.ts";
import type { FragmentEncoder } from "./types.ts";
import {
  codePointAt,
  firstOfDecomposition,
  generalCategory,
  isWhitespace,
  lowerCase,
  sequenceLength,
  writeUtf8,
} from "./unicode.ts";
import { WordCache } from "./word_cache.ts";

export interface WpmOptions {
  lowercase: boolean;
  stripAccents: boolean;
  unk: number | null;
}

/** What a character does. */
const ROLE = {
  letter: 1, // is part of a word
  space: 2, //  ends one
  alone: 3, //  is one
  nothing: 4, // is as if it were not there
} as const;

const SPACE = 0x2581;
const encoder = new TextEncoder();

export class WpmEncoder implements FragmentEncoder {
  private readonly words = new WordCache((bytes, from, to, out) => this.encodeWord(bytes, from, to, out));
  private readonly prefixes: PrefixFilter;
  private readonly fold: Int32Array;
  private normal = new Uint8Array(256); // a word in the form that tokens have

  constructor(private readonly tokens: TextTable, private readonly options: WpmOptions) {
    this.prefixes = new PrefixFilter(tokens, () => true);
    this.fold = foldTable(options.lowercase, options.stripAccents);
  }

  encode(text: string, out: IdBuffer): void {
    const bytes = encoder.encode(text);
    const { fold, words } = this;
    let start = 0;
    for (let at = 0; at < bytes.length;) {
      const cp = codePointAt(bytes, at);
      const end = at + sequenceLength(bytes[at]);
      const role = (fold[cp] || this.folded(cp)) >>> 24;
      if (role === ROLE.space || role === ROLE.alone) {
        if (at > start) words.encode(bytes, start, at, out);
        if (role === ROLE.alone) words.encode(bytes, at, end, out);
        start = end;
      }
      at = end;
    }
    if (start < bytes.length) words.encode(bytes, start, bytes.length, out);
  }

  /** Role of a character, shifted by 24, and the character it becomes; remembered in `fold`. */
  private folded(given: number): number {
    const { lowercase, stripAccents } = this.options;
    const cp = stripAccents ? firstOfDecomposition(given) : given;
    const category = cp === 0 || cp === 0xfffd ? "C" : generalCategory(cp);
    const role = isWhitespace(cp)
      ? ROLE.space
      : category === "C" || (stripAccents && category === "M")
      ? ROLE.nothing
      : category === "P" || (category === "S" && cp < 0x7f) || isCjk(cp)
      ? ROLE.alone
      : ROLE.letter;
    return this.fold[given] = role << 24 | (lowercase ? lowerCase(cp) : cp);
  }

  /** Appends the ids of a word, given as it stands in the text. */
  private encodeWord(bytes: Uint8Array, from: number, to: number, out: IdBuffer): void {
    if (this.normal.length < (to - from) * 3 + 3) this.normal = new Uint8Array((to - from) * 6);
    const first = writeUtf8(SPACE, this.normal, 0);
    let length = first;
    for (let at = from; at < to; at += sequenceLength(bytes[at])) {
      const cp = codePointAt(bytes, at);
      const folded = this.fold[cp] || this.folded(cp);
      if (folded >>> 24 !== ROLE.nothing) length = writeUtf8(folded & 0xffffff, this.normal, length);
    }
    if (length > first) this.encodeNormal(length, out);
  }

  /** Appends the ids of the first `length` bytes of `normal`. */
  private encodeNormal(length: number, out: IdBuffer): void {
    const { normal, tokens, prefixes } = this;
    const first = out.length;
    for (let at = 0; at < length;) {
      let best = -1;
      let bestEnd = at;
      const limit = Math.min(length, at + tokens.maxLength);
      for (let end = at + 1, running = HASH_START; end <= limit; end++) {
        running = Math.imul(running ^ normal[end - 1], 0x01000193);
        const hash = hashEnd(running);
        if (!prefixes.mayStart(hash)) break;
        if (!prefixes.mayBe(hash)) continue;
        const id = tokens.findHashed(hash, normal, at, end);
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

const foldTables = new Map<string, Int32Array>();

/** `[0x110000]` what `folded` found out, 0 where it was not asked; one for all tokenizers of equal options. */
function foldTable(lowercase: boolean, stripAccents: boolean): Int32Array {
  const key = `${lowercase} ${stripAccents}`;
  let table = foldTables.get(key);
  if (!table) foldTables.set(key, table = new Int32Array(0x110000));
  return table;
}

/** Ideographs that are words of their own; U+2B820 to U+2B91F are left out, as the peer leaves them out. */
function isCjk(cp: number): boolean {
  return cp >= 0x3400 && ((cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0x3400 && cp <= 0x4dbf) ||
    (cp >= 0x20000 && cp <= 0x2a6df) || (cp >= 0x2a700 && cp <= 0x2b73f) || (cp >= 0x2b740 && cp <= 0x2b81f) ||
    (cp >= 0x2b920 && cp <= 0x2ceaf) || (cp >= 0xf900 && cp <= 0xfaff) || (cp >= 0x2f800 && cp <= 0x2fa1f));
}
