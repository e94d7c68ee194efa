/**
 * The result of a quantization in figures: sizes, bits per weight, types used, tensors that fell back.
 * @module
 */
import { elementCount } from "../core/gguf/layout.ts";
import type { PlannedTensor, QuantizePlan, UnreachedExperts } from "./plan.ts";

/** All tensors of one type. */
export interface TypeTotal {
  /** Its name. */
  readonly type: string;
  /** How many. */
  readonly n_tensors: number;
  /** Weights in them. */
  readonly n_params: number;
  /** In the output. */
  readonly bytes: number;
}

/** Tensors whose rows did not fit the blocks of their planned type. */
export interface Fallback {
  /** The type that rows did not fit. */
  readonly from: string;
  /** The type they got. */
  readonly to: string;
  /** How many. */
  readonly n_tensors: number;
  /** Weights in them. */
  readonly n_params: number;
  /** More bytes than the planned type would take. */
  readonly extra_bytes: number;
}

/** The result of a quantization in figures. */
export interface QuantizeSummary {
  /** Of the output. */
  readonly n_tensors: number;
  /** Tensors that were encoded anew. */
  readonly n_converted: number;
  /** Weights of the model. */
  readonly n_params: number;
  /** Of the source's tensors. */
  readonly source_bytes: number;
  /** Of the output's tensors. */
  readonly bytes: number;
  /** Bits per weight of the source. */
  readonly source_bpw: number;
  /** Bits per weight of the output. */
  readonly bpw: number;
  /** Bits per weight if no tensor had fallen back. */
  readonly nominal_bpw: number;
  /** By type, largest first. */
  readonly types: readonly TypeTotal[];
  /** By planned and actual type. */
  readonly fallbacks: readonly Fallback[];
  /** Experts that the calibration never reached, by layer. */
  readonly unreached_experts: readonly UnreachedExperts[];
}

/** Bytes a tensor would take in the type it was planned for, blocks or not. */
function plannedBytes(t: PlannedTensor): number {
  return (elementCount(t.ne) / t.planned.block) * t.planned.bytes;
}

export function summarize(plan: QuantizePlan): QuantizeSummary {
  const types = new Map<string, { n_tensors: number; n_params: number; bytes: number }>();
  const fallbacks = new Map<
    string,
    { from: string; to: string } & Record<"n_tensors" | "n_params" | "extra", number>
  >();
  let n_params = 0, bytes = 0, source_bytes = 0, nominal = 0, n_converted = 0;
  for (const t of plan.tensors) {
    const n = elementCount(t.ne);
    n_params += n;
    bytes += t.bytes;
    source_bytes += t.sourceBytes;
    nominal += plannedBytes(t);
    if (t.convert) n_converted++;
    const total = types.get(t.type.name) ?? { n_tensors: 0, n_params: 0, bytes: 0 };
    total.n_tensors++;
    total.n_params += n;
    total.bytes += t.bytes;
    types.set(t.type.name, total);
    if (t.planned.id === t.type.id) continue;
    const key = `${t.planned.name} ${t.type.name}`;
    const fallback = fallbacks.get(key) ??
      { from: t.planned.name, to: t.type.name, n_tensors: 0, n_params: 0, extra: 0 };
    fallback.n_tensors++;
    fallback.n_params += n;
    fallback.extra += t.bytes - plannedBytes(t);
    fallbacks.set(key, fallback);
  }
  const bpw = (b: number) => n_params === 0 ? 0 : 8 * b / n_params;
  return {
    n_tensors: plan.tensors.length,
    n_converted,
    n_params,
    source_bytes,
    bytes,
    source_bpw: bpw(source_bytes),
    bpw: bpw(bytes),
    nominal_bpw: bpw(nominal),
    types: [...types].map(([type, t]) => ({ type, ...t })).sort((a, b) => b.bytes - a.bytes),
    fallbacks: [...fallbacks.values()].map(({ extra, ...f }) => ({ ...f, extra_bytes: Math.round(extra) })),
    unreached_experts: plan.unreached,
  };
}

function megabytes(n: number): string {
  return `${(n / 1e6).toFixed(2)} MB`;
}

/** Closing lines for a reader. */
export function summaryLines(s: QuantizeSummary): string[] {
  const lines = [
    `${s.n_tensors} tensors, ${s.n_converted} of them encoded anew: ${megabytes(s.source_bytes)} at ` +
    `${s.source_bpw.toFixed(2)} bits per weight became ${megabytes(s.bytes)} at ${s.bpw.toFixed(2)}`,
    "types: " + s.types.map((t) => `${t.n_tensors} ${t.type} (${megabytes(t.bytes)})`).join(", "),
  ];
  if (s.fallbacks.length > 0) {
    const n_tensors = s.fallbacks.reduce((n, f) => n + f.n_tensors, 0);
    const n_params = s.fallbacks.reduce((n, f) => n + f.n_params, 0);
    const share = (100 * n_params / s.n_params).toFixed(1);
    const list = s.fallbacks.map((f) => `${f.n_tensors} ${f.from} -> ${f.to} (${megabytes(f.extra_bytes)} more)`);
    lines.push(
      `${n_tensors} tensors (${share} % of the weights) fell back, as their rows are not whole blocks: ${
        list.join(", ")
      }; ` +
        `${s.bpw.toFixed(2)} bits per weight instead of ${s.nominal_bpw.toFixed(2)}`,
    );
  }
  return lines;
}

/** The plan as a table for a reader, one line a tensor. */
export function planTable(plan: QuantizePlan): string {
  const rows = plan.tensors.map((t) => [
    t.name,
    `[${t.ne.join(", ")}]`,
    t.source.type.name,
    t.type.id === t.source.type.id ? "=" : t.type.name,
    t.planned.id === t.type.id ? "" : `(not ${t.planned.name})`,
    t.importance ? "imatrix" : "",
    (t.sourceBytes / 1e6).toFixed(3),
    (t.bytes / 1e6).toFixed(3),
    (8 * t.bytes / elementCount(t.ne)).toFixed(3),
  ]);
  const head = ["tensor", "shape", "from", "to", "", "", "MB", "MB after", "bits per weight"];
  const widths = head.map((h, i) => Math.max(h.length, ...rows.map((r) => r[i].length)));
  const line = (r: string[]) =>
    r.map((cell, i) => i >= 6 ? cell.padStart(widths[i]) : cell.padEnd(widths[i])).join("  ").trimEnd();
  return [head, ...rows].map(line).join("\n");
}
