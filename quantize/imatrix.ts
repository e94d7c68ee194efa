/**
 * Importance matrices: for each weight, how strongly each of its input columns was excited when calibration text ran through the
 * model. Read from both formats, merged, filtered, written, described.
 * Source: GGUF specification (imatrix files), llama-quantize 0.7.0 (how counts become weights).
 * @module
 */
import { createHash } from "node:crypto";
import { type ByteSource, decodeLossy, fileSource } from "../core/bytes.ts";
import { FormatError, shortList, UsageError } from "../core/errors.ts";
import { ggufValue, Metadata } from "../core/gguf/metadata.ts";
import { openGguf } from "../core/gguf/read.ts";
import { ggmlType } from "../core/gguf/types.ts";
import { GgufWriter } from "../core/gguf/write.ts";

/** What was gathered for one weight. */
export interface ImatrixSums {
  /** `[n_mat * n_in]` sums of squared inputs; in the old format means times calls. */
  readonly sums: Float32Array;
  /** `[n_mat]` rows (old format: calls) that went into each matrix; experts that were never routed to have 0. */
  readonly counts: Float32Array;
}

/** A file as it is. */
export interface ImatrixFile {
  /** Of the file. */
  readonly path: string;
  /** Which of the two formats it has. */
  readonly format: "gguf" | "dat";
  /** Names of calibration texts. */
  readonly datasets: readonly string[];
  /** Chunks that were run; 0 when not known. */
  readonly n_chunks: number;
  /** Tokens of a chunk; 0 in the old format. */
  readonly chunk_size: number;
  /** By weight name. */
  readonly sums: ReadonlyMap<string, ImatrixSums>;
}

/** Importance ready for encoders: one vector per weight name, experts after one another. */
export interface Imatrix {
  /** As written into the output; the path as given. */
  readonly path: string;
  /** Name of the calibration text. */
  readonly dataset: string | undefined;
  /** Chunks that were run; 0 when not known. */
  readonly n_chunks: number;
  /** By weight name, `[n_mat * n_in]` each. */
  readonly entries: ReadonlyMap<string, Float32Array>;
  /** Matrices of an entry, such as experts, that no row of the calibration went through; only where there are some. */
  readonly unreached?: ReadonlyMap<string, readonly number[]>;
}

function fail(path: string, what: string, at: Record<string, unknown> = {}, hint?: string): FormatError {
  return new FormatError("format.imatrix", `Cannot read importance matrix ${path}: ${what}`, {
    at: { file: path, ...at },
    ...(hint === undefined ? {} : { hint }),
  });
}

/**
 * Reads an importance matrix; a file that is not GGUF is read as the old format.
 * @throws {FormatError} `format.imatrix` naming what is missing or does not fit.
 */
export function readImatrix(path: string): ImatrixFile {
  const source = fileSource(path);
  try {
    const magic = source.size >= 4 ? decodeLossy(source.read(0, 4)) : "";
    return magic === "GGUF" ? readGgufForm(path) : readOldForm(path, source);
  } finally {
    source.close();
  }
}

function readGgufForm(path: string): ImatrixFile {
  using file = openGguf(path);
  const { metadata } = file;
  for (const key of ["imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size"]) {
    if (metadata.has(key)) continue;
    throw fail(path, `key ${key} is missing`, { key }, "give a file that calibration has written, not a model");
  }
  if (file.tensors.length === 0) throw fail(path, "it holds no tensors");
  const floats = (name: string): Float32Array<ArrayBuffer> | undefined => {
    const t = file.find(name);
    if (!t) return undefined;
    if (t.type.name !== "f32") throw fail(path, `tensor "${name}" is ${t.type.name}, expected f32`, { tensor: name });
    const bytes = file.readTensor(t);
    return new Float32Array(bytes.slice().buffer);
  };
  const sums = new Map<string, ImatrixSums>();
  const names = new Set<string>();
  for (const { name, type } of file.tensors) {
    if (type.name !== "f32") throw fail(path, `tensor "${name}" is ${type.name}, expected f32`, { tensor: name });
    const base = /^(.*)\.(in_sum2|counts)$/s.exec(name)?.[1];
    if (base !== undefined) names.add(base);
  }
  for (const name of names) {
    const [squares, counts, plain] = [floats(name + ".in_sum2"), floats(name + ".counts"), file.find(name + ".in_sum")];
    if (!squares || !counts) {
      throw fail(path, `"${name}" has no tensor ${squares ? "counts" : "in_sum2"}`, { entry: name });
    }
    if (squares.length % counts.length !== 0) {
      throw fail(path, `"${name}" has ${squares.length} sums for ${counts.length} matrices`, { entry: name });
    }
    if (plain && plain.bytes !== squares.byteLength) {
      throw fail(path, `"${name}" has ${plain.bytes / 4} sums and ${squares.length} sums of squares`, { entry: name });
    }
    sums.set(name, { sums: squares, counts });
  }
  return {
    path,
    format: "gguf",
    datasets: metadata.strs("imatrix.datasets").toArray(),
    n_chunks: metadata.u32("imatrix.chunk_count"),
    chunk_size: metadata.u32("imatrix.chunk_size"),
    sums,
  };
}

