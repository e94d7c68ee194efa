/**
 * Converts tensors of a checkpoint whose other files are still arriving. The place of a tensor in the output depends on all shapes,
 * and the last one is known only when the last header arrives. So early tensors go to a spool beside the output, and are
 * copied to their places at the end. A tensor in the spool is used only where the final plan asks for the same tensor from files
 * that have not changed since, so the output's bytes are always those of an ordinary run.
 * @module
 */
import { tensorBytes } from "../../core/gguf/layout.ts";
import { FormatError } from "../../core/errors.ts";
import { unwritable, writeAll } from "../../core/gguf/write.ts";
import { Checkpoint, openCheckpoint } from "../../core/safetensors/read.ts";
import { isInterruption } from "../journal.ts";
import { removeIfThere, replaceText } from "../output_files.ts";
import { release } from "./dtype.ts";
import { Arrivals, type Look, type Stamp, stampOf } from "./follow.ts";
import { guessOuttype } from "./outtype.ts";
import type { PrepareFileOptions } from "./file_options.ts";
import { type Arrived, type PreparedTensor, type PreparedTensors, preparedTensors } from "./source.ts";
import { orderedTensors } from "./sources.ts";

/** A tensor in the spool. */
interface Spooled {
  /** What it is and what it was made from. */
  readonly key: string;
  readonly offset: number;
  /** Where the next one begins. */
  readonly end: number;
  readonly stamps: Stamps;
}

/** Files that a tensor may have been made from, as they were before any was read. */
type Stamps = Readonly<Record<string, Stamp>>;

function spoolPath(out: string): string {
  return out + ".arrived";
}

const listPath = (spool: string) => spool + ".json";

/** Removes the tensors of `out` that were converted ahead. */
export function removeSpool(out: string): void {
  const path = spoolPath(out);
  for (const file of [path, listPath(path)]) removeIfThere(file);
}

const keyOf = (t: PreparedTensor) => JSON.stringify([t.name, t.type.name, t.ne, t.from]);
const bytesOf = (t: PreparedTensor) => tensorBytes({ file: t.from, tensor: t.name }, t.type, t.ne);

/** Tensors of one module: a weight with its scales, packed blocks and bias. */
const moduleOf = (name: string) => name.slice(0, name.lastIndexOf(".") + 1);

/** Converted tensors on the disk, and a list of them that an interrupted run leaves to the next. */
class Spool {
  readonly #entries = new Map<string, Spooled>();
  readonly #file: Deno.FsFile;
  readonly #list: Deno.FsFile;
  #end = 0;

