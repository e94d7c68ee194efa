/**
 * Opens GGUF files: headers only, split sets as one. A set of 31 files costs one read of each header.
 * @module
 */
import { type ByteSource, fileSource } from "../bytes.ts";
import { FormatError, ModelError, shortList } from "../errors.ts";
import { type GgufHeader, type GgufTensor, readHeader } from "./header.ts";
import type { Metadata } from "./metadata.ts";
import { type PackedPlace, readPacked } from "./packed.ts";
import { type FileCopy, shardCopies } from "./shard_dirs.ts";

export type { GgufTensor };

/** One file of the set. */
export interface GgufShard {
  /** Of the file. */
  readonly path: string;
  /** GGUF version, 2 or 3. */
  readonly version: number;
  /** Of this file; the first of a set carries the model's. */
  readonly metadata: Metadata;
  /** Tensors start at multiples of it. */
  readonly alignment: number;
  /** Bytes of the file. */
  readonly size: number;
  /** Where its tensor data starts. */
  readonly dataStart: number;
}

/**
 * The error of a tensor that a model needs and does not have.
 * @internal
 */
export function missingTensor(file: string, tensor: string): ModelError {
  return new ModelError("model.missing_tensor", `Cannot find tensor "${tensor}" in ${file}`, {
    at: { file, tensor },
    hint: "the file is not a complete model of its architecture: convert it again",
  });
}

/** How a file is opened. */
export interface OpenGgufOptions {
  /** How the other files of a split set are opened; by path where left out. */
  open?: (path: string) => ByteSource;
}

const SHARD_NAME = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/s;

/** The name of file `no` (from 0) of a set of `count`. */
export function shardName(prefix: string, no: number, count: number): string {
  const five = (n: number) => String(n).padStart(5, "0");
  return `${prefix}-${five(no + 1)}-of-${five(count)}.gguf`;
}

/** The parts of a shard's name, or undefined when it is no such name; `no` counts from 0. */
export function parseShardName(path: string): { prefix: string; no: number; count: number } | undefined {
  const m = SHARD_NAME.exec(path);
  return m ? { prefix: m[1], no: Number(m[2]) - 1, count: Number(m[3]) } : undefined;
}

/** An opened GGUF file, or split set. Close it, or hold it with `using`. */
export class GgufFile implements Disposable {
  readonly #sources: readonly ByteSource[];
  #index: Map<string, GgufTensor> | undefined; // made when first asked for
  #packed: ReadonlyMap<string, PackedPlace> | "none" | undefined; // read when first asked for

  /** @internal use {@link openGguf} */
  constructor(
    sources: readonly ByteSource[],
    /** The files of the set in order. */
    readonly shards: readonly GgufShard[],
    /** All tensors, in file order. */
    readonly tensors: readonly GgufTensor[],
  ) {
    this.#sources = sources;
  }

  get #byName(): Map<string, GgufTensor> {
    return this.#index ??= new Map(this.tensors.map((t) => [t.name, t]));
  }

  /** Paths of all files of the set. */
  get paths(): readonly string[] {
    return this.shards.map((s) => s.path);
  }
  /** What error messages call it: the path of the first file. */
  get name(): string {
    return this.shards[0].path;
  }
  /** The metadata of the first file, which carries all of a set. */
  get metadata(): Metadata {
    return this.shards[0].metadata;
  }
  /** The alignment of the first file. */
  get alignment(): number {
    return this.shards[0].alignment;
  }

  /** Whether there is a tensor of this name. */
  has(name: string): boolean {
    return this.#byName.has(name);
  }

  /** The tensor, or undefined. */
  find(name: string): GgufTensor | undefined {
    return this.#byName.get(name);
  }

  /**
   * A tensor by name.
   * @throws {ModelError} `model.missing_tensor`
   */
  tensor(name: string): GgufTensor {
    const t = this.#byName.get(name);
    if (t) return t;
    throw missingTensor(this.name, name);
  }

  /**
   * Files on other drives with the same bytes, as the sidecar names them.
   * @throws {FormatError} `format.shard_copy`
   * @internal
   */
  copies(): FileCopy[] {
    return shardCopies(this.shards);
  }

  /**
   * Where the packed matrices of a tensor are, where there is a packed form of this file.
   * @throws {FormatError} `format.packed` when it is of another file, or of other layouts
   * @internal
   */
  packed(name: string): PackedPlace | undefined {
    this.#packed ??= readPacked(this) ?? "none";
    return this.#packed === "none" ? undefined : this.#packed.get(name);
  }

  /** Where the bytes of a tensor are. */
  place(t: GgufTensor): { path: string; offset: number; bytes: number } {
    return { path: t.path, offset: t.offset, bytes: t.bytes };
  }

  /**
   * Bytes of a tensor: all of them, or `length` from `start` on. Not to be written to.
   * @throws {FormatError} `format.truncated` when the file has become shorter since it was opened.
   */
  readTensor(t: GgufTensor, start: number = 0, length: number = t.bytes - start): Uint8Array {
    if (start < 0 || length < 0 || start + length > t.bytes) {
      throw new RangeError(`bytes ${start} to ${start + length} of tensor ${t.name}, which has ${t.bytes}`);
    }
    return this.#sources[t.shard].read(t.offset + start, length);
  }

  /** The same, later. */
  make(t: GgufTensor): Promise<Uint8Array> {
    return Promise.resolve(this.readTensor(t));
  }

  /** Bytes of a file of the set, whatever is there. Not to be written to. */
  readShard(shard: number, offset: number, length: number): Uint8Array {
    return this.#sources[shard].read(offset, length);
  }

  /** Closes the files. */
  close(): void {
    for (const s of this.#sources) s.close();
  }
  /** The same as `close`. */
  [Symbol.dispose](): void {
    this.close();
  }
}

