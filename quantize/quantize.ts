/**
 * Quantizes a model: plans, then streams rows from the source through the encoders into the output. Reading the next rows and
 * writing the last ones overlaps with encoding; memory is a few chunks of rows, whatever the tensors' sizes.
 *
 * The output has its name only when it is whole. A run that is killed leaves `OUT.partial` and a journal; a later run
 * with `resume` continues from them and writes the same bytes.
 * @module
 */
import { NativeError, QuantizeError } from "../core/errors.ts";
import { DEFAULT_ALIGNMENT } from "../core/gguf/layout.ts";
import { shardName } from "../core/gguf/read.ts";
import { type GgmlType, rowBytes } from "../core/gguf/types.ts";
import { encodeHeader, GgufWriter, partialPath, type TensorInfo } from "../core/gguf/write.ts";
import type { Backend } from "../core/program/backend.ts";
import { Flusher } from "./flusher.ts";
import { isInterruption, Journal, withResumeHint } from "./journal.ts";
import { nameAll, refuseFullDisk, refuseOutputs, removeIfThere } from "./output_files.ts";
import { outputMetadata, overriddenMetadata, type Override } from "./output_metadata.ts";
import { type PlannedTensor, type PlanOptions, planQuantization, type QuantizePlan } from "./plan.ts";
import { type QuantizeSource, rowCount } from "./quantize_source.ts";
import { type QuantizeSummary, summarize } from "./quantize_summary.ts";
import { type RowRun, rowRuns } from "./row_runs.ts";

/** What a run makes, and how. */
export interface QuantizeOptions extends PlanOptions {
  /** Keys to set in the output. */
  readonly overrides?: readonly Override[];
  /** Most bytes of rows in memory at a time; default 256 MiB. */
  readonly room?: number;
  /** Continues what an earlier, interrupted run of the same settings left. */
  readonly resume?: boolean;
  /** Stops the run. Its files stay, as they do when the disk is full, so that a later run can resume. */
  readonly signal?: AbortSignal;
  /** Called after each piece that was written. */
  readonly onProgress?: (p: QuantizeProgress) => void;
  /** Which device of the backend encodes, or encodes a type without or with importance; 0 is the host. The bytes are the same. */
  readonly device?: number | ((type: GgmlType, weighted: boolean) => number);
}

/** How far a run has come. */
export interface QuantizeProgress {
  /** The tensor being written. */
  readonly tensor: PlannedTensor;
  /** Its place in the output. */
  readonly index: number;
  /** How many there are. */
  readonly n_tensors: number;
  /** The tensor is whole with this. */
  readonly whole: boolean;
  /** Bytes of the source done, of all. */
  readonly done: number;
  /** Of them, those that an earlier run had done. */
  readonly resumed: number;
  /** Bytes of the source. */
  readonly total: number;
}

/** What a run made. */
export interface QuantizeResult {
  /** The files. */
  readonly paths: readonly string[];
  /** Sizes and types. */
  readonly summary: QuantizeSummary;
  /** Warnings, each a sentence for the user. */
  readonly warnings: readonly string[];
  /** Tensors that an earlier run had written. */
  readonly n_resumed: number;
  /** Their bytes in the source. */
  readonly resumed_bytes: number;
}

const DEFAULT_ROOM = 256 * 2 ** 20;
/**
 * Source bytes encoded at a time, at most: enough for every thread to have several pieces, and small enough to come from memory
 * that the process has touched before.
 */
const CHUNK = Math.min(32, Math.max(4, navigator.hardwareConcurrency)) * 2 ** 20;
/** The same for a card, which must have the rows of several chunks of its own. */
const CARD_CHUNK = 32 * 2 ** 20;
/** Chunks being encoded, one after the other without a pause between, while the one before them is written. */
const AHEAD = 2;
/** Chunks in memory at once: results, and as many of a source that cannot be read from where it lies. */
const CHUNKS_HELD = 2 * (AHEAD + 1);

/** The plan, from the source's headers alone. */
export function planFor(source: QuantizeSource, options: QuantizeOptions): QuantizePlan {
  const metadata = overriddenMetadata(source.metadata, options.overrides ?? []);
  return planQuantization(source.tensors, metadata, options);
}

/** Names of the output's parts. With `keepSplit`, `.gguf` at the end of `output` is not part of the prefix. */
export function outputPaths(output: string, plan: QuantizePlan, keepSplit: boolean): string[] {
  if (!keepSplit) return [output];
  const prefix = output.includes(".gguf") ? output.slice(0, -5) : output;
  return Array.from({ length: plan.n_parts }, (_, no) => shardName(prefix, no, plan.n_parts));
}

