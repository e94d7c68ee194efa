/**
 * A comparison as one page that needs no network and no script: figures with their errors, the divergence by position, the
 * agreement by kind of token, and the worst positions with their text.
 * @module
 */
import type { Report, WindowResult } from "./compare.ts";
import { type Estimate, estimate, estimateText } from "./stats.ts";

/** What makes texts of tokens. */
export interface TokenTexts {
  /** The text of one token, for its kind. */
  text(id: number): string;
  /** Consecutive tokens as a text. */
  decode(ids: readonly number[]): string;
}

/** Positions in the list of the worst. */
const N_WORST = 20;
/** Tokens of text that are shown before a position. */
const N_CONTEXT = 24;
/** Groups of positions in the picture. */
const N_BINS = 24;

/** A value with its error and its name. */
interface Mark {
  readonly name: string;
  readonly value: Estimate;
  /** Positions behind it. */
  readonly n: number;
}

export function escapeHtml(text: string): string {
  const names: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return text.replace(/[&<>"']/g, (c) => names[c]);
}

/** The kind of a token, by the text that it stands for. */
export function tokenClass(text: string): string {
  if (/^\s*$/u.test(text)) return text === "" ? "no text of its own" : "white space";
  const rest = text.trimStart();
  if (/^\p{N}/u.test(rest)) return "digits";
  if (/^\p{Script=Latin}/u.test(rest)) return rest === text ? "within a Latin word" : "start of a Latin word";
  if (/^\p{L}/u.test(rest)) return "letters of other scripts";
  if (rest.includes("\uFFFD")) return "part of a character";
  return "punctuation and symbols";
}

/** Means of values by key, with errors clustered by window. @param pick The key and the value of a position; none to leave it out. */
function grouped(
  results: readonly WindowResult[],
  pick: (r: WindowResult, position: number) => readonly [key: string, value: number],
): Map<string, { value: Estimate; n: number }> {
  const groups = new Map<string, number[][]>();
  results.forEach((r, w) => {
    for (let i = 0; i < r.n_tokens; i++) {
      const [key, value] = pick(r, i);
      const clusters = groups.get(key) ?? [];
      if (!groups.has(key)) groups.set(key, clusters);
      (clusters[w] ??= []).push(value);
    }
  });
  return new Map([...groups].map(([key, sparse]) => {
    const clusters = Object.values(sparse);
    const counts = clusters.map((c) => c.length);
    const means = clusters.map((c) => c.reduce((a, b) => a + b, 0) / c.length);
    return [key, { value: estimate(means, counts), n: counts.reduce((a, b) => a + b, 0) }];
  }));
}

/** Horizontal bars from 0, each with its error. */
function bars(title: string, marks: readonly Mark[], digits: number, scale = 1, unit = ""): string {
  const left = 190, width = 430, row = 26;
  const most = Math.max(1e-12, ...marks.map((m) => (m.value.mean + (m.value.se ?? 0)) * scale));
  const x = (v: number) => (left + Math.min(1, Math.max(0, v * scale / most)) * width).toFixed(1);
  const body = marks.map((m, i) => {
    const y = i * row, { mean, se } = m.value, middle = y + row / 2;
    const error = se === null
      ? ""
      : `<path class="error" d="M${x(mean - se)} ${middle}H${x(mean + se)}M${x(mean - se)} ${middle - 4}v8M${
        x(mean + se)
      } ${middle - 4}v8"/>`;
    return `<text x="${left - 8}" y="${middle + 4}" text-anchor="end">${escapeHtml(m.name)}</text>` +
      `<rect x="${left}" y="${y + 5}" width="${(Number(x(mean)) - left).toFixed(1)}" height="${row - 10}"/>${error}` +
      `<text x="${left + width + 10}" y="${middle + 4}">${estimateText(m.value, digits, scale)}${unit}</text>`;
  });
  const height = marks.length * row;
  return `<figure><figcaption>${escapeHtml(title)}</figcaption><svg viewBox="0 0 ${
    left + width + 180
  } ${height}" role="img" ` +
    `aria-label="${escapeHtml(title)}">${body.join("")}</svg></figure>`;
}

/** Means along an axis, each with its error. */
function curve(title: string, marks: readonly Mark[]): string {
  const left = 70, width = 700, height = 180, bottom = 24;
  const most = Math.max(1e-12, ...marks.map((m) => m.value.mean + (m.value.se ?? 0)));
  const x = (i: number) => left + (i + 0.5) * width / marks.length;
  const y = (v: number) => height - Math.min(1, Math.max(0, v / most)) * (height - 10);
  const line = marks.map((m, i) => `${i === 0 ? "M" : "L"}${x(i).toFixed(1)} ${y(m.value.mean).toFixed(1)}`).join("");
  const points = marks.map((m, i) => {
    const { mean, se } = m.value, at = x(i).toFixed(1);
    const error = se === null
      ? ""
      : `<path class="error" d="M${at} ${y(mean - se).toFixed(1)}V${y(mean + se).toFixed(1)}"/>`;
    const told = `positions ${m.name}: ${estimateText(m.value, 5)}, ${m.n} tokens`;
    return `${error}<circle cx="${at}" cy="${y(mean).toFixed(1)}" r="3"><title>${escapeHtml(told)}</title></circle>`;
  });
  const first = marks[0]?.name ?? "", last = marks.at(-1)?.name ?? "";
  return `<figure><figcaption>${escapeHtml(title)}</figcaption><svg viewBox="0 0 ${left + width + 20} ${
    height + bottom
  }" ` +
    `role="img" aria-label="${escapeHtml(title)}"><path class="axis" d="M${left} 5V${height}H${left + width}"/>` +
    `<text x="${left - 6}" y="14" text-anchor="end">${most.toPrecision(3)}</text><text x="${left - 6}" y="${height}" ` +
    `text-anchor="end">0</text><text x="${left}" y="${height + 18}">${first}</text><text x="${left + width}" y="${
      height + 18
    }" text-anchor="end">${last}</text><path class="line" d="${line}"/>${points.join("")}</svg></figure>`;
}

/** The mean divergence of groups of neighbouring positions. */
function byPosition(results: readonly WindowResult[]): Mark[] {
  const first = Math.min(...results.map((r) => r.detail.skip)) + 1;
  const last = Math.max(...results.map((r) => r.detail.skip + r.n_tokens));
  const size = Math.max(1, Math.ceil((last - first + 1) / N_BINS));
  const groups = grouped(results, (r, i) => {
    const bin = Math.floor((r.detail.skip + 1 + i - first) / size);
    return [String(bin), r.detail.kls[i]];
  });
  return [...groups].sort(([a], [b]) => Number(a) - Number(b)).map(([bin, group]) => {
    const from = first + Number(bin) * size, to = Math.min(last, from + size - 1);
    return { name: from === to ? String(from) : `${from}–${to}`, ...group };
  });
}

function worst(results: readonly WindowResult[], tokens: TokenTexts): string {
  const all = results.flatMap((r) => r.detail.kls.map((kl, i) => ({ r, i, kl })));
  const rows = all.sort((a, b) => b.kl - a.kl).slice(0, N_WORST).map(({ r, i, kl }) => {
    const { ids, skip, same } = r.detail, at = skip + 1 + i;
    const before = tokens.decode(Array.from(ids.slice(Math.max(0, at - N_CONTEXT), at)));
    return `<tr><td>${escapeHtml(r.source)}</td><td>${r.index}</td><td>${at}</td><td>${kl.toFixed(4)}</td><td>${
      same[i] ? "yes" : "no"
    }</td><td class="text">${escapeHtml(before)}<mark>${escapeHtml(tokens.decode([ids[at]]))}</mark></td></tr>`;
  });
  return `<table><thead><tr><th>text</th><th>window</th><th>position</th><th>KL</th><th>same best</th><th>text before it, and ` +
    `the token that follows</th></tr></thead><tbody>${rows.join("")}</tbody></table>`;
}

function figures(report: Report): string {
  const head = [
    "text",
    "windows",
    "tokens",
    "PPL",
    "PPL base",
    "ratio",
    "ΔNLL",
    "KL",
    "KL 99 %",
    "largest",
    "same top-1 %",
  ];
  const rows = report.rows.map((r) => [
    r.source,
    r.n_windows,
    r.n_tokens,
    estimateText(r.ppl, 4),
    estimateText(r.ppl_base, 4),
    estimateText(r.ppl_ratio, 5),
    estimateText(r.delta_nll, 5),
    estimateText(r.kl, 5),
    estimateText(r.kl_p99, 4),
    r.kl_max.toFixed(4),
    estimateText(r.same_top, 2, 100),
  ]);
  const line = (tag: string, cells: readonly unknown[]) =>
    `<tr>${cells.map((c) => `<${tag}>${escapeHtml(String(c))}</${tag}>`).join("")}</tr>`;
  return `<table><thead>${line("th", head)}</thead><tbody>${rows.map((r) => line("td", r)).join("")}</tbody></table>`;
}

const STYLE = `:root{color-scheme:light dark;--bar:#3b6fb5;--ink:#222;--back:#fff;--mark:#ffd54d}
@media(prefers-color-scheme:dark){:root{--bar:#7ba7e0;--ink:#ddd;--back:#181a1d;--mark:#8a6d00}}
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:70rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #8884;white-space:nowrap}
th:first-child,td:first-child,td.text{text-align:left}td.text{white-space:pre-wrap;min-width:24rem;font-family:ui-monospace,monospace}
mark{background:var(--mark);color:inherit}figure{margin:1.5rem 0}figcaption{font-weight:600;margin-bottom:.4rem}
svg{width:100%;max-width:52rem;height:auto;font-size:13px}svg text{fill:var(--ink)}rect,circle{fill:var(--bar)}
.error,.axis{stroke:var(--ink);stroke-width:1.2;fill:none}.line{stroke:var(--bar);stroke-width:1.5;fill:none}`;

/** The page. */
export function renderHtml(report: Report, results: readonly WindowResult[], tokens: TokenTexts): string {
  const of = (value: (r: Report["rows"][number]) => Estimate): Mark[] =>
    report.rows.map((r) => ({ name: r.source, value: value(r), n: r.n_tokens }));
  const classes = grouped(results, (r, i) => {
    const { ids, skip, same } = r.detail;
    return [tokenClass(tokens.text(ids[skip + 1 + i])), same[i]];
  });
  const byClass = [...classes].map(([name, group]): Mark => ({ name: `${name} (${group.n})`, ...group }))
    .sort((a, b) => b.n - a.n);
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>${escapeHtml(report.model)} against ${escapeHtml(report.base)}</title><style>${STYLE}</style></head><body>
<h1>How far from the original</h1>
<p>Model: <code>${escapeHtml(report.model)}</code><br>Original: <code>${escapeHtml(report.base)}</code></p>
<p>± is the standard error over windows. KL is of the original's distribution from the model's, in nats a token, over ${
    escapeHtml(report.kl_support)
  }.</p>
${figures(report)}
${bars("KL by text", of((r) => r.kl), 5)}
${bars("Same best token by text", of((r) => r.same_top), 2, 100, " %")}
${curve("KL by position", byPosition(results))}
${bars("Same best token by kind of the token that follows (tokens)", byClass, 2, 100, " %")}
<h2>Worst positions</h2>
${worst(results, tokens)}
</body></html>
`;
}
