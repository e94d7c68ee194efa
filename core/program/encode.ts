/**
 * Programs as the words that `csrc/bloomery.h` describes under "programs". One encoder for every native backend.
 * @module
 */
import { OPS } from "./ops.ts";
import type { Program } from "./program.ts";

export const PROGRAM_MAGIC = 0x52504c42;
export const PROGRAM_VERSION = 1;

/** @returns Little-endian u32 words. */
export function encodeProgram(p: Program): Uint8Array {
  const words: number[] = [
    PROGRAM_MAGIC,
    PROGRAM_VERSION,
    p.n_tok,
    p.n_out,
    p.n_seq,
    p.n_page,
    p.tensors.length,
    p.ops.length,
    p.outputs.length,
  ];
  for (const t of p.tensors) words.push(t.kind, t.type.id, ...t.ne, t.ref, t.device);
  const f32 = new Float32Array(1);
  const bits = new Uint32Array(f32.buffer);
  for (const op of p.ops) {
    const info = OPS[op.op];
    words.push(info.code, op.device, op.dst.length, op.src.length, op.params.length, 0, ...op.dst, ...op.src);
    op.params.forEach((value, i) => {
      if (info.params[i][1] === "f32") {
        f32[0] = value;
        words.push(bits[0]);
      } else words.push(value);
    });
  }
  for (const o of p.outputs) words.push(o.tensor);
  const bytes = new Uint8Array(words.length * 4);
  const view = new DataView(bytes.buffer);
  words.forEach((w, i) => view.setUint32(i * 4, w, true));
  return bytes;
}
