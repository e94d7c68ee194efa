/**
 * What many decoders share: their hyper-parameters, and blocks of the forward pass that at least three families use as they
 * are. Sources: the family files.
 * @module
 */
import type { GateKind, UnaryKind } from "../program/ops.ts";
import type { Ops, T, Weights } from "../program/program.ts";
import type { Spec } from "./architecture.ts";
import type { Keys } from "./keys.ts";
import { readRope, type Rope, ropeContext, type RopeOptions } from "./rope.ts";

export interface DecoderSpec extends Spec {
  readonly n_head: number;
  readonly n_head_kv: number;
  /** Of queries and keys. */
  readonly head_dim: number;
  readonly head_dim_v: number;
  readonly n_ff: number;
  readonly norm_eps: number;
  readonly rope: Rope;
  /** Factor on q k; `head_dim^-0.5` unless the file says otherwise. */
  readonly attn_scale: number;
}

/** Layers, width, vocabulary and context: what every family has. */
export function readSpec(k: Keys): Spec {
  const n_nextn = k.u32("nextn_predict_layers", 0), n_block = k.u32("block_count"), n_embd = k.u32("embedding_length");
  k.want(n_block >= 1 && n_block <= 4096, "block_count", n_block, "1 to 4096");
  k.want(n_nextn < n_block, "nextn_predict_layers", n_nextn, `less than block_count ${n_block}`);
  k.want(n_embd >= 1, "embedding_length", n_embd, "at least 1");
  return {
    arch: k.arch,
    n_layer: n_block - n_nextn,
    n_nextn,
    n_embd,
    n_vocab: k.file.tensor("token_embd.weight").ne[1] ?? 1,
    n_ctx_train: ropeContext(k, k.u32("context_length")),
  };
}

/** Files of families with LayerNorm name their epsilon otherwise; some have both. */
function normEps(k: Keys): number {
  const layer = "attention.layer_norm_epsilon", rms = "attention.layer_norm_rms_epsilon";
  const eps = k.has(layer) ? k.f32(rms, 0) : k.f32(rms);
  return k.f32(layer, eps);
}

/**
 * Reads and checks the keys of a decoder with grouped-query attention, the same for all layers.
 * @throws {ModelError} `model.missing_key`, `model.key_type`, `model.key_value`, `model.missing_tensor`
 */
export function readDecoderSpec(k: Keys, rope: RopeOptions = {}): DecoderSpec {
  const { n_layer } = readSpec(k), n_head = k.uniform("attention.head_count", n_layer);
  const n_ff = k.uniform("feed_forward_length", n_layer, 0);
  return withWidths(k, { n_head, n_head_kv: k.uniform("attention.head_count_kv", n_layer, n_head), n_ff }, rope);
}

/** A decoder whose layers differ: some have attention, others something else. */
export interface HybridSpec extends DecoderSpec {
  /** Layers with key heads. */
  readonly attends: readonly boolean[];
}

/**
 * As `readDecoderSpec`; heads and `n_ff` may be 0 on layers of other kinds.
 * @throws {ModelError} `model.missing_key`, `model.key_type`, `model.key_value`, `model.missing_tensor`
 */
export function readHybridSpec(k: Keys): HybridSpec {
  const { n_layer } = readSpec(k);
  const one = (key: string, values: readonly number[]) => {
    const [n = 0, ...others] = new Set(values.filter((v) => v !== 0));
    k.want(others.length === 0, key, values, "one number, and 0 on layers of other kinds");
    return n;
  };
  const n_head = one("attention.head_count", k.perLayer("attention.head_count", n_layer));
  const kv = k.perLayer("attention.head_count_kv", n_layer, n_head);
  const n_ff = one("feed_forward_length", k.perLayer("feed_forward_length", n_layer, 0));
  const n_head_kv = one("attention.head_count_kv", kv);
  return { ...withWidths(k, { n_head, n_head_kv, n_ff }, {}), attends: kv.map((n) => n > 0) };
}

