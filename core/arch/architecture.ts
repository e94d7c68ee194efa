/**
 * What an architecture file provides: hyper-parameters from a model file, and the forward pass as ops. Weights, streams and
 * states are declared where the forward pass uses them. A new family is one file in this folder and one line in `mod.ts`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Keys } from "./keys.ts";

/** Hyper-parameters every model has; each family adds its own. Names are the field's. */
export interface Spec {
  /** `general.architecture` */
  readonly arch: string;
  /** Decoder layers, without draft blocks. */
  readonly n_layer: number;
  /** Draft blocks behind them. */
  readonly n_nextn: number;
  readonly n_embd: number;
  readonly n_vocab: number;
  readonly n_ctx_train: number;
  /** Tokens that a text has at most: the positions that were learned, or the reach of what is computed here. Left out: any number. */
  readonly n_position?: number;
}

export interface Architecture<S extends Spec = Spec> {
  /** Values of `general.architecture`. */
  readonly names: readonly string[];
  /** Every row sees the rows behind it: a text is one step, and what comes out are vectors, no logits. */
  readonly encoder?: boolean;
  spec(keys: Keys): S;
  /** Emits the forward pass. @returns logits `[n_vocab, n_out]`; of an encoder, rows `[n, n_tok]`, which it has told as `hidden`. */
  build(op: Ops, spec: S): T;
  /**
   * Declares the tensors of draft (multi-token prediction) blocks that the file holds behind its layers. They are bound and
   * checked with the model; the forward pass does not use them.
   */
  draft?(op: Ops, spec: S): void;
}
