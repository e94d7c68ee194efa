/**
 * What is in a GGUF file, from its header alone: keys, tensors, totals per type, bits per weight.
 * @module
 */
import { fileTypeName } from "../core/gguf/file_type.ts";
import { elementCount } from "../core/gguf/layout.ts";
import type { GgufValue } from "../core/gguf/metadata.ts";
import type { GgufFile } from "../core/gguf/read.ts";

/** A value as JSON has it: 64-bit integers beyond 2^53 are decimal strings. */
export type JsonScalar = string | number | boolean;

export interface ReportKey {
  key: string;
  /** `u32`, `str`, ..., `array`. */
  type: string;
  /** Element type of an array. */
  elem?: string;
  /** Elements of an array. */
  length?: number;
  /** A scalar, or the first elements of an array. */
  value: JsonScalar | JsonScalar[];
}

export interface ReportTensor {
  name: string;
  type: string;
  /** Fastest first. */
  ne: readonly number[];
  bytes: number;
  /** Absolute, in its file. */
  offset: number;
  /** Index in `files`. */
  file: number;
}

export interface ReportType {
  type: string;
  n_tensors: number;
  n_parameters: number;
  bytes: number;
  bits_per_weight: number;
}

/** The report, as `bloomery inspect --json` prints it. */
export interface GgufReport {
  schema: "bloomery.inspect.v1";
  files: { path: string; bytes: number; version: number; alignment: number; n_tensors: number }[];
  architecture: string | undefined;
  name: string | undefined;
  /** The file's label of its mixture, such as `Q4_K_M`. */
  file_type: string | undefined;
  n_tensors: number;
  /** Elements of all tensors. */
  n_parameters: number;
  /** Of tensor data, without padding. */
  tensor_bytes: number;
  file_bytes: number;
  /** `tensor_bytes * 8 / n_parameters`; 0 without tensors. */
  bits_per_weight: number;
  /** Largest share of bytes first. */
  types: ReportType[];
  metadata: ReportKey[];
  tensors: ReportTensor[];
}

export interface InspectOptions {
  /** Array elements to list of each key; all with Infinity. */
  arrayElements?: number;
}

/** A GGUF's report; reads the header only. */
export function inspectGguf(file: GgufFile, options: InspectOptions = {}): GgufReport {
  const { metadata } = file;
  const types = typeTotals(file);
  const sum = (field: "n_parameters" | "bytes") => types.reduce((n, t) => n + t[field], 0);
  const [n_parameters, tensor_bytes] = [sum("n_parameters"), sum("bytes")];
  // A label of a wrong type is no reason not to show the rest.
  const label = metadata.get("general.file_type");
  const text = (key: string) => metadata.get(key)?.type === "str" ? metadata.str(key) : undefined;
  return {
    schema: "bloomery.inspect.v1",
    files: file.shards.map((s, i) => ({
      path: s.path,
      bytes: s.size,
      version: s.version,
      alignment: s.alignment,
      n_tensors: file.tensors.filter((t) => t.shard === i).length,
    })),
    architecture: text("general.architecture"),
    name: text("general.name"),
    file_type: label && typeof label.value === "number" ? fileTypeName(label.value) : undefined,
    n_tensors: file.tensors.length,
    n_parameters,
    tensor_bytes,
    file_bytes: file.shards.reduce((n, s) => n + s.size, 0),
    bits_per_weight: bitsPerWeight(tensor_bytes, n_parameters),
    types,
    metadata: [...metadata].map(([key, value]) => reportKey(key, value, options.arrayElements ?? 8)),
    tensors: file.tensors.map((t) => ({
      name: t.name,
      type: t.type.name,
      ne: t.ne,
      bytes: t.bytes,
      offset: t.offset,
      file: t.shard,
    })),
  };
}

function bitsPerWeight(bytes: number, parameters: number): number {
  return parameters === 0 ? 0 : bytes * 8 / parameters;
}

function typeTotals(file: GgufFile): ReportType[] {
  const totals = new Map<string, ReportType>();
  for (const t of file.tensors) {
    let row = totals.get(t.type.name);
    if (!row) {
      row = { type: t.type.name, n_tensors: 0, n_parameters: 0, bytes: 0, bits_per_weight: 0 };
      totals.set(t.type.name, row);
    }
    row.n_tensors++;
    row.n_parameters += elementCount(t.ne);
    row.bytes += t.bytes;
  }
  for (const row of totals.values()) row.bits_per_weight = bitsPerWeight(row.bytes, row.n_parameters);
  return [...totals.values()].sort((a, b) => b.bytes - a.bytes);
}

function jsonScalar(x: unknown): JsonScalar {
  if (typeof x === "bigint") {
    const n = Number(x);
    return Number.isSafeInteger(n) ? n : String(x);
  }
  // JSON has no word for these.
  if (typeof x === "number") return Number.isFinite(x) ? x : String(x);
  return x as JsonScalar;
}

/** The shortest decimal that is this f32: 1e-5 and not 0.000009999999747378752. */
function jsonF32(x: number): JsonScalar {
  for (let digits = 1; digits < 9; digits++) {
    const short = Number(x.toPrecision(digits));
    if (Math.fround(short) === x) return short;
  }
  return jsonScalar(x);
}

/** A key and its value for a report, with at most `limit` elements of an array. */
export function reportKey(key: string, v: GgufValue, limit: number): ReportKey {
  if (v.type === "str") {
    return { key, type: v.type, value: typeof v.value === "string" ? v.value : new TextDecoder().decode(v.value) };
  }
  if (v.type !== "array") {
    return { key, type: v.type, value: v.type === "f32" ? jsonF32(v.value) : jsonScalar(v.value) };
  }
  const n = Math.min(v.value.length, limit);
  const value = Array.from({ length: n }, (_, i) => {
    if (v.elem === "str") return v.value.at(i);
    if (v.elem === "f32") return jsonF32(v.value[i]);
    return v.elem === "bool" ? v.value[i] === 1 : jsonScalar(v.value[i]);
  });
  return { key, type: v.type, elem: v.elem, length: v.value.length, value };
}
