/**
 * SentencePiece's BPE: characters are joined as long as the joined text is a token, highest score first, leftmost among
 * equals. A character that is no token becomes the tokens of its bytes.
 *
 * There are no words: a whole fragment is one problem. But where no token holds some character followed by U+2581, no
 * merge can cross such a place, so the text is cut there; what lies between cuts is small, repeats, and is remembered.
 * @module
 */

import type { StringArray } from "../gguf/metadata.ts";
import type { IdBuffer } from "./id_buffer.ts";
import { PairHeap } from "./pair_heap.ts";
import type { TextTable } from "./text_table.ts";
import type { FragmentEncoder } from "./types.ts";
import { codePointAt, sequenceLength } from "./unicode.ts";
import { WordCache } from "./word_cache.ts";

const MAX_SCANNED_SYMBOLS = 40; // longer texts use the heap
const SPACE = 0x2581;

const encoder = new TextEncoder();
const NOTHING = new Uint8Array(0);

export interface SpmOptions {
  /** A fragment after a special token or at the start gets a leading space. */
  addSpacePrefix: boolean;
  /** Spaces are written as U+2581. */
  escapeSpaces: boolean;
  /** For a byte without a token. */
  unk: number | null;
}

export class SpmEncoder implements FragmentEncoder {
  private readonly words = new WordCache((bytes, from, to, out) => this.merge(bytes, from, to, out));
  private readonly byteIds = new Int32Array(256);
  private bytes: Uint8Array = NOTHING; //   the text of the word
  private starts = new Int32Array(256); // where its symbols start in it, and its end
  private readonly pairScores = new Float64Array(MAX_SCANNED_SYMBOLS);
  private readonly beforeSpace: ReadonlySet<number>;

