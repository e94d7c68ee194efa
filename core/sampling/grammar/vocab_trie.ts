/**
 * A vocabulary's tokens as bytes, arranged for masking. All that does not depend on a grammar is worked out here, once:
 * tries in pre-order, and masks of the tokens that a text in quotes takes anywhere, by their length.
 * @module
 */

/**
 * A trie in pre-order. Tokens are sorted by their bytes, which is the order of the nodes too: a node's tokens, and those of
 * its subtree, are a stretch of `ids`.
 */
export interface Trie {
  readonly length: number;
  readonly byte: Uint8Array;
  readonly depth: Uint16Array;
  /** The index behind a node's subtree. */
  readonly end: Int32Array;
  /** `[length + 1]`; a node's tokens are `ids[first[i]]` up to `ids[first[i + 1]]`. */
  readonly first: Int32Array;
  readonly ids: Int32Array;
  /** All tokens are plain. */
  readonly plain: boolean;
}

export class VocabTrie {
  /** Tokens of plain characters: those that stand for themselves in a JSON string. */
  readonly plain: Trie;
  /** All others: what has a quote, a backslash, a control character or part of a character. */
  readonly special: Trie;
  /**
   * The special tokens without the plain characters that they begin with: one trie of all, and one for each number of
   * characters left out, in order.
   */
  readonly rests: Trie;
  readonly restsBehind: readonly { readonly n: number; readonly trie: Trie }[];
  /** Most bytes of a token. */
  readonly reach: number;
  /** Plain tokens of up to n characters as bits, n from 0 to the longest. */
  readonly plainUpTo: readonly Uint32Array[];
  /** Words of a mask. */
  readonly words: number;
  readonly #pool: Pool;
  readonly #containing = new Map<string, { mask: Uint32Array; trie: Trie } | undefined>();

  /**
   * @param n_vocab Ids run from 0 to here.
   * @param bytesOf The bytes of a token as text shows them; nothing for control tokens, which no grammar takes.
   */
  constructor(readonly n_vocab: number, bytesOf: (id: number) => Uint8Array | undefined) {
    this.words = (n_vocab + 31) >>> 5;
    const pool = this.#pool = new Pool(n_vocab), rests = new Pool(n_vocab);
    const plain: number[] = [], special: number[] = [];
    const begins = new Uint16Array(n_vocab); // plain characters at the beginning
    let longest = 0, reach = 0;
    for (let id = 0; id < n_vocab; id++) {
      const bytes = bytesOf(id);
      if (bytes === undefined || bytes.length === 0 || bytes.length >= MAX_TOKEN) {
        pool.add(EMPTY, 0);
        rests.add(EMPTY, 0);
        continue;
      }
      pool.add(bytes, 0);
      if (bytes.length > reach) reach = bytes.length;
      const begin = plainBeginning(bytes);
      begins[id] = begin.n;
      rests.add(bytes, begin.bytes);
      if (begin.bytes < bytes.length) special.push(id);
      else {
        plain.push(id);
        if (begin.n > longest) longest = begin.n;
      }
    }
    this.reach = reach;
    this.plain = trieOf(pool, pool.sorted(plain), true);
    this.special = trieOf(pool, pool.sorted(special), false);
    this.rests = trieOf(rests, rests.sorted(special), false);
    this.restsBehind = [...Map.groupBy(special, (id) => begins[id])].sort(([a], [b]) => a - b)
      .map(([n, ids]) => ({ n, trie: trieOf(rests, rests.sorted(ids), false) }));
    const upTo = [new Uint32Array(this.words)];
    const byLength: number[][] = [];
    for (const id of plain) (byLength[begins[id]] ??= []).push(id);
    for (let n = 1; n <= longest; n++) {
      const ids = byLength[n];
      const mask = ids === undefined ? upTo[n - 1] : upTo[n - 1].slice();
      for (const id of ids ?? []) mask[id >>> 5] |= 1 << (id & 31);
      upTo.push(mask);
    }
    this.plainUpTo = upTo;
  }

  /** Every plain token, as bits. */
  get allPlain(): Uint32Array {
    return this.plainUpTo[this.plainUpTo.length - 1];
  }

