/**
 * The journal of a run that writes GGUF files: which run it is, and which tensors are safely on the disk. It
 * lies beside the partial output and is removed with it.
 * @module
 */
import { createHash } from "node:crypto";
import { FormatError, QuantizeError } from "../core/errors.ts";
import { partialPath, unwritable } from "../core/gguf/write.ts";
import { removeIfThere, replaceText } from "./output_files.ts";
import type { PlanOptions, SourceTensor } from "./plan.ts";
import type { QuantizeSource } from "./quantize_source.ts";

/** Least time between two entries: a lost one costs no more than this much work. */
const INTERVAL_MS = 1000;

interface Entry {
  readonly schema: "bloomery.quantize_journal.v1";
  /** Digest of everything the output's bytes depend on. */
  readonly run: string;
  /** Tensors that are whole, by part of the output. */
  readonly written: number[];
}

/** Whether a later run can resume after this error: the user stopped the run, or the disk was full. */
export function isInterruption(error: unknown, signal: AbortSignal | undefined): boolean {
  return (signal?.aborted === true && error === signal.reason) ||
    (error instanceof FormatError && error.code === "format.unwritable");
}

/** The error for a run that leaves its partial files: what stopped it, and how to resume. */
export function withResumeHint(error: unknown): unknown {
  if (!(error instanceof FormatError)) return error;
  return new FormatError(error.code, error.message, {
    at: error.at,
    hint: "free some space, then run the same command with --resume to continue",
    cause: error,
  });
}

export class Journal {
  readonly #path: string;
  readonly #output: string;
  readonly #run: string;
  readonly #written: number[];
  readonly #partials: readonly string[];
  #last = performance.now();
  #isThere = false;

  /**
   * @param outputs Paths of the parts.
   * @param headers Of every part; they tell settings, names and types.
   * @param from What each tensor is made from, where the headers do not tell.
   */
  constructor(
    outputs: readonly string[],
    headers: readonly Uint8Array[],
    source: Pick<QuantizeSource, "name" | "paths">,
    options: Pick<PlanOptions, "imatrix">,
    from: readonly Pick<SourceTensor, "name" | "type">[],
  ) {
    const output = this.#output = outputs[0];
    this.#path = partialPath(output) + ".json";
    this.#partials = outputs.map(partialPath);
    this.#written = headers.map(() => 0);
    const hash = createHash("sha256");
    for (const header of headers) hash.update(header);
    for (const path of source.paths) {
      const { size, mtime } = Deno.statSync(path);
      hash.update(JSON.stringify([path, size, mtime?.getTime()]));
    }
    hash.update(source.name);
    for (const { name, type } of from) hash.update(JSON.stringify([name, type.name]));
    for (const [name, values] of options.imatrix?.entries ?? []) {
      hash.update(name).update(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    }
    this.#run = hash.digest("hex");
  }

  /**
   * Tensors of each part that an earlier run has written; none without a journal.
   * @throws {QuantizeError} `quantize.resume` when it is of another run.
   */
  read(): number[] {
    let text: string;
    try {
      text = Deno.readTextFileSync(this.#path);
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return this.#written;
      throw error;
    }
    const entry = parseEntry(text);
    if (entry?.run !== this.#run || entry.written.length !== this.#partials.length) {
      throw new QuantizeError(
        "quantize.resume",
        `Cannot resume ${this.#output}: ${this.#path} was written by a run with other settings or another source`,
        { at: { file: this.#path }, hint: "run the command without --resume to start again" },
      );
    }
    this.#isThere = true;
    this.#written.splice(0, Infinity, ...entry.written);
    return [...this.#written];
  }

  /** Notes that `n` tensors of a part are written; reaches the disk now and then. */
  record(part: number, n: number): void {
    this.#written[part] = n;
    if (performance.now() - this.#last < INTERVAL_MS) return;
    this.write(part, n);
  }

  /** An entry of this run is on the disk; without one, partial files are useless. */
  get isThere(): boolean {
    return this.#isThere;
  }

  /** Leaves a part for a later run; the caller reports the error. */
  keep(part: number, writer: { suspend(): number }): void {
    let n: number;
    try {
      n = writer.suspend();
    } catch {
      return this.remove(); // the writer removes the file
    }
    try {
      this.write(part, n);
    } catch {
      // The disk may be too full even for this; the earlier entry stays valid.
    }
  }

  /** Writes the entry to the disk, after the bytes that it counts. */
  write(part: number, n: number): void {
    this.#written[part] = n;
    syncFile(this.#partials[part]);
    const entry: Entry = { schema: "bloomery.quantize_journal.v1", run: this.#run, written: this.#written };
    replaceText(this.#path, JSON.stringify(entry) + "\n");
    this.#isThere = true;
    this.#last = performance.now();
  }

  remove(): void {
    this.#isThere = false;
    removeIfThere(this.#path);
  }
}

/** Everything written to a part so far reaches the disk. */
function syncFile(path: string): void {
  let file: Deno.FsFile;
  try {
    file = Deno.openSync(path, { write: true });
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return;
    throw error;
  }
  try {
    file.syncDataSync();
  } catch (cause) {
    throw unwritable(path, cause);
  } finally {
    file.close();
  }
}

function parseEntry(text: string): Entry | undefined {
  try {
    const v = JSON.parse(text) as Entry;
    const whole = (n: unknown) => Number.isSafeInteger(n) && (n as number) >= 0;
    const ok = v.schema === "bloomery.quantize_journal.v1" && Array.isArray(v.written) && v.written.every(whole);
    return ok ? v : undefined;
  } catch {
    return undefined;
  }
}
