/**
 * Control vectors of GGUF (representation engineering, arXiv 2310.01405): a direction for each layer, added to the rows that the layer
 * hands on. Tensors `direction.N`, f32 `[n_embd]`, for layers from 1 on. Several files add up.
 * @module
 */
import { ModelError } from "../errors.ts";
import { openGguf } from "../gguf/read.ts";

/** A file and how much of it is added. */
export interface ScaledVector {
  readonly path: string;
  readonly scale: number;
}

/** Layers from the first to the last. */
export interface LayerRange {
  readonly first: number;
  readonly last: number;
}

/**
 * Reads control vectors.
 * @param range Layers that get any; left out: all that the files have.
 * @returns what is added, by layer
 * @throws {ModelError} `model.control_vector` · {@link FormatError}
 */
export function readControlVectors(files: readonly ScaledVector[], range?: LayerRange): Map<number, Float32Array> {
  const sum = new Map<number, Float32Array>();
  for (const { path, scale } of files) {
    using file = openGguf(path);
    const refuse = (what: string, tensor?: string): never => {
      throw new ModelError("model.control_vector", `Cannot use ${path} as a control vector: ${what}`, {
        at: { file: path, ...(tensor === undefined ? {} : { tensor }) },
        hint: "give a GGUF file with tensors direction.1, direction.2, ...",
      });
    };
    if (file.tensors.length === 0) refuse("it has no tensors");
    for (const t of file.tensors) {
      const layer = Number(/^direction\.([1-9]\d{0,4})$/.exec(t.name)?.[1] ?? 0);
      if (layer === 0) refuse(`its tensor "${t.name}" is no direction of a layer from 1 on`, t.name);
      if (t.type.name !== "f32" || t.ne.slice(1).some((n) => n !== 1)) {
        refuse(`its tensor "${t.name}" is ${t.type.name} [${t.ne}], expected f32 [n_embd]`, t.name);
      }
      if (range && (layer < range.first || layer > range.last)) continue;
      const bytes = file.readTensor(t).slice(), add = new Float32Array(bytes.buffer);
      const all = sum.get(layer) ?? new Float32Array(add.length);
      if (all.length !== add.length) {
        refuse(`its tensor "${t.name}" has ${add.length} numbers, another file ${all.length}`, t.name);
      }
      sum.set(layer, all.map((x, i) => x + scale * add[i]));
    }
  }
  return sum;
}
