/**
 * OLMo 2 and 3 (`olmo2`): norms after the halves of a block, query and key norms over all heads. OLMoE (`olmoe`): experts,
 * norms before.
 * @module
 */
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import type { Keys } from "../keys.ts";
import type { Rules } from "../rules.ts";
import { attentionRules, denseRules, normRules, trunkRules } from "./llama.ts";
import { expertRules, routerRules } from "./moe.ts";

const AT = "model.layers.{il}";

/** The norms after attention and feed-forward. */
export function postNormRules(r: Rules, c: Config): void {
  r.weight(`${AT}.post_attention_layernorm`, "blk.{il}.post_attention_norm", { shape: [c.n_embd] })
    .weight(`${AT}.post_feedforward_layernorm`, "blk.{il}.post_ffw_norm", { shape: [c.n_embd] });
}

/** Norms over all query heads, and over all key heads. */
function wholeNormRules(r: Rules, c: Config): void {
  r.weight(`${AT}.self_attn.q_norm`, "blk.{il}.attn_q_norm", { shape: [c.n_head * c.head_dim] })
    .weight(`${AT}.self_attn.k_norm`, "blk.{il}.attn_k_norm", { shape: [c.n_head_kv * c.head_dim] });
}

/** The window, and which blocks have it. */
export function windowKeys(k: Keys, c: Config): void {
  const window = c.int("sliding_window");
  const types = c.strs("layer_types");
  if (window === undefined || window === 0) return;
  k.u32("attention.sliding_window", window);
  if (types) k.bools("attention.sliding_window_pattern", types.map((t) => t === "sliding_attention"));
}

export const OLMO2: Family = {
  classes: ["Olmo2ForCausalLM", "Olmo3ForCausalLM"],
  arch: "olmo2",
  rules(r, c) {
    trunkRules(r, c);
    postNormRules(r, c);
    attentionRules(r, c, false);
    wholeNormRules(r, c);
    denseRules(r, c);
  },
  keys: windowKeys,
};

export const OLMOE: Family = {
  classes: ["OlmoeForCausalLM"],
  arch: "olmoe",
  rules(r, c) {
    trunkRules(r, c);
    normRules(r, c);
    attentionRules(r, c, false);
    wholeNormRules(r, c);
    routerRules(r, c);
    expertRules(r, c, { n_ff: c.needSize("intermediate_size") });
  },
};
