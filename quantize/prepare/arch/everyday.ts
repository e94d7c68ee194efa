/**
 * Dense decoders that differ from Llama in little: SmolLM 3 (`smollm3`), Seed-OSS (`seed_oss`), Phi 3 (`phi3`), StableLM
 * (`stablelm`), StarCoder 2 (`starcoder2`), Nemotron (`nemotron`), Command R7B (`cohere2`); and dots.llm1 (`dots1`).
 * @module
 */
import { ModelError } from "../../../core/errors.ts";
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import type { Output, Rules } from "../rules.ts";
import { constant } from "../view.ts";
import { leadingDense } from "./deepseek.ts";
import { plusOne } from "./gemma.ts";
import { attentionRules, denseRules, fusedDenseRules, LLAMA, normRules, trunkRules } from "./llama.ts";
import { expertRules, routerRules, sharedExpertRules } from "./moe.ts";
import { headNormRules } from "./qwen.ts";

const AT = "model.layers.{il}";

/** Every fourth block has no RoPE; the architecture implies it. */
export const SMOLLM3: Family = {
  classes: ["SmolLM3ForCausalLM"],
  arch: "smollm3",
  rules: (r, c, options, facts) => LLAMA.rules(r, c, options, facts),
  keys: (k, c) => void k.u32("vocab_size", c.needInt("vocab_size")).u32("rope.dimension_count", c.head_dim),
};

export const SEED_OSS: Family = {
  classes: ["SeedOssForCausalLM"],
  arch: "seed_oss",
  rules(r, c) {
    trunkRules(r, c);
    normRules(r, c, "post_attention_norm");
    attentionRules(r, c, false);
    denseRules(r, c);
  },
};

/** Divisors of RoPE angles for long and for short contexts. */
function longFactors(c: Config): Output[] {
  const { rope } = c;
  if (rope.rope_type !== "longrope" && rope.rope_type !== "su") return [];
  const n = Math.trunc(c.head_dim * (rope.partial_rotary_factor ?? 1)) / 2;
  return ["long", "short"].map((kind) => {
    const list = rope[`${kind}_factor`];
    if (!Array.isArray(list) || list.length !== n || list.some((x) => typeof x !== "number")) {
      throw new ModelError(
        "model.config",
        `Cannot use field "${kind}_factor" of ${c.file}: expected a list of ${n} numbers`,
        {
          at: { file: c.file, field: `${kind}_factor`, got: list ?? null },
        },
      );
    }
    return { name: `rope_factors_${kind}.weight`, view: constant(`rope_factors_${kind}`, Float32Array.from(list)) };
  });
}

export const PHI3: Family = {
  classes: ["Phi3ForCausalLM"],
  arch: "phi3",
  rules(r, c) {
    const { n_embd, n_head, n_head_kv, head_dim } = c;
    trunkRules(r, c);
    normRules(r, c);
    r.weight(`${AT}.self_attn.qkv_proj`, "blk.{il}.attn_qkv", { shape: [(n_head + 2 * n_head_kv) * head_dim, n_embd] })
      .weight(`${AT}.self_attn.o_proj`, "blk.{il}.attn_output", { shape: [n_embd, n_head * head_dim] });
    fusedDenseRules(r, c);
  },
  keys(k, c) {
    const n_original = c.rope.original_max_position_embeddings ?? c.int("original_max_position_embeddings");
    const rope = Math.trunc(c.head_dim * (c.rope.partial_rotary_factor ?? 1));
    k.u32("rope.scaling.original_context_length", n_original)
      .u32("rope.dimension_count", rope)
      .u32("attention.sliding_window", c.int("sliding_window") ?? 0);
    const n_ctx = c.needInt("max_position_embeddings");
    const isLong = longFactors(c).length > 0 && n_original !== undefined;
    const stretch = isLong && n_ctx > n_original
      ? Math.sqrt(1 + Math.log(n_ctx / n_original) / Math.log(n_original))
      : 1;
    k.f32("rope.scaling.attn_factor", isLong ? stretch : undefined);
    k.inOrder([
      "context_length",
      "rope.scaling.original_context_length",
      "embedding_length",
      "feed_forward_length",
      "block_count",
      "attention.head_count",
      "attention.head_count_kv",
      "attention.layer_norm_rms_epsilon",
      "rope.dimension_count",
      "rope.freq_base",
      "general.file_type",
      "attention.sliding_window",
      "rope.scaling.attn_factor",
    ]);
  },
  extra: longFactors,
};

/** Layer norms with biases where Llama has RMS norms. */
function layerNormRules(r: Rules, c: Config): void {
  const shape = [c.n_embd];
  r.exact("model.norm.bias", "output_norm.bias", { shape })
    .exact(`${AT}.input_layernorm.bias`, "blk.{il}.attn_norm.bias", { shape })
    .exact(`${AT}.post_attention_layernorm.bias`, "blk.{il}.ffn_norm.bias", { shape, optional: true });
}

