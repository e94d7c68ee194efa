/**
 * Kimi Linear (`kimi-linear`). Pre-norm decoder; most layers have Kimi Delta Attention, the others latent attention that rotates
 * nothing. The first layers are dense, the others routed as in DeepSeek V3.
 * Source: Kimi Linear (arXiv 2510.26692); huggingface/transformers `modeling_kimi_linear.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture, Spec } from "./architecture.ts";
import { type Act, embed, head, readSpec, SILU } from "./decoder.ts";
import { kda, type KdaSpec, readKda } from "./delta.ts";
import type { Keys } from "./keys.ts";
import { mla, type MlaSpec, readMla } from "./mla.ts";
import { readSharedMoe, sharedMoeFfn, type SharedMoeSpec, V3_ROUTER } from "./moe.ts";

export interface KimiSpec extends Spec, MlaSpec, SharedMoeSpec {
  readonly norm_eps: number;
  readonly kda: KdaSpec;
  /** Layers with latent attention. */
  readonly latent: readonly boolean[];
}

/** Keys that Kimi Linear, Kimi K3 and GLM-5.3 share. */
export function readKimi(k: Keys, options: { latent_eps?: number; act?: Act } = {}): KimiSpec {
  const s = readSpec(k), { latent_eps = 1e-6, act = SILU } = options;
  const mla = readMla(k, s, { latent_eps, rotates: false });
  return {
    ...s,
    ...mla,
    ...readSharedMoe(k, s.n_layer, { ...V3_ROUTER, act }),
    norm_eps: k.f32("attention.layer_norm_rms_epsilon"),
    kda: readKda(k, mla.n_head),
    latent: k.perLayer("attention.head_count_kv", s.n_layer).map((n) => n > 0),
  };
}

function layer(op: Ops, s: KimiSpec, il: number, x: T): T { //                             x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  x = op.add(x, s.latent[il] ? mla(op, w, s, il, a) : kda(op, w, s.kda, il, a));
  return op.add(x, sharedMoeFfn(op, w, s, il, op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps)));
}

function build(op: Ops, s: KimiSpec): T {
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, il, x));
  return head(op, s, x);
}

export const kimiLinear: Architecture<KimiSpec> = { names: ["kimi-linear"], spec: (k) => readKimi(k), build };
