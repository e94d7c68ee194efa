/**
 * Damaged files and odd checkpoints that went wrong for people elsewhere, each from the command line: what is refused is refused
 * by name, before anything is written, and what is good comes out right. The labels (A1, B6) are used throughout the tests;
 * `cases_test.ts` has those of quantizing (C1 to C10).
 * @module
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { Raw } from "../../core/gguf/_testing.ts";
import { openGguf } from "../../core/gguf/read.ts";
import { BloomeryError } from "../../core/errors.ts";
import { dequantize } from "../../core/program/dequantize.ts";
import type { Command } from "../../cli/command.ts";
import { inspect } from "../../cli/inspect.ts";
import { fakeIo } from "../../cli/_testing.ts";
import { parseArgs } from "../../cli/parse.ts";
import { prepare } from "../../cli/prepare.ts";
import { quantize } from "../../cli/quantize.ts";
import {
  floats,
  noise,
  safetensors,
  testCheckpoint,
  type TestTensors,
  withFolder,
  writeCheckpoint,
} from "../../quantize/prepare/_testing.ts";
import { bytesOf, convertFloats } from "../../quantize/prepare/dtype.ts";
import { FP8_VALUES } from "../../quantize/prepare/fp8.ts";
import { writeSynthetic } from "./synthetic.ts";

interface Ran {
  readonly code: number | undefined;
  readonly error: BloomeryError | undefined;
  readonly warnings: string[];
}

/** Runs a command line in this process. Anything but a result or an error of the project is a crash, and thrown. */
async function run(...argv: string[]): Promise<Ran> {
  // Many cases write the same file again.
  const again = argv[0] === "inspect" ? [] : ["--overwrite"];
  const parsed = parseArgs([...argv, ...again], [inspect, prepare, quantize] as readonly Command[], "");
  assert(parsed.kind === "run");
  const { io, printed: { warnings } } = fakeIo();
  try {
    return {
      code: await parsed.command.run({ args: parsed.args, flags: parsed.flags, io }),
      error: undefined,
      warnings,
    };
  } catch (error) {
    if (!(error instanceof BloomeryError)) throw error;
    return { code: undefined, error, warnings };
  }
}

const filesOf = (dir: string) => [...Deno.readDirSync(dir)].map((e) => e.name).sort();
const sha256 = (path: string) => createHash("sha256").update(Deno.readFileSync(path)).digest("hex");

/** One clean failure: an error whose message matches, and no file more than before. */
async function refused(dir: string, argv: string[], ...message: RegExp[]): Promise<BloomeryError> {
  const before = filesOf(dir);
  const { error } = await run(...argv);
  assert.ok(error, `${argv.join(" ")} was not refused`);
  for (const m of message) assert.match(error.message, m);
  assert.deepEqual(filesOf(dir), before, "something is left");
  return error;
}

/** A GGUF file is refused by inspect and by quantize alike. */
async function refusedFile(bytes: Uint8Array, ...message: RegExp[]): Promise<void> {
  await withFolder(async (dir) => {
    Deno.writeFileSync(dir + "in.gguf", bytes);
    await refused(dir, ["inspect", dir + "in.gguf"], /in\.gguf/, ...message);
    await refused(dir, ["quantize", dir + "in.gguf", dir + "out.gguf", "Q8_0"], /in\.gguf/, ...message);
  });
}

const one = (ne: (bigint | number)[], type = 0, offset: bigint | number = 0) =>
  new Raw().head(1, 0).info("X", ne, type, offset).data(64).take();

Deno.test("A1: a product of dimensions that wraps 64 bits is refused by name, without taking memory", async () => {
  const rss = Deno.memoryUsage().rss;
  await refusedFile(one([1152, 4398046511105n]), /"X".*size overflows/);
  assert.ok(Deno.memoryUsage().rss - rss < 100e6);
});

Deno.test("A2: dimensions of zero are refused, alone and in the middle of a good file", async () => {
  await refusedFile(one([0, 0]), /"X".*shape \[\d,0\] has a dimension of 0/);
  const middle = new Raw().head(3, 0).info("a", [8], 0, 0).info("X", [8, 0], 0, 32).info("b", [8], 0, 32).data(64);
  await refusedFile(middle.take(), /"X".*shape \[\d,0\] has a dimension of 0/);
});

