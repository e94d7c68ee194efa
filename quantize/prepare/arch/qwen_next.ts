/**
 * Qwen3-Next (`qwen3next`) and Qwen 3.5 (`qwen35`, `qwen35moe`): blocks of gated delta nets between blocks of gated attention.
 * Norms are stored around zero and written with 1 added, but for the one inside the delta net.
 * @module
 */
import type { Config } from "../config.ts";
import type { Family, FamilyOptions } from "../family.ts";
import type { Keys } from "../keys.ts";
import type { Output, RuleOptions, Rules } from "../rules.ts";
import { concat, pickColumns, pickRows, reshape, sliceRows, squeeze, type View } from "../view.ts";
import { plusOne } from "./gemma.ts";
import { negativeExp } from "./kda.ts";
import { denseRules, trunkRules } from "./llama.ts";
import { draftRules, sharedExpertRules, sharedGateRule } from "./moe.ts";
import { qwenExpertRules } from "./qwen.ts";

const BLOCK = "model.layers.{il}";

/** Sizes of a gated delta net. */
export function deltaSizes(c: Config) {
  const n_key = c.needInt("linear_num_key_heads");
  const n_value = c.needInt("linear_num_value_heads");
  const key_dim = c.needInt("linear_key_head_dim");
  const value_dim = c.needInt("linear_value_head_dim");
  return { n_key, n_value, key_dim, value_dim, ratio: n_value / n_key, conv: c.needInt("linear_conv_kernel_dim") };
}

/** Whether a block has a gated delta net; draft blocks never do. */
export function isLinear(c: Config): (il: number) => boolean {
  const types = c.strs("layer_types");
  const interval = c.int("full_attention_interval") ?? 4;
  return (il) => il < c.n_layer && (types ? types[il] === "linear_attention" : (il + 1) % interval !== 0);
}

/**
 * Value heads from grouped by key head (`key * ratio + j`) to tiled (`j * n_key + key`), along rows of `head_dim` rows each.
 */
export function tileHeads(v: View, n_key: number, ratio: number, head_dim: number): View {
  if (ratio === 1) return v;
  return pickRows(v, v.shape, (r) => {
    const head = Math.floor(r / head_dim);
    const key = head % n_key;
    const j = Math.floor(head / n_key);
    return (key * ratio + j) * head_dim + (r % head_dim);
  });
}

/** A vector with one element per value head, tiled. */
function tileVector(v: View, n_key: number, ratio: number): View {
  return reshape(tileHeads(reshape(v, [v.shape[0], 1]), n_key, ratio, 1), v.shape);
}

/** Gated attention: q holds query and gate of each head. */
export function gatedAttentionRules(r: Rules, c: Config, blocks: (il: number) => boolean): void {
  const at = `${BLOCK}.self_attn`;
  const { n_embd, n_head, n_head_kv, head_dim } = c;
  r.linear(`${at}.q_proj`, "blk.{il}.attn_q", { shape: [2 * n_head * head_dim, n_embd], blocks })
    .linear(`${at}.k_proj`, "blk.{il}.attn_k", { shape: [n_head_kv * head_dim, n_embd], blocks })
    .linear(`${at}.v_proj`, "blk.{il}.attn_v", { shape: [n_head_kv * head_dim, n_embd], blocks })
    .linear(`${at}.o_proj`, "blk.{il}.attn_output", { shape: [n_embd, n_head * head_dim], blocks })
    .weight(`${at}.q_norm`, "blk.{il}.attn_q_norm", { shape: [head_dim], map: plusOne, blocks })
    .weight(`${at}.k_norm`, "blk.{il}.attn_k_norm", { shape: [head_dim], map: plusOne, blocks });
}

