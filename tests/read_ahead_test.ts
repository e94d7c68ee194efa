/**
 * Experts that are read before their layer is computed: the same bits, counts by layer, and what happens when the process, the memory
 * or the engine goes away meanwhile. Needs the CPU library.
 * @module
 */
import assert from "node:assert/strict";
import { Engine } from "../core/engine/mod.ts";
import type { ResidencyStats } from "../core/engine/residency.ts";
import { openGguf } from "../core/gguf/read.ts";
import { openBackend } from "../ffi/mod.ts";
import { preparedModel, testFolder } from "./models.ts";
import { writeSynthetic } from "./quantize/synthetic.ts";
import { repoDir, sharedDir } from "./shared.ts";

const N_VOCAB = 268, N_LAYER = 3, N_USED = 4;
const path = `${testFolder()}/ahead.gguf`;
writeSynthetic(path, {
  arch: "qwen3moe",
  n_embd: 256,
  n_ff: 256,
  n_layer: N_LAYER,
  n_vocab: N_VOCAB,
  n_head: 4,
  n_head_kv: 2,
  head_dim: 64,
  n_expert: 32,
  n_expert_used: N_USED,
  type: "q4_K",
});
const OPTIONS = { n_ctx: 256, n_ubatch: 64, n_seq: 2, slots: 48 } as const;

/** Logits of tokens one by one, then of two sequences at once. */
async function logits(engine: Engine, n = 12): Promise<Float32Array[]> {
  using a = engine.createSequence();
  using b = engine.createSequence();
  const rows: Float32Array[] = [];
  let token = 3, other = 5;
  for (let i = 0; i < n; i++) {
    const requests = [{ sequence: a, tokens: [token], output: "last" as const, want: "logits" as const }];
    if (i >= n / 2) requests.push({ ...requests[0], sequence: b, tokens: [other] });
    const out = await engine.step(requests);
    for (const o of out) rows.push(o.full!);
    token = (out[0].ids[0] + 31 * i) % N_VOCAB;
    other = (token + 7) % N_VOCAB;
  }
  return rows;
}

async function withReadAhead<T>(value: "on" | "off", run: () => Promise<T>): Promise<T> {
  Deno.env.set("BLOOMERY_READ_AHEAD", value);
  try {
    return await run();
  } finally {
    Deno.env.delete("BLOOMERY_READ_AHEAD");
  }
}

function sameBits(got: Float32Array[], want: Float32Array[]): void {
  assert.equal(got.length, want.length);
  got.forEach((row, i) => assert.deepEqual(new Uint8Array(row.buffer), new Uint8Array(want[i].buffer), `row ${i}`));
}

Deno.test("reading ahead changes no bit, and counts what was guessed by layer", async () => {
  using opened = openBackend("cpu");
  using file = openGguf(path);
  let want: Float32Array[];
  {
    const { slots: _, ...resident } = OPTIONS;
    using engine = await Engine.load(file, opened.backend, resident);
    want = await logits(engine);
  }
  const run = (slots: number) => async (): Promise<ResidencyStats> => {
    using engine = await Engine.load(file, opened.backend, { ...OPTIONS, slots });
    sameBits(await logits(engine), want);
    return engine.residency!.stats;
  };
  for (const slots of [N_USED, 9, OPTIONS.slots]) {
    const on = await withReadAhead("on", run(slots)), off = await withReadAhead("off", run(slots));
    assert.ok(slots < 9 || on.ahead_bytes > 0, `${slots} slots: nothing was read ahead`);
    assert.ok(on.unused_bytes <= on.ahead_bytes && on.ahead_bytes <= on.read_bytes, JSON.stringify(on));
    assert.deepEqual([off.ahead_bytes, off.unused_bytes], [0, 0]);
    for (const { layers, n_needed, n_right, hits, misses } of [on, off]) {
      assert.equal(layers.length, N_LAYER);
      assert.deepEqual([layers[0].n_needed, layers[0].n_guessed], [0, 0], "there is no layer before the first");
      // What is needed is counted in every layer behind it, whether it is read ahead or not.
      assert.equal(n_needed, layers.slice(1).reduce((n, l) => n + l.hits + l.misses, 0));
      assert.equal(n_needed + layers[0].hits + layers[0].misses, hits + misses);
      assert.ok(n_right > n_needed / 4, `${n_right} of ${n_needed} were guessed: fewer than by chance or so`);
    }
    assert.deepEqual(
      on.layers.map((l) => [l.n_needed, l.n_guessed, l.n_right]),
      off.layers.map((l) => [
        l.n_needed,
        l.n_guessed,
        l.n_right,
      ]),
    );
  }
});

