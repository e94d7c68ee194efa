/**
 * `eval`: how far one model is from another, or from a score file, on the same windows.
 *
 * Against a model the KL divergence is over the whole vocabulary. A score file holds only the best candidates of each position:
 * there it is over those and one bucket for the rest, which is a lower bound; the report says which it is.
 * @module
 */
import type { Engine } from "../core/engine/mod.ts";
import { EvalError } from "../core/errors.ts";
import type { Backend } from "../core/program/backend.ts";
import type { ScoreLine } from "./score.ts";
import { type Estimate, estimate, estimateText, expEstimate, meanOf, quantileEstimate } from "./stats.ts";
import { compareKldRow, type KldRow } from "./kld_file.ts";
import { type ScoredRows, scoredRows } from "./rows.ts";
import { firstPosition, type Window } from "./windows.ts";

/** Means of one window. */
export interface WindowResult {
  /** Name of the text. */
  readonly source: string;
  /** Number of the window in its text. */
  readonly index: number;
  /** Mean negative log-likelihood of the model, nats a token. */
  readonly nll: number;
  /** Of what it is compared with. */
  readonly nllBase: number;
  /** KL(base || model), nats a token. */
  readonly kl: number;
  /** Share of positions with the same best token. */
  readonly sameTop: number;
  /** Positions that were scored. */
  readonly n_tokens: number;
  /** Them one by one. */
  readonly detail: WindowDetail;
}

/** The positions of a window that were scored. */
export interface WindowDetail {
  /** The window's tokens. */
  readonly ids: ArrayLike<number> & { slice(from: number, to: number): ArrayLike<number> };
  /** Positions at its start that were not scored. */
  readonly skip: number;
  /** KL at each that was. */
  readonly kls: readonly number[];
  /** 1 where both have the same best token. */
  readonly same: readonly number[];
}

/** Results of one text, or of all. */
export interface Row {
  /** Name of the text, or `all`. */
  readonly source: string;
  /** Windows run. */
  readonly n_windows: number;
  /** Positions that were scored. */
  readonly n_tokens: number;
  /** Perplexity of the model. */
  readonly ppl: Estimate;
  /** Perplexity of what it is compared with. */
  readonly ppl_base: Estimate;
  /** Mean negative log-likelihood of the model, nats a token. */
  readonly nll: Estimate;
  /** The same of what it is compared with. */
  readonly nll_base: Estimate;
  /** `nll - nll_base`, paired by window. */
  readonly delta_nll: Estimate;
  /** Perplexity of the model over that of what it is compared with, paired by window. */
  readonly ppl_ratio: Estimate;
  /** KL(base || model), nats a token. */
  readonly kl: Estimate;
  /** Of the KL at positions: half, 90 %, 99 % and 99.9 % of them are not above. */
  readonly kl_p50: Estimate;
  /** 90 % */
  readonly kl_p90: Estimate;
  /** 99 % */
  readonly kl_p99: Estimate;
  /** 99.9 % */
  readonly kl_p999: Estimate;
  /** The largest. */
  readonly kl_max: number;
  /** Share of positions with the same best token. */
  readonly same_top: Estimate;
}

/** A comparison, as `eval --json` prints it. */
export interface Report {
  /** Names the form. */
  readonly schema: "bloomery.eval/1";
  /** Path of the model. */
  readonly model: string;
  /** Path of what it is compared with. */
  readonly base: string;
  /** Over what the divergence was computed. */
  readonly kl_support: string;
  /** Tokens of a window. */
  readonly n_window: number;
  /** Positions at a window's start that are not scored. */
  readonly skip: number;
  /** Whether windows start with bos. */
  readonly bos: boolean;
  /** One per text, and one for all where there are several. */
  readonly rows: readonly Row[];
  /** Means of each window, by which two reports can be compared in pairs. */
  readonly windows: readonly ReportWindow[];
}

/** A window of a report: means over its positions. */
export interface ReportWindow {
  /** Name of the text. */
  readonly source: string;
  /** Number of the window in its text. */
  readonly index: number;
  /** Positions that were scored. */
  readonly n_tokens: number;
  /** Mean negative log-likelihood of the model, nats a token. */
  readonly nll: number;
  /** The same of what it is compared with. */
  readonly nll_base: number;
  /** KL(base || model), nats a token. */
  readonly kl: number;
  /** Share of positions with the same best token. */
  readonly same_top: number;
}

/** A window as a report has it. */
export function reportWindow(r: WindowResult): ReportWindow {
  const { source, index, n_tokens, nll, nllBase: nll_base, kl, sameTop: same_top } = r;
  return { source, index, n_tokens, nll, nll_base, kl, same_top };
}

