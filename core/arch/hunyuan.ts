/**
 * Hunyuan, dense and routed (`hunyuan-dense`, `hunyuan-moe`).
 * Differs from llama.ts: RMSNorm on each q and k head behind RoPE, which rotates halves. Routed: softmax scores, and a shared
 * expert.
 * Source: Hunyuan-A13B Technical Report (Tencent, 2025); huggingface/transformers `modeling_hunyuan_v1_dense.py`,
 * `modeling_hunyuan_v1_moe.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, head, readDecoderSpec, selfAttention } from "./decoder.ts";
import { readSharedMoe, sharedMoeFfn, type SharedMoeSpec } from "./moe.ts";

interface HunyuanSpec extends DecoderSpec, SharedMoeSpec {}

function layer(op: Ops, s: HunyuanSpec, freqs: T, il: number, x: T): T { //                x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T, of: "q" | "k") => {
    const turned = op.rope(y, freqs, { kind: "halves", mscale: s.rope.mscale });
    return op.rms_norm(turned, w(`attn_${of}_norm`, [s.head_dim]), s.norm_eps);
  };
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  x = op.add(x, selfAttention(op, w, s, il, a, { turn }));
  return op.add(x, sharedMoeFfn(op, w, s, il, op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps)));
}

function build(op: Ops, s: HunyuanSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return head(op, s, x);
}

export const hunyuan: Architecture<HunyuanSpec> = {
  names: ["hunyuan-dense", "hunyuan-moe"],
  spec: (k) => {
    const s = readDecoderSpec(k);
    return { ...s, ...readSharedMoe(k, s.n_layer, { n_ff_exp: s.n_ff, sum_min: 0 }) };
  },
  build,
};
