/**
 * What a case of an op is: a small program, where its numbers come from, and what is allowed between float64 and a backend.
 *
 * The rows of a case belong to sequences. Every row has a number of its own, its token id: activations are rows of f32 tables
 * that the program looks up by it (i32 tables for ids), so that the same row gets the same numbers in whatever step it is
 * computed. The row behind the last poisons: its numbers are NaN.
 * @module
 */
import { type GgmlType, ggmlType } from "../../core/gguf/types.ts";
import { type Bucket, Ops, type T } from "../../core/program/program.ts";

export type CacheType = "f32" | "f16" | "q8_0";

/** How large the shapes of the list are. */
export type Size = "test" | "bench";

/** Bounds of the mean squared error that belong to how numbers are kept, not to an op. */
export const NMSE = {
  /** f32 arithmetic with float weights. */
  f32: 1e-11,
  /** e^x and the like are involved, or sums of differences. */
  curve: 1e-10,
  /** Matrices that are quantized: activations are rounded to 14 bits (a card: to f16). */
  quantized: 1e-6,
  /** A q8_0 cache: a number between two codes may become either. */
  q8_0: 1e-6,
} as const;

export interface OpCase {
  readonly name: string;
  /** Rows of each sequence. */
  readonly sequences: readonly number[];
  /** Type of key and value streams; f32 where left out. */
  readonly cache?: CacheType;
  /** The largest normalized mean squared error against float64, of every f32 output. i32 outputs are equal. */
  readonly nmse: number;
  /** Sums up the inputs of its matrices; the sequences' states then are outputs besides those it names. */
  readonly collects?: boolean;
  /** The last rows of each sequence, which alone a benchmark computes; all where left out. */
  readonly timed?: number;
  /** Rows of one step at most; the longest sequence needs several where it is longer. */
  readonly n_tok?: number;
  /** Rows see rows behind them: a sequence is one step. */
  readonly whole?: boolean;
  build(b: CaseBuilder): void;
}

/** Numbers in [0, 1). */
export type Random = () => number;

/** The stream of numbers of a seed and a name. */
export function random(seed: number, name: string): Random {
  let a = seed >>> 0;
  for (let i = 0; i < name.length; i++) a = Math.imul(a ^ name.charCodeAt(i), 0x9E3779B1) >>> 0;
  return () => {
    a = (a + 0x6D2B79F5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), a | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A number of a weight or an activation from its place and the case's numbers. */
export type Fill = (next: Random, i: number) => number;

/** About normal, of standard deviation `scale`, around `mean`. */
export function normal(scale = 1, mean = 0): Fill {
  return (next) => mean + scale * 2 * (next() + next() + next() - 1.5);
}

/** Whole numbers from `lo` to `hi`, whose sums are exact in any order. */
export function whole(lo: number, hi: number): Fill {
  return (next) => lo + Math.floor(next() * (hi - lo + 1));
}

/** One of a few numbers, so that equal ones meet. */
export function oneOf(...values: number[]): Fill {
  return (next) => values[Math.floor(next() * values.length)];
}

/** A table of activations or a weight, as it is before it is encoded. */
export interface Source {
  readonly name: string;
  readonly type: GgmlType;
  readonly ne: readonly number[];
  readonly values: Float32Array | Int32Array;
}

/** Rows of a sequence that are computed: all, or the last ones in a benchmark. */
export function computedRows(c: OpCase, seq: number): number {
  return Math.min(c.sequences[seq], c.timed ?? Infinity);
}

/** Token id of a sequence's first computed row. */
export function firstRow(c: OpCase, seq: number): number {
  let id = 0;
  for (let i = 0; i < seq; i++) id += computedRows(c, i);
  return id;
}

/** Builds the program of a case for one bucket. */
export class CaseBuilder {
  readonly op: Ops;
  /** Names of those that stand for activations. */
  readonly tables = new Set<string>();
  /** Weights of another variant are the same numbers elsewhere: for benchmarks, which have a case's ops several times over. */
  variant = 0;
  readonly #acts = new Map<string, T>();
  /** Rows of all sequences; the id of the row that poisons. */
  readonly n_rows: number;

  /** @param sources Those that are known already, by name; new ones are added. */
  constructor(
    readonly spec: OpCase,
    readonly seed: number,
    bucket: Bucket,
    device = 0,
    readonly sources: Map<string, Source> = new Map(),
  ) {
    this.n_rows = firstRow(spec, spec.sequences.length);
    this.op = new Ops(
      bucket,
      { find: (name) => this.sources.get(name) },
      device,
      spec.collects ? () => true : undefined,
    );
  }

  /** An activation `[...dims, R]`. */
  act(name: string, dims: readonly number[], fill: Fill = normal()): T {
    return this.#table(name, dims, "f32", fill, NaN);
  }

  /** An i32 activation `[...dims, R]` with numbers from `lo` to `hi`. */
  ints(name: string, dims: readonly number[], lo: number, hi: number): T {
    return this.#table(name, dims, "i32", whole(lo, hi), Math.max(lo, 0));
  }

  /** An i32 activation whose row `r` is `row(r)`. */
  rowsOf(name: string, dims: readonly number[], row: (next: Random, r: number) => number[]): T {
    let at: number[] = [], r = 0;
    return this.#table(name, dims, "i32", (next) => (at.length > 0 ? at : at = row(next, r++)).shift()!, 0);
  }

  /** A weight. Large ones in f32 are read by matmuls, the others whole. */
  weight(name: string, ne: readonly number[], options: { type?: string; fill?: Fill } = {}): T {
    const type = ggmlType(options.type ?? "f32");
    const values = this.#source(`${name}.weight`, ne, type, options.fill ?? normal(), count(ne));
    if (this.variant === 0) return this.op.weights()(name, ne);
    const other = `${name}.${this.variant}`;
    this.sources.set(`${other}.weight`, { name: `${other}.weight`, type, ne, values });
    return this.op.weights()(other, ne);
  }

  out(name: string, x: T): void {
    this.op.output(name, x);
  }

  #table(name: string, dims: readonly number[], type: "f32" | "i32", fill: Fill, poison: number): T {
    const known = this.#acts.get(name);
    if (known) return known;
    const n = count(dims), ne = [n, this.n_rows + 1];
    this.tables.add(`${name}.weight`);
    this.#source(`${name}.weight`, ne, ggmlType(type), fill, n * this.n_rows).fill(poison, n * this.n_rows);
    const rows = this.op.get_rows(this.op.weights()(name, ne), this.op.tokens);
    const t = dims.length === 1 ? rows : this.op.view(rows, [...dims, this.op.bucket.n_tok]);
    this.#acts.set(name, t);
    return t;
  }

  #source(name: string, ne: readonly number[], type: GgmlType, fill: Fill, filled: number): Float32Array | Int32Array {
    const known = this.sources.get(name);
    if (known) return known.values;
    const next = random(this.seed, `${this.spec.name} ${name}`);
    const values = type.name === "i32" ? new Int32Array(count(ne)) : new Float32Array(count(ne));
    for (let i = 0; i < filled; i++) values[i] = fill(next, i);
    this.sources.set(name, { name, type, ne, values });
    return values;
  }
}

export function count(ne: readonly number[]): number {
  return ne.reduce((a, b) => a * b, 1);
}
