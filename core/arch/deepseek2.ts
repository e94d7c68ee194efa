/**
 * DeepSeek V2, V3, R1; Kimi K2; GLM-4.7-Flash; Mistral Large 3 (`deepseek2`), Mistral Small 4 (`mistral4`). Pre-norm decoder,
 * latent attention that rotates pairs, the first layers dense, then routed and shared experts.
 * Source: DeepSeek-V2 (arXiv 2405.04434), DeepSeek-V3 (arXiv 2412.19437); huggingface/transformers `modeling_deepseek_v2.py`,
 * `modeling_deepseek_v3.py`, `modeling_glm4_moe_lite.py`, `modeling_mistral4.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture, Spec } from "./architecture.ts";
import { embed, head, readSpec } from "./decoder.ts";
import { draftBlocks } from "./draft.ts";
import type { Keys } from "./keys.ts";
import { mla, type MlaParts, type MlaSpec, readMla } from "./mla.ts";
import { readSharedMoe, sharedMoeFfn, type SharedMoeSpec, V3_ROUTER } from "./moe.ts";

export interface DeepSeekSpec extends Spec, MlaSpec, SharedMoeSpec {
  readonly norm_eps: number;
}

export function readDeepSeek(k: Keys): DeepSeekSpec {
  const s = readSpec(k);
  k.u32("attention.head_count_kv", 1); // 1 where keys are the latent, head_count where they are expanded: the tensors tell
  // Early files do not name the rule of scores: those with a selection bias are sigmoid.
  const biased = k.file.has(`blk.${s.n_layer - 1}.exp_probs_b.bias`);
  const moe = readSharedMoe(
    k,
    s.n_layer,
    biased ? V3_ROUTER : { ...V3_ROUTER, score: "softmax", renorm: k.arch === "mistral4" },
  );
  // V2 ranks a group of experts by its best one, V3 by its best two.
  const group_top = moe.moe.score === "softmax" && k.arch === "deepseek2" ? 1 : 2;
  // Mistral Small 4's converter does not write the temperature that its configuration has.
  const mla = readMla(k, s, k.arch === "mistral4" ? { temperature_scale: 0.1 } : {});
  return { ...s, ...mla, ...moe, moe: { ...moe.moe, group_top }, norm_eps: k.f32("attention.layer_norm_rms_epsilon") };
}

export function deepSeekLayer(op: Ops, s: DeepSeekSpec, il: number, x: T, parts?: (x: T) => MlaParts): T {
  const w = op.weights(`blk.${il}`); //                                                    x [n_embd, n_tok]
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  x = op.add(x, mla(op, w, s, il, a, parts?.(a)));
  return op.add(x, sharedMoeFfn(op, w, s, il, op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps)));
}

function build(op: Ops, s: DeepSeekSpec): T {
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, deepSeekLayer(op, s, il, x));
  return head(op, s, x);
}

export const deepseek2: Architecture<DeepSeekSpec> = {
  names: ["deepseek2", "mistral4"],
  spec: readDeepSeek,
  build,
  draft: (op, s) => draftBlocks(op, s, (il, x) => deepSeekLayer(op, s, il, x)),
};