function readOldForm(path: string, source: ByteSource): ImatrixFile {
  let at = 0;
  const take = (n: number, what: string): Uint8Array => {
    if (n > source.size - at) {
      throw fail(path, `it ends in ${what}: ${n} bytes are wanted at ${at}, ${source.size - at} are present`, {
        offset: at,
      });
    }
    const bytes = source.read(at, n);
    at += n;
    return bytes;
  };
  const i32 = (what: string): number => {
    const b = take(4, what);
    return new DataView(b.buffer, b.byteOffset, 4).getInt32(0, true);
  };
  const text = (what: string): string => {
    const n = i32(`the length of ${what}`);
    if (n < 0 || n > source.size) throw fail(path, `${what} has a length of ${n}`, { offset: at });
    return decodeLossy(take(n, what));
  };
  const n_entries = i32("the number of entries");
  if (n_entries < 1) throw fail(path, `it is no GGUF file and has ${n_entries} entries, expected at least 1`);
  const sums = new Map<string, ImatrixSums>();
  for (let i = 0; i < n_entries; i++) {
    const name = text(`the name of entry ${i}`);
    const calls = i32(`the calls of "${name}"`);
    const n = i32(`the size of "${name}"`);
    if (n < 1) throw fail(path, `"${name}" has ${n} values, expected at least 1`, { entry: name });
    const bytes = take(4 * n, `the values of "${name}"`);
    sums.set(name, { sums: new Float32Array(bytes.slice().buffer), counts: Float32Array.of(calls) });
  }
  let n_chunks = 0;
  const datasets: string[] = [];
  if (source.size > at) {
    n_chunks = i32("the number of chunks");
    if (source.size > at) datasets.push(text("the name of the text"));
  }
  return { path, format: "dat", datasets, n_chunks, chunk_size: 0, sums };
}

/** Nearest whole number, halves away from zero. */
function roundAway(x: number): number {
  return Math.sign(x) * Math.round(Math.abs(x));
}

/** `[n_mat * n_in]` weights of one entry: sums over counts; 1 where a matrix was never used. */
export function importanceOf({ sums, counts }: ImatrixSums, format: ImatrixFile["format"]): Float32Array {
  const out = new Float32Array(sums.length);
  const n_in = sums.length / counts.length;
  for (let m = 0; m < counts.length; m++) {
    const count = Math.fround(roundAway(counts[m]));
    for (let i = m * n_in; i < (m + 1) * n_in; i++) {
      out[i] = count > 0 ? sums[i] / count : format === "gguf" ? 1 : sums[i];
    }
  }
  return out;
}

/** Which entries to use. */
export interface ImatrixFilter {
  /** Keep only entries whose name contains one of these. */
  readonly include?: readonly string[];
  /** Drop entries whose name contains one of these. */
  readonly exclude?: readonly string[];
}

/**
 * Weights for encoders, filtered and checked.
 * @throws {UsageError} `usage.weights` when both filters are given.
 * @throws {FormatError} `format.imatrix` for a value that is NaN or infinite, with every entry that has one.
 */
export function useImatrix(file: ImatrixFile, filter: ImatrixFilter = {}): Imatrix {
  const { include = [], exclude = [] } = filter;
  if (include.length > 0 && exclude.length > 0) {
    throw new UsageError("usage.weights", "Cannot both include and exclude weights of the importance matrix", {
      hint: "give one of --include-weights and --exclude-weights",
    });
  }
  const entries = new Map<string, Float32Array>();
  const unreached = new Map<string, number[]>();
  const bad: string[] = [];
  for (const [name, sums] of file.sums) {
    if (exclude.some((s) => name.includes(s))) continue;
    if (include.length > 0 && !include.some((s) => name.includes(s))) continue;
    const values = importanceOf(sums, file.format);
    const at = values.findIndex((v) => !Number.isFinite(v));
    if (at >= 0) bad.push(`"${name}" is ${values[at]} at ${at}`);
    entries.set(name, values);
    // The old format has one count for all matrices of an entry, and zeros where nothing was gathered.
    const never = file.format === "gguf" ? [...sums.counts.keys()].filter((m) => roundAway(sums.counts[m]) === 0) : [];
    if (never.length > 0) unreached.set(name, never);
  }
  if (bad.length > 0) throw fail(file.path, shortList(bad, "; "), { entries: bad });
  return { path: file.path, dataset: file.datasets[0], n_chunks: file.n_chunks, entries, unreached };
}

