/**
 * MiniMax M2: `minimax-m2`. Query and key norms span all heads.
 * @module
 */
import type { Family } from "../family.ts";
import { attentionRules, normRules, trunkRules } from "./llama.ts";
import { expertRules, routerRules, W123 } from "./moe.ts";

export const MINIMAX_M2: Family = {
  classes: ["MiniMaxM2ForCausalLM"],
  arch: "minimax-m2",
  rules(r, c) {
    trunkRules(r, c);
    normRules(r, c);
    attentionRules(r, c, false);
    const at = "model.layers.{il}.self_attn";
    r.weight(`${at}.q_norm`, "blk.{il}.attn_q_norm", { shape: [c.n_head * c.head_dim] })
      .weight(`${at}.k_norm`, "blk.{il}.attn_k_norm", { shape: [c.n_head_kv * c.head_dim] });
    const options = {
      at: "model.layers.{il}.block_sparse_moe",
      n_ff: c.needInt("intermediate_size"),
      names: W123,
      order: ["gate", "down", "up"] as const,
    };
    routerRules(r, c, options);
    expertRules(r, c, options);
  },
  keys(k, c) {
    k.u32("expert_feed_forward_length", c.needInt("intermediate_size"))
      .u32("rope.dimension_count", c.needInt("rotary_dim"));
  },
};