  /**
   * The plain tokens that have one of some ASCII bytes, found once for each set of bytes; undefined where they are so many
   * that knowing them saves nothing.
   */
  containing(bytes: readonly number[]): { mask: Uint32Array; trie: Trie } | undefined {
    const key = bytes.join();
    if (this.#containing.has(key)) return this.#containing.get(key);
    const { ids } = this.plain;
    const wanted = new Uint8Array(256);
    for (const b of bytes) wanted[b] = 1;
    const found = ids.filter((id) => this.#pool.has(id, wanted));
    let result: { mask: Uint32Array; trie: Trie } | undefined;
    if (found.length < ids.length / 8) {
      const mask = new Uint32Array(this.words);
      for (const id of found) mask[id >>> 5] |= 1 << (id & 31);
      result = { mask, trie: trieOf(this.#pool, found, true) };
    }
    if (this.#containing.size < 64) this.#containing.set(key, result);
    return result;
  }
}

const EMPTY = new Uint8Array();
/** Longer tokens are never proposed; none is known that comes near. */
const MAX_TOKEN = 1024;

/** The bytes of all tokens in one array. */
class Pool {
  #bytes: Uint8Array;
  #used = 0;
  #n = 0;
  readonly #at: Int32Array;

  constructor(n: number) {
    this.#bytes = new Uint8Array(n * 8 + MAX_TOKEN);
    this.#at = new Int32Array(n + 1);
  }

  /** The next token, without its first bytes. */
  add(bytes: Uint8Array, from: number): void {
    if (this.#used + bytes.length > this.#bytes.length) {
      const more = new Uint8Array(this.#bytes.length * 2);
      more.set(this.#bytes);
      this.#bytes = more;
    }
    // A loop is faster than set() for a few bytes.
    for (let i = from; i < bytes.length; i++) this.#bytes[this.#used++] = bytes[i];
    this.#at[++this.#n] = this.#used;
  }

  /** Where a token's bytes begin and end in `bytes`. */
  get at(): Int32Array {
    return this.#at;
  }

  get bytes(): Uint8Array {
    return this.#bytes;
  }

  has(id: number, wanted: Uint8Array): boolean {
    for (let i = this.#at[id]; i < this.#at[id + 1]; i++) if (wanted[this.#bytes[i]] === 1) return true;
    return false;
  }

  /** Ids by bytes, then id: radix sort from the first byte on, small groups by comparison. */
  sorted(given: readonly number[]): Int32Array {
    const ids = Int32Array.from(given), other = new Int32Array(ids.length);
    const bytes = this.#bytes, at = this.#at;
    const less = (a: number, b: number, depth: number): boolean => {
      const endA = at[a + 1], endB = at[b + 1];
      let i = at[a] + depth, j = at[b] + depth;
      for (; i < endA && j < endB; i++, j++) if (bytes[i] !== bytes[j]) return bytes[i] < bytes[j];
      return i === endA && j === endB ? a < b : i === endA;
    };
    const sort = (from: number, to: number, depth: number): void => {
      if (to - from < 24) {
        for (let i = from + 1; i < to; i++) {
          const id = ids[i];
          let j = i;
          for (; j > from && less(id, ids[j - 1], depth); j--) ids[j] = ids[j - 1];
          ids[j] = id;
        }
        return;
      }
      const starts = new Int32Array(258); // [0]: tokens that end here
      for (let i = from; i < to; i++) {
        const p = at[ids[i]] + depth;
        starts[p < at[ids[i] + 1] ? bytes[p] + 2 : 1]++;
      }
      for (let b = 1; b < 258; b++) starts[b] += starts[b - 1];
      const next = starts.slice();
      for (let i = from; i < to; i++) {
        const p = at[ids[i]] + depth;
        other[from + next[p < at[ids[i] + 1] ? bytes[p] + 1 : 0]++] = ids[i];
      }
      ids.set(other.subarray(from, to), from);
      for (let b = 1; b < 257; b++) {
        if (starts[b + 1] - starts[b] > 1) sort(from + starts[b], from + starts[b + 1], depth + 1);
      }
    };
    sort(0, ids.length, 0);
    return ids;
  }
}

/** @param ids Sorted by bytes. */
function trieOf({ bytes, at }: Pool, ids: Int32Array, plain: boolean): Trie {
  const shared = new Uint16Array(ids.length); // bytes in common with the token before
  let length = 0;
  for (let t = 0; t < ids.length; t++) {
    const size = at[ids[t] + 1] - at[ids[t]];
    if (t > 0) {
      const a = at[ids[t - 1]], b = at[ids[t]], n = Math.min(size, at[ids[t - 1] + 1] - a);
      let i = 0;
      while (i < n && bytes[a + i] === bytes[b + i]) i++;
      shared[t] = i;
    }
    length += size - shared[t];
  }
  const byte = new Uint8Array(length), depth = new Uint16Array(length);
  const end = new Int32Array(length), first = new Int32Array(length + 1);
  const path = new Int32Array(MAX_TOKEN);
  let n = 0, deep = 0;
  for (let t = 0; t < ids.length; t++) {
    const from = at[ids[t]], size = at[ids[t] + 1] - from;
    for (; deep > shared[t]; deep--) end[path[deep - 1]] = n;
    for (; deep < size; deep++) {
      byte[n] = bytes[from + deep];
      depth[n] = deep;
      first[n] = t;
      path[deep] = n++;
    }
  }
  for (; deep > 0; deep--) end[path[deep - 1]] = n;
  first[length] = ids.length;
  return { length, byte, depth, end, first, ids, plain };
}

/** Whether a JSON string takes an ASCII character as it is. */
export const isPlainByte = (b: number): boolean => b >= 0x20 && b < 0x7f && b !== 0x22 && b !== 0x5c;

/** The characters at a text's beginning that a JSON string takes as they are, and their bytes. */
function plainBeginning(bytes: Uint8Array): { n: number; bytes: number } {
  let n = 0, i = 0;
  for (; i < bytes.length; n++) {
    const b = bytes[i];
    if (b < 0x80) {
      if (!isPlainByte(b)) break;
      i++;
      continue;
    }
    const row = MULTIBYTE.find(([lo, hi]) => b >= lo && b <= hi);
    if (row === undefined || i + row[4] > bytes.length) break;
    if (bytes[i + 1] < row[2] || bytes[i + 1] > row[3]) break;
    if (row[4] > 2 && (bytes[i + 2] & 0xc0) !== 0x80 || row[4] > 3 && (bytes[i + 3] & 0xc0) !== 0x80) break;
    i += row[4];
  }
  return { n, bytes: i };
}

/** First and second bytes of all characters beyond ASCII, and their length: [first lo, hi, second lo, hi, bytes]. */
export const MULTIBYTE: readonly (readonly [number, number, number, number, number])[] = [
  [0xc2, 0xdf, 0x80, 0xbf, 2],
  [0xe0, 0xe0, 0xa0, 0xbf, 3],
  [0xe1, 0xec, 0x80, 0xbf, 3],
  [0xed, 0xed, 0x80, 0x9f, 3],
  [0xee, 0xef, 0x80, 0xbf, 3],
  [0xf0, 0xf0, 0x90, 0xbf, 4],
  [0xf1, 0xf3, 0x80, 0xbf, 4],
  [0xf4, 0xf4, 0x80, 0x8f, 4],
];
