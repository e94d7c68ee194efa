/**
 * The packed form of a model: a file beside the first of its set, with `.packed` behind the name, that holds matrices in the layout which
 * the host's kernels want, to be mapped or read as they are. It is a GGUF file of byte tensors whose metadata names the file that it was
 * made of; what does not fit that file, or this version's layouts, is refused.
 * @module
 */
import { fileSource } from "../bytes.ts";
import { FormatError } from "../errors.ts";
import { contentKey } from "./content_key.ts";
import { type GgufHeader, type GgufTensor, readHeader } from "./header.ts";
import { ggufValue, Metadata } from "./metadata.ts";

/** The number of the layouts (`csrc/cpu/packing.h`). */
export const PACK_LAYOUT = 1;
/** Matrices begin at multiples of it where there are several: reads that pass the page cache by want whole pages. */
export const PACK_ALIGN = 4096;

const ARCHITECTURE = "bloomery-packed", KEY = "packed.key", LAYOUT = "packed.layout";

/** Packed matrices of a tensor: `stride` bytes apart. */
export interface PackedPlace {
  readonly path: string;
  readonly offset: number;
  readonly stride: number;
  readonly n_matrix: number;
}

/** What a packed form is of: an opened GGUF file. */
export interface PackedModel {
  readonly name: string;
  readonly tensors: readonly GgufTensor[];
  place(t: GgufTensor): { path: string; offset: number; bytes: number };
}

/** What a packed form belongs to: the tensors alone, since metadata may be overridden for a run. */
function keyOf(file: PackedModel): string {
  const metadata = new Metadata(file.name, [["general.architecture", ggufValue.str(ARCHITECTURE)]]);
  return contentKey({ metadata, tensors: file.tensors }, (t) => file.place(t));
}

/** Of a model's first file. */
export function packedPath(model: string): string {
  return `${model}.packed`;
}

/** The metadata of a packed form. */
export function packMetadata(file: PackedModel): Metadata {
  return new Metadata(packedPath(file.name), [
    ["general.architecture", ggufValue.str(ARCHITECTURE)],
    ["general.alignment", ggufValue.u32(PACK_ALIGN)],
    [LAYOUT, ggufValue.u32(PACK_LAYOUT)],
    [KEY, ggufValue.str(keyOf(file))],
  ]);
}

function isThere(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

/**
 * The tensors of a model's packed form by name; undefined where there is no such file.
 * @throws {FormatError} `format.packed`: it is of another file, of other layouts, or no packed form · what a GGUF reader throws
 */
export function readPacked(file: PackedModel): ReadonlyMap<string, PackedPlace> | undefined {
  const path = packedPath(file.name);
  if (!isThere(path)) return undefined;
  const source = fileSource(path);
  try {
    return checked(file, path, readHeader(source));
  } finally {
    source.close();
  }
}

function checked(file: PackedModel, path: string, packed: GgufHeader): ReadonlyMap<string, PackedPlace> {
  const refuse = (what: string, at: Record<string, unknown>): never => {
    throw new FormatError("format.packed", `Cannot use ${path} as the packed form of ${file.name}: ${what}`, {
      at: { file: path, of: file.name, ...at },
      hint: `make it again with bloomery pack --overwrite ${file.name}, or remove it`,
    });
  };
  const architecture = packed.metadata.str("general.architecture", "");
  if (architecture !== ARCHITECTURE) refuse(`it is a model of ${architecture || "no architecture"}`, { architecture });
  const layout = packed.metadata.u32(LAYOUT);
  if (layout !== PACK_LAYOUT) {
    refuse(`its layouts are number ${layout}, expected ${PACK_LAYOUT}`, { got: layout, expected: PACK_LAYOUT });
  }
  const key = packed.metadata.str(KEY), want = keyOf(file);
  if (key !== want) {
    const short = (hash: string) => hash.slice(0, 12);
    refuse(`it was made of another file, key ${short(key)}, expected ${short(want)}`, { got: key, expected: want });
  }
  return new Map(packed.tensors.map((t) => {
    const [stride, n_matrix = 1] = t.ne;
    if (
      t.type.name !== "i8" || stride % 64 !== 0 || t.offset % PACK_ALIGN !== 0 || t.ne.slice(2).some((n) => n !== 1)
    ) {
      refuse(
        `tensor "${t.name}" is ${t.type.name} [${t.ne}] at ${t.offset}, expected i8 rows of whole lines on a page`,
        {
          tensor: t.name,
        },
      );
    }
    return [t.name, { path, offset: t.offset, stride, n_matrix }];
  }));
}
