/**
 * The op program: a forward pass as data. An architecture file calls `Ops` to build one per shape bucket; `encode.ts` turns it
 * into the words of `csrc/bloomery.h`, `reference.ts` runs it as it stands. `csrc/ops.def` says what each op computes.
 *
 * Weights, streams and states are declared where they are used. Building against a file's headers alone therefore finds all
 * of them, with their shapes and uses, and every problem at once (`Ops.problems`): that is how a model is bound.
 *
 * Shapes are fastest first. The last axis of an activation counts rows (R): token rows, or output rows behind `out_rows`. A
 * shape that does not fit is a bug of the architecture file and throws a plain `Error`.
 * @module
 */
import { type GgmlType, ggmlType } from "../gguf/types.ts";
import { adapterFactor, type AdapterShape, adapterTensor } from "./adapter.ts";
import {
  DELTA_RULE,
  type DeltaRule,
  GATE_KIND,
  type GateKind,
  NONE,
  NORM_KIND,
  type NormKind,
  type OpName,
  OPS,
  POOL_KIND,
  type PoolKind,
  ROPE_KIND,
  type RopeKind,
  SCORE_KIND,
  type ScoreKind,
  UNARY_KIND,
  type UnaryKind,
} from "./ops.ts";

/** `bl_tensor_kind` */
export const KIND = { SCRATCH: 0, WEIGHT: 1, INPUT: 2, VIEW: 3 } as const;

/** `bl_input` */
export const INPUT = { TOKENS: 0, POSITIONS: 1, SEQS: 2, OUT_ROWS: 3, TARGETS: 4, DERIVED: 5 } as const;

/** `BL_USE_*`: what a weight is read by. */
export const USE = { MUL_MAT: 1, ROWS: 2, VECTOR: 4, HOST: 8 } as const;

export type Ne = readonly [number, number, number, number];

/** What the last axis of a value counts. */
export type Rows = "tok" | "out" | "none";

export interface TensorDesc {
  readonly kind: number;
  type: GgmlType;
  /** Shape, fastest first. */
  readonly ne: Ne;
  /** Weight index, input number or viewed tensor, by kind. */
  readonly ref: number;
  readonly device: number;
  /** Of a view: the first element in a row of the viewed tensor, and the distance of neighbours along axes 1 to 3. */
  readonly offset: number;
  readonly nb: readonly [number, number, number];
  /** Of a derived i32 input: its values lie in [-1, limit). */
  readonly limit: number;
  readonly rows: Rows;
}

export interface OpDesc {
  readonly op: OpName;
  readonly device: number;
  readonly dst: readonly number[];
  /** Tensor ids; `NONE` where an operand is left out. */
  readonly src: readonly number[];
  /** In the order of the op's table row; f32 parameters as numbers. */
  readonly params: readonly number[];
}

/** A weight a program reads: a tensor of the model file, or a constant computed from its metadata. */
export interface WeightDesc {
  readonly name: string;
  /** Type on the device: that of the file, or f32 when `decode`. */
  type: GgmlType;
  readonly ne: Ne;
  /** `USE` bits over all ops of the program that read it on its device. */
  uses: number;
  /** A weight that several devices read is on each of them. */
  readonly device: number;
  /** The file has another type: it is decoded to f32 when it is loaded, since ops read it whole. */
  decode: boolean;
  /** f32 values when the weight is a constant. */
  readonly constant?: Float32Array;
}

/** Rows of a cache, one for every `ratio` positions. */
export interface StreamDesc {
  readonly name: string;
  /** Which of the cache's types it is kept in; `f32` streams and states always are f32. */
  readonly role: "k" | "v" | "f32";
  /** Elements of a row. */
  readonly ne: number;
  /** Elements of a head, where attention reads rows by heads; a device other than the host reads whole blocks of each. */
  head?: number;
  readonly ratio: number;
}

/** Streams that share pages. */
export interface CacheDesc {
  /** Positions that stay readable behind a sequence's last; 0: all. */
  readonly window: number;
  /** One page a sequence, which holds the state of its recurrent layers. */
  readonly state: boolean;
  readonly streams: StreamDesc[];
  readonly device: number;
  /** Which of the model's caches it is, or a part of: parts on several devices have one numbering of pages. */
  readonly of: number;
}

/** A stream as ops name it. */
export interface Stream extends StreamDesc {
  readonly cache: number;
  readonly stream: number;
  readonly window: number;
}

/** Numbers for each token row that the engine works out from positions and token ids. */
export interface DerivedInput {
  readonly name: string;
  readonly type: "i32" | "f32";
  /** Numbers of a row. */
  readonly n: number;
  /** i32: values lie in [-1, limit). */
  readonly limit: number;
  /**
   * Writes the row of one token to `out[at ..]`.
   * @param token `token(0)` is the row's id, `token(1)` the one before it; -1 before the beginning
   * @param scale How much of an adapter the row's sequence has
   */
  row(
    out: Int32Array | Float32Array,
    at: number,
    position: number,
    token: (back: number) => number,
    scale: (adapter: number) => number,
  ): void;
}

/** The most rows of one step and the longest sequence, for which a program is laid out. */
export interface Bucket {
  readonly n_tok: number;
  readonly n_out: number;
  readonly n_seq: number;
  /** Pages of one sequence. */
  readonly n_page: number;
}

/** Sums of squares of what goes into matrices, which a collecting program keeps in a sequence's state. */
export interface Collected {
  /** Names of the weights that read these inputs. */
  readonly weights: string[];
  /** Columns of a matrix. */
  readonly n_in: number;
  /** Matrices, such as experts, each with its own sums. */
  readonly n_mat: number;
  /** Where the sums are, as op SQUARES describes it. */
  readonly state: Stream;
}

