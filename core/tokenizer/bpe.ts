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
import { isWhitespace, lowerCase, sequenceLength } from "./unicode.ts";
import type { FragmentEncoder } from "./types.ts";
import type { IdBuffer } from "./id_buffer.ts";
import { PairHeap } from "./pair_heap.ts";
import type { PreTokenizer } from "./pretokenizers.ts";
import { Prepared, split } from "./split.ts";
import { TextTable } from "./text_table.ts";
import { WordCache } from "./word_cache.ts";

const MAX_PAIRS = 1 << 21; // places, half of them filled
const NO_RANK = 0x7fffffff;
const MAX_SCANNED_SYMBOLS = 40; // longer words use the heap

const encoder = new TextEncoder();

export class BytePairEncoder implements FragmentEncoder {
  private readonly merges: TextTable;
  private readonly n_vocab: number;
  private readonly byteSymbols = new Int32Array(256).fill(-1);
  private fallbacks: Int32Array | undefined;
  private readonly extraTexts: Uint8Array[] = [];
  private readonly extraByText = new Map<string, number>();
  private readonly words = new WordCache((bytes, from, to, out) => this.encodeNewWord(bytes, from, to, out));
  private pairs = new PairTable(1 << 14);
  private mapped = new Uint8Array(512);
  private joined = new Uint8Array(512);
  private symbols = new Int32Array(256);
  // of each pair while it is scanned: its rank, and the symbol it joins to
  private readonly ranks = new Int32Array(MAX_SCANNED_SYMBOLS);
  private readonly joins = new Int32Array(MAX_SCANNED_SYMBOLS);

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
    const bytes = encoder.encode(text);
    const isAscii = bytes.length === prepared.n;
    let at = 0; // in bytes
    let index = 0; // in code points
    for (let i = 0; i < ends.length; i++) {
      const start = at;
      const isDropped = this.pre.dropsSpaces && isWhitespace(prepared.codePoint(index));
      if (isAscii) index = at = ends[i];
      else for (; index < ends[i]; index++) at += sequenceLength(bytes[at]);
      if (!isDropped) this.words.encode(bytes, start, at, out);
    }
  }

  private encodeNewWord(bytes: Uint8Array, from: number, to: number, out: IdBuffer): void {
    const length = to - from;
    if (this.symbols.length < length) this.symbols = new Int32Array(length);
    if (this.pre.ignoreMerges || (this.pre.wholeNewlines && isNewlines(bytes, from, to))) {
      const id = this.wholeToken(bytes, from, to);
      if (id >= 0) {
        out.push(id);
        return;
      }
    }
    let n = this.firstSymbols(bytes, from, to);
    n = n <= MAX_SCANNED_SYMBOLS ? this.mergeByScan(n) : this.mergeByHeap(n);
    for (let i = 0; i < n; i++) this.emit(this.symbols[i], out);
  }

  /** The token that is the whole word, or -1. */
  private wholeToken(bytes: Uint8Array, from: number, to: number): number {
    if (this.pre.isRaw) return this.tokens.find(bytes, from, to);
    if (to - from > this.tokens.maxLength) return -1;
    if (this.mapped.length < (to - from) * 2) this.mapped = new Uint8Array((to - from) * 2);
    return this.tokens.find(this.mapped, 0, mapBytes(bytes, from, to, this.mapped, 0));
  }

  /** Fills `symbols` from a word: one per byte, or one per character for raw vocabularies. */
  private firstSymbols(bytes: Uint8Array, from: number, to: number): number {
    const { symbols, byteSymbols } = this;
    let n = 0;
    if (!this.pre.isRaw) {
      for (let i = from; i < to; i++) {
        const byte = bytes[i];
        if (byteSymbols[byte] < 0) {
          const mapped = encoder.encode(String.fromCharCode(BYTE_TO_CODE_POINT[byte]));
          byteSymbols[byte] = this.symbolOf(mapped, 0, mapped.length);
        }
        symbols[n++] = byteSymbols[byte];
      }
      return n;
    }
    for (let i = from; i < to;) {
      const size = sequenceLength(bytes[i]);
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

  /** Where a pair is in `pairs.cells`, filled; its rank is `NO_RANK` where the merges do not hold it. */
  private pairAt(left: number, right: number): number {
    const at = this.pairs.find(left, right);
    if (this.pairs.cells[at] !== 0) return at;
    let rank = NO_RANK;
    let symbol = -1;
    const length = this.textLength(left) + this.textLength(right) + 1;
    if (length <= this.merges.maxLength) {
      if (this.joined.length < length) this.joined = new Uint8Array(length * 2);
      const middle = this.copyText(left, 0);
      this.joined[middle] = 0x20;
      const end = this.copyText(right, middle + 1);
      const merge = this.merges.find(this.joined, 0, end);
      if (merge >= 0) {
        rank = merge;
        for (let i = middle + 1; i < end; i++) this.joined[i - 1] = this.joined[i];
        symbol = this.symbolOf(this.joined, 0, end - 1);
      }
    }
    if (this.pairs.isFull) this.pairs = this.pairs.size >= MAX_PAIRS ? new PairTable(1 << 14) : this.pairs.grown();
    return this.pairs.add(left, right, rank, symbol);
  }

  /** Takes rank and result of the pair of symbols `i` and `i + 1`. */
  private scanPair(i: number): void {
    const at = this.pairAt(this.symbols[i], this.symbols[i + 1]);
    this.ranks[i] = this.pairs.cells[at + 2];
    this.joins[i] = this.pairs.cells[at + 3];
  }

  /** Merges the first `n` symbols in place by looking at all pairs each time; returns how many are left. */
  private mergeByScan(n: number): number {
    const { symbols, ranks, joins } = this;
    for (let i = 0; i + 1 < n; i++) this.scanPair(i);
    while (n > 1) {
      let best = 0;
      let bestRank = ranks[0];
      for (let i = 1; i < n - 1; i++) {
        if (ranks[i] < bestRank) {
          best = i;
          bestRank = ranks[i];
        }
      }
      if (bestRank === NO_RANK) break;
      symbols[best] = joins[best];
      n--;
      for (let i = best + 1; i < n; i++) {
        symbols[i] = symbols[i + 1];
        ranks[i] = ranks[i + 1];
        joins[i] = joins[i + 1];
      }
      if (best > 0) this.scanPair(best - 1);
      if (best < n - 1) this.scanPair(best);
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
      const at = this.pairAt(symbols[left], symbols[right]); // before `this.pairs` is read: it may be another table then
      const rank = this.pairs.cells[at + 2];
      if (rank !== NO_RANK) heap.push(rank * 2 ** 32 + left, symbols[left], symbols[right]);
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
      const at = this.pairAt(heap.left, heap.right);
      symbols[left] = this.pairs.cells[at + 3];
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
      const id = this.fallbackIds[byte];
      if (id >= 0) out.push(id);
    }
  }

  /** `[256]` the token of each byte that stands alone, -1 if no token is it. */
  private get fallbackIds(): Int32Array {
    return this.fallbacks ??= Int32Array.from({ length: 256 }, (_, byte) => {
      const hex = byte.toString(16).toUpperCase().padStart(2, "0");
      return this.tokens.find(this.pre.isRaw ? encoder.encode(`<0x${hex}>`) : Uint8Array.of(byte));
    });
  }
}

function lowered(text: string): string {
  let result = "";
  for (const character of text) result += String.fromCodePoint(lowerCase(character.codePointAt(0)!));
  return result;
}

function isNewlines(bytes: Uint8Array, from: number, to: number): boolean {
  while (from < to && bytes[from] === 0x0a) from++;
  return from === to;
}

/** Open addressing from a pair of symbols to its rank and the symbol it joins to. */
class PairTable {
  /** Four numbers a pair, which lie in one line of the processor's cache: left + 1 (0: free), right, rank, symbol. */
  readonly cells: Int32Array;
  private count = 0;

  constructor(readonly size: number) {
    this.cells = new Int32Array(size * 4);
  }

  get isFull(): boolean {
    return this.count >= this.size >> 1;
  }

  /** Where the pair is in `cells`, or the free place where it would be. */
  find(left: number, right: number): number {
    const { cells } = this;
    const mask = cells.length - 1;
    let hash = Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca77);
    hash ^= hash >>> 15;
    let at = (hash << 2) & mask;
    while (cells[at] !== 0 && (cells[at] !== left + 1 || cells[at + 1] !== right)) at = (at + 4) & mask;
    return at;
  }

  add(left: number, right: number, rank: number, symbol: number): number {
    const at = this.find(left, right);
    this.cells[at] = left + 1;
    this.cells[at + 1] = right;
    this.cells[at + 2] = rank;
    this.cells[at + 3] = symbol;
    this.count++;
    return at;
  }

  grown(): PairTable {
    const { cells } = this;
    const table = new PairTable(this.size * 2);
    for (let at = 0; at < cells.length; at += 4) {
      if (cells[at] !== 0) table.add(cells[at] - 1, cells[at + 1], cells[at + 2], cells[at + 3]);
    }
    return table;
  }
}
