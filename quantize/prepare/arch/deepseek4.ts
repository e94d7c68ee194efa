/**
 * DeepSeek V4: `deepseek4`, in the layout of its release (names of its own, FP8 weights with E8M0 scales, FP4 experts).
 * FP8 becomes Q8_0 and FP4 moves into MXFP4 blocks; tables and experts come first in the file.
 * @module
 */
import type { Config } from "../config.ts";
import type { Family, FamilyOptions } from "../family.ts";
import type { Keys } from "../keys.ts";
import { FILE_TYPES } from "../outtype.ts";
import type { Rules } from "../rules.ts";
import { concatColumns, integers } from "../view.ts";
import { hyperRules } from "./kda.ts";
import { W123 } from "./moe.ts";

/** A block of the checkpoint. */
export const LAYER = "layers.{il}";

/** Tensors of a block: name in the checkpoint, name in the file. */
export const BLOCK: readonly (readonly [from: string, to: string])[] = [
  ["attn.attn_sink", "attn_sinks"],
  ["attn.wq_a.weight", "attn_q_a"],
  ["attn.wq_b.weight", "attn_q_b"],
  ["attn.q_norm.weight", "attn_q_a_norm"],
  ["attn.wkv.weight", "attn_kv"],
  ["attn.kv_norm.weight", "attn_kv_a_norm"],
  ["attn.wo_a.weight", "attn_output_a"],
  ["attn.wo_b.weight", "attn_output_b"],
  ["attn_norm.weight", "attn_norm"],
  ["ffn_norm.weight", "ffn_norm"],
  ["ffn.gate.weight", "ffn_gate_inp"],
  ["ffn.shared_experts.w1.weight", "ffn_gate_shexp"],
  ["ffn.shared_experts.w2.weight", "ffn_down_shexp"],
  ["ffn.shared_experts.w3.weight", "ffn_up_shexp"],
];

/** Tensors of blocks with a compressed cache, and with an indexer on it. */
const COMPRESSED: readonly (readonly [from: string, to: string])[] = [
  ["attn.compressor.ape", "attn_compressor_ape"],
  ["attn.compressor.wkv.weight", "attn_compressor_kv"],
  ["attn.compressor.wgate.weight", "attn_compressor_gate"],
  ["attn.compressor.norm.weight", "attn_compressor_norm"],
];
const INDEXED: readonly (readonly [from: string, to: string])[] = [
  ["attn.indexer.wq_b.weight", "indexer.attn_q_b"],
  ["attn.indexer.weights_proj.weight", "indexer.proj"],
  ["attn.indexer.compressor.ape", "indexer_compressor_ape"],
  ["attn.indexer.compressor.wkv.weight", "indexer_compressor_kv"],
  ["attn.indexer.compressor.wgate.weight", "indexer_compressor_gate"],
  ["attn.indexer.compressor.norm.weight", "indexer_compressor_norm"],
];

/** Leaves out what is not the text model's. */
export const textTensor = (name: string): string | undefined =>
  /^(aligner|vision)\.|^image_/.test(name) ? undefined : name;

/** Draft blocks that are there, `mtp.0` and on. */
function drafts(_: Config, names: Iterable<string>): number {
  let n = 0;
  for (const name of names) n = Math.max(n, Number(/^mtp\.(\d+)\./.exec(name)?.[1] ?? -1) + 1);
  return n;
}

/** Draft blocks under the numbers after the model's own. */
function rename(name: string, c: Config, { mtp }: FamilyOptions): string | undefined {
  const m = /^mtp\.(\d+)\.(.*)$/.exec(name);
  if (!m) return mtp === "only" && name.startsWith("hc_head_") ? undefined : textTensor(name);
  return mtp ? `layers.${c.n_layer + Number(m[1])}.${m[2]}` : undefined;
}

/**
 * What a draft block has besides a block's own tensors. A file with draft blocks alone has their head of hyper-connections in
 * the place of the model's, as llama.cpp wants it; in the model's own file it lies with the block.
 */
function draftRules(r: Rules, { mtp }: FamilyOptions): void {
  const optional = true;
  r.gather([`${LAYER}.e_proj.weight`, `${LAYER}.h_proj.weight`], ([e, h], il) => [
    { name: `blk.${il}.nextn.eh_proj.weight`, view: concatColumns(e, h) },
  ], { optional });
  for (const [from, to] of [["enorm", "enorm"], ["hnorm", "hnorm"], ["norm", "shared_head_norm"]]) {
    r.exact(`${LAYER}.${from}.weight`, `blk.{il}.nextn.${to}.weight`, { optional });
  }
  for (const part of ["fn", "base", "scale"]) {
    const to = mtp === "only" ? `output_hc_${part}.weight` : `blk.{il}.nextn.output_hc_${part}.weight`;
    r.exact(`${LAYER}.hc_head_${part}`, to, { optional });
  }
}

