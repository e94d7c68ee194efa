/**
 * DeepSeek V4 (`deepseek4`). One key head whose rows are keys and values at once; a layer sees the last positions as they are and
 * older ones as compressed rows: one for `ratio` positions, pooled channel by channel. With ratio 4 groups overlap and an indexer
 * picks rows; with larger ratios all are read. Results are rotated back; the output matrix works on groups of heads.
 * Hyper-connections; experts by sqrt(softplus), in the first layers by a table of token ids.
 * Source: DeepSeek-V4 Technical Report; huggingface/transformers `modeling_deepseek_v4.py`.
 * @module
 */
import { ModelError } from "../errors.ts";
import type { Ops, Segment, Stream, T, Weights } from "../program/program.ts";
import type { Architecture, Spec } from "./architecture.ts";
import { embed, linear, readSpec, unembed } from "./decoder.ts";
import { around, collapse, type HyperSpec, outStreams, readHyper, streamsOf } from "./hyper.ts";
import { type IndexerSpec, indexQueries, readIndexer } from "./indexer.ts";
import type { Keys } from "./keys.ts";
import { type Clamps, readClamps, readSharedMoe, sharedMoeFfn, type SharedMoeSpec, V3_ROUTER } from "./moe.ts";
import { readRope, type Rope } from "./rope.ts";

export interface DeepSeek4Spec extends Spec, SharedMoeSpec {
  readonly n_head: number;
  readonly head_dim: number;
  readonly n_rot: number;
  readonly q_lora_rank: number;
  readonly o_groups: number;
  readonly o_lora_rank: number;
  readonly norm_eps: number;
  readonly window: number;
  /** Of each block: positions of a compressed row; 0: the layer has none. */
  readonly ratios: readonly number[];
  readonly rope: Rope;
  /** Of layers with compressed rows. */
  readonly rope_compress: Rope;
  readonly indexer: IndexerSpec;
  readonly hyper: HyperSpec;
  readonly clamps: Clamps;
  /** Leading layers whose experts a table gives. */
  readonly n_hash: number;
}

export function readDeepSeek4(k: Keys): DeepSeek4Spec {
  const s = readSpec(k), n_block = s.n_layer + s.n_nextn, head_dim = k.u32("attention.key_length");
  const n_rot = k.u32("rope.dimension_count"), n_head = k.u32("attention.head_count");
  const o_groups = k.u32("attention.output_group_count"), window = k.u32("attention.sliding_window");
  k.want(n_rot >= 2 && n_rot % 2 === 0 && n_rot <= head_dim, "rope.dimension_count", n_rot, `even, up to ${head_dim}`);
  k.want(n_head >= 1 && n_head % o_groups === 0, "attention.output_group_count", o_groups, `a divisor of ${n_head}`);
  k.want(window >= 1, "attention.sliding_window", window, "at least 1");
  const n_head_kv = k.u32("attention.head_count_kv", 1);
  k.want(n_head_kv === 1, "attention.head_count_kv", n_head_kv, "1");
  // Of no effect: every layer has the window; the width of what a draft block reads.
  k.perLayer("attention.sliding_window_pattern", s.n_layer, 1);
  k.u32("embedding_length_out", 0);
  const ffn = readSharedMoe(k, s.n_layer, { ...V3_ROUTER, score: "sqrt_softplus" });
  checkHashTables(k, s.n_layer, ffn.moe.n_expert);
  return {
    ...s,
    ...ffn,
    n_head,
    head_dim,
    n_rot,
    q_lora_rank: k.u32("attention.q_lora_rank"),
    o_groups,
    o_lora_rank: k.u32("attention.output_lora_rank"),
    norm_eps: k.f32("attention.layer_norm_rms_epsilon"),
    window,
    ratios: k.perLayer("attention.compress_ratios", n_block),
    // YaRN is for compressed rows only, and its factor on cos and sin is never applied.
    rope: readRope(k, n_rot, { scaled: false }),
    rope_compress: readRope(k, n_rot, { freq_base: k.f32("attention.compress_rope_freq_base"), mscale: 1 }),
    indexer: readIndexer(k),
    hyper: readHyper(k),
    clamps: readClamps(k, n_block),
    n_hash: k.u32("hash_layer_count", 0),
  };
}

