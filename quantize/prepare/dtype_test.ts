import assert from "node:assert/strict";
import { bytesOf, convertFloats, elementAt, f16BitsOf, f32BitsOf, f32Of, firstNonFinite, u16Of } from "./dtype.ts";

const bits = new Uint32Array(1);
const float = new Float32Array(bits.buffer);
const bitsOf = (x: number) => {
  float[0] = x;
  return bits[0];
};

Deno.test("f32BitsOf() and f16BitsOf() are inverse on every f16", () => {
  for (let h = 0; h < 65536; h++) {
    const back = f16BitsOf(f32BitsOf(h));
    const nan = (h & 0x7c00) === 0x7c00 && (h & 0x3ff) !== 0;
    if (nan) assert.equal(back & 0x7e00, 0x7e00);
    else assert.equal(back, h);
  }
});

Deno.test("f16BitsOf() rounds to nearest even, as the language's own f16 does", () => {
  const half = new Float16Array(1);
  const halfBits = new Uint16Array(half.buffer);
  let x = 1;
  for (let i = 0; i < 300_000; i++) {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
    bits[0] = i % 2 ? x : (x & 0x8fffffff) | 0x30000000; // half of them where subnormals are
    if (Number.isNaN(float[0])) continue;
    half[0] = float[0];
    assert.equal(f16BitsOf(bits[0]), halfBits[0], String(float[0]));
  }
  for (const v of [65504, 65519.996, 65520, 70000, 2 ** -24, 2 ** -25, 2 ** -25 * 1.0001, 0, -0]) {
    half[0] = v;
    assert.equal(f16BitsOf(bitsOf(Math.fround(v))), halfBits[0], String(v));
  }
});

Deno.test("convertFloats() to bf16 rounds ties to even and keeps NaN", () => {
  const src = Uint32Array.of(0x3f808000, 0x3f818000, 0x3f808001, 0x7f800001, 0xff800000);
  const out = u16Of(convertFloats(bytesOf(src), "F32", "BF16"));
  assert.deepEqual([...out], [0x3f80, 0x3f82, 0x3f81, 0x7fc0, 0xff80]);
});

Deno.test("convertFloats() agrees between the direct tables and the way through f32", () => {
  const all = Uint16Array.from({ length: 65536 }, (_, i) => i);
  for (const [from, to] of [["BF16", "F16"], ["F16", "BF16"]] as const) {
    const direct = u16Of(convertFloats(bytesOf(all), from, to));
    const through = u16Of(convertFloats(convertFloats(bytesOf(all), from, "F32"), "F32", to));
    assert.deepEqual(direct, through);
  }
});

Deno.test("firstNonFinite() finds infinities and NaN in each type", () => {
  const src = bytesOf(Float32Array.of(1, -2, Infinity, NaN));
  for (const type of ["F32", "F16", "BF16"] as const) {
    assert.equal(firstNonFinite(convertFloats(src, "F32", type), type), 2);
    assert.equal(firstNonFinite(convertFloats(src.slice(0, 8), "F32", type), type), -1);
    assert.equal(elementAt(convertFloats(src, "F32", type), type, 1), -2);
  }
  assert.equal(f32Of(bytesOf(Float32Array.of(3)))[0], 3);
});
