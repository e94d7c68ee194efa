/**
 * Command R7B and Command A (`cohere2`).
 * Differs from llama.ts: attention and feed-forward read the same norm and are added side by side; LayerNorm without bias;
 * logits are scaled. Three of four layers see a window and rotate, the others see all and do not.
 * Source: Command A (arXiv 2504.00698); huggingface/transformers `modeling_cohere2.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import {
  type DecoderSpec,
  embed,
  gatedFfn,
  layerNorm,
  layerNormHead,
  readDecoderSpec,
  selfAttention,
  slidingLayers,
} from "./decoder.ts";
import type { Keys } from "./keys.ts";

interface Cohere2Spec extends DecoderSpec {
  readonly window: number;
  readonly sliding: readonly boolean[];
  readonly logit_scale: number;
}

function spec(k: Keys): Cohere2Spec {
  const s = readDecoderSpec(k);
  return {
    ...s,
    window: k.u32("attention.sliding_window"),
    sliding: slidingLayers(k, s.n_layer, 4),
    logit_scale: k.f32("logit_scale", 1),
  };
}

function layer(op: Ops, s: Cohere2Spec, freqs: T, il: number, x: T): T { //                x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`), sliding = s.sliding[il];
  const turn = (y: T) => sliding ? op.rope(y, freqs, { kind: "pairs", mscale: s.rope.mscale }) : y;
  const a = layerNorm(op, w, "attn_norm", x, s.norm_eps);
  const o = selfAttention(op, w, s, il, a, { turn, window: sliding ? s.window : 0 });
  return op.add(op.add(x, o), gatedFfn(op, w, a, s.n_ff));
}

function build(op: Ops, s: Cohere2Spec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return op.scale(layerNormHead(op, s, x), s.logit_scale);
}

export const cohere2: Architecture<Cohere2Spec> = { names: ["cohere2"], spec, build };
