/**
 * Multi-head latent attention: keys and values of all heads are two matrices of one latent vector `c` a token, and one rotated
 * key part that heads share. It is run in the absorbed form: the key matrix goes to the query's side, so that the cache holds
 * `[c | k_rope]` and attention has a single key head whose values are `c`.
 *
 * Sources: DeepSeek-V2 (arXiv 2405.04434) §2.1 and appendix C; huggingface/transformers `modeling_deepseek_v3.py`,
 * `modeling_mistral4.py` (query temperature).
 * @module
 */
import type { RopeKind } from "../program/ops.ts";
import type { Ops, Segment, T, Weights } from "../program/program.ts";
import type { Spec } from "./architecture.ts";
import { linear } from "./decoder.ts";
import type { Keys } from "./keys.ts";
import { readRope, readYarn, type Rope, yarnFactor } from "./rope.ts";
import { queryFactor, readTemperature, type Temperature } from "./temperature.ts";

export interface MlaSpec {
  readonly n_head: number;
  /** 0: queries come straight from the layer's input. */
  readonly q_lora_rank: number;
  readonly kv_lora_rank: number;
  readonly qk_nope_head_dim: number;
  /** 0: keys have no part outside the latent. */
  readonly qk_rope_head_dim: number;
  readonly v_head_dim: number;
  /** Of the norms on latents. */
  readonly latent_eps: number;
  readonly attn_scale: number;
  /** Undefined: nothing is rotated. */
  readonly mla_rope: Rope | undefined;
  readonly rope_kind: RopeKind;
  readonly temperature: Temperature | undefined;
}

/** What a family sets itself. */
export interface MlaOptions {
  /** Of the norms on latents, where the file does not say: the default of the released classes is 1e-6 whatever `rms_norm_eps`. */
  readonly latent_eps?: number;
  readonly rotates?: boolean;
  /** Pairs where left out. */
  readonly rope_kind?: RopeKind;
  /** Where the file does not say. */
  readonly v_head_dim?: number;
  /** Query temperature where the file does not say. */
  readonly temperature_scale?: number;
}

/** @throws {ModelError} `model.key_value`, `model.missing_key`, `model.key_type` */
export function readMla(k: Keys, s: Spec, options: MlaOptions = {}): MlaSpec {
  // Zero on layers of other kinds.
  const heads = k.perLayer("attention.head_count", s.n_layer).filter((n) => n > 0);
  k.want(heads.length > 0 && heads.every((n) => n === heads[0]), "attention.head_count", heads, "one number");
  const n_rope = k.u32("rope.dimension_count"), n_qk = k.u32("attention.key_length_mla", k.u32("attention.key_length"));
  k.want(n_rope % 2 === 0 && n_rope < n_qk, "rope.dimension_count", n_rope, `an even number below the head's ${n_qk}`);
  const kv_lora_rank = k.u32("attention.kv_lora_rank");
  k.want(kv_lora_rank >= 1, "attention.kv_lora_rank", kv_lora_rank, "at least 1");

  const yarn = k.str("rope.scaling.type", "linear") === "yarn" ? readYarn(k) : undefined;
  // Converters of these families write 0.1 mscale_all_dim. They do not write mscale, which released models have equal to it: then
  // the factors on cos and sin cancel.
  const mscale_all_dim = (yarn?.mscale_all_dim ?? 0) / 0.1;
  const factor = yarn ? yarnFactor(yarn.factor, mscale_all_dim) : 1;
  const rope = readRope(k, n_rope, mscale_all_dim === 0 ? {} : { mscale: 1 });

  return {
    n_head: heads[0],
    q_lora_rank: k.u32("attention.q_lora_rank", 0),
    kv_lora_rank,
    qk_nope_head_dim: n_qk - n_rope,
    qk_rope_head_dim: n_rope,
    v_head_dim: k.u32("attention.value_length_mla", 0) || k.u32("attention.value_length", options.v_head_dim),
    latent_eps: k.f32("attention.latent_norm_rms_epsilon", options.latent_eps ?? 1e-6),
    attn_scale: n_qk ** -0.5 * factor ** 2,
    mla_rope: options.rotates === false || n_rope === 0 ? undefined : rope,
    rope_kind: options.rope_kind ?? "pairs",
    temperature: readTemperature(k, options.temperature_scale),
  };
}