/** One row per source, and a last one over all when there are several. */
export function summarize(results: readonly WindowResult[]): Row[] {
  const sources = [...new Set(results.map((r) => r.source))];
  const row = (source: string, of: readonly WindowResult[]): Row => {
    const weights = of.map((r) => r.n_tokens);
    const over = (value: (r: WindowResult) => number) => estimate(of.map(value), weights);
    const deltaNll = over((r) => r.nll - r.nllBase);
    const kls = of.map((r) => r.detail.kls);
    const nll = over((r) => r.nll), nllBase = over((r) => r.nllBase);
    return {
      source,
      n_windows: of.length,
      n_tokens: of.reduce((n, r) => n + r.n_tokens, 0),
      ppl: expEstimate(nll),
      ppl_base: expEstimate(nllBase),
      nll,
      nll_base: nllBase,
      delta_nll: deltaNll,
      ppl_ratio: expEstimate(deltaNll),
      kl: over((r) => r.kl),
      kl_p50: quantileEstimate(kls, 0.5),
      kl_p90: quantileEstimate(kls, 0.9),
      kl_p99: quantileEstimate(kls, 0.99),
      kl_p999: quantileEstimate(kls, 0.999),
      kl_max: kls.flat().reduce((a, b) => Math.max(a, b), 0),
      same_top: over((r) => r.sameTop),
    };
  };
  const rows = sources.map((s) => row(s, results.filter((r) => r.source === s)));
  return sources.length > 1 ? [...rows, row("all", results)] : rows;
}

/** What the rows of a window gave so far. */
interface Gathered {
  readonly logprob: number[];
  readonly logprobBase: number[];
  readonly kls: number[];
  readonly same: number[];
}

const gathered = (windows: readonly Window[]): Gathered[] =>
  windows.map(() => ({ logprob: [], logprobBase: [], kls: [], same: [] }));

function results(windows: readonly Window[], of: readonly Gathered[]): WindowResult[] {
  return windows.map(({ source, index, ids, skip }, i) => {
    const { logprob, logprobBase, kls, same } = of[i];
    return {
      source,
      index,
      nll: -meanOf(logprob),
      nllBase: -meanOf(logprobBase),
      kl: meanOf(kls),
      sameTop: meanOf(same),
      n_tokens: logprob.length,
      detail: { ids, skip, kls, same },
    };
  });
}

/** Compares two models over windows that are run together. */
export async function compareModels(
  backend: Backend,
  model: Engine,
  base: Engine,
  windows: readonly Window[],
): Promise<WindowResult[]> {
  const of = gathered(windows);
  const baseRows = scoredRows(base, windows);
  // Both have one vocabulary, so both cut their rows alike.
  for await (const { window, out: q } of scoredRows(model, windows)) {
    const { out: p } = (await baseRows.next()).value as ScoredRows;
    const d = await backend.compareLogits(p.full!, q.full!, model.n_vocab);
    of[window].kls.push(...d.kl);
    of[window].same.push(...d.sameTop);
    of[window].logprob.push(...q.targetLogprob);
    of[window].logprobBase.push(...p.targetLogprob);
  }
  await baseRows.return();
  return results(windows, of);
}

/** KL of two distributions that agree to be seen only through `ids` and the rest, `p` giving the ids. */
function bucketKl(p: readonly number[], q: readonly number[]): number {
  let kl = 0, restP = 1, restQ = 1;
  p.forEach((lp, i) => {
    const a = Math.exp(lp), b = Math.exp(q[i]);
    restP -= a;
    restQ -= b;
    if (a > 0) kl += a * (lp - q[i]);
  });
  // Rounded sums may end a little below zero: nothing is left then.
  if (restP > 1e-6 && restQ > 1e-6) kl += restP * Math.log(restP / restQ);
  return Math.max(kl, 0);
}

/** The window that a line of a score file was made of. */
export function windowOf(line: ScoreLine): Window {
  return { source: line.source, index: line.window, ids: Int32Array.from(line.ids), skip: line.skip };
}

/** Compares a model with windows of a score file, run together. */
export async function compareWithScore(model: Engine, lines: readonly ScoreLine[]): Promise<WindowResult[]> {
  const windows = lines.map(windowOf), of = gathered(windows);
  for await (const { window, out } of scoredRows(model, windows)) {
    const { logprob, logprobBase, kls, same } = of[window], line = lines[window];
    for (let r = 0; r < out.n_rows; r++) {
      const row = out.full!.subarray(r * model.n_vocab, (r + 1) * model.n_vocab);
      const i = logprob.length;
      kls.push(bucketKl(line.top_logprob[i], line.top_ids[i].map((id) => row[id] - out.lse[r])));
      same.push(out.ids[r * model.topK] === line.top_ids[i][0] ? 1 : 0);
      logprobBase.push(line.logprob[i]);
      logprob.push(out.targetLogprob[r]);
    }
  }
  return results(windows, of);
}

