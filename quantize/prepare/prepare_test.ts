import assert from "node:assert/strict";
import { ggmlType } from "../../core/gguf/types.ts";
import { openGguf } from "../../core/gguf/read.ts";
import { needingShared, repoDir, sharedDir } from "../../tests/shared.ts";
import { noise, sha256, testCheckpoint, withFolder, writeCheckpoint } from "./_testing.ts";
import { encodeQ8_0 } from "./q8_0.ts";
import { openPrepared, type Outtype, prepare } from "./mod.ts";

const golden: { files: Record<string, Record<string, string>>; split: Record<string, string> } = JSON.parse(
  Deno.readTextFileSync(`${repoDir}tests/goldens/prepare/sums.json`),
);
const bloomNano = `${repoDir}models/bloom-nano`;
const KINDS = ["llama", "mixtral", "qwen2", "qwen2moe", "qwen3", "qwen3moe"] as const;
const TYPES = ["f32", "f16", "bf16", "q8_0"] as const;

Deno.test("prepare() writes bloom-nano as llama.cpp's converter does, to the byte", () =>
  withFolder(async (dir) => {
    for (const outtype of TYPES) {
      await prepare(bloomNano, `${dir}o.gguf`, { outtype });
      assert.equal(await sha256(`${dir}o.gguf`), golden.files["bloom-nano"][outtype], outtype);
    }
    const auto = await prepare(bloomNano, `${dir}o.gguf`);
    assert.equal(await sha256(`${dir}o.gguf`), golden.files["bloom-nano"].bf16);
    assert.deepEqual(auto.types, { bf16: 43, f32: 25 });
    assert.equal(auto.architecture, "qwen3");
    await prepare(bloomNano, `${dir}v.gguf`, { vocabOnly: true });
    assert.equal(await sha256(`${dir}v.gguf`), golden.files["bloom-nano"]["vocab-only"]);
    assert.deepEqual([...Deno.readDirSync(dir)].map((e) => e.name).sort(), ["o.gguf", "v.gguf"]);
  }));

for (const kind of KINDS) {
  Deno.test(`prepare() writes a ${kind} checkpoint as llama.cpp's converter does, to the byte`, () =>
    withFolder(async (dir) => {
      const folder = `${dir}tiny-${kind}`; // the name is written into the file
      writeCheckpoint(folder, testCheckpoint(kind));
      for (const outtype of TYPES) {
        await prepare(folder, `${dir}o.gguf`, { outtype });
        assert.equal(await sha256(`${dir}o.gguf`), golden.files[`tiny-${kind}`][outtype], outtype);
      }
    }));
}

Deno.test("prepare() writes split sets as llama.cpp's converter does, to the byte", () =>
  withFolder(async (dir) => {
    const outtype = "bf16";
    await prepare(bloomNano, `${dir}s.gguf`, { outtype, splitMaxTensors: 30 });
    await prepare(bloomNano, `${dir}z.gguf`, { outtype, splitMaxSize: 5_000_000, noTensorFirstSplit: true });
    for (const [name, sum] of Object.entries(golden.split)) assert.equal(await sha256(dir + name), sum, name);
    await prepare(bloomNano, `${dir}one.gguf`, { outtype, splitMaxTensors: 1000 });
    assert.equal(await sha256(`${dir}one.gguf`), golden.files["bloom-nano"].bf16);
  }));

Deno.test("prepare() gives the same bytes whatever the room, and leaves nothing when it is stopped", () =>
  withFolder(async (dir) => {
    await prepare(bloomNano, `${dir}o.gguf`, { outtype: "f32", room: 1 });
    assert.equal(await sha256(`${dir}o.gguf`), golden.files["bloom-nano"].f32);
    Deno.removeSync(`${dir}o.gguf`);
    const stop = new AbortController();
    await assert.rejects(prepare(bloomNano, `${dir}o.gguf`, {
      splitMaxTensors: 10,
      signal: stop.signal,
      onProgress: (p) => p.index === 25 && stop.abort(),
    }));
    assert.deepEqual([...Deno.readDirSync(dir)], []);
  }));

