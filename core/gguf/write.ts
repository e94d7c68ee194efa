/**
 * Writes GGUF files, version 3, little-endian: the header first, then tensor data as it comes, in order. Nothing appears
 * under the final name before the file is whole.
 * @module
 */
import { encodeUtf8 } from "../bytes.ts";
import { FormatError } from "../errors.ts";
import { osHint, osReason } from "../os_error.ts";
import { MAX_ALIGNMENT, MAX_KEY } from "./header.ts";
import { alignUp, DEFAULT_ALIGNMENT, MAX_NAME, tensorBytes } from "./layout.ts";
import { type GgufValue, type Metadata, VALUE_TYPES } from "./metadata.ts";
import type { GgmlType } from "./types.ts";

/** What the header says of a tensor. */
export interface TensorInfo {
  /** In the file. */
  readonly name: string;
  /** Of its elements. */
  readonly type: GgmlType;
  /** Fastest first; written as given, so trailing ones are the caller's choice. */
  readonly ne: readonly number[];
}

/** Where a writer puts bytes, one after the other. */
export interface WritableTarget {
  /** What error messages call it. */
  readonly name: string;
  /** Takes all of `bytes` before it returns; does not keep them. */
  write(bytes: Uint8Array): void;
  /** All bytes are written: make the file durable and visible. */
  finish(): void;
  /** Gives up and leaves nothing behind. Harmless after `finish`. */
  abort(): void;
  /** Stops, and keeps what is written for a later run. */
  suspend?(): void;
}

/** The name a file has until it is whole. */
export function partialPath(path: string): string {
  return path + ".partial";
}

/** The error for a file that cannot be written, with the system's reason. */
export function unwritable(path: string, cause: unknown, hint = osHint(cause)): FormatError {
  return new FormatError("format.unwritable", `Cannot write ${path}: ${osReason(cause)}`, {
    at: { file: path },
    ...hint === undefined ? {} : { hint },
    cause,
  });
}

/**
 * Writes all of `bytes`; one call of the system may take fewer.
 * @throws {FormatError} `format.unwritable` naming `path`.
 */
export function writeAll(file: Deno.FsFile, bytes: Uint8Array, path: string): void {
  for (let done = 0; done < bytes.length;) {
    try {
      done += file.writeSync(bytes.subarray(done));
    } catch (cause) {
      throw unwritable(path, cause);
    }
  }
}

/**
 * A file written as `path.partial` and renamed to `path` when finished.
 *
 * @param keep Bytes of an earlier, suspended run to keep; the new bytes follow them.
 * @throws {FormatError} `format.unwritable` when it cannot be created.
 */
export function fileTarget(path: string, keep: number = 0): WritableTarget {
  const partial = partialPath(path);
  let file: Deno.FsFile;
  try {
    file = Deno.openSync(partial, keep > 0 ? { write: true } : { write: true, create: true, truncate: true });
  } catch (cause) {
    throw unwritable(path, cause);
  }
  if (keep > 0) {
    file.truncateSync(keep);
    file.seekSync(keep, Deno.SeekMode.Start);
  }
  let open = true;
  let kept = false; // nothing is left to remove
  const close = () => {
    if (open) file.close();
    open = false;
  };
  const sync = () => {
    try {
      file.syncSync();
    } catch (cause) {
      throw unwritable(path, cause);
    }
  };
  return {
    name: path,
    write: (bytes) => writeAll(file, bytes, path),
    finish() {
      sync();
      close();
      try {
        Deno.renameSync(partial, path);
      } catch (cause) {
        throw unwritable(path, cause);
      }
      kept = true;
    },
    abort() {
      close();
      if (kept) return;
      kept = true;
      try {
        Deno.removeSync(partial);
      } catch (error) {
        if (!(error instanceof Deno.errors.NotFound)) throw error;
      }
    },
    suspend() {
      sync();
      close();
      kept = true;
    },
  };
}

