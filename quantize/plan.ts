/**
 * The plan of a quantization: which tensors the output has, in which order, and of which type each is. A pure function of the
 * tensor list, the metadata and the options; nothing is read. All refusals happen here, in one error.
 * Source: llama-quantize 0.7.0, whose files these plans reproduce.
 * @module
 */
import { encodeUtf8 } from "../core/bytes.ts";
import { problemList, QuantizeError, shortList, UsageError } from "../core/errors.ts";
import { elementCount, trimDims } from "../core/gguf/layout.ts";
import type { Metadata } from "../core/gguf/metadata.ts";
import { type GgmlType, ggmlType, rowBytes } from "../core/gguf/types.ts";
import type { FileType } from "./file_types.ts";
import type { Imatrix } from "./imatrix.ts";
import { categoryOf, isValueLike, Mixture, type ModelFacts } from "./mixture.ts";

/** A tensor of the source. */
export interface SourceTensor {
  /** As in the source. */
  readonly name: string;
  /** In the source. */
  readonly type: GgmlType;
  /** Fastest first. */
  readonly ne: readonly number[];
  /** Which file of a split set it is in. */
  readonly shard: number;
}

/** What a quantization is to make. */
export interface PlanOptions {
  /** Type of the file, which decides the mixture. */
  readonly fileType: FileType;
  /** No mixture: every tensor gets the type itself. */
  readonly pure?: boolean;
  /** Keeps `output.weight` as it is. */
  readonly leaveOutputTensor?: boolean;
  /** Takes tensors that are quantized already. */
  readonly allowRequantize?: boolean;
  /** Type of `output.weight`. */
  readonly outputTensorType?: GgmlType | undefined;
  /** Type of the token embedding. */
  readonly tokenEmbeddingType?: GgmlType | undefined;
  /** Forced types, first match wins; see {@link parseTypePattern}. */
  readonly tensorTypes?: readonly TypePattern[];
  /** Layers to leave out. */
  readonly pruneLayers?: readonly number[];
  /** Tensors stay in their parts and in file order. */
  readonly keepSplit?: boolean;
  /** Importance of the weights' columns. */
  readonly imatrix?: Imatrix | undefined;
  /** Refuse instead of falling back to another type where a row does not fit the blocks of the planned one. */
  readonly noFallback?: boolean;
  /** A dry run: a missing importance matrix is a warning. */
  readonly dryRun?: boolean;
}

/** A forced type for tensors whose names match. */
export interface TypePattern {
  /** As it was given. */
  readonly text: string;
  /** Searched for in a tensor's name. */
  readonly pattern: RegExp;
  /** What such tensors become. */
  readonly type: GgmlType;
}

/** What becomes of a tensor. */
export interface PlannedTensor<T extends SourceTensor = SourceTensor> {
  /** Where it comes from. */
  readonly source: T;
  /** Its name in the output; another than the source's where layers were pruned. */
  readonly name: string;
  /** Without trailing ones. */
  readonly ne: readonly number[];
  /** In the output. */
  readonly type: GgmlType;
  /** What the type would be if its rows were whole blocks of it; differs from `type` where it fell back. */
  readonly planned: GgmlType;
  /** Encoded anew; otherwise copied. */
  readonly convert: boolean;
  /** Entry of the importance matrix to use, `[ne0 * ne2]`. */
  readonly importance: Float32Array | undefined;
  /** Bytes in the output. */
  readonly bytes: number;
  /** Bytes in the source. */
  readonly sourceBytes: number;
}

/** Experts of a layer whose weights are encoded without importance, because the calibration never reached them. */
export interface UnreachedExperts {
  /** Number of the layer. */
  readonly layer: number;
  /** Experts of the layer. */
  readonly n_expert: number;
  /** Those that were never reached. */
  readonly experts: readonly number[];
}

