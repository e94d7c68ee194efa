/**
 * Programs as the words that `csrc/bloomery.h` describes under "programs". One encoder for every native backend.
 * @module
 */
import { OPS } from "./ops.ts";
import type { Program } from "./program.ts";

export const PROGRAM_MAGIC = 0x52504c42;
export const PROGRAM_VERSION = 2;

/** The most pages of one sequence in each cache. */
export function cachePages(p: Program): number[] {
  return p.caches.map((c) => c.state ? 1 : p.n_page);
}

/** @returns Little-endian u32 words. */
export function encodeProgram(p: Program): Uint8Array {
  const words: number[] = [
    PROGRAM_MAGIC,
    PROGRAM_VERSION,
    p.n_tok,
    p.n_out,
    p.n_seq,
    p.caches.length,
    p.tensors.length,
    p.ops.length,
    p.outputs.length,
    ...cachePages(p),
  ];
  for (const t of p.tensors) words.push(t.kind, t.type.id, ...t.ne, t.ref, t.device, t.offset, ...t.nb, t.limit);
  const f32 = new Float32Array(1);
  const bits = new Uint32Array(f32.buffer);
  for (const op of p.ops) {
    const info = OPS[op.op];
    words.push(info.code, op.device, op.dst.length, op.src.length, op.params.length, 0, ...op.dst, ...op.src);
    op.params.forEach((value, i) => {
      if (info.params[i][1] === "f32") {
        f32[0] = value;
        words.push(bits[0]);
      } else words.push(value >>> 0);
    });
  }
  for (const o of p.outputs) words.push(o.tensor);
  const bytes = new Uint8Array(words.length * 4);
  const view = new DataView(bytes.buffer);
  words.forEach((w, i) => view.setUint32(i * 4, w, true));
  return bytes;
}
