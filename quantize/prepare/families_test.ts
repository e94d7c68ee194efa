import assert from "node:assert/strict";
import { ggufValue } from "../../core/gguf/metadata.ts";
import { openGguf } from "../../core/gguf/read.ts";
import { needingShared, sharedDir } from "../../tests/shared.ts";
import { digest16, type PeerKeys, sha256As, withFolder } from "./_testing.ts";
import { prepare, type PrepareFileOptions } from "./mod.ts";

const latent = (arch: string): PeerKeys => ({ [`${arch}.attention.latent_norm_rms_epsilon`]: undefined });

/** Where files differ from llama.cpp's converter on purpose. */
const DIFFERENT: Record<string, PeerKeys> = {
  // It reads the configuration through a library that drops the interval, and writes the default.
  qwen3_next: { "qwen3next.full_attention_interval": ggufValue.u32(4) },
  // It loses what the released model computes with.
  mistral: { "llama.attention.sliding_window": undefined },
  mistral4: { "mistral4.attention.temperature_scale": undefined, "mistral4.attention.temperature_length": undefined },
  // Its quantile of the normal distribution is rounded differently.
  gemma3n: { "gemma3n.activation_sparsity_scale": ggufValue.f32s([1.6448533535003662, 1.6448533535003662]) },
  glm_moe_dsa: latent("glm-dsa"),
  kimi_k3: { ...latent("kimi-k3"), "kimi-k3.kda.qk_norm_epsilon": undefined },
  kimi_linear: { ...latent("kimi-linear"), "kimi-linear.kda.qk_norm_epsilon": undefined },
  // These were converted without what the class does to the vocabulary.
  glm4_moe_lite: {
    ...latent("deepseek2"),
    "tokenizer.ggml.bos_token_id": undefined,
    "tokenizer.ggml.eot_token_id": undefined,
    "tokenizer.ggml.unknown_token_id": undefined,
    "tokenizer.ggml.eom_token_id": undefined,
  },
  mixtral: { "tokenizer.ggml.add_space_prefix": undefined },
  granite: { "tokenizer.ggml.add_space_prefix": undefined },
  smollm3: { "tokenizer.ggml.add_space_prefix": undefined },
};

/** Its class for these drops the draft block. */
const WITHOUT_DRAFTS = new Set(["deepseek_v3"]);

const tiny = sharedDir ? `${sharedDir}models/tiny/` : undefined;
const names = tiny
  ? [...Deno.readDirSync(tiny)].filter((e) => e.isDirectory && e.name !== "mtp").map((e) => e.name).sort()
  : ["none"];

interface ExpectedFile {
  /** Of the whole file, where a converter made it. */
  readonly sha256?: string;
  readonly metadata: readonly { key: string; value?: unknown }[];
  readonly tensors: readonly { name: string; type?: string; ne: number[]; sha256: string }[];
}

interface Expected extends Partial<ExpectedFile> {
  readonly options?: readonly string[] | number;
  readonly files?: Record<string, ExpectedFile>;
}

const expectedOf = (folder: string): Expected => JSON.parse(Deno.readTextFileSync(`${folder}/expected_gguf.json`));

for (const name of names) {
  Deno.test({
    ...needingShared(`prepare() writes the ${name} checkpoint as llama.cpp's converter does`),
    fn: () =>
      withFolder(async (dir) => {
        const expected = expectedOf(tiny + name);
        const options = Array.isArray(expected.options) ? expected.options : [];
        const mtp = !options.includes("--no-mtp") && !WITHOUT_DRAFTS.has(name);
        for (const outtype of ["f32", "bf16"] as const) {
          const out = `${dir}${outtype}.gguf`;
          await prepare(tiny + name, out, {
            outtype,
            mtp,
            ...options.includes("--model-name") ? { modelName: "tiny" } : {},
          });
          const want = expected.files?.[outtype]?.sha256;
          if (want) assert.equal(await sha256As(out, DIFFERENT[name] ?? {}), want, outtype);
        }
      }),
  });
}

/** Keys and tensors of a file, compared with those of a list that need not be of all. */
async function assertHolds(path: string, want: Expected, differentKeys: readonly string[] = []): Promise<void> {
  using file = openGguf(path);
  for (const { key, value } of want.metadata!) {
    if (value === undefined || differentKeys.includes(key)) continue;
    const got = file.metadata.get(key);
    const plain = got?.type === "array"
      ? Array.from(got.value as ArrayLike<unknown>, (v) => plainOf(v, value))
      : got?.value;
    assert.deepEqual(plain, value, key);
  }
  for (const w of want.tensors!) {
    const t = file.tensors.find((t) => t.name === w.name);
    assert.ok(t, w.name);
    assert.deepEqual(t.ne, w.ne, w.name);
    if (w.type) assert.equal(t.type.name.toUpperCase(), w.type, w.name);
    const bytes = file.readTensor(t);
    const digests = [await digest16(bytes), await digest16(withoutNegativeZeros(bytes))];
    assert.ok(digests.includes(w.sha256), `data of ${w.name}`);
  }
}

