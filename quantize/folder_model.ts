/**
 * A Hugging Face folder as a model that runs: seen as the GGUF file that `prepare` would write, with no such file. What the checkpoint
 * stores as the file would is used where it lies; the rest is converted while it loads.
 * @module
 */
import type { ModelSource, ModelTensor } from "../core/arch/mod.ts";
import { missingTensor } from "../core/gguf/read.ts";
import type { GgmlType } from "../core/gguf/types.ts";
import { release } from "./prepare/dtype.ts";
import { openPrepared, type PreparedTensor, type PrepareOptions } from "./prepare/mod.ts";

/** A folder that is open. */
export interface FolderModel extends ModelSource {
  /** Warnings about the checkpoint, each a sentence for the user. */
  readonly warnings: readonly string[];
  /** What is converted while it loads, by the type that it becomes. */
  readonly converted: readonly { readonly type: GgmlType; readonly n: number; readonly bytes: number }[];
}

/** Values converted at once: what is held beside the result is some times this many floats. */
const PIECE = 4 << 20;

type Tensor = ModelTensor & { readonly prepared: PreparedTensor };

function bytesOfTensor({ type, ne }: PreparedTensor): number {
  return ne.reduce((a, b) => a * b, 1) / type.block * type.bytes;
}

/**
 * Opens a Hugging Face folder by its headers.
 * @throws what `openPrepared` throws
 */
export function openFolderModel(dir: string, options: PrepareOptions = {}): FolderModel {
  const prepared = openPrepared(dir, options);
  const tensors: readonly Tensor[] = prepared.tensors.map((t) => ({
    name: t.name,
    type: t.type,
    ne: t.ne,
    bytes: bytesOfTensor(t),
    prepared: t,
  }));
  const byName = new Map(tensors.map((t) => [t.name, t]));
  const of = (t: ModelTensor) => byName.get(t.name)!.prepared;
  const range = (t: PreparedTensor) => prepared.locate(t, 0, t.n_rows);
  const converted = new Map<string, { type: GgmlType; n: number; bytes: number }>();
  for (const t of tensors) {
    if (range(t.prepared)) continue;
    const all = converted.get(t.type.name) ?? { type: t.type, n: 0, bytes: 0 };
    converted.set(t.type.name, { type: t.type, n: all.n + 1, bytes: all.bytes + t.bytes });
  }
  const converting = async (t: PreparedTensor): Promise<Uint8Array> => {
    const out = new Uint8Array(bytesOfTensor(t)), perRow = out.length / t.n_rows;
    const step = Math.max(1, Math.floor(PIECE / t.ne[0]));
    for (let row = 0; row < t.n_rows; row += step) {
      const bytes = await prepared.read(t, row, Math.min(step, t.n_rows - row));
      out.set(bytes, row * perRow);
      release(bytes);
    }
    return out;
  };
  return {
    name: dir,
    metadata: prepared.metadata,
    tensors,
    warnings: prepared.warnings,
    converted: [...converted.values()],
    has: (name) => byName.has(name),
    find: (name) => byName.get(name),
    tensor(name) {
      const t = byName.get(name);
      if (t) return t;
      throw missingTensor(dir, name);
    },
    range: (t) => range(of(t)),
    readTensor: (t) => prepared.readNow(of(t), 0, of(t).n_rows),
    source: async (t) => range(of(t)) ?? { data: await converting(of(t)) },
    close: () => prepared.close(),
    [Symbol.dispose]: () => prepared.close(),
  };
}
