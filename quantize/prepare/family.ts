/**
 * What `prepare` knows of a model family: the checkpoints that belong to it, the keys it adds to the common ones, and the
 * names of its tensors. One file per family under `arch/`.
 * @module
 */
import type { Metadata } from "../../core/gguf/metadata.ts";
import type { Config } from "./config.ts";
import type { Keys } from "./keys.ts";
import type { Outtype } from "./outtype.ts";
import type { Output, Rules } from "./rules.ts";
import type { View } from "./view.ts";

/** Where a file keeps the n-gram tables of DeepSeek V4.1: one tensor a site, or all sites in one. */
export const NGRAM_LAYOUTS = ["per-site", "concatenated"] as const;
/** One of them. */
export type NgramLayout = (typeof NGRAM_LAYOUTS)[number];

/** What the user may choose about a family's tensors. */
export interface FamilyOptions {
  /** Draft blocks (multi-token prediction): kept, left out, or alone with embeddings and head. */
  readonly mtp: boolean | "only";
  readonly ngramLayout: NgramLayout;
}

/** What a family may ask about the checkpoint for its keys. Tensors are named by the end of their names. */
export interface CheckpointFacts {
  /** Values of a small tensor of 64-bit integers. */
  integers(suffix: string): bigint[] | undefined;
  shape(suffix: string): readonly number[] | undefined;
  /** A JSON file of the folder, undefined where there is none. */
  json(file: string): unknown;
  /** The keys `tokenizer.*` of the file. */
  vocabulary(): Metadata;
}

export interface Family {
  /** Class names in `architectures` of config.json. */
  readonly classes: readonly string[];
  /** Decides between families of the same class; all checkpoints where left out. `text` is that of a file, undefined where there is none. */
  readonly accepts?: (c: Config, text: (file: string) => string | undefined) => boolean;
  /** `general.architecture`. */
  readonly arch: string;
  /** Fields of config.json that releases leave out, with what they mean then. */
  readonly defaults?: (c: Config) => Record<string, unknown>;
  /** Draft blocks after the model's own; none where left out. */
  readonly draftBlocks?: (c: Config, names: Iterable<string>) => number;
  /** A checkpoint name in the family's own form, or undefined for a tensor that is not the text model's. */
  readonly rename?: (name: string, c: Config, options: FamilyOptions) => string | undefined;
  readonly rules: (r: Rules, c: Config, options: FamilyOptions, facts: CheckpointFacts) => void;
  /** Keys after the common ones; those set again keep their place. */
  readonly keys?: (k: Keys, c: Config, n_block: number, facts: CheckpointFacts, options: FamilyOptions) => void;
  /** Tensors that are computed; they come first in the file. */
  readonly extra?: (c: Config) => Output[];
  /** The type of a tensor where the family decides it: a ggml name, or undefined. `asked` is what the user asked for. */
  readonly forceType?: (name: string, asked: Outtype, v: View) => string | undefined;
  /** `general.file_type` where the family fixes it. */
  readonly fileType?: number;
}
