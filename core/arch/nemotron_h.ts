/**
 * Nemotron-H, Nemotron Nano 2 and 3 (`nemotron_h`, `nemotron_h_moe`).
 * Differs from llama.ts: a layer is one thing alone, Mamba 2, attention without rotation, or a feed-forward block of squared ReLU without
 * a gate: dense, or routed as DeepSeek V3 with a shared expert; the experts of Nemotron 3 Super work in a smaller space.
 * Source: Nemotron-H (arXiv 2504.03624); huggingface/transformers `modeling_nemotron_h.py`.
 * @module
 */
import type { Ops, T, Weights } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { embed, head, type HybridSpec, linear, plainFfn, readHybridSpec, selfAttention } from "./decoder.ts";
import type { Keys } from "./keys.ts";
import { experts, type MoeSpec, readMoe, route, V3_ROUTER } from "./moe.ts";
import { mamba2, type Mamba2Spec, readMamba2 } from "./ssm.ts";

interface NemotronHSpec extends HybridSpec {
  readonly ssm: Mamba2Spec;
  readonly moe: MoeSpec;
  readonly n_ff_shexp: number;
  /** Width of rows that experts see; 0: they see the layer's. */
  readonly n_latent: number;
  /** Layers with a feed-forward block. */
  readonly feeds: readonly boolean[];
}

function spec(k: Keys): NemotronHSpec {
  const s = readHybridSpec(k), n_shared = k.u32("expert_shared_count", 0);
  const moe = readMoe(k, { ...V3_ROUTER, n_ff_exp: s.n_ff, plain: "relu2" });
  return {
    ...s,
    ssm: readMamba2(k),
    moe,
    n_ff_shexp: k.u32("expert_shared_feed_forward_length", 0) || moe.n_ff_exp * n_shared,
    n_latent: k.u32("moe_latent_size", 0),
    feeds: k.perLayer("feed_forward_length", s.n_layer, 0).map((n) => n > 0),
  };
}

function ffn(op: Ops, w: Weights, s: NemotronHSpec, x: T): T {
  if (s.moe.n_expert === 0) return plainFfn(op, w, x, s.n_ff, "relu2");
  const { n_latent } = s, seen = n_latent > 0 ? linear(op, w, "ffn_latent_down", x, n_latent) : x;
  const chosen = experts(op, w, s.moe, seen, route(op, w, s.moe, x));
  const routed = n_latent > 0 ? linear(op, w, "ffn_latent_up", chosen, s.n_embd) : chosen;
  return s.n_ff_shexp > 0 ? op.add(routed, plainFfn(op, w, x, s.n_ff_shexp, "relu2", "_shexp")) : routed;
}

function layer(op: Ops, s: NemotronHSpec, il: number, x: T): T { //                        x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`), a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  if (s.feeds[il]) return op.add(x, ffn(op, w, s, a));
  return op.add(x, s.attends[il] ? selfAttention(op, w, s, il, a, { turn: (y) => y }) : mamba2(op, w, s.ssm, il, a));
}

function build(op: Ops, s: NemotronHSpec): T {
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, il, x));
  return head(op, s, x);
}

export const nemotronH: Architecture<NemotronHSpec> = { names: ["nemotron_h", "nemotron_h_moe"], spec, build };
