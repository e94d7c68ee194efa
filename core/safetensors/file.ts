/**
 * Reads safetensors files: a header of names, types, shapes and byte ranges, then bytes. Types are names here; nothing
 * interprets the data.
 * Source: the safetensors format description and the checks of its reference reader.
 * @module
 */
import { ByteCursor, type ByteSource, decodeUtf8, emptyOrPointer, fileSource } from "../bytes.ts";
import { type ErrorCode, FormatError } from "../errors.ts";
import { duplicateKey } from "./duplicate_key.ts";

/** Bits of an element by the dtype's name in the file. */
export const SAFETENSORS_DTYPES: Readonly<Record<string, number>> = {
  F64: 64,
  F32: 32,
  F16: 16,
  BF16: 16,
  F8_E4M3: 8,
  F8_E4M3FN: 8,
  F8_E4M3FNUZ: 8,
  F8_E5M2: 8,
  F8_E5M2FNUZ: 8,
  F8_E8M0: 8,
  F6_E2M3: 6,
  F6_E3M2: 6,
  F4: 4,
  I64: 64,
  I32: 32,
  I16: 16,
  I8: 8,
  U64: 64,
  U32: 32,
  U16: 16,
  U8: 8,
  BOOL: 8,
  C64: 64,
};

/** Largest header the format allows. */
export const MAX_SAFETENSORS_HEADER = 100_000_000;

/** A tensor as a byte range of a file. */
export interface SafetensorsTensor {
  /** As in the file. */
  readonly name: string;
  /** A key of {@link SAFETENSORS_DTYPES}. */
  readonly dtype: string;
  /** Slowest first, as PyTorch prints it. */
  readonly shape: readonly number[];
  /** Of the file that holds it. */
  readonly path: string;
  /** Absolute, in its file. */
  readonly offset: number;
  /** Of its data. */
  readonly bytes: number;
}

/** An opened safetensors file. */
export interface SafetensorsFile extends Disposable {
  /** Of the file. */
  readonly path: string;
  /** Bytes of the file. */
  readonly size: number;
  /** By name, in the order of their data. */
  readonly tensors: ReadonlyMap<string, SafetensorsTensor>;
  /** The header's `__metadata__`. */
  readonly metadata: Readonly<Record<string, string>>;
  /** All bytes of a tensor, or `length` from `start` on. Not to be written to. */
  readTensor(t: SafetensorsTensor, start?: number, length?: number): Uint8Array;
  /** Closes the file. */
  close(): void;
}

/**
 * Opens one file by its header.
 * @throws {FormatError} naming file, tensor, what was found and what was wanted; `format.short_file` when data that the
 * header promises is missing.
 */
export function openSafetensors(from: string | ByteSource): SafetensorsFile {
  const source = typeof from === "string" ? fileSource(from) : from;
  try {
    const { tensors, metadata } = readSafetensorsHeader(source);
    return {
      path: source.name,
      size: source.size,
      tensors,
      metadata,
      readTensor(t, start = 0, length = t.bytes - start) {
        if (start < 0 || length < 0 || start + length > t.bytes) {
          throw new RangeError(`bytes ${start} to ${start + length} of tensor ${t.name}, which has ${t.bytes}`);
        }
        return source.read(t.offset + start, length);
      },
      close: () => source.close(),
      [Symbol.dispose]: () => source.close(),
    };
  } catch (error) {
    source.close();
    throw error;
  }
}

