/**
 * A checkpoint seen as the GGUF file it would become: metadata, tensors in file order, and rows in the file's types on
 * demand. `prepare` writes it to a file; `quantize --hf` reads it directly.
 * @module
 */
import { ModelError, problemList, QuantizeError, shortList } from "../../core/errors.ts";
import { ggufValue, Metadata } from "../../core/gguf/metadata.ts";
import { type GgmlType, ggmlType } from "../../core/gguf/types.ts";
import type { TensorInfo } from "../../core/gguf/write.ts";
import type { FileRange } from "../../core/program/backend.ts";
import { type Checkpoint, openCheckpoint } from "../../core/safetensors/read.ts";
import { globs, unmatched } from "../patterns.ts";
import { familyOf } from "./arch/mod.ts";
import { Config } from "./config.ts";
import { convertFloats, elementAt, f32Of, firstNonFinite, type FloatType, release, toF32 } from "./dtype.ts";
import type { CheckpointFacts, Family, FamilyOptions, NgramLayout } from "./family.ts";
import { commonKeys, Keys } from "./keys.ts";
import { configFromParams } from "./mistral_params.ts";
import { writeGeneral } from "./model_card.ts";
import { sizeLabel } from "./model_name.ts";
import { FILE_TYPES, guessOuttype, type Outtype, tensorType } from "./outtype.ts";
import { expanded } from "./packed.ts";
import { encodeQ8_0 } from "./q8_0.ts";
import { type Output, Rules } from "./rules.ts";
import { orderedTensors, refusedQuantization, sourceTensors } from "./sources.ts";
import { constant, rowLength, sizeOf, type View } from "./view.ts";
import { textOf, writeVocabulary } from "./vocabulary.ts";

/** A tensor of the file to be. */
export interface PreparedTensor extends TensorInfo {
  /** Checkpoint tensors that it is made of, for messages. */
  readonly from: string;
  /** Rows of `ne[0]` elements. */
  readonly n_rows: number;
}

/**
 * Encodes rows of f32 in a block format: `Backend.quantize` of `core/program/backend.ts` fits.
 */
export type RowQuantizer = (
  job: { srcType: GgmlType; src: Uint8Array; dstType: GgmlType; n_rows: number; n_per_row: number },
) => Promise<Uint8Array>;

/** What becomes of a checkpoint. */
export interface PrepareOptions {
  /** Default `auto`. */
  outtype?: Outtype;
  /** `general.architecture` of the family to use, where config.json names none that is known. */
  arch?: string;
  /** `general.name`. */
  modelName?: string;
  /** Draft blocks stay in the file, or are left out, or are alone in it with embeddings and head. Default true. */
  mtp?: boolean | "only";
  /** Text of a chat template to use instead of the checkpoint's. */
  chatTemplate?: string;
  /** Keep only tensors whose name in the file matches one of these; `*` stands for any text. */
  only?: readonly string[];
  /** Leave out tensors whose name in the file matches. */
  drop?: readonly string[];
  /** Patterns of checkpoint tensors to ignore: the family need not know them, and no file needs to have them. */
  ignore?: readonly string[];
  /** Metadata without tensors. */
  vocabOnly?: boolean;
  /**
   * Values that the checkpoint stores in 8 or 4 bits are written as `outtype` says; by default they become the blocks
   * that hold them best (Q8_0, MXFP4, NVFP4).
   */
  dequantize?: boolean;
  /** Where the n-gram tables of DeepSeek V4.1 lie in the file; `per-site` where left out. */
  ngramLayout?: NgramLayout;
  /** Encodes `q8_0`, faster than this module does by itself. */
  quantize?: RowQuantizer;
}

/** Tensors of the file to be, and their rows. Close it, or hold it with `using`. */
export interface PreparedTensors extends Disposable {
  readonly tensors: readonly PreparedTensor[];
  /**
   * Rows `row` to `row + rows` of a tensor in its type. The buffer is the caller's.
   * @throws {QuantizeError} `quantize.non_finite` for a NaN or infinity in the checkpoint, `quantize.overflow` for a value
   * that f16 cannot hold; both name tensor, row and column.
   */
  read(tensor: PreparedTensor, row: number, rows: number): Promise<Uint8Array>;
  /** The same at once, without the encoder of the options. */
  readNow(tensor: PreparedTensor, row: number, rows: number): Uint8Array;
  /** The byte range of these rows in a file of the checkpoint, where it stores them in the wanted form. */
  locate(tensor: PreparedTensor, row: number, rows: number): FileRange | undefined;
  close(): void;
}

