/**
 * Whether a plan has enough to encode for a card to save time.
 * @module
 */
import type { GgmlType } from "../core/gguf/types.ts";
import type { QuantizePlan } from "./plan.ts";

/** Encoders that search for a scale only where importance says what the search is for. */
const SEARCH_WITH_IMPORTANCE = new Set(["q4_0", "q4_1", "q5_0", "q5_1"]);

/**
 * A card takes a third of a second to start, and 16 host threads encode the K types at 1 to 1.5 GB of f32 a second, a card at more
 * than a file is read and written.
 */
const WORTH_A_START = 1e9;

/**
 * Encoders that search. The others are done with a row on the host in the time that the row takes to a card and back. Measured by
 * `scripts/bench_encoders.ts`; the bytes are the same either way.
 */
export function encodesFasterOnCard(type: GgmlType, weighted: boolean): boolean {
  return /^(q\d_K|iq)/.test(type.name) || (weighted && SEARCH_WITH_IMPORTANCE.has(type.name));
}

/** Whether the plan has enough of these tensors. */
export function cardPays(plan: QuantizePlan): boolean {
  const slow = plan.tensors.filter((t) => t.convert && encodesFasterOnCard(t.type, t.importance !== undefined));
  return slow.reduce((n, t) => n + t.sourceBytes, 0) >= WORTH_A_START;
}