/**
 * Quantizes `source` to `output`.
 *
 * @throws {QuantizeError} `quantize.plan` before anything is written; `quantize.non_finite` for a NaN or infinity of the source,
 * naming tensor, row, column and value; `quantize.encode` where a result has no finite scale; `quantize.disk_full`.
 * @throws {UsageError} `usage.output_exists` when the output is an input, `usage.output` when it is a folder.
 * @throws {FormatError} `format.unwritable`
 */
export async function quantize(
  source: QuantizeSource,
  output: string,
  backend: Backend,
  options: QuantizeOptions,
): Promise<QuantizeResult> {
  const plan = planFor(source, options);
  const paths = outputPaths(output, plan, options.keepSplit ?? false);
  refuseOutputs(paths, source.paths);
  const run = new Run(source, plan, paths, backend, options);
  return await run.all();
}

/** A piece of a tensor's rows. */
interface Piece extends RowRun {
  readonly tensor: PlannedTensor;
  /** The tensor's place in its part of the output. */
  readonly index: number;
  /** The tensor is whole with this. */
  readonly last: boolean;
}

/** Buffers used in turn: memory that the process has touched before costs no page faults. */
class Ring {
  readonly #buffers: Uint8Array[] = [];
  #turn = 0;

  constructor(readonly n: number) {}

  take(bytes: number): Uint8Array {
    const i = this.#turn++ % this.n;
    if (!(this.#buffers[i]?.length >= bytes)) this.#buffers[i] = new Uint8Array(bytes);
    return this.#buffers[i].subarray(0, bytes);
  }
}

class Run {
  readonly #total: number;
  #done = 0;
  #resumed = 0;
  readonly #chunk: number;
  readonly #buffers = new Ring(AHEAD + 1);
  /** Settles when the last piece that was asked for has been read. */
  #reads: Promise<unknown> = Promise.resolve();

  constructor(
    readonly source: QuantizeSource,
    readonly plan: QuantizePlan,
    readonly paths: readonly string[],
    readonly backend: Backend,
    readonly options: QuantizeOptions,
  ) {
    this.#total = plan.tensors.reduce((n, t) => n + t.sourceBytes, 0);
    const most = options.device ? CARD_CHUNK : CHUNK;
    this.#chunk = Math.max(1, Math.min(most, Math.floor((options.room ?? DEFAULT_ROOM) / CHUNKS_HELD)));
  }

  async all(): Promise<QuantizeResult> {
    const metadata = outputMetadata(this.source.metadata, this.plan, this.paths[0], this.options);
    const parts = this.paths.map((path, no) => {
      const tensors = this.plan.tensors.filter((t) => this.paths.length === 1 || t.source.shard === no);
      const infos: TensorInfo[] = tensors.map(({ name, type, ne }) => ({ name, type, ne }));
      // Tensors start where the part's own metadata says: the first part of a set keeps the source's keys.
      const alignment = metadata[no].u32("general.alignment", DEFAULT_ALIGNMENT);
      return { path, metadata: metadata[no], tensors, infos, alignment };
    });
    const headers = parts.map((p) => encodeHeader(p.metadata, p.infos, p.alignment));
    const from = this.plan.tensors.map((t) => t.source);
    const journal = new Journal(this.paths, headers, this.source, this.options, from);
    const written = this.options.resume ? journal.read() : [];
    const bytes = this.plan.tensors.reduce((n, t) => n + t.bytes + parts[0].alignment, 0);
    refuseFullDisk(this.paths, headers.reduce((n, h) => n + h.length, bytes));
    let n_resumed = 0;
    const begun: string[] = [];
    try {
      for (const [no, part] of parts.entries()) {
        const resume = Math.min(written[no] ?? 0, part.tensors.length);
        const { path, metadata, infos, alignment } = part;
        using writer = GgufWriter.create({ path, metadata, tensors: infos, alignment, resume });
        begun.push(part.path);
        n_resumed += resume;
        for (const t of part.tensors.slice(0, resume)) this.#resumed += t.sourceBytes;
        const flusher = new Flusher(partialPath(part.path));
        try {
          await this.#stream(part.tensors, resume, (piece, bytes) => {
            writer.writeTensor(piece.index, bytes);
            flusher.wrote(bytes.length);
            if (piece.last) journal.record(no, piece.index + 1);
          });
        } catch (error) {
          if (isInterruption(error, this.options.signal)) journal.keep(no, writer);
          throw error;
        } finally {
          await flusher.close();
        }
        writer.suspend();
      }
      nameAll(this.paths);
      journal.remove();
    } catch (error) {
      if (journal.isThere && isInterruption(error, this.options.signal)) throw withResumeHint(error);
      journal.remove();
      for (const path of begun) removeIfThere(partialPath(path));
      throw error;
    }
    return {
      paths: this.paths,
      summary: summarize(this.plan),
      warnings: [...this.source.warnings, ...this.plan.warnings],
      n_resumed,
      resumed_bytes: this.#resumed,
    };
  }

