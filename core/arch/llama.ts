/**
 * Llama 2/3, Mistral, Mixtral. Pre-norm decoder, grouped-query attention, SwiGLU or routed experts.
 * Rotates pairs (2i, 2i+1): converters permute q and k rows for it. A sliding window (Mistral v0.1) is kept where the file names it.
 * Source: LLaMA (arXiv 2302.13971), Llama 3 (arXiv 2407.21783), Mistral 7B (arXiv 2310.06825), Mixtral (arXiv 2401.04088).
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, gatedFfn, head, linear, qkv, readDecoderSpec } from "./decoder.ts";
import type { Keys } from "./keys.ts";
import { moeFfn, type MoeSpec, readMoe } from "./moe.ts";

interface LlamaSpec extends DecoderSpec {
  readonly moe: MoeSpec;
  readonly window: number;
}

function spec(k: Keys): LlamaSpec {
  const s = readDecoderSpec(k);
  return { ...s, moe: readMoe(k, { n_ff_exp: s.n_ff }), window: k.u32("attention.sliding_window", 0) };
}

function layer(op: Ops, s: LlamaSpec, freqs: T, il: number, x: T): T { //                  x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const rope = { kind: "pairs", mscale: s.rope.mscale } as const;
  const { q, k, v } = qkv(op, w, s, op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps));
  const kv = op.kv(`blk.${il}`, op.rope(k, freqs, rope), v, { window: s.window });
  const o = op.attention(op.rope(q, freqs, rope), kv, { scale: s.attn_scale, n_head_kv: s.n_head_kv });
  x = op.add(x, linear(op, w, "attn_output", o.flat(), s.n_embd));
  const f = op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps);
  return op.add(x, s.moe.n_expert > 0 ? moeFfn(op, w, s.moe, f) : gatedFfn(op, w, f, s.n_ff));
}

function build(op: Ops, s: LlamaSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = layer(op, s, freqs, il, x);
  return head(op, s, x);
}

export const llama: Architecture<LlamaSpec> = { names: ["llama"], spec, build };