Deno.test("A4: data beyond the end is refused with bytes expected and present, before a weight is used", async () => {
  const whole = await withFolder((dir) => {
    writeSynthetic(dir + "m.gguf", { n_layer: 1, n_vocab: 32 });
    return Deno.readFileSync(dir + "m.gguf");
  });
  for (const cut of [1, 4096]) {
    await refusedFile(whole.subarray(0, whole.length - cut), /ends at byte \d+, \d+ are present/);
  }
  await refusedFile(whole.subarray(0, 200), /wants \d+ bytes at \d+, \d+ are present/);
  await refusedFile(one([8], 0, 2n ** 40n), /"X" starts at offset 1099511627776, expected 0/);
  await refusedFile(one([8], 0, 2n ** 64n - 32n), /"X"/);
});

Deno.test("A6: lengths that ask for exabytes are refused at once", async () => {
  const key = (type: number) => new Raw().head(0, 1).str("k").u32(type);
  const rss = Deno.memoryUsage().rss;
  await refusedFile(key(8).u64(2n ** 62n).take(), /key "k".*wants 4611686018427387904 bytes/);
  await refusedFile(key(9).u32(4).u64(2n ** 60n).take(), /elements of key "k"/);
  await refusedFile(new Raw().head(0, 2n ** 40n).data(8).take(), /the key count/);
  for (const n of [5, 9]) await refusedFile(one(Array(n).fill(1)), new RegExp(`"X" has ${n} dimensions`));
  assert.ok(Deno.memoryUsage().rss - rss < 50e6);
});

Deno.test("A8: a row that is no whole block is refused, naming type, found and wanted", () =>
  refusedFile(one([100], 12), /100 elements.*256.*q4_K/));

/** A checkpoint on the disk is refused by prepare and by quantize --hf alike. */
async function refusedFolder(dir: string, ...message: RegExp[]): Promise<BloomeryError> {
  await refused(dir, ["quantize", "--hf", `${dir}model`, `${dir}q.gguf`, "Q4_0"], ...message);
  return await refused(dir, ["prepare", `${dir}model`, "-o", `${dir}o.gguf`], ...message);
}

const shard = (i: number, n: number) => `model-0000${i}-of-0000${n}.safetensors`;

Deno.test("B1: every short shard is listed with the bytes it lacks; empty files and pointers have words of their own", () =>
  withFolder(async (dir) => {
    writeCheckpoint(`${dir}model`, { ...testCheckpoint("llama"), shards: 4 });
    const path = (i: number) => `${dir}model/${shard(i, 4)}`;
    Deno.truncateSync(path(2), Deno.statSync(path(2)).size - 10);
    await refusedFolder(dir, /model-00002-of-00004\.safetensors: .* 10 are missing/);
    Deno.truncateSync(path(1), Deno.statSync(path(1)).size - 301);
    Deno.writeFileSync(path(3), new Uint8Array(0));
    Deno.writeTextFileSync(path(4), "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n");
    await refusedFolder(
      dir,
      /4 problems/,
      /00001-of-00004\.safetensors: .* 301 are missing/,
      /00002-of-00004\.safetensors: .* 10 are missing/,
      /00003-of-00004\.safetensors: it is empty/,
      /00004-of-00004\.safetensors: it is a Git LFS pointer/,
    );
  }));

Deno.test("B3: a stale index gives a warning, and complete files are used in spite of it", () =>
  withFolder(async (dir) => {
    writeCheckpoint(`${dir}model`, { ...testCheckpoint("llama"), shards: 4 });
    const index = Deno.readTextFileSync(`${dir}model/model.safetensors.index.json`);
    Deno.removeSync(`${dir}model`, { recursive: true });
    writeCheckpoint(`${dir}model`, { ...testCheckpoint("llama"), shards: 2 });
    assert.equal((await run("prepare", `${dir}model`, "-o", `${dir}good.gguf`)).code, 0);
    Deno.writeTextFileSync(`${dir}model/model.safetensors.index.json`, index);
    const stale = await run("prepare", `${dir}model`, "-o", `${dir}o.gguf`);
    assert.equal(stale.code, 0);
    assert.match(stale.warnings[0], /index\.json is stale: it names 4 files of which 4 are not there/);
    assert.equal(sha256(`${dir}o.gguf`), sha256(`${dir}good.gguf`));
    Deno.removeSync(`${dir}model/${shard(2, 2)}`); // and now something is missing: the cause is named
    Deno.removeSync(`${dir}o.gguf`);
    await refusedFolder(dir, /model-00001-of-00004\.safetensors is missing/, /index\.json does not name 1 other file/);
  }));

