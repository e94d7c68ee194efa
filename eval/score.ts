/**
 * `score`: teacher forcing. Per position the log-probability of the token that follows and the best candidates, as one JSON
 * line a window; an interrupted run continues at the end of the file.
 * @module
 */
import type { Engine } from "../core/engine/mod.ts";
import { EvalError } from "../core/errors.ts";
import { scoredPositions, type Window } from "./windows.ts";

export const SCORE_SCHEMA = "bloomery.score/1";

/** First line of a score file: the settings of the run. A later run continues the file only with the same settings. */
export interface ScoreHeader {
  readonly schema: typeof SCORE_SCHEMA;
  readonly model: string;
  readonly n_vocab: number;
  /** The most tokens of a window; a short text and a prompt have fewer. */
  readonly n_window: number;
  /** Positions at a window's start that are not scored, where its line does not say otherwise. */
  readonly skip: number;
  /** Whether windows start with bos. */
  readonly bos: boolean;
  /** Candidates a position. */
  readonly top_k: number;
  readonly sources: readonly { readonly name: string; readonly n_windows: number }[];
}

/** One window: predictions at positions `skip .. ids.length - 2`, each of the token after it. */
export interface ScoreLine {
  /** Name of the text. */
  readonly source: string;
  /** Number of the window in its text. */
  readonly window: number;
  /** Its tokens. */
  readonly ids: readonly number[];
  /** Positions at its start that are not scored: those of a prompt before its completion. */
  readonly skip: number;
  /** `[n]` natural logarithms. */
  readonly logprob: readonly number[];
  /** `[n][top_k]`, best first. */
  readonly top_ids: readonly (readonly number[])[];
  /** `[n][top_k]` natural logarithms. */
  readonly top_logprob: readonly (readonly number[])[];
}

export interface ScoreFile {
  readonly header: ScoreHeader;
  readonly lines: readonly ScoreLine[];
}

/** What a score says of a window, besides its tokens. */
export interface WindowScore {
  readonly logprob: Float64Array;
  readonly topIds: Int32Array;
  /** `[n, k]` */
  readonly topLogprob: Float64Array;
}

/** Runs one window. @param topK at most the engine's. */
export async function scoreWindow(engine: Engine, ids: Int32Array, skip: number, topK: number): Promise<WindowScore> {
  return (await scoreTogether(engine, [{ ids, skip }], topK))[0];
}

/**
 * Runs windows as sequences of the same steps. What each gives does not depend on the others, by bits.
 * @param topK at most the engine's.
 */
export async function scoreTogether(
  engine: Engine,
  windows: readonly Pick<Window, "ids" | "skip">[],
  topK: number,
): Promise<WindowScore[]> {
  using disposables = new DisposableStack();
  const sequences = windows.map(() => disposables.use(engine.createSequence()));
  // Rows that nobody scores need no logits, whose computation is much of a small model's work.
  const before = windows.flatMap(({ ids, skip }, i) =>
    skip === 0 ? [] : [{ sequence: sequences[i], tokens: ids.subarray(0, skip), output: "none" as const, keep: false }]
  );
  if (before.length > 0) await engine.step(before);
  const outputs = await engine.step(windows.map(({ ids, skip }, i) => ({
    sequence: sequences[i],
    tokens: ids.subarray(skip, ids.length - 1),
    output: "all" as const,
    targets: ids.subarray(skip + 1),
    keep: false,
  })));
  return windows.map(({ ids, skip }, w) => {
    const out = outputs[w], n = scoredPositions(ids.length, skip);
    const topIds = new Int32Array(n * topK), topLogprob = new Float64Array(n * topK);
    for (let i = 0; i < n; i++) {
      for (let k = 0; k < topK; k++) {
        topIds[i * topK + k] = out.ids[i * engine.topK + k];
        topLogprob[i * topK + k] = out.logits[i * engine.topK + k] - out.lse[i];
      }
    }
    return { logprob: Float64Array.from(out.targetLogprob), topIds, topLogprob };
  });
}

