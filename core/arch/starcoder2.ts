/**
 * StarCoder 2 (`starcoder2`).
 * Differs from llama.ts: LayerNorm; biases everywhere; a feed-forward block without a gate, GELU; RoPE rotates halves. A
 * sliding window is kept where the file names it.
 * Source: StarCoder 2 (arXiv 2402.19173); huggingface/transformers `modeling_starcoder2.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import {
  type DecoderSpec,
  embed,
  layerNorm,
  layerNormHead,
  plainFfn,
  readDecoderSpec,
  selfAttention,
} from "./decoder.ts";

interface Starcoder2Spec extends DecoderSpec {
  readonly window: number;
}

function layer(op: Ops, s: Starcoder2Spec, freqs: T, il: number, x: T): T { //             x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T) => op.rope(y, freqs, { kind: "halves", mscale: s.rope.mscale });
  const a = layerNorm(op, w, "attn_norm", x, s.norm_eps);
  x = op.add(x, selfAttention(op, w, s, il, a, { turn, window: s.window }));
  return op.add(x, plainFfn(op, w, layerNorm(op, w, "ffn_norm", x, s.norm_eps), s.n_ff, "gelu_tanh"));
}

function build(op: Ops, s: Starcoder2Spec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return layerNormHead(op, s, x);
}

export const starcoder2: Architecture<Starcoder2Spec> = {
  names: ["starcoder2"],
  spec: (k) => ({ ...readDecoderSpec(k), window: k.u32("attention.sliding_window", 0) }),
  build,
};
