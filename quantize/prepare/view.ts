/**
 * Descriptions of tensors on their way from the checkpoint to the file: a view knows its element type and shape from the
 * headers alone and reads any range of its elements when asked. Transforms wrap views; nothing is held in memory but what
 * one read asks for.
 * @module
 */
import type { FileRange } from "../../core/program/backend.ts";
import { bytesOf, f32Of, type FloatType, release, toF32 } from "./dtype.ts";

/** Element types a view can have: floats, integers, and block formats that are moved as they are. */
export type ViewType = FloatType | "I32" | "I64" | "MXFP4" | "NVFP4" | "Q8_0";

/** Elements and bytes of a block of each type. */
export const VIEW_BLOCKS: Readonly<Record<ViewType, readonly [elements: number, bytes: number]>> = {
  F32: [1, 4],
  F16: [1, 2],
  BF16: [1, 2],
  I32: [1, 4],
  I64: [1, 8],
  MXFP4: [32, 17],
  NVFP4: [64, 36],
  Q8_0: [32, 34],
};

export interface View {
  readonly dtype: ViewType;
  /** Slowest first, as in the checkpoint. */
  readonly shape: readonly number[];
  /** Names of the tensors it comes from, for messages. */
  readonly from: string;
  /** The values were stored in 8 bits or fewer, with scales. */
  readonly coded?: boolean;
  /** Products with it take activations in 16 bits, though the format has a scale for 4-bit ones. */
  readonly wideActivations?: boolean;
  /** Factors of whole matrices, one per matrix of a stack, that files keep beside the tensor. */
  readonly side?: Readonly<Record<"scale" | "input_scale", () => Float32Array>>;
  /**
   * Elements `start` to `start + count`, row-major, as bytes of its dtype; whole blocks. The buffer is the caller's.
   */
  read(start: number, count: number): Uint8Array;
  /** The byte range in a file, for views that are just that; transforms must drop it. */
  readonly locate?: ((start: number, count: number) => FileRange | undefined) | undefined;
}

/** Elements of a shape. */
export function sizeOf(shape: readonly number[]): number {
  return shape.reduce((a, b) => a * b, 1);
}

/** Length of the fastest dimension. */
export function rowLength(v: View): number {
  return v.shape[v.shape.length - 1];
}

/** Bytes of `count` elements. */
export function viewBytes(dtype: ViewType, count: number): number {
  const [elements, bytes] = VIEW_BLOCKS[dtype];
  return (count / elements) * bytes;
}

function concatBytes(parts: readonly Uint8Array[]): Uint8Array {
  if (parts.length === 1) return parts[0];
  const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) {
    out.set(p, at);
    at += p.length;
    release(p);
  }
  return out;
}

/** The same elements under another shape. */
export function reshape(v: View, shape: readonly number[]): View {
  if (sizeOf(shape) !== sizeOf(v.shape)) throw new Error(`reshape [${v.shape}] to [${shape}]`);
  return { ...v, shape };
}

/** Dimensions of 1 removed, all but one kept when all are 1. */
export function squeeze(v: View): View {
  const shape = v.shape.filter((n) => n !== 1);
  return reshape(v, shape.length > 0 ? shape : [1]);
}

/** Views of one dtype, one after the other along the first dimension; all other dimensions are equal. */
export function concat(views: readonly View[]): View {
  const [first] = views;
  const inner = first.shape.slice(1);
  for (const v of views) {
    if (v.dtype !== first.dtype || v.shape.slice(1).join() !== inner.join()) {
      throw new Error(`concat ${v.from} [${v.shape}] ${v.dtype} to [${first.shape}] ${first.dtype}`);
    }
  }
  const ends: number[] = [];
  for (const v of views) ends.push((ends.at(-1) ?? 0) + sizeOf(v.shape));
  const startOf = (i: number) => i === 0 ? 0 : ends[i - 1];
  return {
    ...first,
    shape: [views.reduce((n, v) => n + v.shape[0], 0), ...inner],
    from: views.length === 1 ? first.from : `${first.from} and ${views.length - 1} more`,
    locate(start, count) {
      const i = ends.findIndex((end) => start < end);
      return start + count <= ends[i] ? views[i].locate?.(start - startOf(i), count) : undefined;
    },
    read(start, count) {
      const parts: Uint8Array[] = [];
      for (let i = 0; count > 0; i++) {
        if (start >= ends[i]) continue;
        const n = Math.min(count, ends[i] - start);
        parts.push(views[i].read(start - startOf(i), n));
        start += n;
        count -= n;
      }
      return concatBytes(parts);
    },
  };
}

