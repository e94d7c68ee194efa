/**
 * Qwen3, dense and routed (`qwen3`, `qwen3moe`).
 * Differs from llama.ts: RMSNorm on each q and k head before RoPE; RoPE rotates halves; head_dim is free of n_embd / n_head.
 * Source: Qwen3 Technical Report (arXiv 2505.09388) §2; huggingface/transformers `modeling_qwen3.py`, `modeling_qwen3_moe.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, gatedFfn, head, readDecoderSpec, selfAttention } from "./decoder.ts";
import { moeFfn, type MoeSpec, readMoe } from "./moe.ts";

interface Qwen3Spec extends DecoderSpec {
  readonly moe: MoeSpec;
}

function layer(op: Ops, s: Qwen3Spec, freqs: T, il: number, x: T): T { //                  x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T, of: "q" | "k") =>
    op.rope(op.rms_norm(y, w(`attn_${of}_norm`, [s.head_dim]), s.norm_eps), freqs, {
      kind: "halves",
      mscale: s.rope.mscale,
    });
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  x = op.add(x, selfAttention(op, w, s, il, a, { turn }));
  const f = op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps);
  return op.add(x, s.moe.n_expert > 0 ? moeFfn(op, w, s.moe, f) : gatedFfn(op, w, f, s.n_ff));
}

function build(op: Ops, s: Qwen3Spec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = layer(op, s, freqs, il, x);
  return head(op, s, x);
}

export const qwen3: Architecture<Qwen3Spec> = {
  names: ["qwen3", "qwen3moe"],
  spec: (k) => {
    const s = readDecoderSpec(k);
    return { ...s, moe: readMoe(k, { n_ff_exp: s.n_ff }) };
  },
  build,
};
