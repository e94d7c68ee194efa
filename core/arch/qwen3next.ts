/**
 * Qwen3-Next (`qwen3next`), Qwen3.5 and 3.6 (`qwen35`, `qwen35moe`). Pre-norm decoder; three of four layers have Gated DeltaNet,
 * the others attention whose result a sigmoid of the input gates. Dense, or routed with a gated shared expert.
 * Qwen3.5 stores value heads tiled over key heads. Its rotation over several axes is the plain one for text, whose axes are all
 * the token's position.
 * Source: huggingface/transformers `modeling_qwen3_next.py`, `modeling_qwen3_5.py`, `modeling_qwen3_5_moe.py`.
 * @module
 */
import type { Ops, Segment, T, Weights } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, head, linear, readDecoderSpec } from "./decoder.ts";
import { gatedDelta, type GatedDeltaSpec, readGatedDelta } from "./delta.ts";
import { draftBlocks } from "./draft.ts";
import type { Keys } from "./keys.ts";
import { readSharedMoe, sharedMoeFfn, type SharedMoeSpec } from "./moe.ts";
import { readSections } from "./rope.ts";

export interface QwenNextSpec extends DecoderSpec, SharedMoeSpec {
  readonly delta: GatedDeltaSpec;
  /** Layers with attention. */
  readonly full: readonly boolean[];
}

export function readQwenNext(k: Keys, gate: "silu" | "sigmoid" = "silu"): QwenNextSpec {
  const s = readDecoderSpec(k);
  readSections(k);
  const interval = k.u32("full_attention_interval", 4);
  k.want(interval >= 1, "full_attention_interval", interval, "at least 1");
  const every = Array.from({ length: s.n_layer }, (_, il) => (il + 1) % interval === 0);
  const key = "attention.recurrent_layers";
  return {
    ...s,
    ...readSharedMoe(k, s.n_layer),
    delta: readGatedDelta(k, { tiled: k.arch !== "qwen3next", gate }),
    full: k.has(key) ? k.perLayer(key, s.n_layer).map((recurrent) => recurrent === 0) : every,
  };
}

/** Attention with gated results over x `[n_embd, n_tok]`, normed; `rows` limits what is read. */
export function gatedAttention(
  op: Ops,
  w: Weights,
  s: QwenNextSpec,
  il: number,
  x: T,
  rows: Pick<Segment, "select" | "unit"> = {},
): T {
  const { n_head, n_head_kv, head_dim } = s, freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  const turned = (y: T, norm: string) =>
    op.rope(op.rms_norm(y, w(norm, [head_dim]), s.norm_eps), freqs, { kind: "halves", mscale: s.rope.mscale });
  const both = linear(op, w, "attn_q", x, 2 * n_head * head_dim).heads(n_head); //         [q | gate] of each head
  const k = linear(op, w, "attn_k", x, n_head_kv * head_dim).heads(n_head_kv);
  const v = linear(op, w, "attn_v", x, n_head_kv * s.head_dim_v).heads(n_head_kv);
  const kv = op.kv(`blk.${il}`, turned(k, "attn_k_norm"), v);
  const q = turned(both.slice(0, head_dim), "attn_q_norm"), options = { scale: s.attn_scale, n_head_kv };
  const o = op.attention(q, { ...kv, ...rows }, options);
  return linear(op, w, "attn_output", op.gate("sigmoid", both.slice(head_dim, head_dim), o).flat(), s.n_embd);
}

function layer(op: Ops, s: QwenNextSpec, il: number, x: T, full: boolean): T { //          x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  x = op.add(x, full ? gatedAttention(op, w, s, il, a) : gatedDelta(op, w, s.delta, il, a));
  return op.add(x, sharedMoeFfn(op, w, s, il, op.rms_norm(x, w("post_attention_norm", [s.n_embd]), s.norm_eps)));
}

function build(op: Ops, s: QwenNextSpec): T {
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, il, x, s.full[il]));
  return head(op, s, x);
}

export const qwen3next: Architecture<QwenNextSpec> = {
  names: ["qwen3next", "qwen35", "qwen35moe"],
  spec: (k) => readQwenNext(k),
  build,
  draft: (op, s) => draftBlocks(op, s, (il, x) => layer(op, s, il, x, true)),
};