/** Embeddings, norms, attention, shared expert and hyper-connections of every block. */
export function bodyRules(r: Rules): void {
  r.exact("embed.weight", "token_embd.weight")
    .exact("norm.weight", "output_norm.weight")
    .exact("head.weight", "output.weight");
  hyperRules(r, `${LAYER}.`);
  for (const [from, to] of BLOCK) r.exact(`${LAYER}.${from}`, `blk.{il}.${to}.weight`);
}

export function stackRules(r: Rules, c: Config, order?: (il: number) => number): void {
  const n_ff = c.needInt("moe_intermediate_size");
  r.experts(
    `${LAYER}.ffn.experts.{e}.{w}.weight`,
    c.n_expert ?? 0,
    (["gate", "down", "up"] as const).map((w) =>
      [W123[w], `blk.{il}.ffn_${w}_exps.weight`, w === "down" ? [c.n_embd, n_ff] : [n_ff, c.n_embd]] as const
    ),
    order ? { order } : {},
  );
}

/** Keys from the ranks on that V4 and V4.1 share. */
export function bodyKeys(k: Keys, c: Config, n_block: number): void {
  k.u32("rope.dimension_count", c.needInt("qk_rope_head_dim"))
    .u32("attention.q_lora_rank", c.needInt("q_lora_rank"))
    .u32("attention.sliding_window", c.needInt("sliding_window"))
    .u32("expert_feed_forward_length", c.needInt("moe_intermediate_size"))
    .u32("expert_shared_count", c.needInt("n_shared_experts"))
    .f32("expert_weights_scale", c.needNum("routed_scaling_factor"))
    .bool("expert_weights_norm", c.bool("norm_topk_prob", true));
  const limits = new Array<number>(n_block).fill(c.needNum("swiglu_limit"));
  k.f32s("swiglu_clamp_exp", limits)
    .f32s("swiglu_clamp_shexp", limits)
    .u32("attention.indexer.head_count", c.needInt("index_n_heads"))
    .u32("attention.indexer.key_length", c.needInt("index_head_dim"))
    .u32("attention.indexer.top_k", c.needInt("index_topk"))
    .u32("attention.output_group_count", c.needInt("o_groups"))
    .u32("attention.output_lora_rank", c.needInt("o_lora_rank"))
    .i32s("attention.compress_ratios", c.nums("compress_ratios") ?? [])
    .f32("attention.compress_rope_freq_base", c.needNum("compress_rope_theta"))
    .u32("hyper_connection.count", c.needInt("hc_mult"))
    .u32("hyper_connection.sinkhorn_iterations", c.needInt("hc_sinkhorn_iters"))
    .f32("hyper_connection.epsilon", c.needNum("hc_eps"));
}

export const DEEPSEEK4: Family = {
  classes: ["DeepseekV4ForCausalLM"],
  arch: "deepseek4",
  fileType: FILE_TYPES["mxfp4"],
  draftBlocks: drafts,
  rename,
  rules(r, c, options) {
    const hash = c.int("num_hash_layers") ?? 0;
    const ratios = c.nums("compress_ratios") ?? [];
    const compressed = (il: number) => (ratios[il] ?? 0) > 0;
    const indexed = (il: number) => ratios[il] === 4;
    bodyRules(r);
    draftRules(r, options);
    for (const part of ["fn", "base", "scale"]) {
      r.exact(`hc_head_${part}`, `output_hc_${part}.weight`, { optional: options.mtp === "only" });
    }
    for (const [from, to] of COMPRESSED) r.exact(`${LAYER}.${from}`, `blk.{il}.${to}.weight`, { blocks: compressed });
    for (const [from, to] of INDEXED) r.exact(`${LAYER}.${from}`, `blk.{il}.${to}.weight`, { blocks: indexed });
    // Blocks that route by token id have a table and no use for the bias.
    r.split(
      `${LAYER}.ffn.gate.bias`,
      (view, il) => il < hash ? [] : [{ name: `blk.${il}.exp_probs_b.bias`, view }],
      { blocks: (il) => il >= hash },
    )
      .exact(`${LAYER}.ffn.gate.tid2eid`, "blk.{il}.ffn_gate_tid2eid.weight", {
        blocks: (il) => il < hash,
        map: integers,
        order: (il) => il - hash,
      });
    stackRules(r, c, (il) => il);
  },
  forceType(name, _, v) {
    if (v.coded) return "q8_0";
    if (v.dtype === "F32") return "f32";
    return name.endsWith(".weight") && v.dtype === "BF16" ? "bf16" : undefined;
  },
  keys(k, c, n_block) {
    bodyKeys(k, c, n_block);
    k.u32("hash_layer_count", c.needInt("num_hash_layers"))
      .u32("embedding_length_out", c.n_embd * c.needInt("hc_mult"));
    if (n_block > c.n_layer) k.u32("nextn_predict_layers", n_block - c.n_layer);
  },
};
