/**
 * A Hugging Face folder: its safetensors files as one set of tensors, and its JSON files. All that is wrong with the files
 * is reported at once, before any tensor is used.
 * @module
 */
import { type ByteSource, decodeUtf8 } from "../bytes.ts";
import { FormatError, problemList, shortList } from "../errors.ts";
import { osReason } from "../os_error.ts";
import { openSafetensors, type SafetensorsFile, type SafetensorsTensor } from "./file.ts";

/** Indexes by the layouts that a release may come in: the hub's, and Mistral's own. The first that is there counts. */
const INDEXES = ["model.safetensors.index.json", "consolidated.safetensors.index.json"];
const SHARD = /^(.*?)-?(\d{5})-of-(\d{5})\.safetensors$/;
/** Largest JSON or text file that is read whole. */
const MAX_TEXT = 256 * 1024 * 1024;

/** An opened checkpoint folder. Close it, or hold it with `using`. */
export class Checkpoint implements Disposable {
  readonly #byPath: Map<string, SafetensorsFile>;

  /** @internal use {@link openCheckpoint} */
  constructor(
    /** Its folder, with a trailing slash. */
    readonly dir: string,
    readonly files: readonly SafetensorsFile[],
    /** By name; files in their order, tensors in the order of their data. */
    readonly tensors: ReadonlyMap<string, SafetensorsTensor>,
    /** Warnings about the files, each a sentence for the user. */
    readonly warnings: readonly string[],
  ) {
    this.#byPath = new Map(files.map((f) => [f.path, f]));
  }

  /**
   * A tensor by name.
   * @throws {FormatError} `format.missing_tensor`
   */
  tensor(name: string): SafetensorsTensor {
    const t = this.tensors.get(name);
    if (t) return t;
    throw new FormatError("format.missing_tensor", `Cannot find tensor "${name}" in ${this.dir}`, {
      at: { file: this.dir, tensor: name },
    });
  }

  /** All bytes of a tensor, or `length` from `start` on. Not to be written to. */
  readTensor(t: SafetensorsTensor, start?: number, length?: number): Uint8Array {
    return this.#byPath.get(t.path)!.readTensor(t, start, length);
  }

  /** Whether the folder has this file. */
  has(file: string): boolean {
    return isFile(this.dir + file);
  }

  /** A text file of the folder, or undefined when there is none. */
  text(file: string): string | undefined {
    return readText(this.dir + file);
  }

  /**
   * A JSON file of the folder, or undefined when there is none.
   * @throws {FormatError} `format.bad_json`
   */
  json(file: string): unknown {
    return readJson(this.dir + file);
  }

  /** Closes the files. */
  close(): void {
    for (const f of this.files) f.close();
  }
  /** The same as `close`. */
  [Symbol.dispose](): void {
    this.close();
  }
}

function isFile(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}

function readText(path: string): string | undefined {
  let size: number;
  try {
    size = Deno.statSync(path).size;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
  if (size > MAX_TEXT) {
    throw new FormatError("format.limit", `Cannot read ${path}: it has ${size} bytes, expected at most ${MAX_TEXT}`, {
      at: { file: path, got: size, limit: MAX_TEXT },
    });
  }
  const text = decodeUtf8(Deno.readFileSync(path));
  if (text === undefined) {
    throw new FormatError("format.bad_text", `Cannot read ${path}: it is not valid UTF-8`, { at: { file: path } });
  }
  return text;
}

function readJson(path: string): unknown {
  const text = readText(path);
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new FormatError("format.bad_json", `Cannot read ${path}: ${(cause as Error).message}`, {
      at: { file: path },
      cause,
    });
  }
}

/**
 * Tensor names to file names, as an index has them.
 * @param path Of the index, for messages.
 * @throws {FormatError} `format.bad_index`
 */
export function weightMap(path: string, index: unknown): Map<string, string> {
  const map = (index as { weight_map?: unknown } | null)?.weight_map;
  if (typeof map !== "object" || map === null || Array.isArray(map)) {
    throw new FormatError("format.bad_index", `Cannot read ${path}: it has no object "weight_map"`, {
      at: { file: path },
    });
  }
  const entries = Object.entries(map);
  for (const [tensor, file] of entries) {
    // A file name comes from outside and must not lead out of the folder.
    if (typeof file === "string" && /^[^/\\\0]+\.safetensors$/.test(file)) continue;
    throw new FormatError(
      "format.bad_index",
      `Cannot read ${path}: tensor "${tensor}" is in ${JSON.stringify(file)}, expected a name of a safetensors file`,
      { at: { file: path, tensor, got: file } },
    );
  }
  return new Map(entries as [string, string][]);
}

