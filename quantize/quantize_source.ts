/**
 * What the quantizer reads: a GGUF file, split or not. `folder_source.ts` makes the same of a Hugging Face folder.
 * @module
 */
import { elementCount } from "../core/gguf/layout.ts";
import type { Metadata } from "../core/gguf/metadata.ts";
import { type GgufFile, type GgufTensor, openGguf } from "../core/gguf/read.ts";
import { rowBytes } from "../core/gguf/types.ts";
import type { FileRange } from "../core/program/backend.ts";
import type { SourceTensor } from "./plan.ts";

/** A model to quantize. Close it, or hold it with `using`. */
export interface QuantizeSource extends Disposable {
  /** What messages call it. */
  readonly name: string;
  /** Files that must not be written to. */
  readonly paths: readonly string[];
  /** Of the model. */
  readonly metadata: Metadata;
  /** In file order. */
  readonly tensors: readonly SourceTensor[];
  /** Warnings, each a sentence for the user. */
  readonly warnings: readonly string[];
  /** The byte range of rows of a tensor, so that a backend can read them itself; undefined where rows are computed. */
  locate?(tensor: SourceTensor, row: number, rows: number): FileRange | undefined;
  /** Rows of a tensor in its type. */
  read(tensor: SourceTensor, row: number, rows: number): Uint8Array | Promise<Uint8Array>;
}

/** Rows of a tensor, all further dimensions counted. */
export function rowCount(tensor: { readonly ne: readonly number[] }): number {
  return elementCount(tensor.ne) / tensor.ne[0];
}

/** Opens a GGUF file or the first of a split set. */
export function openGgufSource(path: string): QuantizeSource {
  const file: GgufFile = openGguf(path);
  return {
    name: path,
    paths: file.paths,
    metadata: file.metadata,
    tensors: file.tensors,
    warnings: [],
    locate(tensor, row, rows) {
      const { shard, offset, type, ne } = tensor as GgufTensor;
      const bytes = rowBytes(type, ne[0]);
      return { path: file.paths[shard], offset: offset + row * bytes, bytes: rows * bytes };
    },
    read(tensor, row, rows) {
      const bytes = rowBytes(tensor.type, tensor.ne[0]);
      return file.readTensor(tensor as GgufTensor, row * bytes, rows * bytes);
    },
    [Symbol.dispose]: () => file.close(),
  };
}