Deno.test("B4: a shard that is missing in the middle is named first of all", () =>
  withFolder(async (dir) => {
    writeCheckpoint(`${dir}model`, { ...testCheckpoint("qwen3moe"), shards: 5 });
    Deno.removeSync(`${dir}model/${shard(3, 5)}`);
    Deno.removeSync(`${dir}model/tokenizer.json`); // another fault, found later
    await refusedFolder(dir, /^Cannot use the checkpoint .*: model-00003-of-00005\.safetensors is missing$/);
  }));

Deno.test("B5: the head of a tied model, absent, equal, different; and one that is nowhere", () =>
  withFolder(async (dir) => {
    const base = testCheckpoint("qwen3"); // tied
    const table = base.tensors["model.embed_tokens.weight"];
    // Sums of the files that llama.cpp 0.7.0's converter writes, with the pre-tokenizer named qwen2.
    const golden = JSON.parse(Deno.readTextFileSync(new URL("../goldens/prepare/sums.json", import.meta.url))).tied;
    const heads = { absent: undefined, equal: table, different: floats("other", table.shape) };
    for (const [what, head] of Object.entries(heads)) {
      const tensors: TestTensors = head ? { ...base.tensors, "lm_head.weight": head } : base.tensors;
      writeCheckpoint(`${dir}tied-${what}`, { ...base, tensors });
      const out = `${dir}${what}.gguf`;
      assert.equal((await run("prepare", `${dir}tied-${what}`, "-o", out, "--outtype", "bf16")).code, 0);
      assert.equal(sha256(out), golden[what], what);
      // The tied embedding is quantized as a head would be: q6_K, or q8_0 for these narrow rows.
      assert.equal((await run("quantize", out, `${dir}q.gguf`, "Q4_K_M")).code, 0);
      using file = openGguf(`${dir}q.gguf`);
      assert.equal(file.find("token_embd.weight")!.type.name, what === "absent" ? "q8_0" : "q5_0");
    }
    writeCheckpoint(`${dir}model`, { ...base, config: { ...base.config, tie_word_embeddings: false } });
    await refusedFolder(dir, /tensor "lm_head\.weight" is missing/);
  }));

Deno.test("B6: FP8 times the scale of its block of 128 x 128, partial blocks included; a NaN code has its place told", () =>
  withFolder(async (dir) => {
    // A dense llama of width 200 whose feed-forward is 300 wide: up_proj is 300 x 200 in 3 x 2 blocks.
    const [n_embd, n_ff] = [200, 300];
    const base = testCheckpoint("llama");
    const config = {
      ...base.config,
      hidden_size: n_embd,
      intermediate_size: n_ff,
      num_attention_heads: 2,
      num_key_value_heads: 2,
      head_dim: 100,
      rope_scaling: undefined,
      quantization_config: { quant_method: "fp8", weight_block_size: [128, 128] },
    };
    const widened = (n: number) => n === 64 || n === 32 ? n_embd : n === 96 ? n_ff : n;
    const plain = Object.fromEntries(
      Object.entries(base.tensors).map(([name, t]) => [name, floats(name, t.shape.map(widened))]),
    );
    const name = "model.layers.1.mlp.up_proj.weight";
    const codes = Uint8Array.from(noise("codes", n_ff * n_embd), (x) => Math.floor((x + 1) * 127.99));
    for (const [i, c] of codes.entries()) if ((c & 0x7f) === 0x7f) codes[i] = c - 1;
    codes.set([0x7e, 0xfe, 0x01, 0x81, 0x07, 0x00, 0x80]); // +-448, subnormals, zeros
    const scales = noise("scales", 6).map((x) => x + 1.5);
    for (const dtype of ["F8_E4M3", "F8_E4M3FN"]) {
      const fp8 = {
        ...plain,
        [name]: { dtype, shape: [n_ff, n_embd], data: codes },
        [`${name}_scale_inv`]: { dtype: "F32", shape: [3, 2], data: bytesOf(scales) },
      };
      writeCheckpoint(`${dir}model`, { ...base, config, tensors: fp8 });
      assert.equal((await run("prepare", `${dir}model`, "-o", `${dir}o.gguf`, "--outtype", "f32")).code, 0);
      using file = openGguf(`${dir}o.gguf`);
      const got = new Float32Array(file.readTensor(file.find("blk.1.ffn_up.weight")!).slice().buffer);
      got.forEach((v, i) => {
        const scale = scales[Math.floor(Math.floor(i / n_embd) / 128) * 2 + Math.floor((i % n_embd) / 128)];
        assert.equal(v, Math.fround(FP8_VALUES["F8_E4M3"][codes[i]] * scale), String(i));
      });
    }
    codes[3 * n_embd + 2] = 0x7f;
    Deno.removeSync(`${dir}o.gguf`);
    const made = { ...plain, [name]: { dtype: "F8_E4M3", shape: [n_ff, n_embd], data: codes } };
    const scale = { dtype: "F32", shape: [3, 2], data: bytesOf(scales) };
    writeCheckpoint(`${dir}model`, { ...base, config, tensors: { ...made, [`${name}_scale_inv`]: scale } });
    await refusedFolder(dir, /"blk\.1\.ffn_up\.weight".*row 3, column 2 is NaN/);
  }));

