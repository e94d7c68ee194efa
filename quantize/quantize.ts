/**
 * Quantizes a model: plans, then streams rows from the source through the encoders into the output. Reading the next rows and
 * writing the last ones overlaps with encoding; memory is a few chunks of rows, whatever the tensors' sizes.
 *
 * The output has its name only when it is whole. A run that is killed leaves `OUT.partial` and a journal, from which a later one
 * with `resume` goes on, to the same bytes.
 * @module
 */
import { statfsSync } from "node:fs";
import { dirname } from "node:path";
import { NativeError, QuantizeError, UsageError } from "../core/errors.ts";
import { DEFAULT_ALIGNMENT } from "../core/gguf/layout.ts";
import { shardName } from "../core/gguf/read.ts";
import { type GgmlType, rowBytes } from "../core/gguf/types.ts";
import { encodeHeader, GgufWriter, partialPath, type TensorInfo } from "../core/gguf/write.ts";
import type { Backend } from "../core/program/backend.ts";
import { Flusher } from "./flusher.ts";
import { Journal } from "./journal.ts";
import { outputMetadata, overriddenMetadata, type Override } from "./output_metadata.ts";
import { type PlannedTensor, type PlanOptions, planQuantization, type QuantizePlan } from "./plan.ts";
import { type QuantizeSource, rowCount } from "./quantize_source.ts";
import { type QuantizeSummary, summarize } from "./quantize_summary.ts";

export interface QuantizeOptions extends PlanOptions {
  readonly overrides?: readonly Override[];
  /** Most bytes of rows in memory at a time; default 256 MiB. */
  readonly room?: number;
  /** Goes on from what an earlier, interrupted run of the same settings left. */
  readonly resume?: boolean;
  /** Keeps what is written when `signal` aborts, so that a later run can resume. */
  readonly signal?: AbortSignal;
  readonly onProgress?: (p: QuantizeProgress) => void;
  /** Which device of the backend encodes; 0 is the host. */
  readonly device?: number;
}

export interface QuantizeProgress {
  readonly tensor: PlannedTensor;
  /** Its place in the output. */
  readonly index: number;
  readonly n_tensors: number;
  /** The tensor is whole with this. */
  readonly whole: boolean;
  /** Bytes of the source done, of all. */
  readonly done: number;
  readonly total: number;
}

export interface QuantizeResult {
  readonly paths: readonly string[];
  readonly summary: QuantizeSummary;
  readonly warnings: readonly string[];
  /** Tensors that an earlier run had written. */
  readonly n_resumed: number;
}

const DEFAULT_ROOM = 256 * 2 ** 20;
/**
 * Source bytes encoded at a time, at most: enough for every thread to have several pieces, and small enough to come from memory
 * that the process has touched before.
 */
const CHUNK = Math.min(32, Math.max(4, navigator.hardwareConcurrency)) * 2 ** 20;
/** Chunks in memory at once: being read, being encoded (source and result), being written. */
const CHUNKS_HELD = 8;

