/**
 * Gemma 3n (`gemma3n`) and Gemma 4, text (`gemma4`): an embedding per layer beside the usual one. Their norms are stored as
 * they are used.
 * @module
 */
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import type { Output, Rules } from "../rules.ts";
import { constant, reshape } from "../view.ts";
import { denseRules } from "./llama.ts";

const AT = "model.layers.{il}";

/** Tensors of a block by name, norms and projections of the embedding per layer. */
function layerRules(r: Rules, c: Config): void {
  const norm = { shape: [c.n_embd] };
  r.weight("model.embed_tokens", "token_embd")
    .weight("model.norm", "output_norm", norm)
    .drop("lm_head.weight") // always the embeddings again
    .weight(`${AT}.input_layernorm`, "blk.{il}.attn_norm", norm)
    .weight(`${AT}.post_attention_layernorm`, "blk.{il}.post_attention_norm", norm)
    .weight(`${AT}.pre_feedforward_layernorm`, "blk.{il}.ffn_norm", norm)
    .weight(`${AT}.post_feedforward_layernorm`, "blk.{il}.post_ffw_norm", norm);
  const n = c.int("hidden_size_per_layer_input") ?? 0;
  if (n === 0) return;
  r.weight("model.embed_tokens_per_layer", "per_layer_token_embd")
    .weight("model.per_layer_model_projection", "per_layer_model_proj", { shape: [c.n_layer * n, c.n_embd] })
    .weight("model.per_layer_projection_norm", "per_layer_proj_norm", { shape: [n] })
    .weight(`${AT}.per_layer_input_gate`, "blk.{il}.inp_gate", { shape: [n, c.n_embd] })
    .weight(`${AT}.per_layer_projection`, "blk.{il}.proj", { shape: [c.n_embd, n] })
    .weight(`${AT}.post_per_layer_input_norm`, "blk.{il}.post_norm", norm);
}

const windows = (c: Config) => (c.strs("layer_types") ?? []).map((type) => type === "sliding_attention");

/** A list by block, or one number for all. */
function widths(c: Config): number[] {
  return Array.isArray(c.raw("intermediate_size"))
    ? c.nums("intermediate_size")!
    : new Array<number>(c.n_layer).fill(c.needInt("intermediate_size"));
}

/**
 * Quantile of the normal distribution, by bisection on its series. llama.cpp's converter takes PyTorch's in f32, which is
 * 2.4e-7 off at the 0.95 of the releases.
 */