  *#pieces(tensor: PlannedTensor, index: number): Generator<Piece> {
    const rows = rowCount(tensor.source);
    for (const run of rowRuns(tensor, tensor.type, this.#chunk)) {
      yield { tensor, index, ...run, last: run.row + run.rows === rows };
    }
  }

  /**
   * Tensors from `from` on, piece by piece and in order, to `write`. The native threads encode the next pieces while this
   * thread writes one.
   */
  async #stream(
    tensors: readonly PlannedTensor[],
    from: number,
    write: (piece: Piece, bytes: Uint8Array) => void,
  ): Promise<void> {
    const ahead: { piece: Piece; bytes: Promise<Uint8Array> }[] = [];
    const finish = async () => {
      const { piece, bytes } = ahead[0];
      write(piece, await bytes);
      ahead.shift();
      this.#report(piece);
    };
    try {
      for (const piece of tensors.values().drop(from).flatMap((t, i) => this.#pieces(t, from + i))) {
        this.options.signal?.throwIfAborted();
        const bytes = this.#encode(piece);
        bytes.catch(() => {}); // thrown where it is awaited
        if (ahead.push({ piece, bytes }) > AHEAD) await finish();
      }
      while (ahead.length > 0) await finish();
    } finally {
      await Promise.allSettled(ahead.map((a) => a.bytes)); // they use memory and files of the caller's
    }
  }

  #report({ tensor, rows, last }: Piece): void {
    this.#done += rows * rowBytes(tensor.source.type, tensor.ne[0]);
    this.options.onProgress?.({
      tensor,
      index: this.plan.tensors.indexOf(tensor),
      n_tensors: this.plan.tensors.length,
      whole: last,
      done: this.#resumed + this.#done,
      resumed: this.#resumed,
      total: this.#total,
    });
  }

  /** A piece in its new type, all finite. */
  async #encode(piece: Piece): Promise<Uint8Array> {
    const { tensor: { type, source: from }, row, rows, weights } = piece;
    const dst = this.#buffers.take(rows * rowBytes(type, from.ne[0]));
    const { device = 0 } = this.options;
    try {
      return await this.backend.quantize({
        srcType: from.type,
        src: this.source.locate?.(from, row, rows) ?? await this.#read(piece),
        dstType: type,
        dst,
        n_rows: rows,
        n_per_row: from.ne[0],
        weights,
        device: typeof device === "number" ? device : device(type, weights !== undefined),
      });
    } catch (error) {
      if (!(error instanceof NativeError) || error.code !== "native.data") throw error;
      await this.#refuseNonFinite(piece);
      throw this.#overflow(piece, error);
    }
  }

  /** A piece as the source has it; one after the other. */
  async #read({ tensor: { source }, row, rows }: Piece): Promise<Uint8Array> {
    const bytes = this.#reads.then(() => this.source.read(source, row, rows));
    this.#reads = bytes.catch(() => {});
    return await bytes;
  }

  async #refuseNonFinite(piece: Piece): Promise<void> {
    const { type, ne, name } = piece.tensor.source;
    const src = await this.#read(piece);
    const bad = await this.backend.checkData(type, src);
    if (!bad) return;
    const row = piece.row + Math.floor(bad.first / ne[0]);
    const column = bad.first % ne[0];
    const value = type.block === 1
      ? String((await this.backend.dequantize(type, elementOf(type, src, bad.first), 1))[0])
      : "of a block whose scale is not finite";
    throw new QuantizeError(
      "quantize.non_finite",
      `Cannot quantize tensor "${name}" of ${this.source.name}: row ${row}, column ${column} is ${value}`,
      {
        at: { file: this.source.name, tensor: name, row, column, value },
        hint: "the model is damaged: fetch it again, or take another release of it",
      },
    );
  }

  #overflow({ tensor: { name, type }, row, rows }: Piece, cause: NativeError): QuantizeError {
    return new QuantizeError(
      "quantize.encode",
      `Cannot quantize tensor "${name}" to ${type.name}, rows ${row} to ${row + rows - 1}: ${cause.message}`,
      {
        at: { tensor: name, type: type.name, row, rows },
        hint: "its values are too large for the 16-bit scales of the type: keep it with --tensor-type NAME=bf16 or f32",
        cause,
      },
    );
  }
}

function elementOf(type: GgmlType, src: Uint8Array, i: number): Uint8Array {
  return src.slice(i * type.bytes, (i + 1) * type.bytes);
}
