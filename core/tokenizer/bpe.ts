/**
 * Byte pair encoding: text is cut into words by the pre-tokenizer, a word into bytes (or characters, for vocabularies
 * that hold plain UTF-8), and the adjacent pair of lowest merge rank is joined, leftmost first, until no pair is known.
 *
 * A symbol is a token id, or a number from n_vocab on for a text that is no token (a merge can lead through one). What a
 * pair of symbols joins to is looked up by text once and then remembered.
 * @module
 */

import type { StringArray } from "../gguf/metadata.ts";
import { BYTE_TO_CODE_POINT, mapBytes } from "./byte_map.ts";
import { isWhitespace, lowerCase } from "./unicode.ts";
import type { FragmentEncoder } from "./types.ts";
import type { IdBuffer } from "./id_buffer.ts";
import { PairHeap } from "./pair_heap.ts";
import type { PreTokenizer } from "./pretokenizers.ts";
import { Prepared, split } from "./split.ts";
import { HASH_START, hashBytes, hashEnd, TextTable } from "./text_table.ts";
import { WordCache } from "./word_cache.ts";

const MAX_PAIRS = 1 << 20;
const MAX_SCANNED_SYMBOLS = 40; // longer words use the heap

const encoder = new TextEncoder();

export class BytePairEncoder implements FragmentEncoder {
  private readonly merges: TextTable;
  private readonly n_vocab: number;
  private readonly byteSymbols = new Int32Array(256).fill(-1);
  private readonly extraTexts: Uint8Array[] = [];
  private readonly extraByText = new Map<string, number>();
  private readonly words = new WordCache((word, out) => this.encodeNewWord(word, out));
  private pairs = new PairTable(1 << 14);
  private bytes = new Uint8Array(256); //  UTF-8 of a word
  private mapped = new Uint8Array(512); // and its mapped form
  private joined = new Uint8Array(512);
  private symbols = new Int32Array(256);
  private readonly ranks = new Float64Array(MAX_SCANNED_SYMBOLS);

  /** @param lowercase Text is brought into lower case first. */
  constructor(
    private readonly tokens: TextTable,
    merges: StringArray,
    private readonly pre: PreTokenizer,
    private readonly lowercase: boolean = false,
  ) {
    this.merges = new TextTable(merges);
    this.n_vocab = tokens.strings.length;
  }

  /** Appends the ids of a text without special tokens. */
  encode(text: string, out: IdBuffer): void {
    if (this.lowercase) text = lowered(text);
    if (this.pre.escapesSpaces) text = text.replaceAll(" ", "\u2581");
    if (this.pre.prefixesLines) text = text.replace(/[^\n]+/g, (line) => line[0] === "\u2581" ? line : "\u2581" + line);
    const prepared = new Prepared(text);
    const ends = split(prepared, this.pre.steps);
    let start = 0;
    for (let i = 0; i < ends.length; i++) {
      const end = prepared.offset(ends[i]);
      if (!this.pre.dropsSpaces || !isWhitespace(text.charCodeAt(start))) {
        this.words.encode(prepared.text.substring(start, end), out);
      }
      start = end;
    }
  }

  private encodeNewWord(word: string, out: IdBuffer): void {
    if (this.bytes.length < word.length * 3) this.bytes = new Uint8Array(word.length * 3);
    const length = encoder.encodeInto(word, this.bytes).written;
    if (this.symbols.length < length) this.symbols = new Int32Array(length);
    let whole = this.bytes;
    let wholeLength = length;
    if (!this.pre.isRaw) {
      if (this.mapped.length < length * 2) this.mapped = new Uint8Array(length * 2);
      whole = this.mapped;
      wholeLength = mapBytes(this.bytes, 0, length, whole, 0);
    }
    if (this.pre.ignoreMerges || (this.pre.wholeNewlines && /^\n+$/.test(word))) {
      const id = this.tokens.find(whole, 0, wholeLength);
      if (id >= 0) {
        out.push(id);
        return;
      }
    }
    let n = this.firstSymbols(length);
    n = n <= MAX_SCANNED_SYMBOLS ? this.mergeByScan(n) : this.mergeByHeap(n);
    for (let i = 0; i < n; i++) this.emit(this.symbols[i], out);
  }

