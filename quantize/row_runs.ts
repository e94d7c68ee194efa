/**
 * The rows of a tensor in pieces that are encoded at once.
 * @module
 */
import { type GgmlType, rowBytes } from "../core/gguf/types.ts";
import type { PlannedTensor } from "./plan.ts";
import { rowCount } from "./quantize_source.ts";

/** Consecutive rows, all of one matrix where matrices have weights of their own. */
export interface RowRun {
  readonly row: number;
  readonly rows: number;
  readonly weights: Float32Array | undefined;
}

/** A tensor and the importance of its columns. */
export type WeightedTensor = Pick<PlannedTensor, "source" | "importance">;

/** The importance of the columns of the matrix that a row is in. */
export function weightsOfRow({ source: { ne }, importance }: WeightedTensor, row: number): Float32Array | undefined {
  if (importance === undefined || importance.length === ne[0]) return importance;
  const matrix = Math.floor(row / (ne[1] ?? 1));
  return importance.subarray(matrix * ne[0], (matrix + 1) * ne[0]);
}

/** All rows: as many at once as `most` bytes hold of the source and of `type`, none across two experts with weights of their own. */
export function* rowRuns(tensor: WeightedTensor, type: GgmlType, most: number): Generator<RowRun> {
  const { source, importance } = tensor;
  const n = source.ne[0], perMatrix = source.ne[1] ?? 1, rows = rowCount(source);
  const step = Math.max(1, Math.floor(most / Math.max(rowBytes(source.type, n), rowBytes(type, n))));
  for (let row = 0; row < rows;) {
    const end = importance && importance.length > n ? (Math.floor(row / perMatrix) + 1) * perMatrix : rows;
    const count = Math.min(step, end - row);
    yield { row, rows: count, weights: weightsOfRow(tensor, row) };
    row += count;
  }
}
