/**
 * `score`: teacher forcing. Per position the log-probability of the token that follows and the best candidates, as one JSON
 * line a window; a run that was cut goes on where the file ends.
 * @module
 */
import type { Engine } from "../core/engine/mod.ts";
import { EvalError } from "../core/errors.ts";
import type { Window } from "./windows.ts";

export const SCORE_SCHEMA = "bloomery.score/1";

/** First line of a score file: what the rest is about, and what must be equal to go on with it. */
export interface ScoreHeader {
  readonly schema: typeof SCORE_SCHEMA;
  readonly model: string;
  readonly n_vocab: number;
  readonly n_window: number;
  readonly skip: number;
  /** Whether windows start with bos. */
  readonly bos: boolean;
  /** Candidates a position. */
  readonly top_k: number;
  readonly sources: readonly { readonly name: string; readonly n_windows: number }[];
}

/** One window: predictions at positions `skip .. n_window - 2`, each of the token after it. */
export interface ScoreLine {
  readonly source: string;
  readonly window: number;
  readonly ids: readonly number[];
  /** `[n]` natural logarithms. */
  readonly logprob: readonly number[];
  /** `[n][top_k]`, best first. */
  readonly top_ids: readonly (readonly number[])[];
  readonly top_logprob: readonly (readonly number[])[];
}

/** What a score says of a window, besides its tokens. */
export interface WindowScore {
  readonly logprob: Float64Array;
  readonly topIds: Int32Array;
  /** `[n, k]` */
  readonly topLogprob: Float64Array;
}

/** Positions of a window that are scored. */
export function scoredPositions(n_window: number, skip: number): number {
  return n_window - 1 - skip;
}

/** Runs one window. @param topK at most the engine's. */
export async function scoreWindow(engine: Engine, ids: Int32Array, skip: number, topK: number): Promise<WindowScore> {
  using sequence = engine.createSequence();
  const targets = Int32Array.from(ids, (_, i) => (i >= skip && i + 1 < ids.length) ? ids[i + 1] : -1);
  const [out] = await engine.step([{ sequence, tokens: ids, output: "all", targets }]);
  const n = scoredPositions(ids.length, skip);
  const topIds = new Int32Array(n * topK), topLogprob = new Float64Array(n * topK);
  for (let i = 0; i < n; i++) {
    for (let k = 0; k < topK; k++) {
      topIds[i * topK + k] = out.ids[(skip + i) * engine.topK + k];
      topLogprob[i * topK + k] = out.logits[(skip + i) * engine.topK + k] - out.lse[skip + i];
    }
  }
  return { logprob: Float64Array.from(out.targetLogprob.subarray(skip, skip + n)), topIds, topLogprob };
}

/** Six significant decimals keep a file small and differences of 1e-6 visible. */
const rounded = (x: number) => Math.round(x * 1e6) / 1e6;

function toLine(w: Window, s: WindowScore, topK: number): ScoreLine {
  const rows = <A extends ArrayLike<number>>(a: A, f: (x: number) => number) =>
    Array.from(s.logprob, (_, i) => Array.from({ length: topK }, (_, k) => f(a[i * topK + k])));
  return {
    source: w.source,
    window: w.index,
    ids: [...w.ids],
    logprob: Array.from(s.logprob, rounded),
    top_ids: rows(s.topIds, (x) => x),
    top_logprob: rows(s.topLogprob, rounded),
  };
}

export interface ScoreFile {
  readonly header: ScoreHeader;
  readonly lines: readonly ScoreLine[];
}

/**
 * Parses a score file; an incomplete last line, as a killed run leaves it, is dropped.
 * @throws {EvalError} `eval.score_file`
 */
export function parseScoreFile(text: string, name: string): ScoreFile {
  const refuse = (line: number, found: string) =>
    new EvalError("eval.score_file", `Cannot read ${name}, line ${line}: found ${found}, expected ${SCORE_SCHEMA}`, {
      at: { file: name, line },
      hint: "give a file that bloomery score wrote",
    });
  const rows = text.split("\n");
  const complete = rows.slice(0, -1);
  let header: ScoreHeader | undefined;
  const lines: ScoreLine[] = [];
  complete.forEach((row, i) => {
    let value: unknown;
    try {
      value = JSON.parse(row);
    } catch {
      throw refuse(i + 1, "no JSON");
    }
    if (i === 0) {
      header = value as ScoreHeader;
      if (header?.schema !== SCORE_SCHEMA) throw refuse(1, JSON.stringify(header?.schema ?? null));
    } else {
      const line = value as ScoreLine;
      const n = scoredPositions(header!.n_window, header!.skip);
      const whole = Array.isArray(line?.ids) && line.ids.length === header!.n_window &&
        line.logprob?.length === n && line.top_ids?.length === n && line.top_logprob?.length === n;
      if (!whole) throw refuse(i + 1, "a window of another size");
      lines.push(line);
    }
  });
  if (!header) throw refuse(1, "nothing");
  return { header, lines };
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
      `Cannot go on with ${name}: ${field} is ${JSON.stringify(found)}, expected ${JSON.stringify(expected)}`,
      {
        at: { file: name, field, got: found, expected },
        hint: "write to another file, or use --restart",
      },
    );
  for (const key of Object.keys(header) as (keyof ScoreHeader)[]) {
    if (JSON.stringify(file.header[key]) !== JSON.stringify(header[key])) {
      throw refuse(key, file.header[key], header[key]);
    }
  }
  file.lines.forEach((line, i) => {
    const w = windows[i];
    if (!w || w.source !== line.source || w.index !== line.window || line.ids.some((id, j) => id !== w.ids[j])) {
      throw refuse(
        `line ${i + 2}`,
        `window ${line.window} of ${line.source}`,
        w ? "the same tokens" : "no further window",
      );
    }
  });
  return file.lines.length;
}

/** Runs windows from `from` on and gives each one's line as it is done. */
export async function* scoreWindows(
  engine: Engine,
  windows: readonly Window[],
  options: { skip: number; topK: number; from?: number; signal?: AbortSignal },
): AsyncGenerator<ScoreLine, void> {
  for (let i = options.from ?? 0; i < windows.length; i++) {
    if (options.signal?.aborted) return;
    const w = windows[i];
    yield toLine(w, await scoreWindow(engine, w.ids, options.skip, options.topK), options.topK);
  }
}
