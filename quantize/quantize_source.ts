/**
 * What the quantizer reads: a GGUF file, split or not. `folder_source.ts` makes the same of a Hugging Face folder.
 * @module
 */
import { elementCount } from "../core/gguf/layout.ts";
import type { Metadata } from "../core/gguf/metadata.ts";
import { type GgufFile, type GgufTensor, openGguf } from "../core/gguf/read.ts";
import { rowBytes } from "../core/gguf/types.ts";
import type { SourceTensor } from "./plan.ts";

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
  /**
   * Rows of a tensor in its type. One call at a time.
   * @param buffer Of the size of these rows; may be used for them, so that they need no new memory.
   */
  read(tensor: SourceTensor, row: number, rows: number, buffer: Uint8Array): Uint8Array | Promise<Uint8Array>;
}

/** Rows of a tensor, all further dimensions counted. */
export function rowCount(tensor: { readonly ne: readonly number[] }): number {
  return elementCount(tensor.ne) / tensor.ne[0];
}

/** Opens a GGUF file or the first of a split set. */
export function ggufQuantizeSource(path: string): QuantizeSource {
  const file: GgufFile = openGguf(path);
  const shards: Deno.FsFile[] = [];
  const shard = (no: number) => shards[no] ??= Deno.openSync(file.paths[no], { read: true });
  return {
    name: path,
    paths: file.paths,
    metadata: file.metadata,
    alignment: file.alignment,
    tensors: file.tensors,
    warnings: [],
    async read(tensor, row, _rows, buffer) {
      const t = tensor as GgufTensor;
      const start = row * rowBytes(t.type, t.ne[0]);
      if (await fill(buffer, shard(t.shard), t.offset + start)) return buffer;
      return file.readTensor(t, start, buffer.length); // says what is wrong
    },
    [Symbol.dispose]: () => {
      for (const s of Object.values(shards)) s.close();
      file.close();
    },
  };
}

/** Reads all of `out` while this thread does other things; false when the file ends before. */
async function fill(out: Uint8Array, file: Deno.FsFile, offset: number): Promise<boolean> {
  await file.seek(offset, Deno.SeekMode.Start);
  for (let done = 0; done < out.length;) {
    const n = await file.read(out.subarray(done));
    if (n === null) return false;
    done += n;
  }
  return true;
}
