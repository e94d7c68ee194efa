/**
 * The ggml tensor types: the one table of block sizes in TypeScript (`csrc/common/blocks.h` is its native twin).
 * Source: GGUF specification; ids 4, 5, 31-33 and 36-38 were retired by ggml.
 * @module
 */

/** One row of the table. */
export interface GgmlType {
  /** The id stored in a GGUF file. */
  readonly id: number;
  /** ggml's name, as `llama-quantize --tensor-type` spells it (`q4_K`). */
  readonly name: string;
  /** Elements in a block. */
  readonly block: number;
  /** Bytes of a block. */
  readonly bytes: number;
}

const ROWS: readonly (readonly [id: number, name: string, block: number, bytes: number])[] = [
  [0, "f32", 1, 4],
  [1, "f16", 1, 2],
  [2, "q4_0", 32, 18],
  [3, "q4_1", 32, 20],
  [6, "q5_0", 32, 22],
  [7, "q5_1", 32, 24],
  [8, "q8_0", 32, 34],
  [9, "q8_1", 32, 36],
  [10, "q2_K", 256, 84],
  [11, "q3_K", 256, 110],
  [12, "q4_K", 256, 144],
  [13, "q5_K", 256, 176],
  [14, "q6_K", 256, 210],
  [15, "q8_K", 256, 292],
  [16, "iq2_xxs", 256, 66],
  [17, "iq2_xs", 256, 74],
  [18, "iq3_xxs", 256, 98],
  [19, "iq1_s", 256, 50],
  [20, "iq4_nl", 32, 18],
  [21, "iq3_s", 256, 110],
  [22, "iq2_s", 256, 82],
  [23, "iq4_xs", 256, 136],
  [24, "i8", 1, 1],
  [25, "i16", 1, 2],
  [26, "i32", 1, 4],
  [27, "i64", 1, 8],
  [28, "f64", 1, 8],
  [29, "iq1_m", 256, 56],
  [30, "bf16", 1, 2],
  [34, "tq1_0", 256, 54],
  [35, "tq2_0", 256, 66],
  [39, "mxfp4", 32, 17],
  [40, "nvfp4", 64, 36],
  [41, "q1_0", 128, 18],
  [42, "q2_0", 64, 18],
];

/** Names of ids that ggml removed, for messages. */
export const RETIRED_GGML_TYPES: Readonly<Record<number, string>> = {
  4: "Q4_2",
  5: "Q4_3",
  31: "Q4_0_4_4",
  32: "Q4_0_4_8",
  33: "Q4_0_8_8",
  36: "IQ4_NL_4_4",
  37: "IQ4_NL_4_8",
  38: "IQ4_NL_8_8",
};

/** All types, ascending by id. */
export const GGML_TYPES: readonly GgmlType[] = ROWS.map(([id, name, block, bytes]) => ({ id, name, block, bytes }));

const BY_ID = new Map(GGML_TYPES.map((t) => [t.id, t]));
const BY_NAME = new Map(GGML_TYPES.map((t) => [t.name.toLowerCase(), t]));

/** The type with this id, or undefined. */
export function ggmlTypeById(id: number): GgmlType | undefined {
  return BY_ID.get(id);
}

/** The type with this name in any case, or undefined. */
export function ggmlTypeByName(name: string): GgmlType | undefined {
  return BY_NAME.get(name.toLowerCase());
}

/** The type with this name; an unknown name is a bug of the caller. */
export function ggmlType(name: string): GgmlType {
  const t = ggmlTypeByName(name);
  if (!t) throw new Error(`no ggml type "${name}"`);
  return t;
}

/** Bytes of one row of `ne0` elements; `ne0` must be a multiple of the block. */
export function rowBytes(type: GgmlType, ne0: number): number {
  return (ne0 / type.block) * type.bytes;
}