/** What weights are, whatever their file is called: a hash of all of them. */
export function imatrixKey({ entries }: Pick<Imatrix, "entries">): string {
  const hash = createHash("sha256");
  for (const name of [...entries.keys()].sort()) {
    const { buffer, byteOffset, byteLength } = entries.get(name)!;
    hash.update(JSON.stringify([name, byteLength])).update(new Uint8Array(buffer, byteOffset, byteLength));
  }
  return hash.digest("hex");
}

/**
 * A file of the old format as if rows had been counted: each matrix of an entry got `chunk_size` rows a call.
 * @param n_mat Matrices of an entry, which the old format does not say.
 */
function inRows(file: ImatrixFile, chunk_size: number, n_mat: (name: string, n: number) => number): ImatrixFile {
  const sums = new Map([...file.sums].map(([name, { sums, counts: [calls] }]) => [name, {
    sums: sums.map((v) => v * chunk_size),
    counts: new Float32Array(n_mat(name, sums.length)).fill(calls * chunk_size),
  }]));
  return { ...file, format: "gguf", chunk_size, sums };
}

/** Files in one format: where there are both, the old ones in rows. */
function inOneFormat(files: readonly ImatrixFile[]): readonly ImatrixFile[] {
  const gguf = files.filter((f) => f.format === "gguf");
  if (gguf.length === 0 || gguf.length === files.length) return files;
  const { chunk_size, path } = gguf[0];
  if (chunk_size < 1) {
    throw fail(path, `its chunk_size is ${chunk_size}: the calls of an old file are not known in rows`);
  }
  const n_mat = (name: string, n: number) => {
    const known = gguf.map((f) => f.sums.get(name)).find((s) => s !== undefined);
    return known?.sums.length === n ? known.counts.length : 1;
  };
  return files.map((f) => f.format === "gguf" ? f : inRows(f, chunk_size, n_mat));
}

/**
 * Adds what several files gathered: sums and counts of each weight. Of both formats together it makes the new one: a call of the old is
 * then as many rows of every matrix as a chunk of the first new file has tokens.
 * @throws {FormatError} `format.imatrix` when shapes differ, with every entry that does not fit.
 */
export function mergeImatrices(all: readonly ImatrixFile[], path: string): ImatrixFile {
  const files = inOneFormat(all), [first] = files;
  const problems: string[] = [];
  const added = new Map<string, { sums: Float64Array; counts: Float64Array }>();
  for (const file of files) {
    for (const [name, entry] of file.sums) {
      const known = added.get(name);
      if (!known) {
        added.set(name, { sums: Float64Array.from(entry.sums), counts: Float64Array.from(entry.counts) });
      } else if (known.sums.length !== entry.sums.length || known.counts.length !== entry.counts.length) {
        problems.push(
          `"${name}" has ${entry.sums.length} values of ${entry.counts.length} matrices in ${file.path}, ` +
            `expected ${known.sums.length} of ${known.counts.length}`,
        );
      } else {
        entry.sums.forEach((v, i) => known.sums[i] += v);
        entry.counts.forEach((v, i) => known.counts[i] += v);
      }
    }
  }
  if (problems.length > 0) throw fail(first.path, shortList(problems, "; "), { entries: problems });
  return {
    path,
    format: first.format,
    datasets: [...new Set(files.flatMap((f) => f.datasets))],
    n_chunks: files.reduce((n, f) => n + f.n_chunks, 0),
    chunk_size: first.chunk_size,
    sums: new Map([...added].map(([name, s]) => [name, {
      sums: Float32Array.from(s.sums),
      counts: Float32Array.from(s.counts),
    }])),
  };
}

/** Writes a file in the format it has. */
export function writeImatrix(file: ImatrixFile, path: string): void {
  if (file.format === "dat") writeOldForm(file, path);
  else writeGgufForm(file, path);
}

