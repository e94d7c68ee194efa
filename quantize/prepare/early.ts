/**
 * Converts tensors of a checkpoint whose other files are still arriving. The place of a tensor in the output depends on the
 * shapes of all, which only the last header tells; so early tensors go to a spool beside the output, and are copied to their
 * places when all is there. What the spool holds is used only where the whole plan asks for the very same tensor from files
 * that have not changed since: the bytes are those of an ordinary run in any case.
 * @module
 */
import { tensorBytes } from "../../core/gguf/layout.ts";
import { type ByteSource, fileSource } from "../../core/bytes.ts";
import { FormatError } from "../../core/errors.ts";
import { Checkpoint, openCheckpoint } from "../../core/safetensors/read.ts";
import { removeIfThere } from "../output_files.ts";
import { release } from "./dtype.ts";
import { Arrivals, type Look, type Stamp, stampOf } from "./follow.ts";
import { guessOuttype } from "./outtype.ts";
import type { PrepareFileOptions } from "./prepare.ts";
import { type Arrived, type PreparedTensor, type PreparedTensors, preparedTensors } from "./source.ts";
import { orderedTensors } from "./sources.ts";

/** A tensor in the spool. */
interface Spooled {
  /** What it is and what it was made from. */
  readonly key: string;
  readonly offset: number;
  /** Files that were read for it, as they were then. */
  readonly stamps: Readonly<Record<string, Stamp>>;
}

export function spoolPath(out: string): string {
  return out + ".arrived";
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
   * @param run What the bytes depend on besides the checkpoint's files; a spool of another run is begun anew.
   * @param resume Keeps what an earlier run has left.
   */
  constructor(readonly path: string, run: string, resume: boolean) {
    if (resume) this.#read(run);
    try {
      this.#file = Deno.openSync(path, { read: true, write: true, create: true });
      this.#file.truncateSync(this.#end);
      this.#list = Deno.openSync(path + ".json", { write: true, create: true, truncate: true });
    } catch (cause) {
      throw new FormatError("format.unwritable", `Cannot write ${path}: ${(cause as Error).message}`, {
        at: { file: path },
        cause,
      });
    }
    this.#append({ run });
    for (const entry of this.#entries.values()) this.#append(entry);
  }

  #read(run: string): void {
    let lines: string[];
    try {
      lines = Deno.readTextFileSync(this.path + ".json").trimEnd().split("\n");
      if (JSON.parse(lines[0]).run !== run) return;
      for (const line of lines.slice(1)) {
        const entry = JSON.parse(line) as Spooled & { end: number };
        this.#entries.set(entry.key, entry);
        this.#end = entry.end;
      }
      if (Deno.statSync(this.path).size >= this.#end) return;
    } catch {
      // no spool, or one that was cut short: all of it can be made again
    }
    this.#entries.clear();
    this.#end = 0;
  }

  #append(line: object): void {
    this.#list.writeSync(new TextEncoder().encode(JSON.stringify(line) + "\n"));
  }

  /** The place of a tensor, as long as the files it was made from are the same. */
  find(t: PreparedTensor): number | undefined {
    const entry = this.#entries.get(keyOf(t));
    if (!entry) return undefined;
    const isSame = Object.entries(entry.stamps).every(([path, stamp]) => stampOf(path)?.join() === stamp.join());
    return isSame ? entry.offset : undefined;
  }

  /** Appends a tensor. The list tells of it once its bytes are there. */
  async add(t: PreparedTensor, pieces: AsyncIterable<Uint8Array>, used: () => Iterable<string>): Promise<void> {
    const offset = this.#end;
    let at = offset;
    for await (const piece of pieces) {
      this.#file.seekSync(at, Deno.SeekMode.Start);
      for (let done = 0; done < piece.length;) {
        try {
          done += this.#file.writeSync(piece.subarray(done));
        } catch (cause) {
          throw new FormatError("format.unwritable", `Cannot write ${this.path}: ${(cause as Error).message}`, {
            at: { file: this.path },
            hint: "is the disk full?",
            cause,
          });
        }
      }
      at += piece.length;
      release(piece);
    }
    this.#end = at;
    const stamps: Record<string, Stamp> = {};
    for (const path of used()) stamps[path] = stampOf(path) ?? [0, 0];
    const entry = { key: keyOf(t), offset, stamps, end: at };
    this.#entries.set(entry.key, entry);
    this.#append(entry);
  }

  readInto(out: Uint8Array, offset: number): void {
    this.#file.seekSync(offset, Deno.SeekMode.Start);
    for (let done = 0; done < out.length;) {
      const n = this.#file.readSync(out.subarray(done));
      if (n === null) throw new Error(`${this.path} is shorter than it was`);
      done += n;
    }
  }

  close(): void {
    this.#file.close();
    this.#list.close();
  }

  remove(): void {
    for (const path of [this.path, this.path + ".json"]) removeIfThere(path);
  }
}

/** A tensor that was converted while other files were still to come. */
export interface EarlyProgress {
  readonly tensor: PreparedTensor;
  /** Tensors converted so far, and their bytes. */
  readonly n_tensors: number;
  readonly bytes: number;
}

/** Work done ahead, for {@link Early.over} to take from. Hold it with `using`. */
export class Early implements Disposable {
  readonly #spool: Spool;
  readonly #names = new Set<string>();
  #bytes = 0;
  #keep = false;

  private constructor(readonly dir: string, out: string, readonly options: PrepareFileOptions, readonly rows: number) {
    const { outtype, arch, mtp, only, drop, ignore } = options;
    const run = JSON.stringify([dir, outtype, arch, mtp, only, drop, ignore]);
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
        else await arrivals.pause(options.signal);
      }
    } catch (error) {
      if (options.resume && options.signal?.aborted) early.#keep = true;
      early[Symbol.dispose]();
      throw error;
    }
  }

  /** The whole plan, with the rows of tensors that are there already taken from the spool. */
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
    if (!this.#keep) this.#spool.remove();
  }

  /** Converts what the arrived files make and is not in the spool. */
  async #convert(look: Look): Promise<void> {
    const used = new Set<string>();
    const open = (path: string): ByteSource => {
      const file = fileSource(path);
      return { ...file, read: (offset, length) => (used.add(path), file.read(offset, length)) };
    };
    using there = openCheckpoint(this.dir, { files: look.ready, open });
    const { outtype = "auto" } = this.options;
    const arrived = arrivedPart(there, look, outtype === "auto" || outtype === "keep");
    if (!arrived) return;
    const made = preparedTensors(arrived, this.options);
    for (const tensor of made.tensors) {
      if (this.#spool.find(tensor) !== undefined) continue;
      used.clear();
      used.add(this.dir + "config.json");
      await this.#spool.add(tensor, this.#pieces(made, tensor), () => used);
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
 * The part of a checkpoint that stands by itself: modules of which every tensor is there.
 * @param needsGuess Nothing stands by itself before the checkpoint's main type is known.
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
