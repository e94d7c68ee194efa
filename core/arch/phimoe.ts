/**
 * Phi-3.5 and Phi-mini MoE (`phimoe`).
 * Differs from phi3.ts: q, k and v from three matrices, all with biases as the head has one; LayerNorm; routed experts.
 * The release gives the two experts weights from two softmaxes, each without the logits that are far below its best (SparseMixer);
 * llama.cpp, and this file, take both from one softmax, divided by their sum.
 * Source: Phi-3 (arXiv 2404.14219), GRIN MoE (arXiv 2409.12136); huggingface/transformers `modeling_phimoe.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, layerNorm, layerNormHead, readDecoderSpec, selfAttention } from "./decoder.ts";
import { moeFfn, type MoeSpec, readMoe } from "./moe.ts";

interface PhimoeSpec extends DecoderSpec {
  readonly window: number;
  readonly moe: MoeSpec;
}

function layer(op: Ops, s: PhimoeSpec, freqs: T, il: number, x: T): T { //                 x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T) => op.rope(y, freqs, { kind: "halves", mscale: s.rope.mscale });
  const a = layerNorm(op, w, "attn_norm", x, s.norm_eps);
  x = op.add(x, selfAttention(op, w, s, il, a, { turn, window: s.window }));
  return op.add(x, moeFfn(op, w, s.moe, layerNorm(op, w, "ffn_norm", x, s.norm_eps)));
}

function build(op: Ops, s: PhimoeSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return layerNormHead(op, s, x);
}

export const phimoe: Architecture<PhimoeSpec> = {
  names: ["phimoe"],
  spec: (k) => {
    const s = readDecoderSpec(k);
    return { ...s, window: k.u32("attention.sliding_window", 0), moe: readMoe(k, { n_ff_exp: s.n_ff }) };
  },
  build,
};
