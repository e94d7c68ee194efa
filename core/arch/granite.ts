/**
 * Granite 3, dense and routed (`granite`, `granitemoe`).
 * Differs from llama.ts: four multipliers: embeddings times one, what a sublayer adds times another, scores times the third
 * instead of head_dim^-0.5, logits divided by the fourth. Routed: a softmax over the chosen experts' logits; a shared expert
 * where there is one.
 * Source: Granite 3.0 Language Models (IBM, 2024); huggingface/transformers `modeling_granite.py`, `modeling_granitemoe.py`,
 * `modeling_granitemoeshared.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, head, readDecoderSpec, selfAttention } from "./decoder.ts";
import type { Keys } from "./keys.ts";
import { readSharedMoe, sharedMoeFfn, type SharedMoeSpec } from "./moe.ts";

interface GraniteSpec extends DecoderSpec, SharedMoeSpec {
  readonly embedding_scale: number;
  readonly residual_scale: number;
  readonly logit_scale: number;
  readonly rotates: boolean;
}

function spec(k: Keys): GraniteSpec {
  const s = readDecoderSpec(k);
  const logit_scale = k.f32("logit_scale", 1);
  k.want(logit_scale !== 0, "logit_scale", logit_scale, "a number that is not 0");
  return {
    ...s,
    // A softmax over the chosen is one over all of them, divided by what the chosen have.
    ...readSharedMoe(k, s.n_layer, { n_ff_exp: s.n_ff, sum_min: 0 }),
    embedding_scale: k.f32("embedding_scale", 1),
    residual_scale: k.f32("residual_scale", 1),
    logit_scale,
    rotates: k.bool("rope.scaling.finetuned", true), // what the key is used for in these files
  };
}

function layer(op: Ops, s: GraniteSpec, freqs: T, il: number, x: T): T { //                x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T) => s.rotates ? op.rope(y, freqs, { kind: "pairs", mscale: s.rope.mscale }) : y;
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  x = op.add(x, op.scale(selfAttention(op, w, s, il, a, { turn }), s.residual_scale));
  const f = op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps);
  return op.add(x, op.scale(sharedMoeFfn(op, w, s, il, f), s.residual_scale));
}

function build(op: Ops, s: GraniteSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = op.scale(embed(op, s), s.embedding_scale);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return op.scale(head(op, s, x), 1 / s.logit_scale);
}

export const granite: Architecture<GraniteSpec> = { names: ["granite", "granitemoe"], spec, build };