/** What the delta nets of all three have alike. `tile` reorders value heads. */
function deltaRules(r: Rules, c: Config, tiled: boolean): void {
  const { n_key, n_value, key_dim, value_dim, conv, ratio } = deltaSizes(c);
  const blocks = isLinear(c);
  const at = `${BLOCK}.linear_attn`;
  const qk = 2 * n_key * key_dim;
  const tile = (v: View, head_dim: number) => tiled ? tileHeads(v, n_key, ratio, head_dim) : v;
  const vector = (v: View) => tiled ? tileVector(v, n_key, ratio) : v;
  const tail = (v: View) =>
    tiled && ratio > 1
      ? concat([
        pickRows(v, [qk, v.shape[1]], (row) => row),
        tile(pickRows(v, [v.shape[0] - qk, v.shape[1]], (row) => qk + row), value_dim),
      ])
      : v;
  const value = n_value * value_dim;
  r.exact(`${at}.A_log`, "blk.{il}.ssm_a", { shape: [n_value], blocks, map: (v) => negativeExp(vector(v)) })
    .exact(`${at}.dt_bias`, "blk.{il}.ssm_dt.bias", { shape: [n_value], blocks, map: vector })
    .weight(`${at}.conv1d`, "blk.{il}.ssm_conv1d", {
      shape: [qk + value, 1, conv],
      blocks,
      map: (v) => tail(squeeze(v)),
    })
    .weight(`${at}.norm`, "blk.{il}.ssm_norm", { shape: [value_dim], blocks })
    .weight(`${at}.out_proj`, "blk.{il}.ssm_out", {
      shape: [c.n_embd, value],
      blocks,
      map: (v) =>
        tiled && ratio > 1
          ? pickColumns(v, value, (column) => {
            const head = Math.floor(column / value_dim);
            return ((head % n_key) * ratio + Math.floor(head / n_key)) * value_dim + (column % value_dim);
          })
          : v,
    });
  if (!tiled) return;
  r.weight(`${at}.in_proj_qkv`, "blk.{il}.attn_qkv", { shape: [qk + value, c.n_embd], blocks, map: tail })
    .weight(`${at}.in_proj_z`, "blk.{il}.attn_gate", {
      shape: [value, c.n_embd],
      blocks,
      map: (v) => tile(v, value_dim),
    })
    .weight(`${at}.in_proj_a`, "blk.{il}.ssm_alpha", { shape: [n_value, c.n_embd], blocks, map: (v) => tile(v, 1) })
    .weight(`${at}.in_proj_b`, "blk.{il}.ssm_beta", { shape: [n_value, c.n_embd], blocks, map: (v) => tile(v, 1) });
}

/** Delta nets with separate projections, value heads tiled. */
export const tiledDeltaRules = (r: Rules, c: Config): void => deltaRules(r, c, true);

/** Qwen3-Next's fused projection, rows grouped by key head: all q, then all k, then all v; z apart. */
function fusedProjection(c: Config): (v: View, il: number) => Output[] {
  const { n_key, key_dim, value_dim, ratio } = deltaSizes(c);
  const value = ratio * value_dim;
  const group = 2 * key_dim + 2 * value;
  return (v, il) => {
    const n = v.shape[1];
    const part = (from: number, count: number) =>
      reshape(sliceRows(reshape(v, [n_key, group, n]), from, count), [n_key * count, n]);
    return [
      {
        name: `blk.${il}.attn_qkv.weight`,
        view: concat([part(0, key_dim), part(key_dim, key_dim), part(2 * key_dim, value)]),
      },
      { name: `blk.${il}.attn_gate.weight`, view: part(2 * key_dim + value, value) },
    ];
  };
}

/** Trunk and norms around each block's halves. */
function bodyRules(r: Rules, c: Config): void {
  trunkRules(r, c);
  const norm: RuleOptions = { shape: [c.n_embd], map: plusOne };
  r.forget("model.norm.weight").weight("model.norm", "output_norm", norm)
    .weight(`${BLOCK}.input_layernorm`, "blk.{il}.attn_norm", norm)
    .weight(`${BLOCK}.post_attention_layernorm`, "blk.{il}.post_attention_norm", norm);
  gatedAttentionRules(r, c, (il) => !isLinear(c)(il));
  draftRules(r, plusOne);
}

function moeRules(r: Rules, c: Config): void {
  qwenExpertRules(r, c);
  sharedExpertRules(r, c, "shared_expert", c.needInt("shared_expert_intermediate_size"));
  sharedGateRule(r, c);
}

