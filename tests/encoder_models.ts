/**
 * Small random models that give vectors: encoders, and rerankers of both kinds. As `family_models.ts`, whose generator makes them.
 * @module
 */
import { type GgufValue, ggufValue } from "../core/gguf/metadata.ts";
import type { FamilyModel } from "./family_models.ts";

const f32 = (value: number): GgufValue => ({ type: "f32", value });
const labels = (...names: string[]): GgufValue => ggufValue.strs(names);

/** Two heads of 32 numbers; no grouped heads, as encoders have none. */
const HEADS = { "attention.head_count": 2, "attention.head_count_kv": 2 };
const LAYER_NORM = { "attention.layer_norm_epsilon": f32(1e-5), "attention.causal": false };
const WITHOUT = ["attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon"];
/** A matrix with a bias and the one behind it: a reranker's head. */
const CLASSIFIER = [
  { name: "cls.weight", ne: [64, 64] },
  { name: "cls.bias", ne: [64] },
  { name: "cls.output.weight", ne: [64, 1] },
  { name: "cls.output.bias", ne: [1] },
];
const TYPES = [{ name: "token_types.weight", ne: [64, 2] }];
/** llama.cpp takes GELU from a table of 16 bits: what it loses there stays small behind small matrices. */
const QUIET: [RegExp, (z: number) => number] = [/ffn_(up|down)(_exps)?\.weight/, (z) => 0.05 * z];
const BIASES = /attn_(qkv|[qkv]|output)\.bias|ffn_(up|down)\.bias|_norm\.bias/;

const BERT: FamilyModel = {
  arch: "bert",
  keys: { ...HEADS, ...LAYER_NORM, pooling_type: 2 },
  without: [...WITHOUT, "rope.freq_base"],
  root: { "tokenizer.ggml.token_type_count": 2 },
  with: BIASES,
  extra: TYPES,
  fill: [QUIET],
};

/** A window of 17 positions, and layers that see all. */
const MODERN: FamilyModel = {
  arch: "modern-bert",
  keys: {
    ...HEADS,
    ...LAYER_NORM,
    block_count: 4,
    "attention.sliding_window": 16,
    "attention.sliding_window_pattern": 3,
    "rope.freq_base": f32(160000),
    "rope.freq_base_swa": f32(10000),
    pooling_type: 1,
  },
  without: WITHOUT,
  with: /^blk\.[123]\.attn_norm\.weight|attn_qkv\.weight/,
  fill: [QUIET],
};

/** By name. */
export const ENCODER_MODELS: Readonly<Record<string, FamilyModel>> = {
  bert: BERT,
  "bert, reranker": { ...BERT, keys: { ...BERT.keys, pooling_type: 4 }, extra: [...TYPES, ...CLASSIFIER] },
  "bert, reranker of one matrix": {
    ...BERT,
    keys: { ...BERT.keys, pooling_type: 4, "classifier.output_labels": labels("a", "b", "c") },
    extra: [...TYPES, { name: "cls.output.weight", ne: [64, 3] }, { name: "cls.output.bias", ne: [3] }],
  },
  "nomic-bert": {
    arch: "nomic-bert",
    keys: { ...HEADS, ...LAYER_NORM, "rope.freq_base": f32(1000), pooling_type: 1 },
    without: WITHOUT,
    root: { "tokenizer.ggml.token_type_count": 2 },
    with: /_norm\.bias|attn_qkv\.weight/,
    extra: TYPES,
  },
  "nomic-bert-moe": {
    arch: "nomic-bert-moe",
    keys: {
      ...HEADS,
      ...LAYER_NORM,
      block_count: 3,
      moe_every_n_layers: 2,
      expert_count: 4,
      expert_used_count: 2,
      pooling_type: 1,
    },
    without: WITHOUT,
    root: { "tokenizer.ggml.token_type_count": 1 },
    with: /attn_qkv|attn_output\.bias|ffn_(up|down)\.bias|_norm\.bias/,
    extra: [{ name: "token_types.weight", ne: [64, 1] }],
    fill: [QUIET],
  },
  "jina-bert-v3": {
    arch: "jina-bert-v3",
    keys: { ...HEADS, ...LAYER_NORM, "rope.freq_base": f32(20000), pooling_type: 1 },
    without: WITHOUT,
    root: { "tokenizer.ggml.token_type_count": 1 },
    with: /attn_qkv|attn_output\.bias|ffn_(up|down)\.bias|_norm\.bias/,
    extra: [{ name: "token_types.weight", ne: [64, 1] }],
    fill: [QUIET],
  },
  "modern-bert": MODERN,
  "modern-bert, SiLU": { ...MODERN, keys: { ...MODERN.keys, hidden_activation: "silu" } },
  "modern-bert, reranker": {
    ...MODERN,
    keys: { ...MODERN.keys, pooling_type: 4, "classifier.pooling_type": 1, "classifier.activation": "gelu" },
    extra: [
      { name: "cls.weight", ne: [64, 64] },
      { name: "cls.norm.weight", ne: [64] },
      { name: "cls.output.weight", ne: [64, 1] },
      { name: "cls.output.bias", ne: [1] },
    ],
  },
  "gemma-embedding": {
    arch: "gemma-embedding",
    keys: {
      block_count: 3,
      "attention.head_count": 2,
      "attention.head_count_kv": 1,
      "attention.sliding_window": 16,
      "attention.sliding_window_pattern": 3,
      dense_2_feat_in: 64,
      dense_2_feat_out: 128,
      dense_3_feat_in: 128,
      dense_3_feat_out: 64,
      pooling_type: 1,
    },
    extra: [{ name: "dense_2.weight", ne: [64, 128] }, { name: "dense_3.weight", ne: [128, 64] }],
    fill: [[/post_ffw_norm/, (z) => 0.1 + 0.02 * z]],
  },
  "qwen3, vectors": { arch: "qwen3", keys: { pooling_type: 3 } },
  "qwen3, reranker": {
    arch: "qwen3",
    keys: { pooling_type: 4, "classifier.output_labels": labels("yes", "no") },
    extra: [{ name: "cls.output.weight", ne: [64, 2] }],
  },
};
