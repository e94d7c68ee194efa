/**
 * Measures what a model loses when one tensor alone becomes each of several types.
 * @module
 */
import { NativeError } from "../../core/errors.ts";
import type { GgmlType } from "../../core/gguf/types.ts";
import type { Backend } from "../../core/program/backend.ts";
import type { QuantizeSource } from "../quantize_source.ts";
import { rowRuns, type WeightedTensor } from "../row_runs.ts";
import { bytesAs, type Candidate } from "./candidates.ts";
import type { Loss, MeasuredTensor, MeasureFile, MeasureJob } from "./measure_file.ts";

/** Source bytes encoded at a time. */
const CHUNK = 32 * 2 ** 20;

/** A whole tensor in a type. @throws {NativeError} `native.data` where its values are not finite, or too large for the type */
export async function encodeTensor(
  backend: Backend,
  source: QuantizeSource,
  tensor: WeightedTensor,
  type: GgmlType,
): Promise<Uint8Array> {
  const { ne } = tensor.source, out = new Uint8Array(bytesAs(tensor.source, type));
  let at = 0;
  for (const { row, rows, weights } of rowRuns(tensor, type, CHUNK)) {
    const bytes = await backend.quantize({
      srcType: tensor.source.type,
      src: source.locate?.(tensor.source, row, rows) ?? await source.read(tensor.source, row, rows),
      dstType: type,
      n_rows: rows,
      n_per_row: ne[0],
      weights,
    });
    out.set(bytes, at);
    at += bytes.length;
  }
  return out;
}

/** A loss and its standard error. */
export interface LossEstimate {
  readonly mean: number;
  readonly se: number | null;
}

/** How a run is done. */
export interface MeasureOptions {
  readonly job: MeasureJob;
  readonly candidates: readonly Candidate[];
  /** What an earlier run of the same job had done. */
  readonly from?: MeasureFile | undefined;
  /** The loss of a tensor in a type. @throws {NativeError} `native.data` where its values do not fit the type */
  readonly lossOf: (tensor: Candidate, type: GgmlType) => Promise<LossEstimate>;
  /** Called after each loss: `done` of `total` of them, `earlier` of them by an earlier run. */
  readonly onLoss?: (done: number, total: number, earlier: number) => void;
  /** Called when a tensor is done. */
  readonly onTensor?: (file: MeasureFile) => void;
  /** Called with what could not be measured. */
  readonly onWarning?: (text: string) => void;
  /** Stops the run behind a loss; what is known of the tensor is measured again. */
  readonly signal?: AbortSignal;
}

/** Measures what is not measured yet. A type that cannot hold a tensor's values is left out. */
export async function measure(options: MeasureOptions): Promise<MeasureFile> {
  const { job, candidates, from, lossOf, signal } = options;
  const known = new Map(from?.tensors.map((t) => [t.name, t]));
  const total = candidates.reduce((n, c) => n + c.types.length, 0);
  const missing = ({ name, types }: Candidate) =>
    types.filter((type) => known.get(name)?.losses.every((l) => l.type.id !== type.id) ?? true);
  const earlier = total - candidates.reduce((n, c) => n + missing(c).length, 0);
  let done = earlier;
  const file = (): MeasureFile => ({ job, tensors: [...known.values()] });
  options.onLoss?.(done, total, earlier);
  for (const candidate of candidates) {
    const { name, source: { ne } } = candidate, types = missing(candidate);
    if (types.length === 0) continue;
    const losses: Loss[] = [...known.get(name)?.losses ?? []];
    for (const type of types) {
      signal?.throwIfAborted();
      try {
        const { mean, se } = await lossOf(candidate, type);
        losses.push({ type, bytes: bytesAs({ ne }, type), loss: Math.max(0, mean), se });
      } catch (error) {
        if (!(error instanceof NativeError) || error.code !== "native.data") throw error;
        options.onWarning?.(`${name} cannot become ${type.name}: ${error.message}`);
      }
      options.onLoss?.(++done, total, earlier);
    }
    losses.sort((a, b) => a.bytes - b.bytes || a.type.id - b.type.id);
    known.set(name, { name, ne, losses } satisfies MeasuredTensor);
    options.onTensor?.(file());
  }
  return file();
}