Deno.test("B8: MXFP4 experts keep their values: nibbles reordered, gate and up rows taken apart, bytes moved", () =>
  withFolder(async (dir) => {
    const [n_embd, n_ff, n_expert] = [64, 32, 2];
    const names: Record<string, number[]> = {
      "model.embed_tokens.weight": [272, n_embd],
      "model.norm.weight": [n_embd],
      "lm_head.weight": [272, n_embd],
    };
    const at = "model.layers.0";
    for (const w of ["q", "k", "v", "o"]) {
      names[`${at}.self_attn.${w}_proj.weight`] = [n_embd, n_embd];
      names[`${at}.self_attn.${w}_proj.bias`] = [n_embd];
    }
    names[`${at}.self_attn.sinks`] = [2];
    names[`${at}.mlp.router.weight`] = [n_expert, n_embd];
    names[`${at}.mlp.router.bias`] = [n_expert];
    names[`${at}.mlp.experts.down_proj_bias`] = [n_expert, n_embd];
    names[`${at}.mlp.experts.gate_up_proj_bias`] = [n_expert, 2 * n_ff];
    for (const w of ["input", "post_attention"]) names[`${at}.${w}_layernorm.weight`] = [n_embd];
    const tensors: TestTensors = {};
    for (const [name, shape] of Object.entries(names)) tensors[name] = floats(name, shape);
    const rows = { gate_up_proj: 2 * n_ff, down_proj: n_embd };
    const columns = { gate_up_proj: n_embd, down_proj: n_ff };
    const codes: Record<string, Uint8Array> = {};
    const scales: Record<string, Uint8Array> = {};
    for (const w of ["gate_up_proj", "down_proj"] as const) {
      const n_block = n_expert * rows[w] * columns[w] / 32;
      codes[w] = Uint8Array.from({ length: n_block * 16 }, (_, i) => (i * 2 % 16) | ((i * 2 + 1) % 16) << 4); // a ramp
      scales[w] = Uint8Array.from({ length: n_block }, (_, i) => [0, 127, 254][i % 3]);
      const base = `${at}.mlp.experts.${w}`;
      const shape = [n_expert, rows[w], columns[w] / 32];
      tensors[`${base}_blocks`] = { dtype: "U8", shape: [...shape, 16], data: codes[w] };
      tensors[`${base}_scales`] = { dtype: "U8", shape, data: scales[w] };
    }
    writeCheckpoint(`${dir}model`, {
      config: {
        architectures: ["GptOssForCausalLM"],
        model_type: "gpt_oss",
        vocab_size: 272,
        hidden_size: n_embd,
        intermediate_size: n_ff,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        num_key_value_heads: 2,
        head_dim: 32,
        num_local_experts: n_expert,
        num_experts_per_tok: 1,
        max_position_embeddings: 512,
        rms_norm_eps: 1e-5,
        rope_theta: 10000,
        sliding_window: 32,
        eos_token_id: 268,
        tie_word_embeddings: false,
        quantization_config: { quant_method: "mxfp4" },
      },
      tensors,
    });
    const made = await run("prepare", `${dir}model`, "-o", `${dir}o.gguf`);
    assert.equal(made.code, 0, made.error?.message);
    const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];
    /** Value of an element of the checkpoint's stack: element 2i in the low half of byte i, 2i + 1 in the high half. */
    const value = (w: "gate_up_proj" | "down_proj", row: number, column: number) => {
      const i = row * columns[w] + column;
      return Math.fround(E2M1[codes[w][i >> 1] >> (4 * (i & 1)) & 15] * 2 ** (scales[w][i >> 5] - 127));
    };
    using file = openGguf(`${dir}o.gguf`);
    for (
      const [part, w, first] of [["gate", "gate_up_proj", 0], ["up", "gate_up_proj", 1], [
        "down",
        "down_proj",
        0,
      ]] as const
    ) {
      const t = file.find(`blk.0.ffn_${part}_exps.weight`)!;
      assert.equal(t.type.name, "mxfp4");
      assert.equal(t.bytes, t.ne.reduce((a, b) => a * b) / 32 * 17);
      const blocks = file.readTensor(t); // a scale byte, then element j low and element j + 16 high in byte j
      for (let i = 0; i < t.ne.reduce((a, b) => a * b); i++) {
        const block = blocks.subarray((i >> 5) * 17);
        const v = Math.fround(E2M1[block[1 + (i & 15)] >> (i & 16 ? 4 : 0) & 15] * 2 ** (block[0] - 127));
        const row = Math.floor(i / t.ne[0]);
        const [expert, r] = [Math.floor(row / t.ne[1]), row % t.ne[1]];
        const from = w === "down_proj" ? row : expert * 2 * n_ff + 2 * r + first;
        assert.equal(v, value(w, from, i % t.ne[0]), `${part} ${i}`);
      }
    }
  }));