/** Compares a model with chunks of a file of whole rows, run together. @param base The rows of one of the windows. */
export async function compareWithRows(
  model: Engine,
  windows: readonly Window[],
  base: (w: Window) => readonly KldRow[],
): Promise<WindowResult[]> {
  const of = gathered(windows);
  const rowsOf: (readonly KldRow[])[] = [];
  for await (const { window, out } of scoredRows(model, windows)) {
    const { logprob, logprobBase, kls, same } = of[window], { ids, skip } = windows[window];
    const rows = rowsOf[window] ??= base(windows[window]);
    for (let r = 0; r < out.n_rows; r++) {
      const row = out.full!.subarray(r * model.n_vocab, (r + 1) * model.n_vocab);
      const i = logprob.length;
      const p = compareKldRow(rows[i], row, out.lse[r], out.ids[r * model.topK], ids[skip + i + 1]);
      kls.push(p.kl);
      same.push(p.sameTop ? 1 : 0);
      logprobBase.push(p.logprobBase);
      logprob.push(out.targetLogprob[r]);
    }
  }
  return results(windows, of);
}

/**
 * Two models can be compared token by token only when they share a vocabulary.
 * @throws {EvalError} `eval.vocabulary`
 */
export function checkSameWindows(model: readonly Window[], base: readonly Window[], names: [string, string]): void {
  const differs = model.length !== base.length ||
    model.some((w, i) => w.ids.length !== base[i].ids.length || w.ids.some((id, j) => id !== base[i].ids[j]));
  if (!differs) return;
  throw new EvalError(
    "eval.vocabulary",
    `Cannot compare ${names[0]} with ${names[1]}: they cut the texts into different tokens`,
    {
      at: { model: names[0], base: names[1] },
      hint: "compare models that share a tokenizer; across tokenizers only bits per byte can be compared",
    },
  );
}

/** The same for a file of scores or of whole rows. */
export function checkScoreFits(n_base: number, n_vocab: number, names: [string, string]): void {
  if (n_base === n_vocab) return;
  throw new EvalError(
    "eval.vocabulary",
    `Cannot compare ${names[0]} with ${names[1]}: ${n_vocab} tokens in its vocabulary, ${n_base} in the file's`,
    {
      at: { got: n_vocab, expected: n_base },
      hint: "compare models that share a tokenizer",
    },
  );
}

/** Whether a figure keeps its limit. One that is not a number keeps none. */
export function isWithin(figure: number, limit: number): boolean {
  return figure <= limit;
}

/** Rows of cells as lines; the first column is of names. */
export function renderTable(table: readonly (readonly string[])[]): string[] {
  const widths = table[0].map((_, i) => Math.max(...table.map((r) => [...r[i]].length)));
  return table.map((r) =>
    r.map((cell, i) => i === 0 ? cell.padEnd(widths[i]) : cell.padStart(widths[i])).join("  ").trimEnd()
  );
}

/** The report as a table of text. */
export function renderReport(report: Report): string {
  const head = ["text", "windows", "tokens", "PPL", "PPL base", "ratio", "dNLL", "KL", "same top-1"];
  const tail = ["text", "KL 50 %", "90 %", "99 %", "99.9 %", "largest"];
  const rows = report.rows.map((r) => [
    r.source,
    String(r.n_windows),
    String(r.n_tokens),
    estimateText(r.ppl, 4),
    estimateText(r.ppl_base, 4),
    estimateText(r.ppl_ratio, 5),
    estimateText(r.delta_nll, 5),
    estimateText(r.kl, 5),
    estimateText(r.same_top, 2, 100) + " %",
  ]);
  const quantiles = report.rows.map((r) => [
    r.source,
    ...[r.kl_p50, r.kl_p90, r.kl_p99, r.kl_p999].map((e) => estimateText(e, 5)),
    r.kl_max.toFixed(5),
  ]);
  return [
    `model  ${report.model}`,
    `base   ${report.base}`,
    `windows of at most ${report.n_window} tokens; ${firstPosition(report.bos)}${
      report.skip > 0 ? `, nor are the ${report.skip} after it` : ""
    }; ± is the standard error over windows; KL over ${report.kl_support}`,
    "",
    ...renderTable([head, ...rows]),
    "",
    ...renderTable([tail, ...quantiles]),
  ].join("\n") + "\n";
}
