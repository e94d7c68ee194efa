/**
 * Says whether a text can be the start of a token, or a token: from its hash alone, sure when the answer is no. So a walk
 * along a text stops where no token goes on, without a trie, whose making would cost more than opening a vocabulary may.
 * @module
 */

import { HASH_START, hashEnd, type TextTable } from "./text_table.ts";

export class PrefixFilter {
  private readonly starts: Bits;
  private readonly wholes: Bits;

  /** @param takes Whether a token counts. */
  constructor(table: TextTable, takes: (id: number) => boolean) {
    const { packed } = table.strings;
    const n = table.strings.length;
    const starts = this.starts = new Bits(packed.length * 4);
    const wholes = this.wholes = new Bits(n * 8);
    for (let id = 0; id < n; id++) {
      if (!takes(id)) continue;
      let hash = HASH_START;
      const end = table.end(id);
      for (let i = table.start(id); i < end; i++) {
        hash = Math.imul(hash ^ packed[i], 0x01000193);
        starts.add(hashEnd(hash));
      }
      wholes.add(hashEnd(hash));
    }
  }

  /** Whether a token may start with the text of that finished hash. */
  mayStart(hash: number): boolean {
    return this.starts.has(hash);
  }

  /** Whether a token may be the text of that finished hash. */
  mayBe(hash: number): boolean {
    return this.wholes.has(hash);
  }
}

/** A set of hashes that knows a part of each. */
class Bits {
  private readonly words: Int32Array;
  private readonly mask: number;

  /** @param n Bits at least. */
  constructor(n: number) {
    let size = 1024;
    while (size < n && size < 1 << 26) size *= 2;
    this.words = new Int32Array(size >> 5);
    this.mask = size - 1;
  }

  add(hash: number): void {
    const bit = hash & this.mask;
    this.words[bit >> 5] |= 1 << (bit & 31);
  }

  has(hash: number): boolean {
    const bit = hash & this.mask;
    return (this.words[bit >> 5] >>> (bit & 31) & 1) !== 0;
  }
}
