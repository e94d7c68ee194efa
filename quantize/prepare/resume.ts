/**
 * What an interrupted run has left: a file that is whole, or the first tensors of one.
 * @module
 */
import { alignUp, DEFAULT_ALIGNMENT, tensorBytes } from "../../core/gguf/layout.ts";
import type { Metadata } from "../../core/gguf/metadata.ts";
import { encodeHeader, partialPath, type TensorInfo } from "../../core/gguf/write.ts";

export interface FileOnDisk {
  /** The file is there under its name, as this run would make it. */
  readonly isWhole: boolean;
  /** Tensors that the partial file holds whole. */
  readonly n_tensors: number;
  /** Of the whole file. */
  readonly bytes: number;
}

function sizeOf(path: string): number {
  try {
    const stat = Deno.statSync(path);
    return stat.isFile ? stat.size : 0;
  } catch {
    return 0;
  }
}

function startsWith(path: string, bytes: Uint8Array): boolean {
  using file = Deno.openSync(path);
  const found = new Uint8Array(bytes.length);
  for (let done = 0; done < found.length;) {
    const n = file.readSync(found.subarray(done));
    if (n === null) return false;
    done += n;
  }
  return found.every((b, i) => b === bytes[i]);
}

/**
 * Looks at the file and its partial form. Tensors are written one after another, so the size of the partial file says how
 * many are whole; that holds after a killed process, not after a machine that lost its power.
 */
export function fileOnDisk(path: string, metadata: Metadata, tensors: readonly TensorInfo[]): FileOnDisk {
  const header = encodeHeader(metadata, tensors);
  const ends: number[] = [];
  for (const t of tensors) {
    const bytes = tensorBytes({ file: path, tensor: t.name }, t.type, t.ne);
    ends.push((ends.at(-1) ?? header.length) + alignUp(bytes, DEFAULT_ALIGNMENT));
  }
  const bytes = ends.at(-1) ?? header.length;
  if (sizeOf(path) === bytes && startsWith(path, header)) return { isWhole: true, n_tensors: tensors.length, bytes };
  const partial = sizeOf(partialPath(path));
  const whole = ends.findIndex((end) => end > partial);
  return { isWhole: false, n_tensors: whole < 0 ? tensors.length : whole, bytes };
}
