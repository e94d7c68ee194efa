/**
 * What Gemma 3n and Gemma 4 share: attention whose last layers read the keys and values of earlier ones, and embeddings that
 * every layer has for itself.
 * Source: huggingface/transformers `modeling_gemma3n.py`, `modeling_gemma4.py`.
 * @module
 */
import type { Ops, Segment, T, Weights } from "../program/program.ts";
import type { Spec } from "./architecture.ts";
import { linear } from "./decoder.ts";
import type { Keys } from "./keys.ts";
import type { Rope } from "./rope.ts";

/** Attention of one layer. */
export interface GemmaLayer {
  readonly n_head: number;
  readonly n_head_kv: number;
  readonly head_dim: number;
  /** 0: it sees all. */
  readonly window: number;
  readonly rope: Rope;
  /** The layer whose keys and values it reads; its own number where it has some. */
  readonly source: number;
  /** It has no matrix of values: those are its keys before the norm. */
  readonly same_kv: boolean;
}

/**
 * The last `attention.shared_kv_layers` layers read the last of the others that sees as far as they do.
 * @throws {ModelError} `model.key_value` when no earlier layer has them
 */
export function kvSources(k: Keys, sliding: readonly boolean[]): number[] {
  const n_own = sliding.length - k.u32("attention.shared_kv_layers", 0);
  return sliding.map((near, il) => {
    const source = il < n_own ? il : sliding.slice(0, Math.max(n_own, 0)).lastIndexOf(near);
    k.want(source >= 0, "attention.shared_kv_layers", sliding.length - n_own, "layers of both kinds before them");
    return source;
  });
}

/** Of layer `il` over normed rows. `kept` has the keys and values of the layers before. Scores are q k as it is. */
export function gemmaAttention(
  op: Ops,
  w: Weights,
  s: Spec & { readonly norm_eps: number },
  l: GemmaLayer,
  il: number,
  x: T,
  kept: Map<number, Segment>,
): T {
  const freqs = op.constant(l.window > 0 ? "rope.inv_freq_swa" : "rope.inv_freq", l.rope.inv_freq);
  const turn = (y: T, of: "q" | "k") =>
    op.rope(op.rms_norm(y, w(`attn_${of}_norm`, [l.head_dim]), s.norm_eps), freqs, {
      kind: "halves",
      mscale: l.rope.mscale,
    });
  const q = linear(op, w, "attn_q", x, l.n_head * l.head_dim).heads(l.n_head);
  if (l.source === il) {
    const k = linear(op, w, "attn_k", x, l.n_head_kv * l.head_dim).heads(l.n_head_kv);
    const v = l.same_kv ? k : linear(op, w, "attn_v", x, l.n_head_kv * l.head_dim).heads(l.n_head_kv);
    const values = op.rms_norm(v, undefined, s.norm_eps);
    kept.set(il, op.kv(`blk.${il}`, turn(k, "k"), values, { window: l.window }));
  }
  const y = op.attention(turn(q, "q"), kept.get(l.source)!, { scale: 1, n_head_kv: l.n_head_kv });
  return linear(op, w, "attn_output", y.flat(), s.n_embd);
}

/** From each token's id and its embedding x `[n_embd, n_tok]`: `n` numbers for every layer, `[n n_layer, n_tok]`. */
export function layerInputs(op: Ops, s: Spec & { readonly norm_eps: number }, n: number, x: T): T {
  const w = op.weights(), all = n * s.n_layer;
  const own = op.scale(op.get_rows(w("per_layer_token_embd", [all, s.n_vocab]), op.tokens), Math.sqrt(n));
  const projected = op.scale(linear(op, w, "per_layer_model_proj", x, all), s.n_embd ** -0.5).heads(s.n_layer);
  const normed = op.rms_norm(projected, w("per_layer_proj_norm", [n]), s.norm_eps).flat();
  return op.scale(op.add(normed, own), Math.SQRT1_2);
}

/** What layer `il` adds by its part of `inputs`: `[n_embd, n_tok]`. */
export function layerInput(
  op: Ops,
  w: Weights,
  s: Spec & { readonly norm_eps: number },
  n: number,
  il: number,
  x: T,
  inputs: T,
): T {
  const gated = op.gate("gelu_tanh", linear(op, w, "inp_gate", x, n), inputs.slice(il * n, n));
  return op.rms_norm(linear(op, w, "proj", gated, s.n_embd), w("post_norm", [s.n_embd]), s.norm_eps);
}
