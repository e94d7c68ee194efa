/**
 * The op program: a forward pass as data. Architecture files call `Ops` to build one per shape bucket; `encode.ts` turns
 * it into the words of `csrc/bloomery.h`, `reference.ts` runs it as it stands.
 *
 * A shape that does not fit is a bug of the architecture file and throws a plain `Error`; a tensor of a file that does
 * not have the shape an architecture wants is caught before, when the model is bound.
 * @module
 */
import { type GgmlType, ggmlType } from "../gguf/types.ts";
import { INPUT, KIND, type OpName, OPS, ROPE_KIND, type RopeKind, SCORE_KIND, type ScoreKind, USE } from "./ops.ts";

export type Ne = readonly [number, number, number, number];

export interface TensorDesc {
  readonly kind: number;
  readonly type: GgmlType;
  /** Shape, fastest first. */
  readonly ne: Ne;
  /** Weight index, input number or viewed tensor, by kind. */
  readonly ref: number;
  readonly device: number;
}

export interface OpDesc {
  readonly op: OpName;
  readonly device: number;
  readonly dst: readonly number[];
  readonly src: readonly number[];
  /** In the order of the op's table row; f32 parameters as numbers. */
  readonly params: readonly number[];
}

/** A weight a program reads: a tensor of the model file, or a constant computed from its metadata. */
export interface WeightDesc {
  readonly name: string;
  readonly type: GgmlType;
  readonly ne: Ne;
  /** `USE` bits over all ops of the program. */
  uses: number;
  /** f32 values when the weight is a constant. */
  readonly constant?: Float32Array;
}

/** The most rows of one step and the longest sequence, for which a program is laid out. */
export interface Bucket {
  readonly n_tok: number;
  readonly n_out: number;
  readonly n_seq: number;
  /** Pages of one sequence. */
  readonly n_page: number;
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
  readonly outputs: readonly OutputDesc[];
}

/** A value of a program under construction. Shapes in comments of architecture files read `[rows, cols]`; `ne` is the reverse. */
export interface T {
  readonly id: number;
  readonly ne: Ne;
  /** The same numbers as `[n, head_dim]` heads per row. */
  heads(n_head: number): T;
  /** The same numbers as one row per token. */
  flat(): T;
}

/** One key/value store of a layer: streams of a cache. */
export interface KvSlot {
  readonly cache: number;
  readonly k_stream: number;
  readonly v_stream: number;
}

const F32 = ggmlType("f32");
const I32 = ggmlType("i32");

function ne4(dims: readonly number[]): Ne {
  return [dims[0] ?? 1, dims[1] ?? 1, dims[2] ?? 1, dims[3] ?? 1];
}

function count(ne: Ne): number {
  return ne[0] * ne[1] * ne[2] * ne[3];
}

/** Builds a program op by op. */
export class Ops {
  readonly tokens: T;
  readonly positions: T;
  readonly seqs: T;
  readonly outRows: T;
  readonly targets: T;
  #tensors: TensorDesc[] = [];
  #ops: OpDesc[] = [];
  #weights: WeightDesc[] = [];
  #weightIds = new Map<string, T>();
  #outputs: OutputDesc[] = [];

  /** @param device Index of the device that runs the ops from here on; may change between layers. */
  constructor(readonly bucket: Bucket, public device = 0) {
    this.tokens = this.#add(KIND.INPUT, I32, [bucket.n_tok], INPUT.TOKENS);
    this.positions = this.#add(KIND.INPUT, I32, [bucket.n_tok], INPUT.POSITIONS);
    this.seqs = this.#add(KIND.INPUT, I32, [bucket.n_tok], INPUT.SEQS);
    this.outRows = this.#add(KIND.INPUT, I32, [bucket.n_out], INPUT.OUT_ROWS);
    this.targets = this.#add(KIND.INPUT, I32, [bucket.n_out], INPUT.TARGETS);
  }

  /** A weight of the model file. Asking for the same name again gives the same value. */
  weight(name: string, type: GgmlType, ne: readonly number[]): T {
    return this.#weight({ name, type, ne: ne4(ne), uses: 0 });
  }

  /** A constant, f32. */
  constant(name: string, values: Float32Array): T {
    return this.#weight({ name, type: F32, ne: ne4([values.length]), uses: 0, constant: values });
  }

  /** Rows of an embedding table: `[n_tok, n_embd]`. */
  embed_rows(table: T, ids: T): T {
    this.#use(table, USE.ROWS);
    return this.#op("EMBED_ROWS", [table, ids], [table.ne[0], ids.ne[0]]);
  }

