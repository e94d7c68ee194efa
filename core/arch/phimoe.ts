/**
 * Phi-3.5 and Phi-mini MoE (`phimoe`).
 * Differs from phi3.ts: q, k and v from three matrices, all with biases as the head has one; norms with biases; routed experts.
 * As llama.cpp computes it, which is not all that the release does: that has LayerNorm where this is RMSNorm with a bias, and gives its
 * two experts weights from two softmaxes, each without the logits far below its best, where these are parts of one sum.
 * Source: Phi-3 (arXiv 2404.14219), GRIN MoE (arXiv 2409.12136); huggingface/transformers `modeling_phimoe.py`; llama.cpp 0.7.0.
 * @module
 */
import type { Ops, T, Weights } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, readDecoderSpec, selfAttention, unembed } from "./decoder.ts";
import { moeFfn, type MoeSpec, readMoe } from "./moe.ts";

interface PhimoeSpec extends DecoderSpec {
  readonly window: number;
  readonly moe: MoeSpec;
}

function norm(op: Ops, w: Weights, s: PhimoeSpec, name: string, x: T): T {
  return op.norm("rms", x, w(name, [s.n_embd]), s.norm_eps, w.opt(`${name}.bias`, [s.n_embd]));
}

function layer(op: Ops, s: PhimoeSpec, freqs: T, il: number, x: T): T { //                 x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T) => op.rope(y, freqs, { kind: "halves", mscale: s.rope.mscale });
  x = op.add(x, selfAttention(op, w, s, il, norm(op, w, s, "attn_norm", x), { turn, window: s.window }));
  return op.add(x, moeFfn(op, w, s.moe, norm(op, w, s, "ffn_norm", x)));
}

function build(op: Ops, s: PhimoeSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return unembed(op, s, norm(op, op.weights(), s, "output_norm", op.out_rows(x)));
}

export const phimoe: Architecture<PhimoeSpec> = {
  names: ["phimoe"],
  spec: (k) => {
    const s = readDecoderSpec(k);
    return { ...s, window: k.u32("attention.sliding_window", 0), moe: readMoe(k, { n_ff_exp: s.n_ff }) };
  },
  build,
};