export interface QuantizePlan<T extends SourceTensor = SourceTensor> {
  /** In output order. */
  readonly tensors: readonly PlannedTensor<T>[];
  readonly fileType: FileType;
  /** Layers of the output, where some were pruned. */
  readonly prunedLayers: number | undefined;
  /** Parts of the output; the shard of a tensor's source says which is its. */
  readonly n_parts: number;
  /** By layer of the source; only layers that have some. */
  readonly unreached: readonly UnreachedExperts[];
  /** Warnings, each a sentence for the user. */
  readonly warnings: readonly string[];
}

/** The layer number that orders a tensor: that after a leading `blk.`, -1 without one. */
function layerOrder(name: string): number {
  return Number(/^blk\.(\d+)/.exec(name)?.[1] ?? -1);
}

function compareBytes(a: string, b: string): number {
  if (/^[\0-\x7f]*$/.test(a) && /^[\0-\x7f]*$/.test(b)) return a < b ? -1 : a > b ? 1 : 0;
  const [x, y] = [encodeUtf8(a), encodeUtf8(b)];
  for (let i = 0; i < Math.min(x.length, y.length); i++) if (x[i] !== y[i]) return x[i] - y[i];
  return x.length - y.length;
}

/**
 * One `PATTERN=TYPE`: a regular expression, lower-cased, searched anywhere in a tensor's name.
 * @throws {UsageError} `usage.tensor_pattern`
 */
export function parseTypePattern(text: string, parseType: (name: string) => GgmlType): TypePattern {
  const fail = (what: string) =>
    new UsageError("usage.tensor_pattern", `Cannot use tensor type "${text}": ${what}`, {
      at: { got: text },
      hint: "write PATTERN=TYPE, as in attn_v=q8_0",
    });
  const at = text.indexOf("=");
  if (at < 0) throw fail("it has no =");
  if (at === 0 || at === text.length - 1) throw fail(`the ${at === 0 ? "pattern" : "type"} is empty`);
  const source = text.slice(0, at).toLowerCase();
  try {
    return { text, pattern: new RegExp(source), type: parseType(text.slice(at + 1)) };
  } catch (error) {
    if (error instanceof SyntaxError) throw fail(`${source} is not a regular expression`);
    throw error;
  }
}

/** The facts that the mixtures need, read as for running the model. */
export function modelFacts(metadata: Metadata): ModelFacts {
  const arch = metadata.str("general.architecture");
  const n_layer = metadata.u32(`${arch}.block_count`);
  const first = (key: string, fallback: number) => metadata.perLayer(`${arch}.${key}`, 1, [fallback])[0];
  const n_head = first("attention.head_count", 0);
  const n_head_kv = first("attention.head_count_kv", n_head);
  const shared = (arch === "llama" || arch === "llama-embed") && n_head !== n_head_kv;
  return {
    arch,
    n_layer,
    n_expert: metadata.u32(`${arch}.expert_count`, 0),
    n_gqa: n_head_kv > 0 ? Math.trunc(n_head / n_head_kv) : 0,
    is70B: n_layer === 80 && (["qwen2", "deci", "olmo"].includes(arch) || shared),
  };
}

const NEVER: readonly string[] = [
  "_norm.weight",
  "ffn_gate_inp.weight",
  "ffn_gate_tid2eid.weight",
  "altup",
  "laurel",
  "per_layer_model_proj",
  "ssm_conv1d",
  "shortconv.conv.weight",
  "indexer.k_proj.weight",
  "indexer.q_proj.weight",
  "time_mix_first.weight",
  ...["w0", "w1", "w2", "v0", "v1", "v2", "a0", "a1", "a2", "g1", "g2", "decay_w1", "decay_w2", "lerp_fused"].map(
    (part) => `time_mix_${part}.weight`,
  ),
  "attn_rel_b.weight",
  ".position_embd",
  "sam.pos_embd",
  "sam.neck.",
  "sam.net_",
  ".rel_pos",
  ".patch_embd",
  ".patch_merger",
  "a.rvq.codebook",
  "mm.a.code_embd",
];
const NEVER_IN: Readonly<Record<string, readonly string[]>> = {
  "glm5-next": [
    "hc_",
    "indexer.attn_q_b",
    "indexer.attn_k",
    "indexer.proj",
    "indexer_compressor_gate",
    "indexer_compressor_ape",
    "ssm_f_a.weight",
    "ssm_f_b.weight",
    "ssm_g_a.weight",
    "ssm_g_b.weight",
    "ssm_beta.weight",
    "attn_kv_a_mqa.weight",
    "attn_k_b.weight",
    "attn_v_b.weight",
  ],
};

