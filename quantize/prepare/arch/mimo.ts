/**
 * MiMo V2: `mimo2`. Window and full-attention blocks with their own numbers of key-value heads, sinks, narrow values.
 * @module
 */
import type { Family } from "../family.ts";
import { denseRules, normRules, trunkRules } from "./llama.ts";
import { draftRules, expertRules, routerRules } from "./moe.ts";

/** Releases have three draft blocks and no field that says so. */
const N_DRAFT = 3;

export const MIMO2: Family = {
  classes: ["MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM"],
  arch: "mimo2",
  draftBlocks: (_, names) => {
    for (const name of names) if (name.startsWith("model.mtp.layers.")) return N_DRAFT;
    return 0;
  },
  rename(name, c, { mtp }) {
    const m = /^model\.mtp\.layers\.(\d+)\.(.*)$/.exec(name);
    if (!m) return name;
    return mtp ? `model.layers.${c.n_layer + Number(m[1])}.${m[2]}` : undefined;
  },
  rules(r, c) {
    trunkRules(r, c);
    normRules(r, c);
    const at = "model.layers.{il}.self_attn";
    for (const w of ["q", "k", "v"]) r.linear(`${at}.${w}_proj`, `blk.{il}.attn_${w}`, { optional: true });
    r.linear(`${at}.qkv_proj`, "blk.{il}.attn_qkv", { optional: true })
      .linear(`${at}.o_proj`, "blk.{il}.attn_output", { shape: [c.n_embd, c.n_head * c.needInt("v_head_dim")] })
      .exact(`${at}.attention_sink_bias`, "blk.{il}.attn_sinks.weight", { shape: [c.n_head], optional: true });
    const freq = c.nums("moe_layer_freq");
    const blocks = (il: number) => freq === undefined || il >= freq.length || freq[il] === 1;
    denseRules(r, c, (il) => !blocks(il));
    const options = { blocks, order: ["gate", "up", "down"] as const };
    routerRules(r, c, options);
    expertRules(r, c, options);
    draftRules(r);
  },
  keys(k, c, n_block) {
    const drafts = n_block - c.n_layer;
    const window = [...c.nums("hybrid_layer_pattern") ?? [], ...new Array<number>(drafts).fill(1)];
    const full = c.n_head_kv;
    const swa = c.needInt("swa_num_key_value_heads");
    k.i32s("attention.head_count_kv", window.map((w) => w === 1 ? swa : full))
      .u32("attention.sliding_window", c.needInt("sliding_window"))
      .i32s("attention.sliding_window_pattern", window)
      .u32("attention.value_length", c.needInt("v_head_dim"))
      .u32("expert_count", c.needInt("n_routed_experts"))
      .u32("expert_feed_forward_length", c.needInt("moe_intermediate_size"))
      .u32("rope.dimension_count", Math.trunc(c.head_dim * (c.rope.partial_rotary_factor ?? 1)))
      .f32("attention.layer_norm_rms_epsilon", c.num("layernorm_epsilon") ?? 1e-5)
      .f32("attention.value_scale", c.num("attention_value_scale"));
    if (drafts > 0) k.u32("nextn_predict_layers", drafts);
  },
};
