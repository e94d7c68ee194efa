/**
 * GLM-4.5, 4.6, 4.7 (`glm4moe`).
 * Differs from llama.ts: biases on q, k and v; RMSNorm on each q and k head where the file has it; RoPE rotates halves of a part of
 * each head; the first layers are dense, the others routed with sigmoid scores, a selection bias and a shared expert.
 * Source: GLM-4.5 (arXiv 2508.06471); huggingface/transformers `modeling_glm4_moe.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, head, readDecoderSpec, selfAttention } from "./decoder.ts";
import { draftBlocks } from "./draft.ts";
import type { Keys } from "./keys.ts";
import { readSharedMoe, sharedMoeFfn, type SharedMoeSpec, V3_ROUTER } from "./moe.ts";

interface GlmSpec extends DecoderSpec, SharedMoeSpec {}

function spec(k: Keys): GlmSpec {
  const s = readDecoderSpec(k);
  return { ...s, ...readSharedMoe(k, s.n_layer, V3_ROUTER) };
}

function layer(op: Ops, s: GlmSpec, freqs: T, il: number, x: T): T { //                    x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T, of: "q" | "k") => {
    const norm = w.opt(`attn_${of}_norm`, [s.head_dim]);
    return op.rope(norm ? op.rms_norm(y, norm, s.norm_eps) : y, freqs, { kind: "halves", mscale: s.rope.mscale });
  };
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  x = op.add(x, selfAttention(op, w, s, il, a, { turn }));
  return op.add(x, sharedMoeFfn(op, w, s, il, op.rms_norm(x, w("post_attention_norm", [s.n_embd]), s.norm_eps)));
}

function build(op: Ops, s: GlmSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
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
