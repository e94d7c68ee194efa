/**
 * Types of a model's tensors from measured losses and a budget.
 * @module
 */
import { QuantizeError, shortList } from "../../core/errors.ts";
import { DEFAULT_ALIGNMENT } from "../../core/gguf/layout.ts";
import { type GgmlType, ggmlType } from "../../core/gguf/types.ts";
import { encodeHeader } from "../../core/gguf/write.ts";
import { guessFileTypeId, parseFileType } from "../file_types.ts";
import type { FileType } from "../file_types.ts";
import { FILE_TYPES } from "../file_types.ts";
import { imatrixKey } from "../imatrix.ts";
import { outputMetadata } from "../output_metadata.ts";
import { isFloatType, isQuantizable, needsImportance, type PlannedTensor, type TypePattern } from "../plan.ts";
import { outputPaths, planFor, type QuantizeOptions } from "../quantize.ts";
import type { QuantizeSource } from "../quantize_source.ts";
import { bytesAs } from "../measure/candidates.ts";
import type { MeasureFile } from "../measure/measure_file.ts";
import { type Choice, smallest, solveBudget } from "./solve.ts";

/** How large a model may become. `bytes` are of the output's files; `bpw` is bits per weight of its tensors, all of them. */
export type Budget = { readonly bytes: number } | { readonly bpw: number };

/** What a budget is asked for with. */
export interface ChooseOptions {
  readonly budget: Budget;
  readonly measure: MeasureFile;
  /** What messages call it. */
  readonly measurePath: string;
  /** Content key of the model; see `contentKey`. */
  readonly modelKey: string;
  /** What else the quantization is to do; tensors that its patterns name are not chosen. */
  readonly quantize: Omit<QuantizeOptions, "fileType">;
  /** Of the output: its name is in the header, which counts. */
  readonly output: string;
}

/** Types for every tensor. */
export interface ChosenTypes {
  /** The label of the output: the type that most of its weights have. */
  readonly fileType: FileType;
  /** A pattern for every tensor that may be quantized. */
  readonly tensorTypes: readonly TypePattern[];
  /** Sum of the measured losses. */
  readonly loss: number;
  /** Of what the budget limits: bytes of the files, or bits per weight. */
  readonly size: number;
  /** No other choice within the budget has a smaller sum. */
  readonly isBest: boolean;
}

/** The pattern of one tensor alone, as llama-quantize reads it too. */
export function patternOf(name: string, type: GgmlType): TypePattern {
  const source = `^${name.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")}$`;
  return { text: `${source}=${type.name}`, pattern: new RegExp(source), type };
}

/** Patterns as the text of a file for `--tensor-type-file`. */
export function patternText(patterns: readonly TypePattern[]): string {
  return patterns.map((p) => p.text + "\n").join("");
}

function refuse(code: "stale_measure" | "not_measured" | "budget", what: string, hint: string, at = {}): QuantizeError {
  return new QuantizeError(`quantize.${code}`, what, { at, hint });
}

function checkFits(measure: MeasureFile, options: ChooseOptions): void {
  const { job } = measure, { measurePath: path } = options;
  if (job.model_key !== options.modelKey) {
    throw refuse(
      "stale_measure",
      `Cannot use ${path}: it was measured of another model, ${job.model}`,
      "measure this model with bloomery measure",
      { file: path, got: job.model_key, expected: options.modelKey },
    );
  }
  const { imatrix } = options.quantize, key = imatrix === undefined ? null : imatrixKey(imatrix);
  if (key !== job.imatrix_key) {
    const given = imatrix === undefined ? "none is given" : `${imatrix.path} is given`;
    throw refuse(
      "stale_measure",
      `Cannot use ${path}: it was measured with importance matrix ${job.imatrix ?? "none"}, and ${given}`,
      "give the importance matrix that the losses were measured with, or measure again",
      { file: path, got: job.imatrix, expected: imatrix?.path ?? null },
    );
  }
}

/** What a tensor can become: what was measured and is possible, and what it is. */
function choicesOf(t: PlannedTensor, measure: MeasureFile, pad: (n: number) => number, weighted: boolean) {
  const known = measure.tensors.find((m) => m.name === t.name);
  const losses = (known?.losses ?? []).filter((l) => weighted || !needsImportance(t.name, l.type));
  return [
    ...losses.map(({ type, loss }) => ({ type, loss, cost: pad(bytesAs(t, type)) })),
    { type: t.source.type, loss: 0, cost: pad(t.sourceBytes) },
  ];
}

/**
 * Chooses types under a budget.
 * @throws {QuantizeError} `quantize.stale_measure` where the losses are of another model or importance matrix, `quantize.not_measured`
 * naming tensors without losses, `quantize.budget` naming the smallest possible size
 */
