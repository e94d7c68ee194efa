/**
 * GPT-OSS (`gpt-oss`).
 * Differs from llama.ts: biases everywhere; sinks in every layer; every other layer sees a window; RoPE rotates halves, YaRN
 * without rounding of its ramp; experts with biases and a gate of g sigmoid(1.702 g) (u + 1), clamped at 7.
 * Source: gpt-oss model card (arXiv 2508.10925); huggingface/transformers `modeling_gpt_oss.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, head, readDecoderSpec, selfAttention, slidingLayers } from "./decoder.ts";
import type { Keys } from "./keys.ts";
import { moeFfn, type MoeSpec, readMoe } from "./moe.ts";

interface GptOssSpec extends DecoderSpec {
  readonly moe: MoeSpec;
  readonly window: number;
  readonly sliding: readonly boolean[];
}

function spec(k: Keys): GptOssSpec {
  // Files of early converters do not say that the release rounds nothing.
  const s = readDecoderSpec(k, { truncate: false });
  return {
    ...s,
    // A softmax over the chosen experts' logits is one over all of them, divided by what the chosen have.
    moe: readMoe(k, { n_ff_exp: s.n_ff, sum_min: 0, act: { kind: "oai", a: 7, b: 1.702 } }),
    window: k.u32("attention.sliding_window"),
    sliding: slidingLayers(k, s.n_layer, 2),
  };
}

function layer(op: Ops, s: GptOssSpec, freqs: T, il: number, x: T): T { //                 x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T) => op.rope(y, freqs, { kind: "halves", mscale: s.rope.mscale });
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  const sinks = w("attn_sinks", [s.n_head]);
  x = op.add(x, selfAttention(op, w, s, il, a, { turn, sinks, window: s.sliding[il] ? s.window : 0 }));
  return op.add(x, moeFfn(op, w, s.moe, op.rms_norm(x, w("post_attention_norm", [s.n_embd]), s.norm_eps)));
}

function build(op: Ops, s: GptOssSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return head(op, s, x);
}

export const gptOss: Architecture<GptOssSpec> = { names: ["gpt-oss"], spec, build };
