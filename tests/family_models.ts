/**
 * A small random model of every architecture, made from its own code: a dry run of `build` names all the tensors it wants and
 * their shapes. `FAMILY_MODELS` holds what is left to say: hyper-parameters, and which of the optional tensors there are.
 * Long because it lists every architecture.
 * @module
 */
import { ModelError } from "../core/errors.ts";
import { architectureOf, type ModelFile } from "../core/arch/mod.ts";
import { Keys } from "../core/arch/keys.ts";
import { type GgufValue, Metadata } from "../core/gguf/metadata.ts";
import type { GgufTensor } from "../core/gguf/read.ts";
import { type GgmlType, ggmlType } from "../core/gguf/types.ts";
import { GgufWriter, type TensorInfo } from "../core/gguf/write.ts";
import type { Backend } from "../core/program/backend.ts";
import { Ops, USE } from "../core/program/program.ts";
import { random } from "./ops/case.ts";

/** A whole number becomes u32, an array of whole numbers i32; anything else says its type. */
type KeyValue = number | string | boolean | readonly number[] | readonly boolean[] | GgufValue;

export interface FamilyModel {
  readonly arch: string;
  /** `{arch}.*` besides `BASE`. */
  readonly keys: Readonly<Record<string, KeyValue>>;
  /** Keys of `BASE` that its files do not have. */
  readonly without?: readonly string[];
  /** Keys that have no prefix. */
  readonly root?: Readonly<Record<string, KeyValue>>;
  /** Optional tensors that the file has. */
  readonly with?: RegExp;
  /** Tensors no op asks for, f32. */
  readonly extra?: readonly { readonly name: string; readonly ne: readonly number[] }[];
  /** How a tensor is filled, where `fillOf` is not right: from a standard normal number. */
  readonly fill?: readonly (readonly [name: RegExp, fill: (z: number) => number])[];
  /** Tensors of whole numbers, which lie in [0, limit). */
  readonly ints?: readonly (readonly [name: RegExp, limit: number])[];
}

const f32 = (value: number): GgufValue => ({ type: "f32", value });

const floats = (...values: number[]): GgufValue => ({ type: "array", elem: "f32", value: Float32Array.from(values) });

export const N_VOCAB = 96;

const BASE: Readonly<Record<string, KeyValue>> = {
  context_length: 512,
  embedding_length: 64,
  block_count: 2,
  feed_forward_length: 96,
  "attention.head_count": 4,
  "attention.head_count_kv": 2,
  "attention.key_length": 32,
  "attention.value_length": 32,
  "attention.layer_norm_rms_epsilon": f32(1e-5),
  "rope.freq_base": f32(10000),
};

const EXPERTS = { expert_count: 6, expert_used_count: 2, expert_feed_forward_length: 32 };
/** Latent attention whose cache row of 64 + 32 numbers is whole blocks of q8_0. */
const LATENT = {
  "attention.head_count_kv": 1,
  "attention.q_lora_rank": 48,
  "attention.kv_lora_rank": 64,
  "attention.key_length": 96,
  "attention.value_length": 64,
  "attention.key_length_mla": 48,
  "attention.value_length_mla": 32,
  "rope.dimension_count": 32,
};
const INDEXER = {
  "attention.indexer.head_count": 3,
  "attention.indexer.key_length": 32,
  "attention.indexer.top_k": 24,
};
/** Routed as DeepSeek V3, behind one dense layer. */
const V3_EXPERTS = {
  ...EXPERTS,
  leading_dense_block_count: 1,
  expert_shared_count: 1,
  expert_gating_func: 2,
  expert_weights_norm: true,
  expert_weights_scale: f32(2.5),
};
const KDA = {
  block_count: 3,
  "attention.head_count_kv": [0, 1, 0],
  "ssm.conv_kernel": 4,
  "kda.head_dim": 16,
};
const GATED_DELTA = {
  block_count: 3,
  "ssm.conv_kernel": 4,
  "ssm.state_size": 16,
  "ssm.group_count": 2,
  "ssm.time_step_rank": 4,
  "ssm.inner_size": 64,
  full_attention_interval: 2,
  "rope.dimension_count": 8,
};
/** -e^A_log, about -1. */
const DECAY: [RegExp, (z: number) => number] = [/ssm_a$/, (z) => -Math.exp(0.5 * z)];
/** Four heads of 16 values, two groups. */
const SSM = {
  "ssm.conv_kernel": 4,
  "ssm.state_size": 16,
  "ssm.group_count": 2,
  "ssm.time_step_rank": 4,
  "ssm.inner_size": 64,
};
const HYPER = {
  "hyper_connection.count": 4,
  "hyper_connection.sinkhorn_iterations": 20,
  "hyper_connection.epsilon": f32(1e-6),
};
/** One key head of 32 numbers that are values too, a window, compressed rows. */
const COMPRESSED = {
  ...EXPERTS,
  ...INDEXER,
  ...HYPER,
  "attention.head_count_kv": 1,
  "attention.q_lora_rank": 48,
  "attention.sliding_window": 20,
  "attention.output_group_count": 2,
  "attention.output_lora_rank": 32,
  "attention.indexer.key_length": 32,
  "attention.compress_rope_freq_base": f32(160000),
  "rope.dimension_count": 16,
  "rope.scaling.type": "yarn",
  "rope.scaling.factor": f32(4),
  "rope.scaling.original_context_length": 64,
  expert_shared_count: 1,
  expert_gating_func: 4,
  expert_weights_scale: f32(1.5),
};
/** Small enough that some products are clamped. */
const clamps = (n: number) => {
  const values = floats(...new Array<number>(n).fill(1));
  return { swiglu_clamp_exp: values, swiglu_clamp_shexp: values };
};
const longs = (...values: bigint[]): GgufValue => ({ type: "array", elem: "u64", value: BigUint64Array.from(values) });
/** Two heads for each of two and three tokens; the products of ids and multipliers are near 2^63. */
const NGRAM = {
  multipliers: [90071992547409931n, 60071992547409937n, 30071992547409941n],
  primes: [31n, 37n, 41n, 43n],
  offsets: [0n, 31n, 68n, 109n],
};
const YARN = {
  "rope.scaling.type": "yarn",
  "rope.scaling.factor": f32(4),
  "rope.scaling.original_context_length": 64,
};