/** 4-bit codes have a negative zero, and llama.cpp's table of their values has not. */
function withoutNegativeZeros(f32: Uint8Array): Uint8Array {
  const bytes = f32.slice();
  const values = new Float32Array(bytes.buffer, 0, Math.floor(bytes.length / 4));
  for (let i = 0; i < values.length; i++) if (values[i] === 0) values[i] = 0;
  return bytes;
}

/** JSON has no 64-bit integers, and arrays of truth values hold bytes. */
function plainOf(v: unknown, like: unknown): unknown {
  const isTruth = Array.isArray(like) && typeof like[0] === "boolean";
  return isTruth ? Boolean(v) : typeof v === "bigint" ? Number(v) : v;
}

/** What the files written down by hand are about, beyond their keys and tensors. */
const BY_HAND: Record<string, { options: PrepareFileOptions; differentKeys?: string[] }> = {
  deepseek_v41: { options: { dequantize: true } },
  kimi_k31: { options: {}, differentKeys: ["general.name", "general.size_label"] },
};

for (const [name, { options, differentKeys }] of Object.entries(BY_HAND)) {
  Deno.test({
    ...needingShared(`prepare() writes the keys and tensors that the notes on ${name} list, and no other tensor`),
    fn: () =>
      withFolder(async (dir) => {
        const expected = expectedOf(tiny + name);
        const want = expected.files?.["f32"] ?? expected;
        await prepare(tiny + name, `${dir}o.gguf`, { outtype: "f32", ...options });
        await assertHolds(`${dir}o.gguf`, want, differentKeys);
        using file = openGguf(`${dir}o.gguf`);
        assert.equal(file.tensors.length, want.tensors!.length);
      }),
  });
}

for (const name of ["deepseek_v3", "deepseek_v4", "glm4_moe", "glm5_next", "qwen3_5_moe", "qwen3_next"]) {
  Deno.test({
    ...needingShared(`prepare() keeps the draft block of the ${name} checkpoint`),
    fn: () =>
      withFolder(async (dir) => {
        const trunk = tiny + name;
        const drafts = `${tiny}mtp/${name}`;
        let from = trunk;
        const list = [...Deno.readDirSync(drafts)].map((e) => e.name);
        if (list.includes("mtp.safetensors")) {
          from = `${dir}model`;
          Deno.mkdirSync(from);
          for (const { name } of Deno.readDirSync(trunk)) Deno.symlinkSync(`${trunk}/${name}`, `${from}/${name}`);
          for (const name of ["mtp.safetensors", "config.json", "model.safetensors.index.json"]) {
            if (Deno.readDirSync(from).some((e) => e.name === name)) Deno.removeSync(`${from}/${name}`);
            Deno.symlinkSync(`${drafts}/${name}`, `${from}/${name}`);
          }
        }
        const isApart = name === "deepseek_v4"; // llama.cpp has its draft block in a file of its own
        const options = { outtype: "f32", dequantize: true, mtp: isApart ? "only" : true } as const;
        await prepare(from, `${dir}o.gguf`, options);
        await assertHolds(`${dir}o.gguf`, expectedOf(drafts));
        if (!isApart) return;
        await prepare(from, `${dir}all.gguf`, { outtype: "f32", dequantize: true });
        using all = openGguf(`${dir}all.gguf`);
        using only = openGguf(`${dir}o.gguf`);
        const ours = all.tensors.map((t) => t.name).filter((n) => n.startsWith("blk.6.") && !n.includes("output_hc"));
        assert.deepEqual(ours.sort(), only.tensors.map((t) => t.name).filter((n) => n.startsWith("blk.6.")).sort());
        for (const part of ["fn", "base", "scale"]) {
          const read = (file: typeof all, name: string) => file.readTensor(file.tensors.find((t) => t.name === name)!);
          const own = read(all, `blk.6.nextn.output_hc_${part}.weight`);
          assert.deepEqual(own, read(only, `output_hc_${part}.weight`));
          assert.notDeepEqual(own, read(all, `output_hc_${part}.weight`));
        }
      }),
  });
}

Deno.test({
  ...needingShared("prepare() keeps the window of a starcoder2 checkpoint"),
  fn: () =>
    withFolder(async (dir) => {
      const from = `${dir}model`, config = JSON.parse(Deno.readTextFileSync(`${tiny}starcoder2/config.json`));
      Deno.mkdirSync(from);
      for (const { name } of Deno.readDirSync(`${tiny}starcoder2`)) {
        if (name !== "config.json") Deno.symlinkSync(`${tiny}starcoder2/${name}`, `${from}/${name}`);
      }
      Deno.writeTextFileSync(`${from}/config.json`, JSON.stringify({ ...config, sliding_window: 64 }));
      await prepare(from, `${dir}o.gguf`, { outtype: "f32" });
      using file = openGguf(`${dir}o.gguf`);
      assert.equal(file.metadata.u32("starcoder2.attention.sliding_window"), 64);
    }),
});
