/**
 * The tensors of a checkpoint as views: stored floats as they are, quantized storage as what it stands for.
 * @module
 */
import type { Checkpoint, SafetensorsTensor } from "../../core/safetensors/read.ts";
import { bytesOf } from "./dtype.ts";
import type { View, ViewType } from "./view.ts";

/** Stored types that a view has as well, and their bytes. */
const DIRECT: Readonly<Record<string, readonly [ViewType, number]>> = {
  F32: ["F32", 4],
  F16: ["F16", 2],
  BF16: ["BF16", 2],
};

/** Readers of the other stored numbers; all become f32, as the converter makes them. */
const TO_F32: Readonly<Record<string, readonly [bytes: number, at: (v: DataView, i: number) => number]>> = {
  F64: [8, (v, i) => v.getFloat64(i, true)],
  I64: [8, (v, i) => Number(v.getBigInt64(i, true))],
  U64: [8, (v, i) => Number(v.getBigUint64(i, true))],
  I32: [4, (v, i) => v.getInt32(i, true)],
  U32: [4, (v, i) => v.getUint32(i, true)],
  I16: [2, (v, i) => v.getInt16(i, true)],
  U16: [2, (v, i) => v.getUint16(i, true)],
  I8: [1, (v, i) => v.getInt8(i)],
  U8: [1, (v, i) => v.getUint8(i)],
  BOOL: [1, (v, i) => v.getUint8(i)],
};

/** A stored tensor, or undefined for a type that is not a number by itself. */
export function storedView(checkpoint: Checkpoint, t: SafetensorsTensor): View | undefined {
  const direct = DIRECT[t.dtype];
  if (direct) {
    const [dtype, size] = direct;
    return {
      dtype,
      shape: t.shape,
      from: t.name,
      read: (start, count) => checkpoint.readTensor(t, start * size, count * size),
    };
  }
  const other = TO_F32[t.dtype];
  if (!other) return undefined;
  const [size, at] = other;
  return {
    dtype: "F32",
    shape: t.shape,
    from: t.name,
    read(start, count) {
      const bytes = checkpoint.readTensor(t, start * size, count * size);
      const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      return bytesOf(Float32Array.from({ length: count }, (_, i) => at(view, i * size)));
    },
  };
}

const byCodePoint = (a: string, b: string) => {
  // UTF-16 order differs from code point order only where surrogates meet the block above them; names are ASCII.
  return a < b ? -1 : a > b ? 1 : 0;
};

/** Tensors in the converter's order: file by file, by name within each. */
export function orderedTensors(checkpoint: Checkpoint): SafetensorsTensor[] {
  const place = new Map(checkpoint.files.map((f, i) => [f.path, i]));
  return [...checkpoint.tensors.values()].sort((a, b) =>
    place.get(a.path)! - place.get(b.path)! || byCodePoint(a.name, b.name)
  );
}
