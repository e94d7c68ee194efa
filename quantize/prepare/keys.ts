/**
 * The keys every architecture has, in the order in which llama.cpp's converter writes them, so that files are equal to the
 * byte.
 * @module
 */
import { ModelError } from "../../core/errors.ts";
import { ggufValue, type Metadata } from "../../core/gguf/metadata.ts";
import type { Config, RopeParameters } from "./config.ts";

/** Writes keys under the architecture's prefix; a value that is undefined is left out. */
export class Keys {
  constructor(readonly metadata: Metadata, readonly arch: string) {}

  #name(key: string): string {
    return `${this.arch}.${key}`;
  }
  u32(key: string, value: number | undefined): this {
    if (value !== undefined) this.metadata.set(this.#name(key), ggufValue.u32(value));
    return this;
  }
  f32(key: string, value: number | undefined): this {
    if (value !== undefined) this.metadata.set(this.#name(key), ggufValue.f32(value));
    return this;
  }
  bool(key: string, value: boolean | undefined): this {
    if (value !== undefined) this.metadata.set(this.#name(key), ggufValue.bool(value));
    return this;
  }
  str(key: string, value: string | undefined): this {
    if (value !== undefined) this.metadata.set(this.#name(key), ggufValue.str(value));
    return this;
  }
  i32s(key: string, values: readonly number[]): this {
    this.metadata.set(this.#name(key), ggufValue.i32s(values));
    return this;
  }
  strs(key: string, values: readonly string[]): this {
    this.metadata.set(this.#name(key), ggufValue.strs(values));
    return this;
  }
  f32s(key: string, values: readonly number[]): this {
    this.metadata.set(this.#name(key), ggufValue.f32s(values));
    return this;
  }
  bools(key: string, values: readonly boolean[]): this {
    this.metadata.set(this.#name(key), ggufValue.bools(values));
    return this;
  }
  /** Takes keys away. */
  remove(...keys: string[]): this {
    for (const key of keys) this.metadata.remove(this.#name(key));
    return this;
  }
  /** Puts the keys of the architecture and `general.file_type` in this order; others of the architecture are removed. */
  inOrder(keys: readonly string[]): this {
    const full = keys.map((key) => key.startsWith("general.") ? key : this.#name(key));
    const values = full.map((key) => this.metadata.get(key));
    for (const key of [...this.metadata.keys()]) {
      if (key.startsWith(`${this.arch}.`) || full.includes(key)) this.metadata.remove(key);
    }
    full.forEach((key, i) => values[i] && this.metadata.set(key, values[i]));
    return this;
  }
  u64s(key: string, values: readonly bigint[]): this {
    this.metadata.set(this.#name(key), { type: "array", elem: "u64", value: BigUint64Array.from(values) });
    return this;
  }
}

/** How a router turns its scores into probabilities. */
export const GATING = { softmax: 1, sigmoid: 2, sqrtsoftplus: 4 } as const;

function ropeScaling(k: Keys, rope: RopeParameters, c: Config): void {
  const type = rope.rope_type;
  if (type === "linear" && rope.factor !== undefined) {
    k.str("rope.scaling.type", "linear").f32("rope.scaling.factor", rope.factor);
  } else if (type === "yarn" && rope.factor !== undefined) {
    const original = rope.original_max_position_embeddings;
    if (original === undefined) {
      throw new ModelError(
        "model.config",
        `Cannot use the RoPE settings of ${c.file}: yarn without original_max_position_embeddings`,
        { at: { file: c.file, field: "original_max_position_embeddings" } },
      );
    }
    const num = (...names: string[]) => names.map((n) => rope[n]).find((v): v is number => typeof v === "number");
    k.str("rope.scaling.type", "yarn")
      .f32("rope.scaling.factor", rope.factor)
      .u32("rope.scaling.original_context_length", original)
      .bool("rope.scaling.yarn_truncate", typeof rope["truncate"] === "boolean" ? rope["truncate"] : undefined)
      .f32("rope.scaling.yarn_ext_factor", num("extrapolation_factor"))
      .f32("rope.scaling.yarn_attn_factor", num("attention_factor", "attn_factor"))
      .f32("rope.scaling.yarn_beta_fast", num("beta_fast"))
      .f32("rope.scaling.yarn_beta_slow", num("beta_slow"));
  } else if (type === "su" || type === "longrope") {
    k.str("rope.scaling.type", "longrope");
  }
}

/**
 * Block count to `general.file_type`. Keys that a family computes differently it sets again afterwards, in place.
 *
 * @param n_block Blocks of the file, draft blocks included.
 */
export function commonKeys(k: Keys, c: Config, n_block: number, fileType: number): void {
  k.u32("block_count", n_block)
    .u32(
      "context_length",
      c.int([
        "max_position_embeddings",
        "n_ctx",
        "n_positions",
        "max_length",
        "max_sequence_length",
        "model_max_length",
      ]),
    )
    .u32("embedding_length", c.int(["hidden_size", "n_embd", "dim"]));
  if (Array.isArray(c.raw("intermediate_size"))) k.i32s("feed_forward_length", c.nums("intermediate_size")!); // by block
  else k.u32("feed_forward_length", c.n_ff);
  k
    .u32("attention.head_count", c.int(["num_attention_heads", "n_head", "n_heads"]))
    .u32("attention.head_count_kv", c.int(["num_key_value_heads", "n_kv_heads"]));
  if (c.raw("is_causal") === false) k.bool("attention.causal", false);

  const rope = c.rope;
  const full = (rope["full_attention"] ?? rope) as RopeParameters;
  ropeScaling(k, full, c);
  const sections = rope["mrope_section"];
  if (Array.isArray(sections)) k.i32s("rope.dimension_sections", [...sections, 0, 0, 0, 0].slice(0, 4));
  k.f32("rope.freq_base", full.rope_theta)
    .f32("rope.freq_base_swa", (rope["sliding_attention"] as RopeParameters | undefined)?.rope_theta)
    .f32("attention.layer_norm_rms_epsilon", c.num(["rms_norm_eps", "norm_eps"]))
    .f32("attention.layer_norm_epsilon", c.num(["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"]))
    .u32("expert_count", c.n_expert)
    .u32("expert_used_count", c.int(["num_experts_per_tok", "num_experts_per_token", "top_k_experts"]))
    .u32("expert_group_count", c.int("n_group"))
    .u32("expert_group_used_count", c.int("topk_group"));

  const scoring = c.str([
    "score_function",
    "scoring_func",
    "score_func",
    "moe_router_activation",
    "moe_router_activation_func",
    "expert_selection_fn",
    "router_score_func",
  ]);
  if (scoring !== undefined) {
    const id = GATING[scoring as keyof typeof GATING];
    if (id === undefined) {
      throw new ModelError("model.config", `Cannot use router score function "${scoring}" of ${c.file}`, {
        at: { file: c.file, got: scoring, expected: Object.keys(GATING) },
      });
    }
    k.u32("expert_gating_func", id);
  }
  const head_dim = c.int("head_dim");
  k.u32("attention.key_length", head_dim).u32("attention.value_length", head_dim);
  k.metadata.set("general.file_type", ggufValue.u32(fileType));
}
