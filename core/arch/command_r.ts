/**
 * Command R and R+ (`command-r`).
 * Differs from llama.ts: attention and feed-forward block side by side on the same input; LayerNorm without a bias, in R+ on each q
 * and k head too; logits have a factor.
 * Source: CohereForAI/c4ai-command-r-v01 model card; huggingface/transformers `modeling_cohere.py`.
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
} from "./decoder.ts";

interface CommandRSpec extends DecoderSpec {
  readonly logit_scale: number;
}

function layer(op: Ops, s: CommandRSpec, freqs: T, il: number, x: T): T { //               x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T, of: "q" | "k") => {
    const norm = w.opt(`attn_${of}_norm`, [s.head_dim, of === "q" ? s.n_head : s.n_head_kv]);
    return op.rope(norm ? op.norm("layer", y, norm, s.norm_eps) : y, freqs, { kind: "pairs", mscale: s.rope.mscale });
  };
  const a = layerNorm(op, w, "attn_norm", x, s.norm_eps);
  return op.add(op.add(x, gatedFfn(op, w, a, s.n_ff)), selfAttention(op, w, s, il, a, { turn }));
}

function build(op: Ops, s: CommandRSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return op.scale(layerNormHead(op, s, x), s.logit_scale);
}

export const commandR: Architecture<CommandRSpec> = {
  names: ["command-r"],
  spec: (k) => ({ ...readDecoderSpec(k), logit_scale: k.f32("logit_scale") }),
  build,
};
