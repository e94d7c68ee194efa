/**
 * Phi-3 and Phi-4 (`phi3`).
 * Differs from llama.ts: q, k and v in one matrix, gate and up in another; RoPE rotates halves of (a part of) each head. A
 * sliding window is kept where the file names it. Models for long contexts (LongRoPE) run up to the length of their shorter
 * factors.
 * Source: Phi-3 (arXiv 2404.14219), LongRoPE (arXiv 2402.13753); huggingface/transformers `modeling_phi3.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, fusedFfn, head, readDecoderSpec, selfAttention } from "./decoder.ts";

interface Phi3Spec extends DecoderSpec {
  readonly window: number;
}

function layer(op: Ops, s: Phi3Spec, freqs: T, il: number, x: T): T { //                   x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T) => op.rope(y, freqs, { kind: "halves", mscale: s.rope.mscale });
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  x = op.add(x, selfAttention(op, w, s, il, a, { turn, window: s.window }));
  return op.add(x, fusedFfn(op, w, op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps), s.n_ff));
}

function build(op: Ops, s: Phi3Spec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return head(op, s, x);
}

export const phi3: Architecture<Phi3Spec> = {
  names: ["phi3"],
  spec: (k) => ({ ...readDecoderSpec(k), window: k.u32("attention.sliding_window", 0) }),
  build,
};