/** The rows of two matrices side by side, in f32. */
export function concatColumns(a: View, b: View): View {
  const [x, y] = [f32View(a), f32View(b)];
  const [n, m] = [rowLength(x), rowLength(y)];
  const width = n + m;
  return {
    ...x,
    locate: undefined,
    shape: [...x.shape.slice(0, -1), width],
    from: `${a.from} and ${b.from}`,
    read(start, count) {
      const r0 = Math.floor(start / width);
      const rows = Math.ceil((start + count) / width) - r0;
      const left = x.read(r0 * n, rows * n);
      const right = y.read(r0 * m, rows * m);
      const out = new Uint8Array(rows * width * 4);
      for (let r = 0; r < rows; r++) {
        out.set(left.subarray(r * n * 4, (r + 1) * n * 4), r * width * 4);
        out.set(right.subarray(r * m * 4, (r + 1) * m * 4), (r * width + n) * 4);
      }
      release(left);
      release(right);
      return out.subarray((start - r0 * width) * 4, (start - r0 * width + count) * 4);
    },
  };
}

/** Views of equal shape under a new first dimension, such as the experts of a layer. */
export function stack(views: readonly View[]): View {
  const [first] = views;
  const all = concat(views.map((v) => reshape(v, [1, ...v.shape])));
  if (!first.side) return all;
  const joined = (name: "scale" | "input_scale") => () => Float32Array.from(views, (v) => v.side![name]()[0]);
  return { ...all, side: { scale: joined("scale"), input_scale: joined("input_scale") } };
}

/**
 * Rows in another order or a choice of them: row `r` of the result is row `rowAt(r)` of the view.
 *
 * @param shape Of the result; its rows are as long as the view's.
 */
export function pickRows(v: View, shape: readonly number[], rowAt: (row: number) => number): View {
  const n = rowLength(v);
  const rowBytes = viewBytes(v.dtype, n);
  return {
    ...v,
    locate: undefined,
    shape,
    read(start, count) {
      const r0 = Math.floor(start / n);
      const r1 = Math.ceil((start + count) / n);
      const rows = Array.from({ length: r1 - r0 }, (_, i) => rowAt(r0 + i));
      const low = rows.reduce((a, b) => Math.min(a, b));
      const high = rows.reduce((a, b) => Math.max(a, b));
      const out = new Uint8Array(rows.length * rowBytes);
      if (high - low + 1 <= 2 * rows.length) {
        // Close together: one read of all between them.
        const src = v.read(low * n, (high - low + 1) * n);
        rows.forEach((r, i) => out.set(src.subarray((r - low) * rowBytes, (r - low + 1) * rowBytes), i * rowBytes));
        release(src);
      } else {
        for (let i = 0; i < rows.length;) {
          let run = 1;
          while (i + run < rows.length && rows[i + run] === rows[i] + run) run++;
          const src = v.read(rows[i] * n, run * n);
          out.set(src, i * rowBytes);
          release(src);
          i += run;
        }
      }
      const skip = viewBytes(v.dtype, start - r0 * n);
      return out.subarray(skip, skip + viewBytes(v.dtype, count));
    },
  };
}

/** Rows `from` to `from + count` of every matrix of the view. */
export function sliceRows(v: View, from: number, count: number): View {
  const rows = v.shape[v.shape.length - 2];
  const shape = [...v.shape.slice(0, -2), count, rowLength(v)];
  return pickRows(v, shape, (r) => Math.floor(r / count) * rows + from + (r % count));
}

