/**
 * GLM-4 (`glm4`), ChatGLM (`chatglm`).
 * Differs from llama.ts: norms before and behind both sublayers, of ChatGLM before them only; biases on q, k and v; gate and up in one
 * matrix; RoPE rotates pairs of a part of each head.
 * Source: GLM-4-0414 model cards; huggingface/transformers `modeling_glm4.py`, `modeling_glm.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, fusedFfn, head, readDecoderSpec, selfAttention } from "./decoder.ts";

function layer(op: Ops, s: DecoderSpec, freqs: T, il: number, x: T): T { //                x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const norm = (y: T, name: string) => op.rms_norm(y, w(name, [s.n_embd]), s.norm_eps);
  const turn = (y: T) => op.rope(y, freqs, { kind: "pairs", mscale: s.rope.mscale });
  const behind = (y: T, name: string) => s.arch === "glm4" ? norm(y, name) : y;
  x = op.add(x, behind(selfAttention(op, w, s, il, norm(x, "attn_norm"), { turn }), "post_attention_norm"));
  return op.add(x, behind(fusedFfn(op, w, norm(x, "ffn_norm"), s.n_ff), "post_ffw_norm"));
}

function build(op: Ops, s: DecoderSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return head(op, s, x);
}

export const glm4: Architecture<DecoderSpec> = { names: ["glm4", "chatglm"], spec: readDecoderSpec, build };