const MULTIPLIERS = {
  embedding_scale: f32(3),
  residual_scale: f32(0.7),
  "attention.scale": f32(0.1),
  logit_scale: f32(1.5),
};
/** Layers that see all have heads of 64, those with a window of 32. */
const WIDE_GLOBAL = {
  block_count: 4,
  "attention.key_length": 64,
  "attention.value_length": 64,
  "attention.key_length_swa": 32,
  "attention.value_length_swa": 32,
  "attention.sliding_window": 20,
  "attention.sliding_window_pattern": [true, false, true, false],
  "rope.dimension_count": 64,
  "rope.dimension_count_swa": 32,
  "rope.freq_base_swa": f32(1000),
  final_logit_softcapping: f32(3),
};

const GLM5: FamilyModel = {
  arch: "glm5-next",
  keys: {
    ...LATENT,
    ...V3_EXPERTS,
    ...KDA,
    ...INDEXER,
    nextn_predict_layers: 1,
    block_count: 4,
    "attention.head_count_kv": [0, 1, 0, 1],
    "rope.dimension_count": 0,
    "attention.key_length": 64,
    "attention.key_length_mla": 32,
    "kda.gate_lower_bound": f32(-5),
    "attention.indexer.kpool": 4,
    ...HYPER,
    ...clamps(4),
  },
  with: /exp_probs_b|^output\.weight|ssm_a$/,
  fill: [DECAY],
};

/** Keys that files of models without attention do not have. */
const NO_ATTENTION = [
  "attention.head_count_kv",
  "attention.key_length",
  "attention.value_length",
  "rope.freq_base",
];

