import assert from "node:assert/strict";
import { repoDir } from "../../tests/shared.ts";
import {
  floats,
  noise,
  sha256As,
  type TestCheckpoint,
  type TestTensors,
  withFolder,
  writeCheckpoint,
} from "./_testing.ts";
import { prepare } from "./mod.ts";

const golden: Record<string, Record<string, string>> =
  JSON.parse(Deno.readTextFileSync(`${repoDir}tests/goldens/prepare/sums.json`)).kimi_k3;

const [n_embd, n_vocab, n_head, n_ff, n_expert, n_ff_exp, n_latent, n_layer] = [96, 272, 2, 160, 4, 32, 64, 4];
const [rank, nope, rope, value, qRank] = [40, 24, 16, 32, 48];
/** Blocks with latent attention, counted from 1. */
const FULL = [2, 4];

function shapes(): Record<string, number[]> {
  const out: Record<string, number[]> = {
    "model.embed_tokens.weight": [n_vocab, n_embd],
    "model.norm.weight": [n_embd],
    "lm_head.weight": [n_vocab, n_embd],
    "model.output_attn_res_norm.weight": [n_embd],
    "model.output_attn_res_proj.weight": [1, n_embd],
  };
  for (let il = 0; il < n_layer; il++) {
    const put = (name: string, ...shape: number[]) => out[`model.layers.${il}.${name}`] = shape;
    put("input_layernorm.weight", n_embd);
    put("post_attention_layernorm.weight", n_embd);
    for (const site of ["self_attention", "mlp"]) {
      put(`${site}_res_norm.weight`, n_embd);
      put(`${site}_res_proj.weight`, 1, n_embd);
    }
    if (FULL.includes(il + 1)) {
      put("self_attn.q_a_proj.weight", qRank, n_embd);
      put("self_attn.q_a_layernorm.weight", qRank);
      put("self_attn.q_b_proj.weight", n_head * (nope + rope), qRank);
      put("self_attn.kv_a_proj_with_mqa.weight", rank + rope, n_embd);
      put("self_attn.kv_a_layernorm.weight", rank);
      put("self_attn.kv_b_proj.weight", n_head * (nope + value), rank);
      put("self_attn.o_proj.weight", n_embd, n_head * value);
      put("self_attn.g_proj.weight", n_head * value, n_embd);
    } else {
      for (const w of ["q", "k", "v"]) {
        put(`self_attn.${w}_proj.weight`, 64, n_embd);
        put(`self_attn.${w}_conv1d.weight`, 64, 1, 4);
      }
      put("self_attn.f_a_proj.weight", 32, n_embd);
      put("self_attn.f_b_proj.weight", 64, 32);
      put("self_attn.dt_bias", 64);
      put("self_attn.A_log", 4); // padded: two heads count
      put("self_attn.b_proj.weight", n_head, n_embd);
      put("self_attn.g_proj.weight", 64, n_embd);
      put("self_attn.o_norm.weight", 32);
      put("self_attn.o_proj.weight", n_embd, 64);
    }
    const swiglu = (at: string, names: string[], n_in: number, n: number) => {
      for (const [i, w] of names.entries()) put(`${at}${w}.weight`, ...i === 2 ? [n_in, n] : [n, n_in]);
    };
    const projections = ["gate_proj", "up_proj", "down_proj"];
    if (il === 0) swiglu("mlp.", projections, n_embd, n_ff);
    else {
      put("block_sparse_moe.gate.weight", n_expert, n_embd);
      put("block_sparse_moe.gate.e_score_correction_bias", n_expert);
      put("block_sparse_moe.routed_expert_down_proj.weight", n_latent, n_embd);
      put("block_sparse_moe.routed_expert_up_proj.weight", n_embd, n_latent);
      put("block_sparse_moe.routed_expert_norm.weight", n_latent);
      swiglu("block_sparse_moe.shared_experts.", projections, n_embd, 2 * n_ff_exp);
      for (let e = 0; e < n_expert; e++) {
        swiglu(`block_sparse_moe.experts.${e}.`, ["w1", "w3", "w2"], n_latent, n_ff_exp);
      }
    }
  }
  return Object.fromEntries(Object.entries(out).map(([name, shape]) => [`language_model.${name}`, shape]));
}

