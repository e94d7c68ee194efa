/**
 * Remembers the ids of short words: text repeats its words, and a look-up is cheaper than merging again.
 * @module
 */

import type { IdBuffer } from "./id_buffer.ts";

const MAX_WORD = 32; // UTF-16 units
const MAX_WORDS = 1 << 16;

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

export class WordCache {
  private readonly words = new Map<string, number | Int32Array>();

  /** @param encodeNew Appends the ids of a word that is not remembered. */
  constructor(private readonly encodeNew: (word: string, out: IdBuffer) => void) {}

  /** Appends the ids of `word`, which has no lone surrogates. */
  encode(word: string, out: IdBuffer): void {
    if (word.length > MAX_WORD) {
      this.encodeNew(word, out);
      return;
    }
    const known = this.words.get(word);
    if (known !== undefined) {
      if (typeof known === "number") out.push(known);
      else out.pushAll(known);
      return;
    }
    const first = out.length;
    this.encodeNew(word, out);
    if (this.words.size >= MAX_WORDS) this.words.clear();
    this.words.set(detached(word), out.length === first + 1 ? out.at(first) : out.slice(first));
  }
}

/** The same string in memory of its own: a part of a string keeps the whole alive, here a whole prompt. */
function detached(word: string): string {
  return word.length < 13 ? word : decoder.decode(encoder.encode(word)); // engines copy short ones anyway
}
