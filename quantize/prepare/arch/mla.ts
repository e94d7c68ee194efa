/**
 * Multi-head latent attention and its token indexer: rules and keys shared by DeepSeek, GLM, Kimi and Mistral.
 *
 * Files hold the absorbed form: the up-projection of keys and values is split per head, its key half turned around, and
 * the model is described as having one key-value head as wide as the latent.
 * @module
 */
import type { Config } from "../config.ts";
import type { Keys } from "../keys.ts";
import type { RuleOptions, Rules } from "../rules.ts";
import { reshape, sliceRows, transpose } from "../view.ts";

const AT = "model.layers.{il}.self_attn";

export function mlaRules(r: Rules, c: Config, blocks?: (il: number) => boolean): void {
  const { n_embd, n_head } = c;
  const nope = c.needInt("qk_nope_head_dim");
  const rope = c.needInt("qk_rope_head_dim");
  const value = c.needInt("v_head_dim");
  const rank = c.int("kv_lora_rank") ?? 512;
  const qRank = c.int("q_lora_rank");
  const here = (shape: readonly number[]): RuleOptions => blocks ? { shape, blocks } : { shape };
  if (qRank === undefined) r.linear(`${AT}.q_proj`, "blk.{il}.attn_q", here([n_head * (nope + rope), n_embd]));
  else {
    r.linear(`${AT}.q_a_proj`, "blk.{il}.attn_q_a", here([qRank, n_embd]))
      .weight(`${AT}.q_a_layernorm`, "blk.{il}.attn_q_a_norm", here([qRank]))
      .weight(`${AT}.q_b_proj`, "blk.{il}.attn_q_b", here([n_head * (nope + rope), qRank]));
  }
  r.linear(`${AT}.kv_a_proj_with_mqa`, "blk.{il}.attn_kv_a_mqa", here([rank + rope, n_embd]))
    .weight(`${AT}.kv_a_layernorm`, "blk.{il}.attn_kv_a_norm", here([rank]))
    .split(`${AT}.kv_b_proj.weight`, (v, il) => {
      const heads = reshape(v, [n_head, nope + value, rank]);
      return [
        { name: `blk.${il}.attn_k_b.weight`, view: transpose(sliceRows(heads, 0, nope)) },
        { name: `blk.${il}.attn_v_b.weight`, view: sliceRows(heads, nope, value) },
      ];
    }, here([n_head * (nope + value), rank]))
    .linear(`${AT}.o_proj`, "blk.{il}.attn_output", here([n_embd, n_head * value]))
    .drop(`${AT}.rotary_emb.inv_freq`);
}

/** The indexer that picks the tokens attention looks at. */
export function indexerRules(r: Rules, c: Config, blocks?: (il: number) => boolean): void {
  const n = c.needInt("index_n_heads");
  const d = c.needInt("index_head_dim");
  const qRank = c.needInt("q_lora_rank");
  const here = (shape: readonly number[]): RuleOptions => blocks ? { shape, blocks } : { shape };
  const at = `${AT}.indexer`;
  r.weight(`${at}.wq_b`, "blk.{il}.indexer.attn_q_b", here([n * d, qRank]))
    .weight(`${at}.wk`, "blk.{il}.indexer.attn_k", here([d, c.n_embd]))
    .weight(`${at}.weights_proj`, "blk.{il}.indexer.proj", here([n, c.n_embd]))
    .linear(`${at}.k_norm`, "blk.{il}.indexer.k_norm", here([d]));
}

/** Ranks and head widths. */
export function mlaKeys(k: Keys, c: Config): void {
  const rank = c.int("kv_lora_rank") ?? 512;
  const rope = c.needInt("qk_rope_head_dim");
  k.u32("attention.q_lora_rank", c.int("q_lora_rank"))
    .u32("attention.kv_lora_rank", rank)
    .u32("attention.key_length", rank + rope)
    .u32("attention.value_length", rank)
    .u32("attention.key_length_mla", c.needInt("qk_nope_head_dim") + rope)
    .u32("attention.value_length_mla", c.needInt("v_head_dim"));
}

export function indexerKeys(k: Keys, c: Config): void {
  k.u32("attention.indexer.head_count", c.needInt("index_n_heads"))
    .u32("attention.indexer.key_length", c.needInt("index_head_dim"))
    .u32("attention.indexer.top_k", c.needInt("index_topk"));
}
