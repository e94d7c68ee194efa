/**
 * Block decoding in plain TypeScript for the reference backend: the types programs run natively. The native library decodes
 * every type; this is its oracle for these eight. Source: the GGUF block layouts.
 * @module
 */
import { FormatError, NativeError } from "../errors.ts";
import type { GgmlType } from "../gguf/types.ts";

const f16view = new DataView(new ArrayBuffer(4));

/** Bits of a half to a number. */
export function f16ToNumber(bits: number): number {
  f16view.setUint16(0, bits);
  return f16view.getFloat16(0);
}

/** The half nearest to a number, ties to even. */
export function roundF16(x: number): number {
  return Math.f16round(x);
}

function bf16ToNumber(bits: number): number {
  f16view.setUint32(0, bits << 16);
  return f16view.getFloat32(0);
}

/** Scale and minimum j of the packed 6-bit pairs of Q4_K and Q5_K. */
function scaleMin(s: Uint8Array, at: number, j: number): [scale: number, min: number] {
  if (j < 4) return [s[at + j] & 63, s[at + j + 4] & 63];
  return [
    (s[at + j + 4] & 15) | ((s[at + j - 4] >> 6) << 4),
    (s[at + j + 4] >> 4) | ((s[at + j] >> 6) << 4),
  ];
}

type Decode = (b: Uint8Array, at: number, out: Float32Array, o: number) => void;

const half = (b: Uint8Array, at: number) => f16ToNumber(b[at] | (b[at + 1] << 8));

const DECODERS: Readonly<Record<string, Decode>> = {
  f32: (b, at, out, o) => {
    f16view.setUint32(0, (b[at] | (b[at + 1] << 8) | (b[at + 2] << 16) | (b[at + 3] << 24)) >>> 0);
    out[o] = f16view.getFloat32(0);
  },
  f16: (b, at, out, o) => {
    out[o] = half(b, at);
  },
  bf16: (b, at, out, o) => {
    out[o] = bf16ToNumber(b[at] | (b[at + 1] << 8));
  },
  q8_0: (b, at, out, o) => {
    const d = half(b, at);
    for (let i = 0; i < 32; i++) out[o + i] = d * ((b[at + 2 + i] << 24) >> 24);
  },
  q4_0: (b, at, out, o) => {
    const d = half(b, at);
    for (let i = 0; i < 16; i++) {
      out[o + i] = d * ((b[at + 2 + i] & 15) - 8);
      out[o + 16 + i] = d * ((b[at + 2 + i] >> 4) - 8);
    }
  },
  q4_K: (b, at, out, o) => {
    const d = half(b, at), dmin = half(b, at + 2);
    for (let j = 0; j < 8; j++) {
      const [sc, m] = scaleMin(b, at + 4, j);
      const qs = at + 16 + 32 * (j >> 1);
      for (let l = 0; l < 32; l++) {
        out[o + 32 * j + l] = d * sc * ((b[qs + l] >> (4 * (j & 1))) & 15) - dmin * m;
      }
    }
  },
  q5_K: (b, at, out, o) => {
    const d = half(b, at), dmin = half(b, at + 2);
    for (let j = 0; j < 8; j++) {
      const [sc, m] = scaleMin(b, at + 4, j);
      const qs = at + 48 + 32 * (j >> 1);
      for (let l = 0; l < 32; l++) {
        const q = ((b[qs + l] >> (4 * (j & 1))) & 15) + 16 * ((b[at + 16 + l] >> j) & 1);
        out[o + 32 * j + l] = d * sc * q - dmin * m;
      }
    }
  },
  q6_K: (b, at, out, o) => {
    const d = half(b, at + 208);
    for (let h = 0; h < 2; h++) {
      for (let e = 0; e < 128; e++) {
        const l = e & 31, part = e >> 5;
        const low = (b[at + 64 * h + 32 * (part & 1) + l] >> (4 * (part >> 1))) & 15;
        const high = (b[at + 128 + 32 * h + l] >> (2 * part)) & 3;
        const scale = (b[at + 192 + 8 * h + (e >> 4)] << 24) >> 24;
        out[o + 128 * h + e] = d * scale * ((low | (high << 4)) - 32);
      }
    }
  },
};

/**
 * Expands blocks to f32.
 *
 * @param blocks Whole blocks, little-endian.
 * @param n Elements, a multiple of the block.
 * @throws {FormatError} `format.truncated` when `blocks` holds fewer than `n` elements
 * @throws {NativeError} `native.unsupported` for a type that only the native library decodes
 */
export function dequantize(type: GgmlType, blocks: Uint8Array, n: number): Float32Array {
  const decode = DECODERS[type.name];
  if (!decode) {
    throw new NativeError("native.unsupported", `The reference backend cannot decode ${type.name}`, {
      at: { type: type.name },
      hint: "use --device cpu",
    });
  }
  const need = n / type.block * type.bytes;
  if (blocks.length < need) {
    throw new FormatError(
      "format.truncated",
      `Cannot decode ${n} elements of ${type.name}: found ${blocks.length} bytes, expected ${need}`,
      {
        at: { type: type.name, got: blocks.length, expected: need },
      },
    );
  }
  const out = new Float32Array(n);
  for (let i = 0, at = 0; i < n; i += type.block, at += type.bytes) decode(blocks, at, out, i);
  return out;
}
