/**
 * Gemma 2 (`gemma2`), Gemma 3, text (`gemma3`), and EmbeddingGemma (`gemma-embedding`).
 * Differs from llama.ts: embeddings times sqrt(n_embd); norms before and behind both sublayers; GELU; RoPE rotates halves. Norm
 * weights are stored with the 1 that the release adds. Gemma 3: RMSNorm on each q and k head; five of six layers see a window
 * and rotate by a base of their own, unscaled. Gemma 2: every other layer sees a window; scores and logits go through a soft
 * cap. EmbeddingGemma: an encoder, so that windows reach to both sides; vectors go through up to two matrices.
 * Source: Gemma 2 (arXiv 2408.00118), Gemma 3 Technical Report (arXiv 2503.19786); huggingface/transformers
 * `modeling_gemma2.py`, `modeling_gemma3.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import {
  type DecoderSpec,
  embed,
  gatedFfn,
  head,
  linear,
  readDecoderSpec,
  selfAttention,
  slidingLayers,
} from "./decoder.ts";
import { wantEncoder } from "./encoder.ts";
import type { Keys } from "./keys.ts";
import { readRope, type Rope } from "./rope.ts";

interface Gemma3Spec extends DecoderSpec {
  readonly window: number;
  readonly sliding: readonly boolean[];
  /** Of the layers with a window. */
  readonly rope_swa: Rope;
  /** Rows see those behind them too. */
  readonly both: boolean;
  /** Norms on heads. */
  readonly qk_norm: boolean;
  /** Of scores, and of logits; 0: none. */
  readonly softcap: number;
  readonly final_softcap: number;
}

/** EmbeddingGemma. */
interface EmbeddingSpec extends Gemma3Spec {
  /** Numbers behind each of the two matrices; 0: there is none. */
  readonly dense: readonly number[];
}

/** Layers of the 27B of each, whose queries are scaled by n_embd / n_head instead of head_dim; no key tells. */
const LAYERS_27B: Readonly<Record<string, number>> = { gemma2: 46, gemma3: 62 };

function spec(k: Keys): Gemma3Spec {
  const s = readDecoderSpec(k), is2 = k.arch === "gemma2";
  return {
    ...s,
    attn_scale: s.n_layer === LAYERS_27B[k.arch] ? (s.n_embd / s.n_head) ** -0.5 : s.attn_scale,
    window: k.u32("attention.sliding_window"),
    sliding: slidingLayers(k, s.n_layer, is2 ? 2 : 6),
    rope_swa: readRope(k, 2 * s.rope.inv_freq.length, { freq_base: k.f32("rope.freq_base_swa", 10000), scaled: false }),
    both: k.arch === "gemma-embedding",
    qk_norm: !is2,
    softcap: k.f32("attn_logit_softcapping", is2 ? 50 : 0),
    final_softcap: k.f32("final_logit_softcapping", is2 ? 30 : 0),
  };
}

function layer(op: Ops, s: Gemma3Spec, freqs: T, il: number, x: T): T { //                 x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const norm = (y: T, name: string) => op.rms_norm(y, w(name, [s.n_embd]), s.norm_eps);
  const mscale = s.sliding[il] ? s.rope_swa.mscale : s.rope.mscale;
  const turn = (y: T, of: "q" | "k") => {
    const normed = s.qk_norm ? op.rms_norm(y, w(`attn_${of}_norm`, [s.head_dim]), s.norm_eps) : y;
    return op.rope(normed, freqs, { kind: "halves", mscale });
  };
  const window = s.sliding[il] ? s.window : 0;
  const sees = s.both ? { around: window > 0 ? window >> 1 : Infinity } : { window };
  const o = selfAttention(op, w, s, il, norm(x, "attn_norm"), { turn, ...sees, softcap: s.softcap });
  x = op.add(x, norm(o, "post_attention_norm"));
  const f = gatedFfn(op, w, norm(x, "ffn_norm"), s.n_ff, { kind: "gelu_tanh" });
  return op.add(x, norm(f, "post_ffw_norm"));
}

function layers(op: Ops, s: Gemma3Spec): T {
  const full = op.constant("rope.inv_freq", s.rope.inv_freq);
  const near = op.constant("rope.inv_freq_swa", s.rope_swa.inv_freq);
  let x = op.scale(embed(op, s), Math.sqrt(s.n_embd));
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, s.sliding[il] ? near : full, il, x));
  return x;
}

function build(op: Ops, s: Gemma3Spec): T {
  const logits = head(op, s, layers(op, s));
  return s.final_softcap > 0 ? op.unary("softcap", logits, s.final_softcap) : logits;
}

export const gemma3: Architecture<Gemma3Spec> = { names: ["gemma2", "gemma3"], spec, build };

/** The matrices behind the final norm, as they stand in the file's keys. */
const DENSE = ["dense_2", "dense_3"];

function embeddingSpec(k: Keys): EmbeddingSpec {
  wantEncoder(k);
  const s = spec(k);
  const dense = DENSE.map((name) => k.file.has(`${name}.weight`) ? k.u32(`${name}_feat_out`) : 0);
  for (const name of DENSE) k.u32(`${name}_feat_in`, 0);
  return { ...s, dense };
}

function buildEmbedding(op: Ops, s: EmbeddingSpec): T {
  const w = op.weights();
  let x = op.rms_norm(layers(op, s), w("output_norm", [s.n_embd]), s.norm_eps);
  DENSE.forEach((name, i) => {
    if (s.dense[i] > 0) x = linear(op, w, name, x, s.dense[i]);
  });
  op.hidden(x);
  return x;
}

export const gemmaEmbedding: Architecture<EmbeddingSpec> = {
  names: ["gemma-embedding"],
  encoder: true,
  spec: embeddingSpec,
  build: buildEmbedding,
};
