/**
 * Kimi Linear (`kimi-linear`), blocks of delta attention between blocks of latent attention without RoPE; and Kimi K3
 * (`kimi-k3`), which adds gates on attention, experts in a latent space and learned residuals. Kimi K3.1 is K3 with an
 * indexer on the latent blocks. That is an ASSUMPTION: no configuration, tensor list or code of K3.1 is public, and the
 * architecture's name in a real file is not known; here it is `kimi-k3`, with the indexer's keys and tensors.
 * @module
 */
import { ModelError } from "../../../core/errors.ts";
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import type { Keys } from "../keys.ts";
import type { Rules } from "../rules.ts";
import { bytesOf, f32Of } from "../dtype.ts";
import { f32View, sizeOf, type View } from "../view.ts";
import { latentNormKey } from "./deepseek.ts";
import { kdaRules } from "./kda.ts";
import { denseRules, normRules, trunkRules } from "./llama.ts";
import { indexerKeys, indexerRules, mlaRules } from "./mla.ts";
import { type ExpertOptions, expertRules, routerRules, sharedExpertRules, W123 } from "./moe.ts";

const MOE = "model.layers.{il}.block_sparse_moe";

/** Whether a block has latent attention; the configuration counts blocks from 1. */
function fullAttention(c: Config): (il: number) => boolean {
  const full = c.part("linear_attn_config").nums("full_attn_layers") ?? [];
  return (il) => full.includes(il + 1);
}

/** Everything but the delta attention; experts may work in a width of their own. */
function bodyRules(r: Rules, c: Config, experts: ExpertOptions = {}): void {
  trunkRules(r, c);
  normRules(r, c);
  mlaRules(r, c, fullAttention(c));
  const dense = c.int("first_k_dense_replace") ?? 0;
  denseRules(r, c, (il) => il < dense);
  const options = {
    blocks: (il: number) => il >= dense,
    at: MOE,
    names: W123,
    order: ["gate", "down", "up"] as const,
    ...experts,
  };
  routerRules(r, c, options);
  expertRules(r, c, options);
  const n_ff = c.needInt("moe_intermediate_size") * (c.int("num_shared_experts") ?? 1);
  sharedExpertRules(r, c, "shared_experts", n_ff, options);
}

function bodyKeys(k: Keys, c: Config): void {
  const linear = c.part("linear_attn_config");
  const isFull = fullAttention(c);
  k.u32("vocab_size", c.needInt("vocab_size"))
    .i32s("attention.head_count_kv", Array.from({ length: c.n_layer }, (_, il) => isFull(il) ? 1 : 0))
    .u32("ssm.conv_kernel", linear.int("short_conv_kernel_size"))
    .u32("kda.head_dim", linear.int("head_dim"));
}

function latentKeys(k: Keys, c: Config): void {
  const rope = c.needInt("qk_rope_head_dim");
  const rank = c.needInt("kv_lora_rank");
  k.u32("attention.q_lora_rank", c.int("q_lora_rank"))
    .u32("attention.kv_lora_rank", rank)
    .u32("rope.dimension_count", rope)
    .u32("attention.key_length", rank + rope)
    .u32("attention.key_length_mla", c.needInt("qk_nope_head_dim") + rope)
    .u32("attention.value_length_mla", c.needInt("v_head_dim"));
}

/** Norms whose epsilon released code does not take from the configuration, where llama.cpp does. */
function epsilonKeys(k: Keys, c: Config): void {
  latentNormKey(k, c);
  if (c.num("rms_norm_eps") !== QK_EPSILON) k.f32("kda.qk_norm_epsilon", QK_EPSILON);
}
const QK_EPSILON = 1e-6;

function expertKeys(k: Keys, c: Config): void {
  k.u32("expert_feed_forward_length", c.needInt("moe_intermediate_size"))
    .u32("expert_shared_count", c.needInt("num_shared_experts"))
    .u32("leading_dense_block_count", c.needInt("first_k_dense_replace"))
    .f32("expert_weights_scale", c.needNum("routed_scaling_factor"));
}

export const KIMI_LINEAR: Family = {
  classes: ["KimiLinearForCausalLM", "KimiLinearModel"],
  arch: "kimi-linear",
  rules(r, c) {
    const isFull = fullAttention(c);
    bodyRules(r, c);
    kdaRules(r, c, (il) => !isFull(il), "matrix");
  },
  keys(k, c) {
    bodyKeys(k, c);
    latentKeys(k, c);
    expertKeys(k, c);
    epsilonKeys(k, c);
  },
};

