/**
 * A model bound to its file: every tensor the architecture wants, found and checked before anything is loaded. Binding is a
 * dry run of the architecture's `build` against the file's headers.
 * @module
 */
import { ModelError } from "../errors.ts";
import { adapterTensor } from "../program/adapter.ts";
import {
  type BindProblem,
  type Bucket,
  type CacheDesc,
  type Collected,
  Ops,
  type Program,
  type T,
  type WeightDesc,
} from "../program/program.ts";
import { onlyDevice, type Placement, placeProgram } from "../program/place.ts";
import type { Architecture, Spec } from "./architecture.ts";
import { classifier, hasClassifier, readClassifier } from "./classifier.ts";
import { Keys, type ModelFile } from "./keys.ts";
import { architectureOf } from "./mod.ts";

export interface Model {
  readonly file: ModelFile;
  readonly arch: Architecture;
  readonly spec: Spec;
  readonly weights: readonly WeightDesc[];
  readonly caches: readonly CacheDesc[];
  /** What the file holds and this architecture does not use. */
  readonly warnings: readonly string[];
  /** Weights whose inputs a program of this model sums up. */
  readonly collects?: (weight: string) => boolean;
  /** Where those sums are. */
  readonly collected: readonly Collected[];
  /** Numbers of a row of `VECTORS`: what the head takes, and what a reranker's head gives (0: the file has none). */
  readonly widths: { readonly hidden: number; readonly rank: number };
}

/** The first three of a list and how many there are. */
function some(items: readonly string[]): string {
  return items.length <= 3 ? items.join(", ") : `${items.slice(0, 3).join(", ")} and ${items.length - 3} more`;
}

function problemText(p: BindProblem): string {
  return p.got
    ? `"${p.tensor}": shape is [${p.got}], expected [${p.expected}]`
    : `"${p.tensor}" is missing, expected [${p.expected}]`;
}

function refuseProblems(file: ModelFile, arch: Spec, problems: readonly BindProblem[]): never {
  const [first] = problems;
  throw new ModelError(
    first.got ? "model.tensor_shape" : "model.missing_tensor",
    `Cannot bind ${file.name} as ${arch.arch}: ${some(problems.map(problemText))}`,
    {
      at: { file: file.name, arch: arch.arch, problems },
      hint: `convert the checkpoint again, or correct the ${arch.arch}.* keys that give these shapes`,
    },
  );
}

/** What a part of an architecture uses of a file, and what it does not find there. */
function dryRun(
  file: ModelFile,
  build: (op: Ops) => void,
  collects?: Model["collects"],
): { used: Program; problems: readonly BindProblem[]; ended: ReadonlySet<number> } {
  const op = new Ops({ n_tok: 1, n_out: 1, n_seq: 1, n_page: 1 }, file, 0, collects);
  try {
    build(op);
  } catch (e) {
    // Keys that do not fit the tensors may give ops that do not fit each other; the tensors then tell which.
    if (op.problems.length === 0) throw e;
  }
  return { used: op.finish(), problems: op.problems, ended: op.ended };
}

/** An adapter that would change nothing of what it was made to change is not this model's. */
function refuseUnusedAdapters(file: ModelFile, used: ReadonlySet<string>): void {
  file.adapters?.forEach(({ path, changes }, i) => {
    const unused = changes.filter((name) => !used.has(adapterTensor(i, name, "a")));
    if (unused.length === 0) return;
    const text = `Cannot use ${path} with ${file.name}: it changes ${
      some(unused)
    }, which the model does not multiply by`;
    throw new ModelError("model.adapter", text, {
      at: { file: path, tensors: unused },
      hint: "give an adapter of this model",
    });
  });
}

/** Control vectors need layers that hand on one stream of rows as wide as they are. */
function refuseControl(file: ModelFile, spec: Spec, ended: ReadonlySet<number>): void {
  const vectors = [...file.control ?? []], wide = vectors.find(([, v]) => v.length !== spec.n_embd);
  const refuse = (what: string) => {
    throw new ModelError("model.control_vector", `Cannot use a control vector with ${file.name}: ${what}`, {
      at: { file: file.name, arch: spec.arch },
      hint: "give a control vector of this model",
    });
  };
  if (wide) refuse(`it has ${wide[1].length} numbers, expected ${spec.n_embd}`);
  if (vectors.some(([il]) => il < spec.n_layer && !ended.has(il))) {
    refuse(`layers of ${spec.arch} do not hand on one stream of rows`);
  }
}

/** Tensors that are in the file for readers of other versions or for image tokens, and change nothing. */
const WITHOUT_EFFECT =
  /^(rope_freqs\.weight|rope_factors_(long|short)\.weight|blk\.\d+\.(attn_rot_embd\.weight|rope_freqs\.weight|exp_probs_b_vl\.bias)|.*\.input_scale)$/;

/**
 * Reads the hyper-parameters and checks every tensor's presence and shape; all problems are named at once.
 * @param collects Weights whose inputs its programs sum up, besides what they compute.
 * @throws {ModelError} `model.architecture`, `model.missing_tensor`, `model.tensor_shape`, `model.unused_layers`, ...
 */
