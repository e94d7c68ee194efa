/**
 * Collects an importance matrix: runs windows of text through an engine that sums up the squares of what goes into its matrices.
 *
 * A window is a sequence of its own. Its sums are added to those of the windows before it in f64 and in their order, so a run that was
 * killed and continued gives the same bytes as one that was not.
 * @module
 */
import type { CollectedSums, Engine } from "../../core/engine/mod.ts";
import { QuantizeError } from "../../core/errors.ts";
import type { ImatrixFile, ImatrixSums } from "../imatrix.ts";

/** Tokens that are run from position 0. */
export interface CollectWindow {
  readonly ids: Int32Array;
}

/** What a run is about: a later run continues it only where all of this is the same. */
export interface CollectJob {
  /** Path of the model, for messages. */
  readonly model: string;
  /** What the model is, whatever its file is called; see `contentKey`. */
  readonly model_key: string;
  /** Names of the texts. */
  readonly datasets: readonly string[];
  /** Tokens of a window. */
  readonly n_ctx: number;
  /** SHA-256 of the windows' tokens. */
  readonly tokens: string;
  /** Whether the head's input is collected too. */
  readonly process_output: boolean;
}

/** How far a run has come. */
export interface CollectState {
  readonly job: CollectJob;
  /** Windows done. */
  readonly n_done: number;
  /** Negative log-likelihood of the tokens predicted so far, and how many they are. */
  readonly nll: number;
  readonly n_scored: number;
  /** By weight name. */
  readonly sums: ReadonlyMap<string, { readonly sums: Float64Array; readonly counts: Float64Array }>;
}

/** An engine that was opened with `collect: collects(...)`. */
export type CollectingEngine = Pick<Engine, "createSequence" | "step" | "collected">;

/** How a run is done. */
export interface CollectOptions {
  readonly engine: CollectingEngine;
  readonly job: CollectJob;
  readonly windows: readonly CollectWindow[];
  /** What an earlier run of the same job had done. */
  readonly from?: CollectState | undefined;
  /** Called after each window. A promise is waited for. */
  readonly onWindow?: (state: CollectState) => void | Promise<void>;
  /** Stops the run behind a window. */
  readonly signal?: AbortSignal;
}

/** Which weights' inputs are summed up: those of layers, and the head's where `output`. */
export function collects(output: boolean): (weight: string) => boolean {
  return (name) => name.startsWith("blk.") || (output && /^(output|token_embd)\.weight$/.test(name));
}

/** SHA-256 of windows of tokens, with their lengths. */
export async function hashWindows(windows: readonly CollectWindow[]): Promise<string> {
  const words = Int32Array.from(windows.flatMap((w) => [w.ids.length, ...w.ids]));
  return new Uint8Array(await crypto.subtle.digest("SHA-256", words)).toHex();
}

/** What two jobs differ in; undefined where they are the same. */
export function jobDifference(a: CollectJob, b: CollectJob): string | undefined {
  for (const key of ["model_key", "n_ctx", "process_output", "tokens"] as const) {
    if (a[key] === b[key]) continue;
    return key === "model_key" ? `it was another model, ${a.model}` : `${key} was ${a[key]}, now it is ${b[key]}`;
  }
  return undefined;
}

/**
 * Runs the windows that are not done.
 * @throws {QuantizeError} `quantize.not_finite_sum` where an activation is too large or not a number
 */
export async function collectImatrix(options: CollectOptions): Promise<CollectState> {
  const { engine, job, windows, from, signal } = options;
  const sums = new Map([...from?.sums ?? []].map(([name, s]) =>
    [name, {
      sums: s.sums.slice(),
      counts: s.counts.slice(),
    }] as const
  ));
  let n_done = from?.n_done ?? 0, nll = from?.nll ?? 0, n_scored = from?.n_scored ?? 0;
  const state = (): CollectState => ({ job, n_done, nll, n_scored, sums });
  while (n_done < windows.length) {
    signal?.throwIfAborted();
    const { ids } = windows[n_done];
    using sequence = engine.createSequence();
    const targets = new Int32Array(ids.length).fill(-1);
    targets.set(ids.subarray(1));
    const [out] = await engine.step([{ sequence, tokens: ids, output: "all", targets, keep: false }]);
    for (const got of engine.collected(sequence)) {
      for (const name of got.weights) add(sums, name, got, n_done);
    }
    for (let i = 0; i + 1 < ids.length; i++) nll -= out.targetLogprob[i];
    n_scored += ids.length - 1;
    n_done++;
    await options.onWindow?.(state());
  }
  return state();
}

function add(
  to: Map<string, { sums: Float64Array; counts: Float64Array }>,
  name: string,
  got: CollectedSums,
  window: number,
): void {
  const bad = got.sums.findIndex((v) => !Number.isFinite(v));
  if (bad >= 0) {
    throw new QuantizeError(
      "quantize.not_finite_sum",
      `Cannot collect "${name}": its input is not finite in column ${bad % got.n_in} of window ${window}`,
      {
        at: { tensor: name, column: bad % got.n_in, matrix: Math.floor(bad / got.n_in), window },
        hint: "check the model with bloomery inspect --check",
      },
    );
  }
  const known = to.get(name);
  if (!known) {
    to.set(name, { sums: got.sums.slice(), counts: got.counts.slice() });
    return;
  }
  got.sums.forEach((v, i) => known.sums[i] += v);
  got.counts.forEach((v, i) => known.counts[i] += v);
}

/** What has been collected as an importance matrix; weights of experts that no row reached keep counts of 0. */
export function imatrixOf(state: CollectState, path: string): ImatrixFile {
  const { job, n_done } = state;
  const sums = new Map<string, ImatrixSums>(
    [...state.sums].filter(([, s]) => s.counts.some((n) => n > 0))
      .map(([name, s]) => [name, { sums: Float32Array.from(s.sums), counts: Float32Array.from(s.counts) }]),
  );
  return { path, format: "gguf", datasets: job.datasets, n_chunks: n_done, chunk_size: job.n_ctx, sums };
}

/** Experts that calibration reached, for one weight. */
export interface Coverage {
  readonly name: string;
  /** Matrices. */
  readonly n_mat: number;
  /** Those that no row reached. */
  readonly unreached: readonly number[];
  /** Rows of the matrix with the fewest, of the one in the middle, and of the one with the most. */
  readonly fewest: number;
  readonly median: number;
  readonly most: number;
}

/** Coverage of each routed weight, in the order of layers. */
export function coverage(file: ImatrixFile): Coverage[] {
  const layer = (name: string) => Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? -1);
  return [...file.sums].filter(([, s]) => s.counts.length > 1).map(([name, { counts }]) => {
    const sorted = [...counts].sort((a, b) => a - b);
    return {
      name,
      n_mat: counts.length,
      unreached: [...counts.keys()].filter((m) => counts[m] === 0),
      fewest: sorted[0],
      median: sorted[sorted.length >> 1],
      most: sorted[sorted.length - 1],
    };
  }).sort((a, b) => layer(a.name) - layer(b.name) || (a.name < b.name ? -1 : 1));
}

/** Lines of a table of coverage; layers with an expert that was not reached name it. */
export function coverageLines(rows: readonly Coverage[]): string[] {
  return rows.map((c) => {
    const reached = c.n_mat - c.unreached.length;
    const missing = c.unreached.length === 0 ? "" : `, not reached: ${c.unreached.join(" ")}`;
    return `${c.name}: ${reached} of ${c.n_mat} reached, rows ${c.fewest} / ${c.median} / ${c.most} (fewest, median, most)${missing}`;
  });
}
