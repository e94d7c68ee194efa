/**
 * Llama 2/3, Mistral, Mixtral. Pre-norm decoder, grouped-query attention, SwiGLU or routed experts.
 * Rotates pairs (2i, 2i+1): converters permute q and k rows for it. Biases are used where the file has them.
 * Source: LLaMA (arXiv 2302.13971), Llama 3 (arXiv 2407.21783), Mixtral (arXiv 2401.04088); huggingface/transformers.
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
  expertFfn,
  expertTensors,
  head,
  linear,
  readDecoderSpec,
} from "./decoder.ts";

function biases(s: DecoderSpec, il: number): TensorWant[] {
  const b = `blk.${il}`;
  const sizes: [string, number][] = [
    ["attn_q", s.n_head * s.head_dim],
    ["attn_k", s.n_head_kv * s.head_dim],
    ["attn_v", s.n_head_kv * s.head_dim_v],
    ["attn_output", s.n_embd],
    ["ffn_gate", s.n_ff],
    ["ffn_up", s.n_ff],
    ["ffn_down", s.n_embd],
  ];
  return sizes.map(([name, n]) => ({ name: `${b}.${name}.bias`, ne: [n], optional: true }));
}

function tensors(s: DecoderSpec): TensorWant[] {
  const all = endTensors(s);
  for (let il = 0; il < s.n_layer; il++) {
    all.push(...attentionTensors(s, il), ...biases(s, il));
    all.push(...(s.n_expert > 0 ? expertTensors(s, il) : denseTensors(s, il)));
  }
  return all;
}

function layer(op: Ops, w: Weights, s: DecoderSpec, freqs: T, il: number, x: T): T { //  x [n_tok, n_embd]
  const b = `blk.${il}`;
  const rope = { kind: "pairs", mscale: s.rope.mscale } as const;
  const a = op.rms_norm(x, w(`${b}.attn_norm.weight`), s.norm_eps);
  const q = op.rope(linear(op, w, `${b}.attn_q`, a).heads(s.n_head), freqs, rope); //     [n_tok, n_head, head_dim]
  const k = op.rope(linear(op, w, `${b}.attn_k`, a).heads(s.n_head_kv), freqs, rope); //  [n_tok, n_head_kv, head_dim]
  const v = linear(op, w, `${b}.attn_v`, a).heads(s.n_head_kv);
  const kv = { cache: 0, k_stream: 2 * il, v_stream: 2 * il + 1 };
  const o = op.attention(q, k, v, kv, { scale: s.attn_scale });
  x = op.add(x, linear(op, w, `${b}.attn_output`, o.flat()));
  const f = op.rms_norm(x, w(`${b}.ffn_norm.weight`), s.norm_eps);
  return op.add(x, s.n_expert > 0 ? expertFfn(op, w, s, il, f) : denseFfn(op, w, il, f));
}

function build(op: Ops, w: Weights, s: DecoderSpec): T {
  const freqs = w.constant("rope.inv_freq", s.rope.inv_freq);
  let x = op.embed_rows(w("token_embd.weight"), op.tokens);
  for (let il = 0; il < s.n_layer; il++) x = layer(op, w, s, freqs, il, x);
  return head(op, w, s, x);
}

export const llama: Architecture<DecoderSpec> = {
  name: "llama",
  spec: (file) => readDecoderSpec(file, "llama"),
  tensors,
  streams: decoderStreams,
  build,
};
