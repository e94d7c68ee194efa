/**
 * Qwen 2 to 3, dense and with experts: `qwen2`, `qwen2moe`, `qwen3`, `qwen3moe`.
 * @module
 */
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import type { Rules } from "../rules.ts";
import { reshape, sliceRows } from "../view.ts";
import { attentionRules, denseRules, normRules, trunkRules } from "./llama.ts";

/** Norms of each query and key head. */
export function headNormRules(r: Rules, c: Config, optional = false): void {
  for (const w of ["q", "k"]) {
    r.weight(`model.layers.{il}.self_attn.${w}_norm`, `blk.{il}.attn_${w}_norm`, { shape: [c.head_dim], optional });
  }
}

/** Router and experts, stored one by one or stacked with gate and up in one tensor. */
export function expertRules(r: Rules, c: Config, blocks: (il: number) => boolean = () => true): void {
  const n_expert = c.n_expert ?? 0;
  const n_ff = c.needInt("moe_intermediate_size");
  const { n_embd } = c;
  const at = "model.layers.{il}.mlp";
  r.weight(`${at}.gate`, "blk.{il}.ffn_gate_inp", { shape: [n_expert, n_embd], blocks })
    .experts(`${at}.experts.{e}.{w}.weight`, n_expert, [
      ["down_proj", "blk.{il}.ffn_down_exps.weight", [n_embd, n_ff]],
      ["gate_proj", "blk.{il}.ffn_gate_exps.weight", [n_ff, n_embd]],
      ["up_proj", "blk.{il}.ffn_up_exps.weight", [n_ff, n_embd]],
    ], { optional: true });
  for (const suffix of ["", ".weight"]) {
    r.exact(`${at}.experts.down_proj${suffix}`, "blk.{il}.ffn_down_exps.weight", {
      shape: [n_expert, n_embd, n_ff],
      optional: true,
    }).split(`${at}.experts.gate_up_proj${suffix}`, (v, il) => [
      { name: `blk.${il}.ffn_gate_exps.weight`, view: sliceRows(v, 0, n_ff) },
      { name: `blk.${il}.ffn_up_exps.weight`, view: sliceRows(v, n_ff, n_ff) },
    ], { shape: [n_expert, 2 * n_ff, n_embd], optional: true });
  }
}

/** The expert that every token takes, and the gate on its output. */
export function sharedExpertRules(r: Rules, c: Config, gateShape: readonly number[]): void {
  const n_ff = c.needInt("shared_expert_intermediate_size");
  const at = "model.layers.{il}.mlp";
  r.weight(`${at}.shared_expert.gate_proj`, "blk.{il}.ffn_gate_shexp", { shape: [n_ff, c.n_embd] })
    .weight(`${at}.shared_expert.up_proj`, "blk.{il}.ffn_up_shexp", { shape: [n_ff, c.n_embd] })
    .weight(`${at}.shared_expert.down_proj`, "blk.{il}.ffn_down_shexp", { shape: [c.n_embd, n_ff] })
    .weight(`${at}.shared_expert_gate`, "blk.{il}.ffn_gate_inp_shexp", {
      shape: [1, c.n_embd],
      map: (v) => reshape(v, gateShape),
    });
}

export const QWEN2: Family = {
  classes: ["Qwen2ForCausalLM"],
  arch: "qwen2",
  vocabulary: "sentencepiece",
  defaults: () => ({ num_key_value_heads: 32 }),
  rules(r, c) {
    trunkRules(r, c);
    normRules(r, c);
    attentionRules(r, c, false);
    denseRules(r, c);
  },
};

export const QWEN2MOE: Family = {
  classes: ["Qwen2MoeForCausalLM"],
  arch: "qwen2moe",
  rules(r, c) {
    trunkRules(r, c);
    normRules(r, c);
    attentionRules(r, c, false);
    expertRules(r, c);
    sharedExpertRules(r, c, [1, c.n_embd]);
  },
  keys(k, c) {
    k.u32("expert_feed_forward_length", c.int("moe_intermediate_size"))
      .u32("expert_shared_feed_forward_length", c.int("shared_expert_intermediate_size"));
  },
};

export const QWEN3: Family = {
  classes: ["Qwen3ForCausalLM"],
  arch: "qwen3",
  vocabulary: "sentencepiece",
  defaults: () => ({ head_dim: 128, num_key_value_heads: 32 }),
  rules(r, c) {
    QWEN2.rules(r, c);
    headNormRules(r, c);
  },
};

export const QWEN3MOE: Family = {
  classes: ["Qwen3MoeForCausalLM"],
  arch: "qwen3moe",
  rules(r, c) {
    trunkRules(r, c);
    normRules(r, c);
    attentionRules(r, c, false);
    headNormRules(r, c);
    expertRules(r, c);
  },
  keys(k, c) {
    k.u32("expert_feed_forward_length", c.int("moe_intermediate_size"));
  },
};
