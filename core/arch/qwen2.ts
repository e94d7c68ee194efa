/**
 * Qwen2 and 2.5, dense and routed (`qwen2`, `qwen2moe`), the text part of Qwen2-VL and 2.5-VL (`qwen2vl`), Seed-OSS (`seed_oss`).
 * Differs from llama.ts: biases on q, k and v; RoPE rotates halves. Routed: weights are not divided by their sum, and a shared
 * expert takes part by a gate of its own. Seed-OSS's file has another name for the norm before the feed-forward block.
 * Source: Qwen2 Technical Report (arXiv 2407.10671); huggingface/transformers `modeling_qwen2.py`, `modeling_qwen2_moe.py`,
 * `modeling_seed_oss.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, head, readDecoderSpec, selfAttention } from "./decoder.ts";
import { readSharedMoe, sharedMoeFfn, type SharedMoeSpec } from "./moe.ts";
import { readSections } from "./rope.ts";

interface Qwen2Spec extends DecoderSpec, SharedMoeSpec {}

function layer(op: Ops, s: Qwen2Spec, freqs: T, il: number, x: T): T { //                  x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T) => op.rope(y, freqs, { kind: "halves", mscale: s.rope.mscale });
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  x = op.add(x, selfAttention(op, w, s, il, a, { turn }));
  const second = s.arch === "seed_oss" ? "post_attention_norm" : "ffn_norm";
  return op.add(x, sharedMoeFfn(op, w, s, il, op.rms_norm(x, w(second, [s.n_embd]), s.norm_eps)));
}

function build(op: Ops, s: Qwen2Spec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return head(op, s, x);
}

export const qwen2: Architecture<Qwen2Spec> = {
  names: ["qwen2", "qwen2moe", "qwen2vl", "seed_oss"],
  spec: (k) => {
    const s = readDecoderSpec(k), ffn = readSharedMoe(k, s.n_layer, { n_ff_exp: s.n_ff, renorm: false });
    readSections(k);
    // Files of early converters have one width for the experts and the shared one.
    return { ...s, ...ffn, n_ff_shexp: ffn.n_ff_shexp || s.n_ff };
  },
  build,
};