/** Kernels use the ids of these tables to find an expert, so they are checked before anything runs. */
function checkHashTables(k: Keys, n_layer: number, n_expert: number): void {
  for (let il = 0; il < n_layer; il++) {
    const t = k.file.find(`blk.${il}.ffn_gate_tid2eid.weight`);
    if (t?.type.name !== "i32") continue; // binding refuses a table that is missing or has another type
    const ids = new Int32Array(k.file.readTensor(t).slice().buffer);
    const bad = ids.find((id) => id < 0 || id >= n_expert);
    if (bad === undefined) continue;
    throw new ModelError(
      "model.tensor_value",
      `Cannot run ${k.file.name}: tensor "${t.name}" names expert ${bad}, expected 0 to ${n_expert - 1}`,
      { at: { file: k.file.name, tensor: t.name, got: bad, expected: n_expert } },
    );
  }
}

/** Rotates the last numbers of each head by the layer's table. */
export function turn(
  op: Ops,
  s: DeepSeek4Spec,
  il: number,
  y: T,
  options: { inverse?: boolean; shift?: number } = {},
): T {
  const freqs = s.ratios[il] > 0
    ? op.constant("rope.inv_freq_compress", s.rope_compress.inv_freq)
    : op.constant("rope.inv_freq", s.rope.inv_freq);
  return op.rope(y, freqs, { kind: "pairs", offset: y.ne[0] - s.n_rot, ...options });
}

/** Attention over the window and `rows`, through the output matrices. q `[head_dim, n_head, n_tok]`, x the layer's input, normed. */
export function attend(op: Ops, w: Weights, s: DeepSeek4Spec, il: number, x: T, q: T, rows?: Segment): T {
  const { head_dim, n_head, o_groups, o_lora_rank } = s;
  const kv = op.rms_norm(linear(op, w, "attn_kv", x, head_dim), w("attn_kv_a_norm", [head_dim]), s.norm_eps);
  const near = op.stream(`blk.${il}.k`, head_dim, { role: "k", window: s.window });
  op.write(turn(op, s, il, kv.heads(1)), near);
  const y = op.attention(turn(op, s, il, q), { k: near }, {
    scale: head_dim ** -0.5,
    n_head_kv: 1,
    sinks: w("attn_sinks", [n_head]),
    ...(rows ? { b: rows } : {}),
  });
  const width = n_head * head_dim / o_groups;
  const z = op.mul_mat(
    w("attn_output_a", [width, o_lora_rank, o_groups], { reshape: true }),
    turn(op, s, il, y, { inverse: true }).heads(o_groups), //                              [width, o_groups, n_tok]
  );
  return linear(op, w, "attn_output_b", z.flat(), s.n_embd);
}

/** Compressed rows of `n` numbers, each from `ratio` positions (with overlap also from the `ratio` before them). */
function compressed(op: Ops, w: Weights, s: DeepSeek4Spec, il: number, x: T, of: string, n: number): Stream {
  const ratio = s.ratios[il], overlap = ratio === 4, width = overlap ? 2 * n : n;
  const raw = (part: "kv" | "gate") => {
    const rows = op.stream(`blk.${il}.${of}_${part}`, width, { role: "f32", window: overlap ? 2 * ratio : ratio });
    op.write(linear(op, w, `${of}_${part}`, x, width), rows);
    return rows;
  };
  const k = raw("kv"), z = raw("gate");
  const pooled = op.pool("softmax", k, ratio, { z, ape: w(`${of}_ape`, [width, ratio]), overlap });
  const row = op.rms_norm(pooled, w(`${of}_norm`, [n]), s.norm_eps).heads(1);
  const rows = op.stream(`blk.${il}.${of}`, n, { role: "k", ratio });
  op.write(turn(op, s, il, row, { shift: 1 - ratio }), rows); // at the group's first position
  return rows;
}

