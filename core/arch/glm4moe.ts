/**
 * GLM-4.5, 4.6, 4.7 (`glm4moe`).
 * Differs from llama.ts: biases on q, k and v; RMSNorm on each q and k head where the file has it; RoPE rotates halves of a part of
 * each head; the first layers are dense, the others routed with sigmoid scores, a selection bias and a shared expert.
 * Source: GLM-4.5 (arXiv 2508.06471); huggingface/transformers `modeling_glm4_moe.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, gatedFfn, head, readDecoderSpec, selfAttention } from "./decoder.ts";
import { draftBlocks } from "./draft.ts";
import type { Keys } from "./keys.ts";
import { moeFfn, type MoeSpec, readMoe } from "./moe.ts";

interface GlmSpec extends DecoderSpec {
  readonly moe: MoeSpec;
  readonly n_layer_dense: number;
  /** Width of the shared expert. */
  readonly n_ff_shexp: number;
}

function spec(k: Keys): GlmSpec {
  const s = readDecoderSpec(k);
  const moe = readMoe(k, { score: "sigmoid", sum_add: 1e-20, sum_min: 0 });
  return {
    ...s,
    moe,
    n_layer_dense: k.u32("leading_dense_block_count", 0),
    n_ff_shexp: moe.n_ff_exp * k.u32("expert_shared_count", 1),
  };
}

function layer(op: Ops, s: GlmSpec, freqs: T, il: number, x: T): T { //                    x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T, of: "q" | "k") => {
    const norm = w.opt(`attn_${of}_norm`, [s.head_dim]);
    return op.rope(norm ? op.rms_norm(y, norm, s.norm_eps) : y, freqs, { kind: "halves", mscale: s.rope.mscale });
  };
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  x = op.add(x, selfAttention(op, w, s, il, a, { turn }));
  const f = op.rms_norm(x, w("post_attention_norm", [s.n_embd]), s.norm_eps);
  if (il < s.n_layer_dense) return op.add(x, gatedFfn(op, w, f, s.n_ff));
  const routed = moeFfn(op, w, s.moe, f);
  return op.add(x, s.n_ff_shexp > 0 ? op.add(routed, gatedFfn(op, w, f, s.n_ff_shexp, undefined, "_shexp")) : routed);
}

function build(op: Ops, s: GlmSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = layer(op, s, freqs, il, x);
  return head(op, s, x);
}

export const glm4moe: Architecture<GlmSpec> = {
  names: ["glm4moe"],
  spec,
  build,
  draft: (op, s) => {
    const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
    draftBlocks(op, s, (il, x) => layer(op, s, freqs, il, x));
  },
};
