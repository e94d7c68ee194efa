/**
 * Parses the header of one GGUF file: versions 2 and 3, little-endian. Nothing is trusted: every count is held against
 * the bytes that remain before anything is allocated.
 * Source: GGUF specification; limits as llama.cpp has them.
 * @module
 */
import { ByteCursor, type ByteSource, decodeLossy, decodeUtf8, emptyOrPointer } from "../bytes.ts";
import { type ErrorCode, FormatError } from "../errors.ts";
import { alignUp, DEFAULT_ALIGNMENT, MAX_DIMS, MAX_NAME, tensorBytes } from "./layout.ts";
import {
  type ArrayOf,
  type GgufArray,
  type GgufValue,
  Metadata,
  type ScalarType,
  StringArray,
  VALUE_TYPES,
} from "./metadata.ts";
import { type GgmlType, ggmlTypeById, RETIRED_GGML_TYPES } from "./types.ts";

/** Longest string and largest array a file may hold. */
export const MAX_LENGTH = 2 ** 30;
/** Longest key, by the specification. */
export const MAX_KEY = 65535;
/** Largest `general.alignment`. */
export const MAX_ALIGNMENT = 2 ** 20;
/** Bytes of the smallest key-value entry: a length, one byte of key, a type, one byte of value. */
const MIN_KV = 14;
/** Bytes of the smallest tensor info: a length, one byte of name, a dimension count, a type, an offset. */
const MIN_INFO = 25;

/** A tensor as a byte range of a file. */
export interface GgufTensor {
  /** As in the file. */
  readonly name: string;
  /** Of its elements. */
  readonly type: GgmlType;
  /** Dimensions, fastest first, at least one. */
  readonly ne: readonly number[];
  /** Which file of a split set it is in; 0 otherwise. */
  readonly shard: number;
  /** Of the file that holds it. */
  readonly path: string;
  /** Absolute, in its file. */
  readonly offset: number;
  /** Of its data. */
  readonly bytes: number;
}

export interface GgufHeader {
  readonly version: number;
  readonly metadata: Metadata;
  readonly alignment: number;
  readonly tensors: readonly GgufTensor[];
  /** Where the padded header ends and tensor data starts. */
  readonly dataStart: number;
  /** Where the header ends before its padding. */
  readonly headerEnd: number;
}

const ELEMENT_BYTES: Record<ScalarType, number> = {
  u8: 1,
  i8: 1,
  u16: 2,
  i16: 2,
  u32: 4,
  i32: 4,
  f32: 4,
  bool: 1,
  str: 8,
  u64: 8,
  i64: 8,
  f64: 8,
};

const ARRAYS: { [E in Exclude<ScalarType, "str">]: new (buffer: ArrayBufferLike) => ArrayOf[E] } = {
  u8: Uint8Array,
  i8: Int8Array,
  u16: Uint16Array,
  i16: Int16Array,
  u32: Uint32Array,
  i32: Int32Array,
  f32: Float32Array,
  bool: Uint8Array,
  u64: BigUint64Array,
  i64: BigInt64Array,
  f64: Float64Array,
};

/**
 * Reads the header of one file; no tensor data.
 * @param shard Which file of a split set it is.
 * @throws {FormatError} for everything that is not as the format says.
 */
export function readHeader(source: ByteSource, shard: number = 0): GgufHeader {
  return new HeaderReader(source, shard).read();
}

class HeaderReader {
  readonly #file: string;
  readonly #in: ByteCursor;

  constructor(readonly source: ByteSource, readonly shard: number) {
    this.#file = source.name;
    this.#in = new ByteCursor(source);
  }

  #fail(code: ErrorCode, what: string, at: Record<string, unknown> = {}, hint?: string): FormatError {
    return new FormatError(code, `Cannot read ${this.#file}: ${what}`, {
      at: { file: this.#file, ...at },
      ...(hint === undefined ? {} : { hint }),
    });
  }

  read(): GgufHeader {
    const version = this.#preamble();
    const nTensors = this.#in.count("the tensor count", MIN_INFO, MAX_LENGTH);
    const nKeys = this.#in.count("the key count", MIN_KV, MAX_LENGTH);
    const metadata = this.#keys(nKeys);
    const alignment = this.#alignment(metadata);
    const tensors = this.#infos(nTensors);
    const headerEnd = this.#in.position;
    const dataStart = alignUp(headerEnd, alignment);
    this.#place(tensors, alignment, dataStart);
    return { version, metadata, alignment, dataStart, headerEnd, tensors };
  }

