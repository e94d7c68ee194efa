/**
 * The metadata of a model file as an architecture reads it: names without the architecture's prefix, values checked, and a
 * record of what was read, so that a key that nobody reads can be told.
 * @module
 */
import { ModelError } from "../errors.ts";
import type { GgufTensor } from "../gguf/header.ts";
import type { Metadata } from "../gguf/metadata.ts";
import type { AdapterShape } from "../program/adapter.ts";
import type { FileRange, PackedRange } from "../program/backend.ts";

/** An adapter as it is listed. */
export interface AdapterInfo extends AdapterShape {
  /** Of its file. */
  readonly path: string;
  /** What it was made for, where its file says so. */
  readonly task_name: string;
  /** What prompts should begin with, where its file says so. */
  readonly prompt_prefix: string;
  /** Names of the weights that it changes. */
  readonly changes: readonly string[];
}

/** A tensor of a model, wherever its bytes are. */
export type ModelTensor = Pick<GgufTensor, "name" | "type" | "ne" | "bytes">;

/** A model's headers, as an architecture sees them. */
export interface ModelFile {
  /** What messages call it: a path. */
  readonly name: string;
  /** Of the file. */
  readonly metadata: Metadata;
  /** All of them, in file order. */
  readonly tensors: readonly ModelTensor[];
  /** Whether there is a tensor of this name. */
  has(name: string): boolean;
  /** The tensor, or undefined. */
  find(name: string): ModelTensor | undefined;
  /**
   * A tensor by name.
   * @throws {ModelError} `model.missing_tensor`
   */
  tensor(name: string): ModelTensor;
  /** Files with the same bytes as those that tensors lie in, such as on other drives. */
  copies?(): readonly { readonly of: string; readonly copy: string }[];
  /**
   * Where the packed matrices of a tensor are, and how many; undefined where it has no packed form.
   * @internal
   */
  packed?(name: string): PackedRange & { readonly n_matrix: number } | undefined;
  /** All bytes of a tensor. Not to be written to. */
  readTensor(t: ModelTensor): Uint8Array;
  /** Where a tensor's bytes are; undefined where no file has them as they are. */
  place(t: ModelTensor): FileRange | undefined;
  /** What is added to the rows behind a layer, `[n_embd]`, by layer. */
  readonly control?: ReadonlyMap<number, Float32Array>;
  /** Adapters whose tensors are found beside the model's own. */
  readonly adapters?: readonly AdapterInfo[];
}

/** What a model is loaded from: a GGUF file, or a checkpoint seen as the file it would become. */
export interface ModelSource extends ModelFile, Disposable {
  /** Bytes of a tensor that has no place: they are made. */
  make(t: ModelTensor): Promise<Uint8Array>;
  /** Closes the files. */
  close(): void;
}

/** Keys of an architecture that do not change what is computed. */
const WITHOUT_EFFECT = new Set([
  "block_count",
  "context_length",
  "embedding_length",
  "vocab_size",
  "rope.scaling.finetuned",
  "attention.key_length",
  "attention.value_length",
  "pooling_type",
]);

/** Reads `{arch}.*`. Every method throws `model.missing_key` or `model.key_type` as `Metadata` does. */
export class Keys {
  readonly #read = new Set<string>();

  constructor(readonly file: ModelFile, readonly arch: string) {}

  has(key: string): boolean {
    return this.file.metadata.has(this.#full(key));
  }

  isArray(key: string): boolean {
    return this.file.metadata.get(this.#full(key))?.type === "array";
  }

  u32(key: string, fallback?: number): number {
    const full = this.#full(key);
    return fallback === undefined ? this.file.metadata.u32(full) : this.file.metadata.u32(full, fallback);
  }

  f32(key: string, fallback?: number): number {
    const full = this.#full(key);
    return fallback === undefined ? this.file.metadata.f32(full) : this.file.metadata.f32(full, fallback);
  }

  bool(key: string, fallback: boolean): boolean {
    return this.file.metadata.bool(this.#full(key), fallback);
  }

  str(key: string, fallback: string): string {
    return this.file.metadata.str(this.#full(key), fallback);
  }

  /** An array of integers of up to 32 bits. */
  ints(key: string, fallback?: readonly number[]): number[] {
    const full = this.#full(key);
    return Array.from(fallback === undefined ? this.file.metadata.ints(full) : this.file.metadata.ints(full, fallback));
  }

  /** An array of integers of up to 64 bits. */
  bigints(key: string): bigint[] {
    const v = this.file.metadata.get(this.#full(key));
    if (v?.type !== "array" || v.elem === "str" || v.elem === "bool") this.refuse(key, v?.type, "an array of integers");
    return Array.from(v.value as ArrayLike<number | bigint>, BigInt);
  }

  /** `[n_layer]` numbers: an array, or one number for all layers. */
  perLayer(key: string, n_layer: number, fallback?: number): number[] {
    const full = this.#full(key);
    return fallback === undefined
      ? this.file.metadata.perLayer(full, n_layer)
      : this.file.metadata.perLayer(full, n_layer, new Array<number>(n_layer).fill(fallback));
  }

  /** A number that must be the same for all layers. */
  uniform(key: string, n_layer: number, fallback?: number): number {
    const values = this.perLayer(key, n_layer, fallback);
    const odd = values.find((v) => v !== values[0]);
    if (odd !== undefined) this.refuse(key, `${values[0]} and ${odd}`, "the same number for every layer");
    return values[0];
  }

  /** @throws {ModelError} `model.key_value` */
  refuse(key: string, got: unknown, expected: string): never {
    const full = `${this.arch}.${key}`;
    throw new ModelError(
      "model.key_value",
      `Cannot use key "${full}" of ${this.file.name}: found ${got}, expected ${expected}`,
      {
        at: { file: this.file.name, key: full, got, expected },
      },
    );
  }

  /** @throws {ModelError} `model.key_value` when `ok` is false */
  want(ok: boolean, key: string, got: unknown, expected: string): void {
    if (!ok) this.refuse(key, got, expected);
  }

  /** Keys of the architecture that nobody has read and that could change the numbers. */
  unread(): string[] {
    return [...this.file.metadata.keys()].filter((k) =>
      k.startsWith(`${this.arch}.`) && !this.#read.has(k) && !WITHOUT_EFFECT.has(k.slice(this.arch.length + 1))
    );
  }

  #full(key: string): string {
    const full = `${this.arch}.${key}`;
    this.#read.add(full);
    return full;
  }
}