  constructor(
    private readonly tokens: TextTable,
    private readonly scores: ArrayLike<number> | undefined,
    private readonly options: SpmOptions,
  ) {
    for (let byte = 0; byte < 256; byte++) {
      let id = tokens.find(encoder.encode(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`));
      if (id < 0) id = tokens.find(Uint8Array.of(byte));
      this.byteIds[byte] = id >= 0 ? id : options.unk ?? -1;
    }
    this.beforeSpace = charactersBeforeSpace(tokens.strings);
  }

  encode(text: string, out: IdBuffer, isStart: boolean): void {
    const { addSpacePrefix, escapeSpaces } = this.options;
    if (addSpacePrefix && isStart) text = " " + text;
    if (escapeSpaces) text = text.replaceAll(" ", "\u2581");
    const bytes = encoder.encode(text);
    let start = 0;
    for (let cut = 1; cut + 2 < bytes.length; cut++) {
      if (bytes[cut] !== 0xe2 || !isSpaceAt(bytes, cut) || this.mayJoinAcross(bytes, cut)) continue;
      this.words.encode(bytes, start, cut, out);
      start = cut;
    }
    this.words.encode(bytes, start, bytes.length, out);
    this.bytes = NOTHING; // a whole prompt is not to be kept
  }

  private mayJoinAcross(bytes: Uint8Array, cut: number): boolean {
    let from = cut - 1;
    while (from > 0 && (bytes[from] & 0xc0) === 0x80) from--;
    const before = codePointAt(bytes, from);
    return before === SPACE || this.beforeSpace.has(before);
  }

  /** Appends the ids of `bytes[from..to)`. */
  private merge(bytes: Uint8Array, from: number, to: number, out: IdBuffer): void {
    if (this.starts.length <= to - from) this.starts = new Int32Array((to - from) * 2);
    const { starts } = this;
    this.bytes = bytes;
    let n = 0;
    for (let at = from; at < to; at += sequenceLength(bytes[at])) starts[n++] = at;
    starts[n] = to;
    n = n <= MAX_SCANNED_SYMBOLS ? this.mergeByScan(n) : this.mergeByHeap(n);
    for (let i = 0; i < n; i++) {
      const id = this.tokens.find(bytes, starts[i], starts[i + 1]);
      if (id >= 0) out.push(id);
      else {
        for (let at = starts[i]; at < starts[i + 1]; at++) {
          const byteId = this.byteIds[bytes[at]];
          if (byteId >= 0) out.push(byteId);
        }
      }
    }
  }

  /** Score of the token at `bytes[from..to)`, -Infinity if they are no token. */
  private scoreOf(from: number, to: number): number {
    const id = this.tokens.find(this.bytes, from, to);
    return id < 0 ? -Infinity : this.scores?.[id] ?? 0;
  }

  /** Joins symbols, `starts[0..n]`, in place by looking at all pairs each time; returns how many are left. */
  private mergeByScan(n: number): number {
    const { starts, pairScores } = this;
    for (let i = 0; i + 1 < n; i++) pairScores[i] = this.scoreOf(starts[i], starts[i + 2]);
    while (n > 1) {
      let best = 0;
      for (let i = 1; i < n - 1; i++) if (pairScores[i] > pairScores[best]) best = i;
      if (pairScores[best] === -Infinity) break;
      for (let i = best + 1; i < n; i++) starts[i] = starts[i + 1];
      n--;
      for (let i = best + 1; i < n - 1; i++) pairScores[i] = pairScores[i + 1];
      if (best > 0) pairScores[best - 1] = this.scoreOf(starts[best - 1], starts[best + 1]);
      if (best < n - 1) pairScores[best] = this.scoreOf(starts[best], starts[best + 2]);
    }
    return n;
  }

  /** The same with a queue of pairs over a linked list, for long texts without a place to cut. */
  private mergeByHeap(n: number): number {
    const { starts } = this;
    const sizes = new Int32Array(n); // 0: joined to its left neighbour
    const next = new Int32Array(n);
    const previous = new Int32Array(n);
    const heap = new PairHeap(n);
    const push = (left: number, right: number) => {
      const size = sizes[left] + sizes[right];
      const score = this.scoreOf(starts[left], starts[left] + size);
      if (score !== -Infinity) heap.push(-score, left, size);
    };
    for (let i = 0; i < n; i++) {
      sizes[i] = starts[i + 1] - starts[i];
      next[i] = i + 1 < n ? i + 1 : -1;
      previous[i] = i - 1;
    }
    for (let i = 0; i + 1 < n; i++) push(i, i + 1);
    while (heap.pop()) {
      const left = heap.left;
      const right = next[left];
      if (sizes[left] === 0 || right < 0 || sizes[left] + sizes[right] !== heap.right) continue;
      sizes[left] = heap.right;
      sizes[right] = 0;
      const after = next[right];
      next[left] = after;
      if (after >= 0) {
        previous[after] = left;
        push(left, after);
      }
      if (previous[left] >= 0) push(previous[left], left);
    }
    const end = starts[n];
    let count = 0;
    for (let i = 0; i >= 0; i = next[i]) starts[count++] = starts[i];
    starts[count] = end;
    return count;
  }
}

/** Whether U+2581 is at `at`, where its first byte is. */
function isSpaceAt(bytes: Uint8Array, at: number): boolean {
  return bytes[at + 1] === 0x96 && bytes[at + 2] === 0x81;
}

/** The characters other than U+2581 that some token has right before a U+2581. */
function charactersBeforeSpace({ packed, ends }: StringArray): Set<number> {
  const found = new Set<number>();
  for (let id = 0, start = 8; id < ends.length; start = ends[id++] + 8) {
    const last = ends[id] - 3;
    for (let at = start + 1; at <= last; at++) {
      if (packed[at] !== 0xe2 || packed[at + 1] !== 0x96 || packed[at + 2] !== 0x81) continue;
      let from = at - 1;
      while (from > start && (packed[from] & 0xc0) === 0x80) from--;
      const cp = codePointAt(packed, from);
      if (cp !== SPACE) found.add(cp);
    }
  }
  return found;
}
