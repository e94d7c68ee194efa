/**
 * Experts in pools: the same bits wherever they lie and whatever the pool holds, plans that say so, and drives that fail.
 * Needs the CPU library.
 * @module
 */
import assert from "node:assert/strict";
import { Engine } from "../core/engine/mod.ts";
import type { NativeError } from "../core/errors.ts";
import { openGguf } from "../core/gguf/read.ts";
import { openBackend } from "../ffi/mod.ts";
import { FAMILY_MODELS, N_VOCAB, writeFamilyModel } from "./family_models.ts";
import { wholePrompt } from "./logits_checks.ts";
import { testFolder } from "./models.ts";
import { fakeModel, N_VOCAB as N_FAKE } from "./serve/fake.ts";
import { startServer } from "../serve/server.ts";
import { type SyntheticModel, writeSynthetic } from "./quantize/synthetic.ts";

const SHAPE: SyntheticModel = {
  arch: "qwen3moe",
  n_embd: 256,
  n_ff: 256,
  n_layer: 3,
  n_vocab: N_FAKE,
  n_head: 4,
  n_head_kv: 2,
  head_dim: 64,
  n_expert: 16,
  n_expert_used: 4,
};
const OPTIONS = { n_ctx: 256, n_ubatch: 64, n_seq: 2 } as const;

/** A synthetic model whose experts are of one type. */
function modelOf(type: string): string {
  const path = `${testFolder()}/places-${type}.gguf`;
  try {
    Deno.statSync(path);
  } catch {
    writeSynthetic(path, { ...SHAPE, type });
  }
  return path;
}

const prompt = (n: number, seed: number) => Int32Array.from({ length: n }, (_, i) => (i * 37 + seed * 101) % N_FAKE);

/** Logits of a prompt of several passes, and of greedy tokens after it in two sequences. */
async function answers(engine: Engine): Promise<Float32Array[]> {
  using a = engine.createSequence();
  using b = engine.createSequence();
  const rows: Float32Array[] = [];
  const take = async (requests: Parameters<Engine["step"]>[0]) => {
    const out = await engine.step(requests.map((r) => ({ ...r, want: "logits" as const })));
    for (const o of out) if (o.full) rows.push(o.full);
    return out.map((o) => [o.ids[0]]);
  };
  let [next] = await take([{ sequence: a, tokens: prompt(100, 1), output: "last" }]);
  let [other] = await take([{ sequence: b, tokens: prompt(7, 2), output: "all" }]);
  for (let i = 0; i < 6; i++) {
    [next, other] = await take([
      { sequence: a, tokens: next, output: "last" },
      { sequence: b, tokens: other, output: "last" },
    ]);
  }
  return rows;
}

function sameBits(got: Float32Array[], want: Float32Array[], what: string): void {
  assert.equal(got.length, want.length);
  got.forEach((row, i) =>
    assert.deepEqual(new Uint8Array(row.buffer), new Uint8Array(want[i].buffer), `${what}, ${i}`)
  );
}

for (const type of ["q4_K", "q8_0", "bf16"]) {
  Deno.test(`${type} experts in a pool of any size give the bits of resident ones`, async () => {
    const path = modelOf(type);
    using opened = openBackend("cpu");
    const { backend } = opened;
    using file = openGguf(path);
    let want: Float32Array[];
    {
      using engine = await Engine.load(file, backend, OPTIONS);
      assert.equal(engine.residency, undefined);
      want = await answers(engine);
    }
    for (const n_slots of [4, 9, 20, 47]) {
      using engine = await Engine.load(file, backend, { ...OPTIONS, slots: n_slots });
      assert.equal(engine.plan.pools[0].n_slots, n_slots);
      const what = `${type}, ${n_slots} slots`;
      sameBits(await answers(engine), want, what);
      // Once more, with what the first run left in the slots.
      sameBits(await answers(engine), want, `${what}, again`);
      const { hits, misses, read_bytes, n_held, layers } = engine.residency!.stats;
      assert.equal(layers.length, 3);
      // In a few slots every expert is gone when its layer comes again.
      assert.ok(
        (hits > 0 || n_slots < 20) && misses > 0 && read_bytes > 0 && n_held <= n_slots,
        JSON.stringify({ hits, misses }),
      );
    }
  });
}

