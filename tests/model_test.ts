/** Binding, planning and running model files: what is refused, and by which name. */
import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { BloomeryError } from "../core/errors.ts";
import { Engine } from "../core/engine/mod.ts";
import type { DecoderSpec } from "../core/arch/decoder.ts";
import { Keys } from "../core/arch/keys.ts";
import { architectureOf } from "../core/arch/mod.ts";
import { bindModel, buildProgram } from "../core/arch/model.ts";
import type { GgufValue } from "../core/gguf/metadata.ts";
import { openGguf } from "../core/gguf/read.ts";
import type { TensorInfo } from "../core/gguf/write.ts";
import type { CacheType } from "../core/plan/cache.ts";
import { describePlan } from "../core/plan/describe.ts";
import { planModel, type PlanOptions } from "../core/plan/plan.ts";
import { encodeProgram } from "../core/program/encode.ts";
import { openReferenceBackend } from "../core/program/reference.ts";
import { testFolder } from "./models.ts";
import { FAMILY_MODELS, familyFile, type FamilyOptions, writeFamilyModel } from "./family_models.ts";

let n = 0;
async function bind(model: string, options: FamilyOptions = {}): Promise<ReturnType<typeof bindModel>> {
  using file = openGguf(await writeFamilyModel(`${testFolder()}/bind-${n++}.gguf`, FAMILY_MODELS[model], options));
  return bindModel(file);
}

function refuses(code: string, model: string, options: FamilyOptions, match?: RegExp): Promise<void> {
  return assert.rejects(bind(model, options), (e) => {
    assert.ok(e instanceof BloomeryError, String(e));
    assert.equal(e.code, code);
    if (match) assert.match(e.message, match);
    return true;
  });
}

Deno.test("bindModel() names what a model file lacks or has wrong", async () => {
  await refuses("model.missing_tensor", "qwen3", {
    tensors: (t) => t.filter((x) => x.name !== "blk.1.attn_k_norm.weight"),
  }, /blk\.1\.attn_k_norm\.weight/);
  await refuses("model.tensor_shape", "llama", {
    tensors: (t) => t.map((x) => x.name === "blk.0.ffn_down.weight" ? { ...x, ne: [64, 96] } : x),
  }, /\[64,96\].*\[96,64\]/);
  // All problems at once.
  await refuses("model.missing_tensor", "llama", {
    tensors: (t) => t.filter((x) => !/attn_[qk]\.weight/.test(x.name)),
  }, /attn_q.*attn_k.*attn_q.* and 1 more/);
  // A draft block is bound as a layer is.
  await refuses("model.missing_tensor", "glm4moe", {
    tensors: (t) => t.filter((x) => !/nextn\.eh_proj/.test(x.name)),
  }, /blk\.3\.nextn\.eh_proj\.weight/);
  await refuses("model.missing_key", "qwen3", { missing: ["qwen3.block_count"] }, /qwen3\.block_count/);
  // A block_count that is too small must not run silently.
  await refuses("model.unused_layers", "llama", {
    written: { "llama.block_count": { type: "u32", value: 1 } },
  }, /1 layers.*blk\.1\./);
  await refuses("model.architecture", "llama", {
    written: { "general.architecture": { type: "str", value: "nonesuch" } },
  }, /nonesuch.*llama/);
  for (
    const [name, said] of [["raon", /Raon-1.*linear attention/], [
      "mistral-large4",
      /Mistral Large 4.*softmax/,
    ]] as const
  ) {
    await refuses(
      "model.architecture",
      "llama",
      { written: { "general.architecture": { type: "str", value: name } } },
      said,
    );
  }
  const set = (key: string, value: number): FamilyOptions => ({
    written: { [`qwen3moe.${key}`]: { type: "u32", value } },
  });
  for (
    const [key, value] of [["attention.head_count_kv", 3], ["expert_used_count", 9], ["block_count", 0], [
      "rope.dimension_count",
      31,
    ]] as const
  ) {
    await refuses("model.key_value", "qwen3moe", set(key, value), new RegExp(key));
  }
  await refuses("model.rope_scaling", "llama", {
    written: { "llama.rope.scaling.type": { type: "str", value: "twisted" } },
  });
  await refuses("model.missing_key", "gemma3", { missing: ["gemma3.attention.sliding_window"] }, /sliding_window/);
});

Deno.test("Gemma's 27B scales queries by n_embd / n_head", () => {
  for (const [name, layers] of [["gemma2", 46], ["gemma3", 62]] as const) {
    const file = familyFile(name), spec = () => architectureOf(file).spec(new Keys(file, name)) as DecoderSpec;
    assert.equal(spec().attn_scale, 32 ** -0.5);
    file.metadata.set(`${name}.block_count`, { type: "u32", value: layers });
    assert.equal(spec().attn_scale, 16 ** -0.5);
  }
});

