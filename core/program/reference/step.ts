/**
 * One step of the reference backend: the values of a program's tensors while it runs.
 * @module
 */
import type { StepInput } from "../backend.ts";
import { NONE } from "../ops.ts";
import { INPUT, KIND, type Program } from "../program.ts";
import type { ReferenceCache, ReferenceTensor } from "./storage.ts";

export type Values = Float64Array | Float32Array | Int32Array;

/** Axes before the rows of a value: lengths of axes 0, 1 and 2. */
export type Shape = readonly [number, number, number];

/** Numbers of an activation or a weight, row by row. */
export interface Operand {
  readonly data: Values;
  readonly shape: Shape;
  /** Distance of rows in `data`; 0 for a weight, which is the same for every row. */
  readonly step: number;
}

export class Step {
  readonly #values: (Values | undefined)[] = [];

  constructor(
    readonly program: Program,
    readonly weights: readonly ReferenceTensor[],
    readonly caches: readonly ReferenceCache[],
    readonly input: StepInput,
  ) {}

  /** Rows the step computes of an activation. */
  rows(id: number): number {
    return this.program.tensors[id].rows === "out" ? this.input.outRows.length : this.input.tokens.length;
  }

  shape(id: number): Shape {
    const t = this.program.tensors[id];
    const ne = [...t.ne];
    const laidOut = t.rows === "tok" ? this.program.n_tok : t.rows === "out" ? this.program.n_out : 1;
    // The rows are the last axis that is longer than 1; a bucket of one row has none to take away.
    if (laidOut > 1) ne[ne.findLastIndex((n) => n > 1)] = 1;
    return [ne[0], ne[1], ne[2]];
  }

  /** Numbers of a row. */
  size(id: number): number {
    const [a, b, c] = this.shape(id);
    return a * b * c;
  }

  /** An activation or an input, dense: `[rows, numbers of a row]`. */
  values(id: number): Values {
    return this.#values[id] ??= this.#read(id);
  }

  ints(id: number): Int32Array {
    const v = this.values(id);
    if (!(v instanceof Int32Array)) throw new Error(`tensor ${id} is not i32`);
    return v;
  }

  /** An activation, an input, or a weight read whole. */
  operand(id: number): Operand {
    const t = this.program.tensors[id], shape = this.shape(id);
    if (t.kind === KIND.WEIGHT) return { data: this.weights[t.ref].all, shape, step: 0 };
    return { data: this.values(id), shape, step: shape[0] * shape[1] * shape[2] };
  }

  weight(id: number): ReferenceTensor {
    return this.weights[this.program.tensors[id].ref];
  }

  isWeight(id: number): boolean {
    return this.program.tensors[id].kind === KIND.WEIGHT;
  }

  /** All values of a weight; undefined where the operand is left out. */
  vector(id: number): Float32Array | undefined {
    return id === NONE ? undefined : this.weight(id).all;
  }

  /** A new result, zeros. */
  result(id: number): Float64Array {
    const out = new Float64Array(this.rows(id) * this.size(id));
    this.#values[id] = out;
    return out;
  }

  intResult(id: number): Int32Array {
    const out = new Int32Array(this.rows(id) * this.size(id));
    this.#values[id] = out;
    return out;
  }

  /** The page table of a cache, and where in it a sequence's pages begin. */
  pagesOf(cache: number, seq: number): { pages: Int32Array; at: number } {
    return { pages: this.input.pages[cache], at: seq * this.input.n_page[cache] };
  }

  #read(id: number): Values {
    const t = this.program.tensors[id], i = this.input;
    if (t.kind === KIND.INPUT) {
      if (t.ref >= INPUT.DERIVED) return i.derived[t.ref - INPUT.DERIVED];
      return [i.tokens, i.positions, i.seqs, i.outRows, i.targets][t.ref];
    }
    if (t.kind !== KIND.VIEW) throw new Error(`tensor ${id} is read before it is written`);
    return this.#slice(id);
  }

  /** A view's numbers; the viewed array itself where they are all of it. */
  #slice(id: number): Values {
    const t = this.program.tensors[id];
    const from = this.values(t.ref), whole = this.size(t.ref), n = this.size(id), rows = this.rows(id);
    const [n0, n1, n2] = this.shape(id), [nb1, nb2] = t.nb;
    const dense = (n1 === 1 || nb1 === n0) && (n2 === 1 || nb2 === n0 * n1);
    if (dense && whole === n && t.offset === 0) return from;
    const out = from instanceof Int32Array ? new Int32Array(rows * n) : new Float64Array(rows * n);
    let o = 0;
    for (let r = 0; r < rows; r++) {
      for (let i2 = 0; i2 < n2; i2++) {
        for (let i1 = 0; i1 < n1; i1++) {
          const at = r * whole + t.offset + i1 * nb1 + i2 * nb2;
          for (let i0 = 0; i0 < n0; i0++) out[o++] = from[at + i0];
        }
      }
    }
    return out;
  }
}
