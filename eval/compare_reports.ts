/**
 * Two reports of `eval --json` over the same windows and the same original: whether the two models differ in how far they are
 * from it. Paired by window, so that what makes a window hard for both does not count.
 * @module
 */
import { EvalError } from "../core/errors.ts";
import { renderTable, type ReportWindow } from "./compare.ts";
import { Fields, type FieldsOf } from "./fields.ts";
import { type Estimate, estimate, estimateText, studentP } from "./stats.ts";

/** What of a report is compared. */
export interface ComparableReport {
  readonly model: string;
  readonly base: string;
  readonly kl_support: string;
  readonly windows: readonly ReportWindow[];
}

/** One figure of both, and their difference. */
export interface Difference {
  readonly a: number;
  readonly b: number;
  /** `b - a`, paired by window. */
  readonly difference: Estimate;
  /** Probability of a difference as large where there is none; null for a single window. */
  readonly p: number | null;
  /** Which of the two is nearer to the original, at a level of 5 %. */
  readonly nearer: "a" | "b" | "neither";
}

/** The figures of one text, or of all. */
export interface DifferenceRow {
  readonly source: string;
  readonly n_windows: number;
  readonly n_tokens: number;
  readonly kl: Difference;
  readonly nll: Difference;
  readonly same_top: Difference;
}

const LEVEL = 0.05;
const KIND: FieldsOf = { code: "eval.report", hint: "give a file with what bloomery eval --json printed" };

/** @throws {EvalError} `eval.report` naming the field */
export function parseReport(text: string, name: string): ComparableReport {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new EvalError(KIND.code, `Cannot read ${name}: ${(cause as Error).message}`, {
      at: { file: name },
      hint: KIND.hint,
      cause,
    });
  }
  const f = new Fields(name, 1, value, KIND);
  const schema = f.str("schema");
  if (schema !== "bloomery.eval/1") throw f.wrong("schema", schema, '"bloomery.eval/1"');
  const windows = f.list("windows").map((w, i): ReportWindow => {
    const at = new Fields(`${name}, window ${i}`, 1, w, KIND);
    return {
      source: at.str("source"),
      index: at.int("index", 0),
      n_tokens: at.int("n_tokens", 1),
      nll: at.number("nll"),
      nll_base: at.number("nll_base"),
      kl: at.number("kl"),
      same_top: at.number("same_top"),
    };
  });
  if (windows.length === 0) throw f.wrong("windows", "no window", "at least one");
  return { model: f.str("model"), base: f.str("base"), kl_support: f.str("kl_support"), windows };
}

/** @throws {EvalError} `eval.reports_differ` where two reports have not the same windows, original or kind of divergence */
function checkSame(a: ComparableReport, b: ComparableReport, names: [string, string]): void {
  const refuse = (what: string) =>
    new EvalError("eval.reports_differ", `Cannot compare ${names[0]} with ${names[1]}: ${what}`, {
      at: { a: names[0], b: names[1] },
      hint: "run bloomery eval of both models on the same texts, windows and original",
    });
  if (a.base !== b.base) throw refuse(`the originals are ${a.base} and ${b.base}`);
  if (a.kl_support !== b.kl_support) throw refuse(`the divergence is over ${a.kl_support} and over ${b.kl_support}`);
  if (a.windows.length !== b.windows.length) {
    throw refuse(`they have ${a.windows.length} and ${b.windows.length} windows`);
  }
  a.windows.forEach((w, i) => {
    const other = b.windows[i];
    if (w.source === other.source && w.index === other.index && w.n_tokens === other.n_tokens) return;
    throw refuse(`window ${i} is ${w.source} ${w.index} and ${other.source} ${other.index}`);
  });
}

/** One row per text, and a last one over all when there are several. */
export function compareReports(a: ComparableReport, b: ComparableReport, names: [string, string]): DifferenceRow[] {
  checkSame(a, b, names);
  const row = (source: string, of: readonly number[]): DifferenceRow => {
    const weights = of.map((i) => a.windows[i].n_tokens);
    /** @param sign 1 where less is nearer, -1 where more is. */
    const figure = (value: (w: ReportWindow) => number, sign: 1 | -1): Difference => {
      const mean = (windows: readonly ReportWindow[]) => estimate(of.map((i) => value(windows[i])), weights).mean;
      const difference = estimate(of.map((i) => value(b.windows[i]) - value(a.windows[i])), weights);
      const { mean: d, se } = difference;
      // Differences that are all 0 have an error of 0: nothing differs.
      const p = se === null ? null : d === 0 ? 1 : studentP(d / se, of.length - 1);
      return {
        a: mean(a.windows),
        b: mean(b.windows),
        difference,
        p,
        nearer: p === null || !(p < LEVEL) ? "neither" : d * sign > 0 ? "a" : "b",
      };
    };
    return {
      source,
      n_windows: of.length,
      n_tokens: weights.reduce((n, x) => n + x, 0),
      kl: figure((w) => w.kl, 1),
      nll: figure((w) => w.nll, 1),
      same_top: figure((w) => w.same_top, -1),
    };
  };
  const sources = [...new Set(a.windows.map((w) => w.source))];
  const all = [...a.windows.keys()];
  const rows = sources.map((s) => row(s, all.filter((i) => a.windows[i].source === s)));
  return sources.length > 1 ? [...rows, row("all", all)] : rows;
}

/** Rows as a table of text. */
export function renderDifferences(rows: readonly DifferenceRow[], names: [string, string]): string {
  const cells = (source: string, name: string, d: Difference, digits: number, scale: number) => [
    source,
    name,
    (d.a * scale).toFixed(digits),
    (d.b * scale).toFixed(digits),
    estimateText(d.difference, digits, scale),
    d.p === null ? "-" : d.p < 1e-4 ? "< 0.0001" : d.p.toFixed(4),
    d.nearer === "neither" ? "no difference seen" : `${d.nearer.toUpperCase()} is better`,
  ];
  const table = rows.flatMap((r) => [
    cells(r.source, "KL", r.kl, 5, 1),
    cells(r.source, "NLL", r.nll, 5, 1),
    cells(r.source, "same top-1 %", r.same_top, 2, 100),
  ]);
  return [
    `A  ${names[0]}`,
    `B  ${names[1]}`,
    `paired by window; ± is the standard error over windows; p is two-sided, of Student's t; p below ${LEVEL} counts as a difference`,
    "",
    ...renderTable([["text", "figure", "A", "B", "B - A", "p", ""], ...table]),
  ].join("\n") + "\n";
}
