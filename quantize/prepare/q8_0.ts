/**
 * Q8_0 in plain TypeScript: the one block format that checkpoints are turned into on the way, so that `prepare` needs no
 * native library.
 * Source: ggml: per 32 values an f16 scale `max|x| / 127` and signed bytes, rounded half away from zero.
 * @module
 */
import { f16BitsOf } from "./dtype.ts";

const bits = new Uint32Array(1);
const float = new Float32Array(bits.buffer);

/** Blocks of 34 bytes; the number of values is a multiple of 32. */
export function encodeQ8_0(x: Float32Array): Uint8Array {
  const n_block = x.length / 32;
  const out = new Uint8Array(n_block * 34);
  for (let b = 0; b < n_block; b++) {
    let amax = 0;
    for (let i = b * 32; i < b * 32 + 32; i++) {
      const a = Math.abs(x[i]);
      if (a > amax) amax = a;
    }
    const d = Math.fround(amax / 127);
    const inverse = d === 0 ? 0 : Math.fround(1 / d);
    float[0] = d;
    const h = f16BitsOf(bits[0]);
    const at = b * 34;
    out[at] = h;
    out[at + 1] = h >> 8;
    for (let i = 0; i < 32; i++) {
      const v = Math.fround(x[b * 32 + i] * inverse);
      // v is an f32 below 128, so adding a half is exact in f64.
      out[at + 2 + i] = v < 0 ? -Math.floor(0.5 - v) : Math.floor(v + 0.5);
    }
  }
  return out;
}