/** Draft tensors under the names of a block after the model's own. */
export function renameDrafts(name: string, c: Config, { mtp }: FamilyOptions): string | undefined {
  const plain = name.replace(/^model\.mtp\./, "mtp.");
  if (!plain.startsWith("mtp.")) return name;
  if (!mtp) return undefined;
  const m = /^mtp\.layers\.(\d+)\.(.*)$/.exec(plain);
  if (m) return `model.layers.${c.n_layer + Number(m[1])}.${m[2]}`;
  const names: Record<string, string> = {
    fc: "eh_proj",
    pre_fc_norm_embedding: "enorm",
    pre_fc_norm_hidden: "hnorm",
    norm: "shared_head.norm",
  };
  const [, part, rest] = plain.split(".");
  return part in names ? `model.layers.${c.n_layer}.${names[part]}.${rest}` : plain;
}

/** The number of draft blocks, from the configuration or the tensors' names. */
export function qwenDrafts(c: Config, names: Iterable<string>): number {
  let n = c.int("mtp_num_hidden_layers") ?? 0;
  for (const name of names) {
    const m = /^(?:model\.)?mtp\.layers\.(\d+)\./.exec(name);
    if (m) n = Math.max(n, Number(m[1]) + 1);
  }
  return n;
}

/** Keys after the common ones. */
export function deltaKeys(k: Keys, c: Config, n_block: number): void {
  const { n_key, n_value, key_dim, value_dim, conv } = deltaSizes(c);
  k.u32("expert_feed_forward_length", c.int("moe_intermediate_size"))
    .u32("expert_shared_feed_forward_length", c.int("shared_expert_intermediate_size"));
  if (n_block > c.n_layer) k.u32("nextn_predict_layers", n_block - c.n_layer);
  const linear = isLinear(c);
  k.u32("ssm.conv_kernel", conv)
    .u32("ssm.state_size", key_dim)
    .u32("ssm.group_count", n_key)
    .u32("ssm.time_step_rank", n_value)
    .u32("ssm.inner_size", value_dim * n_value)
    .bools("attention.recurrent_layers", Array.from({ length: n_block }, (_, il) => linear(il)))
    .u32("full_attention_interval", c.int("full_attention_interval") ?? 4)
    .u32("rope.dimension_count", Math.trunc(c.head_dim * (c.rope.partial_rotary_factor ?? 0.25)));
}

/** Sections of the multi-axis RoPE that releases leave out. */
export function sectionKeys(k: Keys, c: Config): void {
  if (!Array.isArray(c.rope["mrope_section"])) k.i32s("rope.dimension_sections", [11, 11, 10, 0]);
}

export const QWEN3NEXT: Family = {
  classes: ["Qwen3NextForCausalLM"],
  arch: "qwen3next",
  draftBlocks: qwenDrafts,
  rename: renameDrafts,
  rules(r, c) {
    bodyRules(r, c);
    moeRules(r, c);
    deltaRules(r, c, false);
    const { n_key, n_value, key_dim, value_dim } = deltaSizes(c);
    const at = `${BLOCK}.linear_attn`;
    const blocks = isLinear(c);
    r.split(`${at}.in_proj_qkvz.weight`, fusedProjection(c), {
      shape: [2 * n_key * key_dim + 2 * n_value * value_dim, c.n_embd],
      blocks,
    }).weight(`${at}.in_proj_ba`, "blk.{il}.ssm_ba", { shape: [2 * n_value, c.n_embd], blocks });
  },
  keys: deltaKeys,
};

const qwen35 = (classes: readonly string[], arch: string, ffn: (r: Rules, c: Config) => void): Family => ({
  classes,
  arch,
  draftBlocks: qwenDrafts,
  rename: renameDrafts,
  rules(r, c) {
    bodyRules(r, c);
    ffn(r, c);
    tiledDeltaRules(r, c);
  },
  keys(k, c, n_block) {
    deltaKeys(k, c, n_block);
    sectionKeys(k, c);
  },
});

export const QWEN35 = qwen35(["Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"], "qwen35", denseRules);
export const QWEN35MOE = qwen35(["Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"], "qwen35moe", moeRules);