/** A checkpoint of every part that K3 has, with experts in bf16 or packed to 4 bits. */
function checkpoint(packed: boolean): TestCheckpoint {
  const all = { ...shapes(), "vision_tower.x.weight": [4, 4], "mm_projector.proj.weight": [4, 4] };
  const tensors: TestTensors = {};
  for (const [name, shape] of Object.entries(all).sort(([a], [b]) => a < b ? -1 : 1)) {
    if (!packed || !/experts\.\d/.test(name)) {
      tensors[name] = floats(name, shape, /A_log|dt_bias|correction/.test(name) ? "F32" : "BF16");
      continue;
    }
    const [rows, columns] = shape;
    const codes = Uint8Array.from(noise(name, rows * columns / 2), (x) => Math.floor((x + 1) * 127.99));
    const scales = Uint8Array.from(noise(`${name}s`, rows * columns / 32), (x) => 120 + Math.floor((x + 1) * 4));
    tensors[`${name}_packed`] = { dtype: "U8", shape: [rows, columns / 2], data: codes };
    tensors[`${name}_scale`] = { dtype: "U8", shape: [rows, columns / 32], data: scales };
  }
  const format = "mxfp4-pack-quantized";
  const weights = { num_bits: 4, group_size: 32, type: "float", strategy: "group", symmetric: true };
  const quantization_config = {
    quant_method: "compressed-tensors",
    format,
    config_groups: { group_0: { format, weights, targets: ["Linear"] } },
    ignore: [],
  };
  const text_config = {
    architectures: ["KimiK3ForCausalLM"],
    model_type: "kimi_k3",
    vocab_size: n_vocab,
    hidden_size: n_embd,
    intermediate_size: n_ff,
    moe_intermediate_size: n_ff_exp,
    routed_expert_hidden_size: n_latent,
    num_hidden_layers: n_layer,
    num_attention_heads: n_head,
    num_key_value_heads: n_head,
    head_dim: 52,
    q_lora_rank: qRank,
    kv_lora_rank: rank,
    qk_nope_head_dim: nope,
    qk_rope_head_dim: rope,
    v_head_dim: value,
    num_experts: n_expert,
    num_experts_per_token: 2,
    num_shared_experts: 2,
    num_expert_group: 1,
    topk_group: 1,
    moe_renormalize: true,
    routed_scaling_factor: 2.5,
    moe_router_activation_func: "sigmoid",
    first_k_dense_replace: 1,
    rms_norm_eps: 1e-5,
    rope_theta: 10000,
    model_max_length: 2048,
    activation_situ_beta: 4,
    activation_situ_linear_beta: 25,
    attn_res_block_size: 2,
    eos_token_id: 268,
    pad_token_id: 267,
    tie_word_embeddings: false,
    torch_dtype: "bfloat16",
    linear_attn_config: {
      full_attn_layers: FULL,
      kda_layers: [1, 3],
      head_dim: 32,
      num_heads: n_head,
      short_conv_kernel_size: 4,
      gate_lower_bound: -5,
    },
    ...packed ? { quantization_config } : {},
  };
  const config = { architectures: ["KimiK3ForConditionalGeneration"], model_type: "kimi_k3", text_config };
  return { config: { ...config, ...packed ? { quantization_config } : {} }, tensors };
}

Deno.test("prepare() refuses a Kimi K3 checkpoint whose residual scores are of two sizes", () =>
  withFolder(async (dir) => {
    const { config, tensors } = checkpoint(false);
    const name = "model.layers.1.mlp_res_proj.weight";
    writeCheckpoint(`${dir}model`, { config, tensors: { ...tensors, [name]: floats(name, [1, n_embd / 2]) } });
    await assert.rejects(prepare(`${dir}model`, `${dir}o.gguf`), {
      code: "model.tensor_shape",
      message: /layers\.1\.mlp_res_norm\.weight" \[96\] and "model\.layers\.1\.mlp_res_proj\.weight" \[1, 48\]/,
    });
  }));

/** Keys that the converter does not write: it takes the configuration's epsilon everywhere, and the released model does not. */
const OURS = { "kimi-k3.attention.latent_norm_rms_epsilon": undefined, "kimi-k3.kda.qk_norm_epsilon": undefined };

for (const folder of ["k3", "k3-mxfp4"]) {
  Deno.test(`prepare() writes a Kimi K3 checkpoint (${folder}) as llama.cpp's converter does, but for the epsilons`, () =>
    withFolder(async (dir) => {
      writeCheckpoint(dir + folder, checkpoint(folder === "k3-mxfp4"));
      for (const outtype of ["f32", "bf16"] as const) {
        const { architecture } = await prepare(dir + folder, `${dir}o.gguf`, { outtype });
        assert.equal(architecture, "kimi-k3");
        assert.equal(await sha256As(`${dir}o.gguf`, OURS), golden[folder][outtype], outtype);
      }
    }));
}