/** Whether a tensor may be of another type than its source's at all. */
export function isQuantizable(tensor: { name: string; ne: readonly number[] }, arch: string): boolean {
  const { name } = tensor;
  if (trimDims(tensor.ne).length < 2) return false;
  // names of five characters: the reference's comparison of the ending overruns and lets them pass
  if (!name.endsWith("weight") && name.length !== 5) return false;
  if (name === "position_embd.weight" || name === "token_types.weight") return false;
  if (NEVER.some((part) => name.includes(part))) return false;
  if (NEVER_IN[arch]?.some((part) => name.includes(part))) return false;
  return !(arch === "vllm-decision2" && name.startsWith("decision."));
}

/** Types that take the place of one whose blocks a row does not fill. */
const FALLBACK: Readonly<Record<string, string>> = {
  iq1_s: "iq4_nl",
  iq1_m: "iq4_nl",
  iq2_xxs: "iq4_nl",
  iq2_xs: "iq4_nl",
  iq2_s: "iq4_nl",
  iq3_xxs: "iq4_nl",
  iq3_s: "iq4_nl",
  iq4_xs: "iq4_nl",
  q2_0: "q4_0",
  q2_K: "q4_0",
  q3_K: "q4_0",
  tq1_0: "q4_0",
  tq2_0: "q4_0",
  q4_K: "q5_0",
  q5_K: "q5_1",
  q6_K: "q8_0",
};

/** The type for rows of `ne0` elements, or undefined when no type fits. */
export function fallbackType(type: GgmlType, ne0: number): GgmlType | undefined {
  if (ne0 % type.block === 0) return type;
  const name = FALLBACK[type.name] ?? (type.block === 32 ? type.name : undefined);
  if (name === undefined) return undefined;
  const next = ggmlType(name);
  return ne0 % next.block === 0 ? next : ggmlType("f16");
}

const FLOATS = new Set(["f32", "f16", "bf16"]);
const INTEGERS = new Set(["i8", "i16", "i32", "i64", "f64"]);
const NOT_WRITTEN = new Set(["q8_1", "q8_K", ...INTEGERS]);
const NEEDS_IMPORTANCE = new Set(["iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs"]);
/** Tensors that need no importance matrix even then, because none is collected for them. */
const EXEMPT = new Set(["token_embd.weight", "per_layer_token_embd.weight", "output.weight"]);
/** Encoders that cannot run without one at all. */
const CANNOT_WITHOUT = new Set(["iq1_s", "iq2_xxs", "iq2_xs"]);

/** Whether a tensor becomes a type only with an importance matrix that has an entry for it. */
export function needsImportance(name: string, type: GgmlType): boolean {
  return CANNOT_WITHOUT.has(type.name) || (NEEDS_IMPORTANCE.has(type.name) && !EXEMPT.has(name));
}

/** Whether weights of a type are numbers as they are. */
export function isFloatType(type: GgmlType): boolean {
  return FLOATS.has(type.name);
}

/** A problem: words that follow the tensor's name, or a sentence of its own. */
interface Problem {
  readonly tensor?: string;
  readonly what: string;
}

function tellProblem({ tensor, what }: Problem): string {
  return tensor === undefined ? what : `tensor "${tensor}" ${what}`;
}

/** One line for all tensors with the same trouble. */
function tellProblems(problems: readonly Problem[]): string[] {
  const groups = Map.groupBy(problems, (p) => p.tensor === undefined ? p : p.what);
  return [...groups.values()].map((same) =>
    same.length === 1
      ? tellProblem(same[0])
      : `each of ${same.length} tensors ${same[0].what}: ${shortList(same.map((p) => `"${p.tensor}"`))}`
  );
}