function withWidths(
  k: Keys,
  widths: Pick<DecoderSpec, "n_head" | "n_head_kv" | "n_ff">,
  rope: RopeOptions,
): DecoderSpec {
  const s = readSpec(k), { n_embd } = s, { n_head, n_head_kv } = widths;
  k.want(n_head >= 1, "attention.head_count", n_head, "at least 1");
  k.want(
    n_head_kv >= 1 && n_head % n_head_kv === 0,
    "attention.head_count_kv",
    n_head_kv,
    `a divisor of head_count ${n_head}`,
  );
  const head_dim = k.u32("attention.key_length", Math.floor(n_embd / n_head));
  const n_rot = k.u32("rope.dimension_count", head_dim);
  k.want(
    n_rot >= 2 && n_rot % 2 === 0 && n_rot <= head_dim,
    "rope.dimension_count",
    n_rot,
    `an even number up to the head's ${head_dim}`,
  );
  return {
    ...s,
    ...widths,
    head_dim,
    head_dim_v: k.u32("attention.value_length", Math.floor(n_embd / n_head)),
    norm_eps: normEps(k),
    rope: readRope(k, n_rot, rope),
    attn_scale: k.f32("attention.scale", 0) || head_dim ** -0.5,
  };
}

/** Rows of the embedding table: `[n_embd, n_tok]`. */
export function embed(op: Ops, s: Spec): T {
  return op.get_rows(op.weights()("token_embd", [s.n_embd, s.n_vocab]), op.tokens);
}

/** The head, tied to the embedding where the file has no `output.weight`: `[n_vocab, n_out]`. */
export function unembed(op: Ops, s: Spec, x: T): T {
  op.hidden(x);
  const w = op.weights();
  return w.has("output")
    ? linear(op, w, "output", x, s.n_vocab)
    : op.mul_mat(w("token_embd", [s.n_embd, s.n_vocab]), x);
}

/** Final norm of the wanted rows, and the head. */
export function head(op: Ops, s: Spec & { readonly norm_eps: number }, x: T): T {
  return unembed(op, s, op.rms_norm(op.out_rows(x), op.weights()("output_norm", [s.n_embd]), s.norm_eps));
}

/** LayerNorm, with a bias where the file has one. */
export function layerNorm(op: Ops, w: Weights, name: string, x: T, eps: number): T {
  return op.norm("layer", x, w(name, [x.ne[0]]), eps, w.opt(`${name}.bias`, [x.ne[0]]));
}

/** `head` of families with LayerNorm. */
export function layerNormHead(op: Ops, s: Spec & { readonly norm_eps: number }, x: T): T {
  return unembed(op, s, layerNorm(op, op.weights(), "output_norm", op.out_rows(x), s.norm_eps));
}

/** `W x`, times the matrix's scale and plus its bias where the file has them. */
export function linear(op: Ops, w: Weights, name: string, x: T, n_out: number): T {
  const y = op.mul_mat(w(name, [x.ne[0], n_out]), x);
  const scale = w.opt(`${name}.scale`, [1]);
  const bias = w.opt(`${name}.bias`, [n_out]);
  const scaled = scale ? op.mul(y, scale) : y;
  return bias ? op.add(scaled, bias) : scaled;
}

/** Queries, keys and values, `[d, heads, n_tok]`, from three matrices or one. */
export function qkv(
  op: Ops,
  w: Weights,
  s: Pick<DecoderSpec, "n_head" | "n_head_kv" | "head_dim" | "head_dim_v">,
  x: T,
  clamp = 0,
): { q: T; k: T; v: T } {
  const cut = (y: T) => clamp > 0 ? op.unary("clamp", y, -clamp, clamp) : y;
  const n_q = s.n_head * s.head_dim, n_k = s.n_head_kv * s.head_dim, n_v = s.n_head_kv * s.head_dim_v;
  let q, k, v: T;
  if (w.has("attn_qkv")) {
    const all = cut(linear(op, w, "attn_qkv", x, n_q + n_k + n_v));
    [q, k, v] = [all.slice(0, n_q), all.slice(n_q, n_k), all.slice(n_q + n_k, n_v)];
  } else {
    q = cut(linear(op, w, "attn_q", x, n_q));
    k = cut(linear(op, w, "attn_k", x, n_k));
    v = cut(linear(op, w, "attn_v", x, n_v));
  }
  return { q: q.heads(s.n_head), k: k.heads(s.n_head_kv), v: v.heads(s.n_head_kv) };
}

