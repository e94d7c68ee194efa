/**
 * Low-rank adapters (LoRA, arXiv 2106.09685) of GGUF: for a weight W, matrices A and B, so that a row's product becomes
 * `W x + scale (alpha / rank) B (A x)`. A scale belongs to a sequence, so adapters change from request to request, and rows of one
 * step may differ in theirs.
 *
 * File: `general.type` = `adapter`, `adapter.type` = `lora`, `adapter.lora.alpha`; tensors `{weight}.lora_a` `[n_in, rank]` and
 * `{weight}.lora_b` `[rank, n_out]`, with experts on a third axis. A table of rows has `lora_a` `[rank, n_rows]` and `lora_b`
 * `[rank, n]`.
 * @module
 */
import { ModelError } from "../errors.ts";
import { type GgufFile, openGguf } from "../gguf/read.ts";
import type { FileRange } from "../program/backend.ts";
import { adapterTensor } from "../program/adapter.ts";
import type { AdapterInfo, ModelSource, ModelTensor } from "./keys.ts";

/** An adapter file whose pairs are complete. */
export class Adapter implements AdapterInfo, Disposable {
  readonly path: string;
  readonly task_name: string;
  readonly prompt_prefix: string;
  /** 0: the scale is taken as it is. */
  readonly alpha: number;
  /** Names of the weights that it changes. */
  readonly changes: readonly string[];

  private constructor(readonly file: GgufFile) {
    const { metadata } = file;
    this.path = file.name;
    for (const [key, wanted] of [["general.type", "adapter"], ["adapter.type", "lora"]]) {
      const got = metadata.str(key, undefined) ?? "nothing";
      if (got !== wanted) {
        throw new ModelError(
          "model.adapter",
          `Cannot use ${file.name} as an adapter: ${key} is ${got}, expected ${wanted}`,
          {
            at: { file: file.name, key, got },
            hint: "give a GGUF file of a LoRA adapter",
          },
        );
      }
    }
    this.alpha = metadata.f32("adapter.lora.alpha");
    this.task_name = metadata.str("adapter.lora.task_name", "");
    this.prompt_prefix = metadata.str("adapter.lora.prompt_prefix", "");
    const names = file.tensors.map((t) => t.name);
    const strange = names.find((n) => !/\.lora_[ab]$/.test(n));
    if (strange !== undefined) this.#refuse(strange, "is neither a .lora_a nor a .lora_b");
    this.changes = [...new Set(names.map((n) => n.slice(0, -".lora_a".length)))];
    for (const name of this.changes) {
      const a = file.find(`${name}.lora_a`), b = file.find(`${name}.lora_b`);
      if (!a || !b) this.#refuse(name, `lacks its ${a ? ".lora_b" : ".lora_a"}`);
    }
    if (this.changes.length === 0) {
      throw new ModelError("model.adapter", `Cannot use ${file.name} as an adapter: it has no tensors`, {
        at: { file: file.name },
      });
    }
  }

  /**
   * Opens a file and checks its pairs.
   * @throws {ModelError} `model.adapter`, `model.missing_key` · {@link FormatError}
   */
  static open(path: string): Adapter {
    const file = openGguf(path);
    try {
      return new Adapter(file);
    } catch (error) {
      file.close();
      throw error;
    }
  }

  #refuse(tensor: string, what: string): never {
    throw new ModelError("model.adapter", `Cannot use ${this.path} as an adapter: "${tensor}" ${what}`, {
      at: { file: this.path, tensor },
      hint: "convert the adapter again",
    });
  }

  /** Closes the file. */
  [Symbol.dispose](): void {
    this.file.close();
  }
}

/**
 * A model with adapters beside it: the same model, whose programs may use them. Closes them with the model.
 * @param control What is added to the rows behind layers, for every sequence.
 */
export function withAdapters(
  model: ModelSource,
  adapters: readonly Adapter[],
  control: ReadonlyMap<number, Float32Array> = new Map(),
): ModelSource {
  if (adapters.length === 0 && control.size === 0) return model;
  const arch = model.metadata.str("general.architecture");
  for (const { file, path } of adapters) {
    const got = file.metadata.str("general.architecture");
    if (got === arch) continue;
    throw new ModelError("model.adapter", `Cannot use ${path} with ${model.name}: it is for ${got}, expected ${arch}`, {
      at: { file: path, got, expected: arch },
      hint: "give an adapter of this model",
    });
  }
  return new AdaptedModel(model, adapters, control);
}

class AdaptedModel implements ModelSource {
  readonly #own = new Map<string, { tensor: ModelTensor; file: GgufFile }>();
  /** Their tensors by the names that programs use. */
  readonly #named = new Map<ModelTensor, { tensor: ModelTensor; file: GgufFile }>();

  constructor(
    readonly model: ModelSource,
    readonly adapters: readonly Adapter[],
    readonly control: ReadonlyMap<number, Float32Array>,
  ) {
    adapters.forEach(({ file, changes }, i) => {
      for (const weight of changes) {
        for (const part of ["a", "b"] as const) {
          const tensor = file.tensor(`${weight}.lora_${part}`), name = adapterTensor(i, weight, part);
          const named = { name, type: tensor.type, ne: tensor.ne, bytes: tensor.bytes };
          this.#own.set(name, { tensor: named, file });
          this.#named.set(named, { tensor, file });
        }
      }
    });
  }

  get name(): string {
    return this.model.name;
  }
  get metadata(): ModelSource["metadata"] {
    return this.model.metadata;
  }
  /** Of the model alone. */
  get tensors(): readonly ModelTensor[] {
    return this.model.tensors;
  }
  has(name: string): boolean {
    return this.find(name) !== undefined;
  }
  find(name: string): ModelTensor | undefined {
    return this.model.find(name) ?? this.#own.get(name)?.tensor;
  }
  tensor(name: string): ModelTensor {
    return this.#own.get(name)?.tensor ?? this.model.tensor(name);
  }
  copies(): ReturnType<NonNullable<ModelSource["copies"]>> {
    return this.model.copies?.() ?? [];
  }
  packed(name: string): ReturnType<NonNullable<ModelSource["packed"]>> {
    return this.model.packed?.(name);
  }
  readTensor(t: ModelTensor): Uint8Array {
    const own = this.#named.get(t);
    return own ? own.file.readTensor(own.file.tensor(own.tensor.name)) : this.model.readTensor(t);
  }
  place(t: ModelTensor): FileRange | undefined {
    const own = this.#named.get(t);
    return own ? own.file.place(own.file.tensor(own.tensor.name)) : this.model.place(t);
  }
  make(t: ModelTensor): Promise<Uint8Array> {
    return this.#named.has(t) ? Promise.resolve(this.readTensor(t)) : this.model.make(t);
  }
  close(): void {
    for (const a of this.adapters) a[Symbol.dispose]();
    this.model.close();
  }
  [Symbol.dispose](): void {
    this.close();
  }
}