Deno.test("prepare() goes on from what an interrupted run left, to the same bytes", () =>
  withFolder(async (dir) => {
    const run = async (limits: { splitMaxTensors?: number }, stopAt: number): Promise<number> => {
      const stop = new AbortController();
      let first = -1;
      const work = prepare(bloomNano, `${dir}s.gguf`, {
        outtype: "bf16",
        ...limits,
        resume: true,
        signal: stop.signal,
        onProgress: (p) => {
          if (first < 0) first = p.index;
          if (p.index === stopAt) stop.abort();
        },
      });
      if (stopAt < Infinity) await assert.rejects(work);
      else await work;
      return first;
    };
    assert.equal(await run({}, 20), 0);
    assert.deepEqual([...Deno.readDirSync(dir)].map((e) => e.name).sort(), ["s.gguf.partial", "s.gguf.partial.json"]);
    assert.equal(await run({}, 40), 21);
    assert.equal(await run({}, Infinity), 41);
    assert.equal(await sha256(`${dir}s.gguf`), golden.files["bloom-nano"].bf16);
    assert.equal(await run({ splitMaxTensors: 30 }, 50), 0);
    assert.equal(await run({ splitMaxTensors: 30 }, Infinity), 51);
    for (const [name, sum] of Object.entries(golden.split)) {
      if (name.startsWith("s-")) assert.equal(await sha256(dir + name), sum, name);
    }
    // A partial file of another run is refused, not overwritten and not gone on with.
    assert.equal(await run({ splitMaxTensors: 31 }, 3), 0);
    await assert.rejects(prepare(bloomNano, `${dir}s.gguf`, { outtype: "f16", splitMaxTensors: 31, resume: true }), {
      code: "quantize.resume",
    });
    // So is one of a checkpoint that has changed since.
    const copy = `${dir}copy/bloom-nano`;
    Deno.mkdirSync(copy, { recursive: true });
    for (const { name } of Deno.readDirSync(bloomNano)) Deno.copyFileSync(`${bloomNano}/${name}`, `${copy}/${name}`);
    const stop = new AbortController();
    const half = { resume: true, signal: stop.signal, onProgress: () => stop.abort() };
    await assert.rejects(prepare(copy, `${dir}c.gguf`, half), { name: "AbortError" });
    Deno.utimeSync(`${copy}/model.safetensors`, 1e9, 1e9);
    await assert.rejects(prepare(copy, `${dir}c.gguf`, { resume: true }), { code: "quantize.resume" });
  }));

Deno.test("openPrepared() reads any rows of any tensor as they stand in the file", () =>
  withFolder(async (dir) => {
    const folder = `${dir}tiny-llama`;
    writeCheckpoint(folder, testCheckpoint("llama"));
    await prepare(folder, `${dir}o.gguf`, { outtype: "f16" });
    using file = openGguf(`${dir}o.gguf`);
    using source = openPrepared(folder, { outtype: "f16" });
    assert.deepEqual(source.tensors.map((t) => t.name), file.tensors.map((t) => t.name));
    for (const t of source.tensors) {
      const row = Math.floor(t.n_rows / 3);
      const rows = Math.max(1, Math.floor(t.n_rows / 2));
      const rowBytes = t.ne[0] * t.type.bytes;
      const expected = file.readTensor(file.tensors.find((f) => f.name === t.name)!)
        .subarray(row * rowBytes, (row + rows) * rowBytes);
      assert.deepEqual(await source.read(t, row, rows), new Uint8Array(expected), t.name);
    }
  }));

Deno.test("openPrepared() tells where rows lie only if they lie there as they are wanted", () =>
  withFolder(async (dir) => {
    for (const kind of KINDS) {
      writeCheckpoint(`${dir}${kind}`, testCheckpoint(kind));
      for (const outtype of ["auto", "f32", "q8_0"] as const) {
        using source = openPrepared(`${dir}${kind}`, { outtype });
        let n = 0;
        for (const t of source.tensors) {
          for (const [row, rows] of [[0, 1], [Math.floor(t.n_rows / 2), 1], [0, t.n_rows]]) {
            const at = source.locate(t, row, rows);
            if (!at) continue;
            n++;
            using file = Deno.openSync(at.path);
            file.seekSync(at.offset, Deno.SeekMode.Start);
            const bytes = new Uint8Array(at.bytes);
            file.readSync(bytes);
            assert.deepEqual(bytes, new Uint8Array(await source.read(t, row, rows)), `${kind} ${t.name}`);
          }
        }
        const asStored = outtype === "auto" || (outtype === "f32" && kind === "mixtral");
        assert.ok(n > 10 || !asStored, `${kind} as ${outtype}: ${n} places`);
      }
    }
  }));

Deno.test("prepare() keeps or drops tensors by name, and takes another chat template and name", () =>
  withFolder(async (dir) => {
    const folder = `${dir}tiny-qwen3`;
    writeCheckpoint(folder, testCheckpoint("qwen3"));
    await prepare(folder, `${dir}o.gguf`, {
      only: ["blk.1.*", "token_embd*"],
      drop: ["*_norm.weight"],
      chatTemplate: "{{ x }}",
      modelName: "Other",
    });
    using file = openGguf(`${dir}o.gguf`);
    assert.ok(file.tensors.every((t) => /^blk\.1\.|^token_embd/.test(t.name) && !t.name.endsWith("_norm.weight")));
    assert.equal(file.tensors.length, 8);
    assert.equal(file.metadata.str("tokenizer.chat_template"), "{{ x }}");
    assert.equal(file.metadata.str("general.name"), "Other");
  }));

