/**
 * ERNIE 4.5, dense (`ernie4_5`) and with experts (`ernie4_5-moe`).
 * @module
 */
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import { attentionRules, denseRules, normRules, trunkRules } from "./llama.ts";
import { expertRules, routerRules, sharedExpertRules } from "./moe.ts";

export const ERNIE4_5: Family = {
  classes: ["Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"],
  arch: "ernie4_5",
  rules(r, c) {
    trunkRules(r, c);
    normRules(r, c);
    attentionRules(r, c, false);
    denseRules(r, c);
  },
};

/** Blocks with experts: every `moe_layer_interval`-th from the first one named to the last. */
function hasExperts(c: Config): (il: number) => boolean {
  const first = c.int("moe_layer_start_index") ?? 0;
  const last = c.int("moe_layer_end_index") ?? c.n_layer - 1;
  const step = c.int("moe_layer_interval") || 1;
  return (il) => il >= first && il <= last && (il + 1) % step === 0;
}

export const ERNIE4_5_MOE: Family = {
  classes: ["Ernie4_5_MoeForCausalLM"],
  arch: "ernie4_5-moe",
  defaults: (c) => ({ num_experts: c.int("moe_num_experts") }),
  rename: (name) => /(^|\.)mtp_/.test(name) ? undefined : name, // its draft block has no place in the architecture
  rules(r, c) {
    const blocks = hasExperts(c);
    trunkRules(r, c);
    normRules(r, c);
    attentionRules(r, c, false);
    denseRules(r, c, (il) => !blocks(il));
    routerRules(r, c, { blocks });
    r.exact("model.layers.{il}.mlp.moe_statics.e_score_correction.bias", "blk.{il}.exp_probs_b.bias", {
      optional: true,
    });
    expertRules(r, c, { blocks, order: ["gate", "up", "down"] });
    const shared = c.int("moe_num_shared_experts") ?? 0;
    if (shared > 0) sharedExpertRules(r, c, "shared_experts", c.needInt("moe_intermediate_size") * shared, { blocks });
  },
  keys(k, c) {
    const shared = c.int("moe_num_shared_experts") ?? 0;
    const n_ff = c.needInt("moe_intermediate_size");
    k.remove("expert_count")
      .u32("expert_count", c.n_expert)
      .u32("expert_used_count", c.needInt("moe_k"))
      .u32("interleave_moe_layer_step", c.needInt("moe_layer_interval"))
      .u32("leading_dense_block_count", c.needInt("moe_layer_start_index"))
      .u32("expert_feed_forward_length", n_ff)
      .u32("expert_shared_count", shared)
      .u32("expert_shared_feed_forward_length", shared > 0 ? shared * n_ff : undefined);
  },
};
