/**
 * Llama 1 to 3, Mistral and Mixtral: `llama`. Rows of q and k are reordered within each head, because files pair
 * neighbouring elements for RoPE where checkpoints pair the halves of a head.
 * @module
 */
import type { Config, RopeParameters } from "../config.ts";
import type { Family } from "../family.ts";
import type { Rules } from "../rules.ts";
import { constant, pickRows, reshape, type View } from "../view.ts";

/** Rows of each head interleaved: row `2i + j` of a head is row `j * half + i` of the checkpoint's. Vectors too. */
export function permuteHeads(v: View, n_head: number): View {
  const rows = v.shape[0];
  const half = rows / n_head / 2;
  const matrix = v.shape.length === 1 ? reshape(v, [rows, 1]) : v;
  const picked = pickRows(matrix, matrix.shape, (r) => {
    const head = Math.floor(r / (2 * half));
    const i = r - head * 2 * half;
    return head * 2 * half + (i & 1) * half + (i >> 1);
  });
  return v.shape.length === 1 ? reshape(picked, v.shape) : picked;
}

/** Embeddings, final norm and head, under the names nearly all families use. */
export function trunkRules(r: Rules, c: Config): void {
  const n_vocab = c.int("vocab_size");
  const table = n_vocab === undefined ? undefined : [n_vocab, c.n_embd];
  r.weight("model.embed_tokens", "token_embd", { shape: table })
    .weight("model.norm", "output_norm", { shape: [c.n_embd] })
    .weight("lm_head", "output", { shape: table, optional: c.bool("tie_word_embeddings", false) });
}

/**
 * Query, key, value and output projections with their norms around.
 * @param permute Reorders rows of q and k.
 * @param blocks Blocks that have attention; all where left out.
 */
export function attentionRules(r: Rules, c: Config, permute: boolean, blocks?: (il: number) => boolean): void {
  const { n_embd, n_head, n_head_kv, head_dim } = c;
  const at = "model.layers.{il}.self_attn";
  const here = blocks ? { blocks } : {};
  const turn = (n: number) => permute ? { ...here, map: (v: View) => permuteHeads(v, n) } : here;
  r.linear(`${at}.q_proj`, "blk.{il}.attn_q", { shape: [n_head * head_dim, n_embd], ...turn(n_head) })
    .linear(`${at}.k_proj`, "blk.{il}.attn_k", { shape: [n_head_kv * head_dim, n_embd], ...turn(n_head_kv) })
    .linear(`${at}.v_proj`, "blk.{il}.attn_v", { shape: [n_head_kv * head_dim, n_embd], ...here })
    .linear(`${at}.o_proj`, "blk.{il}.attn_output", { shape: [n_embd, n_head * head_dim], ...here })
    .drop(`${at}.rotary_emb.inv_freq`, "model.rotary_emb.inv_freq");
}

/** Gate and up of a dense feed-forward in one tensor, and down; files call the pair `ffn_up`. */
export function fusedDenseRules(r: Rules, c: Config): void {
  const n_ff = c.needSize("intermediate_size");
  const at = "model.layers.{il}.mlp";
  r.weight(`${at}.gate_up_proj`, "blk.{il}.ffn_up", { shape: [2 * n_ff, c.n_embd] })
    .weight(`${at}.down_proj`, "blk.{il}.ffn_down", { shape: [c.n_embd, n_ff] });
}

/** The norms before attention and feed-forward. */
export function normRules(r: Rules, c: Config, ffnNorm = "ffn_norm"): void {
  r.weight("model.layers.{il}.input_layernorm", "blk.{il}.attn_norm", { shape: [c.n_embd] })
    .weight("model.layers.{il}.post_attention_layernorm", `blk.{il}.${ffnNorm}`, { shape: [c.n_embd] });
}