/** The plan, from the source's headers alone. */
export function planFor(source: QuantizeSource, options: QuantizeOptions): QuantizePlan {
  const metadata = overriddenMetadata(source.metadata, options.overrides ?? []);
  if (source.alignment !== DEFAULT_ALIGNMENT) {
    throw new QuantizeError(
      "quantize.alignment",
      `Cannot quantize ${source.name}: its tensors are aligned to ${source.alignment} bytes, expected ${DEFAULT_ALIGNMENT}`,
      {
        at: { file: source.name, got: source.alignment },
        hint: "splice or convert it with the default alignment first",
      },
    );
  }
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
 * @throws {UsageError} `usage.output_exists` when the output is an input.
 */
export async function quantize(
  source: QuantizeSource,
  output: string,
  backend: Backend,
  options: QuantizeOptions,
): Promise<QuantizeResult> {
  const plan = planFor(source, options);
  const paths = outputPaths(output, plan, options.keepSplit ?? false);
  refuseInputs(paths, source);
  const run = new Run(source, plan, paths, backend, options);
  return await run.all();
}

/** Never writes over an input. */
function refuseInputs(paths: readonly string[], source: QuantizeSource): void {
  const real = (path: string) => {
    try {
      return Deno.realPathSync(path);
    } catch {
      return undefined;
    }
  };
  const inputs = new Set(source.paths.map(real));
  for (const path of paths) {
    const at = real(path);
    if (at !== undefined && inputs.has(at)) {
      throw new UsageError("usage.output_exists", `Cannot write ${path}: it is an input`, {
        at: { file: path },
        hint: "choose another output",
      });
    }
  }
}

/** A piece of a tensor's rows, all of one matrix. */
interface Piece {
  readonly row: number;
  readonly rows: number;
  readonly weights: Float32Array | undefined;
}

class Run {
  readonly #total: number;
  #done = 0;
  readonly #chunk: number;

  constructor(
    readonly source: QuantizeSource,
    readonly plan: QuantizePlan,
    readonly paths: readonly string[],
    readonly backend: Backend,
    readonly options: QuantizeOptions,
  ) {
    this.#total = plan.tensors.reduce((n, t) => n + t.sourceBytes, 0);
    this.#chunk = Math.max(1, Math.min(CHUNK, Math.floor((options.room ?? DEFAULT_ROOM) / CHUNKS_HELD)));
  }

  async all(): Promise<QuantizeResult> {
    const metadata = outputMetadata(this.source.metadata, this.plan, this.paths[0], this.options);
    const parts = this.paths.map((path, no) => {
      const tensors = this.plan.tensors.filter((t) => this.paths.length === 1 || t.source.shard === no);
      const infos: TensorInfo[] = tensors.map(({ name, type, ne }) => ({ name, type, ne }));
      return { path, metadata: metadata[no], tensors, infos };
    });
    const headers = parts.map((p) => encodeHeader(p.metadata, p.infos));
    const journal = new Journal(this.paths, headers, this.source, this.options);
    const written = this.options.resume ? journal.read() : [];
    this.#refuseFullDisk(headers.reduce((n, h) => n + h.length, 0), written);
    let n_resumed = 0;
    const whole: string[] = []; // parts that wait for the others before they get their names
    let keep = false;
    try {
      for (const [no, part] of parts.entries()) {
        const resume = Math.min(written[no] ?? 0, part.tensors.length);
        using writer = GgufWriter.create({ path: part.path, metadata: part.metadata, tensors: part.infos, resume });
        n_resumed += resume;
        for (const t of part.tensors.slice(0, resume)) this.#done += t.sourceBytes;
        const flusher = new Flusher(partialPath(part.path));
        try {
          for (let i = resume; i < part.tensors.length; i++) {
            await this.#tensor(writer, i, part.tensors[i], flusher);
            journal.record(no, i + 1);
          }
        } catch (error) {
          if (this.options.signal?.aborted) {
            journal.write(no, writer.suspend());
            keep = true;
          }
          throw error;
        } finally {
          await flusher.close();
        }
        if (parts.length === 1) writer.finish();
        else writer.suspend();
        whole.push(part.path);
      }
      if (parts.length > 1) { for (const path of whole.toReversed()) Deno.renameSync(partialPath(path), path); }
      journal.remove();
    } catch (error) {
      if (!keep) {
        journal.remove();
        for (const path of whole) removeIfThere(partialPath(path));
      }
      throw error;
    }
    return {
      paths: this.paths,
      summary: summarize(this.plan),
      warnings: [...this.source.warnings, ...this.plan.warnings],
      n_resumed,
    };
  }

  /** Hours of work should not end at a full disk. */
  #refuseFullDisk(headers: number, written: readonly number[]): void {
    if (written.some((n) => n > 0)) return; // what is there already is not counted again
    const needed = headers + this.plan.tensors.reduce((n, t) => n + t.bytes + DEFAULT_ALIGNMENT, 0);
    let free: number;
    try {
      const fs = statfsSync(dirname(this.paths[0]));
      free = fs.bavail * fs.bsize;
    } catch {
      return; // not every file system says
    }
    for (const path of this.paths) free += sizeIfThere(partialPath(path));
    if (free >= needed) return;
    throw new QuantizeError(
      "quantize.disk_full",
      `Cannot write ${this.paths[0]}: ${needed} bytes are needed, ${free} are free`,
      { at: { file: this.paths[0], needed, free }, hint: "make room on the disk, or choose another folder" },
    );
  }

  /** Rows in pieces: as large as the room allows, none across two experts with weights of their own. */
  *#pieces(t: PlannedTensor): Generator<Piece> {
    const n = t.ne[0];
    const perMatrix = t.ne[1] ?? 1;
    const rows = rowCount(t.source);
    const rowSize = Math.max(rowBytes(t.source.type, n), rowBytes(t.type, n));
    const step = Math.max(1, Math.floor(this.#chunk / rowSize));
    for (let row = 0; row < rows;) {
      const matrix = Math.floor(row / perMatrix);
      const end = t.importance && t.importance.length > n ? Math.min(rows, (matrix + 1) * perMatrix) : rows;
      const count = Math.min(step, end - row);
      const weights = t.importance?.length === n ? t.importance : t.importance?.subarray(matrix * n, (matrix + 1) * n);
      yield { row, rows: count, weights };
      row += count;
    }
  }

  async #tensor(writer: GgufWriter, index: number, t: PlannedTensor, flusher: Flusher): Promise<void> {
    // One chunk is encoded by the native threads while this thread writes the one before and reads the one after.
    let pending: Promise<Uint8Array> | undefined;
    let pendingBytes = 0;
    const flush = async (whole: boolean, next?: () => Promise<Uint8Array>) => {
      const bytes = pending ? await pending : undefined;
      const size = pendingBytes;
      pending = next?.();
      pending?.catch(() => {}); // reported where it is awaited
      if (!bytes) return;
      writer.writeTensor(index, bytes);
      flusher.wrote(bytes.length);
      this.#done += size;
      this.options.onProgress?.({
        tensor: t,
        index: this.plan.tensors.indexOf(t),
        n_tensors: this.plan.tensors.length,
        whole,
        done: this.#done,
        total: this.#total,
      });
    };
    for (const piece of this.#pieces(t)) {
      this.options.signal?.throwIfAborted();
      const src = await this.source.read(t.source, piece.row, piece.rows);
      await flush(false, () => this.#encode(t, piece, src));
      pendingBytes = src.length;
    }
    await flush(true);
  }

  async #encode(t: PlannedTensor, piece: Piece, src: Uint8Array): Promise<Uint8Array> {
    const { type, ne } = t.source;
    const bad = await this.backend.checkData(type, src);
    if (bad) throw await this.#nonFinite(t, piece, src, bad.first);
    if (!t.convert) return src;
    try {
      return await this.backend.quantize({
        srcType: type,
        src,
        dstType: t.type,
        n_rows: piece.rows,
        n_per_row: ne[0],
        ...(piece.weights ? { weights: piece.weights } : {}),
        ...(this.options.device === undefined ? {} : { device: this.options.device }),
      });
    } catch (error) {
      if (!(error instanceof NativeError) || error.code !== "native.data") throw error;
      throw this.#overflow(t, piece, error);
    }
  }

  async #nonFinite(t: PlannedTensor, piece: Piece, src: Uint8Array, first: number): Promise<QuantizeError> {
    const { type, ne, name } = t.source;
    const n = ne[0];
    const row = piece.row + Math.floor(first / n);
    const column = first % n;
    const value = type.block === 1
      ? String((await this.backend.dequantize(type, elementOf(type, src, first), 1))[0])
      : "of a block whose scale is not finite";
    const where = `row ${row}, column ${column} is ${value}`;
    return new QuantizeError(
      "quantize.non_finite",
      `Cannot quantize tensor "${name}" of ${this.source.name}: ${where}`,
      {
        at: { file: this.source.name, tensor: name, row, column, value },
        hint: "the model is damaged: fetch it again, or take another release of it",
      },
    );
  }

  #overflow(t: PlannedTensor, piece: Piece, cause: NativeError): QuantizeError {
    const place = `rows ${piece.row} to ${piece.row + piece.rows - 1}`;
    return new QuantizeError(
      "quantize.encode",
      `Cannot quantize tensor "${t.name}" to ${t.type.name}, ${place}: ${cause.message}`,
      {
        at: { tensor: t.name, type: t.type.name, row: piece.row, rows: piece.rows },
        hint: "its values are too large for the 16-bit scales of the type: keep it with --tensor-type NAME=bf16 or f32",
        cause,
      },
    );
  }
}

function elementOf(type: GgmlType, src: Uint8Array, i: number): Uint8Array {
  return src.slice(i * type.bytes, (i + 1) * type.bytes);
}

function sizeIfThere(path: string): number {
  try {
    return Deno.statSync(path).size;
  } catch {
    return 0;
  }
}

function removeIfThere(path: string): void {
  try {
    Deno.removeSync(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}