interface Named<T> {
  source: T;
  name: string;
}

/** Sorts, drops and renames: what the output holds. */
function arrange<T extends SourceTensor>(
  tensors: readonly T[],
  options: PlanOptions,
): { list: Named<T>[]; layers: number | undefined } {
  const sorted = options.keepSplit
    ? [...tensors]
    : tensors.toSorted((a, b) => layerOrder(a.name) - layerOrder(b.name) || compareBytes(a.name, b.name));
  const pruned = [...new Set(options.pruneLayers ?? [])].sort((a, b) => a - b);
  if (pruned.length === 0) return { list: sorted.map((source) => ({ source, name: source.name })), layers: undefined };
  const renumbered = new Map<number, number | undefined>();
  let next = 0;
  const list: Named<T>[] = [];
  for (const source of sorted) {
    const match = /blk\.(\d+)\./.exec(source.name);
    if (!match) {
      list.push({ source, name: source.name });
      continue;
    }
    const layer = Number(match[1]);
    if (!renumbered.has(layer)) {
      if (pruned.includes(layer)) renumbered.set(layer, undefined);
      else if (layer < pruned[0]) renumbered.set(layer, layer), next = layer + 1;
      else renumbered.set(layer, next++);
    }
    const to = renumbered.get(layer);
    if (to === undefined) continue;
    const start = match.index + "blk.".length;
    const name = source.name.slice(0, start) + to + source.name.slice(start + match[1].length);
    list.push({ source, name });
  }
  return { list, layers: next };
}

/**
 * Plans a quantization.
 *
 * @param tensors In file order.
 * @param metadata Of the source, with overrides in force.
 * @throws {QuantizeError} `quantize.plan` with every tensor that cannot become what the options ask.
 * @throws {ModelError} when metadata is missing or ill-typed.
 */
export function planQuantization<T extends SourceTensor>(
  tensors: readonly T[],
  metadata: Metadata,
  options: PlanOptions,
): QuantizePlan<T> {
  return new Planner<T>(tensors, metadata, options).plan();
}

class Planner<T extends SourceTensor> {
  readonly #problems: Problem[] = [];
  /** Problems that a dry run only warns about. */
  readonly #lenient: Problem[] = [];
  readonly #warnings: string[] = [];
  #hint: string | undefined;
  readonly #facts: ModelFacts;
  readonly #list: Named<T>[];
  readonly #layers: number | undefined;
  readonly #mixture: Mixture | undefined;