/** By name; a family may have several. */
export const FAMILY_MODELS: Readonly<Record<string, FamilyModel>> = {
  llama: {
    arch: "llama",
    keys: {},
    with: /^output\.weight|attn_q\.bias|attn_output\.bias/,
    extra: [{ name: "rope_freqs.weight", ne: [16] }],
    fill: [[/rope_freqs/, (z) => 1 + z * z]],
  },
  mistral: { arch: "llama", keys: { "attention.sliding_window": 40 }, with: /attn_qkv/ },
  mixtral: { arch: "llama", keys: EXPERTS, with: /^output\.weight/ },
  mistral3: {
    arch: "mistral3",
    keys: { ...YARN, "rope.scaling.yarn_log_multiplier": f32(1), "attention.temperature_scale": f32(0.1) },
  },
  qwen2: { arch: "qwen2", keys: {}, with: /attn_[qkv]\.bias/ },
  qwen2moe: {
    arch: "qwen2moe",
    keys: { ...EXPERTS, expert_shared_feed_forward_length: 64 },
    with: /attn_[qkv]\.bias|ffn_gate_inp_shexp|^output\.weight/,
  },
  qwen3: { arch: "qwen3", keys: { "attention.key_length": 48, "attention.value_length": 48 } },
  qwen3moe: { arch: "qwen3moe", keys: { ...EXPERTS, ...YARN }, with: /^output\.weight/ },
  gemma3: {
    arch: "gemma3",
    keys: {
      block_count: 3,
      "attention.sliding_window": 20,
      "attention.sliding_window_pattern": 3,
      "rope.scaling.type": "linear",
      "rope.scaling.factor": f32(8),
    },
  },
  "gpt-oss": {
    arch: "gpt-oss",
    keys: { ...EXPERTS, ...YARN, "rope.scaling.yarn_truncate": false, "attention.sliding_window": 20 },
    with: /\.bias|^output\.weight/,
  },
  glm4moe: {
    arch: "glm4moe",
    keys: {
      ...EXPERTS,
      block_count: 4,
      "rope.dimension_count": 16,
      leading_dense_block_count: 1,
      expert_shared_count: 1,
      expert_gating_func: 2,
      expert_weights_scale: f32(2.5),
      expert_weights_norm: true,
      nextn_predict_layers: 1,
    },
    with: /attn_[qkv]\.bias|attn_[qk]_norm|exp_probs_b|^output\.weight/,
  },
  phimoe: {
    arch: "phimoe",
    keys: { expert_count: 6, expert_used_count: 2 },
    with: /attn_(q|k|v|output)\.bias|_norm\.bias|^output\.(weight|bias)/,
  },
  "minimax-m3": {
    arch: "minimax-m3",
    keys: {
      ...V3_EXPERTS,
      block_count: 3,
      "rope.dimension_count": 16,
      "attention.indexer.head_count": 3,
      "attention.indexer.key_length": 32,
      "attention.indexer.top_k": 64,
      "attention.indexer.block_size": 8,
      "attention.indexer.local_blocks": 1,
    },
    with: /exp_probs_b|^output\.weight|^blk\.[12]\.indexer/,
  },
  "minimax-m2": {
    arch: "minimax-m2",
    keys: { ...EXPERTS, "rope.dimension_count": 16, expert_gating_func: 2 },
    with: /exp_probs_b|^output\.weight/,
  },
  mimo2: {
    arch: "mimo2",
    keys: {
      ...EXPERTS,
      block_count: 3,
      "attention.head_count_kv": [1, 2, 2],
      "attention.key_length": 64,
      "rope.dimension_count": 16,
      "rope.freq_base_swa": f32(1000),
      "attention.sliding_window": 20,
      "attention.sliding_window_pattern": [false, true, true],
      "attention.value_scale": f32(0.7),
      expert_gating_func: 2,
    },
    with: /blk\.[12]\.(ffn_gate_inp|exp_probs_b|attn_sinks)|^output\.weight/,
  },
  "deepseek2, V2": {
    arch: "deepseek2",
    keys: {
      ...LATENT,
      ...EXPERTS,
      ...YARN,
      "rope.scaling.yarn_log_multiplier": f32(0.0707),
      leading_dense_block_count: 1,
      expert_shared_count: 2,
      expert_group_count: 3,
      expert_group_used_count: 2,
      expert_weights_scale: f32(4),
    },
    with: /^output\.weight/,
  },
  "deepseek2, V3": {
    arch: "deepseek2",
    keys: {
      ...LATENT,
      ...V3_EXPERTS,
      expert_group_count: 3,
      expert_group_used_count: 2,
      block_count: 3,
      nextn_predict_layers: 1,
    },
    with: /exp_probs_b|^output\.weight/,
  },
  mistral4: {
    arch: "mistral4",
    keys: {
      ...LATENT,
      ...EXPERTS,
      ...YARN,
      "rope.scaling.yarn_log_multiplier": f32(0.1),
      leading_dense_block_count: 0,
      expert_shared_count: 1,
      "attention.temperature_scale": f32(0.1),
      "attention.temperature_length": 48,
    },
    with: /ffn_gate_up_exps|^output\.weight/,
  },
  deepseek32: {
    arch: "deepseek32",
    keys: { ...LATENT, ...V3_EXPERTS, ...INDEXER, block_count: 3, nextn_predict_layers: 1 },
    with: /exp_probs_b|^output\.weight/,
  },
  "glm-dsa": {
    arch: "glm-dsa",
    keys: { ...LATENT, ...V3_EXPERTS, ...INDEXER, block_count: 3, "attention.indexer.types": [true, false, true] },
    with: /exp_probs_b|^output\.weight/,
  },
  "kimi-linear": {
    arch: "kimi-linear",
    keys: { ...LATENT, ...V3_EXPERTS, ...KDA, "attention.q_lora_rank": 0 },
    with: /exp_probs_b|^output\.weight|ssm_a$/,
    fill: [DECAY],
  },
  "kimi-k3": {
    arch: "kimi-k3",
    keys: {
      ...LATENT,
      ...V3_EXPERTS,
      ...KDA,
      "kda.gate_lower_bound": f32(-5),
      expert_latent_length: 32,
      "activation.situ_beta": f32(4),
      "activation.situ_linear_beta": f32(25),
      "attn_res.block_size": 2,
    },
    with: /exp_probs_b|^output\.weight|ssm_a$|ssm_g\.weight/,
    fill: [DECAY],
  },
  "kimi-k3, indexed": {
    arch: "kimi-k3",
    keys: {
      ...LATENT,
      ...V3_EXPERTS,
      ...KDA,
      ...INDEXER,
      "kda.gate_lower_bound": f32(-5),
      expert_latent_length: 48,
      "activation.situ_beta": f32(4),
      "activation.situ_linear_beta": f32(25),
      "attn_res.block_size": 2,
    },
    with: /exp_probs_b|^output\.weight|ssm_a$|ssm_g\.weight/,
    fill: [DECAY],
  },
  "glm5-next": GLM5,
  // A name that other converters give it.
  glm5next: { ...GLM5, arch: "glm5next" },
  deepseek4: {
    arch: "deepseek4",
    keys: {
      ...COMPRESSED,
      ...clamps(4),
      block_count: 4,
      nextn_predict_layers: 1,
      hash_layer_count: 1,
      "attention.compress_ratios": [0, 4, 128, 0],
    },
    with: /blk\.[123]\.exp_probs_b\.bias|^output\.weight/,
    ints: [[/ffn_gate_tid2eid/, 6]],
  },
  deepseek41: {
    arch: "deepseek41",
    keys: {
      ...COMPRESSED,
      ...clamps(5),
      block_count: 5,
      // Layer 2 reads what layer 1 makes and chooses, layer 4 chooses among the blocks and rows of layer 3.
      "attention.compress_ratios": [0, 2, 2, 1, 1],
      "attention.candidate_source_layer_id": 3,
      "attention.candidate_block_size": 8,
      "attention.candidate_topk_blocks": 5,
      "engram.layer_ids": [1],
      "engram.head_count": 2,
      "engram.key_length": 16,
      "engram.max_ngram_size": 3,
      "engram.multipliers": longs(...NGRAM.multipliers),
      "engram.primes": longs(...NGRAM.primes),
      "engram.offsets": longs(...NGRAM.offsets),
      "engram.token_map": Array.from({ length: N_VOCAB }, (_, i) => i % 50),
      "engram.pad_id": 2,
    },
    with:
      /blk\.1\.(attn_compressor_|indexer\.|engram_)|blk\.3\.(attn_compressor_(kv|norm)|indexer\.)|blk\.4\.indexer\.(attn_q_b|proj)|exp_probs_b\.bias|^output\.weight/,
    extra: [{ name: "blk.1.engram_embd.weight", ne: [16, 160] }],
  },
  qwen4exp: {
    arch: "qwen4exp",
    keys: {
      ...EXPERTS,
      ...GATED_DELTA,
      ...INDEXER,
      "ssm.group_count": 1,
      "rope.dimension_sections": [2, 1, 1, 0],
      block_count: 4,
      nextn_predict_layers: 1,
      full_attention_interval: 2,
      expert_shared_feed_forward_length: 32,
      "hyper_connection.count": 4,
      "hyper_connection.low_rank": 16,
      "attention.compress_ratios": [0, 4, 0],
      "ple.layers": [2],
      "ple.ngram_size": 3,
      "ple.heads_per_ngram": 2,
      "ple.conv_kernel": 4,
      "ple.eos_token_id": 7,
      "ple.layer_multipliers": longs(...NGRAM.multipliers),
      "ple.head_vocab_sizes": longs(...NGRAM.primes),
      "ple.head_offsets": longs(...NGRAM.offsets),
      embedding_length_per_layer_input: 16,
    },
    with: /ssm_a$|ffn_gate_inp_shexp|^output\.weight/,
    fill: [DECAY],
    extra: [{ name: "per_layer_token_embd.weight", ne: [16, 160] }],
  },
  qwen3next: {
    arch: "qwen3next",
    keys: {
      ...EXPERTS,
      ...GATED_DELTA,
      expert_shared_feed_forward_length: 32,
      nextn_predict_layers: 1,
    },
    with: /ssm_a$|ssm_ba|ffn_gate_inp_shexp|^output\.weight/,
    fill: [DECAY],
  },
  qwen2vl: {
    arch: "qwen2vl",
    keys: { "rope.dimension_sections": [4, 6, 6, 0] },
    with: /attn_[qkv]\.bias|^output\.weight/,
  },
  qwen3vl: { arch: "qwen3vl", keys: { "rope.dimension_sections": [6, 5, 5, 0], n_deepstack_layers: 2 } },
  dots1: { arch: "dots1", keys: V3_EXPERTS, with: /exp_probs_b|^output\.weight/ },
  bailingmoe2: {
    arch: "bailingmoe2",
    keys: { ...V3_EXPERTS, expert_group_count: 3, expert_group_used_count: 2, "rope.dimension_count": 16 },
    with: /attn_qkv\.weight|exp_probs_b|^output\.weight/,
  },
  internlm2: { arch: "internlm2", keys: {}, with: /^output\.weight/ },
  ernie4_5: { arch: "ernie4_5", keys: {}, with: /attn_[qkv]\.bias|attn_output\.bias/ },
  "ernie4_5-moe": {
    arch: "ernie4_5-moe",
    keys: {
      ...EXPERTS,
      block_count: 4,
      leading_dense_block_count: 1,
      interleave_moe_layer_step: 2,
      expert_shared_count: 2,
      expert_shared_feed_forward_length: 64,
    },
    with: /exp_probs_b|^output\.weight/,
  },
  arcee: { arch: "arcee", keys: {}, with: /^output\.weight/ },
  nemotron: {
    arch: "nemotron",
    keys: { "attention.layer_norm_epsilon": f32(1e-5), "rope.dimension_count": 16 },
    with: /norm\.bias|^output\.weight/,
  },
  nemotron_h: {
    arch: "nemotron_h",
    keys: {
      ...SSM,
      block_count: 4,
      "attention.head_count_kv": [0, 2, 0, 0],
      feed_forward_length: [0, 0, 96, 0],
    },
    with: /ssm_[ad]$|ssm_conv1d\.bias|^output\.weight/,
    fill: [DECAY],
  },
  nemotron_h_moe: {
    arch: "nemotron_h_moe",
    keys: {
      ...SSM,
      ...EXPERTS,
      block_count: 3,
      "attention.head_count_kv": [0, 0, 2],
      feed_forward_length: [0, 32, 0],
      moe_latent_size: 48,
      expert_shared_feed_forward_length: 64,
      expert_shared_count: 1,
      expert_weights_scale: f32(2.5),
    },
    with: /ssm_[ad]$|ssm_conv1d\.bias|exp_probs_b|^output\.weight/,
    fill: [DECAY],
  },
  lfm2: {
    arch: "lfm2",
    keys: {
      block_count: 4,
      "attention.head_count_kv": [0, 2, 0, 2],
      "shortconv.l_cache": 3,
      "attention.sliding_window": 20,
    },
  },
  lfm2moe: {
    arch: "lfm2moe",
    keys: {
      ...EXPERTS,
      block_count: 3,
      "attention.head_count_kv": [0, 2, 0],
      "shortconv.l_cache": 3,
      leading_dense_block_count: 1,
      expert_gating_func: 2,
    },
    with: /exp_probs_b/,
  },
  granitehybrid: {
    arch: "granitehybrid",
    keys: {
      ...SSM,
      expert_count: 6,
      expert_used_count: 2,
      feed_forward_length: 32,
      "ssm.group_count": 1,
      "attention.head_count_kv": [0, 2],
      "attention.scale": f32(0.1),
      embedding_scale: f32(3),
      residual_scale: f32(0.7),
      logit_scale: f32(1.5),
      expert_shared_feed_forward_length: 64,
      "rope.scaling.finetuned": false,
    },
    with: /ssm_[ad]$|ssm_conv1d\.bias|^output\.weight/,
    fill: [DECAY],
  },
  "granitehybrid, dense": {
    arch: "granitehybrid",
    keys: { ...SSM, "attention.head_count_kv": [0, 2], residual_scale: f32(0.7) },
    with: /ssm_[ad]$|ssm_conv1d\.bias/,
    fill: [DECAY],
  },
  "falcon-h1": {
    arch: "falcon-h1",
    keys: SSM,
    with: /ssm_[ad]$|ssm_conv1d\.bias|ssm_norm|ffn_norm$|^output\.weight/,
    fill: [DECAY],
  },
  mamba: {
    arch: "mamba",
    keys: { ...SSM, "attention.head_count": 0, feed_forward_length: 0, "ssm.dt_b_c_rms": true },
    without: [...NO_ATTENTION, "ssm.group_count"],
    with: /ssm_[ad]$|ssm_dt\.bias|ssm_conv1d\.bias/,
    fill: [DECAY],
  },
  mamba2: {
    arch: "mamba2",
    keys: { ...SSM, "attention.head_count": 0, feed_forward_length: 0 },
    without: NO_ATTENTION,
    with: /ssm_[ad]$|ssm_conv1d\.bias|^output\.weight/,
    fill: [DECAY],
  },
  jamba: {
    arch: "jamba",
    keys: { ...SSM, expert_count: 6, expert_used_count: 2, block_count: 3, "attention.head_count_kv": [0, 2, 0] },
    without: ["ssm.group_count"],
    with: /ssm_[ad]$|ssm_dt\.bias|ssm_conv1d\.bias|blk\.1\.ffn_gate_inp\.weight|^output\.weight/,
    fill: [DECAY],
  },
  apertus: {
    arch: "apertus",
    keys: {},
    root: {
      "xielu.alpha_p": floats(0.4, 0.9),
      "xielu.alpha_n": floats(-0.3, 0.2),
      "xielu.beta": floats(0.5, 0.6),
      "xielu.eps": floats(-1e-6, -1e-6),
    },
    with: /^output\.weight/,
    extra: [{ name: "rope_freqs.weight", ne: [16] }],
    fill: [[/rope_freqs/, (z) => 1 + z * z]],
  },
  "command-r": {
    arch: "command-r",
    keys: { "attention.layer_norm_epsilon": f32(1e-5), logit_scale: f32(0.0625) },
    without: ["attention.layer_norm_rms_epsilon"],
    with: /attn_[qk]_norm/,
  },
  minicpm3: {
    arch: "minicpm3",
    keys: { ...LATENT, "attention.key_length": 48, "attention.value_length": 16 },
    without: ["attention.key_length_mla", "attention.value_length_mla"],
    with: /attn_kv_b/,
  },
  llama4: {
    arch: "llama4",
    keys: {
      ...EXPERTS,
      expert_used_count: 1,
      block_count: 4,
      interleave_moe_layer_step: 2,
      "attention.sliding_window": 40,
      "attention.temperature_length": 48,
    },
    with: /^output\.weight/,
  },
  qwen35: {
    arch: "qwen35",
    keys: { ...GATED_DELTA, "rope.dimension_sections": [2, 1, 1, 0] },
    with: /ssm_a$|^output\.weight/,
    fill: [DECAY],
  },
  qwen35moe: {
    arch: "qwen35moe",
    keys: {
      ...EXPERTS,
      ...GATED_DELTA,
      "rope.dimension_sections": [2, 1, 1, 0],
      expert_shared_feed_forward_length: 32,
    },
    with: /ssm_a$|ffn_gate_inp_shexp|^output\.weight/,
    fill: [DECAY],
  },
  phi3: { arch: "phi3", keys: { "attention.sliding_window": 40 }, with: /attn_qkv|^output\.weight/ },
  "phi3, long": {
    arch: "phi3",
    keys: {
      "rope.dimension_count": 24,
      "rope.scaling.type": "longrope",
      "rope.scaling.original_context_length": 256,
      "rope.scaling.attn_factor": f32(1.2),
    },
    with: /attn_qkv/,
    extra: [{ name: "rope_factors_long.weight", ne: [12] }, { name: "rope_factors_short.weight", ne: [12] }],
    fill: [[/rope_factors/, (z) => 1 + z * z]],
  },
  olmo2: { arch: "olmo2", keys: {}, with: /^output\.weight/ },
  "olmo2, windows": { arch: "olmo2", keys: { ...YARN, block_count: 4, "attention.sliding_window": 20 } },
  olmoe: { arch: "olmoe", keys: EXPERTS, with: /^output\.weight/ },
  exaone4: { arch: "exaone4", keys: {}, with: /^output\.weight/ },
  "exaone4, windows": { arch: "exaone4", keys: { block_count: 4, "attention.sliding_window": 20 } },
  seed_oss: {
    arch: "seed_oss",
    keys: { "attention.key_length": 48, "attention.value_length": 48 },
    with: /attn_[qkv]\.bias|^output\.weight/,
  },
  smollm3: { arch: "smollm3", keys: { block_count: 4 } },
  glm4: { arch: "glm4", keys: { "rope.dimension_count": 16 }, with: /attn_[qkv]\.bias|^output\.weight/ },
  chatglm: { arch: "chatglm", keys: { "rope.dimension_count": 16 }, with: /attn_[qkv]\.bias|^output\.weight/ },
  dbrx: {
    arch: "dbrx",
    keys: { ...EXPERTS, "attention.clamp_kqv": f32(0.8), "attention.layer_norm_epsilon": f32(1e-5) },
    without: ["attention.layer_norm_rms_epsilon"],
    with: /attn_qkv\.weight|^output\.weight/,
  },
  "grok, 1": {
    arch: "grok",
    keys: { ...EXPERTS, "attention.output_scale": f32(0.1), "attn_logit_softcapping": f32(2), logit_scale: f32(0.6) },
    with: /layer_output_norm/,
  },
  "grok, 2": {
    arch: "grok",
    keys: {
      ...EXPERTS,
      "attention.output_scale": f32(0.2),
      "attn_logit_softcapping": f32(3),
      router_logit_softcapping: f32(2),
      final_logit_softcapping: f32(4),
      embedding_scale: f32(8),
      logit_scale: f32(0.5),
    },
    with: /ffn_(up|gate|down)\.weight|^output\.weight/,
  },
  granite: {
    arch: "granite",
    keys: { ...MULTIPLIERS, "rope.scaling.finetuned": false },
    with: /^output\.weight/,
  },
  granitemoe: {
    arch: "granitemoe",
    keys: { ...MULTIPLIERS, ...EXPERTS, expert_shared_feed_forward_length: 32 },
  },
  cohere2: {
    arch: "cohere2",
    keys: {
      block_count: 4,
      "attention.layer_norm_epsilon": f32(1e-5),
      "attention.sliding_window": 20,
      logit_scale: f32(1.25),
    },
  },
  gemma2: {
    arch: "gemma2",
    keys: {
      "attention.sliding_window": 20,
      attn_logit_softcapping: f32(2),
      final_logit_softcapping: f32(3),
    },
  },
  starcoder2: {
    arch: "starcoder2",
    keys: { "attention.layer_norm_epsilon": f32(1e-5), "attention.sliding_window": 40 },
    with: /\.bias/,
  },
  stablelm: {
    arch: "stablelm",
    keys: { "attention.layer_norm_epsilon": f32(1e-5), "rope.dimension_count": 8 },
    with: /(attn_[qkv]|norm)\.bias|^output\.weight/,
  },
  "stablelm, parallel": {
    arch: "stablelm",
    keys: { "attention.layer_norm_epsilon": f32(1e-5), "rope.dimension_count": 8, use_parallel_residual: true },
    with: /attn_[qk]_norm|output_norm\.bias|attn_norm\.bias|^output\.weight/,
  },
  "hunyuan-dense": { arch: "hunyuan-dense", keys: {} },
  "hunyuan-moe": { arch: "hunyuan-moe", keys: { ...EXPERTS, expert_shared_feed_forward_length: 32 } },
  gemma4: {
    arch: "gemma4",
    keys: {
      ...WIDE_GLOBAL,
      feed_forward_length: [96, 96, 128, 128],
      "attention.head_count_kv": 1,
      "attention.shared_kv_layers": 2,
      embedding_length_per_layer_input: 16,
    },
    with: /blk\.1\.attn_v\.weight|layer_output_scale/,
    extra: [{ name: "rope_freqs.weight", ne: [32] }],
    fill: [[/rope_freqs/, (z) => z > 0 ? 1 : 1e30], [/scale/, (z) => 1 + 0.15 * z]],
  },
  "gemma4, routed": {
    arch: "gemma4",
    keys: { ...WIDE_GLOBAL, ...EXPERTS, "attention.head_count_kv": [2, 1, 2, 1] },
    with: /layer_output_scale|ffn_gate_up_exps|ffn_down_exps\.scale/,
    fill: [[/scale/, (z) => 1 + 0.15 * z]],
  },
  gemma3n: {
    arch: "gemma3n",
    keys: {
      block_count: 3,
      "attention.sliding_window": 20,
      "attention.sliding_window_pattern": [true, false, true],
      "attention.shared_kv_layers": 1,
      "altup.num_inputs": 3,
      "altup.active_idx": 1,
      embedding_length_per_layer_input: 16,
      activation_sparsity_scale: floats(1, 0, 0.5),
      final_logit_softcapping: f32(3),
    },
    // Streams begin below the size that they are scaled up from.
    fill: [[/altup_correct_scale/, (z) => 1 + 0.15 * z], [/altup_proj/, (z) => 1e-4 * z]],
  },
};

