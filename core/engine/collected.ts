/**
 * What an engine that collects has summed up over a sequence: squares of the inputs of matrices, out of the sequence's state.
 * @module
 */
import type { CachePlan } from "../plan/cache.ts";
import type { CacheHandle } from "../program/backend.ts";
import type { Collected } from "../program/program.ts";
import type { Sequence } from "./sequence.ts";

/** Sums of the inputs that some weights share. */
export interface CollectedSums {
  /** Names of the weights. */
  readonly weights: readonly string[];
  /** Columns of a matrix. */
  readonly n_in: number;
  /** `[n_mat, n_in]` sums of squares. */
  readonly sums: Float64Array;
  /** `[n_mat]` vectors that went into each matrix. */
  readonly counts: Float64Array;
}

/** The sums of a sequence; none where it has no tokens. */
export function readCollected(
  collected: readonly Collected[],
  sequence: Sequence,
  caches: readonly CacheHandle[],
  plans: readonly CachePlan[],
): CollectedSums[] {
  const pages = new Map<number, Float32Array>();
  /** The state of a cache: its streams lie one after the other in the page. */
  const page = (cache: number): Float32Array | undefined => {
    const known = pages.get(cache), held = sequence.lists[cache].held();
    if (known || held.length === 0) return known;
    const bytes = caches[cache].readPages([held[0].page]);
    const values = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
    const expected = plans[cache].streams.reduce((n, s) => n + s.ne, 0);
    if (values.length !== expected) throw new Error(`a state has ${values.length} numbers, expected ${expected}`);
    pages.set(cache, values);
    return values;
  };
  return collected.flatMap(({ weights, n_in, n_mat, state }) => {
    const values = page(state.cache);
    if (!values) return [];
    const start = plans[state.cache].streams.slice(0, state.stream).reduce((n, s) => n + s.ne, 0);
    const sums = new Float64Array(n_mat * n_in), counts = new Float64Array(n_mat);
    for (let m = 0; m < n_mat; m++) {
      const hi = start + m * 2 * (n_in + 1), lo = hi + n_in + 1;
      for (let i = 0; i < n_in; i++) sums[m * n_in + i] = values[hi + i] + values[lo + i];
      counts[m] = values[hi + n_in] + values[lo + n_in];
    }
    return [{ weights, n_in, sums, counts }];
  });
}
