import assert from "node:assert/strict";
import { openGguf } from "../../core/gguf/read.ts";
import { floats, noise, testCheckpoint, type TestTensors, withFolder, writeCheckpoint } from "./_testing.ts";
import { bytesOf, convertFloats } from "./dtype.ts";
import { openPrepared, prepare, type PrepareFileOptions } from "./mod.ts";

const qwen3 = testCheckpoint("qwen3");
const DOWN = "model.layers.1.mlp.down_proj.weight"; // [64, 96]

type Refusal = { code: string; message: string; hint?: string; at: Record<string, unknown> };

/** Writes a checkpoint, expects `prepare` to refuse it, and that nothing is left. */
function refused(
  change: (tensors: TestTensors, config: Record<string, unknown>) => void,
  options: PrepareFileOptions = {},
  kind: Parameters<typeof testCheckpoint>[0] = "qwen3",
): Promise<Refusal> {
  return withFolder(async (dir) => {
    const made = testCheckpoint(kind);
    const tensors = { ...made.tensors };
    const config = { ...made.config };
    change(tensors, config);
    writeCheckpoint(`${dir}model`, { ...made, config, tensors });
    const error = await prepare(`${dir}model`, `${dir}o.gguf`, options).then(
      () => assert.fail("it was accepted"),
      (e: unknown) => e as Refusal,
    );
    assert.deepEqual([...Deno.readDirSync(dir)].map((e) => e.name), ["model"], "something is left");
    return error;
  });
}

/** The tensor with one value set. */
function withValue(name: string, shape: number[], at: number, value: number, dtype: "F32" | "BF16" = "BF16") {
  const values = noise(name, shape.reduce((a, b) => a * b, 1));
  values[at] = value;
  return { dtype, shape, data: convertFloats(bytesOf(values), "F32", dtype) };
}