export interface FamilyOptions {
  /** Type of the matrices whose rows it divides; f32 where left out. */
  readonly type?: string;
  /** Encodes them. */
  readonly backend?: Backend;
  readonly seed?: number;
  /** Keys that are written in place of the model's, without a tensor changing. */
  readonly written?: Readonly<Record<string, GgufValue>>;
  /** Keys that are not written. */
  readonly missing?: readonly string[];
  /** Changes the tensor list before it is written. */
  readonly tensors?: (t: TensorInfo[]) => TensorInfo[];
}

function valueOf(v: KeyValue): GgufValue {
  if (typeof v === "number") return { type: "u32", value: v };
  if (typeof v === "string") return { type: "str", value: v };
  if (typeof v === "boolean") return { type: "bool", value: v };
  if (!Array.isArray(v)) return v as GgufValue;
  return typeof v[0] === "boolean"
    ? { type: "array", elem: "bool", value: Uint8Array.from(v, Number) }
    : { type: "array", elem: "i32", value: Int32Array.from(v) };
}

function familyMetadata(model: FamilyModel): Metadata {
  const m = new Metadata(model.arch, [["general.architecture", { type: "str", value: model.arch }]]);
  for (const [key, value] of Object.entries({ ...BASE, ...model.keys })) {
    if (!model.without?.includes(key)) m.set(`${model.arch}.${key}`, valueOf(value));
  }
  for (const [key, value] of Object.entries(model.root ?? {})) m.set(key, valueOf(value));
  return m;
}