/** A named result that a step can copy to the host. */
export interface OutputDesc {
  readonly name: string;
  readonly tensor: number;
}

export interface Program extends Bucket {
  readonly tensors: readonly TensorDesc[];
  readonly ops: readonly OpDesc[];
  readonly weights: readonly WeightDesc[];
  readonly caches: readonly CacheDesc[];
  readonly derived: readonly DerivedInput[];
  readonly outputs: readonly OutputDesc[];
  /** What a collecting program sums up; empty for others. */
  readonly collected: readonly Collected[];
}

/** What a program asks of a model file: its headers. */
export interface WeightSource {
  find(name: string): { readonly type: GgmlType; readonly ne: readonly number[] } | undefined;
  /** What is added to the rows behind a layer, `[n_embd]`. */
  readonly control?: ReadonlyMap<number, Float32Array>;
  /** Adapters whose tensors are there too, as `adapterTensor` names them. */
  readonly adapters?: readonly AdapterShape[];
}

/** A tensor that the file lacks or has in another shape. */
export interface BindProblem {
  readonly tensor: string;
  /** Undefined when the file has no such tensor. */
  readonly got?: readonly number[];
  readonly expected: readonly number[];
}

/** A value of a program under construction. Comments in architecture files write shapes in the order of `ne`. */
export interface T {
  readonly id: number;
  /** Fastest first; R last, except for weights. */
  readonly ne: readonly number[];
  readonly rows: Rows;
  /** `[n, R]` as `[n / n_head, n_head, R]`. */
  heads(n_head: number): T;
  /** Each row as one vector: `[n, R]`. */
  flat(): T;
  /** `n` numbers from `start` of an axis before R. */
  slice(start: number, n: number, axis?: number): T;
}

/** Rows that attention reads: those visible in `k`, or the selected ones. */
export interface Segment {
  readonly k: Stream;
  /** Left out: the values are the first numbers of each key. */
  readonly v?: Stream;
  /** i32 `[n, R]` from `index`. */
  readonly select?: T;
  /** Rows a selected number stands for. */
  readonly unit?: number;
}

/** Weights of one prefix: `w("attn_q", [n_in, n_out])` is the file's `{prefix}.attn_q.weight`. */
export interface Weights {
  (name: string, ne: readonly number[], options?: { reshape?: boolean }): T;
  /** Undefined when the file has none. */
  opt(name: string, ne: readonly number[], options?: { reshape?: boolean }): T | undefined;
  has(name: string): boolean;
}

const F32 = ggmlType("f32");
const I32 = ggmlType("i32");

function ne4(dims: readonly number[]): Ne {
  return [dims[0] ?? 1, dims[1] ?? 1, dims[2] ?? 1, dims[3] ?? 1];
}

function count(dims: readonly number[]): number {
  return dims.reduce((a, b) => a * b, 1);
}

function sameDims(a: readonly number[], b: readonly number[]): boolean {
  const length = Math.max(a.length, b.length);
  for (let i = 0; i < length; i++) if ((a[i] ?? 1) !== (b[i] ?? 1)) return false;
  return true;
}

/** Builds a program op by op. */
export class Ops {
  readonly tokens: T;
  readonly positions: T;
  readonly seqs: T;
  readonly outRows: T;
  readonly targets: T;
  /** What the file lacks or has in another shape, in the order it was asked for. */
  readonly problems: BindProblem[] = [];
  #tensors: TensorDesc[] = [];
  #ops: OpDesc[] = [];
  #weights: WeightDesc[] = [];
  #weightIds = new Map<string, T>();
  #caches: CacheDesc[] = [];
  #streams = new Map<string, Stream>();
  #derived: DerivedInput[] = [];
  #derivedIds = new Map<string, T>();
  #outputs: OutputDesc[] = [];
  /** What the head takes, and how much there was before it. */
  #head: { x: T; ops: number; tensors: number; weights: number } | undefined;
  #collected = new Map<string, Collected>();
  /** Layers that have said where they end. */
  readonly ended: Set<number> = new Set<number>();

  /**
   * @param device Index of the device that runs the program.
   * @param collects Which weights' inputs are summed up. A program that collects computes every row to the end, as `collect` has to
   * see them all.
   * @param adapters Which of the source's adapters are used; left out: all.
   */
  constructor(
    readonly bucket: Bucket,
    readonly source: WeightSource,
    readonly device = 0,
    readonly collects?: (weight: string) => boolean,
    readonly adapters: readonly number[] = [...source.adapters?.keys() ?? []],
  ) {
    const { n_tok, n_out } = bucket;
    this.tokens = this.#input(I32, [n_tok], INPUT.TOKENS, "tok");
    this.positions = this.#input(I32, [n_tok], INPUT.POSITIONS, "tok");
    this.seqs = this.#input(I32, [n_tok], INPUT.SEQS, "tok");
    this.outRows = this.#input(I32, [n_out], INPUT.OUT_ROWS, "out");
    this.targets = this.#input(I32, [n_out], INPUT.TARGETS, "out");
  }

  // --- weights, streams, states, inputs ---------------------------------------------------------------------------------