  /** Fills `symbols` from `bytes`: one per byte, or one per character for raw vocabularies. */
  private firstSymbols(length: number): number {
    const { bytes, symbols, byteSymbols } = this;
    let n = 0;
    if (!this.pre.isRaw) {
      for (let i = 0; i < length; i++) {
        const byte = bytes[i];
        if (byteSymbols[byte] < 0) {
          const mapped = encoder.encode(String.fromCharCode(BYTE_TO_CODE_POINT[byte]));
          byteSymbols[byte] = this.symbolOf(mapped, 0, mapped.length);
        }
        symbols[n++] = byteSymbols[byte];
      }
      return n;
    }
    for (let i = 0; i < length;) {
      const size = bytes[i] < 0xc0 ? 1 : bytes[i] < 0xe0 ? 2 : bytes[i] < 0xf0 ? 3 : 4;
      symbols[n++] = this.symbolOf(bytes, i, i + size);
      i += size;
    }
    return n;
  }

  /** Token id of a text, or the number of it as an extra symbol. */
  private symbolOf(bytes: Uint8Array, from: number, to: number): number {
    const id = this.tokens.find(bytes, from, to);
    if (id >= 0) return id;
    const key = String.fromCharCode(...bytes.subarray(from, to));
    let extra = this.extraByText.get(key);
    if (extra === undefined) {
      extra = this.extraTexts.push(bytes.slice(from, to)) - 1;
      this.extraByText.set(key, extra);
    }
    return this.n_vocab + extra;
  }

  /** Copies a symbol's text into `joined`; returns the end. */
  private copyText(symbol: number, at: number): number {
    let source: Uint8Array;
    let start = 0;
    let end: number;
    if (symbol < this.n_vocab) {
      source = this.tokens.strings.packed;
      start = this.tokens.start(symbol);
      end = this.tokens.end(symbol);
    } else {
      source = this.extraTexts[symbol - this.n_vocab];
      end = source.length;
    }
    const { joined } = this;
    while (start < end) joined[at++] = source[start++];
    return at;
  }

  private textLength(symbol: number): number {
    return symbol < this.n_vocab
      ? this.tokens.end(symbol) - this.tokens.start(symbol)
      : this.extraTexts[symbol - this.n_vocab].length;
  }

  /** Slot of a pair in `pairs`, filled; rank -1 where the merges do not hold it. */
  private pairSlot(left: number, right: number): number {
    const slot = this.pairs.slot(left, right);
    if (this.pairs.left[slot] >= 0) return slot;
    let rank = -1;
    let symbol = -1;
    const length = this.textLength(left) + this.textLength(right) + 1;
    if (length <= this.merges.maxLength) {
      if (this.joined.length < length) this.joined = new Uint8Array(length * 2);
      const middle = this.copyText(left, 0);
      this.joined[middle] = 0x20;
      const end = this.copyText(right, middle + 1);
      const { joined } = this;
      rank = this.merges.findHashed(hashEnd(hashBytes(HASH_START, joined, 0, end)), joined, 0, end);
      if (rank >= 0) {
        joined.copyWithin(middle, middle + 1, end);
        symbol = this.symbolOf(joined, 0, end - 1);
      }
    }
    if (this.pairs.count >= this.pairs.left.length >> 1) {
      this.pairs = this.pairs.count >= MAX_PAIRS ? new PairTable(1 << 14) : this.pairs.grown();
    }
    return this.pairs.add(left, right, rank, symbol);
  }

  /** Rank of a pair, Infinity where there is none. */
  private rankOf(left: number, right: number): number {
    const slot = this.pairSlot(left, right);
    const rank = this.pairs.rank[slot];
    return rank < 0 ? Infinity : rank;
  }

  /** What a pair that has a rank joins to. */
  private joinOf(left: number, right: number): number {
    const slot = this.pairSlot(left, right);
    return this.pairs.symbol[slot];
  }