function normalQuantile(p: number): number {
  const density = (x: number) => Math.exp(-x * x / 2) / Math.sqrt(2 * Math.PI);
  const below = (x: number) => {
    let sum = x, term = x;
    for (let i = 3; Math.abs(term) > 1e-17 * Math.abs(sum); i += 2) sum += term *= x * x / i;
    return 0.5 + density(x) * sum;
  };
  let [low, high] = [-8, 8];
  for (let i = 0; i < 100; i++) {
    const middle = (low + high) / 2;
    if (below(middle) < p) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

export const GEMMA3N: Family = {
  classes: ["Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"],
  arch: "gemma3n",
  rules(r, c) {
    const { n_embd, n_head, n_head_kv, head_dim } = c;
    layerRules(r, c);
    const n_stream = c.needSize("altup_num_inputs", 64);
    for (
      const [from, to] of [["altup_projections", "altup_proj"], ["altup_unembed_projections", "altup_unembd_proj"]]
    ) {
      r.experts(`model.${from}.{e}.{w}`, n_stream - 1, [["weight", `${to}.weight`, [n_embd, n_embd]]]);
    }
    r.exact(`${AT}.altup.correct_output_scale`, "blk.{il}.altup_correct_scale.weight", { shape: [n_embd] })
      .weight(`${AT}.altup.correction_coefs`, "blk.{il}.altup_correct_coef", { shape: [n_stream, n_stream] })
      .weight(`${AT}.altup.prediction_coefs`, "blk.{il}.altup_predict_coef", { shape: [n_stream ** 2, n_stream] })
      .weight(`${AT}.altup.modality_router`, "blk.{il}.altup_router", { shape: [n_stream, n_embd] })
      .weight(`${AT}.altup.router_norm`, "blk.{il}.altup_router_norm", { shape: [n_embd] })
      .weight(`${AT}.laurel.linear_left`, "blk.{il}.laurel_l")
      .weight(`${AT}.laurel.linear_right`, "blk.{il}.laurel_r")
      .weight(`${AT}.laurel.post_laurel_norm`, "blk.{il}.laurel_post_norm", { shape: [n_embd] });
    const at = `${AT}.self_attn`;
    r.weight(`${at}.q_proj`, "blk.{il}.attn_q", { shape: [n_head * head_dim, n_embd] })
      .weight(`${at}.k_proj`, "blk.{il}.attn_k", { shape: [n_head_kv * head_dim, n_embd] })
      .weight(`${at}.v_proj`, "blk.{il}.attn_v", { shape: [n_head_kv * head_dim, n_embd] })
      .weight(`${at}.o_proj`, "blk.{il}.attn_output", { shape: [n_embd, n_head * head_dim] })
      .weight(`${at}.q_norm`, "blk.{il}.attn_q_norm", { shape: [head_dim] })
      .weight(`${at}.k_norm`, "blk.{il}.attn_k_norm", { shape: [head_dim] });
    for (const [w, to] of [["gate_proj", "gate"], ["up_proj", "up"], ["down_proj", "down"]]) {
      r.weight(`${AT}.mlp.${w}`, `blk.{il}.ffn_${to}`);
    }
  },
  keys(k, c) {
    const sparsity = c.nums("activation_sparsity_pattern") ?? new Array<number>(c.n_layer).fill(0);
    k.f32("final_logit_softcapping", c.num("final_logit_softcapping"))
      .u32("attention.sliding_window", c.needInt("sliding_window"))
      .u32("altup.active_idx", c.needInt("altup_active_idx"))
      .u32("altup.num_inputs", c.needInt("altup_num_inputs"))
      .u32("embedding_length_per_layer_input", c.needInt("hidden_size_per_layer_input"))
      .u32("attention.shared_kv_layers", c.needInt("num_kv_shared_layers"))
      .f32s("activation_sparsity_scale", sparsity.map((p) => p > 0 ? normalQuantile(p) : 0))
      .bools("attention.sliding_window_pattern", windows(c));
  },
};

/** Blocks share keys and values with earlier ones from here on. */
const firstShared = (c: Config) => c.n_layer - (c.int("num_kv_shared_layers") ?? 0);

/** Width of each block's feed-forward: blocks without keys of their own may have twice as much. */
function gemma4Widths(c: Config): number[] {
  const wide = c.bool("use_double_wide_mlp", false);
  return widths(c).map((n, il) => wide && il >= firstShared(c) ? 2 * n : n);
}

const hasExperts = (c: Config) => c.bool("enable_moe_block", false);

function expertRules(r: Rules, c: Config): void {
  const n_expert = c.n_expert ?? 0;
  const n_ff = c.needSize("moe_intermediate_size");
  const { n_embd } = c;
  const norm = { shape: [n_embd] };
  r.weight(`${AT}.post_feedforward_layernorm_1`, "blk.{il}.post_ffw_norm_1", norm)
    .weight(`${AT}.post_feedforward_layernorm_2`, "blk.{il}.post_ffw_norm_2", norm)
    .weight(`${AT}.pre_feedforward_layernorm_2`, "blk.{il}.pre_ffw_norm_2", norm)
    .exact(`${AT}.router.scale`, "blk.{il}.ffn_gate_inp.scale", { shape: [n_embd] })
    .exact(`${AT}.router.per_expert_scale`, "blk.{il}.ffn_down_exps.scale", { shape: [n_expert] })
    .weight(`${AT}.router.proj`, "blk.{il}.ffn_gate_inp", { shape: [n_expert, n_embd] })
    .exact(`${AT}.experts.down_proj`, "blk.{il}.ffn_down_exps.weight", { shape: [n_expert, n_embd, n_ff] })
    .exact(`${AT}.experts.gate_up_proj`, "blk.{il}.ffn_gate_up_exps.weight", { shape: [n_expert, 2 * n_ff, n_embd] });
}

export const GEMMA4: Family = {
  classes: ["Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"],
  arch: "gemma4",
  rules(r, c) {
    layerRules(r, c);
    r.exact(`${AT}.layer_scalar`, "blk.{il}.layer_output_scale.weight", { map: (v) => reshape(v, [1]) });
    const at = `${AT}.self_attn`;
    const sliding = windows(c);
    const own = (il: number) => il < firstShared(c);
    const sameKV = c.bool("attention_k_eq_v", false); // full blocks take keys as values
    r.weight(`${at}.q_proj`, "blk.{il}.attn_q")
      .weight(`${at}.q_norm`, "blk.{il}.attn_q_norm")
      .weight(`${at}.k_proj`, "blk.{il}.attn_k", { blocks: own })
      .weight(`${at}.k_norm`, "blk.{il}.attn_k_norm", { blocks: own })
      .weight(`${at}.v_proj`, "blk.{il}.attn_v", { blocks: (il) => own(il) && (!sameKV || sliding[il]) })
      .weight(`${at}.o_proj`, "blk.{il}.attn_output");
    const n_ff = gemma4Widths(c);
    if (new Set(n_ff).size === 1) denseRules(r, c);
    else for (const w of ["gate", "up", "down"]) r.weight(`${AT}.mlp.${w}_proj`, `blk.{il}.ffn_${w}`);
    if (hasExperts(c)) expertRules(r, c);
  },
  keys(k, c) {
    const full = c.int("global_head_dim") ?? c.head_dim;
    const n_ff = gemma4Widths(c);
    const sliding = windows(c);
    if (new Set(n_ff).size > 1) k.i32s("feed_forward_length", n_ff);
    const n_global = c.int("num_global_key_value_heads");
    if (n_global !== undefined && n_global !== c.n_head_kv) {
      k.i32s("attention.head_count_kv", sliding.map((isWindow) => isWindow ? c.n_head_kv : n_global));
    }
    k.u32("attention.key_length", full)
      .u32("attention.value_length", full)
      .f32("final_logit_softcapping", c.num("final_logit_softcapping"))
      .u32("attention.sliding_window", c.needInt("sliding_window"))
      .u32("attention.shared_kv_layers", c.int("num_kv_shared_layers") ?? 0)
      .u32("embedding_length_per_layer_input", c.int("hidden_size_per_layer_input") ?? 0)
      .bools("attention.sliding_window_pattern", sliding)
      .u32("attention.key_length_swa", c.head_dim)
      .u32("attention.value_length_swa", c.head_dim)
      .u32("expert_feed_forward_length", hasExperts(c) ? c.needInt("moe_intermediate_size") : undefined)
      .u32("rope.dimension_count", full)
      .u32("rope.dimension_count_swa", c.head_dim);
  },
  extra: fullFactors,
};

/** Divisors of RoPE angles in full blocks: a part of each head rotates, the rest gets divisors that stop it. */
function fullFactors(c: Config): Output[] {
  const full = c.rope["full_attention"] as { rope_type?: unknown; partial_rotary_factor?: unknown } | undefined;
  if (full?.rope_type !== "proportional" || typeof full.partial_rotary_factor !== "number") return [];
  const half = (c.int("global_head_dim") ?? c.head_dim) / 2;
  const n = Math.trunc(full.partial_rotary_factor * half);
  const factors = Float32Array.from({ length: half }, (_, i) => i < n ? 1 : 1e30);
  return [{ name: "rope_freqs.weight", view: constant("rope_freqs", factors) }];
}
