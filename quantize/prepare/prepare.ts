/**
 * Hugging Face folder to GGUF file or split set.
 * @module
 */
import { shardName } from "../../core/gguf/read.ts";
import { type GgufValue, ggufValue, Metadata } from "../../core/gguf/metadata.ts";
import { encodeHeader, GgufWriter, partialPath } from "../../core/gguf/write.ts";
import { DEFAULT_ALIGNMENT, tensorBytes } from "../../core/gguf/layout.ts";
import { Flusher } from "../flusher.ts";
import { Journal } from "../journal.ts";
import { refuseFullDisk, refuseInputs, removeIfThere } from "../output_files.ts";
import { pauses } from "../pause.ts";
import { planSplit, type SplitLimits } from "../reshard.ts";
import { release } from "./dtype.ts";
import { Early, type EarlyProgress } from "./early.ts";
import type { FollowOptions } from "./follow.ts";
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
  /** The tensor is whole with this. */
  readonly whole: boolean;
  /** Tensor bytes written, of all. */
  readonly bytes: number;
  readonly totalBytes: number;
}

export interface PrepareFileOptions extends PrepareOptions, SplitLimits {
  /** Bytes that buffers may take; 16 MiB where left out. A read never takes less than one row. */
  room?: number;
  /** Goes on from what an interrupted run left, and leaves what there is when `signal` stops this one. */
  resume?: boolean;
  /** Waits for files that are still arriving in the folder, and converts tensors as soon as they are there. */
  follow?: FollowOptions;
  /** Called for each tensor that was converted before all files were there. */
  onEarly?: (p: EarlyProgress) => void;
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
  /** Tensors that an earlier run had written. */
  readonly n_resumed: number;
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
 * Writes the GGUF file of a checkpoint. Everything that headers can tell is checked before the first byte. Files have their
 * names only when all are whole. Memory: `room` besides the vocabulary.
 *
 * @throws {UsageError} `usage.split_limits` when both limits are given; {@link QuantizeError} `quantize.disk_full`,
 * `quantize.resume`; and what `openPrepared` and reading throw.
 */
export async function prepare(dir: string, out: string, options: PrepareFileOptions = {}): Promise<PrepareResult> {
  const elements = options.room === undefined ? CHUNK : Math.max(1, Math.floor(options.room / BYTES_PER_ELEMENT));
  using early = options.follow ? await Early.gather(dir, out, options, elements) : undefined;
  using opened = openPrepared(dir, options);
  const source = early ? early.over(opened) : opened;
  try {
    return await new Run(source, dir, planFiles(source, out, options), elements, options).all();
  } catch (error) {
    if (options.resume && options.signal?.aborted) early?.keep();
    throw error;
  }
}

class Run {
  readonly #pause: () => Promise<void>;
  readonly #totalBytes: number;
  #bytes = 0;
  #index = 0;

  constructor(
    readonly source: PreparedSource,
    readonly dir: string,
    readonly files: readonly FilePlan[],
    readonly elements: number,
    readonly options: PrepareFileOptions,
  ) {
    this.#pause = pauses(options.signal);
    this.#totalBytes = source.tensors.reduce((n, t) => n + bytesOf(source.metadata.file, t), 0);
  }

  async all(): Promise<PrepareResult> {
    const { source, files, options } = this;
    const paths = files.map((f) => f.path);
    refuseInputs(paths, source.paths);
    const headers = files.map((f) => encodeHeader(f.metadata, f.tensors));
    const journal = new Journal(paths, headers, { name: this.dir, paths: source.paths }, {});
    const written = options.resume ? journal.read() : [];
    if (written.every((n) => n === 0)) {
      const tensors = this.#totalBytes + source.tensors.length * DEFAULT_ALIGNMENT;
      refuseFullDisk(paths[0], headers.reduce((n, h) => n + h.length, tensors));
    }
    const whole: string[] = []; // parts that wait for the others before they get their names
    let bytes = 0;
    let n_resumed = 0;
    try {
      for (const [no, file] of files.entries()) {
        const resume = written[no] ?? 0;
        n_resumed += resume;
        bytes += await this.#write(file, resume, {
          record: (n) => journal.record(no, n),
          stop: (n) => journal.write(no, n),
        });
        whole.push(file.path);
      }
      // The first file, which opens a set, appears last.
      for (const path of whole.toReversed()) Deno.renameSync(partialPath(path), path);
      journal.remove();
    } catch (error) {
      if (!this.#keeps) {
        journal.remove();
        for (const path of whole) removeIfThere(partialPath(path));
      }
      throw error;
    }
    const types: Record<string, number> = {};
    for (const t of source.tensors) types[t.type.name] = (types[t.type.name] ?? 0) + 1;
    return {
      paths,
      architecture: source.metadata.str("general.architecture"),
      n_tensors: source.tensors.length,
      types,
      bytes,
      n_resumed,
      warnings: source.warnings,
    };
  }

  /** What is written stays for a later run. */
  get #keeps(): boolean {
    return this.options.resume === true && this.options.signal?.aborted === true;
  }

  /** Leaves the whole file under its partial name; says how many bytes it has. */
  async #write(
    file: FilePlan,
    resume: number,
    journal: Record<"record" | "stop", (n_whole: number) => void>,
  ): Promise<number> {
    const { path, metadata, tensors } = file;
    this.#index += resume;
    for (const t of tensors.slice(0, resume)) this.#bytes += bytesOf(path, t);
    using writer = GgufWriter.create({ path, metadata, tensors, resume, pad: this.options.vocabOnly !== true });
    const flusher = new Flusher(partialPath(path));
    try {
      for (let i = resume; i < tensors.length; i++) {
        await this.#tensor(writer, i, tensors[i], flusher);
        journal.record(i + 1);
      }
    } catch (error) {
      if (this.#keeps) journal.stop(writer.suspend());
      throw error;
    } finally {
      await flusher.close();
    }
    writer.suspend();
    return writer.totalBytes;
  }

  async #tensor(writer: GgufWriter, i: number, tensor: PreparedTensor, flusher: Flusher): Promise<void> {
    const step = Math.max(1, Math.floor(this.elements / tensor.ne[0]));
    for (let row = 0; row < tensor.n_rows; row += step) {
      await this.#pause();
      const rows = Math.min(step, tensor.n_rows - row);
      const chunk = await this.source.read(tensor, row, rows);
      writer.writeTensor(i, chunk);
      flusher.wrote(chunk.length);
      this.#bytes += chunk.length;
      release(chunk);
      this.options.onProgress?.({
        tensor,
        index: this.#index,
        n_tensors: this.source.tensors.length,
        whole: row + rows === tensor.n_rows,
        bytes: this.#bytes,
        totalBytes: this.#totalBytes,
      });
    }
    this.#index++;
  }
}
