import assert from "node:assert/strict";
import { f32Of } from "./dtype.ts";
import { expanded, mxfp4View, nvfp4View } from "./packed.ts";

const VALUES = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];

/** Two codes a byte, as checkpoints have them: the even element low. */
const packed = (codes: readonly number[]) =>
  Uint8Array.from({ length: codes.length / 2 }, (_, i) => codes[2 * i] | (codes[2 * i + 1] << 4));
const slice = (bytes: Uint8Array) => (start: number, count: number) => bytes.slice(start, start + count);

Deno.test("expanded() gives the values of MXFP4 blocks", () => {
  const codes = Array.from({ length: 2 * 96 }, (_, i) => (i * 7 + (i >> 4)) % 16);
  const exponents = Uint8Array.of(127, 128, 120, 0, 130, 127);
  const view = expanded(mxfp4View("t", [2, 96], slice(packed(codes)), slice(exponents)));
  assert.equal(view.dtype, "F32");
  const want = codes.map((c, i) => VALUES[c] * 2 ** (exponents[Math.floor(i / 32)] - 127));
  assert.deepEqual([...f32Of(view.read(0, 192))], want);
  assert.deepEqual([...f32Of(view.read(96, 96))], want.slice(96));
});

Deno.test("expanded() gives the values of NVFP4 blocks times the factor of their matrix", () => {
  const codes = Array.from({ length: 2 * 64 }, (_, i) => (i * 5 + (i >> 3)) % 16);
  const scales = Uint8Array.of(0x38, 0x40, 0x30, 0x3c, 0x38, 0x39, 0x01, 0x77); // E4M3
  const scaleValues = [1, 2, 0.5, 1.5, 1, 1.125, 2 ** -9, 240];
  const view = expanded({
    ...nvfp4View("t", [2, 1, 64], slice(packed(codes)), slice(scales)),
    side: { scale: () => Float32Array.of(1, 0.25), input_scale: () => Float32Array.of(3, 3) },
  });
  assert.equal(view.side, undefined);
  const want = codes.map((c, i) => VALUES[c] * scaleValues[Math.floor(i / 16)] * (i < 64 ? 1 : 0.25));
  assert.deepEqual([...f32Of(view.read(0, 128))], want);
  assert.deepEqual([...f32Of(view.read(64, 64))], want.slice(64));
});
