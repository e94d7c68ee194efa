/**
 * Mistral 3 (`mistral3`) and Mistral 4 (`mistral4`, latent attention) in the layout of the Hugging Face hub, and Mistral
 * Large 3 in Mistral's own (`deepseek2`).
 * @module
 */
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import { deepseekBodyRules, deepseekDefaults, deepseekKeys, latentNormKey } from "./deepseek.ts";
import { LLAMA, normRules, trunkRules } from "./llama.ts";
import { mlaRules } from "./mla.ts";
import { hubName, MISTRAL_LARGE3_CLASS } from "../mistral_params.ts";
import { routerRules, sharedExpertRules, stackedExpertRules } from "./moe.ts";

const CLASSES = ["Mistral3ForConditionalGeneration", "Ministral3ForCausalLM"];
const isMistral4 = (c: Config) => c.raw("model_type") === "mistral4";

export const MISTRAL3: Family = {
  ...LLAMA,
  classes: CLASSES,
  accepts: (c) => !isMistral4(c),
  arch: "mistral3",
  keys(k, c, ...rest) {
    LLAMA.keys?.(k, c, ...rest);
    if (c.raw("model_type") !== "ministral3") return;
    const num = (name: string) => typeof c.rope[name] === "number" ? c.rope[name] as number : undefined;
    k.f32("rope.scaling.yarn_log_multiplier", num("mscale_all_dim"))
      .f32("attention.temperature_scale", num("llama_4_scaling_beta"));
  },
};

export const MISTRAL4: Family = {
  classes: CLASSES,
  accepts: isMistral4,
  arch: "mistral4",
  defaults: deepseekDefaults,
  rules(r, c) {
    const dense = c.int("first_k_dense_replace") ?? 0;
    if (dense > 0) return deepseekBodyRules(r, c);
    trunkRules(r, c);
    normRules(r, c);
    mlaRules(r, c);
    routerRules(r, c);
    stackedExpertRules(r, c, { fused: true });
    const n_ff = c.needInt("moe_intermediate_size") * (c.int("n_shared_experts") ?? 1);
    sharedExpertRules(r, c, "shared_experts", n_ff);
  },
  keys(k, c) {
    deepseekKeys(k, c);
    latentNormKey(k, c);
    // llama.cpp's converter loses these two, and its graph then does not scale queries by their position.
    const scale = c.rope["llama_4_scaling_beta"];
    if (typeof scale !== "number") return;
    k.f32("attention.temperature_scale", scale)
      .u32("attention.temperature_length", c.rope.original_max_position_embeddings);
  },
};

/** Mistral Large 3. RoPE settings have names of their own, and come last in the file. */
export const MISTRAL_LARGE3: Family = {
  classes: [MISTRAL_LARGE3_CLASS],
  arch: "deepseek2",
  rename: hubName,
  rules(r, c) {
    deepseekBodyRules(r, c);
    mlaRules(r, c);
  },
  keys(k, c) {
    deepseekKeys(k, c);
    if (!c.has("yarn")) return;
    const yarn = c.part("yarn");
    const n_original = yarn.needInt("original_max_position_embeddings");
    k.str("rope.scaling.type", "yarn")
      .f32("rope.scaling.factor", yarn.needNum("factor"))
      .f32("rope.scaling.yarn_beta_fast", yarn.needNum("beta"))
      .f32("rope.scaling.yarn_beta_slow", yarn.needNum("alpha"))
      .f32("rope.scaling.yarn_log_multiplier", 0.1)
      .u32("rope.scaling.original_context_length", n_original);
    if (!c.has("llama_4_scaling")) return;
    const temperature = c.part("llama_4_scaling");
    k.f32("attention.temperature_scale", temperature.needNum("beta"))
      .u32("attention.temperature_length", temperature.int("original_max_position_embeddings") ?? n_original);
  },
};
