/**
 * DeepSeek V2 and V3 with their relatives (`deepseek2`), and V3.2 (`deepseek32`).
 * @module
 */
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import type { Keys } from "../keys.ts";
import type { Rules } from "../rules.ts";
import { denseRules, normRules, trunkRules } from "./llama.ts";
import { indexerKeys, indexerRules, mlaKeys, mlaRules } from "./mla.ts";
import { blockOf, draftRules, expertRules, routerRules, sharedExpertRules, withDrafts } from "./moe.ts";

/** Blocks before the first with experts. */
export function leadingDense(c: Config): number {
  return c.int("first_k_dense_replace") ?? (c.int("n_routed_experts") === undefined ? c.n_layer : 0);
}

/** Trunk, norms, and a dense or expert feed-forward per block; attention is the caller's. */
export function deepseekBodyRules(r: Rules, c: Config): void {
  trunkRules(r, c);
  if (c.bool("tie_word_embeddings", false)) r.drop("lm_head.weight", "model.lm_head.weight").forget("lm_head.weight");
  normRules(r, c);
  const dense = leadingDense(c);
  denseRules(r, c, (il) => il < dense);
  if (c.int("n_routed_experts") === undefined) return;
  const blocks = (il: number) => il >= dense;
  routerRules(r, c, { blocks });
  expertRules(r, c, { blocks });
  const shared = c.int("n_shared_experts") ?? 0;
  if (shared > 0) sharedExpertRules(r, c, "shared_experts", c.needInt("moe_intermediate_size") * shared, { blocks });
}

export function deepseekKeys(k: Keys, c: Config): void {
  k.u32("attention.head_count_kv", 1) // one latent head
    .u32("leading_dense_block_count", leadingDense(c))
    .u32("vocab_size", c.needInt("vocab_size"));
  mlaKeys(k, c);
  k.u32("expert_feed_forward_length", c.needInt(["moe_intermediate_size", "intermediate_size"]))
    .u32("expert_count", c.int("n_routed_experts"))
    .u32("expert_shared_count", c.int("n_shared_experts") ?? 0)
    .f32("expert_weights_scale", c.num("routed_scaling_factor"))
    .bool("expert_weights_norm", c.bool("norm_topk_prob", false) || undefined)
    .u32("rope.dimension_count", c.needInt("qk_rope_head_dim"));
  const mscale = c.rope["mscale_all_dim"];
  if (typeof mscale === "number") k.f32("rope.scaling.yarn_log_multiplier", 0.1 * mscale);
}

/** What the released classes fill in. `head_dim` is theirs too; it only places two keys that are set again. */
export const deepseekDefaults = (c: Config) => ({
  head_dim: c.int("qk_rope_head_dim") ?? 64,
  num_key_value_heads: c.n_head,
  rms_norm_eps: 1e-6,
});

export const draftCount = (c: Config) => c.int("num_nextn_predict_layers") ?? 0;

/** Draft blocks whose tensors are there: conversions of these releases often lack them, whatever the configuration says. */
export function presentDrafts(c: Config, names: Iterable<string>): number {
  let n = 0;
  for (const name of names) n = Math.max(n, blockOf(name.replaceAll("language_model.", "")) - c.n_layer + 1);
  return Math.min(n, draftCount(c));
}

/**
 * Norms of latents, whose epsilon released code does not take from the configuration. llama.cpp uses the one of all other
 * norms, so files of its converter lack the key.
 */
export function latentNormKey(k: Keys, c: Config): void {
  if (c.num("rms_norm_eps") !== LATENT_EPSILON) k.f32("attention.latent_norm_rms_epsilon", LATENT_EPSILON);
}
const LATENT_EPSILON = 1e-6;

export const DEEPSEEK2: Family = {
  classes: [
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "KimiVLForConditionalGeneration",
    "KimiK25ForConditionalGeneration",
    "YoutuForCausalLM",
  ],
  arch: "deepseek2",
  defaults: deepseekDefaults,
  draftBlocks: presentDrafts,
  rename: withDrafts,
  rules(r, c) {
    deepseekBodyRules(r, c);
    mlaRules(r, c);
    draftRules(r);
  },
  keys(k, c, n_block) {
    deepseekKeys(k, c);
    if (n_block > c.n_layer) k.u32("nextn_predict_layers", n_block - c.n_layer);
    latentNormKey(k, c);
  },
};

export const DEEPSEEK32: Family = {
  classes: ["DeepseekV32ForCausalLM"],
  arch: "deepseek32",
  defaults: deepseekDefaults,
  draftBlocks: draftCount,
  rename: withDrafts,
  rules(r, c) {
    deepseekBodyRules(r, c);
    mlaRules(r, c);
    indexerRules(r, c);
    draftRules(r);
  },
  keys(k, c, n_block) {
    deepseekKeys(k, c);
    if (n_block > c.n_layer || draftCount(c) === 0) k.u32("nextn_predict_layers", c.int("num_nextn_predict_layers"));
    indexerKeys(k, c);
    latentNormKey(k, c);
  },
};
