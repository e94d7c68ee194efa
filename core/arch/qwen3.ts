/**
 * Qwen3, dense and routed (`qwen3`, `qwen3moe`), the text part of Qwen3-VL (`qwen3vl`, `qwen3vlmoe`), dots.llm1 (`dots1`), Ling 2
 * (`bailingmoe2`).
 * Differs from llama.ts: RMSNorm on each q and k head before RoPE; RoPE rotates halves; head_dim is free of n_embd / n_head.
 * dots1, bailingmoe2: routed as DeepSeek V3, behind dense layers; bailingmoe2 rotates a part of each head.
 * Source: Qwen3 Technical Report (arXiv 2505.09388) §2; huggingface/transformers `modeling_qwen3.py`, `modeling_qwen3_moe.py`,
 * `modeling_qwen3_vl.py`, `modeling_dots1.py`; inclusionAI/Ling-mini-2.0 `modeling_bailing_moe_v2.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, head, readDecoderSpec, selfAttention } from "./decoder.ts";
import type { Keys } from "./keys.ts";
import { type MoeSpec, readSharedMoe, sharedMoeFfn, type SharedMoeSpec, V3_ROUTER } from "./moe.ts";
import { readSections } from "./rope.ts";

interface Qwen3Spec extends DecoderSpec, SharedMoeSpec {}

/** How experts are chosen, where it is not a softmax. */
const ROUTERS: Readonly<Record<string, Partial<MoeSpec>>> = { dots1: V3_ROUTER, bailingmoe2: V3_ROUTER };

function spec(k: Keys): Qwen3Spec {
  const s = readDecoderSpec(k);
  readSections(k);
  k.u32("n_deepstack_layers", 0); // layers that images are added to
  return { ...s, ...readSharedMoe(k, s.n_layer, { n_ff_exp: s.n_ff, ...ROUTERS[k.arch] }) };
}

function layer(op: Ops, s: Qwen3Spec, freqs: T, il: number, x: T): T { //                  x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T, of: "q" | "k") =>
    op.rope(op.rms_norm(y, w(`attn_${of}_norm`, [s.head_dim]), s.norm_eps), freqs, {
      kind: "halves",
      mscale: s.rope.mscale,
    });
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  x = op.add(x, selfAttention(op, w, s, il, a, { turn }));
  return op.add(x, sharedMoeFfn(op, w, s, il, op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps)));
}

function build(op: Ops, s: Qwen3Spec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return head(op, s, x);
}

export const qwen3: Architecture<Qwen3Spec> = {
  names: ["qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "dots1", "bailingmoe2"],
  spec,
  build,
};