/**
 * Opens a GGUF file by its header. A split set is opened from its first file; the others lie beside it under the names
 * that the first file's own name implies.
 *
 * @throws {FormatError} naming file, field, what was found and what was wanted.
 */
export function openGguf(from: string | ByteSource, options: OpenGgufOptions = {}): GgufFile {
  const sources: ByteSource[] = [typeof from === "string" ? fileSource(from) : from];
  try {
    const first = readHeader(sources[0]);
    const count = splitNumber(first, "split.count", sources[0].name) ?? 0;
    const headers = [first];
    if (count > 1) openOthers(sources, headers, count, options.open ?? fileSource);
    return assemble(sources, headers);
  } catch (error) {
    for (const s of sources) s.close();
    throw error;
  }
}

/** A `split.*` key, as an integer of any width, or undefined when absent. */
function splitNumber(header: GgufHeader, key: string, file: string): number | undefined {
  const v = header.metadata.get(key);
  if (v === undefined) return undefined;
  const n = v.type === "array" || v.type === "str" || v.type === "bool" ? NaN : Number(v.value);
  if (Number.isInteger(n) && n >= 0 && (key !== "split.count" || n <= 65535)) return n;
  throw splitError(file, `${key} is ${v.type} ${v.type === "array" ? "" : v.value}`.trim(), { key });
}

function splitError(file: string, what: string, at: Record<string, unknown>, hint?: string): FormatError {
  return new FormatError("format.split", `Cannot open ${file} as a split set: ${what}`, {
    at: { file, ...at },
    ...(hint === undefined ? {} : { hint }),
  });
}

function openOthers(
  sources: ByteSource[],
  headers: GgufHeader[],
  count: number,
  open: (path: string) => ByteSource,
): void {
  const path = sources[0].name;
  const no = splitNumber(headers[0], "split.no", path);
  if (no !== 0) {
    throw splitError(
      path,
      `it is file ${no === undefined ? "?" : no + 1} of ${count}`,
      { got: no, expected: 0 },
      [
        "open the first file of the set, whose name ends in -00001-of-",
        `${String(count).padStart(5, "0")}.gguf`,
      ].join(""),
    );
  }
  const name = parseShardName(path);
  if (!name || name.no !== 0 || name.count !== count) {
    throw splitError(
      path,
      `its name does not end in ${shardName("", 0, count)}, as the first of ${count} files must`,
      { expected: shardName("PREFIX", 0, count) },
      "give the files of the set back their names",
    );
  }
  const missing: string[] = [];
  for (let i = 1; i < count; i++) {
    try {
      sources.push(open(shardName(name.prefix, i, count)));
    } catch (error) {
      if (!(error instanceof FormatError) || !(error.cause instanceof Deno.errors.NotFound)) throw error;
      missing.push(shardName(name.prefix, i, count));
    }
  }
  if (missing.length > 0) {
    throw new FormatError(
      "format.missing_shard",
      `Cannot open ${path}: ${missing.length} of ${count} files of the set are missing: ${shortList(missing)}`,
      { at: { file: path, missing }, hint: "fetch the missing files into the same folder" },
    );
  }
  for (let i = 1; i < count; i++) {
    const header = readHeader(sources[i], i);
    const file = sources[i].name;
    const found = splitNumber(header, "split.no", file);
    if (found !== i) throw splitError(file, `split.no is ${found}, expected ${i}`, { got: found, expected: i });
    const total = splitNumber(header, "split.count", file);
    if (total !== count) {
      throw splitError(file, `split.count is ${total}, expected ${count}`, { got: total, expected: count });
    }
    headers.push(header);
  }
  const wanted = splitNumber(headers[0], "split.tensors.count", path);
  const present = headers.reduce((n, h) => n + h.tensors.length, 0);
  if (wanted !== present) {
    throw splitError(path, `split.tensors.count is ${wanted}, the files hold ${present} tensors`, {
      got: wanted,
      expected: present,
    });
  }
}

function assemble(sources: readonly ByteSource[], headers: readonly GgufHeader[]): GgufFile {
  const tensors = headers.length === 1 ? headers[0].tensors : headers.flatMap((h) => h.tensors);
  if (headers.length > 1) refuseDuplicates(tensors);
  const shards = headers.map((h, i): GgufShard => ({
    path: sources[i].name,
    version: h.version,
    metadata: h.metadata,
    alignment: h.alignment,
    size: sources[i].size,
    dataStart: h.dataStart,
  }));
  return new GgufFile(sources, shards, tensors);
}

/** Within one file names are unique already. */
function refuseDuplicates(tensors: readonly GgufTensor[]): void {
  const seen = new Map<string, GgufTensor>();
  for (const t of tensors) {
    const other = seen.get(t.name);
    if (other) {
      throw new FormatError(
        "format.duplicate_tensor",
        `Cannot open ${t.path}: tensor "${t.name}" is also in ${other.path}`,
        { at: { file: t.path, tensor: t.name, other: other.path } },
      );
    }
    seen.set(t.name, t);
  }
}