/** Elements `from` to `from + count` of a vector or of every row. */
export function sliceColumns(v: View, from: number, count: number): View {
  return pickColumns(v, count, (c) => from + c);
}

/** Columns in another order or a choice of them; one-element blocks only. */
export function pickColumns(v: View, count: number, columnAt: (column: number) => number): View {
  const [block, size] = VIEW_BLOCKS[v.dtype];
  if (block !== 1) throw new Error(`columns of ${v.dtype} cannot be picked`);
  const n = rowLength(v);
  const columns = Array.from({ length: count }, (_, c) => columnAt(c));
  return {
    ...v,
    locate: undefined,
    shape: [...v.shape.slice(0, -1), count],
    read(start, length) {
      const r0 = Math.floor(start / count);
      const r1 = Math.ceil((start + length) / count);
      const src = v.read(r0 * n, (r1 - r0) * n);
      const out = new Uint8Array((r1 - r0) * count * size);
      for (let r = 0, at = 0; r < r1 - r0; r++) {
        for (const c of columns) {
          const from = (r * n + c) * size;
          for (let b = 0; b < size; b++) out[at++] = src[from + b];
        }
      }
      return out.subarray((start - r0 * count) * size, (start - r0 * count + length) * size);
    },
  };
}

/** The last two dimensions swapped, matrix by matrix; a read takes whole source matrices. */
export function transpose(v: View): View {
  const [rows, columns] = v.shape.slice(-2);
  const [block, size] = VIEW_BLOCKS[v.dtype];
  if (block !== 1) throw new Error(`${v.dtype} cannot be transposed`);
  const matrix = rows * columns;
  let cached = -1;
  let turned = new Uint8Array(0);
  const matrixAt = (i: number) => {
    if (i === cached) return turned;
    const src = v.read(i * matrix, matrix);
    turned = new Uint8Array(matrix * size);
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < columns; c++) {
        const from = (r * columns + c) * size;
        const to = (c * rows + r) * size;
        for (let b = 0; b < size; b++) turned[to + b] = src[from + b];
      }
    }
    cached = i;
    return turned;
  };
  return {
    ...v,
    locate: undefined,
    shape: [...v.shape.slice(0, -2), columns, rows],
    read(start, count) {
      const parts: Uint8Array[] = [];
      while (count > 0) {
        const i = Math.floor(start / matrix);
        const at = start - i * matrix;
        const n = Math.min(count, matrix - at);
        parts.push(matrixAt(i).slice(at * size, (at + n) * size));
        start += n;
        count -= n;
      }
      return concatBytes(parts);
    },
  };
}

/** A function of each element, in f32. */
export function mapF32(v: View, f: (x: number) => number): View {
  return {
    ...v,
    locate: undefined,
    dtype: "F32",
    read(start, count) {
      const x = f32Of(f32View(v).read(start, count));
      const out = new Float32Array(x.length);
      for (let i = 0; i < x.length; i++) out[i] = f(x[i]);
      release(bytesOf(x));
      return bytesOf(out);
    },
  };
}

/** The view in f32. */
export function f32View(v: View): View {
  if (v.dtype === "F32") return v;
  if (v.dtype !== "F16" && v.dtype !== "BF16") throw new Error(`${v.from} is ${v.dtype}, not a float`);
  const dtype = v.dtype;
  return {
    ...v,
    locate: undefined,
    dtype: "F32",
    read(start, count) {
      const src = v.read(start, count);
      const out = toF32(src, dtype);
      release(src);
      return out;
    },
  };
}

/** The view's whole numbers as i32. */
export function integers(v: View): View {
  return {
    ...v,
    locate: undefined,
    dtype: "I32",
    read(start, count) {
      const out = Int32Array.from(f32Of(f32View(v).read(start, count)));
      return new Uint8Array(out.buffer);
    },
  };
}

/** Values in memory. */
export function constant(name: string, values: Float32Array, shape: readonly number[] = [values.length]): View {
  return {
    dtype: "F32",
    shape,
    from: name,
    read: (start, count) => new Uint8Array(values.slice(start, start + count).buffer),
  };
}
