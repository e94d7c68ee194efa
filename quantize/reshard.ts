/**
 * Makes files from files without changing a tensor's bytes: splits a file into a set, merges a set into one file, and
 * replaces tensors by those of another file. All of it streams: memory stays at a few megabytes whatever the size.
 * Files of `splitGguf` and `mergeGguf` are equal, byte for byte, to those of llama-gguf-split.
 * @module
 */
import { FormatError, ModelError, QuantizeError, shortList, UsageError } from "../core/errors.ts";
import { alignUp, DEFAULT_ALIGNMENT, trimDims } from "../core/gguf/layout.ts";
import { ggufValue, Metadata } from "../core/gguf/metadata.ts";
import { type GgufFile, type GgufTensor, openGguf, shardName } from "../core/gguf/read.ts";
import { GgufWriter, partialPath, type TensorInfo } from "../core/gguf/write.ts";
import { nameAll, realPath, refuseFullDisk, refuseOutputs, removeIfThere } from "./output_files.ts";
import { pauses } from "./pause.ts";

/** Tensors a file holds at most when neither limit is given. */
export const DEFAULT_SPLIT_TENSORS = 128;

export interface ReshardOptions {
  /** Replaces files that are already there; refused otherwise. */
  overwrite?: boolean;
  signal?: AbortSignal;
  onProgress?: (p: ReshardProgress) => void;
}

export interface ReshardProgress {
  readonly tensor: GgufTensor;
  /** Its place among all tensors. */
  readonly index: number;
  readonly n_tensors: number;
  /** The tensor is whole with this. */
  readonly whole: boolean;
  /** Bytes of tensor data done, of all. */
  readonly done: number;
  readonly total: number;
}

export interface ReshardResult {
  /** The files made. */
  paths: string[];
  tensors: number;
  /** Of all files together. */
  bytes: number;
}

/** How a model is divided into files: by size or by count, not by both. */
export interface SplitLimits {
  /** Bytes of tensor data in a file, padded; a larger tensor gets a file alone. */
  splitMaxSize?: number;
  /** Tensors in a file. */
  splitMaxTensors?: number;
  /** The first file holds metadata only. */
  noTensorFirstSplit?: boolean;
}

export interface SplitOptions extends ReshardOptions, SplitLimits {}

/**
 * Divides tensors, in their order, among files.
 * @returns The tensors of each file; the first list is empty with `noTensorFirstSplit`.
 * @throws {UsageError} `usage.split_limits` when both limits are given or one is not a positive integer.
 */
export function planSplit<T extends { readonly bytes: number }>(tensors: readonly T[], limits: SplitLimits): T[][] {
  const { splitMaxSize, splitMaxTensors } = limits;
  if (splitMaxSize !== undefined && splitMaxTensors !== undefined) {
    throw new UsageError("usage.split_limits", "Cannot split both by size and by number of tensors", {
      hint: "give one of --split-max-size and --split-max-tensors",
    });
  }
  const limit = splitMaxSize ?? splitMaxTensors ?? DEFAULT_SPLIT_TENSORS;
  if (!Number.isSafeInteger(limit) || limit < 1) {
    throw new UsageError("usage.split_limits", `Cannot split at ${limit}, expected a positive integer`);
  }
  const files: T[][] = limits.noTensorFirstSplit ? [[], []] : [[]];
  let size = 0;
  for (const t of tensors) {
    const padded = alignUp(t.bytes, DEFAULT_ALIGNMENT);
    const current = files.at(-1)!;
    const full = splitMaxSize === undefined ? current.length >= limit : size + padded > limit;
    if (full && current.length > 0) {
      files.push([t]);
      size = padded;
    } else {
      current.push(t);
      size += padded;
    }
  }
  if (files.length > 65535) {
    throw new UsageError("usage.split_limits", `Cannot split into ${files.length} files, at most 65535 are possible`);
  }
  return files;
}

/**
 * The metadata of file `no` of a split set: all of the model's in the first, the three `split.*` keys at the end of each.
 */
export function splitMetadata(whole: Metadata, no: number, count: number, tensors: number): Metadata {
  const metadata = no === 0 ? whole.clone() : new Metadata(whole.file);
  return metadata.append("split.no", ggufValue.u16(no))
    .append("split.tensors.count", ggufValue.i32(tensors))
    .append("split.count", ggufValue.u16(count));
}

