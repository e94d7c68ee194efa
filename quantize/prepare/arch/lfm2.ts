/**
 * LFM 2, dense (`lfm2`) and with experts (`lfm2moe`): short convolutions with attention in between.
 * @module
 */
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import type { Keys } from "../keys.ts";
import type { Rules } from "../rules.ts";
import { squeeze } from "../view.ts";
import { expertRules, W123 } from "./moe.ts";

const AT = "model.layers.{il}";

const isAttention = (c: Config) => {
  const types = c.strs("layer_types");
  const full = c.nums("full_attn_idxs") ?? [];
  return (il: number) => types ? types[il] === "full_attention" : full.includes(il);
};

/** Width of the dense feed-forward: released configurations state one that their class then changes. */
function denseWidth(c: Config): number {
  let n = c.int("block_ff_dim") ?? c.needSize("intermediate_size");
  if (!c.bool("block_auto_adjust_ff_dim", false)) return n;
  n = Math.trunc(2 * n / 3);
  const multiplier = c.num("block_ffn_dim_multiplier");
  if (multiplier !== undefined) n = Math.trunc(multiplier * n);
  const multiple = c.int("block_multiple_of") || 1;
  return multiple * Math.ceil(n / multiple);
}

function bodyRules(r: Rules, c: Config): void {
  const { n_embd, n_head, n_head_kv, head_dim } = c;
  const attention = isAttention(c);
  const full = (shape: number[]) => ({ shape, blocks: attention });
  const conv = (il: number) => !attention(il);
  const table = c.int("vocab_size") === undefined ? undefined : [c.needInt("vocab_size"), n_embd];
  r.weight("model.embed_tokens", "token_embd", { shape: table })
    .weight("model.embedding_norm", "token_embd_norm", { shape: [n_embd] })
    .weight("lm_head", "output", { shape: table, optional: true })
    .weight(`${AT}.operator_norm`, "blk.{il}.attn_norm", { shape: [n_embd] })
    .weight(`${AT}.ffn_norm`, "blk.{il}.ffn_norm", { shape: [n_embd] })
    .weight(`${AT}.conv.conv`, "blk.{il}.shortconv.conv", { blocks: conv, map: squeeze })
    .weight(`${AT}.conv.in_proj`, "blk.{il}.shortconv.in_proj", { blocks: conv, shape: [3 * n_embd, n_embd] })
    .weight(`${AT}.conv.out_proj`, "blk.{il}.shortconv.out_proj", { blocks: conv, shape: [n_embd, n_embd] })
    .weight(`${AT}.self_attn.q_proj`, "blk.{il}.attn_q", full([n_head * head_dim, n_embd]))
    .weight(`${AT}.self_attn.k_proj`, "blk.{il}.attn_k", full([n_head_kv * head_dim, n_embd]))
    .weight(`${AT}.self_attn.v_proj`, "blk.{il}.attn_v", full([n_head_kv * head_dim, n_embd]))
    .weight(`${AT}.self_attn.out_proj`, "blk.{il}.attn_output", full([n_embd, n_head * head_dim]))
    .weight(`${AT}.self_attn.q_layernorm`, "blk.{il}.attn_q_norm", full([head_dim]))
    .weight(`${AT}.self_attn.k_layernorm`, "blk.{il}.attn_k_norm", full([head_dim]));
}

function denseRules(r: Rules, c: Config, n_ff: number, blocks: (il: number) => boolean): void {
  const at = `${AT}.feed_forward`;
  r.weight(`${at}.w1`, "blk.{il}.ffn_gate", { shape: [n_ff, c.n_embd], blocks })
    .weight(`${at}.w2`, "blk.{il}.ffn_down", { shape: [c.n_embd, n_ff], blocks })
    .weight(`${at}.w3`, "blk.{il}.ffn_up", { shape: [n_ff, c.n_embd], blocks });
}

function bodyKeys(k: Keys, c: Config): void {
  k.u32("vocab_size", c.needInt("vocab_size")).u32("shortconv.l_cache", c.needInt("conv_L_cache"));
}

function kvKeys(k: Keys, c: Config): void {
  const attention = isAttention(c);
  k.i32s("attention.head_count_kv", Array.from({ length: c.n_layer }, (_, il) => attention(il) ? c.n_head_kv : 0));
}

export const LFM2: Family = {
  classes: ["Lfm2ForCausalLM", "LFM2ForCausalLM"],
  arch: "lfm2",
  rules(r, c) {
    bodyRules(r, c);
    denseRules(r, c, denseWidth(c), () => true);
  },
  keys(k, c) {
    kvKeys(k, c);
    k.u32("feed_forward_length", denseWidth(c));
    bodyKeys(k, c);
  },
};

export const LFM2MOE: Family = {
  classes: ["Lfm2MoeForCausalLM"],
  arch: "lfm2moe",
  rules(r, c) {
    const dense = c.int("num_dense_layers") ?? 0;
    const blocks = (il: number) => il >= dense;
    const at = `${AT}.feed_forward`;
    const n_expert = c.n_expert ?? 0;
    bodyRules(r, c);
    denseRules(r, c, c.needSize("intermediate_size"), (il) => il < dense);
    r.weight(`${at}.gate`, "blk.{il}.ffn_gate_inp", { shape: [n_expert, c.n_embd], blocks })
      .exact(`${at}.expert_bias`, "blk.{il}.exp_probs_b.bias", { shape: [n_expert], optional: true });
    expertRules(r, c, { blocks, at, names: W123, order: ["gate", "down", "up"] });
  },
  keys(k, c) {
    kvKeys(k, c);
    k.u32("expert_feed_forward_length", c.needInt("moe_intermediate_size"))
      .u32("leading_dense_block_count", c.needInt("num_dense_layers"))
      .u32("expert_gating_func", 2);
    bodyKeys(k, c);
  },
};