export function chooseTypes(source: QuantizeSource, options: ChooseOptions): ChosenTypes {
  const { measure, budget, measurePath } = options;
  checkFits(measure, options);
  const arch = source.metadata.str("general.architecture");
  const given = options.quantize.tensorTypes ?? [];
  const label = parseFileType("Q8_0");
  // As if every tensor that is free stayed as it is: what is fixed has its size then, and the header its own.
  const kept = source.tensors.map((t) => patternOf(t.name, t.type));
  const asIs: QuantizeOptions = { ...options.quantize, fileType: label, tensorTypes: [...given, ...kept] };
  const plan = planFor(source, { ...asIs, dryRun: true });
  const { leaveOutputTensor, outputTensorType, tokenEmbeddingType } = options.quantize;
  const isForced = ({ name }: PlannedTensor) =>
    given.some((p) => p.pattern.test(name)) ||
    (name === "output.weight" && (leaveOutputTensor || outputTensorType !== undefined)) ||
    (name === "token_embd.weight" && tokenEmbeddingType !== undefined);
  const may = plan.tensors.filter((t) => isQuantizable(t, arch));
  const free = may.filter((t) => isFloatType(t.source.type) && t.ne.length <= 3 && !isForced(t));
  const names = new Set(measure.tensors.map((t) => t.name));
  const missing = free.filter((t) => !names.has(t.name)).map((t) => t.name);
  if (missing.length > 0) {
    throw refuse(
      "not_measured",
      `Cannot choose types: ${measurePath} has no losses of ${missing.length} tensors: ${shortList(missing)}`,
      "run the same bloomery measure to its end; --by error measures tensors that no step uses; or give their types with --tensor-type",
      { file: measurePath, tensors: missing },
    );
  }
  const inBytes = "bytes" in budget;
  const alignment = source.metadata.u32("general.alignment", DEFAULT_ALIGNMENT);
  const pad = (n: number) => inBytes ? Math.ceil(n / alignment) * alignment : n;
  const n_params = plan.tensors.reduce((n, t) => n + t.ne.reduce((a, b) => a * b, 1), 0);
  const limit = inBytes ? budget.bytes : Math.floor(budget.bpw * n_params / 8);
  const chosen = new Set(free);
  let fixed = plan.tensors.reduce((n, t) => n + (chosen.has(t) ? 0 : pad(t.bytes)), 0);
  if (inBytes) fixed += headerBytes(source, plan, options);
  const entries = options.quantize.imatrix?.entries;
  const choices = free.map((t) => choicesOf(t, measure, pad, entries?.has(t.source.name) ?? false));
  const solution = solveBudget(choices as Choice[][], limit - fixed);
  const sizeOf = (cost: number) => inBytes ? fixed + cost : 8 * (fixed + cost) / n_params;
  if (solution === undefined) {
    const least = sizeOf(smallest(choices)),
      wanted = inBytes ? `${budget.bytes} bytes` : `${budget.bpw} bits per weight`;
    const found = inBytes ? `${least} bytes` : `${(Math.ceil(least * 1e4) / 1e4).toFixed(4)} bits per weight`;
    throw refuse(
      "budget",
      `Cannot make ${options.output} of ${wanted}: the smallest measured types of its tensors take ${found}`,
      "raise --budget, or measure smaller types, some of which need an importance matrix",
      { got: inBytes ? budget.bytes : budget.bpw, smallest: least },
    );
  }
  const picked = new Map(free.map((t, i) => [t, choices[i][solution.picks[i]].type]));
  const final = may.map((t) => ({
    name: t.source.name,
    type: picked.get(t) ?? t.type,
    n: t.ne.reduce((a, b) => a * b, 1),
  }));
  return {
    fileType: labelOf(final) ?? label,
    tensorTypes: final.map(({ name, type }) => patternOf(name, type)),
    loss: solution.loss,
    size: sizeOf(solution.cost),
    isBest: solution.isBest,
  };
}

/** Bytes of all headers of the output. */
function headerBytes(source: QuantizeSource, plan: ReturnType<typeof planFor>, options: ChooseOptions): number {
  const { quantize, output } = options;
  const paths = outputPaths(output, plan, quantize.keepSplit ?? false);
  const metadata = outputMetadata(source.metadata, plan, paths[0], quantize);
  return metadata.reduce((n, m, no) => {
    const own = plan.tensors.filter((t) => metadata.length === 1 || t.source.shard === no);
    return n + encodeHeader(m, own, m.u32("general.alignment", DEFAULT_ALIGNMENT)).length;
  }, 0);
}

/** The file type of the encoded type that most weights have. */
function labelOf(tensors: readonly { type: GgmlType; n: number }[]): FileType | undefined {
  const weights = new Map<string, number>();
  for (const { type, n } of tensors) if (!isFloatType(type)) weights.set(type.name, (weights.get(type.name) ?? 0) + n);
  const [most] = [...weights].sort(([, a], [, b]) => b - a);
  if (most === undefined) return undefined;
  const id = guessFileTypeId([ggmlType(most[0])]) - 1024;
  // Of several names for one, the last is the whole one.
  return FILE_TYPES.findLast((f) => f.id === id && f.type !== undefined);
}