Deno.test("LongRoPE: a file needs its shorter factors, and holds for the length they are for", async () => {
  assert.equal((await bind("phi3, long")).spec.n_ctx_train, 256);
  assert.equal((await bind("phi3")).spec.n_ctx_train, 512);
  const without = (t: TensorInfo[]) => t.filter((x) => !x.name.startsWith("rope_factors_short"));
  await refuses("model.missing_tensor", "phi3, long", { tensors: without }, /rope_factors_short/);
  const wide = (t: TensorInfo[]) => t.map((x) => x.name.startsWith("rope_factors_short") ? { ...x, ne: [16] } : x);
  await refuses("model.tensor_shape", "phi3, long", { tensors: wide }, /\[16\], expected f32 \[12\]/);
});

Deno.test("bindModel() refuses keys of Gemma's, Granite's and others that cannot be", async () => {
  const refusesKey = (model: string, key: string, value: GgufValue) =>
    refuses("model.key_value", model, { written: { [`${FAMILY_MODELS[model].arch}.${key}`]: value } }, new RegExp(key));
  const u32 = (value: number): GgufValue => ({ type: "u32", value });
  const f32s = (...v: number[]): GgufValue => ({ type: "array", elem: "f32", value: Float32Array.from(v) });
  await refusesKey("gemma4", "attention.shared_kv_layers", u32(4)); // nobody's to share
  await refusesKey("gemma4", "attention.shared_kv_layers", u32(3)); // a windowed layer only
  await refusesKey("gemma4", "attention.shared_kv_layers", u32(9));
  await refusesKey("gemma4", "attention.value_length", u32(32));
  await refusesKey("gemma4", "rope.dimension_count_swa", u32(48));
  await refusesKey("gemma4", "attention.head_count_kv", u32(3));
  await refusesKey("gemma3n", "altup.active_idx", u32(3));
  await refusesKey("gemma3n", "altup.num_inputs", u32(1));
  await refusesKey("gemma3n", "activation_sparsity_scale", f32s(1, NaN, 1));
  await refusesKey("granite", "logit_scale", { type: "f32", value: 0 });
  // Only layers that see all may take their keys as values.
  await refuses("model.missing_tensor", "gemma4", {
    tensors: (t) => t.filter((x) => x.name !== "blk.0.attn_v.weight"),
  }, /blk\.0\.attn_v/);
});

Deno.test("bindModel() refuses a hash table that names experts which are not there", async () => {
  const path = `${testFolder()}/hash.gguf`, model = FAMILY_MODELS.deepseek4;
  await writeFamilyModel(path, { ...model, ints: [[/tid2eid/, 1000]] });
  using file = openGguf(path);
  assert.throws(() => bindModel(file), {
    code: "model.tensor_value",
    message: /tid2eid.*names expert \d+, expected 0 to/,
  });
});

Deno.test("bindModel() refuses keys of sparse and hashed families that do not fit each other", async () => {
  const refusesKey = (model: string, key: string, value: GgufValue) =>
    refuses("model.key_value", model, { written: { [`${FAMILY_MODELS[model].arch}.${key}`]: value } }, new RegExp(key));
  const u32 = (value: number): GgufValue => ({ type: "u32", value });
  const ints = (...v: number[]): GgufValue => ({ type: "array", elem: "i32", value: Int32Array.from(v) });
  const longs = (...v: bigint[]): GgufValue => ({ type: "array", elem: "u64", value: BigUint64Array.from(v) });
  const flags = (...v: number[]): GgufValue => ({ type: "array", elem: "bool", value: Uint8Array.from(v) });
  await refusesKey("deepseek2, V3", "rope.dimension_count", u32(48)); // a head without its own part
  await refusesKey("glm-dsa", "attention.indexer.types", flags(0, 1, 1)); // no rows to share
  await refusesKey("glm5-next", "attention.indexer.kpool", u32(5)); // no divisor of top_k
  await refusesKey("glm5-next", "rope.dimension_count", u32(16));
  await refusesKey("deepseek4", "attention.compress_ratios", ints(0, 2, 128, 0)); // V4.1's
  await refusesKey("deepseek4", "attention.output_group_count", u32(3));
  await refusesKey("deepseek41", "attention.compress_ratios", ints(0, 2, 4, 1, 1)); // layer 2 reads rows of ratio 2
  await refusesKey("deepseek41", "attention.index_source_layer_ids", ints(1, 3)); // layer 4 has the tensors
  await refusesKey("deepseek41", "attention.candidate_source_layer_id", u32(2));
  await refusesKey("deepseek41", "engram.primes", longs(31n, 37n, 41n));
  await refusesKey("deepseek41", "engram.offsets", longs(0n, 31n, 68n, 129n)); // past the table
  await refusesKey("qwen4exp", "ple.layer_multipliers", longs(3n, 5n));
  await refusesKey("qwen4exp", "ple.layers", ints(1, 2));
  await refusesKey("qwen3next", "ssm.group_count", u32(3));
  await refusesKey("kimi-k3", "attn_res.block_size", u32(0));
  await refusesKey("lfm2", "attention.head_count_kv", ints(0, 2, 0, 1)); // two kinds of attention
  await refusesKey("lfm2", "attention.head_count_kv", ints(0, 0, 0, 0));
  await refusesKey("lfm2", "shortconv.l_cache", u32(1));
  await refusesKey("nemotron_h", "feed_forward_length", ints(0, 32, 96, 0));
  await refusesKey("falcon-h1", "ssm.group_count", u32(3));
  await refusesKey("mamba2", "ssm.time_step_rank", u32(3));
  await refusesKey("mamba", "ssm.time_step_rank", u32(0));
  await refusesKey("llama4", "attention.sliding_window", u32(0));
  await refusesKey("qwen3vl", "rope.section_order", { type: "str", value: "xyzt" });
});

