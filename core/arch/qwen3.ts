/**
 * Qwen3, dense. Pre-norm decoder, grouped-query attention, SwiGLU.
 * Differs from llama.ts: RMSNorm on each q and k head before RoPE; RoPE rotates halves; head_dim is free of n_embd / n_head.
 * Source: Qwen3 Technical Report (arXiv 2505.09388) §2; huggingface/transformers `modeling_qwen3.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture, TensorWant, Weights } from "./architecture.ts";
import {
  attentionTensors,
  type DecoderSpec,
  decoderStreams,
  denseFfn,
  denseTensors,
  endTensors,
  head,
  readDecoderSpec,
} from "./decoder.ts";

/** The norms of q and k heads that Qwen3 adds to a layer. */
export function headNormTensors(s: DecoderSpec, il: number): TensorWant[] {
  return ["attn_q_norm", "attn_k_norm"].map((name) => ({ name: `blk.${il}.${name}.weight`, ne: [s.head_dim] }));
}

function tensors(s: DecoderSpec): TensorWant[] {
  const all = endTensors(s);
  for (let il = 0; il < s.n_layer; il++) {
    all.push(...attentionTensors(s, il), ...headNormTensors(s, il), ...denseTensors(s, il));
  }
  return all;
}

/** Norm, attention and residual of one Qwen3 layer. */
export function attentionBlock(op: Ops, w: Weights, s: DecoderSpec, freqs: T, il: number, x: T): T { // x [n_tok, n_embd]
  const b = `blk.${il}`;
  const rope = { kind: "halves", mscale: s.rope.mscale } as const;
  const a = op.rms_norm(x, w(`${b}.attn_norm.weight`), s.norm_eps);
  let q = op.mul_mat(w(`${b}.attn_q.weight`), a).heads(s.n_head); //       [n_tok, n_head, head_dim]
  let k = op.mul_mat(w(`${b}.attn_k.weight`), a).heads(s.n_head_kv); //    [n_tok, n_head_kv, head_dim]
  const v = op.mul_mat(w(`${b}.attn_v.weight`), a).heads(s.n_head_kv);
  q = op.rope(op.rms_norm(q, w(`${b}.attn_q_norm.weight`), s.norm_eps), freqs, rope);
  k = op.rope(op.rms_norm(k, w(`${b}.attn_k_norm.weight`), s.norm_eps), freqs, rope);
  const kv = { cache: 0, k_stream: 2 * il, v_stream: 2 * il + 1 };
  const o = op.attention(q, k, v, kv, { scale: s.attn_scale });
  return op.add(x, op.mul_mat(w(`${b}.attn_output.weight`), o.flat()));
}

function build(op: Ops, w: Weights, s: DecoderSpec): T {
  const freqs = w.constant("rope.inv_freq", s.rope.inv_freq);
  let x = op.embed_rows(w("token_embd.weight"), op.tokens);
  for (let il = 0; il < s.n_layer; il++) {
    x = attentionBlock(op, w, s, freqs, il, x);
    x = op.add(x, denseFfn(op, w, il, op.rms_norm(x, w(`blk.${il}.ffn_norm.weight`), s.norm_eps)));
  }
  return head(op, w, s, x);
}

export const qwen3: Architecture<DecoderSpec> = {
  name: "qwen3",
  spec: (file) => readDecoderSpec(file, "qwen3"),
  tensors,
  streams: decoderStreams,
  build,
};