export function bindModel(file: ModelFile, collects?: Model["collects"]): Model {
  const name = file.metadata.str("general.architecture");
  const arch = architectureOf(file);
  const keys = new Keys(file, name);
  const spec = arch.spec(keys);
  const widths = { hidden: spec.n_embd, rank: 0 };
  const { used, problems, ended } = dryRun(file, (op) => {
    arch.build(op, spec);
    const x = op.headInput;
    if (!x) return;
    widths.hidden = x.ne[0];
    if (hasClassifier(file)) widths.rank = classifier(op, readClassifier(keys), x).ne[0];
  }, collects);
  const draft = dryRun(file, (op) => arch.draft?.(op, spec));
  if (problems.length + draft.problems.length > 0) refuseProblems(file, spec, [...problems, ...draft.problems]);

  const known = new Set([...used.weights, ...draft.used.weights].map((w) => w.name));
  refuseUnusedAdapters(file, known);
  refuseControl(file, spec, ended);
  const unused = file.tensors.map((t) => t.name).filter((t) => !known.has(t) && !WITHOUT_EFFECT.test(t));
  const beyond = unused.filter((t) => Number(/^blk\.(\d+)\./.exec(t)?.[1] ?? -1) >= spec.n_layer);
  if (beyond.length > 0) {
    throw new ModelError(
      "model.unused_layers",
      `Cannot run ${file.name}: ${name}.block_count gives ${spec.n_layer} layers, but the file holds ${some(beyond)}`,
      {
        at: { file: file.name, n_layer: spec.n_layer, tensors: beyond },
        hint: `correct ${name}.block_count or ${name}.nextn_predict_layers, or convert the checkpoint again`,
      },
    );
  }
  const warnings: string[] = [];
  if (unused.length > 0) warnings.push(`${file.name} holds tensors that ${name} does not use: ${some(unused)}`);
  const unread = keys.unread();
  if (unread.length > 0) warnings.push(`${file.name} has keys that are not understood and may matter: ${some(unread)}`);
  return {
    file,
    arch,
    spec,
    weights: used.weights,
    caches: used.caches,
    warnings,
    collected: used.collected,
    widths,
    ...(collects ? { collects } : {}),
  };
}

/** What a step can be asked for, each one row per output row. */
export const OUTPUTS = {
  /** i32 `[topK, n_out]`, best first */
  ids: "top_ids",
  /** f32 `[topK, n_out]` */
  top: "top_logits",
  /** f32 `[1, n_out]` log-sum-exp of the row */
  lse: "lse",
  /** f32 `[1, n_out]` log-probability of the row's target */
  target: "target_logprob",
  /** f32 `[n_vocab, n_out]` */
  logits: "logits",
} as const;

/** What a program of vectors gives. */
export const VECTORS = {
  /** f32 `[n, n_out]`: what the head would take */
  hidden: "hidden",
  /** f32 `[n_class, n_out]`: what a reranker's head gives, where the file has one */
  rank: "rank",
} as const;

type Buildable = Pick<Model, "file" | "arch" | "spec" | "widths">;

/** The forward pass without the head, for embeddings and rerankers: no row of logits is computed. */
export function buildVectors(
  model: Buildable,
  bucket: Bucket,
  place: number | Placement,
  adapters?: readonly number[],
): Program {
  const op = new Ops(bucket, model.file, firstDevice(place), undefined, adapters);
  model.arch.build(op, model.spec);
  const x = op.dropHead();
  op.output(VECTORS.hidden, op.wanted_rows(x));
  addClassifier(op, model, x);
  return placed(op.finish(), place);
}

/** What the file's classifier gives, where it has one. It is part of every program, so that all have the same weights. */
function addClassifier(op: Ops, { file, spec, widths }: Buildable, x: T): void {
  if (widths.rank === 0) return;
  op.output(VECTORS.rank, classifier(op, readClassifier(new Keys(file, spec.arch)), x));
}

/** The device that a program is built for before it is placed. */
function firstDevice(place: number | Placement): number {
  return typeof place === "number" ? place : onlyDevice(place) ?? 0;
}

function placed(program: Program, place: number | Placement): Program {
  return typeof place === "number" || onlyDevice(place) !== undefined ? program : placeProgram(program, place);
}

/**
 * The forward pass for one shape bucket, with the outputs above; of an encoder, which has no logits, that of `buildVectors`.
 * @param adapters Which of the file's adapters take part; left out: all.
 */
export function buildProgram(
  model: Buildable & Pick<Model, "collects">,
  bucket: Bucket,
  topK: number,
  place: number | Placement,
  adapters?: readonly number[],
): Program {
  if (model.arch.encoder) return buildVectors(model, bucket, place, adapters);
  const op = new Ops(bucket, model.file, firstDevice(place), model.collects, adapters);
  const logits = op.wanted_rows(model.arch.build(op, model.spec));
  const top = op.top_k(logits, topK);
  op.output(OUTPUTS.ids, top.ids);
  op.output(OUTPUTS.top, top.values);
  op.output(OUTPUTS.lse, top.lse);
  op.output(OUTPUTS.target, op.target_logprob(logits, top.lse));
  op.output(OUTPUTS.logits, logits);
  if (op.headInput) addClassifier(op, model, op.headInput);
  return placed(op.finish(), place);
}
