import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { BloomeryError } from "../../core/errors.ts";
import { openGguf } from "../../core/gguf/read.ts";
import { floats, testCheckpoint, type TestTensors, VOCAB_SIZE, withFolder, writeCheckpoint } from "./_testing.ts";
import { openPrepared, prepare } from "./mod.ts";

const [n_embd, n_head, rank, qRank, nope, rope, value, n_ff, n_expert, n_ff_exp] = [
  64,
  2,
  32,
  48,
  24,
  8,
  16,
  96,
  4,
  32,
];

/** Tensors by both names: that of the hub, and Mistral's own. */
function shapes(): [hub: string, own: string, shape: number[]][] {
  const out: [string, string, number[]][] = [
    ["model.embed_tokens.weight", "tok_embeddings.weight", [VOCAB_SIZE, n_embd]],
    ["model.norm.weight", "norm.weight", [n_embd]],
    ["lm_head.weight", "output.weight", [VOCAB_SIZE, n_embd]],
  ];
  for (let il = 0; il < 2; il++) {
    const put = (hub: string, own: string, ...shape: number[]) =>
      out.push([`model.layers.${il}.${hub}.weight`, `layers.${il}.${own}.weight`, shape]);
    put("input_layernorm", "attention_norm", n_embd);
    put("post_attention_layernorm", "ffn_norm", n_embd);
    put("self_attn.q_a_proj", "attention.wq_a", qRank, n_embd);
    put("self_attn.q_a_layernorm", "attention.q_a_norm", qRank);
    put("self_attn.q_b_proj", "attention.wq_b", n_head * (nope + rope), qRank);
    put("self_attn.kv_a_proj_with_mqa", "attention.wkv_a_with_mqa", rank + rope, n_embd);
    put("self_attn.kv_a_layernorm", "attention.kv_a_norm", rank);
    put("self_attn.kv_b_proj", "attention.wkv_b", n_head * (nope + value), rank);
    put("self_attn.o_proj", "attention.wo", n_embd, n_head * value);
    const ffn = (hub: string, own: string, n: number) => {
      put(`${hub}.gate_proj`, `${own}.w1`, n, n_embd);
      put(`${hub}.down_proj`, `${own}.w2`, n_embd, n);
      put(`${hub}.up_proj`, `${own}.w3`, n, n_embd);
    };
    if (il === 0) ffn("mlp", "feed_forward", n_ff);
    else {
      put("mlp.gate", "gate", n_expert, n_embd);
      ffn("mlp.shared_experts", "shared_experts", n_ff_exp);
      for (let e = 0; e < n_expert; e++) ffn(`mlp.experts.${e}`, `experts.${e}`, n_ff_exp);
    }
  }
  return out;
}

const PARAMS = {
  dim: n_embd,
  n_layers: 2,
  head_dim: nope + rope,
  hidden_dim: n_ff,
  n_heads: n_head,
  n_kv_heads: n_head,
  norm_eps: 1e-5,
  vocab_size: VOCAB_SIZE,
  rope_theta: 10000,
  max_position_embeddings: 512,
  tied_embeddings: false,
  q_lora_rank: qRank,
  kv_lora_rank: rank,
  qk_nope_head_dim: nope,
  qk_rope_head_dim: rope,
  v_head_dim: value,
  llama_4_scaling: { original_max_position_embeddings: 128, beta: 0.25 },
  yarn: { original_max_position_embeddings: 64, factor: 8, apply_scale: false, beta: 32, alpha: 1 },
  moe: {
    first_k_dense_replace: 1,
    num_experts: n_expert,
    num_experts_per_tok: 2,
    num_expert_groups: 1,
    num_expert_groups_per_tok: 1,
    routed_scale: 1.5,
    expert_hidden_dim: n_ff_exp,
    num_shared_experts: 1,
  },
};

