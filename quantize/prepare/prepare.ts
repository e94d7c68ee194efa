/**
 * Hugging Face folder to GGUF file or split set.
 * @module
 */
import { shardName } from "../../core/gguf/read.ts";
import { type GgufValue, ggufValue, Metadata } from "../../core/gguf/metadata.ts";
import { GgufWriter } from "../../core/gguf/write.ts";
import { tensorBytes } from "../../core/gguf/layout.ts";
import { pauses } from "../pause.ts";
import { planSplit, type SplitLimits } from "../reshard.ts";
import { release } from "./dtype.ts";
import { fileOnDisk } from "./resume.ts";
import { openPrepared, type PreparedSource, type PreparedTensor, type PrepareOptions } from "./source.ts";

/** Elements converted at a time where nothing else is said: 4 MiB in f32. */
const CHUNK = 1 << 20;
/** Bytes of buffers per element of a chunk: source, f32 between, result, and one to spare. */
const BYTES_PER_ELEMENT = 16;

export interface PrepareProgress {
  /** The tensor being written. */
  readonly tensor: PreparedTensor;
  /** Its place among all tensors. */
  readonly index: number;
  readonly n_tensors: number;
  /** Tensor bytes written, of all. */
  readonly bytes: number;
  readonly totalBytes: number;
}

export interface PrepareFileOptions extends PrepareOptions, SplitLimits {
  /** Bytes that buffers may take; 16 MiB where left out. A read never takes less than one row. */
  room?: number;
  /** Goes on from what an interrupted run left, and leaves what there is when `signal` stops this one. */
  resume?: boolean;
  /** Called after each piece that was written. */
  onProgress?: (p: PrepareProgress) => void;
  signal?: AbortSignal;
}

export interface PrepareResult {
  /** The files made. */
  readonly paths: readonly string[];
  /** `general.architecture`. */
  readonly architecture: string;
  readonly n_tensors: number;
  /** Tensors by type. */
  readonly types: Readonly<Record<string, number>>;
  /** Of all files together. */
  readonly bytes: number;
  readonly warnings: readonly string[];
}

interface FilePlan {
  readonly path: string;
  readonly metadata: Metadata;
  readonly tensors: readonly PreparedTensor[];
}

const bytesOf = (file: string, t: PreparedTensor) => tensorBytes({ file, tensor: t.name }, t.type, t.ne);

/** The files of a run: one, or a set when a limit is given and passed. */
function planFiles(source: PreparedSource, out: string, limits: SplitLimits): FilePlan[] {
  const { metadata, tensors } = source;
  const whole = [{ path: out, metadata, tensors }];
  if (limits.splitMaxSize === undefined && limits.splitMaxTensors === undefined) return whole;
  const sized = tensors.map((tensor) => ({ tensor, bytes: bytesOf(out, tensor) }));
  const parts = planSplit(sized, limits);
  if (parts.length === 1) return whole;
  const prefix = out.replace(/\.gguf$/, "");
  return parts.map((part, no) => ({
    path: shardName(prefix, no, parts.length),
    metadata: shardMetadata(metadata, no, parts.length, tensors.length),
    tensors: part.map((p) => p.tensor),
  }));
}

/** Keys of file `no` of a set, in the converter's order, which is not that of its splitting tool. */
function shardMetadata(whole: Metadata, no: number, count: number, n_tensors: number): Metadata {
  const keys: readonly (readonly [string, GgufValue])[] = [
    ["split.no", ggufValue.u16(no)],
    ["split.count", ggufValue.u16(count)],
    ["split.tensors.count", ggufValue.i32(n_tensors)],
  ];
  return new Metadata(whole.file, [...no === 0 ? whole : [], ...keys]);
}

/**
 * Writes the GGUF file of a checkpoint. Everything that headers can tell is checked before the first byte; a file has its
 * name only when it is whole, and a set that could not be finished is removed. Memory: `room` besides the vocabulary.
 *
 * @throws {UsageError} `usage.split_limits` when both limits are given.
 */
export async function prepare(dir: string, out: string, options: PrepareFileOptions = {}): Promise<PrepareResult> {
  using source = openPrepared(dir, options);
  const files = planFiles(source, out, options);
  const made: string[] = [];
  let total = 0;
  try {
    const run = new Run(source, options);
    for (const file of files) {
      total += await run.write(file);
      made.push(file.path);
    }
  } catch (error) {
    if (!(options.resume && options.signal?.aborted)) { for (const path of made) Deno.removeSync(path); }
    throw error;
  }
  const types: Record<string, number> = {};
  for (const t of source.tensors) types[t.type.name] = (types[t.type.name] ?? 0) + 1;
  return {
    paths: made,
    architecture: source.metadata.str("general.architecture"),
    n_tensors: source.tensors.length,
    types,
    bytes: total,
    warnings: source.warnings,
  };
}

class Run {
  readonly #chunk: number;
  readonly #pause: () => Promise<void>;
  readonly #totalBytes: number;
  #bytes = 0;
  #index = 0;

  constructor(readonly source: PreparedSource, readonly options: PrepareFileOptions) {
    this.#chunk = options.room === undefined ? CHUNK : Math.max(1, Math.floor(options.room / BYTES_PER_ELEMENT));
    this.#pause = pauses(options.signal);
    this.#totalBytes = source.tensors.reduce((n, t) => n + bytesOf(source.metadata.file, t), 0);
  }

  /** @returns bytes of the file. */
  async write({ path, metadata, tensors }: FilePlan): Promise<number> {
    const there = this.options.resume && tensors.length > 0 ? fileOnDisk(path, metadata, tensors) : undefined;
    const resume = there?.n_tensors ?? 0;
    this.#index += resume;
    for (const t of tensors.slice(0, resume)) this.#bytes += bytesOf(path, t);
    if (there?.isWhole) return there.bytes;
    using writer = GgufWriter.create({ path, metadata, tensors, resume, pad: this.options.vocabOnly !== true });
    try {
      for (let i = resume; i < tensors.length; i++) await this.#tensor(writer, i, tensors[i]);
    } catch (error) {
      if (this.options.resume && this.options.signal?.aborted) writer.suspend();
      throw error;
    }
    writer.finish();
    return writer.totalBytes;
  }

  async #tensor(writer: GgufWriter, i: number, tensor: PreparedTensor): Promise<void> {
    const step = Math.max(1, Math.floor(this.#chunk / tensor.ne[0]));
    for (let row = 0; row < tensor.n_rows; row += step) {
      await this.#pause();
      const chunk = await this.source.read(tensor, row, Math.min(step, tensor.n_rows - row));
      writer.writeTensor(i, chunk);
      this.#bytes += chunk.length;
      release(chunk);
      this.options.onProgress?.({
        tensor,
        index: this.#index,
        n_tensors: this.source.tensors.length,
        bytes: this.#bytes,
        totalBytes: this.#totalBytes,
      });
    }
    this.#index++;
  }
}