/**
 * Splits a GGUF (or a set, anew) into files `PREFIX-00001-of-0000N.gguf`.
 *
 * @throws {UsageError} `usage.split_limits`, `usage.output_exists`, `usage.output`.
 * @throws {FormatError} when a file cannot be read or written; none of the new files is left then.
 */
export async function splitGguf(input: string, prefix: string, options: SplitOptions = {}): Promise<ReshardResult> {
  using source = openGguf(input);
  const files = planSplit(source.tensors, options);
  const paths = files.map((_, no) => shardName(prefix, no, files.length));
  checkOutputs(paths, source.paths, dataBytes(source.tensors), options);
  const copy = copier(source.tensors, options);
  const made: string[] = [];
  let bytes = 0;
  try {
    for (const [no, tensors] of files.entries()) {
      using writer = GgufWriter.create({
        path: paths[no],
        metadata: splitMetadata(source.metadata, no, files.length, source.tensors.length),
        tensors: tensors.map(info),
        alignment: no === 0 ? source.alignment : DEFAULT_ALIGNMENT,
      });
      for (const [i, t] of tensors.entries()) await copy(writer, i, source, t);
      writer.suspend(); // complete, but invisible until all the others are complete too
      made.push(paths[no]);
      bytes += writer.totalBytes;
    }
    nameAll(paths);
  } catch (error) {
    for (const path of made) removeIfThere(partialPath(path));
    throw error;
  }
  return { paths, tensors: source.tensors.length, bytes };
}

/**
 * Merges a split set, opened from its first file, into one file. Keys stay as they are but `split.count`, which becomes 0.
 *
 * @throws {FormatError} `format.split` when the input is not of a set.
 * @throws {UsageError} `usage.output_exists`.
 */
export async function mergeGguf(input: string, output: string, options: ReshardOptions = {}): Promise<ReshardResult> {
  using source = openGguf(input);
  if (source.metadata.int("split.count", 0) < 1) {
    throw new FormatError(
      "format.split",
      `Cannot merge ${input}: it is not of a split set, split.count is absent or 0`,
      {
        at: { file: input },
        hint: "give the first file of a set, whose name ends in -00001-of-0000N.gguf",
      },
    );
  }
  const metadata = source.metadata.clone().append("split.count", ggufValue.u16(0));
  return await writeOne(output, metadata, source.tensors.map((tensor) => ({ source, tensor })), options);
}

export interface SpliceOptions extends ReshardOptions {
  /** Which tensors of the donor to take. */
  take: (name: string) => boolean;
}

export interface SpliceResult extends ReshardResult {
  /** Tensors of the base that the donor's replaced. */
  replaced: string[];
  /** Tensors that only the donor has. */
  added: string[];
}

/**
 * Writes the base model with some tensors of a donor: those of the same name are replaced where they stand, the others
 * are added at the end. Metadata is the base's.
 *
 * @throws {QuantizeError} `quantize.splice_nothing` when no tensor is taken, `quantize.splice_shape` with every tensor whose
 * shape differs.
 * @throws {ModelError} `model.architecture` when the files are of different architectures.
 */
export async function spliceGguf(
  base: string,
  donor: string,
  output: string,
  options: SpliceOptions,
): Promise<SpliceResult> {
  using source = openGguf(base);
  using other = openGguf(donor);
  const [mine, theirs] = [source, other].map((f) => f.metadata.str("general.architecture", undefined));
  if (mine !== theirs) {
    throw new ModelError(
      "model.architecture",
      `Cannot splice ${donor} into ${base}: its architecture is ${theirs ?? "not given"}, expected ${mine ?? "none"}`,
      { at: { file: donor, got: theirs, expected: mine } },
    );
  }
  const taken = other.tensors.filter((t) => options.take(t.name));
  if (taken.length === 0) {
    throw new QuantizeError("quantize.splice_nothing", `Cannot splice ${donor}: no tensor of it has such a name`, {
      at: { file: donor },
      hint: "see bloomery inspect for the names it has",
    });
  }
  refuseOtherShapes(taken, source, donor);
  const replaced = new Map(taken.filter((t) => source.has(t.name)).map((t) => [t.name, t]));
  const added = taken.filter((t) => !source.has(t.name));
  const tensors: Piece[] = source.tensors.map((t) => {
    const tensor = replaced.get(t.name);
    return tensor ? { source: other, tensor } : { source, tensor: t };
  });
  for (const tensor of added) tensors.push({ source: other, tensor });
  const metadata = source.metadata.clone();
  for (const key of ["split.no", "split.count", "split.tensors.count"]) metadata.remove(key);
  const quantized = tensors.some(({ tensor }) => tensor.type.block > 1);
  if (quantized && !metadata.has("general.quantization_version")) {
    metadata.append("general.quantization_version", ggufValue.u32(2));
  }
  const result = await writeOne(output, metadata, tensors, options);
  return { ...result, replaced: [...replaced.keys()], added: added.map((t) => t.name) };
}