  /**
   * @param run What the bytes depend on besides the checkpoint's files; the spool of another run is discarded.
   * @param resume Keeps what an earlier run has left.
   */
  constructor(readonly path: string, run: string, resume: boolean) {
    if (resume) this.#read(run);
    const list = listPath(path);
    replaceText(list, [{ run }, ...this.#entries.values()].map(lineOf).join(""));
    this.#list = openOr(list, { append: true });
    try {
      this.#file = openOr(path, { read: true, write: true, create: true });
    } catch (error) {
      this.#list.close();
      throw error;
    }
    this.#file.truncateSync(this.#end);
  }

  /** Reads the list up to its first incomplete line; tensors after that are converted again. */
  #read(run: string): void {
    let lines: string[];
    let size: number;
    try {
      lines = Deno.readTextFileSync(listPath(this.path)).split("\n");
      size = Deno.statSync(this.path).size;
    } catch {
      return; // no spool
    }
    if ((parsed(lines[0]) as { run?: unknown } | undefined)?.run !== run) return;
    for (const line of lines.slice(1)) {
      const entry = parsed(line) as Spooled | undefined;
      if (!entry || !(entry.end >= this.#end && entry.end <= size)) return;
      this.#entries.set(entry.key, entry);
      this.#end = entry.end;
    }
  }

  /** The place of a tensor, as long as the files it was made from are the same. */
  find(t: PreparedTensor): number | undefined {
    const entry = this.#entries.get(keyOf(t));
    if (!entry) return undefined;
    const isSame = Object.entries(entry.stamps).every(([path, stamp]) => stampOf(path)?.join() === stamp.join());
    return isSame ? entry.offset : undefined;
  }

  /** Appends a tensor. It enters the list once its bytes are written. */
  async add(t: PreparedTensor, pieces: AsyncIterable<Uint8Array>, stamps: Stamps): Promise<void> {
    const offset = this.#end;
    let at = offset;
    for await (const piece of pieces) {
      this.#file.seekSync(at, Deno.SeekMode.Start);
      writeAll(this.#file, piece, this.path);
      at += piece.length;
      release(piece);
    }
    this.#end = at;
    const entry = { key: keyOf(t), offset, end: at, stamps };
    this.#entries.set(entry.key, entry);
    writeAll(this.#list, new TextEncoder().encode(lineOf(entry)), listPath(this.path));
  }

  readInto(out: Uint8Array, offset: number): void {
    this.#file.seekSync(offset, Deno.SeekMode.Start);
    for (let done = 0; done < out.length;) {
      const n = this.#file.readSync(out.subarray(done));
      if (n === null) {
        throw new FormatError(
          "format.truncated",
          `Cannot read ${this.path}: wants ${out.length} bytes at ${offset}, ${done} are present`,
          {
            at: { file: this.path, offset, wanted: out.length, present: done },
            hint: "leave the file alone, and start again",
          },
        );
      }
      done += n;
    }
  }

  close(): void {
    this.#file.close();
    this.#list.close();
  }
}

const lineOf = (entry: object) => JSON.stringify(entry) + "\n";

function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

function openOr(path: string, options: Deno.OpenOptions): Deno.FsFile {
  try {
    return Deno.openSync(path, options);
  } catch (cause) {
    throw unwritable(path, cause);
  }
}

/** Tensors converted ahead; {@link Early.over} reads them. Hold it with `using`. */
export class Early implements Disposable {
  readonly #spool: Spool;
  readonly #names = new Set<string>();
  #bytes = 0;
  #keep = false;

  private constructor(
    readonly dir: string,
    readonly out: string,
    readonly options: PrepareFileOptions,
    readonly rows: number,
  ) {
    const { outtype, arch, mtp, only, drop, ignore, dequantize, ngramLayout } = options;
    const run = JSON.stringify([dir, outtype, arch, mtp, only, drop, ignore, dequantize, ngramLayout]);
    this.#spool = new Spool(spoolPath(out), run, options.resume ?? false);
  }

  /**
   * Waits for all files of the checkpoint, and converts what arrives in the meantime.
   *
   * @param elements Of one read at most; a read never takes less than one row.
   * @throws what a broken file, tensor or configuration would make `openPrepared` throw, as soon as it is known; the signal's
   * reason.
   */
  static async gather(dir: string, out: string, options: PrepareFileOptions, elements: number): Promise<Early> {
    const folder = dir.endsWith("/") ? dir : dir + "/";
    const arrivals = new Arrivals(folder, options.follow);
    const early = new Early(folder, out, options, elements);
    try {
      for (;;) {
        const look = arrivals.look();
        if (look.isAll) return early;
        if (look.isNews && look.index) await early.#convert(look);
        await arrivals.pause(options.signal); // files that stay the same meanwhile are complete
      }
    } catch (error) {
      if (options.resume && isInterruption(error, options.signal)) early.#keep = true;
      early[Symbol.dispose]();
      throw error;
    }
  }

  /** The whole plan; rows of tensors that are in the spool come from there. */
  over<T extends PreparedTensors>(source: T): T {
    return {
      ...source,
      read: (tensor: PreparedTensor, row: number, rows: number) => {
        const place = this.#spool.find(tensor);
        if (place === undefined) return source.read(tensor, row, rows);
        const rowBytes = bytesOf(tensor) / tensor.n_rows;
        const out = new Uint8Array(rows * rowBytes);
        this.#spool.readInto(out, place + row * rowBytes);
        return Promise.resolve(out);
      },
    };
  }

  /** Keeps the spool for a later run. */
  keep(): void {
    this.#keep = true;
  }

  [Symbol.dispose](): void {
    this.#spool.close();
    if (!this.#keep) removeSpool(this.out);
  }

  /** Converts the tensors that the arrived files make and the spool lacks. */
  async #convert(look: Look): Promise<void> {
    // Stamps come before any read: a file that is replaced while it is read then has another stamp.
    const paths = ["config.json", ...look.ready].map((file) => this.dir + file);
    const stamps = Object.fromEntries(paths.map((path) => [path, stampOf(path) ?? [0, 0] as const]));
    using there = openCheckpoint(this.dir, { files: look.ready });
    const { outtype = "auto" } = this.options;
    const arrived = arrivedPart(there, look, outtype === "auto" || outtype === "keep");
    if (!arrived) return;
    const made = preparedTensors(arrived, this.options);
    for (const tensor of made.tensors) {
      if (this.#spool.find(tensor) !== undefined) continue;
      await this.#spool.add(tensor, this.#pieces(made, tensor), stamps);
      this.#names.add(tensor.name);
      this.#bytes += bytesOf(tensor);
      this.options.onEarly?.({ tensor, n_tensors: this.#names.size, bytes: this.#bytes });
    }
  }

  async *#pieces(made: PreparedTensors, tensor: PreparedTensor): AsyncGenerator<Uint8Array> {
    const step = Math.max(1, Math.floor(this.rows / tensor.ne[0]));
    for (let row = 0; row < tensor.n_rows; row += step) {
      this.options.signal?.throwIfAborted();
      yield await made.read(tensor, row, Math.min(step, tensor.n_rows - row));
      await new Promise((resolve) => setTimeout(resolve, 0)); // a signal can arrive
    }
  }
}

/**
 * The modules of a checkpoint whose tensors have all arrived.
 * @param needsGuess Convert nothing before the checkpoint's main type is known.
 */
function arrivedPart(there: Checkpoint, look: Look, needsGuess: boolean): Arrived | undefined {
  const names = new Set(look.index!.keys());
  const incomplete = new Set<string>();
  for (const name of names) if (!there.tensors.has(name)) incomplete.add(moduleOf(name));
  const whole = [...there.tensors].filter(([name]) => !incomplete.has(moduleOf(name)));
  const files = [...new Set(look.index!.values())].sort();
  // The first matrix in 16 bits decides what `auto` is, so all files before it must be there.
  const missing = files.findIndex((file) => !look.ready.includes(file));
  const first = new Set(files.slice(0, missing < 0 ? files.length : missing).map((file) => there.dir + file));
  const leading = orderedTensors(there).filter((t) => first.has(t.path));
  const isKnown = leading.some((t) => t.shape.length >= 2 && (t.dtype === "BF16" || t.dtype === "F16"));
  if (needsGuess && !isKnown && missing >= 0) return undefined;
  const checkpoint = new Checkpoint(there.dir, there.files, new Map(whole), []);
  return { checkpoint, names, guess: guessOuttype(leading) };
}
