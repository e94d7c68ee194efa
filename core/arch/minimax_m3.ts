/**
 * MiniMax-M3, text (`minimax-m3`).
 * Differs from minimax_m2.ts: RMSNorm on each q and k head, whose weights files hold with the 1 that the release adds; the first layers
 * are dense; a shared expert; clamped SwiGLU as gpt_oss.ts has it, everywhere.
 * Layers with an indexer read the `top_k` best blocks of keys. Up to `top_k` blocks these are all blocks, and longer texts are not taken:
 * the indexer ranks by the best of its heads, for which there is no op.
 * Source: huggingface/transformers `modeling_minimax_m3_vl.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type Act, type DecoderSpec, embed, head, readDecoderSpec, selfAttention } from "./decoder.ts";
import type { Keys } from "./keys.ts";
import { readSharedMoe, sharedMoeFfn, type SharedMoeSpec } from "./moe.ts";

interface MinimaxM3Spec extends DecoderSpec, SharedMoeSpec {
  /** Of the indexer's queries and keys; undefined: no layer has one. */
  readonly indexer: { readonly n_head: number; readonly head_dim: number } | undefined;
}

/** No key tells. */
const ACT: Act = { kind: "oai", a: 7, b: 1.702 };

function spec(k: Keys): MinimaxM3Spec {
  const s = readDecoderSpec(k), n_head = k.u32("attention.indexer.head_count", 0);
  const reach = k.u32("attention.indexer.top_k", 0) * k.u32("attention.indexer.block_size", 0);
  k.u32("attention.indexer.local_blocks", 0); // of those that are read in any case
  const head_dim = k.u32("attention.indexer.key_length", 0);
  k.want(n_head === 0 || reach >= 1, "attention.indexer.top_k", reach, "at least one block of at least one key");
  return {
    ...s,
    ...readSharedMoe(k, s.n_layer, { score: "sigmoid", sum_min: 0, act: ACT }),
    indexer: n_head > 0 ? { n_head, head_dim } : undefined,
    ...(n_head > 0 ? { n_position: reach } : {}),
  };
}

function layer(op: Ops, s: MinimaxM3Spec, freqs: T, il: number, x: T): T { //              x [n_embd, n_tok]
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

function build(op: Ops, s: MinimaxM3Spec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return head(op, s, x);
}

/** The indexers' tensors, which choose nothing as far as texts go here. */
function draft(op: Ops, s: MinimaxM3Spec): void {
  if (!s.indexer) return;
  const { n_head, head_dim } = s.indexer;
  for (let il = 0; il < s.n_layer; il++) {
    const w = op.weights(`blk.${il}.indexer`);
    w.opt("q_proj", [s.n_embd, n_head * head_dim]);
    w.opt("k_proj", [s.n_embd, head_dim]);
    w.opt("q_norm", [head_dim]);
    w.opt("k_norm", [head_dim]);
  }
}

export const minimaxM3: Architecture<MinimaxM3Spec> = { names: ["minimax-m3"], spec, build, draft };
