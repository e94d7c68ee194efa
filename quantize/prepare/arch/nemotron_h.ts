/**
 * Nemotron H: `nemotron_h`, and with experts `nemotron_h_moe`. Each block is one of Mamba 2, attention without RoPE, a dense
 * feed-forward or experts, all with squared ReLU.
 * @module
 */
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import type { Keys } from "../keys.ts";
import type { Rules } from "../rules.ts";
import { permuteHeads } from "./llama.ts";
import { mambaKeys, mambaRules } from "./mamba.ts";

const AT = "backbone.layers.{il}";

/** Letters of the older form of the configuration. */
const LETTERS: Readonly<Record<string, string>> = { M: "mamba", "*": "attention", "-": "mlp", E: "moe" };

/** The kind of each block. */
function kinds(c: Config): readonly string[] {
  return c.strs("layers_block_type") ??
    Array.from(c.str("hybrid_override_pattern") ?? "", (letter) => LETTERS[letter] ?? letter);
}

const hasExperts = (c: Config) => kinds(c).includes("moe");

function rules(r: Rules, c: Config): void {
  const { n_embd, n_head, n_head_kv, head_dim } = c;
  const kind = kinds(c);
  const of = (name: string) => (il: number) => kind[il] === name;
  const table = c.int("vocab_size") === undefined ? undefined : [c.needInt("vocab_size"), n_embd];
  for (const name of ["embedding", "embeddings"]) { // two spellings of releases
    r.weight(`backbone.${name}`, "token_embd", { shape: table, optional: true });
  }
  r.weight("backbone.norm_f", "output_norm", { shape: [n_embd] })
    .weight("lm_head", "output", { shape: table, optional: c.bool("tie_word_embeddings", false) })
    .weight(`${AT}.norm`, "blk.{il}.attn_norm", { shape: [n_embd] });
  mambaRules(r, `${AT}.mixer`, of("mamba"), c.int("n_groups") ?? 1);
  const attention = { blocks: of("attention") };
  // Nothing rotates, yet llama.cpp's converter reorders rows as for Llama.
  r.linear(`${AT}.mixer.q_proj`, "blk.{il}.attn_q", {
    shape: [n_head * head_dim, n_embd],
    map: (v) => permuteHeads(v, n_head),
    ...attention,
  })
    .linear(`${AT}.mixer.k_proj`, "blk.{il}.attn_k", {
      shape: [n_head_kv * head_dim, n_embd],
      map: (v) => permuteHeads(v, n_head_kv),
      ...attention,
    })
    .linear(`${AT}.mixer.v_proj`, "blk.{il}.attn_v", { shape: [n_head_kv * head_dim, n_embd], ...attention })
    .linear(`${AT}.mixer.o_proj`, "blk.{il}.attn_output", { shape: [n_embd, n_head * head_dim], ...attention });
  const dense = { blocks: of("mlp") };
  r.linear(`${AT}.mixer.up_proj`, "blk.{il}.ffn_up", dense)
    .linear(`${AT}.mixer.down_proj`, "blk.{il}.ffn_down", dense);
  if (!hasExperts(c)) return;
  const moe = { blocks: of("moe") };
  const n_expert = c.n_expert ?? 0;
  const n_ff = c.needSize("moe_intermediate_size");
  const shared = c.needSize("moe_shared_expert_intermediate_size");
  r.weight(`${AT}.mixer.gate`, "blk.{il}.ffn_gate_inp", { shape: [n_expert, n_embd], ...moe })
    .exact(`${AT}.mixer.gate.e_score_correction.bias`, "blk.{il}.exp_probs_b.bias", {
      shape: [n_expert],
      optional: true,
    })
    .weight(`${AT}.mixer.shared_experts.up_proj`, "blk.{il}.ffn_up_shexp", { shape: [shared, n_embd], ...moe })
    .weight(`${AT}.mixer.shared_experts.down_proj`, "blk.{il}.ffn_down_shexp", { shape: [n_embd, shared], ...moe })
    .experts(`${AT}.mixer.experts.{e}.{w}.weight`, n_expert, [
      ["down_proj", "blk.{il}.ffn_down_exps.weight", [n_embd, n_ff]],
      ["up_proj", "blk.{il}.ffn_up_exps.weight", [n_ff, n_embd]],
    ], moe);
}

function keys(k: Keys, c: Config): void {
  const kind = kinds(c);
  const n_ff = c.needInt("intermediate_size");
  const widths: Record<string, number> = { mlp: n_ff, moe: c.int("moe_intermediate_size") ?? n_ff };
  const heads = c.needInt(["mamba_num_heads", "n_mamba_heads"]);
  k.u32("context_length", 1 << 20) // nothing depends on positions
    .i32s("feed_forward_length", kind.map((name) => widths[name] ?? 0))
    .i32s("attention.head_count_kv", kind.map((name) => name === "attention" ? c.n_head_kv : 0))
    .remove("attention.key_length", "attention.value_length", "rope.freq_base")
    .u32("vocab_size", c.needInt("vocab_size"))
    .u32("rope.dimension_count", c.head_dim);
  mambaKeys(k, {
    conv: c.needInt(["conv_kernel", "mamba_d_conv"]),
    state: c.needInt(["ssm_state_size", "mamba_d_state"]),
    n_group: c.int("n_groups") ?? 1,
    width: heads * c.needInt("mamba_head_dim"),
    n_head: heads,
  });
  k.bool("rope.scaling.finetuned", false)
    .u32("attention.key_length", c.head_dim)
    .u32("attention.value_length", c.head_dim);
  if (!hasExperts(c)) return;
  k.u32("expert_feed_forward_length", c.needInt("moe_intermediate_size"))
    .u32("expert_shared_feed_forward_length", c.needInt("moe_shared_expert_intermediate_size"))
    .u32("expert_shared_count", c.int("n_shared_experts") ?? 1)
    .bool("expert_weights_norm", c.bool("norm_topk_prob", true))
    .f32("expert_weights_scale", c.needNum("routed_scaling_factor"));
}

export const NEMOTRON_H: Family = {
  classes: ["NemotronHForCausalLM"],
  accepts: (c) => !hasExperts(c),
  arch: "nemotron_h",
  rules,
  keys,
};

export const NEMOTRON_H_MOE: Family = {
  ...NEMOTRON_H,
  accepts: hasExperts,
  arch: "nemotron_h_moe",
  defaults: () => ({ n_group: 1, topk_group: 1 }),
};