Deno.test("prepare() with keep leaves each tensor its type", () =>
  withFolder(async (dir) => {
    const folder = `${dir}mixed`;
    const { config, tensors } = testCheckpoint("qwen3");
    const name = "model.layers.0.mlp.down_proj.weight";
    const f32 = noise("x", 64 * 96);
    writeCheckpoint(folder, {
      config,
      tensors: { ...tensors, [name]: { dtype: "F32", shape: [64, 96], data: new Uint8Array(f32.buffer) } },
    });
    await prepare(folder, `${dir}o.gguf`, { outtype: "keep" });
    using file = openGguf(`${dir}o.gguf`);
    const type = (n: string) => file.tensors.find((t) => t.name === n)!.type.name;
    assert.equal(type("blk.0.ffn_down.weight"), "f32");
    assert.equal(type("blk.1.ffn_down.weight"), "bf16");
  }));

Deno.test("prepare() passes q8_0 to a quantizer when it is given one, with equal bytes", () =>
  withFolder(async (dir) => {
    let n = 0;
    await prepare(bloomNano, `${dir}o.gguf`, {
      outtype: "q8_0" as Outtype,
      quantize: (job) => {
        n += job.n_rows;
        assert.equal(job.dstType, ggmlType("q8_0"));
        return Promise.resolve(encodeQ8_0(new Float32Array(job.src.buffer, job.src.byteOffset, job.src.length / 4)));
      },
    });
    assert.ok(n > 8192);
    assert.equal(await sha256(`${dir}o.gguf`), golden.files["bloom-nano"].q8_0);
  }));

Deno.test({
  ...needingShared("prepare() writes bloom-nano-moe, in shards and one file per expert matrix, to the byte"),
  fn: () =>
    withFolder(async (dir) => {
      const expected = JSON.parse(Deno.readTextFileSync(`${sharedDir}models/reference/expected_gguf.json`));
      for (const outtype of TYPES) {
        await prepare(`${sharedDir}models/bloom-nano-moe`, `${dir}o.gguf`, { outtype });
        assert.equal(await sha256(`${dir}o.gguf`), expected.files["bloom-nano-moe"][outtype].sha256, outtype);
      }
    }),
});

Deno.test({
  ...needingShared("prepare() reads the newer form of config.json alike"),
  fn: () =>
    withFolder(async (dir) => {
      Deno.mkdirSync(`${dir}bloom-nano`);
      for (const e of Deno.readDirSync(bloomNano)) {
        Deno.symlinkSync(`${bloomNano}/${e.name}`, `${dir}bloom-nano/${e.name}`);
      }
      Deno.removeSync(`${dir}bloom-nano/config.json`);
      const newer = `${sharedDir}models/reference/bloom-nano/config.transformers5.json`;
      Deno.copyFileSync(newer, `${dir}bloom-nano/config.json`);
      await prepare(`${dir}bloom-nano`, `${dir}o.gguf`, { outtype: "bf16" });
      assert.equal(await sha256(`${dir}o.gguf`), golden.files["bloom-nano"].bf16);
    }),
});

Deno.test("openPrepared() keeps the window that a model uses", () =>
  withFolder((dir) => {
    const windows = (kind: "llama" | "qwen2" | "qwen3moe", change: Record<string, unknown>) => {
      const made = testCheckpoint(kind);
      writeCheckpoint(`${dir}${kind}`, { ...made, config: { ...made.config, ...change } });
      using source = openPrepared(`${dir}${kind}`);
      const arch = source.metadata.str("general.architecture");
      const pattern = source.metadata.get(`${arch}.attention.sliding_window_pattern`)?.value as Uint8Array | undefined;
      return [source.metadata.u32(`${arch}.attention.sliding_window`, undefined), pattern && [...pattern]];
    };
    assert.deepEqual(windows("llama", { sliding_window: 64 }), [64, undefined]);
    assert.deepEqual(windows("llama", { sliding_window: null }), [undefined, undefined]);
    const used = { sliding_window: 64, use_sliding_window: true };
    assert.deepEqual(windows("qwen2", { ...used, max_window_layers: 1 }), [64, [0, 1]]);
    assert.deepEqual(windows("qwen3moe", { ...used, layer_types: ["sliding_attention", "full_attention"] }), [64, [
      1,
      0,
    ]]);
    assert.deepEqual(windows("qwen2", { sliding_window: 64, use_sliding_window: false }), [undefined, undefined]);
  }));
