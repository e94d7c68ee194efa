/**
 * MiniCPM 3 (`minicpm3`).
 * Differs from deepseek2.ts: every layer dense; RoPE rotates halves; embeddings, what a layer adds and logits have factors.
 * Source: MiniCPM (arXiv 2404.06395); openbmb/MiniCPM3-4B `modeling_minicpm.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture, Spec } from "./architecture.ts";
import { embed, gatedFfn, head, readSpec } from "./decoder.ts";
import type { Keys } from "./keys.ts";
import { mla, type MlaSpec, readMla } from "./mla.ts";

interface MiniCpm3Spec extends Spec, MlaSpec {
  readonly n_ff: number;
  readonly norm_eps: number;
}

// Of the released model; no key tells.
const SCALE_EMBD = 12, SCALE_DEPTH = 1.4, N_EMBD_BASE = 256;

function spec(k: Keys): MiniCpm3Spec {
  const s = readSpec(k);
  const v_head_dim = Math.floor(s.n_embd / Math.max(k.uniform("attention.head_count", s.n_layer), 1));
  k.u32("attention.head_count_kv", 1); // keys are the latent
  return {
    ...s,
    ...readMla(k, s, { rope_kind: "halves", v_head_dim }),
    n_ff: k.uniform("feed_forward_length", s.n_layer),
    norm_eps: k.f32("attention.layer_norm_rms_epsilon"),
  };
}

function build(op: Ops, s: MiniCpm3Spec): T {
  const residual = SCALE_DEPTH / Math.sqrt(s.n_layer);
  let x = op.scale(embed(op, s), SCALE_EMBD); //                                           [n_embd, n_tok]
  for (let il = 0; il < s.n_layer; il++) {
    const w = op.weights(`blk.${il}`), norm = (name: string) => op.rms_norm(x, w(name, [s.n_embd]), s.norm_eps);
    x = op.add(x, op.scale(mla(op, w, s, il, norm("attn_norm")), residual));
    x = op.layer_end(il, op.add(x, op.scale(gatedFfn(op, w, norm("ffn_norm"), s.n_ff), residual)));
  }
  return op.scale(head(op, s, x), N_EMBD_BASE / s.n_embd);
}

export const minicpm3: Architecture<MiniCpm3Spec> = { names: ["minicpm3"], spec, build };