/** Gate, up and down of a dense feed-forward. */
export function denseRules(r: Rules, c: Config, blocks?: (il: number) => boolean): void {
  const n_ff = c.n_ff;
  const options = blocks ? { blocks } : {};
  const at = (w: string) => `model.layers.{il}.mlp.${w}`;
  const shape = (out: number | undefined, n: number | undefined) =>
    out === undefined || n === undefined ? undefined : [out, n];
  r.linear(at("gate_proj"), "blk.{il}.ffn_gate", { shape: shape(n_ff, c.n_embd), ...options })
    .linear(at("up_proj"), "blk.{il}.ffn_up", { shape: shape(n_ff, c.n_embd), ...options })
    .linear(at("down_proj"), "blk.{il}.ffn_down", { shape: shape(c.n_embd, n_ff), ...options });
}

/**
 * Divisors of the RoPE angles for `llama3` scaling, which has no keys in the format.
 * Source: transformers, rope_type `llama3`: long wavelengths are divided by `factor`, short ones kept, those between mixed.
 */
export function llama3Factors(rope: RopeParameters, head_dim: number): Float32Array | undefined {
  if (rope.rope_type?.toLowerCase() !== "llama3") return undefined;
  const num = (name: string, fallback: number) => typeof rope[name] === "number" ? rope[name] as number : fallback;
  const base = num("rope_theta", 10000);
  const factor = num("factor", 8);
  const low = num("low_freq_factor", 1);
  const high = num("high_freq_factor", 4);
  const original = num("original_max_position_embeddings", 8192);
  const out = new Float32Array(head_dim / 2);
  const f = Math.fround;
  for (let i = 0; i < out.length; i++) {
    // Released code computes in f32 and divides by multiplying with a reciprocal; the file keeps those very bits.
    const freq = f(1 / f(Math.pow(base, f((2 * i) / head_dim))));
    const wavelength = f(f(1 / freq) * f(2 * Math.PI));
    if (wavelength < original / high) out[i] = 1;
    else if (wavelength > original / low) out[i] = factor;
    else {
      const smooth = f(f(f(f(1 / wavelength) * original) - low) / (high - low));
      out[i] = f(1 / f(f(f(1 - smooth) / factor) + smooth));
    }
  }
  return out;
}

export const LLAMA: Family = {
  classes: [
    "LlamaForCausalLM",
    "LLaMAForCausalLM",
    "MistralForCausalLM",
    "MixtralForCausalLM",
  ],
  arch: "llama",
  // Mixtral's class leaves head_dim open; the others compute it.
  defaults: (c) => ({
    ...(c.raw("model_type") === "mixtral" ? {} : { head_dim: c.n_embd / c.n_head }),
    num_key_value_heads: c.raw("model_type") === "llama" ? c.n_head : 8,
  }),
  rules(r, c) {
    trunkRules(r, c);
    normRules(r, c);
    attentionRules(r, c, true);
    const n_expert = c.int("num_local_experts") === undefined ? undefined : c.n_expert;
    if (n_expert === undefined) return denseRules(r, c);
    const moe = "model.layers.{il}.block_sparse_moe";
    const n_ff = c.needInt("intermediate_size");
    r.weight(`${moe}.gate`, "blk.{il}.ffn_gate_inp", { shape: [n_expert, c.n_embd] })
      .experts(`${moe}.experts.{e}.{w}.weight`, n_expert, [
        ["w1", "blk.{il}.ffn_gate_exps.weight", [n_ff, c.n_embd]],
        ["w2", "blk.{il}.ffn_down_exps.weight", [c.n_embd, n_ff]],
        ["w3", "blk.{il}.ffn_up_exps.weight", [n_ff, c.n_embd]],
      ]);
  },
  keys(k, c) {
    k.u32("vocab_size", c.needInt("vocab_size")).u32("rope.dimension_count", c.head_dim);
    // llama.cpp's converter loses the window, and its graph of this architecture has none.
    k.u32("attention.sliding_window", c.int("sliding_window") || undefined);
  },
  extra(c) {
    const rope = c.rope;
    const factors = llama3Factors((rope["full_attention"] ?? rope) as RopeParameters, c.head_dim);
    return factors ? [{ name: "rope_freqs.weight", view: constant("rope_freqs", factors) }] : [];
  },
};
