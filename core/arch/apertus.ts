/**
 * Apertus (`apertus`).
 * Differs from llama.ts: RMSNorm on each q and k head before RoPE, which rotates halves; a feed-forward block without a gate, whose
 * activation xIELU has learned numbers of each layer.
 * Source: Apertus (arXiv 2509.14233); xIELU (arXiv 2411.13010); huggingface/transformers `modeling_apertus.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, head, linear, readDecoderSpec, selfAttention } from "./decoder.ts";
import type { Keys } from "./keys.ts";

/** xIELU of one layer: `beta x + pos x^2` above 0, `beta x + neg (e^x - 1 - x)` below. */
interface Xielu {
  readonly pos: number;
  readonly neg: number;
  readonly beta: number;
}

interface ApertusSpec extends DecoderSpec {
  readonly xielu: readonly Xielu[];
}

function spec(k: Keys): ApertusSpec {
  const s = readDecoderSpec(k), softplus = (x: number) => x > 20 ? x : Math.log1p(Math.exp(x));
  // These keys have no prefix.
  const perLayer = (name: string) => k.file.metadata.perLayer(`xielu.${name}`, s.n_layer);
  const p = perLayer("alpha_p"), n = perLayer("alpha_n"), beta = perLayer("beta");
  const xielu = p.map((a, il) => ({ pos: softplus(a), neg: beta[il] + softplus(n[il]), beta: beta[il] }));
  return { ...s, xielu };
}

function activation(op: Ops, { pos, neg, beta }: Xielu, x: T): T {
  const below = op.unary("clamp", x, -1e30, 0), bend = op.add(op.unary("exp", below), op.scale(below, -1, -1));
  return op.add(op.add(op.scale(x, beta), op.scale(op.unary("relu2", x), pos)), op.scale(bend, neg));
}

function layer(op: Ops, s: ApertusSpec, freqs: T, il: number, x: T): T { //                x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T, of: "q" | "k") =>
    op.rope(op.rms_norm(y, w(`attn_${of}_norm`, [s.head_dim]), s.norm_eps), freqs, {
      kind: "halves",
      mscale: s.rope.mscale,
    });
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  x = op.add(x, selfAttention(op, w, s, il, a, { turn }));
  const up = linear(op, w, "ffn_up", op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps), s.n_ff);
  return op.add(x, linear(op, w, "ffn_down", activation(op, s.xielu[il], up), s.n_embd));
}

function build(op: Ops, s: ApertusSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return head(op, s, x);
}

export const apertus: Architecture<ApertusSpec> = { names: ["apertus"], spec, build };
