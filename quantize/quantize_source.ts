/**
 * What the quantizer reads: a GGUF file, split or not, or a Hugging Face folder seen as the GGUF file it would become.
 * @module
 */
import { elementCount } from "../core/gguf/layout.ts";
import type { Metadata } from "../core/gguf/metadata.ts";
import { type GgufFile, type GgufTensor, openGguf } from "../core/gguf/read.ts";
import { rowBytes } from "../core/gguf/types.ts";
import type { SourceTensor } from "./plan.ts";
import { openPrepared, type PreparedTensor, type PrepareOptions } from "./prepare/mod.ts";

/** A model to quantize. Close it, or hold it with `using`. */
export interface QuantizeSource extends Disposable {
  /** What messages call it. */
  readonly name: string;
  /** Files that must not be written to. */
  readonly paths: readonly string[];
  readonly metadata: Metadata;
  readonly alignment: number;
  readonly tensors: readonly SourceTensor[];
  /** What is odd and does no harm, in sentences. */
  readonly warnings: readonly string[];
  /** Rows of a tensor in its type. */
  read(tensor: SourceTensor, row: number, rows: number): Uint8Array | Promise<Uint8Array>;
}

/** Rows of a tensor, all further dimensions counted. */
export function rowCount(tensor: { readonly ne: readonly number[] }): number {
  return elementCount(tensor.ne) / tensor.ne[0];
}

/** Opens a GGUF file or the first of a split set. */
export function ggufQuantizeSource(path: string): QuantizeSource {
  const file: GgufFile = openGguf(path);
  return {
    name: path,
    paths: file.paths,
    metadata: file.metadata,
    alignment: file.alignment,
    tensors: file.tensors,
    warnings: [],
    read(tensor, row, rows) {
      const bytes = rowBytes(tensor.type, tensor.ne[0]);
      return file.readTensor(tensor as GgufTensor, row * bytes, rows * bytes);
    },
    [Symbol.dispose]: () => file.close(),
  };
}

/** Opens a Hugging Face folder; the result is that of `prepare` followed by quantizing its file. */
export function folderQuantizeSource(dir: string, options: PrepareOptions = {}): QuantizeSource {
  const prepared = openPrepared(dir, options);
  const tensors = prepared.tensors.map((t) => ({ ...t, shard: 0, prepared: t }));
  return {
    name: dir,
    paths: [],
    metadata: prepared.metadata,
    alignment: 32,
    tensors,
    warnings: prepared.warnings,
    read: (tensor, row, rows) =>
      prepared.read((tensor as SourceTensor & { prepared: PreparedTensor }).prepared, row, rows),
    [Symbol.dispose]: () => prepared.close(),
  };
}
