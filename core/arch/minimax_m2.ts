/**
 * MiniMax-M2 (`minimax-m2`), OLMoE (`olmoe`).
 * Differs from llama.ts: RMSNorm on q and k over all heads together; RoPE rotates halves of (a part of) each head; every layer
 * is routed. MiniMax: sigmoid scores with a selection bias; OLMoE: the softmax's weights as they are, not divided by their sum.
 * Source: MiniMaxAI/MiniMax-M2 model card; OLMoE (arXiv 2409.02060); huggingface/transformers `modeling_minimax_m2.py`,
 * `modeling_olmoe.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, head, readDecoderSpec, selfAttention, wholeNorm } from "./decoder.ts";
import { moeFfn, type MoeSpec, readMoe } from "./moe.ts";

interface MinimaxSpec extends DecoderSpec {
  readonly moe: MoeSpec;
}

function layer(op: Ops, s: MinimaxSpec, freqs: T, il: number, x: T): T { //                x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T, of: "q" | "k") =>
    op.rope(wholeNorm(op, w, of, y, s.norm_eps), freqs, { kind: "halves", mscale: s.rope.mscale });
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  x = op.add(x, selfAttention(op, w, s, il, a, { turn }));
  return op.add(x, moeFfn(op, w, s.moe, op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps)));
}

function build(op: Ops, s: MinimaxSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return head(op, s, x);
}

export const minimaxM2: Architecture<MinimaxSpec> = {
  names: ["minimax-m2", "olmoe"],
  spec: (k) => {
    const s = readDecoderSpec(k);
    const rule: Partial<MoeSpec> = k.arch === "olmoe" ? { renorm: false } : { score: "sigmoid", sum_min: 0 };
    return { ...s, moe: readMoe(k, { n_ff_exp: s.n_ff, ...rule }) };
  },
  build,
};
