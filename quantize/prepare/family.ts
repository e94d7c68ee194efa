/**
 * What a model family tells `prepare`: which checkpoints are its, which keys it writes after the common ones, and how its
 * tensors are named. One file per family under `arch/`.
 * @module
 */
import type { Config } from "./config.ts";
import type { Keys } from "./keys.ts";
import type { Output, Rules } from "./rules.ts";
import type { View } from "./view.ts";

/** What the user may choose about a family's tensors. */
export interface FamilyOptions {
  /** Draft blocks (multi-token prediction): kept, or left out. */
  readonly mtp: boolean;
}

/** What tensors tell the keys. Names are told by how they end. */
export interface TensorFacts {
  /** Values of a small tensor of 64-bit integers. */
  integers(suffix: string): bigint[] | undefined;
  shape(suffix: string): readonly number[] | undefined;
}

export interface Family {
  /** Class names in `architectures` of config.json. */
  readonly classes: readonly string[];
  /** Decides between families of the same class; all checkpoints where left out. */
  readonly accepts?: (c: Config) => boolean;
  /** `general.architecture`. */
  readonly arch: string;
  /** Fields of config.json that releases leave out, with what they mean then. */
  readonly defaults?: (c: Config) => Record<string, unknown>;
  /** Draft blocks after the model's own; none where left out. */
  readonly draftBlocks?: (c: Config, names: Iterable<string>) => number;
  /** A checkpoint name in the family's own form, or undefined for a tensor that is not the text model's. */
  readonly rename?: (name: string, c: Config, options: FamilyOptions) => string | undefined;
  readonly rules: (r: Rules, c: Config) => void;
  /** Keys after the common ones; those set again keep their place. */
  readonly keys?: (k: Keys, c: Config, n_block: number, facts: TensorFacts) => void;
  /** Tensors that are computed; they come first in the file. */
  readonly extra?: (c: Config) => Output[];
  /** A type that the tensor has whatever was asked for: a ggml name, or undefined. */
  readonly forceType?: (name: string, outtype: string, v: View) => string | undefined;
  /** `general.file_type` where it is no matter of choice. */
  readonly fileType?: number;
}
