/**
 * MiMo-V2 (`mimo2`).
 * Differs from llama.ts: keys are wider than values, and values are scaled; most layers see a window, with sinks, more key heads
 * and a rotary base of their own; RoPE rotates halves of a part of each head; layers are dense or routed (sigmoid scores, selection
 * bias), as the file's tensors say.
 * Source: MiMo-V2-Flash Technical Report (arXiv 2601.02780); huggingface/transformers `modeling_mimo_v2_flash.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture, Spec } from "./architecture.ts";
import { embed, gatedFfn, head, linear, qkv, readSpec, slidingLayers } from "./decoder.ts";
import { draftBlocks } from "./draft.ts";
import type { Keys } from "./keys.ts";
import { moeFfn, type MoeSpec, readMoe, V3_ROUTER } from "./moe.ts";
import { readRope, type Rope } from "./rope.ts";

interface MimoSpec extends Spec {
  readonly n_head: number;
  /** Of each layer. */
  readonly n_head_kv: readonly number[];
  readonly head_dim: number;
  readonly head_dim_v: number;
  readonly n_ff: number;
  readonly norm_eps: number;
  readonly value_scale: number;
  readonly window: number;
  readonly sliding: readonly boolean[];
  readonly rope: Rope;
  /** Of the layers with a window. */
  readonly rope_swa: Rope;
  readonly moe: MoeSpec;
}

function spec(k: Keys): MimoSpec {
  const s = readSpec(k), n_block = s.n_layer + s.n_nextn;
  const n_head = k.uniform("attention.head_count", s.n_layer), head_dim = k.u32("attention.key_length");
  const n_rot = k.u32("rope.dimension_count");
  k.want(n_rot >= 2 && n_rot % 2 === 0 && n_rot <= head_dim, "rope.dimension_count", n_rot, `even, up to ${head_dim}`);
  const n_head_kv = k.perLayer("attention.head_count_kv", n_block);
  const odd = n_head_kv.find((n) => !(n >= 1 && n_head % n === 0));
  k.want(odd === undefined, "attention.head_count_kv", odd, `divisors of head_count ${n_head}`);
  return {
    ...s,
    n_head,
    n_head_kv,
    head_dim,
    head_dim_v: k.u32("attention.value_length"),
    n_ff: k.uniform("feed_forward_length", s.n_layer),
    norm_eps: k.f32("attention.layer_norm_rms_epsilon"),
    value_scale: k.f32("attention.value_scale", 1),
    window: k.u32("attention.sliding_window"),
    // Draft blocks see windows, whatever the pattern says.
    sliding: [...slidingLayers(k, s.n_layer, 6), ...new Array<boolean>(s.n_nextn).fill(true)],
    rope: readRope(k, n_rot),
    rope_swa: readRope(k, n_rot, { freq_base: k.f32("rope.freq_base_swa"), scaled: false }),
    moe: readMoe(k, V3_ROUTER),
  };
}

function layer(op: Ops, s: MimoSpec, freqs: { full: T; near: T }, il: number, x: T): T { // x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`), sliding = s.sliding[il], n_head_kv = s.n_head_kv[il];
  const turn = (y: T) =>
    op.rope(y, sliding ? freqs.near : freqs.full, {
      kind: "halves",
      mscale: sliding ? s.rope_swa.mscale : s.rope.mscale,
    });
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  const { q, k, v } = qkv(op, w, { ...s, n_head_kv }, a);
  const kv = op.kv(`blk.${il}`, turn(k), op.scale(v, s.value_scale), { window: sliding ? s.window : 0 });
  const sinks = w.opt("attn_sinks", [s.n_head]);
  const o = op.attention(turn(q), kv, { scale: s.head_dim ** -0.5, n_head_kv, ...(sinks ? { sinks } : {}) });
  x = op.add(x, linear(op, w, "attn_output", o.flat(), s.n_embd));
  const f = op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps);
  return op.add(x, w.has("ffn_gate_inp") ? moeFfn(op, w, s.moe, f) : gatedFfn(op, w, f, s.n_ff));
}

function tables(op: Ops, s: MimoSpec): { full: T; near: T } {
  return {
    full: op.constant("rope.inv_freq", s.rope.inv_freq),
    near: op.constant("rope.inv_freq_swa", s.rope_swa.inv_freq),
  };
}

function build(op: Ops, s: MimoSpec): T {
  const freqs = tables(op, s);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return head(op, s, x);
}

export const mimo2: Architecture<MimoSpec> = {
  names: ["mimo2"],
  spec,
  build,
  draft: (op, s) => {
    const freqs = tables(op, s);
    draftBlocks(op, s, (il, x) => layer(op, s, freqs, il, x));
  },
};
