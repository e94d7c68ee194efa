/**
 * A model bound to its file: every tensor the architecture wants, found and checked before anything is loaded.
 * @module
 */
import { type Architecture, architectureOf, type BoundTensor, type ModelFile, type Spec } from "../arch/mod.ts";
import type { Weights } from "../arch/architecture.ts";
import { ModelError } from "../errors.ts";
import { type Bucket, Ops, type Program } from "../program/program.ts";

export interface Model {
  readonly file: ModelFile;
  readonly arch: Architecture;
  readonly spec: Spec;
  /** Tensors the file has, by name. */
  readonly tensors: ReadonlyMap<string, BoundTensor>;
}

/**
 * Reads the hyper-parameters and checks every tensor's presence and shape.
 * @throws {ModelError} `model.architecture`, `model.missing_tensor`, `model.tensor_shape`, ...
 */
export function bindModel(file: ModelFile): Model {
  const arch = architectureOf(file);
  const spec = arch.spec(file);
  const tensors = new Map<string, BoundTensor>();
  for (const want of arch.tensors(spec)) {
    const t = want.optional ? file.find(want.name) : file.tensor(want.name);
    if (!t) continue;
    const same = want.ne.every((n, i) => n === (t.ne[i] ?? 1)) && t.ne.slice(want.ne.length).every((n) => n === 1);
    if (!same) {
      throw new ModelError(
        "model.tensor_shape",
        `Cannot bind "${want.name}" of ${file.name}: shape is [${t.ne}], expected [${want.ne}]`,
        {
          at: { file: file.name, tensor: want.name, got: t.ne, expected: want.ne },
          hint: `convert the checkpoint again, or correct the ${arch.name}.* keys that give this shape`,
        },
      );
    }
    tensors.set(want.name, { name: want.name, type: t.type, ne: t.ne });
  }
  return { file, arch, spec, tensors };
}

/** What a step can be asked for, each one row per output row. */
export const OUTPUTS = {
  /** i32 `[n_out, topK]`, best first */
  ids: "top_ids",
  /** f32 `[n_out, topK]` */
  top: "top_logits",
  /** f32 `[n_out]` log-sum-exp of the row */
  lse: "lse",
  /** f32 `[n_out]` log-probability of the row's target */
  target: "target_logprob",
  /** f32 `[n_out, n_vocab]` */
  logits: "logits",
} as const;

/** The forward pass for one shape bucket, with the outputs above. */
export function buildProgram(model: Model, bucket: Bucket, topK: number, device: number): Program {
  const op = new Ops(bucket, device);
  const optional = (name: string) => {
    const t = model.tensors.get(name);
    return t && op.weight(name, t.type, t.ne);
  };
  const w: Weights = Object.assign(
    (name: string) => {
      const t = optional(name);
      if (!t) throw new Error(`${model.arch.name} builds with "${name}" but does not list it among its tensors`);
      return t;
    },
    { optional, constant: (name: string, values: Float32Array) => op.constant(name, values) },
  );
  const logits = model.arch.build(op, w, model.spec);
  const top = op.top_k(logits, topK);
  op.output(OUTPUTS.ids, top.ids);
  op.output(OUTPUTS.top, top.logits);
  op.output(OUTPUTS.lse, top.lse);
  op.output(OUTPUTS.target, op.target_logprob(logits, top.lse));
  op.output(OUTPUTS.logits, logits);
  return op.finish();
}
