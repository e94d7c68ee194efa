/**
 * Qwen3-MoE: qwen3.ts with every feed-forward replaced by routed experts (softmax over all experts in f32, the best k
 * renormalised).
 * Source: Qwen3 Technical Report (arXiv 2505.09388) §2; huggingface/transformers `modeling_qwen3_moe.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture, TensorWant, Weights } from "./architecture.ts";
import {
  attentionTensors,
  type DecoderSpec,
  decoderStreams,
  endTensors,
  expertFfn,
  expertTensors,
  head,
  readDecoderSpec,
} from "./decoder.ts";
import { attentionBlock, headNormTensors } from "./qwen3.ts";

function tensors(s: DecoderSpec): TensorWant[] {
  const all = endTensors(s);
  for (let il = 0; il < s.n_layer; il++) {
    all.push(...attentionTensors(s, il), ...headNormTensors(s, il), ...expertTensors(s, il));
  }
  return all;
}

function build(op: Ops, w: Weights, s: DecoderSpec): T {
  const freqs = w.constant("rope.inv_freq", s.rope.inv_freq);
  let x = op.embed_rows(w("token_embd.weight"), op.tokens);
  for (let il = 0; il < s.n_layer; il++) {
    x = attentionBlock(op, w, s, freqs, il, x);
    x = op.add(x, expertFfn(op, w, s, il, op.rms_norm(x, w(`blk.${il}.ffn_norm.weight`), s.norm_eps)));
  }
  return head(op, w, s, x);
}

export const qwen3moe: Architecture<DecoderSpec> = {
  name: "qwen3moe",
  spec: (file) => readDecoderSpec(file, "qwen3moe"),
  tensors,
  streams: decoderStreams,
  build,
};
