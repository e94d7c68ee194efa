/**
 * The list of op cases: every op, kind and parameter, sources that are slices, every weight type, caches of every type. Tests and
 * benchmarks of all backends run this one list; `size` says how large its shapes are.
 * @module
 */
import type { OpCase, Size } from "../case.ts";
import { cachedCases } from "./cached.ts";
import { chooseCases } from "./choose.ts";
import { matrixCases } from "./matrices.ts";
import { rowCases } from "./rows.ts";
import { stateCases } from "./states.ts";

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
