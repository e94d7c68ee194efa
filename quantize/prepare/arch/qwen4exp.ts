/**
 * Qwen3.8-Flash-Next: `qwen4exp`. Delta nets and sparse attention as in Qwen 3.5, hyper-connections in place of all norms, and
 * one block with n-gram embeddings whose table comes in shards.
 * @module
 */
import { ModelError } from "../../../core/errors.ts";
import type { Config } from "../config.ts";
import type { CheckpointFacts, Family, FamilyOptions } from "../family.ts";
import type { Keys } from "../keys.ts";
import { concat, pickRows, sliceRows, squeeze, type View } from "../view.ts";
import { plusOne } from "./gemma.ts";
import { sharedExpertRules, sharedGateRule } from "./moe.ts";
import { qwenExpertRules } from "./qwen.ts";
import {
  deltaKeys,
  gatedAttentionRules,
  isLinear,
  qwenDrafts,
  renameDrafts,
  sectionKeys,
  tiledDeltaRules,
} from "./qwen_next.ts";

const L = "model.layers.{il}";

/** Parts of a mixer of residual streams. */
const MIXER: readonly (readonly [from: string, to: string])[] = [
  ["hc_norm", "norm"],
  ["input_mix_weight_down", "down"],
  ["input_mix_weight_up", "up"],
];

/** Draft tensors that Qwen 3.5 does not have. */
function rename(name: string, c: Config, options: FamilyOptions): string | undefined {
  const m = /^mtp\.(fc_embedding|fc_hidden|hyper_connection_mixer)\.(.*)$/.exec(name);
  if (!m) return renameDrafts(name, c, options);
  return options.mtp ? `model.layers.${c.n_layer}.nextn_${m[1]}.${m[2]}` : undefined;
}

/** Blocks with n-gram embeddings, counted from 0. */
const ngramBlocks = (c: Config): number[] => (c.nums("ple_layer_ids") ?? []).map((id) => id - 1);

function ngramKeys(k: Keys, c: Config, facts: CheckpointFacts): void {
  const layers = ngramBlocks(c);
  if (layers.length === 0) return;
  const eos = c.raw("eos_token_id");
  const last = Array.isArray(eos) ? eos.at(-1) : eos;
  if (typeof last !== "number") {
    throw new ModelError("model.config", `Cannot use ${c.file}: n-gram embeddings need an eos_token_id`, {
      at: { file: c.file, field: "eos_token_id" },
    });
  }
  const constants = (name: string) => {
    const values = facts.integers(`ple_embedding.${name}`);
    if (values) return values;
    throw new ModelError("model.missing_tensor", `Cannot find tensor "ple_embedding.${name}" of ${c.file}`, {
      at: { file: c.file, tensor: name },
    });
  };
  k.i32s("ple.layers", layers)
    .u32("ple.ngram_size", c.needInt("ngram_size"))
    .u32("ple.heads_per_ngram", c.needInt("heads_per_ngram"))
    .u32("ple.conv_kernel", c.needInt("ple_conv_kernel_size"))
    .u32("ple.eos_token_id", last)
    .u32("ple.image_token_id", c.int("image_token_id"))
    .u32("embedding_length_per_layer_input", facts.shape("ngram_embedding.shard_0.weight")?.at(-1))
    .u64s("ple.layer_multipliers", constants("layer_multipliers"))
    .u64s("ple.head_offsets", constants("ngram_heads_offsets"))
    .u64s("ple.head_vocab_sizes", constants("ngram_heads_vocab_sizes"));
}

