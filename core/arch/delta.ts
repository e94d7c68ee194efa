/**
 * Linear attention by the delta rule, with a short convolution before it and a gated norm behind it: Gated DeltaNet (one decay a
 * head) and Kimi Delta Attention (a decay for every key channel). The state is exact and sequential: a row's numbers do not
 * depend on how a prompt was cut.
 *
 * Sources: Gated Delta Networks (arXiv 2412.06464); Kimi Linear (arXiv 2510.26692); huggingface/transformers
 * `modeling_qwen3_next.py`, `modeling_kimi_linear.py`.
 * @module
 */
import type { Ops, T, Weights } from "../program/program.ts";
import { linear } from "./decoder.ts";
import type { Keys } from "./keys.ts";

export interface KdaSpec {
  readonly n_head: number;
  readonly head_dim: number;
  readonly conv_kernel: number;
  /** The log decay lies between this and 0; undefined: it has no bound. */
  readonly lower_bound: number | undefined;
  /** Inside the root of the norm of queries and keys. */
  readonly qk_eps: number;
  readonly norm_eps: number;
}

/** @throws {ModelError} `model.key_value`, `model.missing_key`, `model.key_type` */
export function readKda(k: Keys, n_head: number): KdaSpec {
  const conv_kernel = k.u32("ssm.conv_kernel"), bound = k.f32("kda.gate_lower_bound", -Infinity);
  k.want(conv_kernel >= 2, "ssm.conv_kernel", conv_kernel, "at least 2");
  k.want(bound < 0, "kda.gate_lower_bound", bound, "a negative number");
  return {
    n_head,
    head_dim: k.u32("kda.head_dim"),
    conv_kernel,
    lower_bound: bound === -Infinity ? undefined : bound,
    qk_eps: k.f32("kda.qk_norm_epsilon", 1e-6),
    norm_eps: k.f32("attention.layer_norm_rms_epsilon"),
  };
}

/** Kimi Delta Attention of layer `il` over x `[n_embd, n_tok]`, normed -> `[n_embd, n_tok]`. */
export function kda(op: Ops, w: Weights, s: KdaSpec, il: number, x: T): T {
  const { n_head, head_dim, conv_kernel } = s, n = n_head * head_dim;
  const convolved = (of: "q" | "k" | "v") =>
    op.conv(
      `blk.${il}.conv_${of}`,
      linear(op, w, `attn_${of}`, x, n),
      w(`ssm_conv1d_${of}`, [conv_kernel, n], { reshape: true }),
      { silu: true },
    ).heads(n_head); //                                                                    [head_dim, n_head, n_tok]
  const unit = (y: T) => op.norm("l2", y, undefined, s.qk_eps);
  const q = op.scale(unit(convolved("q")), head_dim ** -0.5), k = unit(convolved("k")), v = convolved("v");

  const low = linear(op, w, "ssm_f_a", x, head_dim);
  const f = op.add(op.mul_mat(w("ssm_f_b", [head_dim, n]), low), w("ssm_dt.bias", [n])).heads(n_head);
  const a = w("ssm_a", [1, n_head], { reshape: true }); // -e^A_log
  const g = s.lower_bound === undefined
    ? op.mul(op.unary("softplus", f), a)
    : op.scale(op.unary("sigmoid", op.scale(op.mul(f, a), -1)), s.lower_bound);
  const beta = op.unary("sigmoid", linear(op, w, "ssm_beta", x, n_head));
  const o = op.delta(`blk.${il}.delta`, { q, k, v, g, beta: beta.heads(n_head) });

  const z = w.has("ssm_g")
    ? linear(op, w, "ssm_g", x, n)
    : linear(op, w, "ssm_g_b", linear(op, w, "ssm_g_a", x, head_dim), n);
  const normed = op.rms_norm(o, w("ssm_norm", [head_dim]), s.norm_eps);
  return linear(op, w, "attn_output", op.gate("sigmoid", z.heads(n_head), normed).flat(), x.ne[0]);
}

export interface GatedDeltaSpec {
  readonly n_head_k: number;
  readonly n_head_v: number;
  readonly head_dim_k: number;
  readonly head_dim_v: number;
  readonly conv_kernel: number;
  readonly norm_eps: number;
  /** Value head h reads key head h mod n_head_k; otherwise neighbours share one. */
  readonly tiled: boolean;
  /** What the gate goes through. */
  readonly gate: "silu" | "sigmoid";
}

