/**
 * DeepSeek V4.1: `deepseek41`. As V4, but compressed rows are made in some blocks and read by those after them, the choice
 * of rows is published in the same way, hyper-connections lag by one site and need no head, and two blocks read from an
 * n-gram memory. llama.cpp's converter does not know it; names and keys are those of the public pull request.
 * @module
 */
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import { bodyKeys, bodyRules, LAYER, stackRules, textTensor } from "./deepseek4.ts";
import { engramKeys, engramRules } from "./engram.ts";

/** Blocks named in a list of the configuration. */
function listed(c: Config, field: string): (il: number) => boolean {
  const ids = c.nums(field) ?? [];
  return (il) => ids.includes(il);
}

export const DEEPSEEK41: Family = {
  classes: ["DeepseekV41ForCausalLM", "DeepseekV41ForConditionalGeneration"],
  arch: "deepseek41",
  // The draft blocks of this release are a model of another kind (DSpark). It needs its own file; `prepare` makes none.
  rename: (name) => name.startsWith("mtp.") ? undefined : textTensor(name),
  rules(r, c, options) {
    const ratios = c.nums("compress_ratios") ?? [];
    const makesRows = listed(c, "kv_source_layer_ids");
    const choosesRows = listed(c, "index_source_layer_ids");
    const rank = c.needInt("q_lora_rank");
    const head = c.needInt("head_dim");
    const [n_index, index_dim] = [c.needInt("index_n_heads"), c.needInt("index_head_dim")];
    const bias = { shape: [c.n_expert ?? 0] };
    bodyRules(r);
    r.exact(`${LAYER}.ffn.gate.bias`, "blk.{il}.exp_probs_b.bias", bias)
      .exact(`${LAYER}.ffn.gate.bias_vl`, "blk.{il}.exp_probs_b_vl.bias", { ...bias, optional: true });
    const put = (from: string, to: string, blocks: (il: number) => boolean, shape: readonly number[]) =>
      r.exact(`${LAYER}.attn.${from}.weight`, `blk.{il}.${to}.weight`, { blocks, shape });
    put("compressor.wkv", "attn_compressor_kv", makesRows, [head, c.n_embd]);
    put("compressor.norm", "attn_compressor_norm", makesRows, [head]);
    // A row of one token needs no gate.
    put("compressor.wgate", "attn_compressor_gate", (il) => makesRows(il) && ratios[il] > 1, [head, c.n_embd]);
    put("indexer.wk", "indexer.attn_k", makesRows, [index_dim, head]);
    put("indexer.k_norm", "indexer.k_norm", makesRows, [index_dim]);
    put("indexer.wq_b", "indexer.attn_q_b", choosesRows, [n_index * index_dim, rank]);
    put("indexer.weights_proj", "indexer.proj", choosesRows, [n_index, c.n_embd]);
    stackRules(r, c);
    engramRules(r, c, options);
  },
  forceType(name, asked, v) {
    if (/\.(engram_[qk]|hc_(attn|ffn)_(fn|base|scale))\.weight$/.test(name)) return "f32";
    // FP8 is exact in 16 bits but twice as large, so 16 bits must be asked for.
    return v.coded && (asked === "auto" || asked === "keep") ? "q8_0" : undefined;
  },
  keys(k, c, n_block, facts, options) {
    k.u32("embedding_length_out", c.n_embd).u32("vocab_size", c.needInt("vocab_size"));
    bodyKeys(k, c, n_block);
    k.u32("attention.candidate_source_layer_id", c.int("candidate_source_layer_id"))
      .u32("attention.candidate_topk_blocks", c.int("candidate_topk_blocks"))
      .u32("attention.candidate_block_size", c.int("candidate_block_size"))
      .i32s("attention.kv_source_layer_ids", c.nums("kv_source_layer_ids") ?? [])
      .i32s("attention.index_source_layer_ids", c.nums("index_source_layer_ids") ?? [])
      .u32("hash_layer_count", c.int("num_hash_layers") ?? 0);
    engramKeys(k, c, facts, options);
  },
};
