/**
 * Gemma 2 (`gemma2`) and Gemma 3, text (`gemma3`). Norms are stored around zero and written with 1 added.
 * @module
 */
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import type { Rules } from "../rules.ts";
import { mapF32, type View } from "../view.ts";
import { poolingType } from "../pooling.ts";
import { attentionRules, denseRules } from "./llama.ts";

export const plusOne = (v: View): View => mapF32(v, (x) => Math.fround(x + 1));

/** Norms around both halves of a block, embeddings that are the head too, attention and a dense feed-forward. */
export function gemmaBodyRules(r: Rules, c: Config): void {
  const norm = { shape: [c.n_embd], map: plusOne };
  const at = "model.layers.{il}";
  r.weight("model.embed_tokens", "token_embd")
    .weight("model.norm", "output_norm", norm)
    .drop("lm_head.weight") // always the embeddings again
    .weight(`${at}.input_layernorm`, "blk.{il}.attn_norm", norm)
    .weight(`${at}.post_attention_layernorm`, "blk.{il}.post_attention_norm", norm)
    .weight(`${at}.pre_feedforward_layernorm`, "blk.{il}.ffn_norm", norm)
    .weight(`${at}.post_feedforward_layernorm`, "blk.{il}.post_ffw_norm", norm);
  attentionRules(r, c, false);
  denseRules(r, c);
}

/** Gemma 2: caps on scores and logits, every second block with a window. */
export const GEMMA2: Family = {
  classes: ["Gemma2ForCausalLM"],
  arch: "gemma2",
  defaults: () => ({ head_dim: 256, sliding_window: 4096, attn_logit_softcapping: 50, final_logit_softcapping: 30 }),
  rules: gemmaBodyRules,
  keys(k, c) {
    k.f32("attn_logit_softcapping", c.num("attn_logit_softcapping"))
      .f32("final_logit_softcapping", c.num("final_logit_softcapping"))
      .u32("attention.sliding_window", c.needInt("sliding_window"))
      .inOrder([
        "context_length",
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.layer_norm_rms_epsilon",
        "attention.key_length",
        "attention.value_length",
        "general.file_type",
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "attention.sliding_window",
      ]);
  },
};

export const GEMMA3: Family = {
  classes: ["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
  arch: "gemma3",
  defaults: () => ({
    max_position_embeddings: 131072,
    num_attention_heads: 8,
    num_key_value_heads: 4,
    head_dim: 256,
    rms_norm_eps: 1e-6,
    rope_theta: 1e6,
    rope_local_base_freq: 1e4,
    sliding_window: 4096,
    intermediate_size: 9216,
    num_hidden_layers: 26,
    hidden_size: 2304,
    tie_word_embeddings: true,
  }),
  rules(r, c) {
    gemmaBodyRules(r, c);
    const at = "model.layers.{il}";
    for (const w of ["q", "k"]) {
      r.weight(`${at}.self_attn.${w}_norm`, `blk.{il}.attn_${w}_norm`, { shape: [c.head_dim], map: plusOne });
    }
  },
  keys(k, c) {
    k.f32("final_logit_softcapping", c.num("final_logit_softcapping"));
    if (c.int("sliding_window_pattern") !== 1) k.u32("attention.sliding_window", c.needInt("sliding_window"));
  },
};

/** EmbeddingGemma: as Gemma 3, with the pooling and the matrices that sentence-transformers keeps beside the model. */
export const GEMMA_EMBEDDING: Family = {
  classes: ["Gemma3TextModel"],
  arch: "gemma-embedding",
  ...(GEMMA3.defaults ? { defaults: GEMMA3.defaults } : {}),
  rename: (name) => /^(embed_tokens|layers|norm)\./.test(name) ? `model.${name}` : name,
  rules: GEMMA3.rules,
  keys(k, c, _, facts) {
    k.f32("final_logit_softcapping", c.num("final_logit_softcapping"))
      .u32("attention.sliding_window", c.needInt("sliding_window"))
      .u32("pooling_type", poolingType(facts));
  },
};
