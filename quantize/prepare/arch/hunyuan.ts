/**
 * Hunyuan, dense (`hunyuan-dense`) and with experts (`hunyuan-moe`): norms on heads after RoPE, sizes of experts as a list by
 * block.
 * @module
 */
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import type { Keys } from "../keys.ts";
import type { Rules } from "../rules.ts";
import { attentionRules, denseRules, normRules, trunkRules } from "./llama.ts";
import { expertRules, routerRules, sharedExpertRules } from "./moe.ts";

const AT = "model.layers.{il}";

function bodyRules(r: Rules, c: Config): void {
  trunkRules(r, c);
  normRules(r, c);
  attentionRules(r, c, false);
  for (const [from, to] of [["query", "q"], ["key", "k"]]) {
    r.weight(`${AT}.self_attn.${from}_layernorm`, `blk.{il}.attn_${to}_norm`, {
      shape: [c.head_dim],
      optional: !c.bool("use_qk_norm", true),
    });
  }
}

/** A number, or the first of a list by block. */
function first(c: Config, field: string): number | undefined {
  return Array.isArray(c.raw(field)) ? c.nums(field)?.[0] : c.int(field);
}

/** Released configurations stretch RoPE by a factor on its base, and state a context that is too short. */
function ropeKeys(k: Keys, c: Config, width: number, fallback: number): void {
  if (c.rope.rope_type !== "dynamic") return;
  const alpha = typeof c.rope["alpha"] === "number" ? c.rope["alpha"] : fallback;
  const n_ctx = 256 * 1024;
  k.f32("rope.freq_base", (c.rope.rope_theta ?? 10000) * alpha ** (width / (width - 2)))
    .str("rope.scaling.type", "none")
    .f32("rope.scaling.factor", 1)
    .u32("rope.scaling.original_context_length", n_ctx)
    .u32("context_length", n_ctx);
}

export const HUNYUAN_DENSE: Family = {
  classes: ["HunYuanDenseV1ForCausalLM"],
  arch: "hunyuan-dense",
  rules(r, c) {
    bodyRules(r, c);
    denseRules(r, c);
  },
  keys: (k, c) => ropeKeys(k, c, c.head_dim, 50),
};

export const HUNYUAN_MOE: Family = {
  classes: ["HunYuanMoEV1ForCausalLM"],
  arch: "hunyuan-moe",
  rules(r, c) {
    bodyRules(r, c);
    routerRules(r, c, {}, "gate.wg");
    expertRules(r, c, { n_ff: first(c, "moe_intermediate_size") ?? c.needSize("intermediate_size") });
    const n_ff = c.needSize("intermediate_size") * (first(c, "num_shared_expert") ?? 1);
    sharedExpertRules(r, c, "shared_mlp", n_ff);
  },
  keys(k, c) {
    k.u32("expert_shared_feed_forward_length", c.needSize("intermediate_size"))
      .u32("expert_feed_forward_length", first(c, "moe_intermediate_size"))
      .u32("expert_used_count", first(c, "moe_topk"))
      .u32("expert_shared_count", first(c, "num_shared_expert"));
    ropeKeys(k, c, c.n_embd / c.n_head, 1000);
  },
};
