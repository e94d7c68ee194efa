/**
 * One model to several types at the same time: the source is read once.
 * @module
 */
import type { Backend } from "../core/program/backend.ts";
import { planFor, quantize, type QuantizeOptions, type QuantizeResult } from "./quantize.ts";
import type { QuantizeSource } from "./quantize_source.ts";
import { SharedSource } from "./shared_source.ts";

/** One of several outputs. */
export interface QuantizeTarget {
  readonly output: string;
  readonly options: QuantizeOptions;
}

const DEFAULT_ROOM = 256 * 2 ** 20;

/**
 * Quantizes a source to every target. The bytes are those of separate runs. All plans are made before anything is written; when
 * one run fails the others stop, and what they leave is as after an interruption.
 * @param room Most bytes of rows in memory, over all targets; default 256 MiB.
 */
export async function quantizeMany(
  source: QuantizeSource,
  targets: readonly QuantizeTarget[],
  backend: Backend,
  room: number = DEFAULT_ROOM,
): Promise<QuantizeResult[]> {
  const [{ tensors }] = targets.map(({ options }) => planFor(source, options));
  if (targets.length === 1) {
    return [await quantize(source, targets[0].output, backend, { ...targets[0].options, room })];
  }
  const share = Math.max(1, Math.floor(room / (targets.length + 1)));
  const shared = new SharedSource(source, tensors.map((t) => t.source), share);
  const failed = new AbortController();
  const sources = targets.map(() => shared.open());
  const ends = await Promise.allSettled(targets.map(async ({ output, options }, i) => {
    using own = sources[i];
    const signal = options.signal ? AbortSignal.any([options.signal, failed.signal]) : failed.signal;
    try {
      return await quantize(own, output, backend, { ...options, room: share, signal });
    } catch (error) {
      failed.abort(error);
      throw error;
    }
  }));
  const bad = ends.filter((e) => e.status === "rejected").map((e) => e.reason);
  // Those that were stopped carry the first failure as their reason.
  if (bad.length > 0) throw bad[0];
  return ends.map((e) => (e as PromiseFulfilledResult<QuantizeResult>).value);
}
