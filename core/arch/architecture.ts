/**
 * What an architecture file provides: hyper-parameters from a model file, the tensors it reads, and the forward pass as ops.
 * A new family is one file in this folder and one line in `mod.ts`.
 * @module
 */
import type { GgufFile } from "../gguf/read.ts";
import type { GgmlType } from "../gguf/types.ts";
import type { Ops, T } from "../program/program.ts";

/** Hyper-parameters every decoder has; each family adds its own. Names are the field's. */
export interface Spec {
  /** `general.architecture` */
  readonly arch: string;
  readonly n_layer: number;
  readonly n_embd: number;
  readonly n_vocab: number;
  readonly n_ctx_train: number;
  readonly n_head: number;
  readonly n_head_kv: number;
  /** Of queries and keys. */
  readonly head_dim: number;
  readonly head_dim_v: number;
  readonly n_expert: number;
  readonly n_expert_used: number;
}

/** A tensor of the model file that a program reads; `ne` fastest first. */
export interface TensorWant {
  readonly name: string;
  readonly ne: readonly number[];
  /** The program does without it when the file has none. */
  readonly optional?: boolean;
}

/** Elements per token of one layer's key and value streams. */
export interface LayerStreams {
  readonly k: number;
  readonly v: number;
}

/** Weights by name while a program is built: `w("output_norm.weight")`. Undefined when an optional one is absent. */
export interface Weights {
  (name: string): T;
  optional(name: string): T | undefined;
  /** A constant computed from the metadata. */
  constant(name: string, values: Float32Array): T;
}

/** The file as an architecture sees it. */
export type ModelFile = Pick<GgufFile, "name" | "metadata" | "has" | "find" | "tensor" | "readTensor">;

export interface Architecture<S extends Spec = Spec> {
  /** Value of `general.architecture`. */
  readonly name: string;
  spec(file: ModelFile): S;
  tensors(spec: S): TensorWant[];
  /** One entry per layer. */
  streams(spec: S): LayerStreams[];
  /** Emits the forward pass. @returns logits `[n_out, n_vocab]`. */
  build(op: Ops, w: Weights, spec: S): T;
}

/** A tensor the file has, as bound: type included. */
export interface BoundTensor {
  readonly name: string;
  readonly type: GgmlType;
  readonly ne: readonly number[];
}