/** The tensors a model wants, in the order it asks for them, and which of them are matrices. */
function wanted(model: FamilyModel, metadata: Metadata): { tensors: TensorInfo[]; matrices: Set<string> } {
  const F32 = ggmlType("f32");
  const embedding = {
    name: "token_embd.weight",
    type: F32,
    ne: [metadata.u32(`${model.arch}.embedding_length`), N_VOCAB],
  };
  const known = new Map<string, TensorInfo>([embedding, ...(model.extra ?? []).map((t) => ({ ...t, type: F32 }))].map((
    t,
  ) => [t.name, t]));
  const file: ModelFile = {
    name: model.arch,
    metadata,
    tensors: [],
    has: (name) => known.has(name) || model.with?.test(name) === true,
    find: (name) => known.get(name) as GgufTensor | undefined,
    tensor: (name) => known.get(name) as GgufTensor,
    readTensor: (t) => new Uint8Array(4 * t.ne.reduce((a, b) => a * b, 1)),
    place: () => undefined,
  };
  const arch = architectureOf(file), spec = arch.spec(new Keys(file, model.arch));
  // An optional tensor is found, in a shape that is never right: the complaint tells the right one.
  const source = {
    find: (name: string) => model.with?.test(name) ? { type: F32, ne: [0] } : undefined,
  };
  const tensors = (model.extra ?? []).map((t): TensorInfo => ({ ...t, type: F32 })), matrices = new Set<string>();
  for (const part of [arch.build, arch.draft]) {
    const op = new Ops({ n_tok: 1, n_out: 1, n_seq: 1, n_page: 1 }, source);
    part?.(op, spec);
    for (const p of op.problems) {
      if (!tensors.some((t) => t.name === p.tensor)) tensors.push({ name: p.tensor, type: F32, ne: p.expected });
    }
    for (const w of op.finish().weights) if (w.uses & (USE.MUL_MAT | USE.ROWS)) matrices.add(w.name);
  }
  return { tensors, matrices };
}

