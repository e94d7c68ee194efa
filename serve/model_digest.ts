/**
 * A digest of a model's weights, so that what is saved of one is not restored into another.
 * @module
 */
import type { GgufFile } from "../core/gguf/read.ts";

/** Bytes looked at of each tensor: models that were trained apart differ in every tensor's beginning. */
const SAMPLE = 4096;

/** @returns hexadecimal digits */
export async function modelDigest(file: GgufFile, more: string): Promise<string> {
  const parts: Uint8Array[] = [];
  const encoder = new TextEncoder();
  for (const tensor of file.tensors) {
    parts.push(encoder.encode(`${tensor.name} ${tensor.type} ${tensor.ne.join(",")}\n`));
    const n = Math.min(SAMPLE, tensor.bytes);
    const bytes = new Uint8Array(n);
    using source = Deno.openSync(tensor.path);
    source.seekSync(tensor.offset, Deno.SeekMode.Start);
    for (let at = 0; at < n;) {
      const got = source.readSync(bytes.subarray(at));
      if (got === null) break;
      at += got;
    }
    parts.push(bytes);
  }
  parts.push(encoder.encode(more));
  const all = new Uint8Array(await new Blob(parts as BlobPart[]).arrayBuffer());
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", all));
  return sum.toHex();
}
