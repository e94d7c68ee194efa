/**
 * Which tensors of a model are measured, and in which types.
 * @module
 */
import { type GgmlType, ggmlType, rowBytes } from "../../core/gguf/types.ts";
import { parseFileType } from "../file_types.ts";
import type { Imatrix } from "../imatrix.ts";
import { fallbackType, isFloatType, isQuantizable, needsImportance, planQuantization } from "../plan.ts";
import { type QuantizeSource, rowCount } from "../quantize_source.ts";
import type { WeightedTensor } from "../row_runs.ts";

/** Types that are tried where nobody says which: those of weights that were not trained for a type, from the smallest on. */
export const DEFAULT_TYPES: readonly string[] = [
  ...["iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "q2_K", "iq3_xxs", "iq3_s", "q3_K"],
  ...["iq4_xs", "iq4_nl", "q4_K", "q5_K", "q6_K", "q8_0"],
];

/** A tensor that is measured. */
export interface Candidate extends WeightedTensor {
  readonly name: string;
  /** Smaller than the source's, and possible. */
  readonly types: readonly GgmlType[];
}

/** Bytes of a tensor in a type. */
export function bytesAs(tensor: { readonly ne: readonly number[] }, type: GgmlType): number {
  return rowCount(tensor) * rowBytes(type, tensor.ne[0]);
}

/**
 * The tensors that a quantization may change, in the order of its output, each with the types that it can become: where its rows are not
 * whole blocks of a type, the one that takes that type's place; without an entry in the importance matrix, none that needs one.
 * @throws {QuantizeError} `quantize.plan` where the importance matrix is another model's
 */
export function candidates(
  source: QuantizeSource,
  types: readonly GgmlType[],
  imatrix: Imatrix | undefined,
): Candidate[] {
  const fileType = parseFileType("Q8_0"), arch = source.metadata.str("general.architecture");
  const plan = planQuantization(source.tensors, source.metadata, {
    fileType,
    pure: true,
    allowRequantize: true,
    imatrix,
  });
  return plan.tensors.filter((t) => isFloatType(t.source.type) && isQuantizable(t, arch) && t.ne.length <= 3).map(
    (t) => {
      const possible = types.map((type) => fallbackType(type, t.ne[0])).filter((type) =>
        type !== undefined && !(t.importance === undefined && needsImportance(t.name, type)) &&
        bytesAs(t.source, type) < t.sourceBytes
      ) as GgmlType[];
      const ids = [...new Set(possible.map((type) => type.id))];
      const own = ids.map((id) => possible.find((type) => type.id === id)!);
      own.sort((a, b) => bytesAs(t.source, a) - bytesAs(t.source, b));
      return { name: t.name, source: t.source, importance: t.importance, types: own };
    },
  );
}

/** The default types. */
export function defaultTypes(): GgmlType[] {
  return DEFAULT_TYPES.map(ggmlType);
}
