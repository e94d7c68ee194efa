/**
 * Routed experts: the router's rule as data, and the feed-forward block all routed families share.
 * @module
 */
import type { ScoreKind, UnaryKind } from "../program/ops.ts";
import type { Ops, T, Weights } from "../program/program.ts";
import { type Act, gatedFfn, linear, SILU } from "./decoder.ts";
import type { Keys } from "./keys.ts";

export interface MoeSpec {
  readonly n_expert: number;
  readonly n_expert_used: number;
  /** Width of one routed expert. */
  readonly n_ff_exp: number;
  readonly score: ScoreKind;
  /** Weights are divided by their sum, as `max(sum + sum_add, sum_min)`. */
  readonly renorm: boolean;
  readonly sum_add: number;
  readonly sum_min: number;
  readonly scale: number;
  readonly groups: number;
  readonly groups_used: number;
  /** A group is ranked by the sum of this many of its best experts. */
  readonly group_top: number;
  /** The router's logits go through `a tanh(x / a)` first; 0: as they are. */
  readonly softcap: number;
  readonly act: Act;
  /** Experts without a gate: what their up projection goes through. */
  readonly plain: UnaryKind | undefined;
}

/** The smallest divisor of a renormalisation (the half-precision minimum, as the field uses it). */
export const SUM_MIN = 6.103515625e-5;

/** The rule of DeepSeek V3 (arXiv 2412.19437 §2.1.2): sigmoid scores, chosen with a bias, divided by their sum. */
export const V3_ROUTER: Partial<MoeSpec> = { score: "sigmoid", renorm: true, sum_add: 1e-20, sum_min: 0 };

const SCORES: Record<number, ScoreKind> = { 1: "softmax", 2: "sigmoid", 4: "sqrt_softplus" };

/**
 * Reads `expert_*`. `defaults` is the family's rule where the file says nothing.
 * @throws {ModelError} `model.key_value`, `model.missing_key`, `model.key_type`
 */
export function readMoe(k: Keys, defaults: Partial<MoeSpec> = {}): MoeSpec {
  const n_expert = k.u32("expert_count", 0), n_expert_used = n_expert > 0 ? k.u32("expert_used_count") : 0;
  if (n_expert > 0) {
    k.want(
      n_expert_used >= 1 && n_expert_used <= n_expert,
      "expert_used_count",
      n_expert_used,
      `1 to expert_count ${n_expert}`,
    );
  }
  const code = k.u32("expert_gating_func", 0);
  k.want(code === 0 || code in SCORES, "expert_gating_func", code, "1, 2 or 4");
  const groups = k.u32("expert_group_count", defaults.groups ?? 1) || 1;
  k.want(n_expert % groups === 0, "expert_group_count", groups, `a divisor of expert_count ${n_expert}`);
  return {
    n_expert,
    n_expert_used,
    n_ff_exp: n_expert > 0 ? k.u32("expert_feed_forward_length", defaults.n_ff_exp) || (defaults.n_ff_exp ?? 0) : 0,
    score: SCORES[code] ?? defaults.score ?? "softmax",
    renorm: k.bool("expert_weights_norm", defaults.renorm ?? true),
    sum_add: defaults.sum_add ?? 0,
    sum_min: defaults.sum_min ?? SUM_MIN,
    scale: k.f32("expert_weights_scale", defaults.scale ?? 1) || 1,
    groups,
    groups_used: k.u32("expert_group_used_count", defaults.groups_used ?? groups) || groups,
    group_top: defaults.group_top ?? 2,
    softcap: defaults.softcap ?? 0,
    act: defaults.act ?? SILU,
    plain: defaults.plain,
  };
}

/** The experts of each row: from the router's matrix on `x`, with a selection bias where the file has one. */
export function route(op: Ops, w: Weights, m: MoeSpec, x: T, given?: T): { ids: T; weights: T } {
  const logits = linear(op, w, "ffn_gate_inp", x, m.n_expert);
  return op.router(m.softcap > 0 ? op.unary("softcap", logits, m.softcap) : logits, m.n_expert_used, {
    ...m,
    bias: w.opt("exp_probs_b.bias", [m.n_expert]),
    given,
  });
}

/** One matrix of every expert: `[n_out, k, n_tok]`, times its scale and plus its bias where the file has them. */
function expertLinear(op: Ops, w: Weights, name: string, x: T, ids: T, n_out: number, n_expert: number): T {
  let y = op.mul_mat_id(w(name, [x.ne[0], n_out, n_expert]), x, ids);
  const scale = w.opt(`${name}.scale`, [1, n_expert], { reshape: true });
  const bias = w.opt(`${name}.bias`, [n_out, n_expert]);
  if (scale) y = op.mul(y, op.get_rows(scale, ids));
  return bias ? op.add(y, op.get_rows(bias, ids)) : y;
}