/** The same model in both layouts. */
function write(dir: string): void {
  const named = (place: 0 | 1): TestTensors =>
    Object.fromEntries(
      shapes().map((row): [string, TestTensors[string]] => [row[place], floats(row[0], row[2])])
        .sort(([a], [b]) => a < b ? -1 : 1),
    );
  writeCheckpoint(`${dir}own`, {
    config: {},
    tensors: named(1),
    files: { "config.json": undefined, "params.json": PARAMS },
  });
  Deno.renameSync(`${dir}own/model.safetensors`, `${dir}own/consolidated.safetensors`);
  const { moe, yarn, llama_4_scaling: _, ...plain } = PARAMS;
  writeCheckpoint(`${dir}hub`, {
    config: {
      ...testCheckpoint("llama").config,
      ...plain,
      hidden_size: n_embd,
      num_hidden_layers: 2,
      num_attention_heads: n_head,
      num_key_value_heads: n_head,
      intermediate_size: n_ff,
      rms_norm_eps: PARAMS.norm_eps,
      architectures: ["DeepseekV3ForCausalLM"],
      model_type: "deepseek_v3",
      first_k_dense_replace: moe.first_k_dense_replace,
      n_routed_experts: n_expert,
      num_experts_per_tok: 2,
      moe_intermediate_size: n_ff_exp,
      n_shared_experts: 1,
      routed_scaling_factor: moe.routed_scale,
      n_group: 1,
      topk_group: 1,
      norm_topk_prob: true,
      scoring_func: "softmax",
      tie_word_embeddings: false,
      rope_scaling: {
        type: "yarn",
        factor: yarn.factor,
        original_max_position_embeddings: yarn.original_max_position_embeddings,
        beta_fast: yarn.beta,
        beta_slow: yarn.alpha,
        mscale_all_dim: 1,
      },
    },
    tensors: named(0),
  });
}

Deno.test("prepare() reads Mistral's own layout as the same model in the layout of the hub", () =>
  withFolder(async (dir) => {
    write(dir);
    await prepare(`${dir}own`, `${dir}own.gguf`, { outtype: "bf16" });
    await prepare(`${dir}hub`, `${dir}hub.gguf`, { outtype: "bf16" });
    using own = openGguf(`${dir}own.gguf`);
    using hub = openGguf(`${dir}hub.gguf`);
    const ours = new Map(own.tensors.map((t) => [t.name, t]));
    assert.deepEqual([...ours.keys()].sort(), hub.tensors.map((t) => t.name).sort());
    for (const t of hub.tensors) assert.deepEqual(own.readTensor(ours.get(t.name)!), hub.readTensor(t), t.name);
    const keys = (file: typeof own) =>
      new Map([...file.metadata].filter(([key]) => key.startsWith("deepseek2.")).map(([key, v]) => [key, v.value]));
    const [a, b] = [keys(own), keys(hub)];
    assert.equal(a.get("deepseek2.attention.temperature_scale"), 0.25);
    assert.equal(a.get("deepseek2.attention.temperature_length"), 128);
    for (const name of ["scale", "length"]) a.delete(`deepseek2.attention.temperature_${name}`);
    b.delete("deepseek2.attention.latent_norm_rms_epsilon"); // the hub's class has one of its own
    assert.deepEqual([...a].sort(), [...b].sort());
  }));

Deno.test("openPrepared() names the field of params.json that is wrong", () =>
  withFolder((dir) => {
    write(dir);
    const params = { ...PARAMS, yarn: { ...PARAMS.yarn, beta: "32" } };
    Deno.writeTextFileSync(`${dir}own/params.json`, JSON.stringify(params));
    assert.throws(() => openPrepared(`${dir}own`), {
      code: "model.config",
      message: /field "beta" of .*params\.json \(yarn\): found "32", expected a number/,
    });
  }));

Deno.test("openPrepared() answers any params.json with a plan or a refusal of its own", () =>
  withFolder((dir) => {
    write(dir);
    const odd = fc.oneof(
      fc.constantFrom(null, 0, 1, -1, 7, 1.5, 2 ** 31, 2 ** 53, "", true, [], {}, [1], { factor: 2 }),
      fc.integer({ min: 0, max: 300 }),
    );
    const fields = [
      ...Object.keys(PARAMS),
      ...Object.keys(PARAMS.moe).map((f) => `moe.${f}`),
      "yarn.factor",
      "quantization",
    ];
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.constantFrom(...fields), odd), { minLength: 1, maxLength: 3 }), (changes) => {
        const params = structuredClone(PARAMS) as Record<string, unknown>;
        for (const [field, value] of changes) {
          const [outer, inner] = field.split(".");
          if (inner === undefined) params[outer] = value;
          else if (typeof params[outer] === "object" && params[outer] !== null) {
            (params[outer] as Record<string, unknown>)[inner] = value;
          }
        }
        Deno.writeTextFileSync(`${dir}own/params.json`, JSON.stringify(params));
        try {
          openPrepared(`${dir}own`).close();
        } catch (error) {
          if (!(error instanceof BloomeryError)) throw error;
        }
      }),
      { numRuns: 100 },
    );
  }));
