/**
 * Granite 3 (`granite`), with experts (`granitemoe`), and Granite 4 with Mamba blocks (`granitehybrid`): Llama with four
 * multipliers. Experts come as stacks, gate and up in one tensor.
 * @module
 */
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import type { Keys } from "../keys.ts";
import type { Rules } from "../rules.ts";
import { sliceRows } from "../view.ts";
import { attentionRules, denseRules, LLAMA, normRules, trunkRules } from "./llama.ts";
import { mambaKeys, mambaRules } from "./mamba.ts";

const AT = "model.layers.{il}";

function scaleKeys(k: Keys, c: Config): void {
  k.u32("vocab_size", c.needInt("vocab_size"))
    .u32("rope.dimension_count", c.head_dim)
    .f32("attention.scale", c.num("attention_multiplier"))
    .f32("embedding_scale", c.num("embedding_multiplier"))
    .f32("residual_scale", c.num("residual_multiplier"))
    .f32("logit_scale", c.num("logits_scaling"));
}

function expertRules(r: Rules, c: Config): void {
  const n_ff = c.needSize("intermediate_size");
  const n_expert = c.n_expert ?? 0;
  const at = `${AT}.block_sparse_moe`;
  r.weight(`${at}.router.layer`, "blk.{il}.ffn_gate_inp", { shape: [n_expert, c.n_embd] })
    .weight(`${at}.output_linear`, "blk.{il}.ffn_down_exps", { shape: [n_expert, c.n_embd, n_ff] })
    .split(`${at}.input_linear.weight`, (view, il) => [
      { name: `blk.${il}.ffn_gate_exps.weight`, view: sliceRows(view, 0, n_ff) },
      { name: `blk.${il}.ffn_up_exps.weight`, view: sliceRows(view, n_ff, n_ff) },
    ], { shape: [n_expert, 2 * n_ff, c.n_embd] });
}

/** The feed-forward that every token takes; a model without experts has it alone, as its dense one. */
function sharedRules(r: Rules, c: Config): void {
  const n_ff = c.int("shared_intermediate_size") ?? 0;
  if (n_ff === 0) return;
  const suffix = (c.n_expert ?? 0) > 0 ? "_shexp" : "";
  r.split(`${AT}.shared_mlp.input_linear.weight`, (view, il) => [
    { name: `blk.${il}.ffn_gate${suffix}.weight`, view: sliceRows(view, 0, n_ff) },
    { name: `blk.${il}.ffn_up${suffix}.weight`, view: sliceRows(view, n_ff, n_ff) },
  ], { shape: [2 * n_ff, c.n_embd] })
    .weight(`${AT}.shared_mlp.output_linear`, `blk.{il}.ffn_down${suffix}`, { shape: [c.n_embd, n_ff] });
}

export const GRANITE: Family = {
  classes: ["GraniteForCausalLM"],
  arch: "granite",
  rules: (r, c, options, facts) => LLAMA.rules(r, c, options, facts),
  keys: scaleKeys,
  extra: LLAMA.extra!,
};

export const GRANITE_MOE: Family = {
  classes: ["GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"],
  arch: "granitemoe",
  rules(r, c) {
    trunkRules(r, c);
    normRules(r, c);
    attentionRules(r, c, true);
    expertRules(r, c);
    sharedRules(r, c);
  },
  keys(k, c) {
    scaleKeys(k, c);
    k.u32("expert_shared_feed_forward_length", c.int("shared_intermediate_size"));
  },
};

const isMamba = (c: Config) => {
  const types = c.strs("layer_types") ?? [];
  return (il: number) => types[il] === "mamba";
};

export const GRANITE_HYBRID: Family = {
  classes: ["GraniteMoeHybridForCausalLM"],
  arch: "granitehybrid",
  rules(r, c) {
    const mamba = isMamba(c);
    const n_group = c.int("mamba_n_groups") ?? 1;
    trunkRules(r, c);
    normRules(r, c);
    attentionRules(r, c, true, (il) => !mamba(il));
    mambaRules(r, `${AT}.mamba`, mamba, n_group);
    if ((c.n_expert ?? 0) > 0) expertRules(r, c);
    if (c.int("shared_intermediate_size") === undefined) denseRules(r, c);
    else sharedRules(r, c);
  },
  keys(k, c) {
    const mamba = isMamba(c);
    k.i32s("attention.head_count_kv", Array.from({ length: c.n_layer }, (_, il) => mamba(il) ? 0 : c.n_head_kv));
    scaleKeys(k, c);
    k.u32("expert_shared_feed_forward_length", c.int("shared_intermediate_size"));
    const width = (c.int("mamba_expand") ?? 2) * c.n_embd;
    mambaKeys(k, {
      conv: c.needInt("mamba_d_conv"),
      state: c.needInt("mamba_d_state"),
      n_group: c.int("mamba_n_groups") ?? 1,
      width,
      n_head: c.needInt("mamba_n_heads"),
    });
    const rotates = c.str("position_embedding_type") === "rope";
    k.bool("rope.scaling.finetuned", rotates);
    if (!rotates) k.u32("context_length", 1 << 20); // nothing depends on positions
  },
};
