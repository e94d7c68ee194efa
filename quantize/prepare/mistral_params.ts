/**
 * Mistral's own layout of a release: `params.json` beside `consolidated.safetensors`, with names of its own for fields and
 * tensors. Fields whose Mistral name the getters of `Config` know stay as they are; fields of the experts get the other layout's names.
 * @module
 */
type Json = Record<string, unknown>;

const isObject = (v: unknown): v is Json => typeof v === "object" && v !== null && !Array.isArray(v);

/** Fields of `moe` under the names that the other layout has. */
const MOE: Readonly<Record<string, string>> = {
  first_k_dense_replace: "first_k_dense_replace",
  num_experts: "n_routed_experts",
  num_experts_per_tok: "num_experts_per_tok",
  expert_hidden_dim: "moe_intermediate_size",
  routed_scale: "routed_scaling_factor",
  num_shared_experts: "n_shared_experts",
  num_expert_groups: "n_group",
  num_expert_groups_per_tok: "topk_group",
};

/** The class of models with latent attention and experts, as inference libraries call it. */
export const MISTRAL_LARGE3_CLASS = "MistralLarge3ForCausalLM";

/** `params.json` in the form of config.json, or undefined for a model that is not read in this layout. */
export function configFromParams(params: unknown): Json | undefined {
  if (!isObject(params) || !isObject(params["moe"]) || typeof params["kv_lora_rank"] !== "number") return undefined;
  const config: Json = { ...params, architectures: [MISTRAL_LARGE3_CLASS], model_type: "mistral_large3" };
  for (const [name, value] of Object.entries(params["moe"])) if (name in MOE) config[MOE[name]] = value;
  // The layout has no fields for these: the router is a softmax whose chosen weights are made to sum to 1.
  config["scoring_func"] = "softmax";
  config["norm_topk_prob"] = true;
  config["tie_word_embeddings"] = params["tied_embeddings"] ?? false;
  const quantization = params["quantization"];
  if (isObject(quantization)) config["quantization_config"] = quantization;
  return config;
}

const ROOT: Readonly<Record<string, string>> = {
  tok_embeddings: "model.embed_tokens",
  norm: "model.norm",
  output: "lm_head",
};

const BLOCK: Readonly<Record<string, string>> = {
  attention_norm: "input_layernorm",
  ffn_norm: "post_attention_layernorm",
  "attention.wq_a": "self_attn.q_a_proj",
  "attention.q_a_norm": "self_attn.q_a_layernorm",
  "attention.wq_b": "self_attn.q_b_proj",
  "attention.wq": "self_attn.q_proj",
  "attention.wkv_a_with_mqa": "self_attn.kv_a_proj_with_mqa",
  "attention.kv_a_norm": "self_attn.kv_a_layernorm",
  "attention.wkv_b": "self_attn.kv_b_proj",
  "attention.wo": "self_attn.o_proj",
  gate: "mlp.gate",
};

const FFN: Readonly<Record<string, string>> = { w1: "gate_proj", w2: "down_proj", w3: "up_proj" };

/** A tensor's name in the layout of the Hugging Face hub; other names stay as they are. */
export function hubName(name: string): string {
  const m = /^(?:layers\.(\d+)\.)?(.*)\.(weight|bias|qscale_weight|qscale_act)$/.exec(name);
  if (!m) return name;
  const [, il, module, kind] = m;
  if (il === undefined) return module in ROOT ? `${ROOT[module]}.${kind}` : name;
  const ffn = /^(feed_forward|shared_experts|experts\.\d+)\.(w[123])$/.exec(module);
  const hub = ffn
    ? `mlp${ffn[1] === "feed_forward" ? "" : `.${ffn[1]}`}.${FFN[ffn[2]]}`
    : module in BLOCK
    ? BLOCK[module]
    : undefined;
  return hub === undefined ? name : `model.layers.${il}.${hub}.${kind}`;
}