/** A checkpoint as a GGUF file that is not written. */
export interface PreparedSource extends PreparedTensors {
  readonly metadata: Metadata;
  /** The checkpoint's files, which must not be written to. */
  readonly paths: readonly string[];
  /** Warnings, each a sentence for the user. */
  readonly warnings: readonly string[];
}

/** Parts of multimodal checkpoints that are not the language model. */
const OTHER_MODALITY =
  /^(model\.)?(mlp|vit\.|vpm\.|siglip2\.|conformer\.|connector\.|merger\.|resampler\.|sound_encoder\.|sound_projection\.|speech_embeddings\.)|visual\.|vision\.|audio\.|talker\.|vision_|audio_|token2wav\.|code2wav\.|projector\.|pre_mm_projector_norm|image_newline|view_seperator|patch_embed|patch_embedding|patch_merger\.|patch_merge_mlp\./;
/** Buffers that old checkpoints carry along. */
const BUFFERS = /\.(attention\.masked_bias|attention\.bias|rotary_emb\.inv_freq)$/;

/** A checkpoint name without the wrapping of multimodal models, or undefined when it is no part of the text model. */
function textName(name: string): string | undefined {
  if (OTHER_MODALITY.test(name) || BUFFERS.test(name)) return undefined;
  return name.replace(/e_score_correction_bias$/, "e_score_correction.bias").replaceAll("language_model.", "");
}

/** Refuses with all problems at once. */
function refuse(dir: string, problems: readonly string[]): void {
  if (problems.length === 0) return;
  const list = problemList(problems);
  throw new ModelError("model.checkpoint", `Cannot prepare ${dir}: ${list}`, {
    at: { file: dir, problems },
    hint: "tensors that are not needed can be left out with --ignore PATTERN; a wrong family is set right with --arch",
  });
}

/** A tensor and the factors that are written beside it, where they are not all 1. */
function withSides(o: Output): Output[] {
  if (!o.view.side) return [o];
  const out: Output[] = [{ ...o, order: 0 }];
  for (const kind of ["scale", "input_scale"] as const) {
    const values = o.view.side[kind]();
    if (values.some((x) => x !== 1)) {
      out.push({ name: o.name.replace(/weight$/, kind), view: constant(o.view.from, values), order: 0 });
    }
  }
  return out;
}

/** The tensor with its blocks expanded to f32. */
const withoutBlocks = (o: Output): Output => ({ ...o, view: expanded(o.view) });

function checkpointFacts(checkpoint: Checkpoint, vocabulary: () => Metadata): CheckpointFacts {
  const find = (suffix: string) => [...checkpoint.tensors.values()].find((t) => t.name.endsWith(suffix));
  return {
    integers(suffix) {
      const t = find(suffix);
      if (t?.dtype !== "I64") return undefined;
      const bytes = checkpoint.readTensor(t);
      const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      return Array.from({ length: bytes.length / 8 }, (_, i) => view.getBigInt64(i * 8, true));
    },
    shape: (suffix) => find(suffix)?.shape,
    json: (file) => checkpoint.json(file),
    vocabulary,
  };
}

interface Planned {
  readonly info: PreparedTensor;
  readonly view: View;
}

interface PlannedTensors extends PreparedTensors {
  /** Names of tensors whose products take 16-bit activations in spite of their format, sorted. */
  readonly wide: readonly string[];
}

/**
 * Opens a Hugging Face folder and plans the file from headers alone.
 *
 * @throws {FormatError} when files are broken or missing, {@link ModelError} `model.checkpoint` with every tensor that is
 * unmapped, missing or of a wrong shape.
 */
export function openPrepared(dir: string, options: PrepareOptions = {}): PreparedSource {
  const ignore = globs(options.ignore);
  const checkpoint = openCheckpoint(dir, ignore ? { mayLack: (name) => ignore.test(name) } : {});
  try {
    return new Preparation(checkpoint, options).plan();
  } catch (error) {
    checkpoint.close();
    throw error;
  }
}

/** The part of a checkpoint that has arrived. */
export interface Arrived {
  readonly checkpoint: Checkpoint;
  /** Names of all its tensors. */
  readonly names: ReadonlySet<string>;
  /** The type that `auto` stands for. */
  readonly guess: "f16" | "bf16";
}