  constructor(readonly tensors: readonly T[], readonly metadata: Metadata, readonly options: PlanOptions) {
    this.#facts = modelFacts(metadata);
    const { list, layers } = arrange(tensors, options);
    this.#list = list;
    this.#layers = layers;
    if (options.fileType.type) {
      this.#mixture = new Mixture({
        fileType: options.fileType,
        facts: this.#facts,
        imatrix: (options.imatrix?.entries.size ?? 0) > 0,
        tied: !list.some((t) => categoryOf(t.name) === "out"),
        n_value: list.filter((t) => isValueLike(categoryOf(t.name))).length,
        outputTensorType: options.outputTensorType,
      });
    }
  }

  plan(): QuantizePlan<T> {
    const planned = this.#list.map((t) => this.#tensor(t));
    this.#warnings.push(...tellProblems(this.#lenient));
    const layers = new Set(this.tensors.map((t) => Number(/blk\.(\d+)\./.exec(t.name)?.[1] ?? -1)));
    const absent = (this.options.pruneLayers ?? []).filter((il) => !layers.has(il));
    if (absent.length > 0) this.#warnings.push(`the model has no layer ${absent.join(", ")} to prune`);
    this.#importanceWarnings(planned);
    const unreached = this.#unreached(planned);
    if (this.#problems.length > 0) {
      const told = tellProblems(this.#problems);
      throw new QuantizeError("quantize.plan", `Cannot quantize ${this.metadata.file}: ${problemList(told)}`, {
        at: { file: this.metadata.file, problems: this.#problems.map(tellProblem) },
        ...(this.#hint === undefined ? {} : { hint: this.#hint }),
      });
    }
    const shards = Math.max(0, ...this.tensors.map((t) => t.shard)) + 1;
    return {
      tensors: planned,
      fileType: this.options.fileType,
      prunedLayers: this.#layers,
      n_parts: this.options.keepSplit ? shards : 1,
      unreached,
      warnings: this.#warnings,
    };
  }

  #tensor({ source, name }: Named<T>): PlannedTensor<T> {
    const ne = trimDims(source.ne);
    const quantizable = this.options.fileType.type !== undefined &&
      !(this.options.leaveOutputTensor && name === "output.weight") && isQuantizable({ name, ne }, this.#facts.arch);
    const { type, planned } = quantizable ? this.#target(name, ne) : { type: source.type, planned: source.type };
    const convert = type.id !== source.type.id;
    if (convert) this.#checkConversion(source, name, ne, type);
    const importance = quantizable ? this.#importance(source, name, ne, type, convert) : undefined;
    const rows = elementCount(ne) / ne[0];
    return {
      source,
      name,
      ne,
      type,
      planned,
      convert,
      importance: convert ? importance : undefined,
      bytes: rows * rowBytes(type, ne[0]),
      sourceBytes: rows * rowBytes(source.type, ne[0]),
    };
  }

  #target(name: string, ne: readonly number[]): { type: GgmlType; planned: GgmlType } {
    const { tokenEmbeddingType, outputTensorType, tensorTypes = [], pure, fileType } = this.options;
    const base = fileType.type!;
    const forced = tensorTypes.find((t) => t.pattern.test(name));
    const category = categoryOf(name);
    const byPattern = forced !== undefined && name === "per_layer_token_embd.weight";
    const fixed = category === "emb" && tokenEmbeddingType && !byPattern
      ? tokenEmbeddingType
      : category === "out" && outputTensorType
      ? outputTensorType
      : FLOATS.has(base.name)
      ? base
      : undefined;
    if (fixed) return { type: fixed, planned: fixed };
    const planned = forced?.type ?? (pure ? base : this.#mixture!.next({ name, ne }));
    const type = fallbackType(planned, ne[0]);
    if (type === undefined) return { type: planned, planned }; // refused where it would be encoded
    if (type !== planned && this.options.noFallback) {
      this.#problems.push({
        tensor: name,
        what: `has rows of ${ne[0]} elements, not a multiple of the ${planned.block} in a block of ${planned.name}, ` +
          `and would fall back to ${type.name}`,
      });
    }
    return { type, planned };
  }

  #checkConversion(source: T, name: string, ne: readonly number[], type: GgmlType): void {
    const from = source.type;
    const problem = (what: string) => this.#problems.push({ tensor: name, what });
    if (INTEGERS.has(from.name)) problem(`holds ${from.name}, which cannot become ${type.name}`);
    else if (!FLOATS.has(from.name) && !this.options.allowRequantize) {
      problem(
        `is quantized already (${from.name}), and would become ${type.name}: it loses more than from the original`,
      );
      this.#hint = "quantize the original release, or take the loss with --allow-requantize";
    }
    if (NOT_WRITTEN.has(type.name)) problem(`cannot become ${type.name}: files do not hold weights of that type`);
    else if (ne[0] % type.block !== 0) {
      problem(`has rows of ${ne[0]} elements, not a multiple of the ${type.block} in a block of ${type.name}`);
    }
    if (ne.length > 3) problem(`has ${ne.length} dimensions, at most 3 can be encoded`);
  }

  /** The entry for a tensor, once its size fits and no type is left without what it needs. */
  #importance(
    source: T,
    name: string,
    ne: readonly number[],
    type: GgmlType,
    convert: boolean,
  ): Float32Array | undefined {
    const { imatrix, fileType } = this.options;
    const entries = imatrix && imatrix.entries.size > 0 ? imatrix.entries : undefined;
    const needs = NEEDS_IMPORTANCE.has(type.name) || (type.name === "q2_K" && fileType.name === "Q2_K_S");
    let entry: Float32Array | undefined;
    if (convert) {
      entry = entries?.get(source.name);
      const wanted = ne[0] * (ne[2] ?? 1);
      if (entry && entry.length !== wanted) {
        if (name !== "token_embd.weight" && name !== "per_layer_token_embd.weight") {
          const what =
            `the importance matrix has ${entry.length} values for tensor "${source.name}", expected ${wanted}`;
          this.#problems.push({ what });
          this.#hint ??= "the importance matrix is of another model: give the one of this model";
        }
        entry = undefined;
      }
    }
    if (entry || !(needs || CANNOT_WITHOUT.has(type.name))) return entry;
    if (EXEMPT.has(name) ? convert && CANNOT_WITHOUT.has(type.name) : entries === undefined || convert) {
      const without = entries ? "the one given has no entry for it" : "none is given";
      const what = `becomes ${type.name}, which needs an importance matrix, and ${without}`;
      (this.options.dryRun ? this.#lenient : this.#problems).push({ tensor: name, what });
      this.#hint = entries
        ? "give such tensors another type with --tensor-type PATTERN=TYPE, or an importance matrix of the whole model"
        : "give an importance matrix with --imatrix FILE, or choose a type of three bits or more";
    }
    return undefined;
  }

  /** Experts that no row of the calibration went through, counted over the weights of each layer. */
  #unreached(planned: readonly PlannedTensor<T>[]): UnreachedExperts[] {
    const layers = new Map<number, { n_expert: number; experts: Set<number> }>();
    for (const { source, ne, importance } of planned) {
      const n_expert = ne[2] ?? 1;
      if (!importance || n_expert === 1) continue;
      // The old format has only zeros to show it.
      const listed = this.options.imatrix?.unreached?.get(source.name) ?? [];
      const isZero = (e: number) => importance.subarray(e * ne[0], (e + 1) * ne[0]).every((v) => v === 0);
      const never = Array.from({ length: n_expert }, (_, e) => e).filter((e) => listed.includes(e) || isZero(e));
      if (never.length === 0) continue;
      const layer = layerOrder(source.name);
      const known = layers.get(layer) ?? { n_expert, experts: new Set<number>() };
      never.forEach((e) => known.experts.add(e));
      layers.set(layer, known);
    }
    const list = [...layers].sort(([a], [b]) => a - b).map(([layer, { n_expert, experts }]) => ({
      layer,
      n_expert,
      experts: [...experts].sort((a, b) => a - b),
    }));
    if (list.length > 0) {
      const n = list.reduce((sum, l) => sum + l.experts.length, 0);
      const told = list.slice(0, 8).map((l) => `layer ${l.layer}: ${l.experts.length} of ${l.n_expert}`);
      const more = list.length > told.length ? `; and ${list.length - told.length} more layers` : "";
      this.#warnings.push(
        `the calibration never reached ${n} experts, which are encoded without importance: ${told.join("; ")}${more}`,
      );
    }
    return list;
  }

  /** One line for all tensors that an importance matrix leaves out. */
  #importanceWarnings(planned: readonly PlannedTensor<T>[]): void {
    const { imatrix } = this.options;
    if (!imatrix || imatrix.entries.size === 0) return;
    const known = new Set(this.tensors.map((t) => t.name));
    const foreign = [...imatrix.entries.keys()].filter((name) => !known.has(name));
    if (foreign.length > 0) {
      this.#warnings.push(
        `${foreign.length} of the ${imatrix.entries.size} entries of the importance matrix belong to no tensor of the ` +
          `model: ${shortList(foreign)}`,
      );
    }
    const without = planned.filter((t) =>
      t.convert && !t.importance && !FLOATS.has(t.type.name) && !EXEMPT.has(t.name)
    );
    if (without.length === 0) return;
    this.#warnings.push(
      `${without.length} tensors have no entry in the importance matrix and are encoded without one: ` +
        shortList(without.map((t) => t.source.name)),
    );
  }
}
