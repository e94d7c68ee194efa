/**
 * GLM 4.5 to 5.3: `glm4moe`, GLM-4.7-Flash as `deepseek2`, `glm-dsa`, `glm5-next`.
 * @module
 */
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import { GATING } from "../keys.ts";
import {
  DEEPSEEK2,
  deepseekBodyRules,
  deepseekDefaults,
  deepseekKeys,
  draftCount,
  latentNormKey,
  leadingDense,
} from "./deepseek.ts";
import { hyperRules, kdaRules } from "./kda.ts";
import { attentionRules, denseRules, fusedDenseRules, normRules, trunkRules } from "./llama.ts";
import { indexerKeys, indexerRules, mlaKeys, mlaRules } from "./mla.ts";
import { draftRules, expertRules, routerRules, sharedExpertRules, withDrafts } from "./moe.ts";
import { headNormRules } from "./qwen.ts";

/** GLM 4, dense: norms before and after the halves of a block, gate and up in one tensor. */
export const GLM4: Family = {
  classes: ["Glm4ForCausalLM"],
  arch: "glm4",
  rules(r, c) {
    const at = "model.layers.{il}";
    const shape = [c.n_embd];
    trunkRules(r, c);
    normRules(r, c);
    r.weight(`${at}.post_self_attn_layernorm`, "blk.{il}.post_attention_norm", { shape })
      .weight(`${at}.post_mlp_layernorm`, "blk.{il}.post_ffw_norm", { shape });
    attentionRules(r, c, false);
    fusedDenseRules(r, c);
  },
  keys(k, c) {
    k.u32("rope.dimension_count", Math.trunc(c.head_dim * (c.rope.partial_rotary_factor ?? 0.5)));
  },
};

export const GLM4MOE: Family = {
  classes: ["Glm4MoeForCausalLM", "Glm4vMoeForConditionalGeneration"],
  arch: "glm4moe",
  draftBlocks: draftCount,
  rename: withDrafts,
  rules(r, c) {
    trunkRules(r, c);
    normRules(r, c, "post_attention_norm");
    attentionRules(r, c, false);
    headNormRules(r, c, !c.bool("use_qk_norm", false));
    const dense = leadingDense(c);
    denseRules(r, c, (il) => il < dense);
    const blocks = (il: number) => il >= dense;
    routerRules(r, c, { blocks });
    expertRules(r, c, { blocks });
    const n_ff = c.needInt("moe_intermediate_size") * (c.int("n_shared_experts") ?? 1);
    sharedExpertRules(r, c, "shared_experts", n_ff, { blocks });
    draftRules(r);
  },
  keys(k, c, n_block) {
    k.u32("rope.dimension_count", Math.trunc(c.head_dim * (c.rope.partial_rotary_factor ?? 0.5)))
      .u32("expert_count", c.int("n_routed_experts"))
      .u32("expert_feed_forward_length", c.int("moe_intermediate_size"))
      .u32("expert_shared_count", c.int("n_shared_experts"))
      .u32("leading_dense_block_count", c.int("first_k_dense_replace"))
      .u32("expert_gating_func", GATING.sigmoid)
      .f32("expert_weights_scale", c.num("routed_scaling_factor"));
    if (c.has("norm_topk_prob")) k.bool("expert_weights_norm", c.bool("norm_topk_prob", false));
    if (n_block > c.n_layer) k.u32("nextn_predict_layers", n_block - c.n_layer);
  },
};

/** GLM-4.7-Flash. Its configuration has no `head_dim`, and no default for it. */
export const GLM4MOE_LITE: Family = {
  ...DEEPSEEK2,
  classes: ["Glm4MoeLiteForCausalLM"],
  defaults: (c) => ({ ...deepseekDefaults(c), head_dim: undefined }),
  draftBlocks: draftCount,
};

const hasIndexer = (c: Config) => {
  const types = c.strs("indexer_types");
  return (il: number) => types === undefined || il >= types.length || types[il] === "full";
};