Deno.test("bindModel() gives a model or an error of the hierarchy, whatever a key holds", () => {
  const files = Object.keys(FAMILY_MODELS).map((name) => familyFile(name));
  const number = fc.oneof(fc.constantFrom(0, 1, 2, 3, 7, 64, 2 ** 32 - 1), fc.nat(300));
  const real = fc.oneof(fc.constantFrom(0, -1, NaN, Infinity), fc.float());
  /** A value of the same kind as the one there is, or none. */
  const other = (was: GgufValue): fc.Arbitrary<GgufValue | undefined> => {
    const array = (ints: number[]): GgufValue => ({ type: "array", elem: "i32", value: Int32Array.from(ints) });
    const made = was.type === "array"
      ? fc.array(fc.integer({ min: -1, max: 300 }), { maxLength: 12 }).map(array)
      : was.type === "f32"
      ? real.map((value): GgufValue => ({ type: "f32", value }))
      : number.map((value): GgufValue => ({ type: "u32", value }));
    return fc.option(made, { nil: undefined });
  };
  const change = fc.constantFrom(...files).chain((file) =>
    fc.constantFrom(...file.metadata.keys()).chain((key) =>
      other(file.metadata.get(key)!).map((value) => ({ file, key, value }))
    )
  );
  fc.assert(
    fc.property(change, ({ file, key, value }) => {
      const was = file.metadata.get(key)!;
      if (value) file.metadata.set(key, value);
      else file.metadata.remove(key);
      try {
        bindModel(file);
      } catch (e) {
        assert.ok(e instanceof BloomeryError, `${file.name}, ${key}: ${e}`);
      } finally {
        file.metadata.set(key, was);
      }
    }),
    { numRuns: 500 },
  );
});

Deno.test("bindModel() warns of tensors and keys that nobody uses", async () => {
  const model = await bind("llama", {
    written: { "llama.attention.twist": { type: "f32", value: 2 } },
    tensors: (t) => [...t, { ...t[t.length - 1], name: "blk.0.ffn_twist.weight" }],
  });
  assert.equal(model.warnings.length, 2);
  assert.match(model.warnings[0], /blk\.0\.ffn_twist\.weight/);
  assert.match(model.warnings[1], /llama\.attention\.twist/);
  for (const name of Object.keys(FAMILY_MODELS)) assert.deepEqual((await bind(name)).warnings, [], name);
});

Deno.test("gpt-oss without rope.scaling.yarn_truncate has the release's frequencies", async () => {
  const freqs = async (options: FamilyOptions) => {
    const { spec } = await bind("gpt-oss", options);
    return (spec as unknown as { rope: { inv_freq: Float32Array } }).rope.inv_freq;
  };
  const key = "gpt-oss.rope.scaling.yarn_truncate", said = await freqs({});
  assert.deepEqual(await freqs({ missing: [key] }), said);
  assert.notDeepEqual(await freqs({ written: { [key]: { type: "bool", value: true } } }), said);
});

