/**
 * Falcon-H1 (`falcon-h1`).
 * Differs from llama.ts: every layer has attention and Mamba 2 side by side, on the same input; RoPE rotates halves. The release's
 * multipliers are in the weights of its files.
 * Source: Falcon-H1 (arXiv 2507.22448); huggingface/transformers `modeling_falcon_h1.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, gatedFfn, head, readDecoderSpec, selfAttention } from "./decoder.ts";
import { mamba2, type Mamba2Spec, readMamba2 } from "./ssm.ts";

interface FalconH1Spec extends DecoderSpec {
  readonly ssm: Mamba2Spec;
}

function layer(op: Ops, s: FalconH1Spec, freqs: T, il: number, x: T): T { //               x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T) => op.rope(y, freqs, { kind: "halves", mscale: s.rope.mscale });
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  // Of the released sizes some norm what Mamba gives, others only gate it.
  const m = mamba2(op, w, s.ssm, il, a, { normed: w.has("ssm_norm") });
  x = op.add(x, op.add(m, selfAttention(op, w, s, il, a, { turn })));
  return op.add(x, gatedFfn(op, w, op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps), s.n_ff));
}

function build(op: Ops, s: FalconH1Spec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return head(op, s, x);
}

export const falconH1: Architecture<FalconH1Spec> = {
  names: ["falcon-h1"],
  spec: (k) => ({ ...readDecoderSpec(k), ssm: readMamba2(k) }),
  build,
};
