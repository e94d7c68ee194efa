/**
 * The error of a tensor in a type, weighted by importance: which share of the energy of its products the type's error has. With the mean
 * squares of the inputs as weights that is `sum w (x - q)^2 / sum w x^2`; without them the weights are equal. Times `reachOf` it stands for
 * what the output loses. No model has to run, and a tensor of any size is read in pieces, or by samples of its rows.
 * @module
 */
import { type GgmlType, rowBytes } from "../../core/gguf/types.ts";
import type { Backend } from "../../core/program/backend.ts";
import { type QuantizeSource, rowCount } from "../quantize_source.ts";
import { type RowRun, rowRuns, type WeightedTensor, weightsOfRow } from "../row_runs.ts";
import type { LossEstimate } from "./measure.ts";

/** Source bytes in memory at a time: what is made of them waits for the collector of garbage. */
const CHUNK = 2 ** 20;

/** `n` rows, evenly spread; all where there are no more. @param n 0 is all. */
export function sampledRows(rows: number, n: number): number[] | undefined {
  return n === 0 || rows <= n ? undefined : Array.from({ length: n }, (_, i) => Math.floor((i + 0.5) * rows / n));
}

/**
 * How far a tensor's share of error reaches the output, roughly: errors of the head are errors of the logits; each layer adds two parts to
 * the sum that the head reads, so that an error in one of them is diluted by twice the number of layers.
 */
export function reachOf(name: string, source: Pick<QuantizeSource, "tensors" | "metadata">): number {
  const head = source.tensors.some((t) => t.name === "output.weight") ? "output.weight" : "token_embd.weight";
  if (name === head) return 1;
  const arch = source.metadata.str("general.architecture");
  return 1 / (2 * Math.max(1, source.metadata.u32(`${arch}.block_count`)));
}

/** The share of a tensor's own energy. @param n_rows Rows of a tensor that are looked at, evenly spread; 0 is all. */
export async function weightedError(
  backend: Backend,
  source: QuantizeSource,
  tensor: WeightedTensor,
  type: GgmlType,
  n_rows: number,
): Promise<LossEstimate> {
  const from = tensor.source, n = from.ne[0];
  const some = sampledRows(rowCount(from), n_rows);
  const runs: Iterable<RowRun> = some?.map((row) => ({ row, rows: 1, weights: weightsOfRow(tensor, row) })) ??
    rowRuns(tensor, type, CHUNK);
  let lost = 0, all = 0;
  for (const { row, rows, weights } of runs) {
    const src = await source.read(from, row, rows);
    const exact = await backend.dequantize(from.type, src, rows * n);
    const encoded = await backend.quantize({
      srcType: from.type,
      src,
      dstType: type,
      n_rows: rows,
      n_per_row: n,
      weights,
    });
    if (encoded.length !== rows * rowBytes(type, n)) throw new Error(`rows of ${type.name} have another size`);
    const got = await backend.dequantize(type, encoded, rows * n);
    for (let i = 0; i < exact.length; i++) {
      const w = weights === undefined ? 1 : weights[i % n], d = exact[i] - got[i];
      lost += w * d * d;
      all += w * exact[i] * exact[i];
    }
  }
  return { mean: all > 0 ? lost / all : 0, se: null };
}
