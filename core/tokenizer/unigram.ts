/**
 * SentencePiece's unigram model: of all ways to cut the text into tokens, the one with the highest sum of scores, found
 * by dynamic programming over the bytes. Before that the text is normalised with the character map that the file carries.
 * @module
 */

import { TextError } from "../errors.ts";
import type { Metadata } from "../gguf/metadata.ts";
import type { IdBuffer } from "./id_buffer.ts";
import { PrefixFilter } from "./prefix_filter.ts";
import { HASH_START, hashEnd, type TextTable } from "./text_table.ts";
import { type FragmentEncoder, TOKEN_TYPE } from "./types.ts";
import { sequenceLength } from "./unicode.ts";
import type { Vocab } from "./vocab.ts";

export interface UnigramOptions {
  addSpacePrefix: boolean;
  /** Runs of spaces become one, and every text begins with one. */
  removeExtraSpaces: boolean;
  unk: number;
}

/** How much worse an unknown character is than the worst token. */
const UNKNOWN_PENALTY = 10;

const encoder = new TextEncoder();
const SPACE = encoder.encode("\u2581");

export class UnigramEncoder implements FragmentEncoder {
  private readonly prefixes: PrefixFilter;
  private readonly userDefined: ByteTrie;
  private readonly charsMap: CharsMap | undefined;
  private readonly unknownScore: number;

  constructor(private readonly vocab: Vocab, metadata: Metadata, private readonly options: UnigramOptions) {
    const { types, scores } = vocab;
    const userDefined: number[] = [];
    let worst = Infinity;
    for (let id = 0; id < vocab.n; id++) {
      const type = types[id];
      if (type === TOKEN_TYPE.normal) worst = Math.min(worst, scores?.[id] ?? 0);
      if (type === TOKEN_TYPE.userDefined) userDefined.push(id);
    }
    this.unknownScore = (worst === Infinity ? 0 : worst) - UNKNOWN_PENALTY;
    this.prefixes = new PrefixFilter(vocab.table, (id) => this.isMatched(id));
    this.userDefined = new ByteTrie(vocab.table, userDefined);
    const map = metadata.ints("tokenizer.ggml.precompiled_charsmap", undefined);
    if (map && map.length > 0) this.charsMap = new CharsMap(Uint8Array.from(map), metadata.file);
  }

  encode(text: string, out: IdBuffer): void {
    const input = this.normalize(encoder.encode(text));
    const n = input.length;
    if (n === 0) return;
    const { prefixes, vocab, unknownScore } = this;
    const { table } = vocab;
    const { unk } = this.options;
    const best = new Float64Array(n + 1).fill(-Infinity);
    const token = new Int32Array(n + 1).fill(unk);
    const from = new Int32Array(n + 1);
    best[0] = 0;
    for (let at = 0; at < n;) {
      const size = Math.min(sequenceLength(input[at]), n - at);
      let coversCharacter = false;
      const limit = Math.min(n, at + table.maxLength);
      for (let end = at, running = HASH_START; end < limit;) {
        running = Math.imul(running ^ input[end++], 0x01000193);
        const hash = hashEnd(running);
        if (!prefixes.mayStart(hash)) break;
        if (!prefixes.mayBe(hash)) continue;
        const id = table.findHashed(hash, input, at, end);
        if (id < 0 || !this.isMatched(id)) continue;
        if (end - at === size) coversCharacter = true;
        const score = best[at] + (vocab.types[id] === TOKEN_TYPE.userDefined ? 0 : vocab.scores?.[id] ?? 0);
        if (score > best[end]) {
          best[end] = score;
          token[end] = id;
          from[end] = at;
        }
      }
      const end = at + size;
      if (!coversCharacter && best[at] + unknownScore > best[end]) {
        best[end] = best[at] + unknownScore;
        token[end] = unk;
        from[end] = at;
      }
      at = end;
    }
    const reversed: number[] = [];
    for (let at = n; at > 0; at = from[at]) {
      // unknown characters side by side are one unknown token
      if (token[at] !== unk || reversed[reversed.length - 1] !== unk) reversed.push(token[at]);
    }
    for (let i = reversed.length - 1; i >= 0; i--) out.push(reversed[i]);
  }

  /** Whether a token can stand in a text: all but control, unknown and byte tokens. */
  private isMatched(id: number): boolean {
    const type = this.vocab.types[id];
    return type === TOKEN_TYPE.normal || type === TOKEN_TYPE.userDefined || type === TOKEN_TYPE.unused;
  }

  private normalize(input: Uint8Array): Uint8Array {
    const { addSpacePrefix, removeExtraSpaces } = this.options;
    const out = new ByteList(input.length * 3 + SPACE.length);
    let isInWord = false;
    let needsPrefix = addSpacePrefix;
    for (let at = 0; at < input.length;) {
      let bytes = input;
      let start = at;
      let end = at + this.userDefined.longestPath(input, at);
      let consumed = end - at;
      if (consumed === 0) {
        const mapped = this.charsMap?.longest(input, at);
        if (mapped) {
          bytes = mapped.bytes;
          start = mapped.start;
          end = mapped.end;
          consumed = mapped.consumed;
        } else {
          consumed = Math.min(sequenceLength(input[at]), input.length - at);
          end = at + consumed;
        }
      }
      for (let i = start; i < end; i++) {
        if (bytes[i] === 0x20) {
          isInWord = false;
          if (!removeExtraSpaces) out.append(SPACE);
          continue;
        }
        if (!isInWord && (needsPrefix || removeExtraSpaces)) {
          out.append(SPACE);
          needsPrefix = false;
        }
        isInWord = true;
        out.push(bytes[i]);
      }
      at += consumed;
    }
    return out.take();
  }
}

