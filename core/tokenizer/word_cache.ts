/**
 * Remembers the ids of short words: text repeats its words, and a look-up is cheaper than merging again. Words are UTF-8
 * bytes; keys and ids lie in two growing arrays, so that a new word makes no object.
 * @module
 */

import type { IdBuffer } from "./id_buffer.ts";
import { HASH_START, hashEnd } from "./text_table.ts";

const MAX_WORD = 64; // bytes
const MAX_WORDS = 1 << 16;
const FIELDS = 4; // of an entry: hash, start of its key, start of its ids, key length << 16 | number of ids

export class WordCache {
  private slots = new Int32Array(1 << 12); // entry + 1, 0 is free
  private entries = new Int32Array(FIELDS << 11);
  private count = 0;
  private keys = new Uint8Array(1 << 14);
  private keysEnd = 0;
  private ids = new Int32Array(1 << 12);
  private idsEnd = 0;

  /** @param encodeNew Appends the ids of a word that is not remembered; at most one for each of its bytes. */
  constructor(
    private readonly encodeNew: (bytes: Uint8Array, from: number, to: number, out: IdBuffer) => void,
  ) {}

  /** Appends the ids of the word `bytes[from..to)`. */
  encode(bytes: Uint8Array, from: number, to: number, out: IdBuffer): void {
    const length = to - from;
    if (length > MAX_WORD) {
      this.encodeNew(bytes, from, to, out);
      return;
    }
    let hash = HASH_START;
    for (let i = from; i < to; i++) hash = Math.imul(hash ^ bytes[i], 0x01000193);
    hash = hashEnd(hash);
    const { slots, entries } = this;
    const mask = slots.length - 1;
    let slot = hash & mask;
    for (; slots[slot] !== 0; slot = (slot + 1) & mask) {
      const entry = (slots[slot] - 1) * FIELDS;
      if (entries[entry] !== hash || entries[entry + 3] >>> 16 !== length) continue;
      if (!this.isKey(entries[entry + 1], bytes, from, to)) continue;
      const first = entries[entry + 2];
      out.pushRange(this.ids, first, first + (entries[entry + 3] & 0xffff));
      return;
    }
    const first = out.length;
    this.encodeNew(bytes, from, to, out);
    this.add(hash, slot, bytes.subarray(from, to), out, first);
  }

  private isKey(start: number, bytes: Uint8Array, from: number, to: number): boolean {
    const { keys } = this;
    for (let i = from, j = start; i < to; i++, j++) if (bytes[i] !== keys[j]) return false;
    return true;
  }

  /** Remembers that a word's ids are those of `out` from `first` on; `slot` is where it goes. */
  private add(hash: number, slot: number, word: Uint8Array, out: IdBuffer, first: number): void {
    if (this.count === MAX_WORDS) {
      this.count = this.keysEnd = this.idsEnd = 0;
      this.slots.fill(0);
      slot = hash & (this.slots.length - 1);
    } else if (this.count * 2 === this.slots.length) {
      this.grow();
      const mask = this.slots.length - 1;
      slot = hash & mask;
      while (this.slots[slot] !== 0) slot = (slot + 1) & mask;
    }
    const n_ids = out.length - first;
    if (this.keysEnd + word.length > this.keys.length) {
      this.keys = doubled(this.keys, new Uint8Array(this.keys.length * 2));
    }
    if (this.idsEnd + n_ids > this.ids.length) this.ids = doubled(this.ids, new Int32Array(this.ids.length * 2));
    const entry = this.count * FIELDS;
    this.entries[entry] = hash;
    this.entries[entry + 1] = this.keysEnd;
    this.entries[entry + 2] = this.idsEnd;
    this.entries[entry + 3] = word.length << 16 | n_ids;
    this.slots[slot] = ++this.count;
    for (let i = 0; i < word.length; i++) this.keys[this.keysEnd++] = word[i];
    for (let i = first; i < out.length; i++) this.ids[this.idsEnd++] = out.at(i);
  }

  private grow(): void {
    const slots = new Int32Array(this.slots.length * 2);
    const mask = slots.length - 1;
    for (let i = 0; i < this.count; i++) {
      let slot = this.entries[i * FIELDS] & mask;
      while (slots[slot] !== 0) slot = (slot + 1) & mask;
      slots[slot] = i + 1;
    }
    this.slots = slots;
    this.entries = doubled(this.entries, new Int32Array(this.entries.length * 2));
  }
}

function doubled<T extends Uint8Array | Int32Array>(from: T, to: T): T {
  to.set(from);
  return to;
}
