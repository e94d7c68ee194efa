/**
 * A vocabulary's tokens as bytes, arranged for masking: tries in pre-order, and the tokens that a text within quotes
 * takes anywhere set apart.
 * @module
 */

/**
 * A trie as arrays in pre-order: node `i` has its byte, its depth, the index behind its subtree and its tokens.
 */
export interface Trie {
  readonly length: number;
  readonly byte: Uint8Array;
  readonly depth: Uint16Array;
  readonly end: Int32Array;
  /** First token of the node, -1 none; further ones by `VocabTrie.nextToken`. */
  readonly token: Int32Array;
}

/** Upper bounds, in characters, of the classes of plain tokens. */
const CLASS_BOUNDS = [4, 8, 16, 32, 64, 128, 256, Infinity];

/** Plain tokens of a range of lengths. */
export interface PlainClass {
  /** Most characters of a token. */
  readonly most: number;
  readonly trie: Trie;
  /** The tokens, as bits. */
  readonly mask: Uint32Array;
}

export class VocabTrie {
  /** Tokens of characters that stand for themselves in a JSON string, by length. */
  readonly plain: readonly PlainClass[];
  /** All others: what has a quote, a backslash, a control character or part of a character. */
  readonly special: Trie;
  /** The next token of the same bytes, -1 none. */
  readonly nextToken: Int32Array;
  /** Words of a mask. */
  readonly words: number;

  /**
   * @param n_vocab Ids run from 0 to here.
   * @param bytesOf The bytes of a token as text shows them; nothing for control tokens, which no grammar takes.
   */
  constructor(readonly n_vocab: number, bytesOf: (id: number) => Uint8Array | undefined) {
    this.words = (n_vocab + 31) >>> 5;
    this.nextToken = new Int32Array(n_vocab).fill(-1);
    const classes = CLASS_BOUNDS.map(() => ({ most: 0, entries: [] as Entry[], mask: new Uint32Array(this.words) }));
    const special: Entry[] = [];
    for (let id = 0; id < n_vocab; id++) {
      const bytes = bytesOf(id);
      if (bytes === undefined || bytes.length === 0 || bytes.length > 0xffff) continue;
      const n = plainLength(bytes);
      if (n < 0) {
        special.push({ id, bytes });
        continue;
      }
      const c = classes[CLASS_BOUNDS.findIndex((bound) => n <= bound)];
      c.entries.push({ id, bytes });
      c.mask[id >>> 5] |= 1 << (id & 31);
      c.most = Math.max(c.most, n);
    }
    this.plain = classes.filter((c) => c.most > 0).map(({ most, entries, mask }) => ({
      most,
      trie: this.#trie(entries),
      mask,
    }));
    this.special = this.#trie(special);
  }

  #trie(unsorted: Entry[]): Trie {
    const entries = sorted(unsorted);
    let length = 0;
    let last: Uint8Array = new Uint8Array();
    for (const { bytes } of entries) {
      length += bytes.length - common(last, bytes);
      last = bytes;
    }
    const byte = new Uint8Array(length), depth = new Uint16Array(length);
    const end = new Int32Array(length).fill(length), token = new Int32Array(length).fill(-1);
    const path: number[] = [];
    let n = 0;
    last = new Uint8Array();
    for (const { id, bytes } of entries) {
      const shared = common(last, bytes);
      while (path.length > shared) end[path.pop()!] = n;
      for (let d = shared; d < bytes.length; d++) {
        byte[n] = bytes[d];
        depth[n] = d;
        path.push(n++);
      }
      const node = path[path.length - 1];
      this.nextToken[id] = token[node];
      token[node] = id;
      last = bytes;
    }
    return { length, byte, depth, end, token };
  }

  /** Sets the bits of a node's tokens. */
  mark(trie: Trie, node: number, mask: Uint32Array): void {
    for (let id = trie.token[node]; id >= 0; id = this.nextToken[id]) mask[id >>> 5] |= 1 << (id & 31);
  }
}

interface Entry {
  id: number;
  bytes: Uint8Array;
}

/** Entries by bytes, then id. Numbers sort natively: the first four bytes and the place, then the few that tie. */
function sorted(entries: readonly Entry[]): Entry[] {
  const places = 2 ** 21;
  const keys = new Float64Array(entries.length);
  entries.forEach(({ bytes }, i) => {
    let head = 0;
    for (let k = 0; k < 4; k++) head = head * 256 + (bytes[k] ?? 0);
    keys[i] = head * places + i;
  });
  keys.sort();
  const out: Entry[] = [];
  for (let i = 0; i < keys.length;) {
    const head = Math.floor(keys[i] / places);
    const group: Entry[] = [];
    for (; i < keys.length && Math.floor(keys[i] / places) === head; i++) group.push(entries[keys[i] % places]);
    if (group.length > 1) group.sort((a, b) => compareBytes(a.bytes, b.bytes) || a.id - b.id);
    for (const entry of group) out.push(entry);
  }
  return out;
}

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const n = Math.min(a.length, b.length);
  for (let i = 0; i < n; i++) if (a[i] !== b[i]) return a[i] - b[i];
  return a.length - b.length;
}

function common(a: Uint8Array, b: Uint8Array): number {
  const n = Math.min(a.length, b.length);
  let i = 0;
  while (i < n && a[i] === b[i]) i++;
  return i;
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Characters of a text that a JSON string takes as they are; -1 where a byte is otherwise. */
function plainLength(bytes: Uint8Array): number {
  let ascii = true;
  for (const b of bytes) {
    if (b < 0x20 || b === 0x22 || b === 0x5c || b === 0x7f) return -1;
    if (b >= 0x80) ascii = false;
  }
  if (ascii) return bytes.length;
  try {
    return [...decoder.decode(bytes)].length;
  } catch {
    return -1;
  }
}

/** First and following bytes of all characters beyond ASCII: [first lo, hi, second lo, hi, bytes]. */
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