/** Entries in name order, sums before counts. */
function writeGgufForm(file: ImatrixFile, path: string): void {
  const metadata = new Metadata(path)
    .set("general.type", ggufValue.str("imatrix"))
    .set("imatrix.datasets", ggufValue.strs(file.datasets))
    .set("imatrix.chunk_count", ggufValue.u32(file.n_chunks))
    .set("imatrix.chunk_size", ggufValue.u32(file.chunk_size));
  const f32 = ggmlType("f32");
  const entries = [...file.sums].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  const parts = entries.flatMap(([name, { sums, counts }]) => {
    const n_in = sums.length / counts.length;
    return [
      { name: `${name}.in_sum2`, type: f32, ne: [n_in, counts.length], data: sums },
      { name: `${name}.counts`, type: f32, ne: [1, counts.length], data: counts },
    ];
  });
  using writer = GgufWriter.create({ path, metadata, tensors: parts });
  for (const [i, { data }] of parts.entries()) {
    writer.writeTensor(i, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  }
  writer.finish();
}

/** Entries in name order: calls, and means times calls. The file takes its name when it is whole. */
function writeOldForm(file: ImatrixFile, path: string): void {
  const parts: Uint8Array[] = [];
  const i32 = (n: number) => parts.push(new Uint8Array(Int32Array.of(n).buffer));
  const text = (s: string) => {
    const bytes = new TextEncoder().encode(s);
    i32(bytes.length);
    parts.push(bytes);
  };
  const entries = [...file.sums].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  i32(entries.length);
  for (const [name, { sums, counts }] of entries) {
    text(name);
    i32(counts[0]);
    i32(sums.length);
    parts.push(new Uint8Array(sums.buffer, sums.byteOffset, sums.byteLength));
  }
  i32(file.n_chunks);
  text(file.datasets[0] ?? "");
  const whole = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) {
    whole.set(p, at);
    at += p.length;
  }
  Deno.writeFileSync(`${path}.partial`, whole);
  Deno.renameSync(`${path}.partial`, path);
}

/**
 * A file in the other format. The old one counts calls: as many as the matrix with the most rows had chunks, rounded up. A matrix that no
 * row reached has the weight 1 in both.
 * @throws {FormatError} `format.imatrix` where an old file would need to know its chunks' tokens
 */
export function convertImatrix(file: ImatrixFile, format: ImatrixFile["format"]): ImatrixFile {
  if (file.format === format) return file;
  if (format === "gguf") {
    throw fail(file.path, "the old format does not say how many rows a call had", {}, "merge it with a GGUF matrix");
  }
  if (file.chunk_size < 1) throw fail(file.path, `its chunk_size is ${file.chunk_size}, expected at least 1`);
  const sums = new Map([...file.sums].map(([name, { sums, counts }]) => {
    const calls = Math.ceil(Math.max(...counts) / file.chunk_size), n_in = sums.length / counts.length;
    const values = sums.map((v, i) => {
      const rows = counts[Math.floor(i / n_in)];
      return Math.fround(rows === 0 ? 1 : v / rows) * calls;
    });
    return [name, { sums: values, counts: Float32Array.of(calls) }];
  }));
  return { ...file, format, chunk_size: 0, sums };
}

/** Figures of one entry, over all of its matrices. */
export interface ImatrixStatistics {
  readonly name: string;
  readonly n_in: number;
  readonly n_mat: number;
  /** Matrices that the calibration never reached. */
  readonly n_unreached: number;
  /** Fewest and most rows of a matrix. */
  readonly min_count: number;
  readonly max_count: number;
  /** Sum of the weights: the mean squared length of an input row. */
  readonly sum: number;
  readonly min: number;
  readonly max: number;
  readonly mean: number;
  /** Standard deviation of the weights. */
  readonly deviation: number;
  /** Percent of weights at 1e-5 of the largest or more. */
  readonly active_percent: number;
  /** Entropy of the weights as a distribution, in bits; its largest value is log2 of their number. */
  readonly entropy: number;
}

/** Statistics of every entry, in file order. */
export function imatrixStatistics(file: ImatrixFile): ImatrixStatistics[] {
  return [...file.sums].map(([name, entry]) => {
    const w = importanceOf(entry, file.format);
    const n = w.length;
    let sum = 0, squares = 0, min = Infinity, max = -Infinity;
    for (const v of w) {
      sum += v;
      squares += v * v;
      min = Math.min(min, v);
      max = Math.max(max, v);
    }
    const mean = sum / n;
    let entropy = 0, active = 0;
    for (const v of w) {
      if (v > 0 && sum > 0) entropy -= (v / sum) * Math.log2(v / sum);
      if (v >= 1e-5 * max && v > 0) active++;
    }
    return {
      name,
      n_in: n / entry.counts.length,
      n_mat: entry.counts.length,
      n_unreached: entry.counts.filter((n) => roundAway(n) === 0).length,
      min_count: Math.min(...entry.counts),
      max_count: Math.max(...entry.counts),
      sum,
      min,
      max,
      mean,
      deviation: Math.sqrt(Math.max(0, squares / n - mean * mean)),
      active_percent: 100 * active / n,
      entropy,
    };
  });
}