/** The header of one file, checked against the file's size. */
export function readSafetensorsHeader(
  source: ByteSource,
): { tensors: Map<string, SafetensorsTensor>; metadata: Record<string, string> } {
  const file = source.name;
  const fail = (code: ErrorCode, what: string, at: Record<string, unknown> = {}, hint?: string) =>
    new FormatError(code, `Cannot read ${file}: ${what}`, {
      at: { file, ...at },
      ...(hint === undefined ? {} : { hint }),
    });
  const absent = emptyOrPointer(source);
  if (absent) throw fail("format.not_fetched", `it ${absent.what}`, {}, absent.hint);
  const cursor = new ByteCursor(source);
  const length = cursor.size("the header length");
  if (length > MAX_SAFETENSORS_HEADER) {
    throw fail("format.limit", `its header length is ${BigInt(length)}, expected at most ${MAX_SAFETENSORS_HEADER}`, {
      got: length,
      limit: MAX_SAFETENSORS_HEADER,
    }, "is this a safetensors file?");
  }
  const text = decodeUtf8(cursor.bytes(length, "the header"));
  if (text === undefined) throw fail("format.bad_json", "its header is not valid UTF-8");
  const header = parseHeader(text, fail);
  const dataStart = 8 + length;
  const present = source.size - dataStart;
  let metadata: Record<string, string> = {};
  const tensors: SafetensorsTensor[] = [];
  for (const [name, value] of Object.entries(header)) {
    if (name === "__metadata__") metadata = parseMetadata(value, fail);
    else tensors.push(parseTensor(name, value, file, dataStart, fail));
  }
  tensors.sort((a, b) => a.offset - b.offset || a.bytes - b.bytes);
  let end = dataStart;
  for (const t of tensors) {
    if (t.offset !== end) {
      const gap = t.offset > end ? `leave a gap of ${t.offset - end} bytes before` : "overlap other data at";
      throw fail("format.tensor_offset", `the bytes of tensor "${t.name}" ${gap} offset ${t.offset - dataStart}`, {
        tensor: t.name,
        got: t.offset - dataStart,
        expected: end - dataStart,
      });
    }
    end += t.bytes;
  }
  const wanted = end - dataStart;
  if (wanted > present) {
    throw fail(
      "format.short_file",
      `its header describes ${wanted} bytes of tensors, ${present} are present, ${wanted - present} are missing`,
      { wanted, present, missing: wanted - present },
      "the download did not finish: fetch the file again",
    );
  }
  if (wanted < present) {
    throw fail("format.trailing_bytes", `${present - wanted} bytes follow the ${wanted} that its header describes`, {
      wanted,
      present,
    }, "the file is damaged, or its header belongs to another one: fetch it again");
  }
  return { tensors: new Map(tensors.map((t) => [t.name, t])), metadata };
}

type Fail = (code: ErrorCode, what: string, at?: Record<string, unknown>, hint?: string) => FormatError;

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function parseHeader(text: string, fail: Fail): Record<string, unknown> {
  if (!text.startsWith("{")) {
    throw fail("format.bad_json", `its header starts with ${JSON.stringify(text.slice(0, 8))}, expected {`);
  }
  let header: unknown;
  try {
    header = JSON.parse(text);
  } catch (cause) {
    throw fail("format.bad_json", `its header is not JSON, ${(cause as Error).message}`);
  }
  if (!isObject(header)) throw fail("format.bad_json", "its header is not a JSON object");
  const twice = duplicateKey(text);
  if (twice !== undefined) {
    throw fail("format.duplicate_tensor", `"${twice}" is in its header twice`, { tensor: twice });
  }
  return header;
}

function parseMetadata(value: unknown, fail: Fail): Record<string, string> {
  if (!isObject(value) || Object.values(value).some((v) => typeof v !== "string")) {
    throw fail("format.bad_json", "__metadata__ of its header is not an object of strings");
  }
  return value as Record<string, string>;
}

function parseTensor(name: string, value: unknown, path: string, dataStart: number, fail: Fail): SafetensorsTensor {
  const at = { tensor: name };
  const isSize = (n: unknown) => Number.isSafeInteger(n) && (n as number) >= 0;
  if (!isObject(value)) throw fail("format.bad_json", `tensor "${name}" is not an object in its header`, at);
  const { dtype, shape, data_offsets: range } = value;
  const bits = typeof dtype === "string" && Object.hasOwn(SAFETENSORS_DTYPES, dtype)
    ? SAFETENSORS_DTYPES[dtype]
    : undefined;
  if (bits === undefined) {
    throw fail("format.tensor_type", `tensor "${name}" has dtype ${JSON.stringify(dtype)}, which is not known`, {
      ...at,
      got: dtype,
      expected: Object.keys(SAFETENSORS_DTYPES),
    });
  }
  if (!Array.isArray(shape) || !shape.every(isSize)) {
    throw fail("format.tensor_shape", `tensor "${name}" has shape ${JSON.stringify(shape)}, expected sizes`, at);
  }
  if (!Array.isArray(range) || range.length !== 2 || !range.every(isSize) || range[0] > range[1]) {
    throw fail(
      "format.tensor_offset",
      `tensor "${name}" has data_offsets ${JSON.stringify(range)}, expected [begin, end]`,
      at,
    );
  }
  const bytes = shape.reduce((a: number, b: number) => a * b, 1) * bits / 8;
  if (!(bytes <= Number.MAX_SAFE_INTEGER)) {
    throw fail("format.tensor_shape", `the size of tensor "${name}" overflows, shape [${shape}] of ${dtype}`, at);
  }
  if (bytes !== range[1] - range[0]) {
    throw fail(
      "format.tensor_shape",
      `tensor "${name}" has ${range[1] - range[0]} bytes, shape [${shape}] of ${dtype} wants ${bytes}`,
      { ...at, got: range[1] - range[0], expected: bytes },
    );
  }
  return { name, dtype: dtype as string, shape, path, offset: dataStart + range[0], bytes };
}
