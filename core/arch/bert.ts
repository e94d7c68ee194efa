/**
 * BERT, RoBERTa and XLM-R encoders such as BGE and E5 (`bert`), Nomic Embed (`nomic-bert`, `nomic-bert-moe`) and Jina v3
 * (`jina-bert-v3`, without its adapters).
 * An encoder: every row sees all rows of its text. Norms stand behind the sublayers, LayerNorm with a bias; q, k and v with biases, from
 * three matrices or one. bert learns its positions, the others rotate halves. Every text is of the first type of tokens, as llama.cpp
 * has it. nomic-bert: SwiGLU without biases; the others GELU, whose form by tanh llama.cpp takes. nomic-bert-moe: the second of every
 * `moe_every_n_layers` layers is routed, experts without a gate and their weights as the softmax has them.
 * Source: BERT (arXiv 1810.04805); Nomic Embed (arXiv 2402.01613, 2502.07972); huggingface/transformers `modeling_bert.py`,
 * `modeling_xlm_roberta.py`; nomic-ai/nomic-bert-2048 `modeling_hf_nomic_bert.py`.
 * @module
 */
import type { Ops, T, Weights } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, gatedFfn, layerNorm, plainFfn, readDecoderSpec, selfAttention } from "./decoder.ts";
import { embedText, wantEncoder } from "./encoder.ts";
import type { Keys } from "./keys.ts";
import { moeFfn, type MoeSpec, readMoe } from "./moe.ts";

interface BertSpec extends DecoderSpec {
  /** Learns its positions. */
  readonly learned: boolean;
  readonly gated: boolean;
  readonly moe: MoeSpec;
  /** Layers whose number gives 1 when divided by it are routed; 0: none. */
  readonly moe_step: number;
}

function spec(k: Keys): BertSpec {
  wantEncoder(k);
  const s = readDecoderSpec(k), learned = k.arch === "bert";
  return {
    ...s,
    learned,
    ...(learned ? { n_position: s.n_ctx_train } : {}),
    gated: k.arch === "nomic-bert",
    moe: readMoe(k, { n_ff_exp: s.n_ff, renorm: false, plain: "gelu_tanh" }),
    moe_step: k.u32("moe_every_n_layers", 0),
  };
}

function feedForward(op: Ops, w: Weights, s: BertSpec, il: number, x: T): T {
  if (s.moe_step > 0 && il % s.moe_step === 1) return moeFfn(op, w, s.moe, x);
  return s.gated ? gatedFfn(op, w, x, s.n_ff) : plainFfn(op, w, x, s.n_ff, "gelu_tanh");
}

function layer(op: Ops, s: BertSpec, il: number, x: T): T { //                             x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T) =>
    s.learned
      ? y
      : op.rope(y, op.constant("rope.inv_freq", s.rope.inv_freq), { kind: "halves", mscale: s.rope.mscale });
  const a = op.add(x, selfAttention(op, w, s, il, x, { turn, around: Infinity }));
  x = layerNorm(op, w, "attn_output_norm", a, s.norm_eps);
  return layerNorm(op, w, "layer_output_norm", op.add(x, feedForward(op, w, s, il, x)), s.norm_eps);
}

function build(op: Ops, s: BertSpec): T {
  let x = embedText(op, s, s.learned);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, il, x));
  op.hidden(x);
  return x;
}

export const bert: Architecture<BertSpec> = {
  names: ["bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v3"],
  encoder: true,
  spec,
  build,
};
