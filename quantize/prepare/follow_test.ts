import assert from "node:assert/strict";
import { floats, sha256, type TestCheckpoint, testCheckpoint, withFolder, writeCheckpoint } from "./_testing.ts";
import { prepare, type PrepareFileOptions } from "./mod.ts";

const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

function removeFolder(path: string): void {
  try {
    Deno.removeSync(path, { recursive: true });
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}

/** What a run said, in order. */
type Event = { arrived: string } | { early: string } | { written: string };

/**
 * Prepares a folder into which files are put one after another, each in pieces, and says what happened when.
 *
 * @param order Of the safetensors files; all others come before them.
 * @param settle Resolves when the next file may come.
 */
async function follow(
  dir: string,
  order: readonly string[],
  settle: (events: readonly Event[], file: string) => Promise<void>,
  options: PrepareFileOptions = {},
): Promise<Event[]> {
  const events: Event[] = [];
  removeFolder(`${dir}to`);
  Deno.mkdirSync(`${dir}to/model`, { recursive: true });
  const work = prepare(`${dir}to/model`, `${dir}o.gguf`, {
    outtype: "bf16",
    ...options,
    follow: { interval: 2, onArrived: (file) => events.push({ arrived: file }) },
    onEarly: (p) => events.push({ early: p.tensor.name }),
    onProgress: (p) => p.whole && events.push({ written: p.tensor.name }),
  });
  work.catch(() => {}); // awaited below
  const others = [...Deno.readDirSync(`${dir}model`)].map((e) => e.name).filter((n) => !order.includes(n));
  for (const name of [...others, ...order]) {
    const bytes = Deno.readFileSync(`${dir}model/${name}`);
    for (const part of [bytes.subarray(0, 4), bytes.subarray(0, bytes.length >> 1), bytes]) {
      Deno.writeFileSync(`${dir}to/model/${name}`, part);
      await wait(5);
    }
    await settle(events, name);
  }
  await work;
  return events;
}

/** Until the file has arrived, and nothing more has happened for a while. */
async function quiet(events: readonly Event[], file: string): Promise<void> {
  const isThere = () => !file.endsWith(".safetensors") || events.some((e) => "arrived" in e && e.arrived === file);
  for (let i = 0; !isThere(); i++) {
    assert.ok(i < 4000, `${file} did not arrive`);
    await wait(5);
  }
  for (let n = -1; n !== events.length;) {
    n = events.length;
    await wait(60);
  }
}

const shards = (n: number) => Array.from({ length: n }, (_, i) => `model-0000${i + 1}-of-0000${n}.safetensors`);

/** The sum of an ordinary run, and a checkpoint to follow. */
async function ordinary(dir: string, c: TestCheckpoint, options: PrepareFileOptions = {}): Promise<string> {
  writeCheckpoint(`${dir}model`, c);
  await prepare(`${dir}model`, `${dir}once.gguf`, { outtype: "bf16", ...options });
  return await sha256(`${dir}once.gguf`);
}

Deno.test("prepare() with follow converts tensors before the last file is there, to the same bytes", async () => {
  for (const kind of ["qwen3moe", "mixtral", "llama"] as const) {
    for (const order of [[0, 1, 2], [2, 0, 1]]) {
      await withFolder(async (dir) => {
        const sum = await ordinary(dir, { ...testCheckpoint(kind), shards: 3 });
        const events = await follow(dir, order.map((i) => shards(3)[i]), quiet);
        const last = events.findIndex((e) => "arrived" in e && e.arrived === shards(3)[order[2]]);
        const early = events.slice(0, last).filter((e) => "early" in e).length;
        const late = events.slice(last).filter((e) => "early" in e).length;
        assert.ok(early >= 5, `${early} tensors of ${kind} came before the last file`);
        assert.equal(late, 0);
        assert.ok(events.slice(0, last).every((e) => !("written" in e)));
        assert.equal(await sha256(`${dir}o.gguf`), sum, kind);
        assert.deepEqual([...Deno.readDirSync(dir)].map((e) => e.name).sort(), ["model", "o.gguf", "once.gguf", "to"]);
      });
    }
  }
});

Deno.test("prepare() with follow waits for scales that lie in another file", () =>
  withFolder(async (dir) => {
    const base = testCheckpoint("qwen3");
    const name = "model.layers.0.mlp.down_proj.weight"; // sorted before its scales, which come to the next file
    const tensors = {
      ...base.tensors,
      [name]: { dtype: "F8_E4M3", shape: [64, 96], data: new Uint8Array(64 * 96).fill(0x38) },
      [`${name}_scale_inv`]: floats("s", [2, 3], "F32"),
    };
    const c = {
      ...base,
      tensors: Object.fromEntries(Object.keys(tensors).sort().map((n) => [n, tensors[n as keyof typeof tensors]])),
      shards: Object.keys(tensors).length, // a file each
      config: { ...base.config, quantization_config: { quant_method: "fp8", weight_block_size: [32, 32] } },
    };
    writeCheckpoint(`${dir}model`, { ...c, shards: 1 });
    // Two files that are cut between weight and scales.
    Deno.removeSync(`${dir}model/model.safetensors`);
    const names = Object.keys(c.tensors);
    const cut = names.indexOf(name) + 1;
    for (const [i, part] of [names.slice(0, cut), names.slice(cut)].entries()) {
      const of = (n: string) => c.tensors[n];
      writeCheckpoint(`${dir}part`, { ...c, shards: 1, tensors: Object.fromEntries(part.map((n) => [n, of(n)])) });
      Deno.renameSync(`${dir}part/model.safetensors`, `${dir}model/${shards(2)[i]}`);
    }
    Deno.removeSync(`${dir}part`, { recursive: true });
    const weight_map = Object.fromEntries(names.map((n, i) => [n, shards(2)[i < cut ? 0 : 1]]));
    Deno.writeTextFileSync(`${dir}model/model.safetensors.index.json`, JSON.stringify({ weight_map }));
    await prepare(`${dir}model`, `${dir}once.gguf`, { outtype: "bf16" });
    const events = await follow(dir, shards(2), quiet);
    const early = events.flatMap((e) => "early" in e ? [e.early] : []);
    assert.ok(early.length > 0 && !early.includes("blk.0.ffn_down.weight"), early.join());
    assert.equal(await sha256(`${dir}o.gguf`), await sha256(`${dir}once.gguf`));
  }));

Deno.test("prepare() with follow waits with auto for the file that decides the type", () =>
  withFolder(async (dir) => {
    const sum = await ordinary(dir, testCheckpoint("qwen3moe"), { outtype: "auto" });
    const [first, ...others] = shards(3);
    const events = await follow(dir, [...others, first], quiet, { outtype: "auto" });
    assert.ok(events.every((e) => !("early" in e)));
    assert.equal(await sha256(`${dir}o.gguf`), sum);
    const more = await follow(dir, [first, ...others], quiet, { outtype: "auto" });
    assert.ok(more.some((e) => "early" in e));
    assert.equal(await sha256(`${dir}o.gguf`), sum);
  }));

Deno.test("prepare() with follow makes tensors again whose file came anew", () =>
  withFolder(async (dir) => {
    const c = testCheckpoint("qwen3moe");
    const sum = await ordinary(dir, c);
    const other = Object.fromEntries(
      Object.entries(c.tensors).map(([n, t]) => [n, { ...t, data: t.data.map((b) => b & 0x7f) }]),
    );
    writeCheckpoint(`${dir}other`, { ...c, tensors: other });
    const path = `model/${shards(3)[0]}`;
    const right = Deno.readFileSync(dir + path);
    Deno.copyFileSync(`${dir}other/${shards(3)[0]}`, dir + path); // comes first
    const events = await follow(dir, shards(3), async (events, file) => {
      await quiet(events, file);
      if (file === shards(3)[0]) Deno.writeFileSync(`${dir}to/${path}`, right);
    });
    assert.ok(events.some((e) => "early" in e));
    assert.equal(await sha256(`${dir}o.gguf`), sum);
  }));

Deno.test("prepare() with follow makes constants again whose file came anew", () =>
  withFolder(async (dir) => {
    const base = testCheckpoint("qwen3");
    const name = "model.layers.0.self_attn.q_proj.weight";
    const checkpoint = (factor: number): TestCheckpoint => ({
      ...base,
      tensors: {
        [name]: { dtype: "U8", shape: [128, 32], data: new Uint8Array(128 * 32).fill(0x21) },
        [`${name}_scale`]: { dtype: "F8_E4M3", shape: [128, 4], data: new Uint8Array(128 * 4).fill(0x38) },
        [`${name}_scale_2`]: { dtype: "F32", shape: [1], data: new Uint8Array(Float32Array.of(factor).buffer) },
        ...Object.fromEntries(Object.entries(base.tensors).filter(([n]) => n !== name)),
      },
      shards: 3,
    });
    writeCheckpoint(`${dir}other`, checkpoint(0.25));
    const sum = await ordinary(dir, checkpoint(0.5));
    const path = `model/${shards(3)[0]}`;
    const right = Deno.readFileSync(dir + path);
    Deno.copyFileSync(`${dir}other/${shards(3)[0]}`, dir + path); // comes first
    const events = await follow(dir, shards(3), async (events, file) => {
      await quiet(events, file);
      if (file === shards(3)[0]) Deno.writeFileSync(`${dir}to/${path}`, right);
    });
    assert.ok(events.some((e) => "early" in e && e.early === "blk.0.attn_q.scale"));
    assert.equal(await sha256(`${dir}o.gguf`), sum);
  }));

Deno.test("prepare() with follow keeps what is converted for a run that resumes, and else leaves nothing", () =>
  withFolder(async (dir) => {
    const sum = await ordinary(dir, testCheckpoint("qwen3moe"));
    for (const resume of [true, false]) {
      const stop = new AbortController();
      const stopped = follow(dir, shards(3), async (events, file) => {
        if (stop.signal.aborted) return;
        await quiet(events, file);
        if (file === shards(3)[1]) stop.abort();
      }, { resume, signal: stop.signal });
      await assert.rejects(stopped, { name: "AbortError" });
      const left = [...Deno.readDirSync(dir)].map((e) => e.name).filter((n) => n.startsWith("o.gguf"));
      assert.deepEqual(left.sort(), resume ? ["o.gguf.arrived", "o.gguf.arrived.json"] : []);
      const events: string[] = [];
      if (resume) {
        const list = `${dir}o.gguf.arrived.json`;
        const before = Deno.readTextFileSync(list);
        assert.ok(before.split("\n").length > 5, before);
        // A line that was being written when the process was killed costs its tensor alone.
        Deno.writeTextFileSync(list, `{"key":"torn`, { append: true });
        const aborted = { outtype: "bf16", resume, follow: { interval: 2 }, signal: AbortSignal.abort() } as const;
        await assert.rejects(prepare(`${dir}to/model`, `${dir}o.gguf`, aborted), { name: "AbortError" });
        assert.equal(Deno.readTextFileSync(list), before);
      }
      await prepare(`${dir}to/model`, `${dir}o.gguf`, {
        outtype: "bf16",
        resume,
        follow: { interval: 2 },
        onEarly: (p) => events.push(p.tensor.name),
      });
      assert.equal(await sha256(`${dir}o.gguf`), sum);
      assert.deepEqual([...Deno.readDirSync(dir)].map((e) => e.name).filter((n) => n.startsWith("o.")), ["o.gguf"]);
      Deno.removeSync(`${dir}o.gguf`);
    }
  }));

Deno.test("prepare() without follow removes what a killed run with it has left", () =>
  withFolder(async (dir) => {
    writeCheckpoint(`${dir}model`, testCheckpoint("qwen3"));
    for (const name of ["o.gguf.arrived", "o.gguf.arrived.json"]) Deno.writeTextFileSync(dir + name, "x");
    await prepare(`${dir}model`, `${dir}o.gguf`);
    assert.deepEqual([...Deno.readDirSync(dir)].map((e) => e.name).sort(), ["model", "o.gguf"]);
  }));

Deno.test("prepare() with follow refuses a bad index once it is at rest, and a folder as output at once", () =>
  withFolder(async (dir) => {
    writeCheckpoint(`${dir}model`, testCheckpoint("qwen3moe"));
    Deno.removeSync(`${dir}model/${shards(3)[2]}`);
    const path = `${dir}model/model.safetensors.index.json`;
    for (const text of ["{", "{}", "null", `{"weight_map": {"a": "../x.safetensors"}}`, `{"weight_map": {"a": 1}}`]) {
      Deno.writeTextFileSync(path, text);
      const stop = AbortSignal.timeout(50);
      const run = (out: string) => prepare(`${dir}model`, dir + out, { follow: { interval: 2 }, signal: stop });
      await assert.rejects(run("o.gguf"), { name: "TimeoutError" }, text); // may still be being written
      Deno.utimeSync(path, 1e9, 1e9);
      const signal = AbortSignal.timeout(10_000);
      const atRest = prepare(`${dir}model`, `${dir}o.gguf`, { follow: { interval: 2 }, signal });
      await assert.rejects(atRest, { code: "format.bad_index" }, text);
      await assert.rejects(run(""), { code: "usage.output" });
    }
    assert.deepEqual([...Deno.readDirSync(dir)].map((e) => e.name), ["model"]);
  }));

Deno.test("prepare() with follow tells of broken files and unknown tensors at once", () =>
  withFolder(async (dir) => {
    const c = testCheckpoint("qwen3moe");
    writeCheckpoint(`${dir}model`, { ...c, tensors: { "a.unknown": floats("a", [4]), ...c.tensors } });
    Deno.removeSync(`${dir}model/${shards(3)[2]}`);
    const run = () => prepare(`${dir}model`, `${dir}o.gguf`, { follow: { interval: 2 } });
    await assert.rejects(run(), /1 tensors have no place in architecture qwen3moe: "a.unknown"/);
    const shard = `${dir}model/${shards(3)[0]}`;
    const bytes = Deno.readFileSync(shard);
    bytes[8] = 0; // no JSON any more
    Deno.writeFileSync(shard, bytes);
    Deno.utimeSync(shard, 1e9, 1e9); // long at rest
    await assert.rejects(run(), { code: "format.bad_json" });
    await assert.rejects(prepare(`${dir}none`, `${dir}o.gguf`, { follow: {} }), { code: "model.unreadable" });
    assert.deepEqual([...Deno.readDirSync(dir)].map((e) => e.name), ["model"]);
  }));