function refuseOtherShapes(taken: readonly GgufTensor[], base: GgufFile, donor: string): void {
  const wrong = taken.flatMap((t) => {
    const other = base.find(t.name);
    const [got, expected] = [trimDims(t.ne), other && trimDims(other.ne)];
    if (!expected || String(got) === String(expected)) return [];
    return [{ tensor: t.name, got, expected }];
  });
  if (wrong.length === 0) return;
  const list = wrong.map((w) => `"${w.tensor}" is [${w.got}], expected [${w.expected}]`);
  throw new QuantizeError("quantize.splice_shape", `Cannot splice ${donor}: ${shortList(list, "; ")}`, {
    at: { file: donor, tensors: wrong },
  });
}

interface Piece {
  source: GgufFile;
  tensor: GgufTensor;
}

async function writeOne(
  output: string,
  metadata: Metadata,
  pieces: readonly Piece[],
  options: ReshardOptions,
): Promise<ReshardResult> {
  const tensors = pieces.map((p) => p.tensor);
  checkOutputs([output], [...new Set(pieces.flatMap((p) => p.source.paths))], dataBytes(tensors), options);
  using writer = GgufWriter.create({
    path: output,
    metadata,
    tensors: pieces.map((p) => info(p.tensor)),
    // A tensor starts where the file's own metadata says tensors start.
    alignment: metadata.u32("general.alignment", DEFAULT_ALIGNMENT),
  });
  const copy = copier(tensors, options);
  for (const [i, p] of pieces.entries()) await copy(writer, i, p.source, p.tensor);
  writer.finish();
  return { paths: [output], tensors: pieces.length, bytes: writer.totalBytes };
}

function info(t: GgufTensor): TensorInfo {
  return { name: t.name, type: t.type, ne: trimDims(t.ne) };
}

function dataBytes(tensors: readonly GgufTensor[]): number {
  return tensors.reduce((n, t) => n + alignUp(t.bytes, DEFAULT_ALIGNMENT), 0);
}

const CHUNK = 8 * 1024 * 1024;

/** A function that copies one tensor in pieces and reports progress over all of them. */
function copier(all: readonly GgufTensor[], options: ReshardOptions) {
  const pause = pauses(options.signal);
  const total = all.reduce((n, t) => n + t.bytes, 0);
  let done = 0;
  let index = -1;
  return async (writer: GgufWriter, i: number, source: GgufFile, t: GgufTensor) => {
    index++;
    for (let at = 0; at < t.bytes; at += CHUNK) {
      const length = Math.min(CHUNK, t.bytes - at);
      writer.writeTensor(i, source.readTensor(t, at, length));
      done += length;
      const whole = at + length === t.bytes;
      options.onProgress?.({ tensor: t, index, n_tensors: all.length, whole, done, total });
      await pause();
    }
  };
}

/** Refuses to overwrite an input, to overwrite another file without `force`, and to start what the disk cannot hold. */
function checkOutputs(
  outputs: readonly string[],
  inputs: readonly string[],
  bytes: number,
  options: ReshardOptions,
): void {
  refuseOutputs(outputs, inputs);
  for (const path of outputs) {
    if (realPath(path) === undefined || options.overwrite) continue;
    throw new UsageError("usage.output_exists", `Cannot write ${path}: it exists already`, {
      at: { file: path },
      hint: "choose another output, or give --overwrite",
    });
  }
  refuseFullDisk(outputs, bytes);
}
