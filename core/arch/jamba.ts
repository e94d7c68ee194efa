/**
 * Jamba (`jamba`).
 * Differs from llama.ts: most layers have Mamba instead of attention, with norms on the inputs of the step, B and C; nothing is rotated;
 * every other layer is routed, by softmax scores that are not divided by their sum.
 * Source: Jamba (arXiv 2403.19887); huggingface/transformers `modeling_jamba.py`.
 * @module
 */
import type { Ops, T, Weights } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { embed, gatedFfn, head, type HybridSpec, readHybridSpec, selfAttention } from "./decoder.ts";
import type { Keys } from "./keys.ts";
import { moeFfn, type MoeSpec, readMoe } from "./moe.ts";
import { mamba, type MambaSpec, readMamba } from "./ssm.ts";

interface JambaSpec extends HybridSpec {
  readonly moe: MoeSpec;
  readonly ssm: MambaSpec;
}

function spec(k: Keys): JambaSpec {
  const s = readHybridSpec(k);
  return { ...s, moe: readMoe(k, { n_ff_exp: s.n_ff, renorm: false }), ssm: readMamba(k) };
}

function mixer(op: Ops, w: Weights, s: JambaSpec, il: number, x: T): T {
  if (s.attends[il]) return selfAttention(op, w, s, il, x, { turn: (y) => y });
  return mamba(op, w, s.ssm, il, x, (y, of) => op.rms_norm(y, w(`ssm_${of}_norm`, [y.ne[0]]), s.norm_eps));
}

function layer(op: Ops, s: JambaSpec, il: number, x: T): T { //                            x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  x = op.add(x, mixer(op, w, s, il, op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps)));
  const f = op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps);
  // No key tells which layers are routed.
  return op.add(x, w.has("ffn_gate_inp") ? moeFfn(op, w, s.moe, f) : gatedFfn(op, w, f, s.n_ff));
}

function build(op: Ops, s: JambaSpec): T {
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, il, x));
  return head(op, s, x);
}

export const jamba: Architecture<JambaSpec> = { names: ["jamba"], spec, build };