export const STABLELM: Family = {
  classes: ["StableLmForCausalLM", "StableLMEpochForCausalLM", "LlavaStableLMEpochForCausalLM"],
  arch: "stablelm",
  accepts: (c) => !c.bool("qk_layernorm", false), // norms per head, stored one by one
  rules(r, c) {
    trunkRules(r, c);
    normRules(r, c);
    layerNormRules(r, c);
    attentionRules(r, c, false);
    denseRules(r, c);
  },
  keys(k, c) {
    const part = c.rope.partial_rotary_factor ?? c.num("rope_pct") ?? 0.25;
    k.u32("rope.dimension_count", Math.trunc(part * (c.n_embd / c.n_head)))
      .bool("use_parallel_residual", c.bool("use_parallel_residual", true))
      .f32("attention.layer_norm_epsilon", c.needNum(["layer_norm_eps", "norm_eps"]))
      .inOrder([
        "context_length",
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "rope.dimension_count",
        "attention.head_count",
        "attention.head_count_kv",
        "use_parallel_residual",
        "attention.layer_norm_epsilon",
        "general.file_type",
      ]);
  },
};

export const STARCODER2: Family = {
  classes: ["Starcoder2ForCausalLM"],
  arch: "starcoder2",
  rules(r, c) {
    const n_ff = c.needSize("intermediate_size");
    trunkRules(r, c);
    normRules(r, c);
    layerNormRules(r, c);
    attentionRules(r, c, false);
    r.linear(`${AT}.mlp.c_fc`, "blk.{il}.ffn_up", { shape: [n_ff, c.n_embd] })
      .linear(`${AT}.mlp.c_proj`, "blk.{il}.ffn_down", { shape: [c.n_embd, n_ff] });
  },
  // llama.cpp has no window for this family.
  keys: (k, c) => k.u32("attention.sliding_window", c.int("sliding_window")),
};

/** Norms are stored around zero and written with 1 added. */
export const NEMOTRON: Family = {
  classes: ["NemotronForCausalLM"],
  arch: "nemotron",
  rules(r, c) {
    const n_ff = c.needSize("intermediate_size");
    const norm = { shape: [c.n_embd], map: plusOne };
    trunkRules(r, c);
    layerNormRules(r, c);
    r.weight("model.norm", "output_norm", norm)
      .weight(`${AT}.input_layernorm`, "blk.{il}.attn_norm", norm)
      .weight(`${AT}.post_attention_layernorm`, "blk.{il}.ffn_norm", norm);
    attentionRules(r, c, false);
    r.linear(`${AT}.mlp.up_proj`, "blk.{il}.ffn_up", { shape: [n_ff, c.n_embd] })
      .linear(`${AT}.mlp.down_proj`, "blk.{il}.ffn_down", { shape: [c.n_embd, n_ff] });
  },
  keys(k, c) {
    const part = c.rope.partial_rotary_factor ?? c.num("rope_percent") ?? 0.5;
    k.u32("vocab_size", c.needInt("vocab_size"))
      .f32(
        "attention.layer_norm_epsilon",
        c.needNum(["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"]),
      )
      .u32("rope.dimension_count", Math.trunc(part * c.n_embd / c.n_head))
      .str("rope.scaling.type", c.rope.factor === undefined ? "none" : "linear")
      .f32("rope.scaling.factor", c.rope.factor);
  },
};

export const COHERE2: Family = {
  classes: ["Cohere2ForCausalLM"],
  arch: "cohere2",
  rules(r, c) {
    trunkRules(r, c);
    r.forget("lm_head.weight").drop("lm_head.weight") // always the embeddings again
      .weight(`${AT}.input_layernorm`, "blk.{il}.attn_norm", { shape: [c.n_embd] });
    attentionRules(r, c, false);
    denseRules(r, c);
  },
  keys(k, c) {
    k.f32("logit_scale", c.needNum("logit_scale"))
      .u32("attention.sliding_window", c.needInt("sliding_window"))
      .u32("vocab_size", c.needInt("vocab_size"))
      .u32("rope.dimension_count", Math.trunc((c.num("rotary_pct") ?? 1) * (c.n_embd / c.n_head)))
      .str("rope.scaling.type", "none");
  },
};

export const DOTS1: Family = {
  classes: ["Dots1ForCausalLM"],
  arch: "dots1",
  rules(r, c) {
    const dense = leadingDense(c);
    const blocks = (il: number) => il >= dense;
    trunkRules(r, c);
    normRules(r, c);
    attentionRules(r, c, false);
    headNormRules(r, c);
    denseRules(r, c, (il) => il < dense);
    routerRules(r, c, { blocks });
    expertRules(r, c, { blocks });
    const n_ff = c.needInt("moe_intermediate_size") * (c.int("n_shared_experts") ?? 1);
    sharedExpertRules(r, c, "shared_experts", n_ff, { blocks });
  },
  keys(k, c) {
    k.u32("expert_feed_forward_length", c.needInt("moe_intermediate_size"))
      .u32("leading_dense_block_count", c.needInt("first_k_dense_replace"))
      .u32("expert_shared_count", c.int("n_shared_experts"))
      .f32("expert_weights_scale", c.num("routed_scaling_factor"))
      .bool("expert_weights_norm", c.bool("norm_topk_prob", false));
  },
};