Deno.test("every family with routed experts gives the same bits from the smallest pool", async () => {
  using opened = openBackend("cpu");
  const { backend } = opened;
  let n_pooled = 0;
  for (const [name, model] of Object.entries(FAMILY_MODELS)) {
    if (!Object.keys(model.keys).includes("expert_count")) continue;
    const path = await writeFamilyModel(`${testFolder()}/pooled-${name}.gguf`, model, { type: "q8_0", backend });
    const ids = Array.from({ length: 40 }, (_, i) => (i * 29 + 3) % N_VOCAB);
    using file = openGguf(path);
    using resident = await Engine.load(file, backend, OPTIONS);
    using pooled = await Engine.load(file, backend, { ...OPTIONS, slots: 1 });
    assert.ok(pooled.plan.pools.length > 0, name);
    sameBits([(await wholePrompt(pooled, ids)).full!], [(await wholePrompt(resident, ids)).full!], name);
    n_pooled++;
    Deno.removeSync(path);
  }
  assert.ok(n_pooled > 10, `${n_pooled} families`);
});

/** Whether there is a second drive to read from: memory. */
function sharedMemory(): boolean {
  try {
    return Deno.statSync("/dev/shm").isDirectory;
  } catch {
    return false;
  }
}

/** Lets reads of files whose path has `text` in it fail while it runs. */
async function withFailingReads(text: string, run: (fail: (on: boolean) => void) => Promise<void>): Promise<void> {
  const switchFile = `${testFolder()}/read-errors`;
  Deno.env.set("BLOOMERY_TEST_READ_ERRORS", switchFile);
  try {
    await run((on) => on ? Deno.writeTextFileSync(switchFile, text) : Deno.removeSync(switchFile));
  } finally {
    Deno.env.delete("BLOOMERY_TEST_READ_ERRORS");
  }
}

Deno.test("a drive's error fails the step by file, place and drive, and the engine goes on to the same bits", async () => {
  const path = modelOf("q4_K");
  using opened = openBackend("cpu");
  using file = openGguf(path);
  await withFailingReads(path, async (fail) => {
    using engine = await Engine.load(file, opened.backend, { ...OPTIONS, slots: 6 });
    const want = await answers(engine);
    using sequence = engine.createSequence();
    await engine.step([{ sequence, tokens: prompt(5, 3), output: "none" }]);
    fail(true);
    await assert.rejects(engine.step([{ sequence, tokens: prompt(9, 4), output: "last" }]), (error: NativeError) => {
      assert.equal(error.code, "native.io");
      assert.match(
        error.message,
        /^Cannot read bytes \d+ to \d+ of .*places-q4_K\.gguf on drive \S+.*: Input\/output error$/,
      );
      return true;
    });
    assert.equal(sequence.length, 5);
    fail(false);
    sameBits(await answers(engine), want, "after the error");
  });
});

Deno.test("a file that was cut after it was opened fails the step by name", async () => {
  const path = `${testFolder()}/cut.gguf`;
  Deno.copyFileSync(modelOf("q4_K"), path);
  using opened = openBackend("cpu");
  using file = openGguf(path);
  using engine = await Engine.load(file, opened.backend, { ...OPTIONS, slots: 6 });
  Deno.truncateSync(path, Deno.statSync(path).size - 16 * 36864);
  using sequence = engine.createSequence();
  await assert.rejects(engine.step([{ sequence, tokens: prompt(60, 4), output: "last" }]), {
    code: "native.io",
    message: /cut\.gguf on drive .*: the file ends before$/,
  });
});

Deno.test("a file that is shorter than its tensors is refused before anything is loaded", () => {
  const path = `${testFolder()}/short.gguf`;
  Deno.copyFileSync(modelOf("q4_K"), path);
  Deno.truncateSync(path, Deno.statSync(path).size - 4096);
  assert.throws(() => openGguf(path), /short\.gguf/);
});

