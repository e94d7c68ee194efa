/**
 * State space layers: Mamba 2 (one decay a head) and Mamba (a decay for every channel and state). Both are the plain rule of DELTA:
 * the state takes `dt x B^T` and is read by C.
 *
 * Sources: Mamba (arXiv 2312.00752); Mamba 2 (arXiv 2405.21060); huggingface/transformers `modeling_mamba2.py`,
 * `modeling_nemotron_h.py`, `modeling_jamba.py`.
 * @module
 */
import type { Ops, T, Weights } from "../program/program.ts";
import { linear } from "./decoder.ts";
import type { Keys } from "./keys.ts";

interface SsmSpec {
  /** Channels. */
  readonly n_inner: number;
  readonly n_state: number;
  readonly conv_kernel: number;
  readonly norm_eps: number;
}

function readSsm(k: Keys): SsmSpec {
  const n_inner = k.u32("ssm.inner_size"), n_state = k.u32("ssm.state_size"), conv_kernel = k.u32("ssm.conv_kernel");
  k.want(n_inner >= 1, "ssm.inner_size", n_inner, "at least 1");
  k.want(n_state >= 1, "ssm.state_size", n_state, "at least 1");
  k.want(conv_kernel >= 2, "ssm.conv_kernel", conv_kernel, "at least 2");
  return { n_inner, n_state, conv_kernel, norm_eps: k.f32("attention.layer_norm_rms_epsilon") };
}

export interface Mamba2Spec extends SsmSpec {
  readonly n_head: number;
  /** Neighbouring heads share B and C; results are normed by groups. */
  readonly n_group: number;
}

/** @throws {ModelError} `model.key_value`, `model.missing_key`, `model.key_type` */
export function readMamba2(k: Keys): Mamba2Spec {
  const s = readSsm(k), n_head = k.u32("ssm.time_step_rank"), n_group = k.u32("ssm.group_count");
  k.want(n_head >= 1 && s.n_inner % n_head === 0, "ssm.time_step_rank", n_head, `a divisor of ${s.n_inner} channels`);
  k.want(n_group >= 1 && n_head % n_group === 0, "ssm.group_count", n_group, `a divisor of ${n_head} heads`);
  return { ...s, n_head, n_group };
}

/**
 * Mamba 2 of layer `il` over x `[n_embd, n_tok]`, normed -> `[n_embd, n_tok]`.
 * @param options.normed false: results are gated and not normed.
 */
export function mamba2(
  op: Ops,
  w: Weights,
  s: Mamba2Spec,
  il: number,
  x: T,
  options: { normed?: boolean } = {},
): T {
  const { n_inner, n_head, n_group, n_state, conv_kernel } = s, n_bc = n_group * n_state, n_conv = n_inner + 2 * n_bc;
  const all = linear(op, w, "ssm_in", x, n_inner + n_conv + n_head);
  const mixed = op.conv(
    `blk.${il}.conv`,
    all.slice(n_inner, n_conv),
    w("ssm_conv1d", [conv_kernel, n_conv], { reshape: true }),
    { bias: w.opt("ssm_conv1d.bias", [n_conv]), silu: true },
  );
  const v = mixed.slice(0, n_inner).heads(n_head); //                                      [n_inner / n_head, n_head, n_tok]
  const b = mixed.slice(n_inner, n_bc).heads(n_group), c = mixed.slice(n_inner + n_bc, n_bc).heads(n_group);
  const dt = op.unary("softplus", op.add(all.slice(n_inner + n_conv, n_head), w("ssm_dt.bias", [n_head])));
  const step = dt.heads(n_head); //                                                        [1, n_head, n_tok]
  const g = op.mul(step, w("ssm_a", [1, n_head], { reshape: true })); //                   ssm_a = -e^A_log
  const o = op.delta(`blk.${il}.ssm`, { q: c, k: b, v, g, beta: step }, { rule: "plain" });
  const y = op.add(o, op.mul(v, w("ssm_d", [1, n_head], { reshape: true }))).flat();
  const gated = op.gate("silu", all.slice(0, n_inner), y);
  if (options.normed === false) return linear(op, w, "ssm_out", gated, x.ne[0]);
  const weight = w("ssm_norm", [n_inner / n_group, n_group], { reshape: true });
  return linear(op, w, "ssm_out", op.rms_norm(gated.heads(n_group), weight, s.norm_eps).flat(), x.ne[0]);
}

export interface MambaSpec extends SsmSpec {
  /** Width that the step of all channels is made from. */
  readonly dt_rank: number;
}

/** @throws {ModelError} `model.key_value`, `model.missing_key`, `model.key_type` */
export function readMamba(k: Keys): MambaSpec {
  const dt_rank = k.u32("ssm.time_step_rank");
  k.want(dt_rank >= 1, "ssm.time_step_rank", dt_rank, "at least 1");
  return { ...readSsm(k), dt_rank };
}

/**
 * Mamba of layer `il` over x `[n_embd, n_tok]`, normed -> `[n_embd, n_tok]`. Each channel is a head of one value.
 * @param norm What the inputs of the step, B and C go through.
 */
export function mamba(
  op: Ops,
  w: Weights,
  s: MambaSpec,
  il: number,
  x: T,
  norm: (y: T, of: "dt" | "b" | "c") => T,
): T {
  const { n_inner: n, n_state, dt_rank, conv_kernel } = s, xz = linear(op, w, "ssm_in", x, 2 * n);
  const u = op.conv(`blk.${il}.conv`, xz.slice(0, n), w("ssm_conv1d", [conv_kernel, n], { reshape: true }), {
    bias: w.opt("ssm_conv1d.bias", [n]),
    silu: true,
  });
  const parts = linear(op, w, "ssm_x", u, dt_rank + 2 * n_state);
  const low = norm(parts.slice(0, dt_rank), "dt");
  const b = norm(parts.slice(dt_rank, n_state), "b"), c = norm(parts.slice(dt_rank + n_state, n_state), "c");
  const step = op.unary("softplus", linear(op, w, "ssm_dt", low, n)).heads(n); //          [1, n, n_tok]
  const g = op.mul(step, w("ssm_a", [n_state, n])); //                                     [n_state, n, n_tok]
  const inputs = { q: c.heads(1), k: b.heads(1), v: u.heads(n), g, beta: step };
  const y = op.add(op.delta(`blk.${il}.ssm`, inputs, { rule: "plain" }).flat(), op.mul(u, w("ssm_d", [n])));
  return linear(op, w, "ssm_out", op.gate("silu", xz.slice(n, n), y), x.ne[0]);
}
