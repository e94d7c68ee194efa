/**
 * GGUF metadata: an ordered map of typed values, with getters that name file and key when something is missing or of the
 * wrong type. Large string arrays (vocabularies, merges) stay packed and are decoded on demand.
 * @module
 */
import { decodeLossy, writeText } from "../bytes.ts";
import { ModelError } from "../errors.ts";

/** Value types in the order of their ids in a file; id 9 is the array. */
export const VALUE_TYPES = [
  "u8",
  "i8",
  "u16",
  "i16",
  "u32",
  "i32",
  "f32",
  "bool",
  "str",
  "array",
  "u64",
  "i64",
  "f64",
] as const;

/** Names of all types of values. */
export type ValueType = (typeof VALUE_TYPES)[number];
/** Names of the types of single values. */
export type ScalarType = Exclude<ValueType, "array">;

/** Typed arrays by element type; bools are bytes 0 and 1. */
export interface ArrayOf {
  /** Unsigned, 8 bits. */
  u8: Uint8Array;
  /** Signed, 8 bits. */
  i8: Int8Array;
  /** Unsigned, 16 bits. */
  u16: Uint16Array;
  /** Signed, 16 bits. */
  i16: Int16Array;
  /** Unsigned, 32 bits. */
  u32: Uint32Array;
  /** Signed, 32 bits. */
  i32: Int32Array;
  /** Floats, 32 bits. */
  f32: Float32Array;
  /** Truth values, a byte each. */
  bool: Uint8Array;
  /** Strings. */
  str: StringArray;
  /** Unsigned, 64 bits. */
  u64: BigUint64Array;
  /** Signed, 64 bits. */
  i64: BigInt64Array;
  /** Floats, 64 bits. */
  f64: Float64Array;
}

/** Types of single numbers of up to 32 bits, and f64. */
export type NumberType = "u8" | "i8" | "u16" | "i16" | "u32" | "i32" | "f32" | "f64";
/** An array with the type of its elements. */
export type GgufArray = { [E in ScalarType]: { type: "array"; elem: E; value: ArrayOf[E] } }[ScalarType];

/** One value with its type in the file. A string that is not valid UTF-8 is kept as bytes. */
export type GgufValue =
  | { type: NumberType; value: number; elem?: undefined }
  | { type: "u64" | "i64"; value: bigint; elem?: undefined }
  | { type: "bool"; value: boolean; elem?: undefined }
  | { type: "str"; value: string | Uint8Array; elem?: undefined }
  | GgufArray;

/** Strings in one buffer, encoded as in the file: each a u64 length and its bytes. */
export class StringArray implements Iterable<string> {
  /**
   * Takes strings as they lie in a file.
   * @param packed All strings, each with its 8 bytes of length before it.
   * @param ends `[length]` where each string ends in `packed`.
   */
  constructor(readonly packed: Uint8Array, readonly ends: Uint32Array) {}

  /** Packs texts; elements may be bytes where they are not text. Hundreds of thousands of them: no object is made for each. */
  static from(items: Iterable<string | Uint8Array>): StringArray {
    let packed = new Uint8Array(1 << 12);
    let at = 0;
    const ends: number[] = [];
    for (const item of items) {
      const most = at + 8 + (typeof item === "string" ? item.length * 3 : item.length);
      if (most > 0xffffffff) throw new Error(`string array of ${most} bytes; a packed one holds less than 4 GiB`);
      if (most > packed.length) {
        const grown = new Uint8Array(Math.max(packed.length * 2, most));
        grown.set(packed);
        packed = grown;
      }
      const start = at + 8;
      if (typeof item === "string") at = writeText(item, packed, start);
      else {
        packed.set(item, start);
        at = start + item.length;
      }
      const length = at - start; // the upper half of the u64 stays zero
      for (let i = 0; i < 4; i++) packed[start - 8 + i] = length >>> (8 * i);
      ends.push(at);
    }
    return new StringArray(packed.slice(0, at), Uint32Array.from(ends));
  }

  /** Number of strings. */
  get length(): number {
    return this.ends.length;
  }

  /** The bytes of string `i`, a view. */
  bytesAt(i: number): Uint8Array {
    if (!(i >= 0 && i < this.ends.length)) throw new RangeError(`string ${i} of ${this.ends.length}`);
    return this.packed.subarray((i === 0 ? 0 : this.ends[i - 1]) + 8, this.ends[i]);
  }

  /** The text of string `i`; what is not UTF-8 becomes U+FFFD. */
  at(i: number): string {
    return decodeLossy(this.bytesAt(i));
  }

  /** The strings in turn. */
  *[Symbol.iterator](): Iterator<string> {
    for (let i = 0; i < this.ends.length; i++) yield this.at(i);
  }

  /** All strings. */
  toArray(): string[] {
    return Array.from({ length: this.length }, (_, i) => this.at(i));
  }
}