/**
 * Every chosen expert's feed-forward, weighted and summed: `[n, n_tok]` for x `[n, n_tok]`, or `[n, k, n_tok]` where each expert has
 * rows of its own. Without weights: summed.
 */
export function experts(op: Ops, w: Weights, m: MoeSpec, x: T, { ids, weights }: { ids: T; weights?: T }): T {
  const { n_expert, n_ff_exp, act } = m;
  const wide = (name: string, n: number) => expertLinear(op, w, name, x, ids, n, n_expert);
  let h: T;
  if (m.plain) {
    h = op.unary(m.plain, wide("ffn_up_exps", n_ff_exp));
  } else if (w.has("ffn_gate_up_exps")) {
    const both = wide("ffn_gate_up_exps", 2 * n_ff_exp);
    h = op.gate(act.kind, both.slice(0, n_ff_exp), both.slice(n_ff_exp, n_ff_exp), act.a, act.b);
  } else {
    const gate = wide("ffn_gate_exps", n_ff_exp);
    h = op.gate(act.kind, gate, wide("ffn_up_exps", n_ff_exp), act.a, act.b);
  }
  const y = expertLinear(op, w, "ffn_down_exps", h, ids, x.ne[0], n_expert), [k] = ids.ne;
  if (weights) return op.expert_sum(y, weights);
  return op.mix(y, op.constant(`experts.ones.${k}`, new Float32Array(k).fill(1), [k, 1])).flat();
}

/** Router and experts of one layer; `given` names the experts of each row. */
export function moeFfn(op: Ops, w: Weights, m: MoeSpec, x: T, given?: T): T {
  return experts(op, w, m, x, route(op, w, m, x, given));
}

/** Feed-forward blocks of DeepSeekMoE (arXiv 2401.06066) and its relatives: the first layers dense, then routed and shared experts. */
export interface SharedMoeSpec {
  readonly n_ff: number;
  readonly n_dense: number;
  /** Of the layers behind them, those whose number (from 1) it divides are routed. */
  readonly moe_step: number;
  readonly moe: MoeSpec;
  /** Width of the shared experts together; 0: none. */
  readonly n_ff_shexp: number;
}

/** @throws {ModelError} `model.key_value`, `model.missing_key`, `model.key_type` */
export function readSharedMoe(k: Keys, n_layer: number, defaults: Partial<MoeSpec> = {}): SharedMoeSpec {
  const moe = readMoe(k, defaults), n_shared = k.u32("expert_shared_count", 0);
  return {
    n_ff: k.uniform("feed_forward_length", n_layer, 0),
    n_dense: moe.n_expert === 0 ? n_layer : k.u32("leading_dense_block_count", 0),
    moe_step: k.u32("interleave_moe_layer_step", 1) || 1,
    moe,
    n_ff_shexp: k.u32("expert_shared_feed_forward_length", 0) || moe.n_ff_exp * n_shared,
  };
}

/** Layer `il` has no experts. */
export function isDense(s: SharedMoeSpec, il: number): boolean {
  return il < s.n_dense || (il + 1) % s.moe_step !== 0;
}

/**
 * The feed-forward block of layer `il`.
 * @param options.act Of dense layers and shared experts, where it is not that of routed ones.
 * @param options.given The experts of each row, where nothing is to be chosen.
 */
export function sharedMoeFfn(
  op: Ops,
  w: Weights,
  s: SharedMoeSpec,
  il: number,
  x: T,
  options: { act?: Act; given?: T | undefined } = {},
): T {
  const { act = s.moe.act, given } = options;
  if (isDense(s, il)) return gatedFfn(op, w, x, s.n_ff, act);
  const routed = moeFfn(op, w, s.moe, x, given);
  if (s.n_ff_shexp === 0) return routed;
  const shared = gatedFfn(op, w, x, s.n_ff_shexp, act, "_shexp");
  if (!w.has("ffn_gate_inp_shexp")) return op.add(routed, shared);
  const gate = op.unary("sigmoid", linear(op, w, "ffn_gate_inp_shexp", x, 1)); //          [1, n_tok]
  return op.add(routed, op.mul(shared, gate));
}

/** Activations of layers whose SwiGLU is clamped: `[n_block]`, of routed experts, and of shared experts and dense layers. */
export interface Clamps {
  readonly routed: readonly Act[];
  readonly shared: readonly Act[];
}

/** Reads `swiglu_clamp_exp` and `swiglu_clamp_shexp`; 0 stands for no clamp. */
export function readClamps(k: Keys, n_block: number): Clamps {
  const acts = (key: string) => k.perLayer(key, n_block, 0).map((a): Act => a > 0 ? { kind: "silu_clamp", a } : SILU);
  return { routed: acts("swiglu_clamp_exp"), shared: acts("swiglu_clamp_shexp") };
}
