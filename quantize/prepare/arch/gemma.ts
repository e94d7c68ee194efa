/**
 * Gemma 3, text: `gemma3`. Norms are stored around zero and written with 1 added.
 * @module
 */
import type { Family } from "../family.ts";
import { mapF32, type View } from "../view.ts";
import { attentionRules, denseRules } from "./llama.ts";

export const plusOne = (v: View): View => mapF32(v, (x) => Math.fround(x + 1));

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
    for (const w of ["q", "k"]) {
      r.weight(`${at}.self_attn.${w}_norm`, `blk.{il}.attn_${w}_norm`, { shape: [c.head_dim], map: plusOne });
    }
    denseRules(r, c);
  },
  keys(k, c) {
    k.f32("final_logit_softcapping", c.num("final_logit_softcapping"));
    if (c.int("sliding_window_pattern") !== 1) k.u32("attention.sliding_window", c.needInt("sliding_window"));
  },
};
