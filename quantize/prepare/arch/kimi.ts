/**
 * Kimi Linear: `kimi-linear`, blocks of delta attention between blocks of latent attention without RoPE.
 * @module
 */
import type { Family } from "../family.ts";
import { kdaRules } from "./kda.ts";
import { denseRules, normRules, trunkRules } from "./llama.ts";
import { mlaRules } from "./mla.ts";
import { expertRules, routerRules, sharedExpertRules, W123 } from "./moe.ts";

export const KIMI_LINEAR: Family = {
  classes: ["KimiLinearForCausalLM", "KimiLinearModel"],
  arch: "kimi-linear",
  rules(r, c) {
    const full = c.part("linear_attn_config").nums("full_attn_layers") ?? []; // counted from 1
    const isFull = (il: number) => full.includes(il + 1);
    trunkRules(r, c);
    normRules(r, c);
    mlaRules(r, c, isFull);
    kdaRules(r, c, (il) => !isFull(il), "matrix");
    const dense = c.int("first_k_dense_replace") ?? 0;
    denseRules(r, c, (il) => il < dense);
    const options = {
      blocks: (il: number) => il >= dense,
      at: "model.layers.{il}.block_sparse_moe",
      names: W123,
      order: ["gate", "down", "up"] as const,
    };
    routerRules(r, c, options);
    expertRules(r, c, options);
    const n_ff = c.needInt("moe_intermediate_size") * (c.int("num_shared_experts") ?? 1);
    sharedExpertRules(r, c, "shared_experts", n_ff, options);
  },
  keys(k, c) {
    const linear = c.part("linear_attn_config");
    const full = linear.nums("full_attn_layers") ?? [];
    const rope = c.needInt("qk_rope_head_dim");
    const rank = c.needInt("kv_lora_rank");
    k.u32("vocab_size", c.needInt("vocab_size"))
      .i32s("attention.head_count_kv", Array.from({ length: c.n_layer }, (_, il) => full.includes(il + 1) ? 1 : 0))
      .u32("ssm.conv_kernel", linear.int("short_conv_kernel_size"))
      .u32("kda.head_dim", linear.int("head_dim"))
      .u32("attention.q_lora_rank", c.int("q_lora_rank"))
      .u32("attention.kv_lora_rank", rank)
      .u32("rope.dimension_count", rope)
      .u32("attention.key_length", rank + rope)
      .u32("attention.key_length_mla", c.needInt("qk_nope_head_dim") + rope)
      .u32("attention.value_length_mla", c.needInt("v_head_dim"))
      .u32("expert_feed_forward_length", c.needInt("moe_intermediate_size"))
      .u32("expert_shared_count", c.needInt("num_shared_experts"))
      .u32("leading_dense_block_count", c.needInt("first_k_dense_replace"))
      .f32("expert_weights_scale", c.needNum("routed_scaling_factor"));
  },
};
