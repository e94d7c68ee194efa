/**
 * 8-bit floats and their scales: values in f32 from codes and one scale per block, row or tensor.
 * Source: OCP 8-bit floating point specification (E4M3 without infinities, E5M2) and OCP microscaling (E8M0).
 * @module
 */
import { bytesOf, f32Of, release } from "./dtype.ts";
import { f32View, sizeOf, type View } from "./view.ts";

/** Values of all 256 codes; NaN where a code means that. */
function table(exponentBits: number, mantissaBits: number, isFinite: boolean): Float32Array {
  const bias = 2 ** (exponentBits - 1) - 1;
  const maxExponent = 2 ** exponentBits - 1;
  const ones = 2 ** mantissaBits;
  return Float32Array.from({ length: 256 }, (_, code) => {
    const sign = code & 0x80 ? -1 : 1;
    const e = (code & 0x7f) >> mantissaBits;
    const m = code & (ones - 1);
    if (isFinite) {
      if (e === maxExponent && m === ones - 1) return NaN;
    } else if (e === maxExponent) return m === 0 ? sign * Infinity : NaN;
    return e === 0 ? sign * m * 2 ** (1 - bias - mantissaBits) : sign * (1 + m / ones) * 2 ** (e - bias);
  });
}

/** Values by code, for dtypes whose codes are numbers. */
export const FP8_VALUES: Readonly<Record<string, Float32Array>> = {
  F8_E4M3: table(4, 3, true),
  F8_E4M3FN: table(4, 3, true),
  F8_E5M2: table(5, 2, false),
  F8_E8M0: Float32Array.from({ length: 256 }, (_, code) => code === 255 ? NaN : 2 ** (code - 127)),
};

/** Bytes of a tensor by flat range. */
export type ReadBytes = (start: number, count: number) => Uint8Array;

/** One-byte codes as f32 by a table. */
export function codedView(from: string, shape: readonly number[], values: Float32Array, read: ReadBytes): View {
  return {
    dtype: "F32",
    shape,
    from,
    coded: true,
    read(start, count) {
      const codes = read(start, count);
      const out = new Float32Array(count);
      for (let i = 0; i < count; i++) out[i] = values[codes[i]];
      release(codes);
      return bytesOf(out);
    },
  };
}

/**
 * The block that one scale is for, from the shapes: [rows, columns]. Blocks at the edges may be partial.
 *
 * @param stated From the configuration.
 * @returns undefined when the scales do not fit.
 */
export function scaleBlock(
  shape: readonly number[],
  scale: readonly number[],
  stated: readonly number[] | undefined,
): [number, number] | undefined {
  const columns = shape[shape.length - 1];
  const rows = sizeOf(shape) / columns;
  const n = sizeOf(scale);
  if (n === 1) return [rows, columns];
  const fits = (r: number, c: number) => {
    const blockRows = shape.length >= 2 ? Math.ceil(shape[shape.length - 2] / r) * sizeOf(shape.slice(0, -2)) : 1;
    return blockRows * Math.ceil(columns / c) === n && scale[scale.length - 1] === Math.ceil(columns / c);
  };
  if (stated && stated.length === 2 && fits(stated[0], stated[1])) return [stated[0], stated[1]];
  if (n === rows && (scale.length === 1 || scale[scale.length - 1] === 1)) return [1, columns];
  const perRow = n / rows; // scales of the groups of one row
  if (perRow > 1 && scale[scale.length - 1] === perRow && columns % perRow === 0 && rows > 1) {
    return [1, columns / perRow];
  }
  for (const size of [128, 64, 32]) if (fits(size, size)) return [size, size];
  return undefined;
}

/** Scales were read for this view last; one tensor's are kept, since a tensor is read from start to end. */
let cached: { view: View; values: Float32Array } | undefined;
/** Scales of one tensor that are kept; tables of n-grams have a thousand times as many. */
const MAX_CACHED = 1 << 22;

/** Scales `from` to `to`, and the number of the first one there is. */
function scaleValues(view: View, from: number, to: number): { values: Float32Array; first: number } {
  const n = sizeOf(view.shape);
  if (n > MAX_CACHED) return { values: f32Of(f32View(view).read(from, to - from)), first: from };
  if (cached?.view !== view) cached = { view, values: f32Of(f32View(view).read(0, n)).slice() };
  return { values: cached.values, first: 0 };
}

/**
 * Codes or values times the scale of their block, in f32.
 *
 * @param block Rows and columns that share a scale.
 */
export function scaled(v: View, scale: View, block: readonly [number, number]): View {
  const columns = v.shape[v.shape.length - 1];
  const rows = v.shape.length >= 2 ? v.shape[v.shape.length - 2] : 1; // of one matrix
  const [blockRows, blockColumns] = block;
  const scaleColumns = Math.ceil(columns / blockColumns);
  const scaleRows = Math.ceil(Math.min(rows, Infinity) / blockRows);
  const whole = sizeOf(scale.shape) === 1;
  /** Number of the first scale of a row. */
  const scaleRow = (row: number) =>
    whole ? 0 : (Math.floor(row / rows) * scaleRows + Math.floor((row % rows) / blockRows)) * scaleColumns;
  return {
    ...f32View(v),
    locate: undefined,
    coded: true,
    read(start, count) {
      const x = f32Of(f32View(v).read(start, count));
      const last = Math.floor((start + count - 1) / columns);
      const { values: s, first } = scaleValues(
        scale,
        scaleRow(Math.floor(start / columns)),
        scaleRow(last) + (whole ? 1 : scaleColumns),
      );
      const out = new Float32Array(count);
      for (let i = 0; i < count;) {
        const row = Math.floor((start + i) / columns);
        const column = start + i - row * columns;
        const end = Math.min(count, i + blockColumns - (column % blockColumns), i + columns - column);
        const d = s[scaleRow(row) + (whole ? 0 : Math.floor(column / blockColumns)) - first];
        for (; i < end; i++) out[i] = x[i] * d;
      }
      release(bytesOf(x));
      return bytesOf(out);
    },
  };
}
