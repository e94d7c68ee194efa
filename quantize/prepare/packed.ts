/**
 * 4-bit storage: microscaling blocks moved into the file's blocks without loss, and packed integers expanded to f32.
 * @module
 */
import { bytesOf, f32Of, release, u32Of } from "./dtype.ts";
import { FP8_VALUES, type ReadBytes } from "./fp8.ts";
import { f32View, sizeOf, type View, VIEW_BLOCKS } from "./view.ts";

/**
 * MXFP4: 32 codes with neighbours in one byte (even element low) and one E8M0 scale become a block of a scale and 16 bytes
 * that pair element `j` with `j + 16`.
 *
 * @param shape Of the values, slowest first.
 * @param codes Bytes of the packed codes, two elements each.
 * @param scales One byte per 32 elements.
 */
export function mxfp4View(from: string, shape: readonly number[], codes: ReadBytes, scales: ReadBytes): View {
  return {
    dtype: "MXFP4",
    shape,
    from,
    coded: true,
    read(start, count) {
      const src = codes(start / 2, count / 2);
      const e = scales(start / 32, count / 32);
      const out = new Uint8Array(e.length * 17);
      for (let b = 0; b < e.length; b++) {
        const to = b * 17;
        const at = b * 16;
        out[to] = e[b];
        for (let j = 0; j < 8; j++) {
          const low = src[at + j]; //      elements 2j, 2j+1
          const high = src[at + 8 + j]; // elements 2j+16, 2j+17
          out[to + 1 + 2 * j] = (low & 15) | ((high & 15) << 4);
          out[to + 2 + 2 * j] = (low >> 4) | (high & 0xf0);
        }
      }
      release(src);
      return out;
    },
  };
}

/**
 * NVFP4: 16 codes and one E4M3 scale each; four such groups become a block of 36 bytes. The scale's sign bit is dropped:
 * files have it unsigned.
 */
export function nvfp4View(from: string, shape: readonly number[], codes: ReadBytes, scales: ReadBytes): View {
  return {
    dtype: "NVFP4",
    shape,
    from,
    coded: true,
    read(start, count) {
      const src = codes(start / 2, count / 2);
      const d = scales(start / 16, count / 16);
      const n_block = count / 64;
      const out = new Uint8Array(n_block * 36);
      for (let b = 0; b < n_block; b++) {
        for (let g = 0; g < 4; g++) {
          out[b * 36 + g] = d[b * 4 + g] & 0x7f;
          const at = (b * 4 + g) * 8;
          const to = b * 36 + 4 + g * 8;
          for (let j = 0; j < 4; j++) {
            const low = src[at + j];
            const high = src[at + 4 + j];
            out[to + 2 * j] = (low & 15) | ((high & 15) << 4);
            out[to + 2 * j + 1] = (low >> 4) | (high & 0xf0);
          }
        }
      }
      return out;
    },
  };
}

export interface PackedInts {
  readonly from: string;
  readonly rows: number;
  readonly columns: number;
  readonly bits: number;
  /** Elements of a row that share a scale. */
  readonly group: number;
  /** `[rows, ceil(columns * bits / 32)]` words, lowest bits first. */
  readonly words: ReadBytes;
  /** `[rows, columns / group]`. */
  readonly scales: View;
  /** Zero points packed along rows, `[ceil(rows * bits / 32), columns / group]`; half the range where left out. */
  readonly zeros?: ReadBytes;
}

/** Packed integers as f32: `(q - zero) * scale`. */
export function packedIntView(p: PackedInts): View {
  const { rows, columns, bits, group } = p;
  const perWord = Math.floor(32 / bits);
  const mask = 2 ** bits - 1;
  const wordsPerRow = Math.ceil(columns / perWord);
  const groups = Math.ceil(columns / group);
  let zeroWords: Uint32Array | undefined;
  const zeroAt = (row: number, g: number) => {
    if (!p.zeros) return 1 << (bits - 1);
    zeroWords ??= u32Of(p.zeros(0, 4 * Math.ceil(rows / perWord) * groups)).slice();
    return (zeroWords[Math.floor(row / perWord) * groups + g] >>> (bits * (row % perWord))) & mask;
  };
  return {
    dtype: "F32",
    shape: [rows, columns],
    from: p.from,
    coded: true,
    read(start, count) {
      const r0 = Math.floor(start / columns);
      const r1 = Math.ceil((start + count) / columns);
      const words = u32Of(p.words(r0 * wordsPerRow * 4, (r1 - r0) * wordsPerRow * 4));
      const scales = f32Of(f32View(p.scales).read(r0 * groups, (r1 - r0) * groups));
      const out = new Float32Array((r1 - r0) * columns);
      for (let r = r0; r < r1; r++) {
        for (let g = 0; g < groups; g++) {
          const zero = zeroAt(r, g);
          const d = scales[(r - r0) * groups + g];
          for (let c = g * group; c < Math.min(columns, (g + 1) * group); c++) {
            const word = words[(r - r0) * wordsPerRow + Math.floor(c / perWord)];
            out[(r - r0) * columns + c] = (((word >>> (bits * (c % perWord))) & mask) - zero) * d;
          }
        }
      }
      const skip = start - r0 * columns;
      return bytesOf(out.subarray(skip, skip + count));
    },
  };
}

/** Values of a small tensor in f32. */
export function smallValues(v: View): Float32Array {
  return f32Of(f32View(v).read(0, sizeOf(v.shape)));
}

/** Values of the 16 codes of E2M1. */
const E2M1 = Float32Array.of(0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6);

/** Elements that share a scale, and the scale's values by code. NVFP4 keeps no sign. */
const FOUR_BIT = { MXFP4: [32, FP8_VALUES["F8_E8M0"]], NVFP4: [16, FP8_VALUES["F8_E4M3"]] } as const;

/** Blocks of 4-bit codes as f32, with the factor of each matrix; other views as they are. */
export function expanded(v: View): View {
  if (v.dtype !== "MXFP4" && v.dtype !== "NVFP4") return v;
  const [group, scales] = FOUR_BIT[v.dtype];
  const [blockElements, blockBytes] = VIEW_BLOCKS[v.dtype];
  const perBlock = blockElements / group;
  const factors = v.side?.scale() ?? Float32Array.of(1);
  const matrix = sizeOf(v.shape) / factors.length;
  const { side: _side, wideActivations: _wide, ...plain } = v;
  return {
    ...plain,
    locate: undefined,
    dtype: "F32",
    read(start, count) {
      const src = v.read(start, count);
      const out = new Float32Array(count);
      for (let g = 0; g < count / group; g++) {
        const block = Math.floor(g / perBlock) * blockBytes;
        const scale = scales[src[block + (g % perBlock)]];
        const codes = block + perBlock + (g % perBlock) * (group / 2);
        for (let j = 0; j < group / 2; j++) {
          out[g * group + j] = E2M1[src[codes + j] & 15] * scale;
          out[g * group + group / 2 + j] = E2M1[src[codes + j] >> 4] * scale;
        }
      }
      for (let i = 0; i < count; i++) out[i] *= factors[Math.floor((start + i) / matrix)];
      release(src);
      return bytesOf(out);
    },
  };
}
