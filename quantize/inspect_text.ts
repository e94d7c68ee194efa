/**
 * Reports of `inspect` as text for a terminal. File contents may be hostile: control characters are shown, not sent.
 * @module
 */
import type { GgufReport, ReportKey } from "./inspect.ts";
import type { CheckReport } from "./inspect_check.ts";
import type { GgufDifference } from "./inspect_diff.ts";

/** A text with control and format characters written as escapes. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0)!.toString(16)}}`);
}

/** Bytes in decimal units: `1.34 GB`. */
export function formatBytes(n: number): string {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let i = 0;
  let x = n;
  while (x >= 1000 && i < units.length - 1) {
    x /= 1000;
    i++;
  }
  return `${i === 0 ? x : x.toFixed(2)} ${units[i]}`;
}

/** A count in decimal units: `8.19 B`. */
export function formatCount(n: number): string {
  if (n < 1000) return String(n);
  const units = ["", "K", "M", "B", "T"];
  const i = Math.min(Math.floor(Math.log10(n) / 3), units.length - 1);
  return `${(n / 1000 ** i).toFixed(2)} ${units[i]}`;
}

/** Columns padded to their widest cell; columns in `right` are aligned to the right. */
export function table(
  rows: readonly (readonly string[])[],
  right: readonly number[] = [],
  indent: string = "  ",
): string {
  const widths = rows.reduce<number[]>((w, row) => row.map((cell, i) => Math.max(w[i] ?? 0, cell.length)), []);
  const line = (row: readonly string[]) =>
    row.map((cell, i) => right.includes(i) ? cell.padStart(widths[i]) : cell.padEnd(widths[i])).join("  ");
  return rows.map((row) => (indent + line(row)).trimEnd() + "\n").join("");
}

const LONGEST_VALUE = 80;

function clip(text: string): string {
  return text.length <= LONGEST_VALUE ? text : text.slice(0, LONGEST_VALUE - 3) + "...";
}

function valueText(k: ReportKey): string {
  if (!Array.isArray(k.value)) {
    return clip(printable(typeof k.value === "string" ? JSON.stringify(k.value) : `${k.value}`));
  }
  const more = k.length! > k.value.length ? ", ..." : "";
  return clip(printable(`[${k.value.map((x) => JSON.stringify(x)).join(", ")}${more}]`));
}

/** The report as text: summary, keys, tensors, totals per type. */
export function renderReport(r: GgufReport): string {
  const first = r.files[0];
  const facts: string[][] = [
    ["file", printable(first.path) + (r.files.length > 1 ? ` and ${r.files.length - 1} more` : "")],
    ["format", `GGUF version ${first.version}, alignment ${first.alignment}`],
    ["size", `${formatBytes(r.file_bytes)}, tensors ${formatBytes(r.tensor_bytes)}`],
    ["architecture", printable(r.architecture ?? "not given")],
    ...(r.name === undefined ? [] : [["name", printable(r.name)]]),
    ...(r.file_type === undefined ? [] : [["file type", r.file_type]]),
    ["parameters", formatCount(r.n_parameters)],
    ["bits per weight", r.bits_per_weight.toFixed(3)],
  ];
  const keys = r.metadata.map((k) => [
    printable(k.key),
    k.elem === undefined ? k.type : `${k.elem}[${k.length}]`,
    valueText(k),
  ]);
  const tensors = r.tensors.map((t) => [printable(t.name), t.type, `[${t.ne.join(", ")}]`, formatBytes(t.bytes)]);
  const types = r.types.map((t) => [
    t.type,
    String(t.n_tensors),
    formatCount(t.n_parameters),
    formatBytes(t.bytes),
    t.bits_per_weight.toFixed(3),
  ]);
  types.unshift(["type", "tensors", "parameters", "bytes", "bits per weight"]);
  return [
    table(facts, [], ""),
    `\n${r.metadata.length} keys\n`,
    table(keys),
    `\n${r.n_tensors} tensors\n`,
    table(tensors, [3]),
    ...(r.types.length > 0 ? ["\n", table(types, [1, 2, 3, 4])] : []),
  ].join("");
}

/** The outcome of a check as text. */
export function renderCheck(r: CheckReport): string {
  const line = (kind: string) => (p: CheckReport["problems"][number]) =>
    `${kind}: ${printable(p.path)}: ${p.tensor === undefined ? "" : `tensor "${printable(p.tensor)}": `}${p.message}\n`;
  const data = `${r.n_tensors} tensors, ${formatBytes(r.bytes)}`;
  return [
    ...r.problems.map(line("problem")),
    ...r.warnings.map(line("warning")),
    r.ok ? `ok: ${data}\n` : `${r.problems.length} of ${data} have problems\n`,
  ].join("");
}

function count(n: number, one: string, many: string): string {
  return `${n} ${n === 1 ? one : many}`;
}

/** What differs, as text. */
export function renderDiff(d: GgufDifference): string {
  const side = (x: { type: string; ne: readonly number[] } | undefined) =>
    x ? `${x.type} [${x.ne.join(", ")}]` : "absent";
  const out = [`a  ${printable(d.a)}\nb  ${printable(d.b)}\n`];
  if (d.metadata.length > 0) {
    out.push(`\n${count(d.metadata.length, "key differs", "keys differ")}\n`);
    for (const k of d.metadata) {
      out.push(`  ${printable(k.key)}\n    a  ${printable(k.a ?? "absent")}\n    b  ${printable(k.b ?? "absent")}\n`);
    }
  }
  if (d.tensors.length > 0) {
    out.push(`\n${count(d.tensors.length, "tensor differs", "tensors differ")}\n`);
    out.push(table(d.tensors.map((t) => [
      printable(t.name),
      t.bytes === undefined
        ? `${side(t.a)} -> ${side(t.b)}`
        : `${side(t.a)}: ${t.bytes} bytes, the first in row ${t.row}`,
    ])));
  }
  if (d.key_order) out.push("\nkeys are in another order\n");
  if (d.tensor_order) out.push("\ntensors are in another order\n");
  out.push(d.same ? "\nsame keys and tensors\n" : `\n${d.n_same} tensors are the same\n`);
  return out.join("");
}