  /** Weights whose names start with `prefix.`; no prefix: the file's root. */
  weights(prefix = ""): Weights {
    const full = (name: string) => {
      const path = prefix === "" ? name : `${prefix}.${name}`;
      if (/\.(weight|bias|scale)$/.test(path)) return path;
      // A few tensors (ssm_a) have no suffix.
      return this.source.find(`${path}.weight`) || !this.source.find(path) ? `${path}.weight` : path;
    };
    const w = (name: string, ne: readonly number[], options = {}) => this.#fileWeight(full(name), ne, options, true)!;
    return Object.assign(w, {
      opt: (name: string, ne: readonly number[], options = {}) => this.#fileWeight(full(name), ne, options, false),
      has: (name: string) => this.source.find(full(name)) !== undefined,
    });
  }

  /** An f32 constant worked out from metadata. Asking for the same name again gives the same value. */
  constant(name: string, values: Float32Array, ne: readonly number[] = [values.length]): T {
    return this.#weight(
      { name, type: F32, ne: ne4(ne), uses: 0, device: this.device, decode: false, constant: values },
      ne,
    );
  }

  /** Rows kept for every position (or every `ratio` positions) of a sequence. */
  stream(
    name: string,
    ne: number,
    options: { role: "k" | "v" | "f32"; ratio?: number; window?: number },
  ): Stream {
    const window = options.window ?? 0;
    return this.#stream({ name, role: options.role, ne, ratio: options.ratio ?? 1 }, window, false);
  }

  /** `ne` f32 numbers of a sequence that `conv`, `delta` or a sum of squares carries from row to row. */
  state(name: string, ne: number): Stream {
    return this.#stream({ name, role: "f32", ne, ratio: 1 }, 0, true);
  }

  /** Numbers the engine works out for each token row: `[...dims, n_tok]`. */
  derived(input: Omit<DerivedInput, "n">, dims: readonly number[]): T {
    const known = this.#derivedIds.get(input.name);
    if (known) return known;
    const type = input.type === "i32" ? I32 : F32;
    const t = this.#input(
      type,
      [...dims, this.bucket.n_tok],
      INPUT.DERIVED + this.#derived.length,
      "tok",
      input.type === "i32" ? input.limit : 0,
    );
    this.#derived.push({ ...input, n: count(dims) });
    this.#derivedIds.set(input.name, t);
    return t;
  }

  // --- ops --------------------------------------------------------------------------------------------------------------

  /**
   * Rows of a table: `[n, m.., R]` for ids `[m.., R]`. An i32 table gives i32. `host`: the table is large and its ids are a step's
   * inputs, so that a card leaves it in host memory.
   */
  get_rows(table: T, ids: T, options: { host?: boolean } = {}): T {
    this.#use(table, options.host ? USE.ROWS | USE.HOST : USE.ROWS);
    const type = this.#tensors[table.id].type.name === "i32" ? I32 : F32;
    const y = this.#op("GET_ROWS", [table, ids], [table.ne[0], ...ids.ne], [], ids.rows, type);
    return this.#adapted(table, y, ([n_rank]) => ({
      a: [n_rank, table.ne[1]],
      b: [n_rank, table.ne[0]],
      apply: (a, b, scale) => this.mul_mat(b, scale(this.get_rows(a, ids))),
    }));
  }

  /** What a layer of one residual stream hands on, `[n_embd, R]`: there a control vector is added. */
  layer_end(layer: number, x: T): T {
    this.ended.add(layer);
    const vector = this.source.control?.get(layer);
    // Binding refuses one of another width.
    return vector?.length === x.ne[0] ? this.add(x, this.constant(`control.${layer}`, vector)) : x;
  }

  /** The rows a step wants results of. */
  out_rows(x: T): T {
    this.#want(x.rows === "tok" && x.ne.length === 2, "out_rows", x);
    return this.collects ? x : this.wanted_rows(x);
  }

  /** `out_rows` of a program that collects, where everything has been computed. */
  wanted_rows(x: T): T {
    return x.rows === "out" ? x : this.#op("GET_ROWS", [x, this.outRows], [x.ne[0], this.bucket.n_out], [], "out");
  }

  /** Over the first axis; `w`, `b` `[n]`, or `[n, m]` with the second axis. */
  norm(kind: NormKind, x: T, w: T | undefined, eps: number, b?: T): T {
    for (const v of [w, b]) {
      if (!v) continue;
      this.#want(v.ne[0] === x.ne[0] && ((v.ne[1] ?? 1) === 1 || v.ne[1] === x.ne[1]), "norm", x, v);
      this.#use(v, USE.VECTOR);
    }
    return this.#op("NORM", [x, w, b], x.ne, [NORM_KIND[kind], eps], x.rows);
  }

  rms_norm(x: T, w: T | undefined, eps: number): T {
    return this.norm("rms", x, w, eps);
  }

  /** `a + b`, axes of length 1 repeated. */
  add(a: T, b: T): T {
    return this.#pair("ADD", a, b);
  }

  /** `a b`, axes of length 1 repeated. */
  mul(a: T, b: T): T {
    return this.#pair("MUL", a, b);
  }

  unary(kind: UnaryKind, x: T, a = 0, b = 0): T {
    return this.#op("UNARY", [x], x.ne, [UNARY_KIND[kind], a, b], x.rows);
  }

  /** `a x + b` */
  scale(x: T, a: number, b = 0): T {
    return a === 1 && b === 0 ? x : this.unary("scale", x, a, b);
  }

  /** An activation of `x` times `y`. */
  gate(kind: GateKind, x: T, y: T, a = 0, b = 0): T {
    this.#want(sameDims(x.ne, y.ne), "gate", x, y);
    return this.#op("GATE", [x, y], x.ne, [GATE_KIND[kind], a, b], x.rows);
  }

  /** `W x`; a weight of three axes takes x `[n_in, H, R]`, a matrix for each head. */
  mul_mat(w: T, x: T): T {
    const batched = (w.ne[2] ?? 1) > 1;
    this.#want(w.ne[0] === x.ne[0] && (!batched || (w.ne[2] === x.ne[1] && x.ne.length === 3)), "mul_mat", w, x);
    this.#use(w, USE.MUL_MAT);
    this.#collect(w, x);
    const y = this.#op("MUL_MAT", [w, x], [w.ne[1] ?? 1, ...x.ne.slice(1)], [], x.rows);
    return this.#adapted(w, y, ([, n_rank]) => ({
      a: [w.ne[0], n_rank, ...w.ne.slice(2)],
      b: [n_rank, w.ne[1] ?? 1, ...w.ne.slice(2)],
      apply: (a, b, scale) => this.mul_mat(b, scale(this.mul_mat(a, x))),
    }));
  }

  /** Each row through its experts: W `[n_in, n_out, n_expert]`, x `[n_in, R]` or `[n_in, k, R]` -> `[n_out, k, R]`. */
  mul_mat_id(w: T, x: T, ids: T): T {
    const [k, R] = ids.ne;
    const rows = x.ne.length === 3 ? x : this.view(x, [x.ne[0], 1, R]);
    this.#want(w.ne[0] === x.ne[0] && (rows.ne[1] === 1 || rows.ne[1] === k), "mul_mat_id", w, x, ids);
    this.#use(w, USE.MUL_MAT);
    this.#collect(w, rows, ids);
    const y = this.#op("MUL_MAT_ID", [w, rows, ids], [w.ne[1], k, R], [], x.rows);
    return this.#adapted(w, y, ([, n_rank]) => ({
      a: [w.ne[0], n_rank, w.ne[2]],
      b: [n_rank, w.ne[1], w.ne[2]],
      apply: (a, b, scale) => this.mul_mat_id(b, scale(this.mul_mat_id(a, rows, ids)), ids),
    }));
  }

  /**
   * Rotates `2 * inv_freq` numbers of each head from `offset` on by `(position + shift) inv_freq`, backwards when `inverse`.
   * x `[d, H, n_tok]`.
   */
  rope(
    x: T,
    inv_freq: T,
    options: { kind: RopeKind; offset?: number; inverse?: boolean; shift?: number; mscale?: number },
  ): T {
    const n_rot = 2 * inv_freq.ne[0], offset = options.offset ?? 0;
    this.#want(offset + n_rot <= x.ne[0] && x.rows === "tok" && x.ne.length === 3, "rope", x, inv_freq);
    this.#use(inv_freq, USE.VECTOR);
    return this.#op("ROPE", [x, this.positions, inv_freq], x.ne, [
      ROPE_KIND[options.kind],
      n_rot,
      offset,
      options.inverse ? 1 : 0,
      options.shift ?? 0,
      options.mscale ?? 1,
    ], "tok");
  }

  /** Stores each row (or, for a stream of ratio r, the rows that end a group) in its sequence's page. */
  write(x: T, to: Stream): void {
    this.#want(count(x.ne) === to.ne * this.bucket.n_tok && x.rows === "tok", `write to ${to.name}`, x);
    this.#push("STREAM_WRITE", [], [x, this.positions, this.seqs], [to.cache, to.stream]);
  }

  /**
   * Declares a layer's key and value streams, appends `k` and `v` `[d, n_head_kv, n_tok]`, and names them for `attention`.
   * @param options.exact They are kept in f32, whatever type the cache has.
   */
  kv(name: string, k: T, v: T, options: { window?: number; exact?: boolean } = {}): Segment {
    const window = options.window ?? 0, role = (of: "k" | "v") => options.exact ? "f32" : of;
    const n = (t: T) => count(t.ne) / this.bucket.n_tok;
    const ks = this.stream(`${name}.k`, n(k), { role: role("k"), window });
    const vs = this.stream(`${name}.v`, n(v), { role: role("v"), window });
    this.write(k, ks);
    this.write(v, vs);
    return { k: ks, v: vs };
  }

  /** The streams of an earlier `kv`. */
  kept(name: string): { k: Stream; v: Stream } {
    const k = this.#streams.get(`${name}.k`), v = this.#streams.get(`${name}.v`);
    if (!k || !v) throw new Error(`no layer has streams ${name}.k and ${name}.v`);
    return { k, v };
  }

  /**
   * One softmax over the visible rows of `a`, then `b`. q `[dk, H, n_tok]` -> `[dv, H, n_tok]`.
   * @param options.ahead Positions behind its own that a row sees, as far as the step has them; `Infinity`: all.
   */
  attention(
    q: T,
    a: Segment,
    options: {
      scale: number;
      n_head_kv: number;
      dv?: number;
      softcap?: number;
      sinks?: T;
      b?: Segment;
      ahead?: number;
    },
  ): T {
    const { n_head_kv, b, ahead = 0 } = options;
    const dv = options.dv ?? (a.v ?? a.k).ne / n_head_kv;
    this.#want(q.ne.length === 3 && q.ne[1] % n_head_kv === 0, "attention", q);
    for (const s of b ? [a, b] : [a]) {
      const fits = s.k.ne === q.ne[0] * n_head_kv && (s.v ? s.v.ne === dv * n_head_kv : dv <= q.ne[0]);
      this.#want(fits && (!s.v || s.v.ratio === s.k.ratio), `attention over ${s.k.name} of ${s.k.ne}`, q);
    }
    for (const s of b ? [a, b] : [a]) {
      this.#caches[s.k.cache].streams[s.k.stream].head = q.ne[0];
      if (s.v) this.#caches[s.v.cache].streams[s.v.stream].head = dv;
    }
    if (options.sinks) this.#use(options.sinks, USE.VECTOR);
    const segment = (s?: Segment) =>
      s ? [s.k.cache, s.k.stream, (s.v ?? s.k).stream, s.k.window, s.unit ?? 1] : [NONE, 0, 0, 0, 1];
    return this.#op(
      "ATTENTION",
      [q, this.positions, this.seqs, options.sinks, a.select, b?.select],
      [dv, q.ne[1], q.ne[2]],
      [n_head_kv, options.scale, options.softcap ?? 0, ...segment(a), ...segment(b), Math.min(ahead, NONE)],
      "tok",
    );
  }

  /** The `n` best visible rows (or blocks of `unit` rows) of a key stream for each token: i32 `[n, n_tok]`, ascending. */
  index(
    q: T,
    k: Stream,
    n: number,
    options: { scale: number; w?: T; unit?: number; pin?: boolean; candidates?: T; candidateUnit?: number },
  ): T {
    this.#want(q.ne[0] === k.ne && q.ne.length === 3, `index over ${k.name}`, q);
    return this.#op(
      "INDEX",
      [q, this.positions, this.seqs, options.w, options.candidates],
      [n, q.ne[2]],
      [k.cache, k.stream, options.scale, options.unit ?? 1, options.pin ? 1 : 0, options.candidateUnit ?? 1],
      "tok",
      I32,
    );
  }

  /** Where a group of `ratio` positions ends: the group pooled, `[n, n_tok]`; zeros in other rows. */
  pool(kind: PoolKind, k: Stream, ratio: number, options: { z?: Stream; ape?: T; overlap?: boolean } = {}): T {
    const overlap = options.overlap ?? false, z = options.z ?? k;
    this.#want(
      z.ne === k.ne && z.cache === k.cache && (kind === "mean") === (options.z === undefined),
      `pool ${k.name}`,
    );
    if (options.ape) {
      this.#want(options.ape.ne[0] === k.ne && options.ape.ne[1] === ratio, "pool", options.ape);
      this.#use(options.ape, USE.VECTOR);
    }
    return this.#op(
      "POOL",
      [this.positions, this.seqs, options.ape],
      [overlap ? k.ne / 2 : k.ne, this.bucket.n_tok],
      [POOL_KIND[kind], k.cache, k.stream, z.stream, ratio, overlap ? 1 : 0],
      "tok",
    );
  }

  /** The best `k` experts of each row and their weights. logits `[n_expert, R]` -> i32 and f32 `[k, R]`. */
  router(
    logits: T,
    k: number,
    options: {
      score: ScoreKind;
      renorm: boolean;
      bias?: T | undefined;
      given?: T | undefined;
      groups?: number;
      groups_used?: number;
      group_top?: number;
      sum_add?: number;
      sum_min?: number;
      scale?: number;
    },
  ): { ids: T; weights: T } {
    const groups = options.groups ?? 1;
    this.#want(k >= 1 && k <= logits.ne[0] && logits.ne[0] % groups === 0, `router k = ${k}`, logits);
    if (options.bias) this.#use(options.bias, USE.VECTOR);
    const R = logits.ne[1];
    const ids = this.#add(KIND.SCRATCH, I32, [k, R], logits.rows);
    const weights = this.#add(KIND.SCRATCH, F32, [k, R], logits.rows);
    this.#push("ROUTER", [ids, weights], [logits, options.bias, options.given], [
      SCORE_KIND[options.score],
      groups,
      options.groups_used ?? groups,
      options.group_top ?? 2,
      options.renorm ? 1 : 0,
      options.sum_add ?? 0,
      options.sum_min ?? 0,
      options.scale ?? 1,
    ]);
    return { ids, weights };
  }

  /** `y[:, m] = sum_j w[j, m] x[:, j]`: x `[n, J, R]`, w `[J, M, R]` or a weight `[J, M]` -> `[n, M, R]`. */
  mix(x: T, w: T): T {
    this.#want(x.ne.length === 3 && w.ne[0] === x.ne[1], "mix", x, w);
    if (w.rows === "none") this.#use(w, USE.VECTOR);
    const M = w.rows === "none" ? w.ne[1] ?? 1 : w.ne.length === 3 ? w.ne[1] : 1;
    return this.#op("MIX", [x, w], [x.ne[0], M, x.ne[2]], [], x.rows);
  }

  /** `sum_k weights[k] x[:, k]`, in the order of k: `[n, R]`. */
  expert_sum(x: T, weights: T): T {
    return this.mix(x, this.view(weights, [weights.ne[0], 1, weights.ne[1]])).flat();
  }

  /** One after the other along an axis before R. */
  concat(parts: readonly T[], axis = 0): T {
    const [first] = parts;
    if (parts.length === 1) return first;
    const fits = parts.every((p) =>
      p.ne.length === first.ne.length && p.ne.every((n, i) => i === axis || n === first.ne[i])
    );
    this.#want(fits && axis < first.ne.length - 1, "concat", ...parts);
    const ne = first.ne.map((n, i) => i === axis ? parts.reduce((sum, p) => sum + p.ne[i], 0) : n);
    return this.#op("CONCAT", [...parts], ne, [axis], first.rows, this.#tensors[first.id].type);
  }

  /** Over the first axis. */
  softmax(x: T): T {
    return this.#op("SOFTMAX", [x], x.ne, [], x.rows);
  }

  /** Causal convolution of each channel over positions: x `[C, n_tok]`, w `[K, C]`. */
  conv(name: string, x: T, w: T, options: { bias?: T | undefined; dilation?: number; silu?: boolean } = {}): T {
    const dilation = options.dilation ?? 1, [C] = x.ne, [K] = w.ne;
    this.#want(w.ne[1] === C && x.ne.length === 2 && x.rows === "tok", "conv", x, w);
    this.#use(w, USE.VECTOR);
    if (options.bias) this.#use(options.bias, USE.VECTOR);
    const state = this.state(name, (K - 1) * dilation * C);
    return this.#op("CONV", [x, w, options.bias, this.positions, this.seqs], x.ne, [
      state.cache,
      state.stream,
      dilation,
      options.silu ? 1 : 0,
    ], "tok");
  }

  /**
   * A linear recurrence with a state `[dk, dv]` a head. q, k `[dk, Hk, n_tok]`, v `[dv, Hv, n_tok]`, g (log decay) `[1 or dk, Hv,
   * n_tok]`, beta `[1, Hv, n_tok]` -> `[dv, Hv, n_tok]`.
   */
  delta(
    name: string,
    x: { q: T; k: T; v: T; g: T; beta: T },
    options: { rule?: DeltaRule; tiled?: boolean } = {},
  ): T {
    const { q, k, v, g, beta } = x, [dk, Hk] = q.ne, [dv, Hv] = v.ne;
    const fits = sameDims(q.ne, k.ne) && Hv % Hk === 0 && g.ne[1] === Hv && (g.ne[0] === 1 || g.ne[0] === dk);
    this.#want(fits && beta.ne[0] === 1 && beta.ne[1] === Hv, "delta", q, k, v, g, beta);
    const state = this.state(name, dk * dv * Hv);
    return this.#op("DELTA", [q, k, v, g, beta, this.positions, this.seqs], v.ne, [
      state.cache,
      state.stream,
      DELTA_RULE[options.rule ?? "delta"],
      options.tiled ? 1 : 0,
    ], "tok");
  }

  /** Weights of `n` hyper-connection streams: `pre`, `post` `[n, R]`, `comb` `[n, n, R]` with comb[j, k] from stream j to k. */
  sinkhorn(
    m: T,
    scale: T,
    base: T,
    options: { n: number; iterations: number; eps: number },
  ): { pre: T; post: T; comb: T } {
    const { n } = options, R = m.ne[1];
    this.#want(m.ne[0] === n * n + 2 * n && base.ne[0] === m.ne[0] && scale.ne[0] === 3, "sinkhorn", m, scale, base);
    for (const w of [scale, base]) this.#use(w, USE.VECTOR);
    const pre = this.#add(KIND.SCRATCH, F32, [n, R], m.rows);
    const post = this.#add(KIND.SCRATCH, F32, [n, R], m.rows);
    const comb = this.#add(KIND.SCRATCH, F32, [n, n, R], m.rows);
    this.#push("SINKHORN", [pre, post, comb], [m, scale, base], [n, options.iterations, options.eps]);
    return { pre, post, comb };
  }

  /** Sum of `a b` over the first axis: `[1, .., R]`. */
  dot(a: T, b: T): T {
    this.#want(b.ne[0] === a.ne[0], "dot", a, b);
    if (b.rows === "none") this.#use(b, USE.VECTOR);
    return this.#op("DOT", [a, b], [1, ...a.ne.slice(1)], [], a.rows);
  }

  /** The `k` largest of each row, best first (ties: the lower index), and the log-sum-exp of the whole row. */
  top_k(x: T, k: number): { ids: T; values: T; lse: T } {
    const R = x.ne[1];
    this.#want(k >= 1 && k <= x.ne[0] && x.ne.length === 2, `top_k k = ${k}`, x);
    const ids = this.#add(KIND.SCRATCH, I32, [k, R], x.rows);
    const values = this.#add(KIND.SCRATCH, F32, [k, R], x.rows);
    const lse = this.#add(KIND.SCRATCH, F32, [1, R], x.rows);
    this.#push("TOP_K", [ids, values, lse], [x], []);
    return { ids, values, lse };
  }

  /** `logits[target] - lse` of each output row; 0 where the target is -1. */
  target_logprob(logits: T, lse: T): T {
    return this.#op("TARGET_LOGPROB", [logits, lse, this.targets], [1, logits.ne[1]], [], "out");
  }

  /** The same numbers, dense. */
  copy(x: T): T {
    return this.#op("COPY", [x], x.ne, [], x.rows, this.#tensors[x.id].type);
  }

  /** The same numbers in another shape; R stays last. A slice is copied first. */
  view(x: T, dims: readonly number[]): T {
    const fits = count(dims) === count(x.ne) && dims.length <= 4 && dims[dims.length - 1] === x.ne[x.ne.length - 1];
    this.#want(fits && x.rows !== "none", `view as [${dims}]`, x);
    const dense = this.#isDense(x) ? x : this.copy(x);
    const desc = this.#tensors[dense.id];
    return this.#view(dense, dims, desc.offset, packedStrides(dims));
  }

  /** Names a result that a step can copy to the host. */
  output(name: string, x: T): void {
    this.#outputs.push({ name, tensor: x.id });
  }

  /** Tells what the head takes, `[n_embd, n_out]`, or `[n_embd, n_tok]` of an encoder; everything behind is the head. */
  hidden(x: T): void {
    this.#head = { x, ops: this.#ops.length, tensors: this.#tensors.length, weights: this.#weights.length };
  }

  /** What the head takes; undefined before `hidden`. */
  get headInput(): T | undefined {
    return this.#head?.x;
  }

  /** Takes the head off again. @returns what it would take */
  dropHead(): T {
    const head = this.#head;
    if (!head) throw new Error("the program has no head");
    this.#ops.length = head.ops;
    this.#tensors.length = head.tensors;
    this.#weights.length = head.weights;
    this.#outputs.length = 0;
    return head.x;
  }

  finish(): Program {
    for (const w of this.#weights) {
      if (w.uses !== USE.VECTOR || w.type.name === "f32") continue;
      w.type = F32;
      w.decode = true;
    }
    for (const t of this.#tensors) if (t.kind === KIND.WEIGHT) t.type = this.#weights[t.ref].type;
    return {
      ...this.bucket,
      tensors: this.#tensors,
      ops: this.#ops,
      weights: this.#weights,
      caches: this.#caches,
      derived: this.#derived,
      outputs: this.#outputs,
      collected: [...this.#collected.values()],
    };
  }

  // --- parts ------------------------------------------------------------------------------------------------------------

  #fileWeight(name: string, ne: readonly number[], options: { reshape?: boolean }, wanted: boolean): T | undefined {
    const known = this.#weightIds.get(name);
    if (known) return known;
    const found = this.source.find(name);
    if (!found && !wanted) return undefined;
    const fits = found !== undefined &&
      (sameDims(found.ne, ne) || (options.reshape === true && count(found.ne) === count(ne)));
    if (!fits) this.problems.push({ tensor: name, expected: ne, ...(found ? { got: found.ne } : {}) });
    return this.#weight(
      { name, type: found?.type ?? F32, ne: ne4(ne), uses: 0, device: this.device, decode: false },
      ne,
    );
  }

  #weight(desc: WeightDesc, ne: readonly number[]): T {
    const known = this.#weightIds.get(desc.name);
    if (known) return known;
    const t = this.#add(KIND.WEIGHT, desc.type, ne, "none", this.#weights.length);
    this.#weights.push(desc);
    this.#weightIds.set(desc.name, t);
    return t;
  }

  #stream(desc: StreamDesc, window: number, state: boolean): Stream {
    const known = this.#streams.get(desc.name);
    if (known) {
      if (known.ne !== desc.ne || known.window !== window) throw new Error(`stream ${desc.name} is declared twice`);
      return known;
    }
    let cache = this.#caches.findIndex((c) => c.state === state && c.window === window);
    if (cache < 0) {
      cache = this.#caches.push({ window, state, streams: [], device: this.device, of: this.#caches.length }) - 1;
    }
    const stream = this.#caches[cache].streams.push(desc) - 1;
    const made = { ...desc, cache, stream, window };
    this.#streams.set(desc.name, made);
    return made;
  }

  /**
   * `y` of a weight's product or rows, plus what the adapters in use add to it.
   * @param pair From the shape of an adapter's A: the shapes that A and B must have, and how they are applied.
   */
  #adapted(
    w: T,
    y: T,
    pair: (a: readonly number[]) => {
      a: readonly number[];
      b: readonly number[];
      apply: (a: T, b: T, scale: (inner: T) => T) => T;
    },
  ): T {
    const desc = this.#tensors[w.id];
    if (this.adapters.length === 0 || desc.kind !== KIND.WEIGHT || this.#weights[desc.ref].constant) return y;
    const { name } = this.#weights[desc.ref];
    for (const i of this.adapters) {
      const of = (part: "a" | "b") => adapterTensor(i, name, part);
      const found = this.source.find(of("a"));
      if (!found) continue;
      const { a, b, apply } = pair(found.ne);
      if (!sameDims(found.ne, a)) { // a table that is a head too is a weight of two kinds, and A is of one
        this.problems.push({ tensor: of("a"), expected: a, got: found.ne });
        continue;
      }
      const scale = (inner: T) => this.mul(inner, this.#adapterScale(i, b[0], inner));
      y = this.add(y, apply(this.#fileWeight(of("a"), a, {}, true)!, this.#fileWeight(of("b"), b, {}, true)!, scale));
    }
    return y;
  }

  /** How much of an adapter each row's sequence has, for matrices of a rank: as many axes of 1 as `like` needs, then R. */
  #adapterScale(adapter: number, n_rank: number, like: T): T {
    const factor = adapterFactor(this.source.adapters![adapter], n_rank), ones = like.ne.slice(1).map(() => 1);
    const scale = this.derived({
      name: `adapter.${adapter}.scale.${factor}.${ones.length}`,
      type: "f32",
      limit: 0,
      row: (out, at, _position, _token, scale) => {
        out[at] = factor * scale(adapter);
      },
    }, ones);
    return like.rows === "out" ? this.#op("GET_ROWS", [scale, this.outRows], [1, this.bucket.n_out], [], "out") : scale;
  }

  /** Sums up the inputs of a weight; those of several weights once. */
  #collect(w: T, x: T, ids?: T): void {
    const desc = this.#tensors[w.id];
    if (desc.kind !== KIND.WEIGHT || this.#weights[desc.ref].constant) return;
    const { name } = this.#weights[desc.ref];
    if (!this.collects?.(name)) return;
    const [n_in] = w.ne, n_mat = w.ne[2] ?? 1;
    const { ref, offset, nb, kind } = this.#tensors[x.id];
    // Views that show the same numbers are made anew by every caller.
    const key = [...(kind === KIND.VIEW ? [ref, offset, ...nb, ...x.ne] : [x.id]), ids?.id ?? "", n_mat].join();
    const known = this.#collected.get(key);
    if (known) {
      known.weights.push(name);
      return;
    }
    const state = this.state(`squares.${name}`, n_mat * 2 * (n_in + 1));
    this.#collected.set(key, { weights: [name], n_in, n_mat, state });
    this.#push("SQUARES", [], [x, this.positions, this.seqs, ids], [state.cache, state.stream, n_mat]);
  }

  #use(w: T, use: number): void {
    const desc = this.#tensors[w.id];
    if (desc.kind === KIND.WEIGHT) this.#weights[desc.ref].uses |= use;
  }

  #pair(op: "ADD" | "MUL", a: T, b: T): T {
    if (a.rows === "none" || (b.rows !== "none" && b.rows !== a.rows)) this.#want(false, op, a, b);
    // A weight is the same for every row: it has no axis for them.
    const other = b.rows === "none" ? [...Array.from({ length: a.ne.length - 1 }, (_, i) => b.ne[i] ?? 1), 1] : b.ne;
    const fits = other.length === a.ne.length && a.ne.every((n, i) => n === other[i] || n === 1 || other[i] === 1);
    this.#want(fits && b.ne.length <= a.ne.length, op, a, b);
    this.#use(b, USE.VECTOR);
    return this.#op(op, [a, b], a.ne.map((n, i) => Math.max(n, other[i])), [], a.rows);
  }

  #op(
    op: OpName,
    src: readonly (T | undefined)[],
    dims: readonly number[],
    params: number[],
    rows: Rows,
    type: GgmlType = F32,
  ): T {
    const dst = this.#add(KIND.SCRATCH, type, dims, rows);
    this.#push(op, [dst], src, params);
    return dst;
  }

  #push(op: OpName, dst: readonly T[], src: readonly (T | undefined)[], params: number[]): void {
    const info = OPS[op];
    const wrong = src.some((s, i) => s === undefined && !(info.optional as readonly string[]).includes(info.src[i]));
    const many = info.more ? src.length < info.src.length : src.length !== info.src.length;
    if (wrong || many || dst.length !== info.dst.length || params.length !== info.params.length) {
      throw new Error(`${op}: wrong number of operands`);
    }
    this.#ops.push({
      op,
      device: this.device,
      dst: dst.map((t) => t.id),
      src: src.map((t) => t === undefined ? NONE : t.id),
      params,
    });
  }

  #input(type: GgmlType, dims: readonly number[], ref: number, rows: Rows, limit = 0): T {
    return this.#add(KIND.INPUT, type, dims, rows, ref, 0, [0, 0, 0], limit);
  }

  #view(x: T, dims: readonly number[], offset: number, nb: readonly [number, number, number]): T {
    const desc = this.#tensors[x.id];
    const root = desc.kind === KIND.VIEW ? desc.ref : x.id;
    return this.#add(KIND.VIEW, desc.type, dims, x.rows, root, offset, nb);
  }

  /** Strides of a value's axes before R. */
  #strides(x: T): readonly [number, number, number] {
    const desc = this.#tensors[x.id];
    return desc.kind === KIND.VIEW ? desc.nb : packedStrides(x.ne);
  }

  /** A row's numbers lie one after the other. */
  #isDense(x: T): boolean {
    const nb = this.#strides(x), packed = packedStrides(x.ne);
    for (let i = 1; i < x.ne.length - 1; i++) if (x.ne[i] > 1 && nb[i - 1] !== packed[i - 1]) return false;
    return true;
  }

  #slice(x: T, start: number, n: number, axis: number): T {
    this.#want(
      x.rows !== "none" && axis < x.ne.length - 1 && start >= 0 && n > 0 && start + n <= x.ne[axis],
      "slice",
      x,
    );
    const nb = this.#strides(x);
    const offset = this.#tensors[x.id].offset + start * (axis === 0 ? 1 : nb[axis - 1]);
    return this.#view(x, x.ne.map((d, i) => i === axis ? n : d), offset, nb);
  }

  #add(
    kind: number,
    type: GgmlType,
    dims: readonly number[],
    rows: Rows,
    ref = 0,
    offset = 0,
    nb: readonly [number, number, number] = [0, 0, 0],
    limit = 0,
  ): T {
    const id = this.#tensors.length;
    this.#tensors.push({ kind, type, ne: ne4(dims), ref, device: this.device, offset, nb, limit, rows });
    const R = dims[dims.length - 1];
    const t: T = {
      id,
      ne: dims,
      rows,
      heads: (n_head) => this.view(t, [count(dims) / R / n_head, n_head, R]),
      flat: () => this.view(t, [count(dims) / R, R]),
      slice: (start, n, axis = 0) => this.#slice(t, start, n, axis),
    };
    return t;
  }

  #want(ok: boolean, what: string, ...ts: T[]): void {
    if (!ok) throw new Error(`${what}: shapes do not fit: ${ts.map((t) => `[${t.ne}]`).join(", ")}`);
  }
}

/** Distances of neighbours along axes 1 to 3 when axes before R lie one after the other. */
function packedStrides(dims: readonly number[]): [number, number, number] {
  const nb: [number, number, number] = [0, 0, 0];
  let at = 1;
  for (let i = 1; i < dims.length - 1; i++) nb[i - 1] = at *= dims[i - 1];
  return nb;
}