/** What a layer adds to plain latent attention. */
export interface MlaParts {
  /** Chooses the rows that are read, from the query's latent `[q_lora_rank, n_tok]`. */
  readonly select?: (latent: T) => Pick<Segment, "select" | "unit">;
  /** `[n_head * v_head_dim, n_tok]`: its sigmoid multiplies the heads' results. */
  readonly gate?: T;
}

/** Attention of layer `il` over x `[n_embd, n_tok]`, normed -> `[n_embd, n_tok]`. */
export function mla(op: Ops, w: Weights, s: MlaSpec, il: number, x: T, parts: MlaParts = {}): T {
  const { n_head, q_lora_rank, kv_lora_rank, qk_nope_head_dim: n_nope, qk_rope_head_dim: n_rope, v_head_dim } = s;
  const rotated = (y: T) =>
    s.mla_rope
      ? op.rope(y, op.constant("rope.inv_freq", s.mla_rope.inv_freq), { kind: s.rope_kind, mscale: s.mla_rope.mscale })
      : y;
  const tempered = (y: T) => s.temperature ? op.mul(y, queryFactor(op, s.temperature)) : y;
  const joined = (nope: T, rope?: T) => rope ? op.concat([nope, rope]) : nope;

  let latent: T | undefined;
  if (q_lora_rank > 0) {
    latent = op.rms_norm(linear(op, w, "attn_q_a", x, q_lora_rank), w("attn_q_a_norm", [q_lora_rank]), s.latent_eps);
  }
  const n_q = n_head * (n_nope + n_rope);
  const q = (latent ? linear(op, w, "attn_q_b", latent, n_q) : linear(op, w, "attn_q", x, n_q)).heads(n_head);
  const q_rope = n_rope > 0 ? rotated(q.slice(n_nope, n_rope)) : undefined; //             [n_rope, n_head, n_tok]

  const a = linear(op, w, "attn_kv_a_mqa", x, kv_lora_rank + n_rope);
  const c = op.rms_norm(a.slice(0, kv_lora_rank), w("attn_kv_a_norm", [kv_lora_rank]), s.latent_eps);
  const k_rope = n_rope > 0 ? rotated(a.slice(kv_lora_rank, n_rope).heads(1)) : undefined; // [n_rope, 1, n_tok]
  const chosen = parts.select && latent ? parts.select(latent) : {};

  let o: T; //                                                                             [v_head_dim, n_head, n_tok]
  if (w.has("attn_kv_b") && !w.has("attn_k_b")) {
    // Files of early converters keep both matrices in one: keys and values of each head are worked out and cached.
    const u = op.mul_mat(w("attn_kv_b", [kv_lora_rank, n_head * (n_nope + v_head_dim)]), c).heads(n_head);
    const ones = op.constant(`ones.${n_head}`, new Float32Array(n_head).fill(1), [1, n_head]);
    const k = joined(u.slice(0, n_nope), k_rope && op.mix(k_rope, ones));
    const kv = op.kv(`blk.${il}`, k, u.slice(n_nope, v_head_dim));
    const query = tempered(joined(q.slice(0, n_nope), q_rope));
    o = op.attention(query, { ...kv, ...chosen }, { scale: s.attn_scale, n_head_kv: n_head });
  } else {
    const keys = op.stream(`blk.${il}.k`, kv_lora_rank + n_rope, { role: "k" });
    op.write(joined(c.heads(1), k_rope), keys);
    const absorbed = op.mul_mat(w("attn_k_b", [n_nope, kv_lora_rank, n_head], { reshape: true }), q.slice(0, n_nope));
    const query = tempered(joined(absorbed, q_rope)); //                                   [r + n_rope, n_head, n_tok]
    const options = { scale: s.attn_scale, n_head_kv: 1, dv: kv_lora_rank };
    const y = op.attention(query, { k: keys, ...chosen }, options); //                     [r, n_head, n_tok]
    o = op.mul_mat(w("attn_v_b", [kv_lora_rank, v_head_dim, n_head], { reshape: true }), y);
  }
  return linear(
    op,
    w,
    "attn_output",
    (parts.gate ? op.gate("sigmoid", parts.gate.heads(n_head), o) : o).flat(),
    x.ne[0],
  );
}
