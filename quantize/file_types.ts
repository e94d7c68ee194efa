/**
 * The file types that a model can be quantized to: name, number and the tensor type used where no rule applies.
 * Source: llama-quantize 0.7.0.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import { type GgmlType, ggmlType, ggmlTypeByName } from "../core/gguf/types.ts";

/** A type of file that can be asked for, with its mixture of tensor types. */
export interface FileType {
  /** As llama-quantize spells it, such as Q4_K_M. */
  readonly name: string;
  /** `general.file_type`; COPY has none of its own. */
  readonly id: number;
  /** The tensor type where no rule applies; undefined for COPY, which keeps every tensor as it is. */
  readonly type: GgmlType | undefined;
}

/** In the order in which a number chooses: the first with it wins. Names of aliases come before what they stand for. */
const ROWS: readonly (readonly [name: string, id: number, type: string | undefined])[] = [
  ["Q1_0", 40, "q1_0"],
  ["Q2_0", 41, "q2_0"],
  ["Q4_0", 2, "q4_0"],
  ["Q4_1", 3, "q4_1"],
  ["MXFP4_MOE", 38, "mxfp4"],
  ["Q5_0", 8, "q5_0"],
  ["Q5_1", 9, "q5_1"],
  ["IQ2_XXS", 19, "iq2_xxs"],
  ["IQ2_XS", 20, "iq2_xs"],
  ["IQ2_S", 28, "iq2_xs"],
  ["IQ2_M", 29, "iq2_s"],
  ["IQ1_S", 24, "iq1_s"],
  ["IQ1_M", 31, "iq1_m"],
  ["TQ1_0", 36, "tq1_0"],
  ["TQ2_0", 37, "tq2_0"],
  ["Q2_K", 10, "q2_K"],
  ["Q2_K_S", 21, "q2_K"],
  ["IQ3_XXS", 23, "iq3_xxs"],
  ["IQ3_S", 26, "iq3_s"],
  ["IQ3_M", 27, "iq3_s"],
  ["Q3_K", 12, "q3_K"],
  ["IQ3_XS", 22, "iq3_s"],
  ["Q3_K_S", 11, "q3_K"],
  ["Q3_K_M", 12, "q3_K"],
  ["Q3_K_L", 13, "q3_K"],
  ["IQ4_NL", 25, "iq4_nl"],
  ["IQ4_XS", 30, "iq4_xs"],
  ["Q4_K", 15, "q4_K"],
  ["Q4_K_S", 14, "q4_K"],
  ["Q4_K_M", 15, "q4_K"],
  ["Q5_K", 17, "q5_K"],
  ["Q5_K_S", 16, "q5_K"],
  ["Q5_K_M", 17, "q5_K"],
  ["Q6_K", 18, "q6_K"],
  ["Q8_0", 7, "q8_0"],
  ["F16", 1, "f16"],
  ["BF16", 32, "bf16"],
  ["F32", 0, "f32"],
  ["COPY", -1, undefined],
];

/** All file types, aliases included. */
export const FILE_TYPES: readonly FileType[] = ROWS.map(([name, id, type]) => ({
  name,
  id,
  type: type === undefined ? undefined : ggmlType(type),
}));

/** The file type of a name in any case, or of a leading decimal number; undefined when there is none. */
export function findFileType(text: string): FileType | undefined {
  const named = FILE_TYPES.find((f) => f.name === text.toUpperCase());
  if (named) return named;
  const number = /^\s*([+-]?\d+)/.exec(text)?.[1];
  return number === undefined ? undefined : FILE_TYPES.find((f) => f.type && f.id === Number(number));
}

/**
 * A type by its name or number.
 * @throws {UsageError} `usage.file_type`
 */
export function parseFileType(text: string): FileType {
  const found = findFileType(text);
  if (found) return found;
  throw new UsageError("usage.file_type", `Cannot quantize to "${text}": no such type`, {
    at: { got: text },
    hint: `choose one of ${FILE_TYPES.map((f) => f.name).join(" ")}`,
  });
}

/**
 * A tensor type by name, in any case.
 * @param flag For messages.
 * @throws {UsageError} `usage.tensor_type`
 */
export function parseTensorType(text: string, flag: string): GgmlType {
  const found = ggmlTypeByName(text);
  if (found) return found;
  throw new UsageError("usage.tensor_type", `Cannot use --${flag} ${text}: no such tensor type`, {
    at: { flag, got: text },
    hint: "types are named as in q4_K, iq3_xxs, f16",
  });
}

/** What a copy without `general.file_type` is labelled, by its most frequent tensor type. */
const BY_TYPE: Readonly<Record<string, number>> = {
  f32: 0,
  f16: 1,
  q4_0: 2,
  q4_1: 3,
  q8_0: 7,
  q5_0: 8,
  q5_1: 9,
  q2_K: 10,
  q3_K: 12,
  q4_K: 15,
  q5_K: 17,
  q6_K: 18,
  iq2_xxs: 19,
  iq2_xs: 20,
  iq3_xxs: 23,
  iq1_s: 24,
  iq4_nl: 25,
  iq3_s: 26,
  iq2_s: 28,
  iq4_xs: 30,
  iq1_m: 31,
  bf16: 32,
  tq1_0: 36,
  tq2_0: 37,
  nvfp4: 39,
  q1_0: 40,
  q2_0: 41,
};

/** The label guessed from tensors in sorted order: 1024 + that of the type that first reaches the highest count. */
export function guessFileTypeId(types: Iterable<GgmlType>): number {
  const counts = new Map<string, number>();
  let best = "";
  let most = 0;
  for (const { name } of types) {
    const n = (counts.get(name) ?? 0) + 1;
    counts.set(name, n);
    if (n > most) [best, most] = [name, n];
  }
  return 1024 + (BY_TYPE[best] ?? 0);
}