/**
 * The tensors of the file that the arrived part of a checkpoint makes: those of {@link openPrepared}, as far as all their parts
 * have arrived. The checkpoint stays the caller's to close.
 *
 * @throws {ModelError} `model.checkpoint` with every tensor that is unmapped or of a wrong shape.
 */
export function preparedTensors(arrived: Arrived, options: PrepareOptions): PreparedTensors {
  return new Preparation(arrived.checkpoint, options, arrived).tensors();
}

/**
 * The checkpoint's configuration, in either layout of a release.
 * @throws {ModelError} `model.config`
 */
function readConfig(checkpoint: Checkpoint): Config {
  const path = checkpoint.dir + "config.json";
  const root = checkpoint.json("config.json");
  if (root !== undefined) return new Config(path, root);
  const params = checkpoint.json("params.json");
  const translated = configFromParams(params);
  if (translated) return new Config(checkpoint.dir + "params.json", translated);
  const what = params === undefined
    ? "config.json is missing"
    : "it is in Mistral's own layout (params.json), which is read for models with latent attention and experts";
  throw new ModelError("model.config", `Cannot prepare ${checkpoint.dir}: ${what}`, {
    at: { file: path },
    hint: params === undefined
      ? "give the folder that holds config.json and the safetensors files"
      : "take the same release in the layout of the Hugging Face hub: config.json and model-*.safetensors",
  });
}

/** More draft blocks than any model has. */
const MAX_DRAFTS = 64;

class Preparation {
  readonly #config: Config;
  readonly #family: Family;
  readonly #outtype: Exclude<Outtype, "auto">;
  /** What matrices mainly become, for the file's label. */
  readonly #mainType: string;
  readonly #problems: string[] = [];
  readonly #warnings: string[];
  #vocabulary: Metadata | undefined;

  constructor(readonly checkpoint: Checkpoint, readonly options: PrepareOptions, readonly arrived?: Arrived) {
    const bare = readConfig(checkpoint);
    this.#family = familyOf(bare, options.arch, (file) => textOf(checkpoint.dir + file));
    this.#config = this.#family.defaults ? bare.withDefaults(this.#family.defaults(bare)) : bare;
    const guess = arrived?.guess ?? guessOuttype(orderedTensors(checkpoint));
    const asked = options.outtype ?? "auto";
    this.#outtype = asked === "auto" ? guess : asked;
    this.#mainType = asked === "auto" || asked === "keep" ? guess : asked;
    this.#warnings = [...checkpoint.warnings];
  }

