/**
 * What differs between two GGUF files: keys, tensors, types, shapes, bytes.
 * @module
 */
import { trimDims } from "../core/gguf/layout.ts";
import { describeValue, type GgufValue } from "../core/gguf/metadata.ts";
import type { GgufFile, GgufTensor } from "../core/gguf/read.ts";
import { pauses } from "./pause.ts";

export interface KeyDifference {
  key: string;
  /** What each file has, in words; absent where it has no such key. */
  a?: string;
  b?: string;
}

export interface TensorDifference {
  name: string;
  /** Absent where the file has no such tensor. */
  a?: { type: string; ne: readonly number[] };
  b?: { type: string; ne: readonly number[] };
  /** Bytes that differ, where type and shape are the same. */
  bytes?: number;
  /** Row of the first of them. */
  row?: number;
}

/** The result, as `bloomery inspect --diff --json` prints it. */
export interface GgufDifference {
  schema: "bloomery.diff.v1";
  a: string;
  b: string;
  /** Same keys, same tensors, same bytes, whatever their order and division into files. */
  same: boolean;
  metadata: KeyDifference[];
  tensors: TensorDifference[];
  /** Same keys, in another order. */
  key_order: boolean;
  /** Same tensors, in another order. */
  tensor_order: boolean;
  /** Tensors that are the same. */
  n_same: number;
}

export interface DiffOptions {
  /** Compare headers only. */
  headersOnly?: boolean;
  signal?: AbortSignal;
  onProgress?: (done: number, total: number) => void;
}

const CHUNK = 4 * 1024 * 1024;

/** Compares two opened files; the keys `split.*` say how a file is divided, not what it is, and are ignored. */
export async function diffGguf(a: GgufFile, b: GgufFile, options: DiffOptions = {}): Promise<GgufDifference> {
  const metadata = diffMetadata(a, b);
  const tensors: TensorDifference[] = [];
  const pause = pauses(options.signal);
  const alike = a.tensors.filter((t) => sameHeader(t, b.find(t.name)));
  const total = alike.reduce((n, t) => n + t.bytes, 0);
  let done = 0;
  for (const t of a.tensors) {
    const other = b.find(t.name);
    if (!other || !sameHeader(t, other)) {
      tensors.push({ name: t.name, a: header(t), ...(other ? { b: header(other) } : {}) });
      continue;
    }
    if (options.headersOnly) continue;
    let differing = 0;
    let first = -1;
    for (let at = 0; at < t.bytes; at += CHUNK) {
      const length = Math.min(CHUNK, t.bytes - at);
      const [x, y] = [a.readTensor(t, at, length), b.readTensor(other, at, length)];
      for (let i = 0; i < length; i++) {
        if (x[i] !== y[i] && differing++ === 0) first = at + i;
      }
      options.onProgress?.(done += length, total);
      await pause();
    }
    if (differing === 0) continue;
    const rowBytes = t.ne[0] / t.type.block * t.type.bytes;
    tensors.push({
      name: t.name,
      a: header(t),
      b: header(other),
      bytes: differing,
      row: Math.floor(first / rowBytes),
    });
  }
  for (const t of b.tensors) if (!a.has(t.name)) tensors.push({ name: t.name, b: header(t) });
  const names = (f: GgufFile) => f.tensors.map((t) => t.name);
  return {
    schema: "bloomery.diff.v1",
    a: a.name,
    b: b.name,
    same: metadata.length === 0 && tensors.length === 0,
    metadata,
    tensors,
    key_order: otherOrder(keys(a), keys(b)),
    tensor_order: otherOrder(names(a), names(b)),
    n_same: alike.length - tensors.filter((t) => t.bytes !== undefined).length,
  };
}

function header(t: GgufTensor): { type: string; ne: readonly number[] } {
  return { type: t.type.name, ne: trimDims(t.ne) };
}

function sameHeader(a: GgufTensor, b: GgufTensor | undefined): boolean {
  return b !== undefined && a.type === b.type && String(trimDims(a.ne)) === String(trimDims(b.ne));
}

function keys(f: GgufFile): string[] {
  return [...f.metadata.keys()].filter((k) => !k.startsWith("split."));
}

/** Whether two lists hold the same names in different order. */
function otherOrder(a: string[], b: string[]): boolean {
  if (a.length !== b.length || a.every((x, i) => x === b[i])) return false;
  return String(a.toSorted()) === String(b.toSorted());
}

function diffMetadata(a: GgufFile, b: GgufFile): KeyDifference[] {
  const out: KeyDifference[] = [];
  for (const key of keys(a)) {
    const [x, y] = [a.metadata.get(key)!, b.metadata.get(key)];
    if (!y) out.push({ key, a: describeValue(x) });
    else if (!sameValue(x, y)) out.push({ key, ...describeDifference(x, y) });
  }
  for (const key of keys(b)) {
    const y = b.metadata.get(key)!;
    if (!a.metadata.has(key)) out.push({ key, b: describeValue(y) });
  }
  return out;
}

/** The bytes of a value as a file holds them; NaN is equal to itself this way. */
function valueBytes(v: GgufValue): Uint8Array {
  if (v.type === "array") {
    return v.elem === "str" ? v.value.packed : new Uint8Array(v.value.buffer, v.value.byteOffset, v.value.byteLength);
  }
  if (v.type === "str") return typeof v.value === "string" ? new TextEncoder().encode(v.value) : v.value;
  return new TextEncoder().encode(Object.is(v.value, -0) ? "-0" : String(v.value));
}

function sameValue(a: GgufValue, b: GgufValue): boolean {
  if (a.type !== b.type || a.elem !== b.elem) return false;
  const [x, y] = [valueBytes(a), valueBytes(b)];
  return x.length === y.length && x.every((byte, i) => byte === y[i]);
}

/** Two long values may look alike when shortened: say where they differ. */
function describeDifference(a: GgufValue, b: GgufValue): { a: string; b: string } {
  if (a.type === "array" && b.type === "array" && a.elem === b.elem) {
    const element = (v: typeof a, i: number) => {
      if (i >= v.value.length) return "end";
      return JSON.stringify(v.elem === "str" ? v.value.at(i) : String(v.value[i]));
    };
    const n = Math.max(a.value.length, b.value.length);
    for (let i = 0; i < n; i++) {
      const [x, y] = [element(a, i), element(b, i)];
      if (x !== y) return { a: `${describeValue(a)}, at ${i} ${x}`, b: `${describeValue(b)}, at ${i} ${y}` };
    }
  }
  if (a.type === "str" && b.type === "str" && describeValue(a) === describeValue(b)) {
    const [x, y] = [valueBytes(a), valueBytes(b)];
    const at = x.findIndex((byte, i) => byte !== y[i]);
    const where = at < 0 ? Math.min(x.length, y.length) : at;
    return {
      a: `${describeValue(a)} (${x.length} bytes, differs at ${where})`,
      b: `${describeValue(b)} (${y.length} bytes)`,
    };
  }
  return { a: describeValue(a), b: describeValue(b) };
}
