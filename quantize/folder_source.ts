/**
 * A Hugging Face folder as a source of the quantizer: seen as the GGUF file it would become. Apart from the other source since
 * few runs need the converter, and loading it takes time.
 * @module
 */
import type { SourceTensor } from "./plan.ts";
import { openPrepared, type PreparedTensor, type PrepareOptions } from "./prepare/mod.ts";
import type { QuantizeSource } from "./quantize_source.ts";

/** Opens a Hugging Face folder; the result is that of `prepare` followed by quantizing its file. */
export function openFolderSource(dir: string, options: PrepareOptions = {}): QuantizeSource {
  const prepared = openPrepared(dir, options);
  const tensors = prepared.tensors.map((t) => ({ ...t, shard: 0, prepared: t }));
  const of = (tensor: SourceTensor) => (tensor as SourceTensor & { prepared: PreparedTensor }).prepared;
  return {
    name: dir,
    paths: prepared.paths,
    metadata: prepared.metadata,
    tensors,
    warnings: prepared.warnings,
    locate: (tensor, row, rows) => prepared.locate(of(tensor), row, rows),
    read: (tensor, row, rows) => prepared.read(of(tensor), row, rows),
    [Symbol.dispose]: () => prepared.close(),
  };
}