  /** Names of all tensors of the checkpoint, also of those that are still to come. */
  get #names(): Iterable<string> {
    return this.arrived?.names ?? this.checkpoint.tensors.keys();
  }

  #n_block(): number {
    const c = this.#config;
    const mtp = this.options.mtp !== false;
    const drafts = mtp ? this.#family.draftBlocks?.(c, this.#names) ?? 0 : 0;
    if (drafts === 0 && this.options.mtp === "only") {
      throw new ModelError(
        "model.no_drafts",
        `Cannot take only the draft layers of ${this.checkpoint.dir}: it has none`,
        {
          at: { file: this.checkpoint.dir },
          hint: "leave out --mtp only, or take a release with multi-token prediction",
        },
      );
    }
    if (drafts <= MAX_DRAFTS) return c.n_layer + drafts;
    throw new ModelError(
      "model.config",
      `Cannot use ${c.file}: it states ${drafts} draft blocks, expected at most ${MAX_DRAFTS}`,
      {
        at: { file: c.file, got: drafts, limit: MAX_DRAFTS },
      },
    );
  }

  tensors(): PlannedTensors {
    const { checkpoint, options } = this;
    const outputs = options.vocabOnly ? [] : this.#outputs(this.#n_block());
    refuse(checkpoint.dir, this.#problems);
    const planned = outputs.map((o) => this.#typed(o));
    const views = new Map(planned.map((p) => [p.info, p.view]));
    const viewOf = (tensor: PreparedTensor): View => {
      const view = views.get(tensor);
      if (!view) throw new Error(`tensor ${tensor.name} is not of this source`);
      return view;
    };
    return {
      tensors: planned.map((p) => p.info),
      wide: planned.filter((p) => p.view.wideActivations).map((p) => p.info.name).sort(),
      read: async (tensor, row, rows) => {
        const got = readRows(tensor, viewOf(tensor), row, rows, options.quantize);
        return got instanceof Uint8Array ? got : await got;
      },
      readNow: (tensor, row, rows) => readRows(tensor, viewOf(tensor), row, rows),
      locate(tensor, row, rows) {
        const view = viewOf(tensor);
        if (tensor.type.name !== view.dtype.toLowerCase()) return undefined;
        return view.locate?.(row * tensor.ne[0], rows * tensor.ne[0]);
      },
      close: () => checkpoint.close(),
      [Symbol.dispose]: () => checkpoint.close(),
    };
  }

  plan(): PreparedSource {
    const made = this.tensors();
    return {
      ...made,
      metadata: this.#metadata(made, this.#n_block()),
      paths: this.checkpoint.files.map((f) => f.path),
      warnings: this.#warnings,
    };
  }

  get #choice(): FamilyOptions {
    const { mtp = true, ngramLayout = "per-site" } = this.options;
    return { mtp, ngramLayout };
  }

  #outputs(n_block: number): Output[] {
    const c = this.#config;
    const rules = new Rules(c.n_layer, n_block);
    const choice = this.#choice;
    this.#family.rules(rules, c, choice, this.#facts);
    const ignore = globs(this.options.ignore);
    const only = globs(this.options.only);
    const drop = globs(this.options.drop);
    const outputs: Output[] = [...this.#family.extra?.(c) ?? []];
    const unmapped: string[] = [];
    const rename = (stored: string) => {
      const plain = ignore?.test(stored) ? undefined : textName(stored);
      return plain !== undefined && this.#family.rename ? this.#family.rename(plain, c, choice) : plain;
    };
    const refused = refusedQuantization(this.#names, c);
    if (refused) {
      throw new ModelError(
        "model.quantized",
        `Cannot prepare ${this.checkpoint.dir}: it is quantized with ${refused}`,
        {
          at: { file: this.checkpoint.dir, got: refused },
          hint: "take the original release in 16 bits, or one in FP8, MXFP4, NVFP4 or compressed-tensors INT4",
        },
      );
    }
    for (const { name, view, stored } of sourceTensors(this.checkpoint, c, rename, this.#problems)) {
      const result = rules.apply(name, view);
      if (result === undefined) continue;
      if ("problem" in result) this.#problems.push(result.problem);
      else if ("unmapped" in result) unmapped.push(stored);
      else outputs.push(...(this.options.dequantize ? result.map(withoutBlocks) : result).flatMap(withSides));
    }
    if (unmapped.length > 0) this.#unmapped(unmapped);
    if (!only && !this.arrived) this.#problems.push(...rules.missing());
    if (!this.arrived) {
      const made = outputs.map(({ name }) => name);
      const idle: [string, string[]][] = [
        ["--only", unmatched(this.options.only, made)],
        ["--drop", unmatched(this.options.drop, made)],
        ["--ignore", unmatched(this.options.ignore, this.#names)],
      ];
      for (const [flag, patterns] of idle) {
        for (const pattern of patterns) this.#warnings.push(`${flag} ${pattern} fits no tensor`);
      }
    }
    const isTrunk = (name: string) => Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? Infinity) < c.n_layer;
    const kept = outputs.filter(({ name }) =>
      (!only || only.test(name)) && !drop?.test(name) && !(this.options.mtp === "only" && isTrunk(name))
    );
    return kept.sort((a, b) => (a.order ?? Infinity) - (b.order ?? Infinity) || 0);
  }

  #unmapped(names: readonly string[]): void {
    const shown = shortList(names.map((n) => `"${n}"`));
    this.#problems.push(`${names.length} tensors have no place in architecture ${this.#family.arch}: ${shown}`);
  }

  #typed({ name, view }: Output): Planned {
    const { dequantize, outtype: asked = "auto" } = this.options;
    const decided = this.#family.forceType?.(name, asked, view);
    // Such families keep 16-bit parts only beside blocks.
    const forced = dequantize && decided !== "f32" ? undefined : decided;
    const type = ggmlType(tensorType(name, view, this.#outtype, this.#mainType, forced));
    const ne = view.shape.toReversed();
    const info = { name, type, ne, from: view.from, n_rows: sizeOf(view.shape) / rowLength(view) };
    return { info, view };
  }

  /** The file's label: a 4-bit format where experts have one, whatever the rest is. */
  #fileType(tensors: readonly PreparedTensor[]): number {
    if (this.#family.fileType !== undefined && !this.options.dequantize) return this.#family.fileType;
    if (this.#mainType !== "q8_0") {
      if (tensors.some((t) => t.type.name === "nvfp4")) return FILE_TYPES["nvfp4"];
      if (tensors.some((t) => t.type.name === "mxfp4")) return FILE_TYPES["mxfp4"];
    }
    return FILE_TYPES[this.#mainType];
  }

  #metadata({ tensors, wide }: PlannedTensors, n_block: number): Metadata {
    const c = this.#config;
    const { checkpoint, options } = this;
    const metadata = new Metadata(checkpoint.dir);
    const { label, total } = sizeLabel(tensors);
    metadata.set("general.architecture", ggufValue.str(this.#family.arch))
      .set("general.type", ggufValue.str("model"));
    writeGeneral(metadata, checkpoint, {
      folder: Deno.realPathSync(checkpoint.dir).split("/").at(-1)!,
      modelName: options.modelName,
      n_param: total,
      sizeLabel: total > 0 ? label : undefined,
    });
    const keys = new Keys(metadata, this.#family.arch);
    commonKeys(keys, c, n_block, this.#fileType(tensors));
    this.#family.keys?.(keys, c, n_block, this.#facts, this.#choice);
    metadata.set("general.quantization_version", ggufValue.u32(2));
    if (wide.length > 0) {
      metadata.set("general.tensor_extra.name", ggufValue.strs(wide))
        .set("general.tensor_extra.prec_a4", ggufValue.bools(wide.map(() => false)));
    }
    for (const [key, value] of this.#readVocabulary()) metadata.set(key, value);
    return metadata;
  }

  #readVocabulary(): Metadata {
    if (this.#vocabulary) return this.#vocabulary;
    const { checkpoint, options } = this, { classes } = this.#family;
    const known = classes.find((name) => name === this.#config.architecture) ?? classes[0];
    this.#vocabulary = new Metadata(checkpoint.dir);
    this.#warnings.push(...writeVocabulary(this.#vocabulary, checkpoint, known, options.chatTemplate));
    return this.#vocabulary;
  }

  get #facts(): CheckpointFacts {
    return checkpointFacts(this.checkpoint, () => this.#readVocabulary());
  }
}

const FLOATS: ReadonlySet<string> = new Set<FloatType>(["F32", "F16", "BF16"]);

/** Rows of a view in a tensor's type, checked; later where `quantize` encodes them. */
function readRows(t: PreparedTensor, view: View, row: number, rows: number): Uint8Array;
function readRows(
  t: PreparedTensor,
  view: View,
  row: number,
  rows: number,
  quantize: RowQuantizer | undefined,
): Uint8Array | Promise<Uint8Array>;
function readRows(
  t: PreparedTensor,
  view: View,
  row: number,
  rows: number,
  quantize?: RowQuantizer,
): Uint8Array | Promise<Uint8Array> {
  const n = t.ne[0];
  const bytes = view.read(row * n, rows * n);
  if (!FLOATS.has(view.dtype)) return bytes;
  const from = view.dtype as FloatType;
  const at = (i: number) => ({ tensor: t.name, from: view.from, row: row + Math.floor(i / n), column: i % n });
  const bad = firstNonFinite(bytes, from);
  if (bad >= 0) {
    const value = elementAt(bytes, from, bad);
    const where = at(bad);
    throw new QuantizeError(
      "quantize.non_finite",
      `Cannot convert tensor "${t.name}" (${view.from}): row ${where.row}, column ${where.column} is ${value}`,
      { at: { ...where, value: String(value) }, hint: "the checkpoint is damaged or diverged in training" },
    );
  }
  if (t.type.name === "q8_0") {
    const src = toF32(bytes, from);
    if (src !== bytes) release(bytes);
    const job = { srcType: ggmlType("f32"), src, dstType: t.type, n_rows: rows, n_per_row: n };
    if (quantize) return quantize(job).finally(() => release(src));
    const blocks = encodeQ8_0(f32Of(src));
    release(src);
    return blocks;
  }
  const to = t.type.name.toUpperCase() as FloatType;
  const out = convertFloats(bytes, from, to);
  if (to === "F16" && from !== "F16") {
    const over = firstNonFinite(out, "F16");
    if (over >= 0) {
      const where = at(over);
      const value = elementAt(bytes, from, over);
      throw new QuantizeError(
        "quantize.overflow",
        `Cannot convert tensor "${t.name}" (${view.from}) to f16: row ${where.row}, column ${where.column} is ${value}, ` +
          "beyond 65504",
        { at: { ...where, value }, hint: "use --outtype bf16 or f32" },
      );
    }
  }
  if (out !== bytes) release(bytes);
  return out;
}
