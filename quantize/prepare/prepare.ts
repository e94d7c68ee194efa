/**
 * Hugging Face folder to GGUF file or split set.
 * @module
 */
import { shardName } from "../../core/gguf/read.ts";
import { type GgufValue, ggufValue, Metadata } from "../../core/gguf/metadata.ts";
import { encodeHeader, GgufWriter, partialPath } from "../../core/gguf/write.ts";
import { DEFAULT_ALIGNMENT, tensorBytes } from "../../core/gguf/layout.ts";
import { Flusher } from "../flusher.ts";
import { isInterruption, Journal, withResumeHint } from "../journal.ts";
import { nameAll, refuseFullDisk, refuseNoFile, refuseOutputs, removeIfThere } from "../output_files.ts";
import { pauses } from "../pause.ts";
import { planSplit, type SplitLimits } from "../reshard.ts";
import { release } from "./dtype.ts";
import { Early, removeSpool } from "./early.ts";
import type { PrepareFileOptions } from "./file_options.ts";
import { openPrepared, type PreparedSource, type PreparedTensor } from "./source.ts";

/** Elements converted at a time by default: 4 MiB in f32. */
const CHUNK = 1 << 20;
/** Bytes of buffers per element of a chunk: source, f32 between, result, and one to spare. */
const BYTES_PER_ELEMENT = 16;

/** What a run made. */
export interface PrepareResult {
  /** The files made. */
  readonly paths: readonly string[];
  /** `general.architecture`. */
  readonly architecture: string;
  /** In all files. */
  readonly n_tensors: number;
  /** Tensors by type. */
  readonly types: Readonly<Record<string, number>>;
  /** Of all files together. */
  readonly bytes: number;
  /** Tensors that an earlier run had written. */
  readonly n_resumed: number;
  /** Warnings, each a sentence for the user. */
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
 * @throws {UsageError} `usage.split_limits` when both limits are given, `usage.output_exists` when the output is an input,
 * `usage.output` when it is a folder; {@link FormatError} `format.unwritable`; {@link QuantizeError} `quantize.disk_full`,
 * `quantize.resume`; and what `openPrepared` and reading throw.
 */
export async function prepare(dir: string, out: string, options: PrepareFileOptions = {}): Promise<PrepareResult> {
  if (options.splitMaxSize === undefined && options.splitMaxTensors === undefined) refuseNoFile(out); // fails now, since the run may wait for days
  const elements = options.room === undefined ? CHUNK : Math.max(1, Math.floor(options.room / BYTES_PER_ELEMENT));
  using early = options.follow ? await Early.gather(dir, out, options, elements) : undefined;
  using opened = openPrepared(dir, options);
  const source = early ? early.over(opened) : opened;
  try {
    const result = await new Run(source, dir, planFiles(source, out, options), elements, options).all();
    if (!early) removeSpool(out); // left by a killed run that used --follow
    return result;
  } catch (error) {
    if (options.resume && isInterruption(error, options.signal)) early?.keep();
    throw error;
  }
}

class Run {
  readonly #pause: () => Promise<void>;
  readonly #totalBytes: number;
  readonly #begun: string[] = [];
  #bytes = 0;
  #resumed = 0;
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
    refuseOutputs(paths, source.paths);
    const headers = files.map((f) => encodeHeader(f.metadata, f.tensors));
    const journal = new Journal(paths, headers, { name: this.dir, paths: source.paths }, {}, []);
    const written = options.resume ? journal.read() : [];
    const tensors = this.#totalBytes + source.tensors.length * DEFAULT_ALIGNMENT;
    refuseFullDisk(paths, headers.reduce((n, h) => n + h.length, tensors));
    let bytes = 0;
    let n_resumed = 0;
    try {
      for (const [no, file] of files.entries()) {
        const resume = written[no] ?? 0;
        n_resumed += resume;
        bytes += await this.#write(file, resume, no, journal);
      }
      nameAll(paths);
      journal.remove();
    } catch (error) {
      if (journal.isThere && this.#keeps(error)) throw withResumeHint(error);
      journal.remove();
      for (const path of this.#begun) removeIfThere(partialPath(path));
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
  #keeps(error: unknown): boolean {
    return this.options.resume === true && isInterruption(error, this.options.signal);
  }

  /** Writes the whole file under its partial name; returns its bytes. */
  async #write(file: FilePlan, resume: number, no: number, journal: Journal): Promise<number> {
    const { path, metadata, tensors } = file;
    this.#index += resume;
    for (const t of tensors.slice(0, resume)) this.#resumed += bytesOf(path, t);
    using writer = GgufWriter.create({ path, metadata, tensors, resume, pad: this.options.vocabOnly !== true });
    this.#begun.push(path);
    const flusher = new Flusher(partialPath(path));
    try {
      for (let i = resume; i < tensors.length; i++) {
        await this.#tensor(writer, i, tensors[i], flusher);
        journal.record(no, i + 1);
      }
    } catch (error) {
      if (this.#keeps(error)) journal.keep(no, writer);
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
        bytes: this.#resumed + this.#bytes,
        resumed: this.#resumed,
        totalBytes: this.#totalBytes,
      });
    }
    this.#index++;
  }
}