export const QWEN4EXP: Family = {
  classes: ["Qwen4ExpForConditionalGeneration", "Qwen4ExpForCausalLM"],
  arch: "qwen4exp",
  draftBlocks: qwenDrafts,
  rename,
  rules(r, c) {
    const n_vocab = c.int("vocab_size");
    const table = n_vocab === undefined ? undefined : [n_vocab, c.n_embd];
    const full = (il: number) => !isLinear(c)(il);
    r.weight("model.embed_tokens", "token_embd", { shape: table })
      .weight("lm_head", "output", { shape: table, optional: c.bool("tie_word_embeddings", false) });
    const mixer = (from: string, to: string, optional = false) => {
      for (const [part, name] of MIXER) {
        r.weight(`${from}.${part}`, `${to}_${name}`, part === "hc_norm" ? { map: plusOne, optional } : { optional });
      }
    };
    mixer("model.hyper_connection_mixer", "output_hc");
    for (const [from, to] of [["attn", "attn"], ["mlp", "ffn"]]) {
      mixer(`${L}.${from}_hyper_connection`, `blk.{il}.hc_${to}`);
      r.weight(`${L}.${from}_hyper_connection.block_inject_weight`, `blk.{il}.hc_${to}_inject`);
    }
    tiledDeltaRules(r, c);
    gatedAttentionRules(r, c, full);
    qwenExpertRules(r, c);
    sharedExpertRules(r, c, "shared_expert", c.needInt("shared_expert_intermediate_size"));
    sharedGateRule(r, c);

    const n_q = c.needInt("indexer_n_heads") * c.needInt("indexer_head_dim");
    const indexer = `${L}.self_attn.indexer`;
    r.split(`${indexer}.index_qk_proj.weight`, (v, il) => [
      { name: `blk.${il}.indexer.q_proj.weight`, view: sliceRows(v, 0, n_q) },
      { name: `blk.${il}.indexer.k_proj.weight`, view: sliceRows(v, n_q, v.shape[0] - n_q) },
    ], { blocks: full })
      .weight(`${indexer}.q_layernorm`, "blk.{il}.indexer.q_norm", { blocks: full, map: plusOne })
      .weight(`${indexer}.k_layernorm`, "blk.{il}.indexer.k_norm", { blocks: full, map: plusOne });

    const ngram = ngramBlocks(c);
    const blocks = (il: number) => ngram.includes(il);
    const ple = `${L}.ple`;
    for (const part of ["key", "value"]) r.weight(`${ple}.${part}_proj`, `blk.{il}.ple_${part}`, { blocks });
    for (const part of ["key", "query", "conv"]) {
      r.weight(`${ple}.norm_${part}`, `blk.{il}.ple_norm_${part}`, { blocks, map: plusOne });
    }
    r.weight(`${ple}.conv1d`, "blk.{il}.ple_conv1d", { blocks, map: squeeze });
    const table1 = `${ple}.ple_embedding`;
    r.drop(`${table1}.layer_multipliers`, `${table1}.ngram_heads_offsets`, `${table1}.ngram_heads_vocab_sizes`)
      .gather(
        Array.from(
          { length: c.has("split_ngram_parts") ? c.needSize("split_ngram_parts", 4096) : 0 },
          (_, i) => `${table1}.ngram_embedding.shard_${i}.weight`,
        ),
        (shards: View[]) => [{ name: "per_layer_token_embd.weight", view: concat(shards) }],
        { blocks },
      );

    // The draft block's own tensors.
    const draft = { optional: true };
    r.gather(
      [`${L}.nextn_fc_embedding.weight`, `${L}.nextn_fc_hidden.weight`],
      ([e, h], il) => [{ name: `blk.${il}.nextn.eh_proj.weight`, view: beside(e, h) }],
      draft,
    )
      .weight(`${L}.enorm`, "blk.{il}.nextn.enorm", { ...draft, map: plusOne })
      .weight(`${L}.hnorm`, "blk.{il}.nextn.hnorm", { ...draft, map: plusOne });
    mixer(`${L}.nextn_hyper_connection_mixer`, "blk.{il}.nextn.hc_head", true);
  },
  keys(k, c, n_block, facts) {
    deltaKeys(k, c, n_block);
    sectionKeys(k, c);
    const linear = isLinear(c);
    const ratio = c.needInt("indexer_compress_ratio");
    k.u32("hyper_connection.count", c.needInt("hc_count"))
      .u32("hyper_connection.low_rank", c.needInt("hc_lowrank"))
      .u32("attention.indexer.head_count", c.needInt("indexer_n_heads"))
      .u32("attention.indexer.key_length", c.needInt("indexer_head_dim"))
      .u32("attention.indexer.top_k", c.needInt("indexer_budget"))
      .i32s("attention.compress_ratios", Array.from({ length: n_block }, (_, il) => linear(il) ? 0 : ratio));
    ngramKeys(k, c, facts);
  },
};

/** Two matrices of equal height, one beside the other. */
function beside(a: View, b: View): View {
  const [rows, columns] = a.shape;
  if (b.shape[0] !== rows || b.shape[1] !== columns) throw new Error(`[${a.shape}] beside [${b.shape}]`);
  // Rows of both, alternating, are the rows of the wide matrix cut in half.
  const both = concat([a, b]);
  const alternating = pickRows(both, [2 * rows, columns], (r) => (r & 1) * rows + (r >> 1));
  return { ...alternating, shape: [rows, 2 * columns] };
}