/** How a folder is opened. */
export interface OpenCheckpointOptions {
  /** How files are opened; by path where left out. */
  open?: (path: string) => string | ByteSource;
  /** Opens only these files, whatever the index names: the other files of the checkpoint have not arrived yet. */
  files?: readonly string[];
  /** Tensors that the index may name though no file has them. */
  mayLack?: (tensor: string) => boolean;
}

/**
 * Opens a folder: the files of its index, or its one file, or its numbered files.
 *
 * @throws {FormatError} `format.checkpoint` with every problem of its files in the message and in `at.problems`;
 * `format.unreadable` when there is no such folder or no checkpoint in it.
 */
export function openCheckpoint(dir: string, options: OpenCheckpointOptions = {}): Checkpoint {
  const folder = dir.endsWith("/") ? dir : dir + "/";
  return new Opener(folder, options).open(options.files);
}

class Opener {
  readonly #problems: string[] = [];
  readonly #warnings: string[] = [];
  readonly #files = new Map<string, SafetensorsFile>();
  /** Name of the index, once there is one. */
  #indexName = INDEXES[0];

  constructor(readonly dir: string, readonly options: OpenCheckpointOptions) {}

  open(only: readonly string[] | undefined): Checkpoint {
    const onDisk = this.#list();
    try {
      const index = only ? undefined : this.#index(onDisk);
      const names = only ?? (index ? this.#indexed(index, onDisk) : this.#unindexed(onDisk));
      const missing = names.filter((n) => !onDisk.includes(n));
      for (const n of names) if (!missing.includes(n)) this.#tryOpen(n);
      if (missing.length > 0) this.#replaceMissing(missing, names, onDisk, index);
      const tensors = this.#tensors();
      // Missing or broken files explain absent tensors; a list of those too would bury the cause.
      if (index && this.#problems.length === 0) this.#compare(index, tensors);
      this.#refuse();
      return new Checkpoint(this.dir, [...this.#files.values()], tensors, this.#warnings);
    } catch (error) {
      for (const f of this.#files.values()) f.close();
      throw error;
    }
  }

  #list(): string[] {
    try {
      return [...Deno.readDirSync(this.dir)].filter((e) => !e.isDirectory && e.name.endsWith(".safetensors"))
        .map((e) => e.name).sort();
    } catch (cause) {
      throw new FormatError(
        "format.unreadable",
        `Cannot open ${this.dir} as a checkpoint: ${osReason(cause)}`,
        {
          at: { file: this.dir },
          cause,
          hint: "give the folder that holds config.json and the safetensors files",
        },
      );
    }
  }

  #refuse(): void {
    if (this.#problems.length === 0) return;
    const list = problemList(this.#problems);
    throw new FormatError("format.checkpoint", `Cannot use the checkpoint ${this.dir}: ${list}`, {
      at: { file: this.dir, problems: this.#problems },
      hint: "fetch the files named here again",
    });
  }

  /** Tensor name to file name, or undefined when there is no index. */
  #index(onDisk: readonly string[]): Map<string, string> | undefined {
    const isHub = onDisk.includes("model.safetensors"); // a single file, which needs no index
    for (const name of isHub ? INDEXES.slice(0, 1) : INDEXES) {
      const json = readJson(this.dir + name);
      if (json === undefined) continue;
      this.#indexName = name;
      return weightMap(this.dir + name, json);
    }
    return undefined;
  }

  /** The files that an index names, except absent files whose tensors may all be absent. */
  #indexed(index: Map<string, string>, onDisk: readonly string[]): string[] {
    const { mayLack } = this.options;
    const wanted = [...index].filter(([tensor, file]) => !mayLack?.(tensor) || onDisk.includes(file));
    return [...new Set(wanted.map(([, file]) => file))].sort();
  }

  /** The files that make up a checkpoint without an index. */
  #unindexed(onDisk: readonly string[]): string[] {
    if (onDisk.includes("model.safetensors")) return ["model.safetensors"];
    const numbered = onDisk.map((n) => SHARD.exec(n)).filter((m) => m !== null);
    const first = numbered.find((m) => m[1] === "model") ?? numbered[0];
    if (first) {
      const count = Number(first[3]);
      const join = first[0].startsWith(first[1] + "-") ? "-" : "";
      return Array.from(
        { length: count },
        (_, i) => `${first[1]}${join}${String(i + 1).padStart(5, "0")}-of-${first[3]}.safetensors`,
      );
    }
    if (onDisk.length === 1) return [...onDisk];
    const what = onDisk.length === 0
      ? "it holds no safetensors file"
      : `it holds ${onDisk.length} safetensors files (${shortList(onDisk)}) and no ${this.#indexName}`;
    throw new FormatError("format.unreadable", `Cannot open ${this.dir} as a checkpoint: ${what}`, {
      at: { file: this.dir, files: onDisk },
      hint: "give the folder that holds config.json and the safetensors files",
    });
  }

  #tryOpen(name: string): void {
    if (this.#files.has(name)) return;
    try {
      this.#files.set(name, openSafetensors(this.options.open?.(this.dir + name) ?? this.dir + name));
    } catch (error) {
      if (!(error instanceof FormatError)) throw error;
      this.#problems.push(error.message.replace(/^Cannot (read|open) [^:]*: /, `${name}: `));
    }
  }

  /** Accepts missing files when the other files of the folder hold every tensor that the index names. */
  #replaceMissing(
    missing: readonly string[],
    names: readonly string[],
    onDisk: readonly string[],
    index: Map<string, string> | undefined,
  ): void {
    const others = onDisk.filter((n) => !names.includes(n));
    if (index && others.length > 0) {
      const before = this.#problems.length;
      for (const n of others) this.#tryOpen(n);
      const has = new Set([...this.#files.values()].flatMap((f) => [...f.tensors.keys()]));
      const mayLack = this.options.mayLack;
      if (this.#problems.length === before && [...index.keys()].every((t) => has.has(t) || mayLack?.(t))) {
        this.#warnings.push(
          `${this.#indexName} is stale: it names ${names.length} files of which ${missing.length} are not there, but the ` +
            `${this.#files.size} files present hold all ${index.size} tensors; using them`,
        );
        return;
      }
      for (const n of others) {
        this.#files.get(n)?.close();
        this.#files.delete(n);
      }
      this.#problems.length = before;
    }
    const stale = others.length > 0
      ? `; ${this.#indexName} does not name ${others.length} other files that are there`
      : "";
    for (const n of missing) this.#problems.push(`${n} is missing`);
    if (stale) this.#problems.push(`the folder has ${onDisk.length} of the ${names.length} files wanted${stale}`);
  }

  #tensors(): Map<string, SafetensorsTensor> {
    const tensors = new Map<string, SafetensorsTensor>();
    for (const [name, file] of this.#files) {
      for (const [key, t] of file.tensors) {
        const other = tensors.get(key);
        if (other) this.#problems.push(`tensor "${key}" is in ${other.path.slice(this.dir.length)} and in ${name}`);
        else tensors.set(key, t);
      }
    }
    return tensors;
  }

  #compare(index: Map<string, string>, tensors: Map<string, SafetensorsTensor>): void {
    let moved = 0;
    for (const [name, file] of index) {
      const t = tensors.get(name);
      if (!t && this.options.mayLack?.(name)) continue;
      if (!t) {
        this.#problems.push(
          `tensor "${name}" is not in ${file}, where ${this.#indexName} has it, nor in any other file`,
        );
      } else if (t.path !== this.dir + file) moved++;
    }
    if (moved > 0 && this.#warnings.length === 0) {
      this.#warnings.push(`${this.#indexName} is stale: ${moved} tensors are in other files than it says; using them`);
    }
    const extra = [...tensors.keys()].filter((n) => !index.has(n));
    if (extra.length > 0) {
      this.#warnings.push(
        `${extra.length} tensors are in the files and not in ${this.#indexName}, the first is "${extra[0]}"`,
      );
    }
  }
}
