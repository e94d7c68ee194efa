/**
 * Weights of an engine that stand in the place of the file's own: the same tensor in another type, to see what that changes.
 * @module
 */
import { buildProgram, type Model } from "../arch/model.ts";
import type { ModelFile } from "../arch/keys.ts";
import { type GgmlType, rowBytes } from "../gguf/types.ts";
import type { Backend, TensorHandle } from "../program/backend.ts";
import type { Placement } from "../program/place.ts";
import type { WeightDesc } from "../program/program.ts";

/** A tensor in another type than the file's. */
export interface Replacement {
  readonly type: GgmlType;
  /** All of its rows. */
  readonly data: Uint8Array;
}

/** A file that says of one tensor that it has another type. */
function withType(file: ModelFile, name: string, type: GgmlType): ModelFile {
  const changed = <T extends { name: string; type: GgmlType; ne: readonly number[]; bytes: number }>(t: T): T => {
    if (t.name !== name) return t;
    const rows = t.ne.slice(1).reduce((a, b) => a * b, 1);
    return { ...t, type, bytes: rows * rowBytes(type, t.ne[0]) };
  };
  return {
    name: file.name,
    metadata: file.metadata,
    tensors: file.tensors.map(changed),
    has: (other) => file.has(other),
    find: (other) => {
      const t = file.find(other);
      return t && changed(t);
    },
    tensor: (other) => changed(file.tensor(other)),
    readTensor: (t) => file.readTensor(t),
    place: (t) => t.name === name ? undefined : file.place(t),
  };
}

/** At most one weight that is replaced, on every device that reads it. */
export class Replaced {
  #name: string | undefined;
  /** By device. */
  readonly #handles = new Map<number, TensorHandle>();
  #model: Model | undefined;

  /** The model with the replacement's type, or as it is. */
  model(own: Model): Model {
    return this.#model ?? own;
  }

  /** What stands in the place of a weight. */
  handle({ name, device }: WeightDesc): TensorHandle | undefined {
    return name === this.#name ? this.#handles.get(device) : undefined;
  }

  /** Loads a replacement to where the weight lies. Programs that were made before know nothing of it. */
  async put(name: string, by: Replacement, own: Model, backend: Backend, place: Placement): Promise<void> {
    this.clear();
    const model = { ...own, file: withType(own.file, name, by.type) };
    const { weights } = buildProgram(model, { n_tok: 1, n_out: 1, n_seq: 1, n_page: 1 }, 1, place);
    const places = weights.filter((w) => w.name === name);
    if (places.length === 0) throw new Error(`no program of ${own.file.name} uses ${name}`);
    this.#name = name;
    this.#model = model;
    for (const { type, ne, uses, device, decode } of places) {
      let data = by.data;
      if (decode) {
        const values = await backend.dequantize(by.type, data, ne.reduce((a, b) => a * b, 1));
        data = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
      }
      this.#handles.set(device, await backend.loadTensor({ device, type, ne, uses, source: { data } }));
    }
  }

  clear(): void {
    for (const handle of this.#handles.values()) handle[Symbol.dispose]();
    this.#handles.clear();
    this.#name = this.#model = undefined;
  }
}
