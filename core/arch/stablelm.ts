/**
 * StableLM and StableLM 2 (`stablelm`).
 * Differs from llama.ts: LayerNorm; biases on q, k and v where the file has them; RoPE rotates halves of a part of each head.
 * The 12B: attention and feed-forward read the same norm, side by side, and each q and k head has a LayerNorm of its own.
 * Source: Stable LM 2 1.6B (arXiv 2402.17834); huggingface/transformers `modeling_stablelm.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import {
  type DecoderSpec,
  embed,
  gatedFfn,
  layerNorm,
  layerNormHead,
  readDecoderSpec,
  selfAttention,
} from "./decoder.ts";

interface StableLmSpec extends DecoderSpec {
  readonly parallel: boolean;
}

function layer(op: Ops, s: StableLmSpec, freqs: T, il: number, x: T): T { //               x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T, of: "q" | "k") => {
    const norm = w.opt(`attn_${of}_norm`, [s.head_dim, y.ne[1]]);
    const normed = norm ? op.norm("layer", y, norm, s.norm_eps) : y;
    return op.rope(normed, freqs, { kind: "halves", mscale: s.rope.mscale });
  };
  const a = layerNorm(op, w, "attn_norm", x, s.norm_eps);
  x = op.add(x, selfAttention(op, w, s, il, a, { turn }));
  return op.add(x, gatedFfn(op, w, s.parallel ? a : layerNorm(op, w, "ffn_norm", x, s.norm_eps), s.n_ff));
}

function build(op: Ops, s: StableLmSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return layerNormHead(op, s, x);
}

export const stablelm: Architecture<StableLmSpec> = {
  names: ["stablelm"],
  spec: (k) => ({ ...readDecoderSpec(k), parallel: k.bool("use_parallel_residual", false) }),
  build,
};
