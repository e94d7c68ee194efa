/**
 * Hugging Face folder to GGUF file.
 * @module
 */
import { GgufWriter } from "../../core/gguf/write.ts";
import { openPrepared, type PreparedTensor, type PrepareOptions } from "./source.ts";

/** Elements converted at a time: 4 MiB in f32. */
const CHUNK = 1 << 20;

export interface PrepareProgress {
  /** The tensor being written. */
  readonly tensor: PreparedTensor;
  /** Its place in the file. */
  readonly index: number;
  readonly n_tensors: number;
  /** Of the finished file. */
  readonly bytes: number;
  readonly totalBytes: number;
}

export interface PrepareFileOptions extends PrepareOptions {
  /** Called after each piece that was written. */
  onProgress?: (p: PrepareProgress) => void;
  signal?: AbortSignal;
}

export interface PrepareResult {
  readonly path: string;
  /** `general.architecture`. */
  readonly architecture: string;
  readonly n_tensors: number;
  /** Tensors by type. */
  readonly types: Readonly<Record<string, number>>;
  readonly bytes: number;
  readonly warnings: readonly string[];
}

/**
 * Writes the GGUF file of a checkpoint. Everything that headers can tell is checked before the first byte; the file has
 * its name only when it is whole. Memory: a few chunks of 4 MiB besides the vocabulary.
 */
export async function prepare(dir: string, out: string, options: PrepareFileOptions = {}): Promise<PrepareResult> {
  using source = openPrepared(dir, options);
  const { metadata, tensors } = source;
  using writer = GgufWriter.create({ path: out, metadata, tensors, pad: options.vocabOnly !== true });
  let bytes = writer.headerBytes;
  for (const [index, tensor] of tensors.entries()) {
    const step = Math.max(1, Math.floor(CHUNK / tensor.ne[0]));
    for (let row = 0; row < tensor.n_rows; row += step) {
      options.signal?.throwIfAborted();
      const chunk = await source.read(tensor, row, Math.min(step, tensor.n_rows - row));
      writer.writeTensor(index, chunk);
      bytes += chunk.length;
      options.onProgress?.({ tensor, index, n_tensors: tensors.length, bytes, totalBytes: writer.totalBytes });
    }
  }
  writer.finish();
  const types: Record<string, number> = {};
  for (const t of tensors) types[t.type.name] = (types[t.type.name] ?? 0) + 1;
  return {
    path: out,
    architecture: metadata.str("general.architecture"),
    n_tensors: tensors.length,
    types,
    bytes: writer.totalBytes,
    warnings: source.warnings,
  };
}
