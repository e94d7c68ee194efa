/**
 * Granite 4.0 (`granitehybrid`).
 * Differs from llama.ts: most layers have Mamba 2 instead of attention; embeddings, what a layer adds, queries and logits have factors;
 * nothing is rotated unless the file says so. Dense, or routed with a shared expert.
 * Source: ibm-granite/granite-4.0-h-small model card; huggingface/transformers `modeling_granitemoehybrid.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { embed, head, type HybridSpec, readHybridSpec, selfAttention } from "./decoder.ts";
import type { Keys } from "./keys.ts";
import { readSharedMoe, sharedMoeFfn, type SharedMoeSpec } from "./moe.ts";
import { mamba2, type Mamba2Spec, readMamba2 } from "./ssm.ts";

interface GraniteHybridSpec extends HybridSpec, SharedMoeSpec {
  readonly ssm: Mamba2Spec;
  readonly rotates: boolean;
  /** Factor on embeddings. */
  readonly embedding_scale: number;
  /** Factor on what a layer adds. */
  readonly residual_scale: number;
  /** Divisor of logits. */
  readonly logit_scale: number;
}

function spec(k: Keys): GraniteHybridSpec {
  const s = readHybridSpec(k), factor = (key: string) => k.f32(key, 1) || 1; // 0: none
  return {
    ...s,
    // A softmax over the chosen is one over all of them, divided by what the chosen have.
    ...readSharedMoe(k, s.n_layer, { n_ff_exp: s.n_ff, sum_min: 0 }),
    ssm: readMamba2(k),
    rotates: k.bool("rope.scaling.finetuned", true),
    embedding_scale: factor("embedding_scale"),
    residual_scale: factor("residual_scale"),
    logit_scale: factor("logit_scale"),
  };
}

function layer(op: Ops, s: GraniteHybridSpec, freqs: T, il: number, x: T): T { //          x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const turn = (y: T) => s.rotates ? op.rope(y, freqs, { kind: "pairs", mscale: s.rope.mscale }) : y;
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  const y = s.attends[il] ? selfAttention(op, w, s, il, a, { turn }) : mamba2(op, w, s.ssm, il, a);
  x = op.add(x, op.scale(y, s.residual_scale));
  const f = sharedMoeFfn(op, w, s, il, op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps));
  return op.add(x, op.scale(f, s.residual_scale));
}

function build(op: Ops, s: GraniteHybridSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = op.scale(embed(op, s), s.embedding_scale);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return op.scale(head(op, s, x), 1 / s.logit_scale);
}

export const granitehybrid: Architecture<GraniteHybridSpec> = { names: ["granitehybrid"], spec, build };