class ByteList {
  private data: Uint8Array;
  private length = 0;

  constructor(capacity: number) {
    this.data = new Uint8Array(capacity);
  }

  push(byte: number): void {
    if (this.length === this.data.length) {
      const grown = new Uint8Array(this.data.length * 2 + 16);
      grown.set(this.data);
      this.data = grown;
    }
    this.data[this.length++] = byte;
  }

  append(bytes: Uint8Array): void {
    for (const byte of bytes) this.push(byte);
  }

  take(): Uint8Array {
    return this.data.subarray(0, this.length);
  }
}

/** A trie over the bytes of few tokens; its edges are one hash table from node and byte to node. */
class ByteTrie {
  private edges: Int32Array; // node * 256 + byte + 1, 0 is free
  private targets: Int32Array;
  private mask: number;
  private count = 0; // nodes beside the root

  constructor(table: TextTable, ids: readonly number[]) {
    let bytes = 0;
    for (const id of ids) bytes += table.end(id) - table.start(id);
    let size = 16;
    while (size < bytes * 2) size *= 2;
    this.edges = new Int32Array(size);
    this.targets = new Int32Array(size);
    this.mask = size - 1;
    const { packed } = table.strings;
    for (const id of ids) {
      let node = 0;
      for (let i = table.start(id); i < table.end(id); i++) node = this.childOrNew(node, packed[i]);
    }
  }

  /** Node below `node`, or -1. */
  private child(node: number, byte: number): number {
    const key = node * 256 + byte + 1;
    let slot = this.slot(key);
    while (this.edges[slot] !== 0) {
      if (this.edges[slot] === key) return this.targets[slot];
      slot = (slot + 1) & this.mask;
    }
    return -1;
  }

  /** Bytes from `at` on that the trie can follow, be there a token's end or not. */
  longestPath(bytes: Uint8Array, at: number): number {
    let end = at;
    for (let node = 0; end < bytes.length; end++) {
      node = this.child(node, bytes[end]);
      if (node < 0) break;
    }
    return end - at;
  }

  private slot(key: number): number {
    const hash = Math.imul(key, 0x9e3779b1);
    return (hash ^ (hash >>> 15)) & this.mask;
  }

  private childOrNew(node: number, byte: number): number {
    const known = this.child(node, byte);
    if (known >= 0) return known;
    const key = node * 256 + byte + 1;
    let slot = this.slot(key);
    while (this.edges[slot] !== 0) slot = (slot + 1) & this.mask;
    this.edges[slot] = key;
    return this.targets[slot] = ++this.count;
  }
}

/**
 * SentencePiece's character map: a double array over byte strings that leads to NUL-terminated replacements. Layout: u32
 * bytes of the array, its u32 nodes, then the replacements. A node: bits 10 on are the offset to its children, shifted by
 * 8 more if bit 9 is set; bit 8 says that a value follows; bits 0 to 7 and 31 are the byte that leads here.
 */
class CharsMap {
  private readonly nodes: Uint32Array;
  private readonly texts: Uint8Array;

  constructor(map: Uint8Array, file: string) {
    const bytes = map.length >= 4 ? new DataView(map.buffer).getUint32(0, true) : -1;
    if (bytes < 0 || bytes % 4 !== 0 || bytes > map.length - 4) {
      throw new TextError(
        "text.charsmap",
        `Cannot use the vocabulary of ${file}: tokenizer.ggml.precompiled_charsmap of ${map.length} bytes has an array of ` +
          `${bytes}, expected a multiple of 4 that fits`,
        { at: { file, key: "tokenizer.ggml.precompiled_charsmap", got: bytes } },
      );
    }
    this.nodes = new Uint32Array(map.slice(4, 4 + bytes).buffer);
    this.texts = map.subarray(4 + bytes);
  }

  /** The replacement of the longest mapped string at `at`. Offsets that lead out of the map match nothing. */
  longest(
    input: Uint8Array,
    at: number,
  ): { bytes: Uint8Array; start: number; end: number; consumed: number } | undefined {
    const { nodes, texts } = this;
    if (nodes.length === 0) return undefined;
    let consumed = 0;
    let start = 0;
    let index = childrenOffset(nodes[0]);
    for (let i = at; i < input.length; i++) {
      const byte = input[i];
      if (byte === 0) break;
      index = (index ^ byte) >>> 0;
      if (index >= nodes.length || ((nodes[index] & 0x800000ff) >>> 0) !== byte) break;
      const hasValue = ((nodes[index] >>> 8) & 1) === 1;
      index = (index ^ childrenOffset(nodes[index])) >>> 0;
      if (!hasValue) continue;
      if (index >= nodes.length) break;
      consumed = i + 1 - at;
      start = nodes[index] & 0x7fffffff;
    }
    if (consumed === 0 || start >= texts.length) return undefined;
    const end = texts.indexOf(0, start);
    return { bytes: texts, start, end: end < 0 ? texts.length : end, consumed };
  }
}

function childrenOffset(node: number): number {
  return ((node >>> 10) << ((node & 512) >>> 6)) >>> 0;
}