function attention(op: Ops, s: DeepSeek4Spec, il: number, x: T): T {
  const w = op.weights(`blk.${il}`), ratio = s.ratios[il], { n_head, head_dim, indexer } = s;
  const latent = op.rms_norm(
    linear(op, w, "attn_q_a", x, s.q_lora_rank),
    w("attn_q_a_norm", [s.q_lora_rank]),
    s.norm_eps,
  );
  const q = op.rms_norm(linear(op, w, "attn_q_b", latent, n_head * head_dim).heads(n_head), undefined, s.norm_eps);
  if (ratio === 0) return attend(op, w, s, il, x, q);
  const k = compressed(op, w, s, il, x, "attn_compressor", head_dim);
  if (ratio !== 4) return attend(op, w, s, il, x, q, { k });
  const keys = compressed(op, w, s, il, x, "indexer_compressor", indexer.head_dim);
  const by = indexQueries(op, w, indexer, x, latent);
  const options = { scale: indexer.head_dim ** -0.5, w: by.heads };
  return attend(op, w, s, il, x, q, { k, select: op.index(turn(op, s, il, by.q), keys, indexer.top_k, options) });
}

/** Experts, and the shared one. */
export function ffn(op: Ops, s: DeepSeek4Spec, il: number, x: T): T {
  const w = op.weights(`blk.${il}`), moe = { ...s.moe, act: s.clamps.routed[il] };
  const given = il < s.n_hash
    ? op.get_rows(w("ffn_gate_tid2eid", [moe.n_expert_used, s.n_vocab]), op.tokens)
    : undefined;
  return sharedMoeFfn(op, w, { ...s, moe }, il, x, { act: s.clamps.shared[il], given });
}

/** Both sublayers of a block on the streams h `[n_embd, n_stream, n_tok]`. */
function layer(op: Ops, s: DeepSeek4Spec, il: number, h: T): T {
  const w = op.weights(`blk.${il}`);
  const normed = (x: T, name: string) => op.rms_norm(x, w(name, [s.n_embd]), s.norm_eps);
  h = around(op, w, s.hyper, "attn", h, (x) => attention(op, s, il, normed(x, "attn_norm")));
  return around(op, w, s.hyper, "ffn", h, (x) => ffn(op, s, il, normed(x, "ffn_norm")));
}

/** The sum of the wanted rows' streams by weights of its own, then norm and head. */
function hyperHead(op: Ops, s: DeepSeek4Spec, w: Weights, norm: T, h: T): T {
  const n = s.hyper.n_stream, out = outStreams(op, h);
  const m = op.mul_mat(w("output_hc_fn", [n * s.n_embd, n]), op.rms_norm(out.flat(), undefined, s.norm_eps));
  const biased = op.add(op.mul(m, w("output_hc_scale", [1])), w("output_hc_base", [n]));
  const pre = op.scale(op.unary("sigmoid", biased), 1, s.hyper.eps);
  return unembed(op, s, op.rms_norm(collapse(op, out, pre.heads(1)), norm, s.norm_eps));
}

function build(op: Ops, s: DeepSeek4Spec): T {
  let h = streamsOf(op, embed(op, s), s.hyper.n_stream);
  for (let il = 0; il < s.n_layer; il++) h = layer(op, s, il, h);
  return hyperHead(op, s, op.weights(), op.weights()("output_norm", [s.n_embd]), h);
}

/** Draft blocks take the streams of the layer before them: each stream beside the token's embedding goes through one matrix. */
function draft(op: Ops, s: DeepSeek4Spec): void {
  for (let il = s.n_layer; il < s.n_layer + s.n_nextn; il++) {
    const w = op.weights(`blk.${il}.nextn`);
    const norm = (y: T, name: string) => op.rms_norm(y, w(name, [s.n_embd]), s.norm_eps);
    const token = embed(op, s), streams = streamsOf(op, token, s.hyper.n_stream); // stand for the trunk's
    const both = op.concat([streamsOf(op, norm(token, "enorm"), s.hyper.n_stream), norm(streams, "hnorm")]);
    const h = layer(op, s, il, op.mul_mat(w("eh_proj", [2 * s.n_embd, s.n_embd]), both));
    hyperHead(op, s, w, w("shared_head_norm", [s.n_embd]), h);
  }
}

export const deepseek4: Architecture<DeepSeek4Spec> = {
  names: ["deepseek4"],
  spec: (k) => {
    const s = readDeepSeek4(k), odd = s.ratios.find((r) => r !== 0 && r < 4);
    k.want(odd === undefined, "attention.compress_ratios", odd, "0, 4 or more");
    return s;
  },
  build,
  draft,
};
