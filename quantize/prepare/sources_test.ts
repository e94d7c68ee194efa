import assert from "node:assert/strict";
import { dequantize } from "../../core/program/dequantize.ts";
import { ggmlType } from "../../core/gguf/types.ts";
import { noise, testCheckpoint, type TestTensor, type TestTensors, withFolder, writeCheckpoint } from "./_testing.ts";
import { bytesOf, f32Of } from "./dtype.ts";
import { FP8_VALUES } from "./fp8.ts";
import { openPrepared, type PrepareOptions } from "./mod.ts";

const base = testCheckpoint("qwen3");
const DOWN = "model.layers.1.mlp.down_proj";
const bytes = (name: string, n: number) => Uint8Array.from(noise(name, n), (x) => Math.floor((x + 1) * 127.99));

const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];

/** Blocks as the format describes them: element `j` low, element `j + 16` (NVFP4: `+ 8`) high in one byte. */
function decode(type: string, blocks: Uint8Array, n: number): Float32Array {
  if (type !== "mxfp4" && type !== "nvfp4") return dequantize(ggmlType(type), blocks, n);
  return Float32Array.from({ length: n }, (_, i) => {
    if (type === "mxfp4") {
      const at = Math.floor(i / 32) * 17;
      const j = i % 32;
      return E2M1[(blocks[at + 1 + (j & 15)] >> (j < 16 ? 0 : 4)) & 15] * 2 ** (blocks[at] - 127);
    }
    const at = Math.floor(i / 64) * 36;
    const group = Math.floor((i % 64) / 16);
    const j = i % 16;
    const code = (blocks[at + 4 + group * 8 + (j & 7)] >> (j < 8 ? 0 : 4)) & 15;
    return E2M1[code] * FP8_VALUES["F8_E4M3"][blocks[at + group]];
  });
}

/** One tensor of the file as f32, of a checkpoint whose last down-projection is stored otherwise. */
function stored(
  tensors: TestTensors,
  options: PrepareOptions & { config?: Record<string, unknown>; name?: string } = {},
): Promise<{ values: Float32Array; type: string; names: string[] }> {
  return withFolder(async (dir) => {
    const kept = Object.fromEntries(Object.entries(base.tensors).filter(([name]) => !name.startsWith(DOWN)));
    const config = { ...base.config, intermediate_size: 96, ...options.config };
    writeCheckpoint(`${dir}model`, { ...base, config, tensors: { ...kept, ...tensors }, shards: 2 });
    using source = openPrepared(`${dir}model`, { outtype: "f32", ...options });
    const t = source.tensors.find((t) => t.name === (options.name ?? "blk.1.ffn_down.weight"))!;
    const parts: Uint8Array[] = [];
    for (let row = 0; row < t.n_rows; row += 7) parts.push(await source.read(t, row, Math.min(7, t.n_rows - row)));
    const all = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
    parts.reduce((at, p) => (all.set(p, at), at + p.length), 0);
    const n = t.ne.reduce((a, b) => a * b, 1);
    return { values: decode(t.type.name, all, n), type: t.type.name, names: source.tensors.map((t) => t.name) };
  });
}

const f32 = (shape: number[], values: ArrayLike<number>): TestTensor => ({
  dtype: "F32",
  shape,
  data: bytesOf(Float32Array.from(values)),
});

Deno.test("FP8_VALUES hold the formats' values", () => {
  const e4m3 = FP8_VALUES["F8_E4M3"];
  assert.deepEqual([e4m3[0x7e], e4m3[0xfe], e4m3[0x01], e4m3[0x38], e4m3[0x08]], [448, -448, 2 ** -9, 1, 2 ** -6]);
  assert.ok(Number.isNaN(e4m3[0x7f]) && Number.isNaN(e4m3[0xff]));
  const e5m2 = FP8_VALUES["F8_E5M2"];
  assert.deepEqual([e5m2[0x7b], e5m2[0x01], e5m2[0x3c], e5m2[0x7c]], [57344, 2 ** -16, 1, Infinity]);
  assert.deepEqual([FP8_VALUES["F8_E8M0"][0], FP8_VALUES["F8_E8M0"][127]], [2 ** -127, 1]);
});