Deno.test("planModel() refuses with every term of the sum, and prints what it accepts", async () => {
  const model = await bind("llama");
  const device = { index: 0, kind: "cpu", name: "a box", memory_bytes: 2 ** 30, free_bytes: 2 ** 30, features: [] };
  const options: PlanOptions = {
    device,
    n_ctx: 512,
    n_cache: 512,
    n_ubatch: 64,
    n_seq: 1,
    cacheTypeK: "f16",
    cacheTypeV: "q8_0",
  };
  const plan = planModel(model, options);
  assert.equal(plan.caches.length, 1);
  assert.equal(plan.caches[0].n_pages, 8);
  assert.equal(plan.caches[0].bytes, 512 * 2 * (64 * 2 + 64 / 32 * 34));
  assert.match(describePlan(plan), /a box.*\n.*weights/);
  assert.throws(() => planModel(model, { ...options, device: { ...device, free_bytes: 1000 } }), (e) => {
    return e instanceof BloomeryError && e.code === "plan.does_not_fit" &&
      /weights .* \+ cache .* \+ scratch/.test(e.message);
  });
});

Deno.test("planModel() refuses a cache type whose blocks would span the heads of a card", async () => {
  const box = { index: 0, kind: "cpu", name: "a box", memory_bytes: 2 ** 30, free_bytes: 2 ** 30, features: [] };
  const shared = { n_ctx: 512, n_cache: 512, n_ubatch: 64, n_seq: 1 } as const;
  const plan = (model: Awaited<ReturnType<typeof bind>>, device: PlanOptions["device"], K: CacheType, V: CacheType) =>
    planModel(model, { ...shared, device, cacheTypeK: K, cacheTypeV: V });
  // qwen3 has heads of 48; two of them are three whole blocks.
  const model = await bind("qwen3"), card = { ...box, index: 1, kind: "cuda", name: "a card" };
  plan(model, box, "q8_0", "q8_0");
  plan(model, card, "f16", "f16");
  for (const [K, V, stream] of [["q8_0", "f16", "k"], ["f16", "q8_0", "v"]] as const) {
    assert.throws(() => plan(model, card, K, V), (e) => {
      assert.ok(e instanceof BloomeryError && e.code === "plan.cache_type", String(e));
      assert.match(e.message, new RegExp(`in q8_0: a head of blk\\.0\\.${stream} has 48 elements`));
      return true;
    });
  }
  plan(await bind("llama"), card, "q8_0", "q8_0"); // heads of 32
});

Deno.test("a program encodes to the words its header promises", async () => {
  const model = await bind("qwen3moe");
  const p = buildProgram(model, { n_tok: 4, n_out: 2, n_seq: 4, n_page: 8 }, 10, 0);
  const bytes = encodeProgram(p);
  const words = new Uint32Array(bytes.buffer);
  assert.deepEqual([...words.subarray(0, 9)], [
    0x52504c42,
    2,
    4,
    2,
    4,
    1,
    p.tensors.length,
    p.ops.length,
    p.outputs.length,
  ]);
  const opWords = p.ops.reduce((sum, o) => sum + 6 + o.dst.length + o.src.length + o.params.length, 0);
  assert.equal(words[9], 8);
  assert.equal(words.length, 10 + 13 * p.tensors.length + opWords + p.outputs.length);
});

Deno.test("Engine.step refuses what does not fit and leaves sequences as they were", async () => {
  const path = await writeFamilyModel(`${testFolder()}/step.gguf`, FAMILY_MODELS.llama);
  using file = openGguf(path);
  using backend = openReferenceBackend();
  using engine = await Engine.load(file, backend, { n_ctx: 100, n_cache: 128, n_ubatch: 4 });
  using a = engine.createSequence();
  const rejects = (tokens: number[], code: string) =>
    assert.rejects(engine.step([{ sequence: a, tokens, output: "last" }]), (e) => {
      return e instanceof BloomeryError && e.code === code;
    });
  await rejects(new Array(101).fill(1), "engine.context_full");
  await rejects([300], "engine.token_id");
  await rejects([-1], "engine.token_id");
  await rejects([1.5], "engine.token_id");
  assert.equal(a.length, 0);
  const [out] = await engine.step([{
    sequence: a,
    tokens: [1, 2, 3, 4, 5, 6, 7, 8, 9],
    output: "all",
    targets: [2, 3, -1, 5, 6, 7, 8, 9, -1],
  }]);
  assert.equal(out.n_rows, 9);
  assert.equal(out.targetLogprob[2], 0);
  assert.ok(out.targetLogprob[1] < 0);
  assert.equal(a.length, 9);
  using b = engine.createSequence();
  await assert.rejects(
    engine.step([{ sequence: b, tokens: new Array(90).fill(1), output: "none" }]),
    (e) => e instanceof BloomeryError && e.code === "engine.no_pages",
  );
  assert.equal(b.length, 0);
});
