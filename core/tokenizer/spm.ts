/**
 * SentencePiece's BPE: characters are joined as long as the joined text is a token, highest score first, leftmost among
 * equals. A character that is no token becomes the tokens of its bytes.
 *
 * There are no words: a whole fragment is one problem. But where no token holds some character followed by U+2581, no
 * merge can cross such a place, so the text is cut there; what lies between cuts is small, repeats, and is remembered.
 * @module
 */

import type { IdBuffer } from "./id_buffer.ts";
import { PairHeap } from "./pair_heap.ts";
import type { TextTable } from "./text_table.ts";
import type { FragmentEncoder } from "./types.ts";

const MAX_CACHED_WORD = 32; // UTF-16 units
const MAX_CACHED_WORDS = 1 << 16;
const SPACE = 0x2581;

const encoder = new TextEncoder();

export interface SpmOptions {
  /** A fragment after a special token or at the start gets a leading space. */
  addSpacePrefix: boolean;
  /** Spaces are written as U+2581. */
  escapeSpaces: boolean;
  /** For a byte without a token. */
  unk: number | null;
}

export class SpmEncoder implements FragmentEncoder {
  private readonly words = new Map<string, Int32Array>();
  private readonly byteIds = new Int32Array(256);
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
    this.beforeSpace = charactersBeforeSpace(tokens);
  }

  encode(text: string, out: IdBuffer, isStart: boolean): void {
    const { addSpacePrefix, escapeSpaces } = this.options;
    if (addSpacePrefix && isStart) text = " " + text;
    if (escapeSpaces) text = text.replaceAll(" ", "\u2581");
    let start = 0;
    for (let cut = text.indexOf("\u2581", 1); cut >= 0; cut = text.indexOf("\u2581", cut + 1)) {
      if (this.mayJoinAcross(text, cut)) continue;
      this.encodeWord(text.substring(start, cut), out);
      start = cut;
    }
    this.encodeWord(text.substring(start), out);
  }

  private mayJoinAcross(text: string, cut: number): boolean {
    let before = text.charCodeAt(cut - 1);
    if (before === SPACE) return true;
    if ((before & 0xfc00) === 0xdc00) before = text.codePointAt(cut - 2)!;
    return this.beforeSpace.has(before);
  }

  private encodeWord(word: string, out: IdBuffer): void {
    if (word.length > MAX_CACHED_WORD) {
      this.merge(word, out);
      return;
    }
    const known = this.words.get(word);
    if (known) {
      out.pushAll(known);
      return;
    }
    const first = out.length;
    this.merge(word, out);
    if (this.words.size >= MAX_CACHED_WORDS) this.words.clear();
    this.words.set(word, out.slice(first));
  }

  private merge(text: string, out: IdBuffer): void {
    const { tokens, scores } = this;
    const bytes = encoder.encode(text);
    const starts = new Int32Array(text.length);
    const sizes = new Int32Array(text.length); // 0: joined to its left neighbour
    let n = 0;
    for (let at = 0; at < bytes.length; n++) {
      const lead = bytes[at];
      sizes[n] = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
      starts[n] = at;
      at += sizes[n];
    }
    const next = new Int32Array(n);
    const previous = new Int32Array(n);
    const heap = new PairHeap(n);
    const push = (left: number, right: number) => {
      const size = sizes[left] + sizes[right];
      const id = tokens.find(bytes, starts[left], starts[left] + size);
      if (id >= 0) heap.push(scores ? -scores[id] : 0, left, size);
    };
    for (let i = 0; i < n; i++) {
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
    for (let i = 0; i >= 0 && i < n; i = next[i]) {
      const end = starts[i] + sizes[i];
      const id = tokens.find(bytes, starts[i], end);
      if (id >= 0) out.push(id);
      else for (let at = starts[i]; at < end; at++) if (this.byteIds[bytes[at]] >= 0) out.push(this.byteIds[bytes[at]]);
    }
  }
}

/** The characters other than U+2581 that some token has right before a U+2581. */
function charactersBeforeSpace(tokens: TextTable): Set<number> {
  const { packed } = tokens.strings;
  const found = new Set<number>();
  const decoder = new TextDecoder();
  for (let id = 0; id < tokens.strings.length; id++) {
    const start = tokens.start(id);
    const end = tokens.end(id) - 2;
    for (let at = start + 1; at < end; at++) {
      if (packed[at] !== 0xe2 || packed[at + 1] !== 0x96 || packed[at + 2] !== 0x81) continue;
      let from = at - 1;
      while (from > start && (packed[from] & 0xc0) === 0x80) from--;
      const cp = decoder.decode(packed.subarray(from, at)).codePointAt(0)!;
      if (cp !== SPACE) found.add(cp);
    }
  }
  return found;
}
