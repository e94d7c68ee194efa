/**
 * Watches a checkpoint that is still being fetched: which of its files are complete. Each is checked as it
 * arrives, so that a broken file is reported at once and not at the end.
 * @module
 */
import { openSafetensors, weightMap } from "../../core/safetensors/read.ts";
import { FormatError, ModelError } from "../../core/errors.ts";
import { osReason } from "../../core/os_error.ts";

const INDEX = "model.safetensors.index.json";
/** Mistral's own layout, which counts where config.json is not there. */
const CONSOLIDATED = "consolidated.safetensors";
const SHARD = /^(.*)-(\d{5})-of-(\d{5})\.safetensors$/;
/** A vocabulary comes in one of these. */
const VOCABULARY = ["tokenizer.json", "tokenizer.model", "spiece.model", "tiktoken.model", "vocab.json"];

/** How a folder is watched. */
export interface FollowOptions {
  /** Milliseconds between looks at the folder; 1000 where left out. */
  interval?: number;
  /** Called for each file that has arrived whole. */
  onArrived?: (file: string, n_arrived: number, n_files: number) => void;
}

/** Size and time of a file: while they stay the same, so do its bytes. */
export type Stamp = readonly [size: number, mtime: number];

/** What one look at the folder saw. */
export interface Look {
  /** Tensor names to file names, once the index is there. */
  readonly index: ReadonlyMap<string, string> | undefined;
  /** Safetensors files that are whole, sorted. */
  readonly ready: readonly string[];
  /** Everything that the checkpoint needs is there. */
  readonly isAll: boolean;
  /** Something arrived since the look before. */
  readonly isNews: boolean;
}

/** The stamp of a file, or undefined when there is none. */
export function stampOf(path: string): Stamp | undefined {
  try {
    const { size, mtime } = Deno.statSync(path);
    return [size, mtime?.getTime() ?? 0];
  } catch {
    return undefined;
  }
}

/** Errors of a file that is still incomplete. */
const UNFINISHED: ReadonlySet<string> = new Set(["format.short_file", "format.truncated"]);
/** An error of a file that changed within this time may still go away. */
const SETTLED_MS = 10_000;
const isRecent = (stamp: Stamp) => Date.now() - stamp[1] < SETTLED_MS;

export class Arrivals {
  readonly #dir: string;
  readonly #arrived = new Set<string>();
  /** Stamps of the previous look: a complete file must also have stopped changing. */
  readonly #before = new Map<string, string>();
  #all = "";

  /** @throws {ModelError} `model.unreadable` when there is no such folder. */
  constructor(folder: string, readonly options: FollowOptions = {}) {
    this.#dir = folder.endsWith("/") ? folder : folder + "/";
    try {
      if (!Deno.statSync(this.#dir).isDirectory) throw new Error("it is not a folder");
    } catch (cause) {
      throw new ModelError("model.unreadable", `Cannot follow ${this.#dir}: ${osReason(cause)}`, {
        at: { file: this.#dir },
        cause,
      });
    }
  }

  /**
   * Looks at the folder.
   * @throws {FormatError} for a file that is damaged, not merely short; `format.bad_index`.
   */
  look(): Look {
    const names = [...Deno.readDirSync(this.#dir)].map((e) => e.name);
    const index = names.includes("config.json") && names.includes(INDEX) ? this.#index() : undefined;
    const wanted = names.includes("config.json")
      ? this.#wanted(names, index)
      : names.includes("params.json") && names.includes(CONSOLIDATED)
      ? [CONSOLIDATED]
      : undefined;
    const before = this.#arrived.size;
    for (const name of wanted ?? []) {
      if (this.#arrived.has(name) || !this.#isReady(this.#dir + name)) continue;
      this.#arrived.add(name);
      this.options.onArrived?.(name, this.#arrived.size, wanted!.length);
    }
    const hasVocabulary = VOCABULARY.some((name) => names.includes(name));
    const all = names.sort().map((name) => `${name} ${stampOf(this.#dir + name)}`).join("\n");
    const isAtRest = all === this.#all;
    this.#all = all;
    return {
      index,
      ready: [...this.#arrived].sort(),
      isAll: isAtRest && hasVocabulary && wanted !== undefined && wanted.every((name) => this.#arrived.has(name)),
      isNews: this.#arrived.size > before,
    };
  }

  /** Resolves when it is time to look again. */
  async pause(signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    await new Promise((resolve) => setTimeout(resolve, this.options.interval ?? 1000));
    signal?.throwIfAborted();
  }

  #index(): ReadonlyMap<string, string> | undefined {
    const path = this.#dir + INDEX;
    try {
      return weightMap(path, JSON.parse(Deno.readTextFileSync(path)));
    } catch (cause) {
      const stamp = stampOf(path);
      if (!stamp || isRecent(stamp)) return undefined; // not written to its end
      if (cause instanceof FormatError) throw cause;
      throw new FormatError("format.bad_index", `Cannot read ${path}: ${(cause as Error).message}`, {
        at: { file: path },
        hint: "fetch the file again",
        cause,
      });
    }
  }

  /** The files wanted of the folder; undefined while their number is unknown. */
  #wanted(names: readonly string[], index: ReadonlyMap<string, string> | undefined): string[] | undefined {
    if (index) return [...new Set(index.values())].sort();
    if (names.includes(INDEX)) return undefined;
    if (names.includes("model.safetensors")) return ["model.safetensors"];
    const shard = names.map((n) => SHARD.exec(n)).find((m) => m !== null);
    if (!shard) return undefined;
    return Array.from(
      { length: Number(shard[3]) },
      (_, i) => `${shard[1]}-${String(i + 1).padStart(5, "0")}-of-${shard[3]}.safetensors`,
    );
  }

  /** A file that is still being written is not ready. A file that stopped changing and is broken is an error. */
  #isReady(path: string): boolean {
    const stamp = stampOf(path);
    if (!stamp || stamp[0] === 0) return false;
    if (stampOf(path + ".aria2")) return false; // room is set aside first, and filled in any order
    const text = stamp.join();
    if (this.#before.get(path) !== text) {
      this.#before.set(path, text);
      return false;
    }
    try {
      openSafetensors(path).close();
      return true;
    } catch (error) {
      if (isRecent(stamp) || (error instanceof FormatError && UNFINISHED.has(error.code))) return false;
      throw error;
    }
  }
}