Deno.test("the server answers a drive's error with its name, and the next request as if nothing had been", async () => {
  const path = modelOf("q4_K");
  await withFailingReads(path, async (fail) => {
    using opened = openBackend("cpu");
    using file = openGguf(path);
    using engine = await Engine.load(file, opened.backend, { ...OPTIONS, slots: 6 });
    const fake = fakeModel({});
    const server = await startServer({ model: { ...fake, engine }, port: 0, n_slots: 1 });
    const ask = async () => {
      const response = await fetch(`${server.url}/completion`, {
        method: "POST",
        body: JSON.stringify({
          prompt: [...prompt(9, 5)],
          n_predict: 3,
          temperature: 0,
          return_tokens: true,
          ignore_eos: true,
        }),
      });
      return { status: response.status, body: await response.json() };
    };
    try {
      const before = await ask();
      assert.equal(before.status, 200, JSON.stringify(before.body));
      fail(true);
      const during = await ask();
      assert.equal(during.status, 500);
      assert.equal(during.body.error.code, "native.io");
      fail(false);
      const after = await ask();
      assert.equal(after.status, 200);
      assert.deepEqual(after.body.tokens, before.body.tokens);
    } finally {
      await server.stop();
    }
  });
});

Deno.test("a sidecar's copies are read where a drive fails, and by drives that have less to do", async () => {
  const dir = `${testFolder()}/copies`, path = `${dir}/model.gguf`;
  Deno.mkdirSync(`${dir}/second`, { recursive: true });
  Deno.copyFileSync(modelOf("q4_K"), path);
  Deno.copyFileSync(path, `${dir}/second/model.gguf`);
  Deno.writeTextFileSync(`${path}.shard-dirs`, "# the other drive\nsecond\n");
  using opened = openBackend("cpu");
  using file = openGguf(path);
  await withFailingReads(path, async (fail) => {
    let want: Float32Array[];
    {
      using engine = await Engine.load(file, opened.backend, OPTIONS);
      want = await answers(engine);
    }
    fail(true); // the first file's path is not part of its copy's
    using engine = await Engine.load(file, opened.backend, { ...OPTIONS, slots: 6 });
    sameBits(await answers(engine), want, "from the copy");
    const { n_reads, read_bytes } = engine.residency!.stats;
    assert.equal(n_reads, 2 * read_bytes / (256 * 144));
    Deno.removeSync(`${dir}/second/model.gguf`);
    fail(false);
  });
});

Deno.test("two drives share the reads", { ignore: !sharedMemory() }, async () => {
  const path = `${testFolder()}/drives.gguf`, other = Deno.makeTempDirSync({ dir: "/dev/shm" });
  try {
    Deno.copyFileSync(modelOf("q4_K"), path);
    Deno.copyFileSync(path, `${other}/drives.gguf`);
    Deno.writeTextFileSync(`${path}.shard-dirs`, other);
    using opened = openBackend("cpu");
    using file = openGguf(path);
    await withFailingReads(other, async (fail) => {
      fail(true);
      using engine = await Engine.load(file, opened.backend, { ...OPTIONS, slots: 20 });
      await answers(engine);
      const { n_reads, read_bytes } = engine.residency!.stats, n = read_bytes / (256 * 144);
      // What went to the other drive failed and was read from the first: some did, and not all.
      assert.ok(n_reads > n && n_reads < 2 * n, `${n_reads} reads of ${n} matrices`);
      fail(false);
      await Promise.resolve();
    });
  } finally {
    Deno.removeSync(other, { recursive: true });
  }
});

Deno.test("copies that cannot be copies are refused by name", () => {
  const dir = `${testFolder()}/bad-copies`, path = `${dir}/model.gguf`, copy = `${dir}/second/model.gguf`;
  Deno.mkdirSync(`${dir}/second`, { recursive: true });
  Deno.copyFileSync(modelOf("q4_K"), path);
  Deno.writeTextFileSync(`${path}.shard-dirs`, "second");
  using file = openGguf(path);
  const refused = (message: RegExp) => assert.throws(() => file.copies(), { code: "format.shard_copy", message });
  refused(/second\/model\.gguf as a copy of .*: it is not there$/);
  Deno.copyFileSync(path, copy);
  assert.deepEqual(file.copies(), [{ of: path, copy }]);
  using out = Deno.openSync(copy, { write: true });
  out.seekSync(100, Deno.SeekMode.Start);
  out.writeSync(Uint8Array.of(255));
  refused(/its header differs at byte 100$/);
  out.truncateSync(5000);
  refused(/it has 5000 bytes, expected \d+$/);
  Deno.writeTextFileSync(`${path}.shard-dirs`, "# nothing\n");
  assert.throws(() => file.copies(), { code: "usage.shard_dirs" });
});
