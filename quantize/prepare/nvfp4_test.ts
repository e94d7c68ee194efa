import assert from "node:assert/strict";
import { openGguf } from "../../core/gguf/read.ts";
import { repoDir } from "../../tests/shared.ts";
import { floats, noise, sha256, testCheckpoint, type TestTensors, withFolder, writeCheckpoint } from "./_testing.ts";
import { bytesOf } from "./dtype.ts";
import { prepare } from "./mod.ts";

const golden: Record<string, string> =
  JSON.parse(Deno.readTextFileSync(`${repoDir}tests/goldens/prepare/sums.json`)).nvfp4;

/** What the two libraries that write NVFP4 put into the configuration, and how they spell the tensors. */
const four = { num_bits: 4, type: "float", group_size: 16 };
const modelopt = {
  quant_method: "modelopt",
  quant_algo: "NVFP4",
  config_groups: { group_0: { input_activations: four, weights: four, targets: ["Linear"] } },
};
const CONFIGS: Record<string, Record<string, unknown>> = {
  "nv-ct": {
    quant_method: "compressed-tensors",
    format: "nvfp4-pack-quantized",
    config_groups: {
      group_0: {
        format: "nvfp4-pack-quantized",
        weights: { ...four, strategy: "tensor_group", symmetric: true },
        input_activations: { ...four, strategy: "tensor_group", symmetric: true, dynamic: "local" },
        targets: ["Linear"],
      },
    },
    ignore: ["lm_head"],
  },
  "nv-modelopt": modelopt,
  "nv-wide": { ...modelopt, quant_algo: "W4A16_NVFP4" },
  "nv-mixed": {
    quant_method: "modelopt",
    quant_algo: "MIXED_PRECISION",
    quantized_layers: {
      "model.layers.0.mlp.down_proj": { quant_algo: "W4A16_NVFP4", group_size: 16 },
      "model.layers.1.mlp.down_proj": { quant_algo: "NVFP4", group_size: 16 },
    },
  },
};

function tensorsOf(packed: boolean): TestTensors {
  const out: TestTensors = {};
  const one = (x: number) => ({ dtype: "F32", shape: [1], data: bytesOf(Float32Array.of(x)) });
  for (const [name, t] of Object.entries(testCheckpoint("qwen3").tensors)) {
    const shape = t.shape.map((n) => n === 96 ? 128 : n); // rows of whole blocks
    if (!/_proj\.weight$/.test(name)) {
      out[name] = floats(name, shape);
      continue;
    }
    const [rows, columns] = shape;
    const base = name.replace(/\.weight$/, "");
    const codes = Uint8Array.from(noise(name, rows * columns / 2), (x) => Math.floor((x + 1) * 127.99));
    const scales = Uint8Array.from(noise(`${name}s`, rows * columns / 16), (x) => 40 + Math.floor((x + 1) * 20));
    out[packed ? `${name}_packed` : name] = { dtype: "U8", shape: [rows, columns / 2], data: codes };
    out[`${name}_scale`] = { dtype: "F8_E4M3", shape: [rows, columns / 16], data: scales };
    out[packed ? `${name}_global_scale` : `${name}_scale_2`] = one(packed ? 4 : 0.25);
    out[packed ? `${base}.input_global_scale` : `${base}.input_scale`] = one(packed ? 2 : 0.5);
  }
  return out;
}

for (const [folder, quantization_config] of Object.entries(CONFIGS)) {
  Deno.test(`prepare() writes an NVFP4 checkpoint (${folder}) as llama.cpp's converter does, to the byte`, () =>
    withFolder(async (dir) => {
      const config = { ...testCheckpoint("qwen3").config, intermediate_size: 128, quantization_config };
      writeCheckpoint(dir + folder, { config, tensors: tensorsOf(folder === "nv-ct") });
      await prepare(dir + folder, `${dir}o.gguf`, { outtype: "bf16" });
      assert.equal(await sha256(`${dir}o.gguf`), golden[folder]);
      using file = openGguf(`${dir}o.gguf`);
      const wide = { "nv-wide": 14, "nv-mixed": 1 }[folder];
      assert.equal(file.metadata.has("general.tensor_extra.prec_a4"), wide !== undefined);
      if (wide !== undefined) assert.equal(file.metadata.strs("general.tensor_extra.name").length, wide);
    }));
}