/**
 * Element by element, in f32.
 * @throws {ModelError} `model.tensor_shape`
 */
function product(a: View, b: View): View {
  if (sizeOf(a.shape) !== sizeOf(b.shape)) {
    throw new ModelError(
      "model.tensor_shape",
      `Cannot multiply tensors "${a.from}" [${a.shape.join(", ")}] and "${b.from}" [${b.shape.join(", ")}]: ` +
        "they have different numbers of elements",
      { at: { tensors: [a.from, b.from], got: [a.shape, b.shape] } },
    );
  }
  const [x, y] = [f32View(a), f32View(b)];
  return {
    dtype: "F32",
    shape: [sizeOf(a.shape)],
    from: `${a.from} and ${b.from}`,
    read(start, count) {
      const out = f32Of(x.read(start, count)).slice();
      f32Of(y.read(start, count)).forEach((v, i) => out[i] *= v);
      return bytesOf(out);
    },
  };
}

/** ASSUMPTION: K3.1's configuration names its indexer as DeepSeek's do. */
const hasIndexer = (c: Config) => c.has("index_n_heads");

export const KIMI_K3: Family = {
  classes: [
    "KimiK3ForConditionalGeneration",
    "KimiK3ForCausalLM",
    "KimiK31ForConditionalGeneration",
    "KimiK31ForCausalLM",
  ],
  arch: "kimi-k3",
  rules(r, c) {
    const isFull = fullAttention(c);
    const dense = c.int("first_k_dense_replace") ?? 0;
    const n_latent = c.needInt("routed_expert_hidden_size");
    const at = "model.layers.{il}";
    // Packed experts come before all other tensors of the file.
    const isPacked = c.object("quantization_config")?.["format"] === "mxfp4-pack-quantized";
    bodyRules(r, c, { n_in: n_latent, ...isPacked ? { fileOrder: () => 0 } : {} });
    kdaRules(r, c, (il) => !isFull(il), "vector", "full");
    if (hasIndexer(c)) indexerRules(r, c, isFull);
    r.split(`${at}.self_attn.g_proj.weight`, (view, il) => [
      { name: `blk.${il}.${isFull(il) ? "attn_gate" : "ssm_g"}.weight`, view },
    ]);
    const blocks = (il: number) => il >= dense;
    r.weight(`${MOE}.routed_expert_down_proj`, "blk.{il}.ffn_routed_down", { shape: [n_latent, c.n_embd], blocks })
      .weight(`${MOE}.routed_expert_up_proj`, "blk.{il}.ffn_routed_up", { shape: [c.n_embd, n_latent], blocks })
      .weight(`${MOE}.routed_expert_norm`, "blk.{il}.ffn_routed_norm", { shape: [n_latent], blocks });
    // The score of a residual is a norm's weight times a projection.
    const score = (from: string, to: (il: number) => string) =>
      r.gather([`${from}_norm.weight`, `${from}_proj.weight`], ([norm, proj], il) => [
        { name: to(il), view: product(norm, proj) },
      ]);
    score(`${at}.self_attention_res`, (il) => `blk.${il}.attn_res_score.weight`);
    score(`${at}.mlp_res`, (il) => `blk.${il}.ffn_res_score.weight`);
    score("model.output_attn_res", () => "output_res_score.weight");
  },
  keys(k, c) {
    const linear = c.part("linear_attn_config");
    bodyKeys(k, c);
    k.f32("kda.gate_lower_bound", linear.num("gate_lower_bound"));
    latentKeys(k, c);
    k.u32("attention.value_length", c.needInt("kv_lora_rank"));
    expertKeys(k, c);
    k.bool("expert_weights_norm", c.bool("moe_renormalize", true))
      .u32("expert_latent_length", c.needInt("routed_expert_hidden_size"))
      .f32("activation.situ_beta", c.needNum("activation_situ_beta"))
      .f32("activation.situ_linear_beta", c.needNum("activation_situ_linear_beta"))
      .u32("attn_res.block_size", c.needInt("attn_res_block_size"));
    if (hasIndexer(c)) indexerKeys(k, c);
    epsilonKeys(k, c);
  },
};
