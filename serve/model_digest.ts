/**
 * A digest of a model's weights and its adapters', so that what is saved of one is not restored into another.
 * @module
 */
import type { ModelSource } from "../core/arch/mod.ts";
import { adapterTensor } from "../core/program/adapter.ts";

/** Bytes looked at of each tensor: models that were trained apart differ in every tensor's beginning. */
const SAMPLE = 4096;

/** @returns hexadecimal digits */
export async function modelDigest(file: ModelSource, more: string): Promise<string> {
  const parts: Uint8Array[] = [];
  const encoder = new TextEncoder();
  const adapted = file.adapters?.flatMap(({ changes }, i) =>
    changes.flatMap((name) => [file.tensor(adapterTensor(i, name, "a")), file.tensor(adapterTensor(i, name, "b"))])
  );
  for (const tensor of [...file.tensors, ...adapted ?? []]) {
    parts.push(encoder.encode(`${tensor.name} ${tensor.type.name} ${tensor.ne.join(",")}\n`));
    const place = file.place(tensor); // what is converted while it loads is told by the others
    if (place) parts.push(readSome(place.path, place.offset, place.bytes));
  }
  parts.push(encoder.encode(more));
  const all = new Uint8Array(await new Blob(parts as BlobPart[]).arrayBuffer());
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", all));
  return sum.toHex();
}

function readSome(path: string, offset: number, most: number): Uint8Array {
  const bytes = new Uint8Array(Math.min(SAMPLE, most));
  using source = Deno.openSync(path);
  source.seekSync(offset, Deno.SeekMode.Start);
  for (let at = 0; at < bytes.length;) {
    const got = source.readSync(bytes.subarray(at));
    if (got === null) break;
    at += got;
  }
  return bytes;
}
