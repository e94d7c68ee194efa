/**
 * Element conversion between f32, f16 and bf16, a chunk at a time. Rounding is to nearest, ties to even. 16-bit sources go
 * through tables of 65536 entries; 32-bit ones through integer arithmetic on their bits.
 * @module
 */

export type FloatType = "F32" | "F16" | "BF16";

/** Bytes of an element. */
export const FLOAT_BYTES: Readonly<Record<FloatType, number>> = { F32: 4, F16: 2, BF16: 2 };

function aligned(bytes: Uint8Array, size: number): Uint8Array {
  return bytes.byteOffset % size === 0 ? bytes : bytes.slice();
}

/** Bytes as u16, without a copy where alignment allows. */
export function u16Of(bytes: Uint8Array): Uint16Array {
  const b = aligned(bytes, 2);
  return new Uint16Array(b.buffer, b.byteOffset, b.length / 2);
}
/** Bytes as u32, without a copy where alignment allows. */
export function u32Of(bytes: Uint8Array): Uint32Array {
  const b = aligned(bytes, 4);
  return new Uint32Array(b.buffer, b.byteOffset, b.length / 4);
}
/** Bytes as f32, without a copy where alignment allows. */
export function f32Of(bytes: Uint8Array): Float32Array {
  const b = aligned(bytes, 4);
  return new Float32Array(b.buffer, b.byteOffset, b.length / 4);
}
/** The bytes of numbers, a view. */
export function bytesOf(a: Float32Array | Uint16Array | Uint32Array): Uint8Array {
  return new Uint8Array(a.buffer, a.byteOffset, a.byteLength);
}

/** f16 bits of f32 bits; values beyond 65504 become infinity. */
export function f16BitsOf(x: number): number {
  const sign = (x >>> 16) & 0x8000;
  const a = x & 0x7fffffff;
  if (a >= 0x7f800000) return a > 0x7f800000 ? sign | 0x7e00 : sign | 0x7c00;
  if (a >= 0x477ff000) return sign | 0x7c00; // rounds to 65536 or more
  if (a >= 0x38800000) {
    const b = a - 0x38000000; // exponent rebased
    return sign | ((b + 0xfff + ((b >>> 13) & 1)) >>> 13);
  }
  if (a < 0x33000000) return sign; // below half of the smallest subnormal
  const shift = 126 - (a >>> 23); // 14 to 24
  const m = (a & 0x7fffff) | 0x800000;
  const q = m >>> shift;
  const rest = m & ((1 << shift) - 1);
  const half = 1 << (shift - 1);
  return sign | (rest > half || (rest === half && (q & 1) === 1) ? q + 1 : q);
}

/** f32 bits of f16 bits. */
export function f32BitsOf(h: number): number {
  const sign = (h & 0x8000) << 16;
  const e = (h >> 10) & 31;
  const m = h & 0x3ff;
  if (e === 31) return (sign | 0x7f800000 | (m << 13)) >>> 0;
  if (e !== 0) return (sign | ((e + 112) << 23) | (m << 13)) >>> 0;
  if (m === 0) return sign >>> 0;
  const up = Math.clz32(m) - 21; // shift that brings the leading one to bit 10
  return (sign | ((113 - up) << 23) | (((m << up) & 0x3ff) << 13)) >>> 0;
}

/** bf16 bits of f32 bits; a NaN stays one. */
export function bf16BitsOf(x: number): number {
  if ((x & 0x7fffffff) > 0x7f800000) return (x >>> 16) | 64;
  return (x + 0x7fff + ((x >>> 16) & 1)) >>> 16;
}

/**
 * Frees the memory of a chunk at once. The collector would wait, since chunks lie outside its heap.
 * The caller must own the buffer.
 */
export function release(bytes: Uint8Array): void {
  const { buffer } = bytes;
  if (buffer instanceof ArrayBuffer && !buffer.detached) buffer.transfer(0);
}

let f16ToF32: Uint32Array | undefined;
let f16ToBf16: Uint16Array | undefined;
let bf16ToF16: Uint16Array | undefined;

const table16 = (f: (bits: number) => number) => Uint16Array.from({ length: 65536 }, (_, i) => f(i));

/** A chunk in f32. */
export function toF32(bytes: Uint8Array, from: FloatType): Uint8Array {
  if (from === "F32") return bytes;
  const src = u16Of(bytes);
  const out = new Uint32Array(src.length);
  if (from === "BF16") {
    for (let i = 0; i < src.length; i++) out[i] = src[i] << 16;
  } else {
    f16ToF32 ??= Uint32Array.from({ length: 65536 }, (_, i) => f32BitsOf(i));
    for (let i = 0; i < src.length; i++) out[i] = f16ToF32[src[i]];
  }
  return bytesOf(out);
}

/** A chunk in another type; the same bytes when it is the same. */
export function convertFloats(bytes: Uint8Array, from: FloatType, to: FloatType): Uint8Array {
  if (from === to) return bytes;
  if (to === "F32") return toF32(bytes, from);
  if (from === "F32") {
    const src = u32Of(bytes);
    const out = new Uint16Array(src.length);
    if (to === "BF16") {
      for (let i = 0; i < src.length; i++) {
        const x = src[i];
        out[i] = (x & 0x7fffffff) > 0x7f800000 ? (x >>> 16) | 64 : (x + 0x7fff + ((x >>> 16) & 1)) >>> 16;
      }
    } else {
      for (let i = 0; i < src.length; i++) out[i] = f16BitsOf(src[i]);
    }
    return bytesOf(out);
  }
  const src = u16Of(bytes);
  const out = new Uint16Array(src.length);
  const table = from === "BF16"
    ? bf16ToF16 ??= table16((i) => f16BitsOf((i << 16) >>> 0))
    : f16ToBf16 ??= table16((i) => bf16BitsOf(f32BitsOf(i)));
  for (let i = 0; i < src.length; i++) out[i] = table[src[i]];
  return bytesOf(out);
}

/** Index of the first NaN or infinity of a chunk, or -1. */
export function firstNonFinite(bytes: Uint8Array, type: FloatType): number {
  if (type === "F32") {
    const x = u32Of(bytes);
    for (let i = 0; i < x.length; i++) if ((x[i] & 0x7f800000) === 0x7f800000) return i;
    return -1;
  }
  const mask = type === "BF16" ? 0x7f80 : 0x7c00;
  const x = u16Of(bytes);
  for (let i = 0; i < x.length; i++) if ((x[i] & mask) === mask) return i;
  return -1;
}

/** One element as a number, for messages. */
export function elementAt(bytes: Uint8Array, type: FloatType, i: number): number {
  const size = FLOAT_BYTES[type];
  return f32Of(toF32(bytes.slice(i * size, (i + 1) * size), type))[0];
}