Deno.test("FP8 weights with block, row and tensor scales, edges included, scales in another file", async () => {
  // The width of the feed-forward makes blocks of 32 partial on one side: 64 x 80 values in 2 x 3 blocks.
  const [rows, columns, block] = [64, 80, 32];
  const codes = bytes("codes", rows * columns).map((b) => (b & 0x7f) === 0x7f ? b - 1 : b);
  codes.set([0x7e, 0xfe, 0x01, 0x81]);
  const others = Object.fromEntries(
    ["up_proj", "gate_proj"].flatMap((w) => [0, 1].map((il) => `model.layers.${il}.mlp.${w}.weight`)).map((n) => [
      n,
      f32([columns, 64], noise(n, columns * 64)),
    ]),
  );
  others["model.layers.0.mlp.down_proj.weight"] = f32([64, columns], noise("d", 64 * columns));
  for (const [dtype, name] of [["F8_E4M3", "weight_scale_inv"], ["F8_E4M3FN", "weight_scale"], ["F8_E5M2", "scale"]]) {
    const table = FP8_VALUES[dtype];
    const finite = codes.map((b) => Number.isFinite(table[b]) ? b : 0x3c);
    for (const shape of [[2, 3], [rows, 1], [rows], [1]]) {
      const n = shape.reduce((a, b) => a * b, 1);
      const scales = noise(`s${n}`, n).map((x) => x + 1.5);
      const { values } = await stored({
        ...others,
        [`${DOWN}.weight`]: { dtype, shape: [rows, columns], data: finite },
        [`${DOWN}.${name}`]: f32(shape, scales), // sorted into the other file
      }, {
        config: {
          intermediate_size: columns,
          quantization_config: { quant_method: "fp8", weight_block_size: [block, block] },
        },
      });
      values.forEach((v, i) => {
        const [r, c] = [Math.floor(i / columns), i % columns];
        const at = shape[1] === 3 ? Math.floor(r / block) * 3 + Math.floor(c / block) : n === 1 ? 0 : r;
        assert.equal(v, Math.fround(table[finite[i]] * scales[at]), `${dtype} ${shape} ${i}`);
      });
    }
  }
});

Deno.test("FP8 codes that are NaN are refused with their place", async () => {
  const codes = new Uint8Array(64 * 96).fill(0x38);
  codes[3 * 96 + 2] = 0x7f;
  await assert.rejects(
    stored({
      [`${DOWN}.weight`]: { dtype: "F8_E4M3", shape: [64, 96], data: codes },
      [`${DOWN}.weight_scale_inv`]: f32([1, 1], [2]),
    }),
    { code: "quantize.non_finite" },
  );
});

Deno.test("prepare() refuses scales that are absent or do not fit before it writes", async () => {
  const weight = { dtype: "U8", shape: [64, 48], data: new Uint8Array(64 * 48) };
  await assert.rejects(stored({ [`${DOWN}.weight_packed`]: weight }), /lacks its scales/);
  await assert.rejects(
    stored({
      [`${DOWN}.weight`]: { dtype: "F8_E4M3", shape: [64, 96], data: new Uint8Array(64 * 96) },
      [`${DOWN}.weight_scale_inv`]: f32([3, 5], new Float32Array(15)),
    }),
    /scales ".*weight_scale_inv" \(F32 \[3, 5\]\) do not fit tensor ".*" \(F8_E4M3 \[64, 96\]\)/,
  );
});

Deno.test("MXFP4 is moved into the file's blocks without loss, and never through f32", async () => {
  const codes = bytes("mx", 64 * 48);
  const scales = bytes("e", 64 * 3).map((b) => 100 + (b % 50));
  scales.set([0, 127, 254]);
  const { values, type } = await stored({
    [`${DOWN}.weight_packed`]: { dtype: "U8", shape: [64, 48], data: codes },
    [`${DOWN}.weight_scale`]: { dtype: "U8", shape: [64, 3], data: scales },
  });
  assert.equal(type, "mxfp4");
  values.forEach((v, i) => {
    const code = (codes[i >> 1] >> (4 * (i & 1))) & 15;
    assert.equal(v, Math.fround(E2M1[code] * 2 ** (scales[Math.floor(i / 32)] - 127)), String(i));
  });
});