/** Bytes kept in memory; `take()` gives them once finished. */
export function bufferTarget(name: string = "memory"): WritableTarget & { take(): Uint8Array } {
  const out = new ByteBuilder();
  return { name, write: (bytes) => out.raw(bytes), finish() {}, abort() {}, take: () => out.take() };
}

/** Appends little-endian values to a buffer that grows. */
class ByteBuilder {
  #buffer = new Uint8Array(4096);
  #view = new DataView(this.#buffer.buffer);
  length = 0;

  #room(n: number): number {
    const at = this.length;
    if (at + n > this.#buffer.length) {
      const bigger = new Uint8Array(Math.max(at + n, this.#buffer.length * 2));
      bigger.set(this.#buffer.subarray(0, at));
      this.#buffer = bigger;
      this.#view = new DataView(bigger.buffer);
    }
    this.length += n;
    return at;
  }
  u32(n: number): void {
    const at = this.#room(4);
    this.#view.setUint32(at, n, true);
  }
  u64(n: number | bigint): void {
    const at = this.#room(8);
    this.#view.setBigUint64(at, BigInt(n), true);
  }
  raw(bytes: Uint8Array): void {
    const at = this.#room(bytes.length);
    this.#buffer.set(bytes, at);
  }
  string(s: string | Uint8Array): void {
    const bytes = typeof s === "string" ? encodeUtf8(s) : s;
    this.u64(bytes.length);
    this.raw(bytes);
  }
  scalar(v: Exclude<GgufValue, { type: "array" }>): void {
    switch (v.type) {
      case "str":
        return this.string(v.value);
      case "bool":
        return this.raw(Uint8Array.of(v.value ? 1 : 0));
      case "u64":
      case "i64":
        return this.u64(BigInt.asUintN(64, v.value));
      default: {
        const n = v.value;
        if (v.type === "f32") return this.raw(new Uint8Array(Float32Array.of(n).buffer));
        if (v.type === "f64") return this.raw(new Uint8Array(Float64Array.of(n).buffer));
        const bytes = Number(v.type.slice(1)) / 8;
        const at = this.#room(bytes);
        for (let i = 0; i < bytes; i++) this.#buffer[at + i] = n >> (8 * i);
      }
    }
  }
  pad(alignment: number): void {
    this.#room(alignUp(this.length, alignment) - this.length); // grown buffers are zero
  }
  take(): Uint8Array<ArrayBuffer> {
    return this.#buffer.slice(0, this.length);
  }
}

const TYPE_IDS = new Map<string, number>(VALUE_TYPES.map((t, id) => [t, id]));

function typeId(type: string): number {
  return TYPE_IDS.get(type)!;
}

function encodeValue(out: ByteBuilder, v: GgufValue): void {
  out.u32(typeId(v.type));
  if (v.type !== "array") return out.scalar(v);
  out.u32(typeId(v.elem));
  out.u64(v.value.length);
  if (v.elem === "str") return out.raw(v.value.packed);
  out.raw(new Uint8Array(v.value.buffer, v.value.byteOffset, v.value.byteLength));
}

/** Refuses what the reader would refuse. */
function checkName(file: string, what: string, name: string, limit: number): void {
  const bytes = encodeUtf8(name).length;
  if (bytes >= 1 && bytes <= limit && !name.includes("\0")) return;
  throw new FormatError(
    "format.bad_name",
    `Cannot write ${what} ${JSON.stringify(name)} to ${file}: expected 1 to ${limit} bytes without NUL, found ${bytes}`,
    { at: { file, name, got: bytes, limit } },
  );
}

/**
 * The header of a file: everything before tensor data.
 *
 * @param alignment Power of two; tensors start at multiples of it. The caller sets `general.alignment` when it is not 32.
 * @param pad Zeros up to the alignment; a file without tensors may do without.
 * @throws {FormatError} when a name, a shape or the alignment is not one that a reader would take.
 */
export function encodeHeader(
  metadata: Metadata,
  tensors: readonly TensorInfo[],
  alignment: number = DEFAULT_ALIGNMENT,
  pad: boolean = true,
): Uint8Array<ArrayBuffer> {
  const file = metadata.file;
  if (!(alignment >= 1 && alignment <= MAX_ALIGNMENT && (alignment & (alignment - 1)) === 0)) {
    throw new FormatError("format.alignment", `Cannot write ${file}: alignment ${alignment} is not a power of two`, {
      at: { file, got: alignment },
    });
  }
  const out = new ByteBuilder();
  out.raw(encodeUtf8("GGUF"));
  out.u32(3);
  out.u64(tensors.length);
  out.u64(metadata.size);
  for (const [key, value] of metadata) {
    checkName(file, "key", key, MAX_KEY);
    out.string(key);
    encodeValue(out, value);
  }
  const seen = new Set<string>();
  let offset = 0;
  for (const { name, type, ne } of tensors) {
    checkName(file, "tensor", name, MAX_NAME - 1);
    if (seen.has(name)) {
      throw new FormatError("format.duplicate_tensor", `Cannot write ${file}: tensor "${name}" is there twice`, {
        at: { file, tensor: name },
      });
    }
    seen.add(name);
    out.string(name);
    out.u32(ne.length);
    for (const n of ne) out.u64(n);
    out.u32(type.id);
    out.u64(offset);
    offset += alignUp(tensorBytes({ file, tensor: name }, type, ne), alignment);
  }
  if (pad) out.pad(alignment);
  return out.take();
}

export interface GgufWriterOptions {
  /** The file to make, or where bytes go instead. */
  path: string | WritableTarget;
  metadata: Metadata;
  /** In file order. */
  tensors: readonly TensorInfo[];
  /** 32 where left out. */
  alignment?: number;
  /** False leaves a file without tensors unpadded, as llama.cpp's converter leaves a vocabulary. */
  pad?: boolean;
  /** Tensors that an earlier, suspended run has written to the partial file; only with a path. */
  resume?: number;
}

/**
 * A streaming writer. Tensors come in header order, each whole or in pieces; sizes are exact and padding is written for
 * the caller. Hold it with `using`: what is not finished is removed.
 *
 * @example
 * ```ts
 * import { GgufWriter } from "./write.ts";
 * import { ggufValue, Metadata } from "./metadata.ts";
 * import { ggmlType } from "./types.ts";
 *
 * const path = Deno.makeTempFileSync();
 * using out = GgufWriter.create({
 *   path,
 *   metadata: new Metadata(path, [["general.architecture", ggufValue.str("llama")]]),
 *   tensors: [{ name: "output_norm.weight", type: ggmlType("f32"), ne: [2] }],
 * });
 * out.writeTensor("output_norm.weight", new Uint8Array(Float32Array.of(1, 2).buffer));
 * out.finish();
 * Deno.removeSync(path);
 * ```
 */
export class GgufWriter implements Disposable {
  readonly #target: WritableTarget;
  readonly #tensors: readonly TensorInfo[];
  readonly #sizes: readonly number[];
  readonly #alignment: number;
  readonly #index: Map<string, number>;
  #current: number; // tensor being written
  #done = 0; //        bytes of it
  #finished = false;
  /** Bytes of the finished file. */
  readonly totalBytes: number;
  /** Bytes of the padded header. */
  readonly headerBytes: number;

  private constructor(options: GgufWriterOptions) {
    const { metadata, tensors, alignment = DEFAULT_ALIGNMENT, pad = true, resume = 0 } = options;
    const file = typeof options.path === "string" ? options.path : options.path.name;
    const header = encodeHeader(metadata, tensors, alignment, pad || tensors.length > 0);
    this.#tensors = tensors;
    this.#alignment = alignment;
    this.#sizes = tensors.map((t) => tensorBytes({ file, tensor: t.name }, t.type, t.ne));
    this.#index = new Map(tensors.map((t, i) => [t.name, i]));
    const padded = this.#sizes.map((n) => alignUp(n, alignment));
    const sum = (sizes: readonly number[]) => sizes.reduce((a, b) => a + b, 0);
    this.headerBytes = header.length;
    this.totalBytes = header.length + sum(padded);
    this.#current = resume;
    if (typeof options.path !== "string") {
      if (resume > 0) throw new Error("only a file can be resumed");
      this.#target = options.path;
      this.#target.write(header);
      return;
    }
    const keep = resume > 0 ? header.length + sum(padded.slice(0, resume)) : 0;
    if (resume > 0) checkPartial(options.path, header, keep);
    this.#target = fileTarget(options.path, keep);
    if (resume > 0) return;
    try {
      this.#target.write(header);
    } catch (error) {
      this.#target.abort();
      throw error;
    }
  }

  /** Opens the target and writes the header. */
  static create(options: GgufWriterOptions): GgufWriter {
    return new GgufWriter(options);
  }

  /** The tensor that comes next, or undefined when all are written. */
  get next(): TensorInfo | undefined {
    return this.#tensors[this.#current];
  }

  /**
   * Appends bytes to a tensor, which must be the next one in order: all of its bytes, or the next pieces of them.
   * Violations are the caller's bugs and throw a plain `Error`.
   */
  writeTensor(tensor: number | string, ...chunks: Uint8Array[]): void {
    const i = typeof tensor === "number" ? tensor : this.#index.get(tensor);
    if (i !== this.#current || i >= this.#tensors.length) {
      throw new Error(`tensor ${tensor} does not come next, expected ${this.next?.name ?? "none"}`);
    }
    for (const chunk of chunks) {
      if (this.#done + chunk.length > this.#sizes[i]) {
        throw new Error(
          `tensor ${this.#tensors[i].name} has ${this.#sizes[i]} bytes, got ${this.#done + chunk.length}`,
        );
      }
      this.#target.write(chunk);
      this.#done += chunk.length;
    }
    if (this.#done < this.#sizes[i]) return;
    const padding = alignUp(this.#done, this.#alignment) - this.#done;
    if (padding > 0) this.#target.write(new Uint8Array(padding));
    this.#current++;
    this.#done = 0;
  }

  /** Makes the file visible under its name; every tensor must be written. */
  finish(): void {
    if (this.#current !== this.#tensors.length) {
      throw new Error(`tensor ${this.next!.name} has ${this.#done} of its ${this.#sizes[this.#current]} bytes`);
    }
    this.#target.finish();
    this.#finished = true;
  }

  /** Removes what was written. */
  abort(): void {
    if (!this.#finished) this.#target.abort();
    this.#finished = true;
  }

  /** Keeps the partial file, for a later writer with `resume`; says how many tensors are whole. */
  suspend(): number {
    if (!this.#target.suspend) throw new Error("this target cannot be suspended");
    this.#target.suspend();
    this.#finished = true;
    return this.#current;
  }

  [Symbol.dispose](): void {
    this.abort();
  }
}

/** A partial file can be continued when it starts with the same header and is long enough. */
function checkPartial(path: string, header: Uint8Array, keep: number): void {
  const partial = partialPath(path);
  const fail = (what: string) =>
    new FormatError("format.resume", `Cannot resume ${path}: ${what}`, {
      at: { file: partial },
      hint: "start again without resuming",
    });
  let file: Deno.FsFile;
  try {
    file = Deno.openSync(partial);
  } catch (cause) {
    throw fail(`${partial} cannot be opened, ${osReason(cause)}`);
  }
  try {
    const size = file.statSync().size;
    if (size < keep) throw fail(`${partial} has ${size} bytes, expected at least ${keep}`);
    const found = new Uint8Array(header.length);
    for (let done = 0; done < found.length;) {
      const n = file.readSync(found.subarray(done));
      if (n === null) break;
      done += n;
    }
    if (found.some((b, i) => b !== header[i])) throw fail(`${partial} was begun with other settings or another source`);
  } finally {
    file.close();
  }
}