  #preamble(): number {
    const absent = emptyOrPointer(this.source);
    if (absent) throw this.#fail("format.not_fetched", `it ${absent.what}`, {}, absent.hint);
    const magic = this.#in.bytes(4, "the magic");
    if (decodeLossy(magic) !== "GGUF") {
      const found = [...magic].map((b) => b.toString(16).padStart(2, "0")).join(" ");
      const hint = decodeLossy(magic).startsWith("gg")
        ? "this is a model format older than GGUF: convert the model again from its checkpoint"
        : "is this a GGUF file?";
      throw this.#fail("format.bad_magic", `it starts with bytes ${found}, expected 47 47 55 46 ("GGUF")`, {
        got: found,
      }, hint);
    }
    const version = this.#in.u32("the version");
    if (version !== 0 && (version & 0xffff) === 0) {
      throw this.#fail(
        "format.big_endian",
        `it is big-endian (version field 0x${version.toString(16).padStart(8, "0")}), expected little-endian`,
        { got: version },
        "convert it to little-endian, or get the little-endian file of this model",
      );
    }
    if (version !== 2 && version !== 3) {
      throw this.#fail("format.version", `it is GGUF version ${version}, expected 2 or 3`, {
        got: version,
        expected: [2, 3],
      }, version === 1 ? "version 1 is obsolete: convert the model again" : "a newer program may be needed");
    }
    return version;
  }

  #keys(n: number): Metadata {
    const metadata = new Metadata(this.#file);
    for (let i = 0; i < n; i++) {
      const key = this.#name("the name of a key", MAX_KEY, "format.bad_key");
      if (metadata.has(key)) throw this.#fail("format.duplicate_key", `key "${key}" is there twice`, { key });
      metadata.set(key, this.#value(key));
    }
    return metadata;
  }

  /** A key or a tensor name: non-empty UTF-8 without NUL. */
  #name(field: string, limit: number, code: ErrorCode): string {
    const length = this.#in.count(field, 1, MAX_LENGTH);
    if (length === 0 || length > limit) {
      throw this.#fail(code, `${field} has ${length} bytes, expected 1 to ${limit}`, { field, got: length, limit });
    }
    const text = this.#in.text(length, field);
    if (text === undefined) throw this.#fail(code, `${field} is not valid UTF-8`, { field });
    if (text.includes("\0")) throw this.#fail(code, `${field} contains a NUL, ${JSON.stringify(text)}`, { field });
    return text;
  }

  #type(field: string): (typeof VALUE_TYPES)[number] {
    const id = this.#in.u32(field);
    const type = VALUE_TYPES[id];
    if (type === undefined) {
      throw this.#fail("format.value_type", `${field} is ${id}, expected 0 to ${VALUE_TYPES.length - 1}`, {
        field,
        got: id,
      });
    }
    return type;
  }

  #value(key: string): GgufValue {
    const type = this.#type(`the type of key "${key}"`);
    const field = `key "${key}"`;
    const cursor = this.#in;
    switch (type) {
      case "array":
        return this.#array(key);
      case "str": {
        const bytes = cursor.bytes(cursor.count(`the length of ${field}`, 1, MAX_LENGTH), field);
        return { type, value: decodeUtf8(bytes) ?? bytes };
      }
      case "bool": {
        const byte = cursor.u8(field);
        if (byte > 1) throw this.#notBool(field, byte);
        return { type, value: byte === 1 };
      }
      case "u64":
      case "i64":
        return { type, value: cursor[type](field) };
      default:
        return { type, value: cursor[type](field) };
    }
  }

  #notBool(field: string, byte: number): FormatError {
    return this.#fail("format.bad_value", `${field} is a bool of ${byte}, expected 0 or 1`, { field, got: byte });
  }

  #array(key: string): GgufArray {
    const field = `key "${key}"`;
    const elem = this.#type(`the element type of ${field}`);
    if (elem === "array") {
      throw this.#fail("format.value_type", `${field} is an array of arrays, which is not supported`, { key });
    }
    const n = this.#in.count(`the elements of ${field}`, ELEMENT_BYTES[elem], MAX_LENGTH);
    if (elem === "str") return { type: "array", elem, value: this.#strings(n, field) };
    const bytes = this.#in.bytes(n * ELEMENT_BYTES[elem], field);
    if (elem === "bool") {
      for (let i = 0; i < n; i++) if (bytes[i] > 1) throw this.#notBool(`element ${i} of ${field}`, bytes[i]);
    }
    return { type: "array", elem, value: new ARRAYS[elem](bytes.buffer) } as GgufArray;
  }

  /** Walks the lengths, then takes all strings in one piece. */
  #strings(n: number, field: string): StringArray {
    const start = this.#in.position;
    const ends = new Uint32Array(n);
    const length = this.#in.skipStrings(ends, (i) => `the length of string ${i} of ${field}`, MAX_LENGTH);
    if (length > 0xffffffff) {
      throw this.#fail("format.limit", `${field} holds ${length} bytes of strings, expected less than 4 GiB`, {
        field,
        got: length,
      });
    }
    const packed = this.source.read(start, length);
    // a view would keep its whole source in memory
    return new StringArray(packed.length === packed.buffer.byteLength ? packed : packed.slice(), ends);
  }

  #alignment(metadata: Metadata): number {
    const v = metadata.get("general.alignment");
    if (v === undefined) return DEFAULT_ALIGNMENT;
    const n = v.type === "u32" ? v.value : NaN;
    if (n >= 1 && n <= MAX_ALIGNMENT && (n & (n - 1)) === 0) return n;
    throw this.#fail(
      "format.alignment",
      `general.alignment is ${v.type === "array" ? "an array" : `${v.type} ${v.value}`}, expected a u32 power of two ` +
        `of at most ${MAX_ALIGNMENT}`,
      { key: "general.alignment", got: String(v.value) },
    );
  }

  /** All tensors, with offsets still as the file has them. A hundred thousand of these must not take long. */
  #infos(n: number): Unplaced[] {
    const seen = new Set<string>();
    const infos: Unplaced[] = [];
    const cursor = this.#in;
    const at = { file: this.#file, tensor: "" };
    const field = () => `tensor "${at.tensor}"`;
    for (let i = 0; i < n; i++) {
      const name = this.#name("the name of a tensor", MAX_NAME - 1, "format.bad_tensor_name");
      if (seen.add(name).size === i) {
        throw this.#fail("format.duplicate_tensor", `tensor "${name}" is there twice`, { tensor: name });
      }
      at.tensor = name;
      const nDims = cursor.u32(field);
      if (nDims > MAX_DIMS) {
        throw this.#fail("format.tensor_shape", `${field()} has ${nDims} dimensions, expected at most ${MAX_DIMS}`, {
          tensor: name,
          got: nDims,
        });
      }
      // No dimensions at all is a single number, as ggml has it.
      const ne = new Array<number>(Math.max(nDims, 1)).fill(1);
      for (let d = 0; d < nDims; d++) ne[d] = cursor.size(field);
      const type = this.#tensorType(name, cursor.u32(field));
      const bytes = tensorBytes(at, type, ne);
      infos.push({ name, type, ne, shard: this.shard, path: this.#file, offset: cursor.size(field), bytes });
    }
    return infos;
  }

  #tensorType(tensor: string, id: number): GgmlType {
    const type = ggmlTypeById(id);
    if (type) return type;
    const retired = RETIRED_GGML_TYPES[id];
    throw this.#fail(
      "format.tensor_type",
      `tensor "${tensor}" has type ${id}` +
        (retired ? ` (${retired}), which ggml has removed` : ", which is not known"),
      { tensor, got: id },
      retired ? "quantize the model again" : "the file is damaged, or newer than this program",
    );
  }

  /** Makes offsets absolute, checking that data follow each other without gaps and lie inside the file. */
  #place(tensors: Unplaced[], alignment: number, dataStart: number): void {
    let expected = 0;
    for (const t of tensors) {
      if (t.offset !== expected) {
        const what = t.offset % alignment !== 0
          ? `starts at offset ${t.offset}, which is not a multiple of the alignment ${alignment}`
          : `starts at offset ${t.offset}, expected ${expected}`;
        throw this.#fail("format.tensor_offset", `the data of tensor "${t.name}" ${what}`, {
          tensor: t.name,
          got: t.offset,
          expected,
          alignment,
        });
      }
      t.offset += dataStart;
      const end = t.offset + t.bytes;
      if (end > this.source.size) {
        throw this.#fail(
          "format.truncated",
          `the data of tensor "${t.name}" ends at byte ${end}, ${this.source.size} are present`,
          { tensor: t.name, wanted: end, present: this.source.size },
          "the file was cut short: fetch it again and compare its size or checksum with the source",
        );
      }
      expected += alignUp(t.bytes, alignment);
    }
  }
}

type Unplaced = Omit<GgufTensor, "offset"> & { offset: number };