Deno.test("B9: bf16 beyond f16 stays as it is, and an f16 target is refused with tensor and place", () =>
  withFolder(async (dir) => {
    const base = testCheckpoint("qwen3");
    const name = "model.layers.1.mlp.down_proj.weight";
    const values = noise(name, 64 * 96);
    values.set([70000, 1e-8], 2 * 96 + 5);
    const data = convertFloats(bytesOf(values), "F32", "BF16");
    writeCheckpoint(`${dir}model`, {
      ...base,
      tensors: { ...base.tensors, [name]: { dtype: "BF16", shape: [64, 96], data } },
    });
    assert.equal((await run("prepare", `${dir}model`, "-o", `${dir}bf16.gguf`)).code, 0);
    {
      using file = openGguf(`${dir}bf16.gguf`);
      assert.deepEqual(file.readTensor(file.find("blk.1.ffn_down.weight")!), data);
    }
    const where = /"blk\.1\.ffn_down\.weight".*row 2, column 5 is 70144, beyond 65504/;
    await refused(dir, ["prepare", `${dir}model`, "-o", `${dir}f16.gguf`, "--outtype", "f16"], where);
    const f16 = await refused(
      dir,
      ["quantize", `${dir}bf16.gguf`, `${dir}f16.gguf`, "F16"],
      /"blk\.1\.ffn_down\.weight"/,
    );
    assert.match(f16.hint!, /bf16/);
    // The scales of these types are f16 too, and hold it.
    for (const type of ["Q8_0", "Q4_0"]) {
      assert.equal((await run("quantize", `${dir}bf16.gguf`, `${dir}q.gguf`, type)).code, 0);
      using file = openGguf(`${dir}q.gguf`);
      const t = file.find("blk.1.ffn_down.weight")!;
      const got = dequantize(t.type, file.readTensor(t), 64 * 96);
      assert.ok(got.every(Number.isFinite));
      assert.ok(Math.abs(got[2 * 96 + 5] / 70144 - 1) < 0.01, `${got[2 * 96 + 5]}`);
    }
  }));

Deno.test("B11: all tensors without a place are listed at once; GPTQ and AWQ are known; --ignore passes over", () =>
  withFolder(async (dir) => {
    const base = testCheckpoint("qwen3");
    const tensors = {
      ...base.tensors,
      "extra.one": floats("e", [4]),
      "model.layers.0.extra_two.weight": floats("f", [4]),
    };
    writeCheckpoint(`${dir}model`, { ...base, tensors });
    const error = await refusedFolder(
      dir,
      /2 tensors have no place in architecture qwen3: "extra\.one", "model\.layers\.0\.extra_two/,
    );
    assert.match(error.hint!, /--ignore/);
    const ignore = ["--ignore", "extra.*", "--ignore", "*.extra_two.*"];
    assert.equal((await run("prepare", `${dir}model`, "-o", `${dir}o.gguf`, ...ignore)).code, 0);
    const packed = (shape: number[]) => ({ dtype: "I32", shape, data: new Uint8Array(4 * shape[0] * shape[1]) });
    const gptq = {
      "model.layers.0.mlp.up_proj.qweight": packed([8, 96]),
      "model.layers.0.mlp.up_proj.qzeros": packed([1, 12]),
    };
    Deno.writeFileSync(`${dir}model/model.safetensors`, safetensors({ ...base.tensors, ...gptq }));
    Deno.removeSync(`${dir}o.gguf`);
    const known = await refusedFolder(dir, /it is quantized with GPTQ or AWQ/);
    assert.match(known.hint!, /take the original release/);
  }));
