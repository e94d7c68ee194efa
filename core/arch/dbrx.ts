/**
 * DBRX (`dbrx`).
 * Differs from llama.ts: LayerNorm without a bias; q, k and v in one matrix and clamped; every layer is routed; RoPE rotates halves.
 * Source: databricks/dbrx-base model card; huggingface/transformers `modeling_dbrx.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, layerNorm, layerNormHead, readDecoderSpec, selfAttention } from "./decoder.ts";
import { moeFfn, type MoeSpec, readMoe } from "./moe.ts";

interface DbrxSpec extends DecoderSpec {
  readonly moe: MoeSpec;
  /** Queries, keys and values lie within it; 0: anywhere. */
  readonly clamp: number;
}

function layer(op: Ops, s: DbrxSpec, freqs: T, il: number, x: T): T { //                   x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T) => op.rope(y, freqs, { kind: "halves", mscale: s.rope.mscale });
  const a = layerNorm(op, w, "attn_norm", x, s.norm_eps);
  x = op.add(x, selfAttention(op, w, s, il, a, { turn, clamp: s.clamp }));
  return op.add(x, moeFfn(op, w, s.moe, layerNorm(op, w, "attn_output_norm", x, s.norm_eps)));
}

function build(op: Ops, s: DbrxSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return layerNormHead(op, s, x);
}

export const dbrx: Architecture<DbrxSpec> = {
  names: ["dbrx"],
  spec: (k) => {
    const s = readDecoderSpec(k);
    return { ...s, moe: readMoe(k, { n_ff_exp: s.n_ff, renorm: true }), clamp: k.f32("attention.clamp_kqv", 0) };
  },
  build,
};