  /** Merges the first `n` symbols in place by looking at all pairs each time; returns how many are left. */
  private mergeByScan(n: number): number {
    const { symbols, ranks } = this;
    for (let i = 0; i + 1 < n; i++) ranks[i] = this.rankOf(symbols[i], symbols[i + 1]);
    while (n > 1) {
      let best = 0;
      for (let i = 1; i < n - 1; i++) if (ranks[i] < ranks[best]) best = i;
      if (ranks[best] === Infinity) break;
      symbols[best] = this.joinOf(symbols[best], symbols[best + 1]);
      n--;
      for (let i = best + 1; i < n; i++) symbols[i] = symbols[i + 1];
      for (let i = best + 1; i < n - 1; i++) ranks[i] = ranks[i + 1];
      if (best > 0) ranks[best - 1] = this.rankOf(symbols[best - 1], symbols[best]);
      if (best < n - 1) ranks[best] = this.rankOf(symbols[best], symbols[best + 1]);
    }
    return n;
  }

  /** The same with a queue of pairs over a linked list, for long words. */
  private mergeByHeap(n: number): number {
    const { symbols } = this;
    const next = new Int32Array(n);
    const previous = new Int32Array(n);
    const heap = new PairHeap(n);
    const push = (left: number, right: number) => {
      const rank = this.rankOf(symbols[left], symbols[right]);
      if (rank !== Infinity) heap.push(rank * 2 ** 32 + left, symbols[left], symbols[right]);
    };
    for (let i = 0; i < n; i++) {
      next[i] = i + 1 < n ? i + 1 : -1;
      previous[i] = i - 1;
    }
    for (let i = 0; i + 1 < n; i++) push(i, i + 1);
    while (heap.pop()) {
      const left = heap.key % 2 ** 32;
      const right = next[left];
      if (right < 0 || symbols[left] !== heap.left || symbols[right] !== heap.right) continue;
      symbols[left] = this.joinOf(heap.left, heap.right);
      symbols[right] = -1;
      const after = next[right];
      next[left] = after;
      if (after >= 0) {
        previous[after] = left;
        push(left, after);
      }
      if (previous[left] >= 0) push(previous[left], left);
    }
    let count = 0;
    for (let i = 0; i >= 0; i = next[i]) symbols[count++] = symbols[i];
    return count;
  }

  /** Appends a final symbol; a text that is no token falls apart into its bytes, those without a token vanish. */
  private emit(symbol: number, out: IdBuffer): void {
    if (symbol < this.n_vocab) {
      out.push(symbol);
      return;
    }
    for (const byte of this.extraTexts[symbol - this.n_vocab]) {
      const text = this.pre.isRaw
        ? encoder.encode(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`)
        : Uint8Array.of(byte);
      const id = this.tokens.find(text);
      if (id >= 0) out.push(id);
    }
  }
}

function lowered(text: string): string {
  let result = "";
  for (const character of text) result += String.fromCodePoint(lowerCase(character.codePointAt(0)!));
  return result;
}

/** Open addressing from a pair of symbols to its rank and the symbol it joins to. */
class PairTable {
  readonly left: Int32Array; // -1 is free
  private readonly right: Int32Array;
  readonly rank: Int32Array;
  readonly symbol: Int32Array;
  count = 0;

  constructor(private readonly size: number) {
    this.left = new Int32Array(size).fill(-1);
    this.right = new Int32Array(size);
    this.rank = new Int32Array(size);
    this.symbol = new Int32Array(size);
  }

  /** Where the pair is, or the free slot where it would be. */
  slot(left: number, right: number): number {
    const mask = this.size - 1;
    let hash = Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca77);
    hash ^= hash >>> 15;
    let slot = hash & mask;
    while (this.left[slot] >= 0 && (this.left[slot] !== left || this.right[slot] !== right)) slot = (slot + 1) & mask;
    return slot;
  }

  add(left: number, right: number, rank: number, symbol: number): number {
    const slot = this.slot(left, right);
    this.left[slot] = left;
    this.right[slot] = right;
    this.rank[slot] = rank;
    this.symbol[slot] = symbol;
    this.count++;
    return slot;
  }

  grown(): PairTable {
    const table = new PairTable(this.size * 2);
    for (let i = 0; i < this.size; i++) {
      if (this.left[i] >= 0) table.add(this.left[i], this.right[i], this.rank[i], this.symbol[i]);
    }
    return table;
  }
}