/** From a standard normal number: norms near 1, biases small, matrices that keep the size of what goes through them. */
function fillOf(name: string, ne: readonly number[]): (z: number) => number {
  if (/norm\.weight$/.test(name)) return (z) => 1 + 0.15 * z;
  if (/\.bias$|_b$|sinks/.test(name)) return (z) => 0.3 * z;
  // Small, so that a model with a tied head does not only repeat its last token.
  if (/token_embd/.test(name)) return (z) => 0.15 * z;
  return (z) => 1.5 * z / Math.sqrt(ne[0]);
}

/** Standard normal numbers from uniform ones (Box-Muller). */
function normal(next: () => number): number {
  return Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
}

/** Writes a random model and returns its path. */
export async function writeFamilyModel(path: string, model: FamilyModel, options: FamilyOptions = {}): Promise<string> {
  const metadata = familyMetadata(model), { tensors: all, matrices } = wanted(model, metadata);
  const type = ggmlType(options.type ?? "f32"), F32 = ggmlType("f32");
  const typed = all.map((t): TensorInfo => {
    if (model.ints?.some(([name]) => name.test(t.name))) return { ...t, type: ggmlType("i32") };
    return matrices.has(t.name) && t.ne[0] % type.block === 0 && t.ne.length > 1 ? { ...t, type } : t;
  });
  const tensors = options.tensors?.(typed) ?? typed;
  for (const [key, value] of Object.entries(options.written ?? {})) metadata.set(key, value);
  for (const key of options.missing ?? []) metadata.remove(key);
  using writer = GgufWriter.create({ path, metadata, tensors });
  for (const [i, t] of tensors.entries()) {
    writer.writeTensor(i, await encoded(t, numbers(model, t, options.seed ?? 1), F32, options.backend));
  }
  writer.finish();
  return path;
}