Deno.test("prepare() tells of all unmapped, missing and misshapen tensors at once", async () => {
  const error = await refused((t) => {
    t["model.visual.blocks.0.attn.weight"] = floats("v", [4, 4]); // another modality: not a problem
    t["extra.one"] = floats("e", [4]);
    t["model.layers.0.mlp.extra_two.weight"] = floats("f", [4]);
    t["model.layers.7.mlp.up_proj.weight"] = floats("g", [96, 64]);
    delete t["model.layers.0.self_attn.q_norm.weight"];
    delete t["model.layers.1.self_attn.q_norm.weight"];
    t[DOWN] = floats(DOWN, [96, 64]);
  });
  assert.equal(error.code, "model.checkpoint");
  const problems = error.at.problems as string[];
  assert.equal(problems.length, 4);
  assert.match(
    error.message,
    /2 tensors have no place in architecture qwen3: "extra\.one", "model\.layers\.0\.mlp\.extra/,
  );
  assert.match(error.message, /"model\.layers\.7\.mlp\.up_proj\.weight" belongs to block 7, expected blocks 0 to 1/);
  assert.match(error.message, /q_norm\.weight" is missing for il = 0-1/);
  assert.match(error.message, /down_proj\.weight" has shape \[96, 64\], expected \[64, 96\]/);
  assert.match(error.hint!, /--ignore/);
});

Deno.test("prepare() passes over ignored tensors that the index names and no file has", () =>
  withFolder(async (dir) => {
    writeCheckpoint(`${dir}model`, testCheckpoint("qwen3moe")); // in three files
    const path = `${dir}model/model.safetensors.index.json`;
    const index = JSON.parse(Deno.readTextFileSync(path));
    index.weight_map["model.extra.weight"] = "model-00001-of-00003.safetensors";
    index.weight_map["vision.patch.weight"] = "vision.safetensors"; // never fetched
    Deno.writeTextFileSync(path, JSON.stringify(index));
    await assert.rejects(prepare(`${dir}model`, `${dir}o.gguf`), {
      code: "format.checkpoint",
      message: /vision\.safetensors is missing/,
    });
    await assert.rejects(prepare(`${dir}model`, `${dir}o.gguf`, { ignore: ["vision.*"] }), {
      code: "format.checkpoint",
      message: /"model\.extra\.weight" is not in model-00001-of-00003\.safetensors/,
    });
    const { n_tensors } = await prepare(`${dir}model`, `${dir}o.gguf`, { ignore: ["vision.*", "model.extra.*"] });
    writeCheckpoint(`${dir}plain`, testCheckpoint("qwen3moe"));
    assert.equal(n_tensors, (await prepare(`${dir}plain`, `${dir}p.gguf`)).n_tensors);
  }));

Deno.test("prepare() passes over unknown tensors that are told to be ignored", () =>
  withFolder(async (dir) => {
    const tensors = { ...qwen3.tensors, "extra.one": floats("e", [4]) };
    writeCheckpoint(`${dir}model`, { ...qwen3, tensors });
    const made = await prepare(`${dir}model`, `${dir}o.gguf`, { ignore: ["extra.*"] });
    assert.equal(made.n_tensors, Object.keys(qwen3.tensors).length);
  }));

Deno.test("prepare() names incomplete experts", async () => {
  const error = await refused(
    (t) => {
      delete t["model.layers.1.mlp.experts.3.up_proj.weight"];
    },
    {},
    "qwen3moe",
  );
  assert.match(error.message, /block 1 has 35 of the 36 tensors/);
  assert.match(error.message, /nothing makes tensor "blk\.\{il\}\.ffn_up_exps\.weight" for il = 1/);
});

Deno.test("prepare() follows the converter on tied and stored heads, and refuses a head that is nowhere", async () => {
  for (const stored of ["none", "equal", "different"] as const) {
    await withFolder(async (dir) => {
      const head = stored === "equal"
        ? qwen3.tensors["model.embed_tokens.weight"]
        : floats("other", qwen3.tensors["model.embed_tokens.weight"].shape);
      const tensors = stored === "none" ? qwen3.tensors : { ...qwen3.tensors, "lm_head.weight": head };
      writeCheckpoint(`${dir}model`, { ...qwen3, tensors });
      await prepare(`${dir}model`, `${dir}o.gguf`);
      using file = openGguf(`${dir}o.gguf`);
      assert.equal(file.tensors.some((t) => t.name === "output.weight"), stored !== "none");
    });
  }
  const error = await refused((_, config) => {
    config.tie_word_embeddings = false;
  });
  assert.match(error.message, /tensor "lm_head\.weight" is missing/);
});

Deno.test("prepare() refuses NaN and infinity with tensor, row and column, and leaves no file", async () => {
  for (const [value, text] of [[NaN, "NaN"], [Infinity, "Infinity"], [-Infinity, "-Infinity"]] as const) {
    for (const outtype of ["bf16", "f32", "f16", "q8_0"] as const) {
      const error = await refused((t) => {
        t[DOWN] = withValue(DOWN, [64, 96], 5 * 96 + 7, value);
      }, { outtype });
      assert.equal(error.code, "quantize.non_finite");
      assert.match(error.message, /"blk\.1\.ffn_down\.weight".*row 5, column 7 is/);
      assert.ok(error.message.includes(text));
    }
  }
});

Deno.test("prepare() refuses values that f16 cannot hold, and keeps them in bf16", async () => {
  const change = (t: TestTensors) => {
    t[DOWN] = withValue(DOWN, [64, 96], 96, 70000);
  };
  const error = await refused(change, { outtype: "f16" });
  assert.equal(error.code, "quantize.overflow");
  assert.match(error.message, /"blk\.1\.ffn_down\.weight".*row 1, column 0 is 70144, beyond 65504/);
  assert.match(error.hint!, /bf16/);
  await withFolder(async (dir) => {
    const tensors = { ...qwen3.tensors, [DOWN]: withValue(DOWN, [64, 96], 96, 70000) };
    writeCheckpoint(`${dir}model`, { ...qwen3, tensors });
    assert.equal((await prepare(`${dir}model`, `${dir}o.gguf`)).types["f16"], undefined);
  });
});

Deno.test("prepare() knows GPTQ, AWQ and bitsandbytes and says what to take instead", async () => {
  const gptq = await refused((t) => {
    t["model.layers.0.mlp.up_proj.qweight"] = { dtype: "I32", shape: [8, 96], data: new Uint8Array(4 * 8 * 96) };
    t["model.layers.0.mlp.up_proj.qzeros"] = { dtype: "I32", shape: [1, 12], data: new Uint8Array(4 * 12) };
  });
  assert.equal(gptq.code, "model.quantized");
  assert.match(gptq.message, /quantized with GPTQ or AWQ/);
  assert.match(gptq.hint!, /original release/);
  const awq = await refused((_, config) => {
    config.quantization_config = { quant_method: "awq", bits: 4 };
  });
  assert.match(awq.message, /quantized with AWQ/);
  const bnb = await refused((_, config) => {
    config.quantization_config = { quant_method: "bitsandbytes" };
  });
  assert.match(bnb.message, /bitsandbytes/);
});

Deno.test("prepare() refuses unknown architectures with those it knows, and takes --arch", async () => {
  const error = await refused((_, config) => {
    config.architectures = ["OtherForCausalLM"];
  });
  assert.equal(error.code, "model.unknown_architecture");
  assert.match(error.message, /"OtherForCausalLM"/);
  assert.match(error.hint!, /Qwen3ForCausalLM/);
  for (
    const [name, said] of [["RaonForCausalLM", /Raon-1/], ["MistralLarge4ForCausalLM", /Mistral Large 4/]] as const
  ) {
    const named = await refused((_, config) => {
      config.architectures = [name];
    });
    assert.match(named.message, said);
    assert.equal(named.hint, undefined, "--arch of another family would make a file that answers nonsense");
  }
  await withFolder(async (dir) => {
    writeCheckpoint(`${dir}model`, { ...qwen3, config: { ...qwen3.config, architectures: ["OtherForCausalLM"] } });
    const made = await prepare(`${dir}model`, `${dir}o.gguf`, { arch: "qwen3" });
    assert.equal(made.architecture, "qwen3");
  });
});

Deno.test("prepare() names file, field, found and wanted of a bad configuration", async () => {
  const error = await refused((_, config) => {
    config.num_hidden_layers = "two";
  });
  assert.equal(error.code, "model.config");
  assert.match(error.message, /"num_hidden_layers" of .*config\.json: found "two", expected a whole number/);
  const none = await withFolder((dir) => {
    writeCheckpoint(`${dir}model`, { ...qwen3, files: { "config.json": undefined } });
    try {
      openPrepared(`${dir}model`);
    } catch (e) {
      return e as Refusal;
    }
    return assert.fail("it was accepted");
  });
  assert.match(none.message, /config\.json is missing/);
  await withFolder((dir) => {
    const files = { "config.json": undefined, "params.json": { dim: 64, n_layers: 2 } };
    writeCheckpoint(`${dir}model`, { ...qwen3, files });
    assert.throws(() => openPrepared(`${dir}model`), {
      code: "model.config",
      message: /Mistral's own layout \(params\.json\)/,
    });
  });
});

Deno.test("prepare() lists short, empty, missing and pointer shards first of all", () =>
  withFolder((dir) => {
    const moe = testCheckpoint("qwen3moe");
    const shard = (i: number) => `${dir}model/model-0000${i}-of-00003.safetensors`;
    const problems = (): string[] => {
      try {
        openPrepared(`${dir}model`);
      } catch (e) {
        return (e as Refusal).at.problems as string[];
      }
      return [];
    };
    writeCheckpoint(`${dir}model`, moe);
    assert.deepEqual(problems(), []);
    Deno.truncateSync(shard(2), Deno.statSync(shard(2)).size - 10);
    Deno.writeFileSync(shard(3), new Uint8Array(0));
    assert.equal(problems().length, 2);
    assert.match(problems()[0], /model-00002-of-00003.*10/);
    assert.match(problems()[1], /model-00003-of-00003.*empty/);
    Deno.writeTextFileSync(shard(3), "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n");
    assert.match(problems()[1], /Git LFS pointer/);
    Deno.removeSync(shard(2));
    assert.match(problems().join(), /model-00002-of-00003\.safetensors is missing/);
  }));