/** Windows in their order, in groups that one step runs: at most `n_seq` windows and, beyond one, `n_ubatch` tokens. */
export function* inGroups<W extends { readonly ids: ArrayLike<number> }>(
  windows: readonly W[],
  limits: { readonly n_seq: number; readonly n_ubatch: number },
): Generator<readonly W[], void> {
  for (let from = 0; from < windows.length;) {
    let to = from, n_tok = 0;
    do n_tok += windows[to++].ids.length; while (
      to < windows.length && to - from < limits.n_seq && n_tok + windows[to].ids.length <= limits.n_ubatch
    );
    yield windows.slice(from, to);
    from = to;
  }
}

/**
 * Six decimals keep a file small and differences of 1e-6 visible. A logarithm of a probability is at most 0, also where the
 * sum of all rounded the other way.
 */
const rounded = (x: number) => Math.min(0, Math.round(x * 1e6) / 1e6);

/** @throws {EvalError} `eval.non_finite` where the model has no probability to give, which JSON could not hold either */
function toLine(w: Window, s: WindowScore, topK: number): ScoreLine {
  for (
    const [kind, values, width] of [["next token", s.logprob, 1], ["best candidates", s.topLogprob, topK]] as const
  ) {
    const at = values.findIndex((x) => !Number.isFinite(x));
    if (at < 0) continue;
    const position = Math.floor(at / width);
    throw new EvalError(
      "eval.non_finite",
      `Cannot score window ${w.index} of ${w.source}: at scored position ${position} the log-probability of the ${kind} ` +
        `is ${values[at]}`,
      { at: { source: w.source, window: w.index, position, got: String(values[at]) }, hint: "the model is damaged" },
    );
  }
  const rows = <A extends ArrayLike<number>>(a: A, f: (x: number) => number) =>
    Array.from(s.logprob, (_, i) => Array.from({ length: topK }, (_, k) => f(a[i * topK + k])));
  return {
    source: w.source,
    window: w.index,
    ids: [...w.ids],
    skip: w.skip,
    logprob: Array.from(s.logprob, rounded),
    top_ids: rows(s.topIds, (x) => x),
    top_logprob: rows(s.topLogprob, rounded),
  };
}

/**
 * Checks that an existing file is the beginning of this run.
 * @returns how many windows it holds.
 * @throws {EvalError} `eval.resume_mismatch` naming the first field that differs
 */
export function resumePoint(file: ScoreFile, header: ScoreHeader, windows: readonly Window[], name: string): number {
  const refuse = (field: string, found: unknown, expected: unknown) =>
    new EvalError(
      "eval.resume_mismatch",
      `Cannot continue ${name}: ${field} is ${JSON.stringify(found)}, expected ${JSON.stringify(expected)}`,
      {
        at: { file: name, field, got: found, expected },
        hint: "write to another file, or use --overwrite",
      },
    );
  for (const key of Object.keys(header) as (keyof ScoreHeader)[]) {
    if (JSON.stringify(file.header[key]) !== JSON.stringify(header[key])) {
      throw refuse(key, file.header[key], header[key]);
    }
  }
  file.lines.forEach((line, i) => {
    const w = windows[i];
    const same = w !== undefined && w.source === line.source && w.index === line.window && w.skip === line.skip &&
      w.ids.length === line.ids.length && line.ids.every((id, j) => id === w.ids[j]);
    if (!same) {
      throw refuse(
        `line ${i + 2}`,
        `window ${line.window} of ${line.source}`,
        w ? "the same tokens" : "no further window",
      );
    }
  });
  return file.lines.length;
}

/**
 * Runs windows from `from` on, up to `n_seq` of them at once, and gives each one's line as it is done.
 * @param options `n_seq`: as many as the engine has room for; 1 where left out.
 */
export async function* scoreWindows(
  engine: Engine,
  windows: readonly Window[],
  options: { topK: number; n_seq?: number; from?: number; signal?: AbortSignal },
): AsyncGenerator<ScoreLine, void> {
  const limits = { n_seq: options.n_seq ?? 1, n_ubatch: engine.n_ubatch };
  for (const group of inGroups(windows.slice(options.from ?? 0), limits)) {
    if (options.signal?.aborted) return;
    const scores = await scoreTogether(engine, group, options.topK);
    for (const [i, w] of group.entries()) yield toLine(w, scores[i], options.topK);
  }
}