/** The numbers of a tensor depend on its name and the seed only. */
function numbers(model: FamilyModel, t: TensorInfo, seed: number): Float32Array | Int32Array {
  const n = t.ne.reduce((a, b) => a * b, 1), next = random(seed, t.name);
  const limit = model.ints?.find(([name]) => name.test(t.name))?.[1];
  if (limit !== undefined) return Int32Array.from({ length: n }, () => Math.floor(next() * limit));
  const fill = model.fill?.find(([name]) => name.test(t.name))?.[1] ?? fillOf(t.name, t.ne);
  return Float32Array.from({ length: n }, () => fill(normal(next)));
}

async function encoded(
  t: TensorInfo,
  values: Float32Array | Int32Array,
  F32: GgmlType,
  backend: Backend | undefined,
): Promise<Uint8Array> {
  const src = new Uint8Array(values.buffer);
  if (t.type.name === "f32" || t.type.name === "i32") return src;
  if (!backend) throw new Error(`a backend is needed to encode ${t.type.name}`);
  return await backend.quantize({
    srcType: F32,
    src,
    dstType: t.type,
    n_rows: values.length / t.ne[0],
    n_per_row: t.ne[0],
  });
}

/** A random model as headers only, for programs that are built and not run. */
export function familyFile(of: string | FamilyModel): ModelFile {
  const model = typeof of === "string" ? FAMILY_MODELS[of] : of, name = model.arch;
  const metadata = familyMetadata(model), tensors = wanted(model, metadata).tensors as GgufTensor[];
  const byName = new Map(tensors.map((t) => [t.name, t]));
  return {
    name,
    metadata,
    tensors,
    has: (tensor) => byName.has(tensor),
    find: (tensor) => byName.get(tensor),
    tensor: (tensor) => {
      const t = byName.get(tensor);
      if (!t) throw new ModelError("model.missing_tensor", `Cannot find tensor "${tensor}"`);
      return t;
    },
    readTensor: (t) => new Uint8Array(numbers(model, t, 1).buffer),
    place: () => undefined,
  };
}
