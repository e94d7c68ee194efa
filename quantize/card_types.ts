/**
 * Which types a card encodes faster than a host does.
 * @module
 */
import type { GgmlType } from "../core/gguf/types.ts";

/** Encoders without a search: a host is done with a row in the time that the row takes to a card and back. */
const AS_FAST_ON_HOST = new Set(["f32", "f16", "bf16", "q8_0", "q1_0", "q2_0", "tq1_0", "tq2_0"]);

/** Measured by `scripts/bench_encoders.ts`; the bytes are the same either way. */
export function encodesFasterOnCard(type: GgmlType): boolean {
  return !AS_FAST_ON_HOST.has(type.name);
}
