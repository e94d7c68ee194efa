import assert from "node:assert/strict";
import { needingShared, sharedDir } from "../../tests/shared.ts";
import { floats, sha256, testCheckpoint, type TestTensors, withFolder, writeCheckpoint } from "./_testing.ts";
import { openPrepared, prepare } from "./mod.ts";

/** A DeepSeek V3.2 of two layers, with a draft layer after them. */
function withDraft(): { config: Record<string, unknown>; tensors: TestTensors } {
  const shapes: Record<string, number[]> = {
    "model.embed_tokens.weight": [272, 64],
    "model.norm.weight": [64],
    "lm_head.weight": [272, 64],
  };
  for (const il of [0, 1, 2]) {
    const put = (name: string, ...shape: number[]) => shapes[`model.layers.${il}.${name}`] = shape;
    for (const norm of ["input_layernorm", "post_attention_layernorm"]) put(`${norm}.weight`, 64);
    put("self_attn.q_a_proj.weight", 32, 64);
    put("self_attn.q_a_layernorm.weight", 32);
    put("self_attn.q_b_proj.weight", 2 * 24, 32);
    put("self_attn.kv_a_proj_with_mqa.weight", 40, 64);
    put("self_attn.kv_a_layernorm.weight", 32);
    put("self_attn.kv_b_proj.weight", 2 * 32, 32);
    put("self_attn.o_proj.weight", 64, 2 * 16);
    put("self_attn.indexer.wq_b.weight", 2 * 16, 32);
    put("self_attn.indexer.wk.weight", 16, 64);
    put("self_attn.indexer.weights_proj.weight", 2, 64);
    for (const w of ["weight", "bias"]) put(`self_attn.indexer.k_norm.${w}`, 16);
    for (const w of ["gate_proj", "up_proj"]) put(`mlp.${w}.weight`, 96, 64);
    put("mlp.down_proj.weight", 64, 96);
    if (il < 2) continue;
    put("eh_proj.weight", 64, 128);
    for (const w of ["enorm", "hnorm", "shared_head.norm"]) put(`${w}.weight`, 64);
  }
  return {
    config: {
      ...testCheckpoint("llama").config,
      architectures: ["DeepseekV32ForCausalLM"],
      model_type: "deepseek_v32",
      rope_scaling: null,
      num_attention_heads: 2,
      num_key_value_heads: 2,
      q_lora_rank: 32,
      kv_lora_rank: 32,
      qk_nope_head_dim: 16,
      qk_rope_head_dim: 8,
      v_head_dim: 16,
      index_n_heads: 2,
      index_head_dim: 16,
      index_topk: 8,
      moe_intermediate_size: 32,
      num_nextn_predict_layers: 1,
      tie_word_embeddings: false,
    },
    tensors: Object.fromEntries(Object.keys(shapes).sort().map((name) => [name, floats(name, shapes[name])])),
  };
}

Deno.test("draft layers are kept, left out, or alone with embeddings and head", () =>
  withFolder((dir) => {
    writeCheckpoint(`${dir}model`, withDraft());
    const open = (mtp: boolean | "only") => {
      using source = openPrepared(`${dir}model`, { mtp });
      const m = source.metadata;
      return {
        names: source.tensors.map((t) => t.name),
        keys: [m.u32("deepseek32.block_count"), m.u32("deepseek32.nextn_predict_layers", undefined)],
      };
    };
    const [kept, dropped, only] = [open(true), open(false), open("only")];
    const isDraft = (name: string) => name.startsWith("blk.2.");
    assert.deepEqual(dropped.names, kept.names.filter((n) => !isDraft(n)));
    assert.deepEqual(only.names, kept.names.filter((n) => isDraft(n) || !n.startsWith("blk.")));
    assert.ok(only.names.includes("blk.2.nextn.eh_proj.weight") && only.names.includes("token_embd.weight"));
    assert.deepEqual([kept.keys, dropped.keys, only.keys], [[3, 1], [2, undefined], [3, 1]]);
    writeCheckpoint(`${dir}none`, testCheckpoint("llama"));
    assert.throws(() => openPrepared(`${dir}none`, { mtp: "only" }), { code: "model.no_drafts" });
  }));

Deno.test({
  ...needingShared("prepare() writes only the draft layers as llama.cpp's converter does with --mtp, to the byte"),
  fn: () =>
    withFolder(async (dir) => {
      // Made by convert_hf_to_gguf.py 0.7.0 with the pre-tokenizer named qwen2: --mtp --outtype bf16 on this folder.
      await prepare(`${sharedDir}models/tiny/glm4_moe`, `${dir}o.gguf`, { outtype: "bf16", mtp: "only" });
      assert.equal(await sha256(`${dir}o.gguf`), "8ffdbcbd46330e494aa03df5c90eef3c2e92b7950a10916539da45e315d31311");
    }),
});
