/** Residency in a running engine, in the server and on the command line. Needs the CPU library. */
import assert from "node:assert/strict";
import { Engine } from "../core/engine/mod.ts";
import { openGguf } from "../core/gguf/read.ts";
import { readRank } from "../cli/residency.ts";
import { openBackend } from "../ffi/mod.ts";
import { startServer } from "../serve/server.ts";
import { preparedModel, testFolder } from "./models.ts";
import { fakeModel } from "./serve/fake.ts";
import { repoDir, sharedDir } from "./shared.ts";
import { writeSynthetic } from "./quantize/synthetic.ts";

const path = `${testFolder()}/residency.gguf`;
writeSynthetic(path, {
  arch: "qwen3moe",
  n_embd: 256,
  n_ff: 256,
  n_layer: 2,
  n_vocab: 268,
  n_head: 4,
  head_dim: 64,
  n_expert: 16,
  n_expert_used: 2,
  type: "q4_K",
});
const OPTIONS = { n_ctx: 512, n_ubatch: 64, slots: 12 };

/** Greedy tokens after a prompt. */
async function greedy(engine: Engine, n: number): Promise<number[]> {
  using sequence = engine.createSequence();
  const got = [7];
  for (let i = 0; i < n; i++) {
    const [out] = await engine.step([{ sequence, tokens: [got[i]], output: "last" }]);
    got.push(out.ids[0]);
  }
  return got;
}

Deno.test("a rank seats its experts before the first step, and reset() takes those seats again", async () => {
  using opened = openBackend("cpu");
  using file = openGguf(path);
  const rank = new Map([["blk.0.ffn_gate_exps.weight", Array.from({ length: 16 }, (_, e) => e < 4 ? 9 : 0)]]);
  using engine = await Engine.load(file, opened.backend, { ...OPTIONS, rank });
  const residency = engine.residency!;
  const { n_held, n_seated, read_bytes, hits } = residency.stats;
  assert.deepEqual([n_held, n_seated, hits], [4, 4, 0]);
  assert.equal(read_bytes, 4 * 3 * 256 * 144);
  const first = await greedy(engine, 40);
  const used = residency.stats;
  assert.ok(used.hits > 0 && used.hits + used.misses === 40 * 2 * 2, JSON.stringify(used));
  assert.ok(used.n_seated > 4, "nobody was seated while it ran");
  residency.reset();
  const { hits: again, misses, n_seated: seated, read_bytes: bytes } = residency.stats;
  assert.deepEqual([again, misses, seated, bytes], [0, 0, 4, 0]);
  assert.deepEqual(await greedy(engine, 40), first);
});

Deno.test("a long prompt leaves the experts of decoding where they are", async () => {
  using opened = openBackend("cpu");
  using file = openGguf(path);
  using engine = await Engine.load(file, opened.backend, { ...OPTIONS, slots: 24 });
  const rate = async () => {
    const before = engine.residency!.stats;
    await greedy(engine, 60);
    const after = engine.residency!.stats;
    return (after.hits - before.hits) / (after.hits + after.misses - before.hits - before.misses);
  };
  await rate();
  const before = await rate();
  using sequence = engine.createSequence();
  const prompt = Int32Array.from({ length: 400 }, (_, i) => (i * 37) % 268);
  await engine.step([{ sequence, tokens: prompt, output: "none" }]);
  const after = await rate();
  assert.ok(after >= before - 0.1, `${before} before the prompt, ${after} after it`);
});

Deno.test("the server tells hit rates in /slots and /metrics, and POST /residency/reset begins anew", async () => {
  using opened = openBackend("cpu");
  using file = openGguf(path);
  using engine = await Engine.load(file, opened.backend, OPTIONS);
  const server = await startServer({ model: { ...fakeModel({}), engine }, port: 0, n_slots: 1, metrics: true });
  const get = async (path: string, init?: RequestInit) => await (await fetch(server.url + path, init)).text();
  try {
    const body = JSON.stringify({ prompt: [1, 2, 3], n_predict: 8, ignore_eos: true });
    await get("/completion", { method: "POST", body });
    const [{ residency }] = JSON.parse(await get("/slots"));
    assert.ok(residency.misses > 0 && residency.hit_rate === residency.hits / (residency.hits + residency.misses));
    assert.deepEqual(residency.layers.map((l: { name: string }) => l.name), [
      "blk.0.ffn_gate_exps.weight",
      "blk.1.ffn_gate_exps.weight",
    ]);
    const [first, second] = residency.layers;
    assert.equal(first.guess_rate, 0);
    assert.ok(second.guess_rate > 0 && second.guess_rate <= 1 && residency.guess_rate === second.guess_rate);
    const metrics = await get("/metrics");
    assert.match(metrics, /^bloomery_expert_guessed_right_total\{layer="blk\.1\.ffn_gate_exps\.weight"\} [1-9]\d*$/m);
    assert.match(metrics, /^bloomery_expert_needed_total\{layer="blk\.0\.ffn_gate_exps\.weight"\} 0$/m);
    assert.match(metrics, /^bloomery_expert_ahead_bytes_total \d+$/m);
    assert.match(metrics, /^bloomery_expert_misses_total\{layer="blk\.1\.ffn_gate_exps\.weight"\} [1-9]\d*$/m);
    assert.match(metrics, /^bloomery_expert_read_bytes_total [1-9]\d*$/m);
    assert.deepEqual(JSON.parse(await get("/residency/reset", { method: "POST" })), { reset: true });
    const [{ residency: anew }] = JSON.parse(await get("/slots"));
    assert.deepEqual([anew.hits, anew.misses, anew.read_bytes], [0, 0, 0]);
  } finally {
    await server.stop();
  }
});