/** What a family does in attention besides the common part. */
export interface AttentionOptions {
  /** What queries and keys `[head_dim, heads, n_tok]` go through before they meet: norms, rotation. */
  turn(y: T, of: "q" | "k"): T;
  /** The nearest positions that a token sees; 0 or left out: all. */
  readonly window?: number;
  /** Of encoders: the positions that a token sees on each side; `Infinity`: all of its text. */
  readonly around?: number;
  /** `[n_head]` logits that take weight and give no value. */
  readonly sinks?: T | undefined;
  /** Scores go through `a tanh(x / a)`; 0 or left out: as they are. */
  readonly softcap?: number;
  /** Queries, keys and values are cut to `[-clamp, clamp]` before anything else; 0 or left out: as they are. */
  readonly clamp?: number;
}

/** RMSNorm of queries or keys over all heads together, for families whose weight is as wide: `[head_dim, heads, n_tok]`. */
export function wholeNorm(op: Ops, w: Weights, of: "q" | "k", y: T, eps: number): T {
  const flat = y.flat();
  return op.rms_norm(flat, w(`attn_${of}_norm`, [flat.ne[0]]), eps).heads(y.ne[1]);
}

/** Grouped-query attention of layer `il` over normed rows, through the output matrix: `[n_embd, n_tok]`. */
export function selfAttention(
  op: Ops,
  w: Weights,
  s: Pick<DecoderSpec, "n_embd" | "n_head" | "n_head_kv" | "head_dim" | "head_dim_v" | "attn_scale">,
  il: number,
  x: T,
  options: AttentionOptions,
): T {
  const { turn, around, sinks, softcap = 0, clamp = 0 } = options;
  const { q, k, v } = qkv(op, w, s, x, clamp);
  const window = around === undefined ? options.window ?? 0 : around === Infinity ? 0 : around + 1;
  const kv = op.kv(`blk.${il}`, turn(k, "k"), v, { window, exact: around !== undefined });
  const y = op.attention(turn(q, "q"), kv, {
    scale: s.attn_scale,
    n_head_kv: s.n_head_kv,
    softcap,
    ahead: around ?? 0,
    ...(sinks ? { sinks } : {}),
  });
  return linear(op, w, "attn_output", y.flat(), s.n_embd);
}

/**
 * Which layers see a window only, from `attention.sliding_window_pattern`: a flag a layer, or a number n: every n-th layer sees
 * all.
 * @param period n where the file says nothing.
 */
export function slidingLayers(k: Keys, n_layer: number, period: number): boolean[] {
  const key = "attention.sliding_window_pattern";
  const n = k.isArray(key) ? 0 : k.u32(key, period);
  const flags = k.isArray(key) ? k.perLayer(key, n_layer) : [];
  return Array.from({ length: n_layer }, (_, il) => n > 0 ? il % n < n - 1 : (flags[il] ?? 0) !== 0);
}

/** An activation of the gate times the up projection. */
export interface Act {
  readonly kind: GateKind;
  readonly a?: number;
  readonly b?: number;
}
export const SILU: Act = { kind: "silu" };

/** `down(act(gate x) * up x)`; `suffix` `_shexp` for a shared expert. */
export function gatedFfn(op: Ops, w: Weights, x: T, n_ff: number, act: Act = SILU, suffix = ""): T {
  const gate = linear(op, w, `ffn_gate${suffix}`, x, n_ff);
  const up = linear(op, w, `ffn_up${suffix}`, x, n_ff);
  return linear(op, w, `ffn_down${suffix}`, op.gate(act.kind, gate, up, act.a, act.b), x.ne[0]);
}

/** `gatedFfn` of families that keep gate and up in one matrix, under the name of the latter. */
export function fusedFfn(op: Ops, w: Weights, x: T, n_ff: number, act: Act = SILU): T {
  const both = linear(op, w, "ffn_up", x, 2 * n_ff);
  const y = op.gate(act.kind, both.slice(0, n_ff), both.slice(n_ff, n_ff), act.a, act.b);
  return linear(op, w, "ffn_down", y, x.ne[0]);
}

/** `down(act(up x))`; `suffix` as in `gatedFfn`. */
export function plainFfn(op: Ops, w: Weights, x: T, n_ff: number, act: UnaryKind, suffix = ""): T {
  return linear(op, w, `ffn_down${suffix}`, op.unary(act, linear(op, w, `ffn_up${suffix}`, x, n_ff)), x.ne[0]);
}
