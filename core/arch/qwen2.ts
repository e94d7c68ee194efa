/**
 * Qwen2 and 2.5, dense and routed (`qwen2`, `qwen2moe`).
 * Differs from llama.ts: biases on q, k and v; RoPE rotates halves. Routed: weights are not divided by their sum, and a shared
 * expert takes part by a gate of its own.
 * Source: Qwen2 Technical Report (arXiv 2407.10671); huggingface/transformers `modeling_qwen2.py`, `modeling_qwen2_moe.py`.
 * @module
 */
import type { Ops, T, Weights } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, gatedFfn, head, linear, readDecoderSpec, selfAttention } from "./decoder.ts";
import { moeFfn, type MoeSpec, readMoe } from "./moe.ts";

interface Qwen2Spec extends DecoderSpec {
  readonly moe: MoeSpec;
  /** Width of the shared expert. */
  readonly n_ff_shexp: number;
}

function sharedExpert(op: Ops, w: Weights, s: Qwen2Spec, x: T): T {
  const gate = op.unary("sigmoid", linear(op, w, "ffn_gate_inp_shexp", x, 1)); //           [1, n_tok]
  return op.mul(gatedFfn(op, w, x, s.n_ff_shexp, undefined, "_shexp"), gate);
}

function layer(op: Ops, s: Qwen2Spec, freqs: T, il: number, x: T): T { //                  x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T) => op.rope(y, freqs, { kind: "halves", mscale: s.rope.mscale });
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  x = op.add(x, selfAttention(op, w, s, il, a, { turn }));
  const f = op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps);
  if (s.moe.n_expert === 0) return op.add(x, gatedFfn(op, w, f, s.n_ff));
  return op.add(x, op.add(moeFfn(op, w, s.moe, f), sharedExpert(op, w, s, f)));
}

function build(op: Ops, s: Qwen2Spec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = layer(op, s, freqs, il, x);
  return head(op, s, x);
}

export const qwen2: Architecture<Qwen2Spec> = {
  names: ["qwen2", "qwen2moe"],
  spec: (k) => {
    const s = readDecoderSpec(k), moe = readMoe(k, { n_ff_exp: s.n_ff, renorm: false });
    return { ...s, moe, n_ff_shexp: moe.n_expert > 0 ? k.u32("expert_shared_feed_forward_length", s.n_ff) : 0 };
  },
  build,
};
