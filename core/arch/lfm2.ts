/**
 * LFM2, dense and routed (`lfm2`, `lfm2moe`).
 * Differs from llama.ts: most layers have a short convolution between two gates instead of attention; RMSNorm on each q and k head
 * before RoPE, which rotates halves; the final norm has a name of its own. Routed: the first layers dense, sigmoid scores with a
 * selection bias.
 * Source: LiquidAI/LFM2-1.2B model card; huggingface/transformers `modeling_lfm2.py`, `modeling_lfm2_moe.py`.
 * @module
 */
import type { Ops, T, Weights } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { embed, type HybridSpec, linear, readHybridSpec, selfAttention, unembed } from "./decoder.ts";
import type { Keys } from "./keys.ts";
import { readSharedMoe, sharedMoeFfn, type SharedMoeSpec } from "./moe.ts";

interface Lfm2Spec extends HybridSpec, SharedMoeSpec {
  readonly conv_kernel: number;
  /** The nearest positions that a token sees; 0: all. */
  readonly window: number;
}

function spec(k: Keys): Lfm2Spec {
  const s = readHybridSpec(k), conv_kernel = k.u32("shortconv.l_cache");
  k.want(conv_kernel >= 2, "shortconv.l_cache", conv_kernel, "at least 2");
  return {
    ...s,
    ...readSharedMoe(k, s.n_layer, { score: "sigmoid", sum_add: 1e-6, sum_min: 0 }),
    conv_kernel,
    window: k.u32("attention.sliding_window", 0),
  };
}

/** `out(c conv(b x))`, where b, c and x are projections of the normed row. */
function shortConv(op: Ops, w: Weights, s: Lfm2Spec, il: number, x: T): T {
  const { n_embd: n, conv_kernel } = s, bcx = linear(op, w, "shortconv.in_proj", x, 3 * n);
  const b = bcx.slice(0, n), c = bcx.slice(n, n);
  const y = op.conv(`blk.${il}.conv`, op.mul(b, bcx.slice(2 * n, n)), w("shortconv.conv", [conv_kernel, n]), {
    bias: w.opt("shortconv.conv.bias", [n]),
  });
  return linear(op, w, "shortconv.out_proj", op.mul(c, y), n);
}

function layer(op: Ops, s: Lfm2Spec, freqs: T, il: number, x: T): T { //                   x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T, of: "q" | "k") =>
    op.rope(op.rms_norm(y, w(`attn_${of}_norm`, [s.head_dim]), s.norm_eps), freqs, {
      kind: "halves",
      mscale: s.rope.mscale,
    });
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  x = op.add(
    x,
    s.attends[il] ? selfAttention(op, w, s, il, a, { turn, window: s.window }) : shortConv(op, w, s, il, a),
  );
  return op.add(x, sharedMoeFfn(op, w, s, il, op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps)));
}

function build(op: Ops, s: Lfm2Spec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return unembed(op, s, op.rms_norm(op.out_rows(x), op.weights()("token_embd_norm", [s.n_embd]), s.norm_eps));
}

export const lfm2: Architecture<Lfm2Spec> = { names: ["lfm2", "lfm2moe"], spec, build };
