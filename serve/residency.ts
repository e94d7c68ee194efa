/**
 * Experts that come and go: hit rates for /slots and /metrics, and POST /residency/reset.
 * @module
 */
import { type App, json } from "./app.ts";
import { ApiError } from "./errors.ts";

function share(hits: number, misses: number): number {
  return hits + misses === 0 ? 0 : hits / (hits + misses);
}

/** What /slots shows of the experts of all slots; undefined where all are resident. */
export function residencyView({ model }: App) {
  const stats = model.engine.residency?.stats;
  if (stats === undefined) return undefined;
  const { hits, misses, read_bytes, ahead_bytes, unused_bytes, wait_ms, n_slots, n_held, n_seated, direct } = stats;
  const recall = (l: { n_needed: number; n_right: number }) => share(l.n_right, l.n_needed - l.n_right);
  return {
    hits,
    misses,
    hit_rate: share(hits, misses),
    guess_rate: recall(stats),
    read_bytes,
    ahead_bytes,
    unused_bytes,
    wait_ms,
    n_slots,
    n_held,
    n_seated,
    direct,
    layers: stats.layers.map((l) => ({
      name: l.name,
      hit_rate: share(l.hits, l.misses),
      guess_rate: recall(l),
    })),
  };
}

/**
 * Takes the seats of the start again and counts from now on.
 * @throws ApiError 400 where all experts are resident
 */
export function residencyReset(app: App): Response {
  const { residency } = app.model.engine;
  if (residency === undefined) {
    throw new ApiError(
      400,
      "invalid_request_error",
      "no_residency",
      "All weights are resident: there is nothing to reset",
    );
  }
  residency.reset();
  return json({ reset: true });
}