/** Makers of values, for those who write metadata. */
export const ggufValue = {
  u8: (value: number): GgufValue => ({ type: "u8", value }),
  i8: (value: number): GgufValue => ({ type: "i8", value }),
  u16: (value: number): GgufValue => ({ type: "u16", value }),
  i16: (value: number): GgufValue => ({ type: "i16", value }),
  u32: (value: number): GgufValue => ({ type: "u32", value }),
  i32: (value: number): GgufValue => ({ type: "i32", value }),
  f32: (value: number): GgufValue => ({ type: "f32", value }),
  f64: (value: number): GgufValue => ({ type: "f64", value }),
  u64: (value: bigint | number): GgufValue => ({ type: "u64", value: BigInt(value) }),
  i64: (value: bigint | number): GgufValue => ({ type: "i64", value: BigInt(value) }),
  bool: (value: boolean): GgufValue => ({ type: "bool", value }),
  str: (value: string | Uint8Array): GgufValue => ({ type: "str", value }),
  strs: (items: Iterable<string | Uint8Array>): GgufValue => ({
    type: "array",
    elem: "str",
    value: StringArray.from(items),
  }),
  i32s: (items: Iterable<number>): GgufValue => ({ type: "array", elem: "i32", value: Int32Array.from(items) }),
  u32s: (items: Iterable<number>): GgufValue => ({ type: "array", elem: "u32", value: Uint32Array.from(items) }),
  f32s: (items: Iterable<number>): GgufValue => ({ type: "array", elem: "f32", value: Float32Array.from(items) }),
  bools: (items: Iterable<boolean>): GgufValue => ({
    type: "array",
    elem: "bool",
    value: Uint8Array.from(items, (b) => b ? 1 : 0),
  }),
};

/** Typed arrays of integers other than 64-bit ones. */
export type IntArray = Uint8Array | Int8Array | Uint16Array | Int16Array | Uint32Array | Int32Array;

const INTEGERS: ReadonlySet<string> = new Set(["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"]);

/** What a value is, for messages: `u32 7`, `array of 3 str`. */
export function describeValue(v: GgufValue): string {
  if (v.type === "array") return `array of ${v.value.length} ${v.elem}`;
  if (v.type !== "str") return `${v.type} ${v.value}`;
  const text = typeof v.value === "string" ? v.value : decodeLossy(v.value);
  return `str ${JSON.stringify(text.length > 40 ? text.slice(0, 40) + "..." : text)}`;
}

/**
 * An ordered map from key to typed value. Getters take any integer width for integer keys; each throws {@link ModelError}
 * `model.missing_key` (no default given) or `model.key_type`.
 */
export class Metadata implements Iterable<[string, GgufValue]> {
  #entries: Map<string, GgufValue>;

  /**
   * Takes entries in their order.
   * @param file What error messages call the source.
   */
  constructor(readonly file: string = "the metadata", entries: Iterable<readonly [string, GgufValue]> = []) {
    this.#entries = new Map(entries as Iterable<[string, GgufValue]>);
  }

