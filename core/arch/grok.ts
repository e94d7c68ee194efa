/**
 * Grok-1 and 2 (`grok`).
 * Differs from llama.ts: embeddings times a factor; norms before and behind both sublayers; scores times the file's scale, and softly
 * capped, as are the router's and the final logits; every layer is routed, through GELU, and Grok-2 adds a dense block to it; RoPE
 * rotates halves.
 * Source: xai-org/grok-1 `model.py`, xai-org/grok-2 model card; the file's keys.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, gatedFfn, head, readDecoderSpec, selfAttention } from "./decoder.ts";
import { moeFfn, type MoeSpec, readMoe } from "./moe.ts";

interface GrokSpec extends DecoderSpec {
  readonly moe: MoeSpec;
  readonly embedding_scale: number;
  readonly logit_scale: number;
  /** 0: none. */
  readonly attn_softcap: number;
  readonly final_softcap: number;
}

function layer(op: Ops, s: GrokSpec, freqs: T, il: number, x: T): T { //                   x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const norm = (y: T, name: string) => op.rms_norm(y, w(name, [s.n_embd]), s.norm_eps);
  const turn = (y: T) => op.rope(y, freqs, { kind: "halves", mscale: s.rope.mscale });
  const attended = selfAttention(op, w, s, il, norm(x, "attn_norm"), { turn, softcap: s.attn_softcap });
  x = op.add(x, norm(attended, "attn_output_norm"));
  const h = norm(x, "ffn_norm");
  let y = moeFfn(op, w, s.moe, h);
  if (w.has("ffn_up")) {
    y = op.unary("scale", op.add(gatedFfn(op, w, h, s.n_ff, { kind: "gelu_tanh" }), y), Math.SQRT1_2);
  }
  return op.add(x, norm(y, w.has("layer_output_norm") ? "layer_output_norm" : "post_ffw_norm"));
}

function build(op: Ops, s: GrokSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = op.unary("scale", embed(op, s), s.embedding_scale);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  const logits = op.unary("scale", head(op, s, x), s.logit_scale);
  return s.final_softcap > 0 ? op.unary("softcap", logits, s.final_softcap) : logits;
}

export const grok: Architecture<GrokSpec> = {
  names: ["grok"],
  spec: (k) => {
    const s = readDecoderSpec(k);
    const softcap = k.f32("router_logit_softcapping", 30);
    const moe = readMoe(k, { n_ff_exp: s.n_ff, renorm: true, act: { kind: "gelu_tanh" }, softcap });
    return {
      ...s,
      moe,
      attn_scale: k.f32("attention.output_scale", 0) || s.attn_scale,
      embedding_scale: k.f32("embedding_scale", 78.38367176906169),
      logit_scale: k.f32("logit_scale", 0.5773502691896257),
      attn_softcap: k.f32("attn_logit_softcapping", 30),
      final_softcap: k.f32("final_logit_softcapping", 0),
    };
  },
  build,
};
