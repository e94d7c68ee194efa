/**
 * ModernBERT (`modern-bert`), such as the GTE and Granite embedding models and rerankers.
 * An encoder. Differs from bert.ts: norms stand before the sublayers, LayerNorm without a bias, none before the first attention; no
 * biases; every third layer sees all, the others a window to both sides and rotate by a base of their own; q, k and v in one matrix; a
 * feed-forward block with a gate, which is the first half of its first matrix (GELU, or SiLU where the file says so).
 * Source: ModernBERT (arXiv 2412.13663); huggingface/transformers `modeling_modernbert.py`.
 * @module
 */
import type { GateKind } from "../program/ops.ts";
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, fusedFfn, layerNorm, readDecoderSpec, selfAttention } from "./decoder.ts";
import { embedText, wantEncoder } from "./encoder.ts";
import type { Keys } from "./keys.ts";
import { readRope, type Rope } from "./rope.ts";

interface ModernBertSpec extends DecoderSpec {
  /** Positions that a layer sees on each side. */
  readonly around: readonly number[];
  readonly rope_swa: Rope;
  readonly act: GateKind;
}

const ACTS: Readonly<Record<string, GateKind>> = {
  gelu: "gelu_tanh",
  gelu_new: "gelu_tanh",
  silu: "silu",
  swish: "silu",
};

function spec(k: Keys): ModernBertSpec {
  wantEncoder(k);
  const s = readDecoderSpec(k), window = k.u32("attention.sliding_window", 0);
  const period = k.u32("attention.sliding_window_pattern", 3), act = k.str("hidden_activation", "gelu");
  k.want(period >= 1, "attention.sliding_window_pattern", period, "at least 1");
  k.want(act in ACTS, "hidden_activation", act, Object.keys(ACTS).join(", "));
  return {
    ...s,
    around: Array.from({ length: s.n_layer }, (_, il) => il % period === 0 || window === 0 ? Infinity : window >> 1),
    rope_swa: readRope(k, 2 * s.rope.inv_freq.length, {
      freq_base: k.f32("rope.freq_base_swa", k.f32("rope.freq_base", 10000)),
      scaled: false,
    }),
    act: ACTS[act],
  };
}

function layer(op: Ops, s: ModernBertSpec, il: number, x: T): T { //                       x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`), around = s.around[il];
  const rope = around === Infinity ? s.rope : s.rope_swa;
  const freqs = op.constant(around === Infinity ? "rope.inv_freq" : "rope.inv_freq_swa", rope.inv_freq);
  const turn = (y: T) => op.rope(y, freqs, { kind: "halves", mscale: rope.mscale });
  const a = il === 0 && !w.has("attn_norm") ? x : layerNorm(op, w, "attn_norm", x, s.norm_eps);
  x = op.add(x, selfAttention(op, w, s, il, a, { turn, around }));
  return op.add(x, fusedFfn(op, w, layerNorm(op, w, "ffn_norm", x, s.norm_eps), s.n_ff, { kind: s.act }));
}

function build(op: Ops, s: ModernBertSpec): T {
  let x = embedText(op, s, false);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, il, x));
  x = layerNorm(op, op.weights(), "output_norm", x, s.norm_eps);
  op.hidden(x);
  return x;
}

export const modernBert: Architecture<ModernBertSpec> = { names: ["modern-bert"], encoder: true, spec, build };