export const GLM_DSA: Family = {
  classes: ["GlmMoeDsaForCausalLM"],
  arch: "glm-dsa",
  defaults: deepseekDefaults,
  draftBlocks: draftCount,
  rename: withDrafts,
  rules(r, c) {
    deepseekBodyRules(r, c);
    mlaRules(r, c);
    indexerRules(r, c, hasIndexer(c));
    draftRules(r);
  },
  keys(k, c, n_block) {
    deepseekKeys(k, c);
    const rope = c.needInt("qk_rope_head_dim") * (c.rope.partial_rotary_factor ?? 1);
    k.u32("rope.dimension_count", Math.trunc(rope));
    if (n_block > c.n_layer || draftCount(c) === 0) k.u32("nextn_predict_layers", c.int("num_nextn_predict_layers"));
    indexerKeys(k, c);
    const types = c.strs("indexer_types");
    if (types) k.bools("attention.indexer.types", types.map((t) => t === "full"));
    latentNormKey(k, c);
  },
};

export const GLM5_NEXT: Family = {
  classes: ["Glm5NextForConditionalGeneration"],
  arch: "glm5-next",
  draftBlocks: draftCount,
  rename: withDrafts,
  rules(r, c) {
    const types = c.strs("layer_types") ?? [];
    const linear = (il: number) => types[il] === "linear_attention";
    const full = (il: number) => !linear(il);
    deepseekBodyRules(r, c);
    mlaRules(r, c, full);
    indexerRules(r, c, full);
    const at = "model.layers.{il}.self_attn.indexer.index_kpool_compress";
    r.exact(`${at}_ape`, "blk.{il}.indexer_compressor_ape.weight", { blocks: full })
      .exact(`${at}_gate`, "blk.{il}.indexer_compressor_gate.weight", { blocks: full });
    kdaRules(r, c, linear, "vector");
    hyperRules(r);
    draftRules(r);
  },
  forceType: (name) =>
    /^blk\.|^output_hc/.test(name) && /hc_attn_|hc_ffn_|indexer_compressor_|ssm_a|ssm_dt|exp_probs_b/.test(name)
      ? "f32"
      : undefined,
  keys(k, c, n_block) {
    const types = c.strs("layer_types") ?? [];
    const drafts = n_block - c.n_layer;
    k.metadata.remove(`${k.arch}.attention.key_length`); // head_dim of the configuration is another width
    k.metadata.remove(`${k.arch}.attention.value_length`);
    k.i32s("attention.head_count_kv", [
      ...types.map((t) => t === "linear_attention" ? 0 : 1),
      ...new Array<number>(drafts).fill(1),
    ]).u32("vocab_size", c.needInt("vocab_size")).f32("attention.layer_norm_epsilon", 1e-6);
    if (drafts > 0) k.u32("nextn_predict_layers", drafts);
    const linear = c.part("linear_attn_config");
    k.u32("ssm.conv_kernel", linear.needInt("short_conv_kernel_size"))
      .u32("kda.head_dim", linear.needInt("head_dim"))
      .f32("kda.gate_lower_bound", linear.num("gate_lower_bound"));
    k.u32("attention.q_lora_rank", c.needInt("q_lora_rank"))
      .u32("attention.kv_lora_rank", c.needInt("kv_lora_rank"))
      .u32("rope.dimension_count", c.needInt("qk_rope_head_dim"));
    mlaKeys(k, c);
    indexerKeys(k, c);
    k.u32("attention.indexer.kpool", c.needInt("index_kpool"))
      .bool("attention.indexer.kpool_select_tail", c.bool("index_kpool_always_select_tail", true));
    const indexers = c.strs("indexer_types");
    if (indexers) k.bools("attention.indexer.types", indexers.map((t) => t === "full"));
    k.u32("hyper_connection.count", c.needInt("hc_mult"))
      .u32("hyper_connection.sinkhorn_iterations", c.needInt("hc_sinkhorn_iters"))
      .f32("hyper_connection.epsilon", c.needNum("hc_eps"))
      .u32("leading_dense_block_count", c.needInt("first_k_dense_replace"))
      .u32("expert_feed_forward_length", c.needInt("moe_intermediate_size"))
      .u32("expert_shared_count", c.needInt("n_shared_experts"))
      .f32("expert_weights_scale", c.needNum("routed_scaling_factor"))
      .bool("expert_weights_norm", c.bool("norm_topk_prob", false));
    const limit = c.num("swiglu_limit");
    if (limit !== undefined) {
      const all = new Array<number>(n_block).fill(limit);
      k.f32s("swiglu_clamp_exp", all).f32s("swiglu_clamp_shexp", all);
    }
  },
};