  /** `x / sqrt(mean(x^2) + eps) * w` over the last axis. */
  rms_norm(x: T, w: T, eps: number): T {
    this.#want(w.ne[0] === x.ne[0] && count(w.ne) === w.ne[0], "rms_norm", x, w);
    this.#use(w, USE.VECTOR);
    return this.#op("RMS_NORM", [x, w], x.ne, [eps]);
  }

  /** `a + b`; `b` has the shape of `a`, or is one row added to every row. */
  add(a: T, b: T): T {
    const bias = count(b.ne) === b.ne[0] && b.ne[0] === a.ne[0];
    this.#want(bias || a.ne.every((n, i) => n === b.ne[i]), "add", a, b);
    if (bias && this.#tensors[b.id].kind === KIND.WEIGHT) this.#use(b, USE.VECTOR);
    return this.#op("ADD", [a, b], a.ne);
  }

  /** `x Wᵀ` for `W [n_out, n_in]`, `x [.., n_in]`. */
  mul_mat(w: T, x: T): T {
    this.#want(w.ne[0] === x.ne[0] && w.ne[2] === 1 && w.ne[3] === 1, "mul_mat", w, x);
    this.#use(w, USE.MUL_MAT);
    return this.#op("MUL_MAT", [w, x], [w.ne[1], x.ne[1], x.ne[2], x.ne[3]]);
  }

  /** `silu(a) * b` */
  silu_mul(a: T, b: T): T {
    this.#want(a.ne.every((n, i) => n === b.ne[i]), "silu_mul", a, b);
    return this.#op("SILU_MUL", [a, b], a.ne);
  }

  /**
   * Rotary position embedding of the first `2 * inv_freq.length` numbers of each head: angle `position * inv_freq[i]`, cos
   * and sin scaled by `mscale`.
   */
  rope(x: T, inv_freq: T, options: { kind: RopeKind; mscale?: number }): T {
    const n_rot = 2 * inv_freq.ne[0];
    this.#want(n_rot <= x.ne[0] && x.ne[2] === this.bucket.n_tok, "rope", x, inv_freq);
    this.#use(inv_freq, USE.VECTOR);
    return this.#op("ROPE", [x, this.positions, inv_freq], x.ne, [
      ROPE_KIND[options.kind],
      n_rot,
      options.mscale ?? 1,
    ]);
  }

  /**
   * Appends `k` and `v` to each row's sequence and attends causally: `softmax(scale * q kᵀ) v` over positions 0..p of the
   * sequence, or the last `window` of them. `q [n_tok, n_head, head_dim]`, `k`, `v` `[n_tok, n_head_kv, head_dim]`.
   */
  attention(q: T, k: T, v: T, kv: KvSlot, options: { scale: number; window?: number }): T {
    const n_head_kv = k.ne[1];
    this.#want(k.ne[0] === q.ne[0] && v.ne[1] === n_head_kv && q.ne[1] % n_head_kv === 0, "attention", q, k, v);
    this.#push("KV_WRITE", [], [k, v, this.positions, this.seqs], [kv.cache, kv.k_stream, kv.v_stream]);
    return this.#op("ATTENTION", [q, this.positions, this.seqs], [v.ne[0], q.ne[1], q.ne[2]], [
      kv.cache,
      kv.k_stream,
      kv.v_stream,
      n_head_kv,
      options.scale,
      options.window ?? 0,
    ]);
  }

  /**
   * The best `k` experts of each row, best first (ties: the lower index), and their weights: the scores, divided by their
   * sum when `renorm`, times `scale`. `logits [n_tok, n_expert]`.
   */
  router(
    logits: T,
    k: number,
    options: { score: ScoreKind; renorm: boolean; scale?: number },
  ): { ids: T; weights: T } {
    this.#want(k >= 1 && k <= logits.ne[0], `router k = ${k}`, logits);
    const ids = this.#add(KIND.SCRATCH, I32, [k, logits.ne[1]], 0);
    const weights = this.#add(KIND.SCRATCH, F32, [k, logits.ne[1]], 0);
    this.#push("ROUTER", [ids, weights], [logits], [
      SCORE_KIND[options.score],
      options.renorm ? 1 : 0,
      options.scale ?? 1,
    ]);
    return { ids, weights };
  }

  /** Each row through its experts: `W [n_expert, n_out, n_in]`, `x [n_tok, n_in]` or `[n_tok, k, n_in]` -> `[n_tok, k, n_out]`. */
  mul_mat_id(w: T, x: T, ids: T): T {
    const [k, n_tok] = ids.ne;
    const rows = x.ne[2] === n_tok && x.ne[1] === k ? x : this.view(x, [x.ne[0], 1, n_tok]);
    this.#want(w.ne[0] === x.ne[0] && w.ne[3] === 1, "mul_mat_id", w, x, ids);
    this.#use(w, USE.MUL_MAT);
    return this.#op("MUL_MAT_ID", [w, rows, ids], [w.ne[1], k, n_tok]);
  }

  /** `sum_k weights[t, k] * x[t, k]`, in the order of k: `[n_tok, n]`. */
  expert_sum(x: T, weights: T): T {
    this.#want(x.ne[1] === weights.ne[0] && x.ne[2] === weights.ne[1], "expert_sum", x, weights);
    return this.#op("EXPERT_SUM", [x, weights], [x.ne[0], x.ne[2]]);
  }

  /** The rows a step wants results of: `[n_out, n]`. */
  out_rows(x: T): T {
    this.#want(x.ne[1] === this.bucket.n_tok && x.ne[2] === 1, "out_rows", x);
    return this.#op("GET_ROWS", [x, this.outRows], [x.ne[0], this.bucket.n_out]);
  }

  /** The `k` largest logits of each row, best first (ties: the lower id), and the log-sum-exp of the whole row. */
  top_k(logits: T, k: number): { ids: T; logits: T; lse: T } {
    const n = logits.ne[1];
    this.#want(k >= 1 && k <= logits.ne[0], `top_k k = ${k}`, logits);
    const ids = this.#add(KIND.SCRATCH, I32, [k, n], 0);
    const top = this.#add(KIND.SCRATCH, F32, [k, n], 0);
    const lse = this.#add(KIND.SCRATCH, F32, [1, n], 0);
    this.#push("TOP_K", [ids, top, lse], [logits], []);
    return { ids, logits: top, lse };
  }

  /** `logits[target] - lse` of each row; 0 where the target is -1. */
  target_logprob(logits: T, lse: T): T {
    return this.#op("TARGET_LOGPROB", [logits, lse, this.targets], [1, logits.ne[1]]);
  }

  /** The same numbers in another shape. */
  view(x: T, dims: readonly number[]): T {
    const ne = ne4(dims);
    this.#want(count(ne) === count(x.ne), `view as [${dims}]`, x);
    return this.#add(KIND.VIEW, this.#tensors[x.id].type, ne, x.id);
  }

  /** Names a result that a step can copy to the host. */
  output(name: string, x: T): void {
    this.#outputs.push({ name, tensor: x.id });
  }

  finish(): Program {
    return {
      ...this.bucket,
      tensors: this.#tensors,
      ops: this.#ops,
      weights: this.#weights,
      outputs: this.#outputs,
    };
  }

  #weight(desc: WeightDesc): T {
    const known = this.#weightIds.get(desc.name);
    if (known) return known;
    const t = this.#add(KIND.WEIGHT, desc.type, desc.ne, this.#weights.length);
    this.#weights.push(desc);
    this.#weightIds.set(desc.name, t);
    return t;
  }

  #use(w: T, use: number): void {
    const desc = this.#tensors[w.id];
    if (desc.kind === KIND.WEIGHT) this.#weights[desc.ref].uses |= use;
  }

  #op(op: OpName, src: T[], dims: readonly number[], params: number[] = []): T {
    const dst = this.#add(KIND.SCRATCH, F32, dims, 0);
    this.#push(op, [dst], src, params);
    return dst;
  }

  #push(op: OpName, dst: T[], src: T[], params: number[]): void {
    const info = OPS[op];
    if (dst.length !== info.n_dst || src.length < info.n_src || params.length !== info.params.length) {
      throw new Error(`${op}: wrong number of operands`);
    }
    this.#ops.push({ op, device: this.device, dst: dst.map((t) => t.id), src: src.map((t) => t.id), params });
  }

  #add(kind: number, type: GgmlType, dims: readonly number[], ref: number): T {
    const ne = ne4(dims);
    const id = this.#tensors.length;
    this.#tensors.push({ kind, type, ne, ref, device: this.device });
    const t: T = {
      id,
      ne,
      heads: (n_head) =>
        this.view(t, [t.ne[0] * t.ne[1] * t.ne[2] / n_head / this.bucket.n_tok, n_head, this.bucket.n_tok]),
      flat: () => this.view(t, [t.ne[0] * t.ne[1], t.ne[2]]),
    };
    return t;
  }

  #want(ok: boolean, what: string, ...ts: T[]): void {
    if (!ok) throw new Error(`${what}: shapes do not fit: ${ts.map((t) => `[${t.ne}]`).join(", ")}`);
  }
}