Deno.test("a server whose weights are resident has nothing to reset", async () => {
  const server = await startServer({ model: fakeModel({}), port: 0, n_slots: 1 });
  try {
    const response = await fetch(`${server.url}/residency/reset`, { method: "POST" });
    assert.equal(response.status, 400);
    assert.equal((await response.json()).error.code, "no_residency");
    assert.equal((await (await fetch(`${server.url}/slots`)).json())[0].residency, undefined);
  } finally {
    await server.stop();
  }
});

/** Runs a command in a process of its own. */
async function bloomery(...args: string[]) {
  const command = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", `${repoDir}cli/main.ts`, ...args],
  });
  const { code, stdout, stderr } = await command.output();
  return { code, out: new TextDecoder().decode(stdout), err: new TextDecoder().decode(stderr) };
}

Deno.test("readRank() refuses what is no rank, by file and field", async () => {
  const file = `${testFolder()}/bad.json`;
  for (
    const [text, match] of [
      ["{", /Cannot read rank .*bad\.json/],
      ['{"schema": "other"}', /schema is "other", expected "bloomery\.rank\/1"/],
      ['{"schema": "bloomery.rank/1", "counts": {"a": [1, -1]}}', /counts of a are not/],
    ] as const
  ) {
    Deno.writeTextFileSync(file, text);
    await assert.rejects(readRank(file), { code: "format.rank", message: match });
  }
});

Deno.test("bench and plan take --host-room, and bench tells how often experts were in memory", async () => {
  const planned = await bloomery("plan", path, "-c", "512", "--ubatch-size", "64", "--host-room", "4M", "--json");
  assert.equal(planned.code, 0, planned.err);
  const { pools, total_bytes, schema } = JSON.parse(planned.out);
  assert.equal(schema, "bloomery.plan/1");
  assert.ok(pools.length === 1 && total_bytes <= 4e6, planned.out);
  const refused = await bloomery("plan", path, "-c", "256", "--host-room", "1M");
  assert.equal(refused.code, 1);
  assert.match(refused.err, /the smallest pool of experts .* \[plan\.does_not_fit\]/);
  const args = [
    "-m",
    path,
    "--device",
    "cpu",
    "--ubatch-size",
    "64",
    "--host-room",
    "4M",
    "-p",
    "0",
    "-n",
    "8",
    "-r",
    "1",
  ];
  const { code, out, err } = await bloomery("bench", ...args);
  assert.equal(code, 0, err);
  assert.match(out, /^tg8 /m);
  assert.match(
    err,
    /experts: \d+\.\d % of \d+ were in memory .*; guessed \d+\.\d % of the \d+ that layers needed, .* read ahead/,
  );
});

Deno.test({
  name: "rank counts a text's experts, and run starts with them",
  ignore: !sharedDir,
  async fn() {
    const model = await preparedModel(`${sharedDir}models/bloom-nano-moe`, "bf16");
    const text = `${testFolder()}/rank.txt`, output = `${testFolder()}/nano.rank.json`;
    Deno.writeTextFileSync(text, "The city lies on the river, and the river flows to the sea.\n".repeat(20));
    const ranked = await bloomery("rank", "-m", model, "--device", "cpu", "-f", text, "-o", output);
    assert.equal(ranked.code, 0, ranked.err);
    const { counts, n_tokens } = JSON.parse(Deno.readTextFileSync(output));
    const [rows] = Object.values<number[]>(counts);
    assert.equal(rows.reduce((a, b) => a + b, 0) % n_tokens, 0);
    const args = ["-m", model, "--device", "cpu", "--raw", "-n", "8", "--temp", "0", "The city"];
    const resident = await bloomery("run", ...args);
    const { total_bytes, weights } = JSON.parse((await bloomery("plan", model, "-c", "512", "--json")).out);
    const experts = weights.filter((w: { name: string }) => w.name.includes("_exps"))
      .reduce((n: number, w: { device_bytes: number }) => n + w.device_bytes, 0);
    const room = String(Math.round(total_bytes - experts / 2));
    const pooled = await bloomery("run", ...args, "-c", "512", "--host-room", room, "--expert-rank", output);
    assert.equal(pooled.code, 0, pooled.err);
    assert.match(pooled.err, /experts: .* were in memory/);
    assert.equal(pooled.out, resident.out);
  },
});