Deno.test("NVFP4 is moved into the file's blocks, its factor beside it", async () => {
  // Rows must be whole blocks of 64, so the feed-forward is 128 wide here.
  const wide = Object.fromEntries(
    [0, 1].flatMap((il) => ["up_proj", "gate_proj"].map((w) => `model.layers.${il}.mlp.${w}.weight`)).map((n) => [
      n,
      f32([128, 64], noise(n, 128 * 64)),
    ]),
  );
  wide["model.layers.0.mlp.down_proj.weight"] = f32([64, 128], noise("d", 64 * 128));
  const codes = bytes("nv", 64 * 64);
  const scales = bytes("u", 64 * 8).map((b) => b & 0x77);
  const { values, type, names } = await stored({
    ...wide,
    [`${DOWN}.weight`]: { dtype: "U8", shape: [64, 64], data: codes },
    [`${DOWN}.weight_scale`]: { dtype: "F8_E4M3", shape: [64, 8], data: scales },
    [`${DOWN}.weight_scale_2`]: f32([], [0.25]),
    [`${DOWN}.input_scale`]: f32([], [1]),
  }, { config: { intermediate_size: 128 } });
  assert.equal(type, "nvfp4");
  values.forEach((v, i) => {
    const code = (codes[i >> 1] >> (4 * (i & 1))) & 15;
    assert.equal(v, E2M1[code] * FP8_VALUES["F8_E4M3"][scales[Math.floor(i / 16)]], String(i));
  });
  assert.ok(names.includes("blk.1.ffn_down.scale") && !names.includes("blk.1.ffn_down.input_scale"));
});

Deno.test("packed integers are expanded with their zero points", async () => {
  const words = noise("w", 64 * 12).map((x) => Math.floor((x + 1) * 2 ** 31));
  const packed = Uint32Array.from(words);
  const zeros = Uint32Array.from({ length: 8 * 3 }, (_, i) => 0x76543210 + i);
  const scales = noise("g", 64 * 3);
  for (const withZeros of [false, true]) {
    const { values } = await stored({
      [`${DOWN}.weight_packed`]: { dtype: "I32", shape: [64, 12], data: bytesOf(packed) },
      [`${DOWN}.weight_scale`]: f32([64, 3], scales),
      [`${DOWN}.weight_shape`]: {
        dtype: "I64",
        shape: [2],
        data: new Uint8Array(BigInt64Array.of(64n, 96n).buffer),
      },
      ...withZeros ? { [`${DOWN}.weight_zero_point`]: { dtype: "I32", shape: [8, 3], data: bytesOf(zeros) } } : {},
    }, {
      config: {
        quantization_config: {
          quant_method: "compressed-tensors",
          format: "pack-quantized",
          config_groups: { group_0: { weights: { num_bits: 4, group_size: 32, strategy: "group" } } },
        },
      },
    });
    values.forEach((v, i) => {
      const [r, c] = [Math.floor(i / 96), i % 96];
      const q = (packed[r * 12 + (c >> 3)] >>> (4 * (c & 7))) & 15;
      const zero = withZeros ? (zeros[(r >> 3) * 3 + (c >> 5)] >>> (4 * (r & 7))) & 15 : 8;
      assert.equal(v, Math.fround((q - zero) * scales[r * 3 + (c >> 5)]), String(i));
    });
  }
});

Deno.test("FP8 becomes the checkpoint's 16-bit type with keep", async () => {
  const { type, values } = await stored({
    [`${DOWN}.weight`]: { dtype: "F8_E4M3", shape: [64, 96], data: new Uint8Array(64 * 96).fill(0x38) },
    [`${DOWN}.weight_scale`]: f32([], [2]),
  }, { outtype: "keep" });
  assert.equal(type, "bf16");
  assert.ok(values.every((v) => v === 2));
  assert.equal(f32Of(bytesOf(values))[0], 2);
  assert.equal(ggmlType(type).bytes, 2);
});