Deno.test("experts of a pool are guessed where their router is on the host, with the rest elsewhere", async () => {
  using opened = openBackend("cpu");
  assert.equal(opened.backend.addDevice(0), 1);
  using file = openGguf(path);
  const { slots: _, ...resident } = OPTIONS;
  using one = await Engine.load(file, opened.backend, resident);
  const want = await logits(one);
  const place = { split: [{ device: 1 }], hostExperts: N_LAYER };
  const stats = async (overrides: { pattern: RegExp; device: number }[]) => {
    using engine = await Engine.load(file, opened.backend, { ...OPTIONS, place: { ...place, overrides } });
    sameBits(await logits(engine), want);
    return engine.residency!.stats;
  };
  assert.equal((await stats([])).n_needed, 0);
  const { n_needed, n_right } = await stats([{ pattern: /ffn_(norm|gate_inp)/, device: 0 }]);
  assert.ok(n_needed > 0 && n_right > n_needed / 4, `${n_right} of ${n_needed}`);
});

Deno.test("layers whose experts are there are not guessed for", async () => {
  using opened = openBackend("cpu");
  using file = openGguf(path);
  using engine = await Engine.load(file, opened.backend, { ...OPTIONS, slots: 96 });
  const guessed: number[] = [];
  for (let i = 0; i < 60; i++) {
    await logits(engine, 4); // the same tokens again: after the first time every expert of theirs is there
    guessed.push(engine.residency!.stats.n_needed);
  }
  assert.ok(guessed[0] > 0 && guessed[4] > guessed[0], "guesses stop at once");
  assert.equal(guessed[59], guessed[50]);
});

Deno.test({
  name: "a trained router's experts are guessed from the residual of the layer before",
  ignore: !sharedDir,
  async fn() {
    using opened = openBackend("cpu");
    using file = openGguf(await preparedModel(`${sharedDir}models/bloom-nano-moe`, "bf16"));
    using engine = await Engine.load(file, opened.backend, { n_ctx: 128, n_ubatch: 16, slots: 40 });
    using sequence = engine.createSequence();
    let token = 5;
    for (let i = 0; i < 60; i++) token = (await engine.step([{ sequence, tokens: [token], output: "last" }]))[0].ids[0];
    const { n_needed, n_right } = engine.residency!.stats;
    assert.ok(n_right >= 0.75 * n_needed, `${n_right} of ${n_needed}`);
  },
});

Deno.test("an engine that sleeps and wakes while experts are read ahead gives the same bits", async () => {
  using opened = openBackend("cpu");
  using file = openGguf(path);
  using engine = await Engine.load(file, opened.backend, OPTIONS);
  const want = await logits(engine);
  for (let i = 0; i < 3; i++) {
    engine.sleep(); // reads of the last step's guesses may be under way
    await engine.wake();
    sameBits(await logits(engine), want);
  }
});

Deno.test("a drive that fails while experts are read ahead fails the step, and nothing after it", async () => {
  const switchFile = `${testFolder()}/ahead-errors`;
  Deno.env.set("BLOOMERY_TEST_READ_ERRORS", switchFile);
  try {
    using opened = openBackend("cpu");
    using file = openGguf(path);
    using engine = await Engine.load(file, opened.backend, OPTIONS);
    const want = await logits(engine);
    assert.ok(engine.residency!.stats.ahead_bytes > 0);
    Deno.writeTextFileSync(switchFile, path);
    await assert.rejects(logits(engine, 40), {
      code: "native.io",
      message: /ahead\.gguf on drive .*: Input\/output error$/,
    });
    Deno.removeSync(switchFile);
    sameBits(await logits(engine), want);
  } finally {
    Deno.env.delete("BLOOMERY_TEST_READ_ERRORS");
  }
});

Deno.test("slots that memory cannot hold are refused by name", () => {
  using opened = openBackend("cpu");
  assert.throws(() => opened.backend.createPool({ device: 0, slot_bytes: 2 ** 40, n_slots: 2 ** 10 }), {
    code: "native.memory",
    message: /Cannot allocate \d+ bytes of host memory for slots of experts/,
    hint: "use a smaller --host-room",
  });
});

Deno.test("a process that is killed while it reads ahead leaves the file as it was", async () => {
  const before = Deno.readFileSync(path);
  const script = `
    import { Engine } from "${repoDir}core/engine/mod.ts";
    import { openGguf } from "${repoDir}core/gguf/read.ts";
    import { openBackend } from "${repoDir}ffi/mod.ts";
    using opened = openBackend("cpu");
    using file = openGguf(${JSON.stringify(path)});
    using engine = await Engine.load(file, opened.backend, ${JSON.stringify(OPTIONS)});
    for (;;) {
      using sequence = engine.createSequence();
      for (let i = 0; i < 200; i++) {
        await engine.step([{ sequence, tokens: [(i * 37) % ${N_VOCAB}], output: "last" }]);
        if (i === 20) console.log(engine.residency.stats.ahead_bytes);
      }
    }`;
  const file = `${testFolder()}/ahead_killed.ts`;
  Deno.writeTextFileSync(file, script);
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", "--config", `${repoDir}deno.json`, file],
    stdout: "piped",
  }).spawn();
  const reader = child.stdout.getReader();
  const { value } = await reader.read();
  child.kill("SIGKILL");
  await reader.cancel();
  assert.ok(Number(new TextDecoder().decode(value).trim()) > 0, "it read ahead");
  assert.equal((await child.status).signal, "SIGKILL");
  assert.deepEqual(Deno.readFileSync(path), before);
});
