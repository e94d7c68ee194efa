/**
 * What a model is, whatever its file is called: a hash of its hyper-parameters, its tensors' names, types and shapes, and samples of their
 * bytes. A model of terabytes is not read for it, and how it is split into files does not change it.
 * @module
 */
import { createHash } from "node:crypto";
import { fileSource } from "../bytes.ts";
import type { ByteSource } from "../bytes.ts";
import type { Metadata } from "./metadata.ts";
import type { GgmlType } from "./types.ts";

/** A model's headers and where its tensors' bytes are. */
export interface KeyedModel {
  readonly metadata: Metadata;
  readonly tensors: readonly { readonly name: string; readonly type: GgmlType; readonly ne: readonly number[] }[];
}

/** Bytes of a file. */
interface Place {
  readonly path: string;
  readonly offset: number;
  readonly bytes: number;
}

/** Bytes of a sample; a tensor has one at its start, in its middle and at its end. */
const SAMPLE = 1024;

/** Text of a value, equal for equal values. */
function plain(_: string, value: unknown): unknown {
  return typeof value === "bigint" ? `${value}n` : ArrayBuffer.isView(value) ? [...value as Float32Array] : value;
}

/**
 * @param place Where a tensor's bytes are; undefined where no file has them as they are, and the key does not know them.
 * @returns 64 hexadecimal digits
 * @throws {FormatError} `format.unreadable`, `format.truncated`
 */
export function contentKey<M extends KeyedModel>(
  model: M,
  place: (tensor: M["tensors"][number]) => Place | undefined,
): string {
  const hash = createHash("sha256"), sources = new Map<string, ByteSource>();
  const sourceOf = (path: string) => {
    const known = sources.get(path) ?? fileSource(path);
    sources.set(path, known);
    return known;
  };
  const { metadata } = model, arch = metadata.str("general.architecture");
  try {
    const keys = [...metadata].filter(([key]) => key === "general.architecture" || key.startsWith(`${arch}.`));
    hash.update(JSON.stringify(keys.sort(([a], [b]) => a < b ? -1 : 1), plain));
    for (const tensor of model.tensors.toSorted((a, b) => a.name < b.name ? -1 : 1)) {
      const { name, type, ne } = tensor;
      hash.update(JSON.stringify([name, type.name, ne]));
      const at = place(tensor);
      if (at === undefined) continue;
      const size = Math.min(SAMPLE, at.bytes);
      for (const from of [0, Math.floor((at.bytes - size) / 2), at.bytes - size]) {
        hash.update(sourceOf(at.path).read(at.offset + from, size));
      }
    }
  } finally {
    for (const source of sources.values()) source.close();
  }
  return hash.digest("hex");
}
