/**
 * Nemotron 3 and 4, Minitron (`nemotron`).
 * Differs from llama.ts: LayerNorm with a bias (files hold its weight with the 1 that the release adds); squared ReLU without a gate;
 * RoPE rotates halves of a part of each head.
 * Source: Nemotron-4 15B (arXiv 2402.16819); huggingface/transformers `modeling_nemotron.py`.
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

function layer(op: Ops, s: DecoderSpec, freqs: T, il: number, x: T): T { //                x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T) => op.rope(y, freqs, { kind: "halves", mscale: s.rope.mscale });
  x = op.add(x, selfAttention(op, w, s, il, layerNorm(op, w, "attn_norm", x, s.norm_eps), { turn }));
  return op.add(x, plainFfn(op, w, layerNorm(op, w, "ffn_norm", x, s.norm_eps), s.n_ff, "relu2"));
}

function build(op: Ops, s: DecoderSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return layerNormHead(op, s, x);
}

export const nemotron: Architecture<DecoderSpec> = { names: ["nemotron"], spec: readDecoderSpec, build };
