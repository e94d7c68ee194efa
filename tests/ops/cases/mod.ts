/**
 * The list of op cases: every op, kind and parameter, sources that are slices, every weight type, caches of every type. Tests and
 * benchmarks of all backends run this one list; `size` says how large its shapes are.
 * @module
 */
import type { OpCase } from "../case.ts";
import { cachedCases } from "./cached.ts";
import { chooseCases } from "./choose.ts";
import { matrixCases } from "./matrices.ts";
import { rowCases } from "./rows.ts";
import { stateCases } from "./states.ts";

export type Size = "test" | "bench";

export function opCases(size: Size): OpCase[] {
  const cases = [
    ...rowCases(size),
    ...matrixCases(size),
    ...cachedCases(size),
    ...stateCases(size),
    ...chooseCases(size),
  ];
  const names = new Set<string>();
  for (const c of cases) {
    if (names.has(c.name)) throw new Error(`two cases are named ${c.name}`);
    names.add(c.name);
  }
  return cases;
}

/** Bounds of the mean squared error that belong to how numbers are kept, not to an op. */
export const NMSE = {
  /** f32 arithmetic with float weights. */
  f32: 1e-11,
  /** e^x and the like are involved, or sums of differences. */
  curve: 1e-10,
  /** Matrices that are quantized: activations are rounded to 14 bits (a card: to f16). */
  quantized: 1e-6,
  /** A q8_0 cache: a number between two codes may become either. */
  q8_0: 1e-6,
} as const;
