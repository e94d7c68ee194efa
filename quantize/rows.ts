/**
 * Rows of numbers to blocks of a tensor type and back.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import { type GgmlType, ggmlType, ggmlTypeByName, rowBytes } from "../core/gguf/types.ts";
import type { Backend } from "../core/program/backend.ts";

/** How rows are decoded. */
export interface DequantizeRowsOptions {
  /** Which device of the backend does it; 0, the host, where left out. The bits are the same on all. */
  readonly device?: number;
}

/** How rows are encoded. */
export interface QuantizeRowsOptions extends DequantizeRowsOptions {
  /** Importance of the columns, `[n_per_row]`, the same for every row. */
  readonly weights?: Float32Array;
}

function typeNamed(type: GgmlType | string): GgmlType {
  if (typeof type !== "string") return type;
  const found = ggmlTypeByName(type);
  if (found) return found;
  throw new UsageError("usage.tensor_type", `Cannot use type "${type}": no such tensor type`, { at: { got: type } });
}

function checkRow(type: GgmlType, n_per_row: number, n: number, unit: number): void {
  const whole = Number.isSafeInteger(n_per_row) && n_per_row > 0;
  if (!whole || n_per_row % type.block !== 0 || n % unit !== 0) {
    throw new UsageError(
      "usage.row_length",
      `Cannot use rows of ${n_per_row} values with ${type.name}: expected a multiple of ${type.block} that divides the data`,
      { at: { type: type.name, n_per_row, block: type.block } },
    );
  }
}

/**
 * Encodes rows, bit for bit as llama-quantize does.
 *
 * @param rows `[n_rows, n_per_row]`, finite.
 * @returns `[n_rows]` encoded rows.
 * @throws {UsageError} `usage.tensor_type`, `usage.row_length`.
 * @throws {NativeError} `native.unsupported` where the type cannot be written, or needs weights; `native.data` where values
 * are too large for its scales.
 */
export async function quantizeRows(
  backend: Backend,
  type: GgmlType | string,
  rows: Float32Array,
  n_per_row: number,
  options: QuantizeRowsOptions = {},
): Promise<Uint8Array> {
  const to = typeNamed(type);
  checkRow(to, n_per_row, rows.length, n_per_row);
  const { weights, device } = options;
  if (weights && weights.length !== n_per_row) {
    throw new UsageError("usage.row_length", `Cannot use ${weights.length} weights with rows of ${n_per_row} values`, {
      at: { weights: weights.length, n_per_row },
    });
  }
  return await backend.quantize({
    srcType: ggmlType("f32"),
    src: new Uint8Array(rows.buffer, rows.byteOffset, rows.byteLength),
    dstType: to,
    n_rows: rows.length / n_per_row,
    n_per_row,
    ...(weights ? { weights } : {}),
    ...(device === undefined ? {} : { device }),
  });
}

/**
 * Decodes rows.
 *
 * @param data `[n_rows]` encoded rows.
 * @returns `[n_rows, n_per_row]`.
 * @throws {UsageError} `usage.tensor_type`, `usage.row_length`.
 */
export async function dequantizeRows(
  backend: Backend,
  type: GgmlType | string,
  data: Uint8Array,
  n_per_row: number,
  options: DequantizeRowsOptions = {},
): Promise<Float32Array> {
  const from = typeNamed(type);
  const bytes = rowBytes(from, n_per_row);
  checkRow(from, n_per_row, data.length, bytes);
  return await backend.dequantize(from, data, (data.length / bytes) * n_per_row, options.device);
}
