/**
 * OLMo 2 and 3 (`olmo2`), EXAONE 4 (`exaone4`).
 * Differs from llama.ts: norms behind the sublayers and none before; RMSNorm on q and k, of OLMo over all heads together, of
 * EXAONE on each; RoPE rotates halves. OLMo 3 and the larger EXAONE 4: three of four layers see a window. RoPE's scaling is for
 * OLMo's other layers only; EXAONE's other layers do not rotate.
 * Source: OLMo 2 (arXiv 2501.00656), OLMo 3 (arXiv 2512.13961), EXAONE 4.0 (arXiv 2507.11407); huggingface/transformers
 * `modeling_olmo2.py`, `modeling_olmo3.py`, `modeling_exaone4.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import {
  type DecoderSpec,
  embed,
  gatedFfn,
  head,
  readDecoderSpec,
  selfAttention,
  slidingLayers,
  wholeNorm,
} from "./decoder.ts";
import type { Keys } from "./keys.ts";
import { readRope, type Rope } from "./rope.ts";

interface Olmo2Spec extends DecoderSpec {
  /** 0: every layer sees all. */
  readonly window: number;
  readonly sliding: readonly boolean[];
  /** Of each layer; undefined: it does not rotate. */
  readonly ropes: readonly (Rope | undefined)[];
}

function spec(k: Keys): Olmo2Spec {
  const s = readDecoderSpec(k), window = k.u32("attention.sliding_window", 0);
  const sliding = window > 0 ? slidingLayers(k, s.n_layer, 4) : new Array<boolean>(s.n_layer).fill(false);
  const plain = readRope(k, 2 * s.rope.inv_freq.length, { scaled: false });
  const ropes = k.arch === "exaone4"
    ? sliding.map((near) => near || window === 0 ? s.rope : undefined)
    : sliding.map((near) => near ? plain : s.rope);
  return { ...s, window, sliding, ropes };
}

function layer(op: Ops, s: Olmo2Spec, il: number, x: T): T { //                            x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`), rope = s.ropes[il];
  const norm = (y: T, name: string) => op.rms_norm(y, w(name, [s.n_embd]), s.norm_eps);
  const turn = (y: T, of: "q" | "k") => {
    const normed = s.arch === "exaone4"
      ? op.rms_norm(y, w(`attn_${of}_norm`, [s.head_dim]), s.norm_eps)
      : wholeNorm(op, w, of, y, s.norm_eps);
    if (!rope) return normed;
    const freqs = op.constant(rope === s.rope ? "rope.inv_freq" : "rope.inv_freq_swa", rope.inv_freq);
    return op.rope(normed, freqs, { kind: "halves", mscale: rope.mscale });
  };
  const o = selfAttention(op, w, s, il, x, { turn, window: s.sliding[il] ? s.window : 0 });
  x = op.add(x, norm(o, "post_attention_norm"));
  return op.add(x, norm(gatedFfn(op, w, x, s.n_ff), "post_ffw_norm"));
}

function build(op: Ops, s: Olmo2Spec): T {
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, il, x));
  return head(op, s, x);
}

export const olmo2: Architecture<Olmo2Spec> = { names: ["olmo2", "exaone4"], spec, build };