/** @throws {ModelError} `model.key_value`, `model.missing_key`, `model.key_type` */
export function readGatedDelta(k: Keys, options: Pick<GatedDeltaSpec, "tiled" | "gate">): GatedDeltaSpec {
  const n_head_k = k.u32("ssm.group_count"), n_head_v = k.u32("ssm.time_step_rank"), n_v = k.u32("ssm.inner_size");
  k.want(
    n_head_k >= 1 && n_head_v % n_head_k === 0,
    "ssm.group_count",
    n_head_k,
    `a divisor of ${n_head_v} value heads`,
  );
  k.want(n_head_v >= 1 && n_v % n_head_v === 0, "ssm.inner_size", n_v, `a multiple of ${n_head_v} value heads`);
  return {
    n_head_k,
    n_head_v,
    head_dim_k: k.u32("ssm.state_size"),
    head_dim_v: n_v / n_head_v,
    conv_kernel: k.u32("ssm.conv_kernel"),
    norm_eps: k.f32("attention.layer_norm_rms_epsilon"),
    ...options,
  };
}

/** Gated DeltaNet of layer `il` over x `[n_embd, n_tok]`, normed -> `[n_embd, n_tok]`. */
export function gatedDelta(op: Ops, w: Weights, s: GatedDeltaSpec, il: number, x: T): T {
  const { n_head_k, n_head_v, head_dim_k, head_dim_v, conv_kernel } = s;
  const n_k = n_head_k * head_dim_k, n_v = n_head_v * head_dim_v, per_k = n_head_v / n_head_k;
  let qkv: T, z: T; //                                                                     [2 n_k + n_v, n_tok], [n_v, n_tok]
  if (w.has("ssm_in")) {
    // Files of early converters: rows as the checkpoint has them, q, k, v and z of each key head together.
    const all = linear(op, w, "ssm_in", x, 2 * n_k + 2 * n_v).heads(n_head_k), of_k = per_k * head_dim_v;
    const part = (start: number, n: number) => all.slice(start, n).flat();
    qkv = op.concat([part(0, head_dim_k), part(head_dim_k, head_dim_k), part(2 * head_dim_k, of_k)]);
    z = part(2 * head_dim_k + of_k, of_k);
  } else {
    qkv = linear(op, w, "attn_qkv", x, 2 * n_k + n_v);
    z = linear(op, w, "attn_gate", x, n_v);
  }
  let b: T, alpha: T; //                                                                   [n_head_v, n_tok]
  if (w.has("ssm_ba")) {
    const both = linear(op, w, "ssm_ba", x, 2 * n_head_v).heads(n_head_k);
    b = both.slice(0, per_k).flat();
    alpha = both.slice(per_k, per_k).flat();
  } else {
    b = linear(op, w, "ssm_beta", x, n_head_v);
    alpha = linear(op, w, "ssm_alpha", x, n_head_v);
  }
  const mixed = op.conv(`blk.${il}.conv`, qkv, w("ssm_conv1d", [conv_kernel, 2 * n_k + n_v], { reshape: true }), {
    silu: true,
  });
  const unit = (y: T) => op.norm("l2", y.heads(n_head_k), undefined, 1e-6);
  const q = op.scale(unit(mixed.slice(0, n_k)), head_dim_k ** -0.5), k = unit(mixed.slice(n_k, n_k));
  const v = mixed.slice(2 * n_k, n_v).heads(n_head_v);
  const step = op.unary("softplus", op.add(alpha, w("ssm_dt.bias", [n_head_v])));
  const g = op.mul(step, w("ssm_a", [n_head_v], { reshape: true })).heads(n_head_v); //    ssm_a = -e^A_log
  const beta = op.unary("sigmoid", b).heads(n_head_v);
  const o = op.delta(`blk.${il}.delta`, { q, k, v, g, beta }, { tiled: s.tiled });
  const normed = op.rms_norm(o, w("ssm_norm", [head_dim_v]), s.norm_eps);
  return linear(op, w, "ssm_out", op.gate(s.gate, z.heads(n_head_v), normed).flat(), x.ne[0]);
}