  /** Number of keys. */
  get size(): number {
    return this.#entries.size;
  }
  /** Whether the key is there. */
  has(key: string): boolean {
    return this.#entries.has(key);
  }
  /** The value with its type, or undefined. */
  get(key: string): GgufValue | undefined {
    return this.#entries.get(key);
  }
  /** Sets a value: in place when the key exists, at the end otherwise. */
  set(key: string, value: GgufValue): this {
    this.#entries.set(key, value);
    return this;
  }
  /** Sets a value at the end, wherever the key was before. */
  append(key: string, value: GgufValue): this {
    this.#entries.delete(key);
    return this.set(key, value);
  }
  /** Takes a key away; says whether it was there. */
  remove(key: string): boolean {
    return this.#entries.delete(key);
  }
  /** Keys in their order. */
  keys(): IterableIterator<string> {
    return this.#entries.keys();
  }
  /** Keys with values, in their order. */
  [Symbol.iterator](): IterableIterator<[string, GgufValue]> {
    return this.#entries.entries();
  }
  /** A copy that can be changed apart; values are shared. */
  clone(): Metadata {
    return new Metadata(this.file, this.#entries);
  }

  #missing(key: string): ModelError {
    return new ModelError("model.missing_key", `Cannot use ${this.file}: key "${key}" is missing`, {
      at: { file: this.file, key },
      hint: "the file is not a complete model of its architecture: convert it again",
    });
  }
  #wrong(key: string, got: string, expected: string): ModelError {
    return new ModelError(
      "model.key_type",
      `Cannot use key "${key}" of ${this.file}: found ${got}, expected ${expected}`,
      {
        at: { file: this.file, key, got, expected },
      },
    );
  }
  #required(key: string): GgufValue {
    const v = this.#entries.get(key);
    if (v === undefined) throw this.#missing(key);
    return v;
  }
  #int(key: string, v: GgufValue, low: number, high: number, expected: string): number {
    const n = INTEGERS.has(v.type) ? Number(v.value) : NaN;
    if (!(n >= low && n <= high)) throw this.#wrong(key, describeValue(v), expected);
    return n;
  }

  /** An integer of 0 to 2^32-1. */
  u32(key: string): number;
  /** The same, or `fallback` where the key is missing. */
  u32<D>(key: string, fallback: D): number | D;
  u32(key: string, ...fallback: unknown[]): unknown {
    if (fallback.length > 0 && !this.has(key)) return fallback[0];
    return this.#int(key, this.#required(key), 0, 0xffffffff, "an unsigned 32-bit integer");
  }

  /** An integer of up to 53 bits. */
  int(key: string): number;
  /** The same, or `fallback` where the key is missing. */
  int<D>(key: string, fallback: D): number | D;
  int(key: string, ...fallback: unknown[]): unknown {
    if (fallback.length > 0 && !this.has(key)) return fallback[0];
    return this.#int(key, this.#required(key), Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER, "an integer");
  }

  /** A number: f32, f64 or an integer. */
  f32(key: string): number;
  /** The same, or `fallback` where the key is missing. */
  f32<D>(key: string, fallback: D): number | D;
  f32(key: string, ...fallback: unknown[]): unknown {
    if (fallback.length > 0 && !this.has(key)) return fallback[0];
    const v = this.#required(key);
    if (v.type === "bool" || v.type === "str" || v.type === "array") {
      throw this.#wrong(key, describeValue(v), "a number");
    }
    return Number(v.value);
  }

  /** A truth value. */
  bool(key: string): boolean;
  /** The same, or `fallback` where the key is missing. */
  bool<D>(key: string, fallback: D): boolean | D;
  bool(key: string, ...fallback: unknown[]): unknown {
    if (fallback.length > 0 && !this.has(key)) return fallback[0];
    const v = this.#required(key);
    if (v.type !== "bool") throw this.#wrong(key, describeValue(v), "a bool");
    return v.value;
  }

  /** A string; bytes that are not UTF-8 become U+FFFD. */
  str(key: string): string;
  /** The same, or `fallback` where the key is missing. */
  str<D>(key: string, fallback: D): string | D;
  str(key: string, ...fallback: unknown[]): unknown {
    if (fallback.length > 0 && !this.has(key)) return fallback[0];
    const v = this.#required(key);
    if (v.type !== "str") throw this.#wrong(key, describeValue(v), "a string");
    return typeof v.value === "string" ? v.value : decodeLossy(v.value);
  }

  /** An array of strings. */
  strs(key: string): StringArray;
  /** The same, or `fallback` where the key is missing. */
  strs<D>(key: string, fallback: D): StringArray | D;
  strs(key: string, ...fallback: unknown[]): unknown {
    if (fallback.length > 0 && !this.has(key)) return fallback[0];
    const v = this.#required(key);
    if (v.type !== "array" || v.elem !== "str") throw this.#wrong(key, describeValue(v), "an array of strings");
    return v.value;
  }

  /** An array of integers; 64-bit ones are narrowed to i32 where every element fits and refused otherwise. */
  ints(key: string): IntArray;
  /** The same, or `fallback` where the key is missing. */
  ints<D>(key: string, fallback: D): IntArray | D;
  ints(key: string, ...fallback: unknown[]): unknown {
    if (fallback.length > 0 && !this.has(key)) return fallback[0];
    const v = this.#required(key);
    if (v.type !== "array" || !INTEGERS.has(v.elem)) throw this.#wrong(key, describeValue(v), "an array of integers");
    if (v.elem !== "u64" && v.elem !== "i64") return v.value;
    const out = new Int32Array(v.value.length);
    for (let i = 0; i < out.length; i++) {
      const n = v.value[i];
      out[i] = Number(n);
      if (BigInt(out[i]) !== n) throw this.#wrong(key, `${n} at ${i}`, "32-bit integers");
    }
    return out;
  }

  /** An array of f32 or f64. */
  floats(key: string): Float32Array | Float64Array;
  /** The same, or `fallback` where the key is missing. */
  floats<D>(key: string, fallback: D): Float32Array | Float64Array | D;
  floats(key: string, ...fallback: unknown[]): unknown {
    if (fallback.length > 0 && !this.has(key)) return fallback[0];
    const v = this.#required(key);
    if (v.type !== "array" || (v.elem !== "f32" && v.elem !== "f64")) {
      throw this.#wrong(key, describeValue(v), "an array of floats");
    }
    return v.value;
  }

  /**
   * One number per layer: a scalar stands for all layers, an array must hold at least `n_layer`.
   * @returns `[n_layer]`.
   */
  perLayer(key: string, n_layer: number): number[];
  /** The same, or `fallback` where the key is missing. */
  perLayer<D>(key: string, n_layer: number, fallback: D): number[] | D;
  perLayer(key: string, n_layer: number, ...fallback: unknown[]): unknown {
    if (fallback.length > 0 && !this.has(key)) return fallback[0];
    const v = this.#required(key);
    if (v.type !== "array") {
      const n = v.type === "bool" ? Number(v.value) : this.f32(key);
      return new Array<number>(n_layer).fill(n);
    }
    if (v.elem === "str") throw this.#wrong(key, describeValue(v), "a number or an array of numbers");
    if (v.value.length < n_layer) {
      throw this.#wrong(key, describeValue(v), `at least ${n_layer} elements, one per layer`);
    }
    return Array.from({ length: n_layer }, (_, i) => Number(v.value[i]));
  }
}
