/** Machines: measured, kept and predicted with. Needs the CPU library. */
import assert from "node:assert/strict";
import { bloomery } from "../cli/_testing.ts";
import { keptMachinePath } from "../cli/machine_file.ts";
import { bindModel } from "../core/arch/model.ts";
import { measureDrive, measureMachine } from "../core/engine/measure.ts";
import { planEngine } from "../core/engine/planning.ts";
import { openGguf } from "../core/gguf/read.ts";
import { type Machine, MACHINE_SCHEMA, parseMachine } from "../core/plan/machine.ts";
import { predict } from "../core/plan/predict.ts";
import { workOf } from "../core/plan/work.ts";
import { openBackend } from "../ffi/mod.ts";
import { testFolder } from "./models.ts";
import { writeSynthetic } from "./quantize/synthetic.ts";

const path = `${testFolder()}/machine.gguf`;
const N_LAYER = 2, N_EMBD = 256, N_FF = 256, N_EXPERT = 16, N_USED = 4, N_VOCAB = 64;
writeSynthetic(path, {
  arch: "qwen3moe",
  n_embd: N_EMBD,
  n_ff: N_FF,
  n_layer: N_LAYER,
  n_vocab: N_VOCAB,
  n_head: 4,
  n_head_kv: 2,
  head_dim: 64,
  n_expert: N_EXPERT,
  n_expert_used: N_USED,
  type: "q8_0",
});

const MACHINE: Machine = {
  schema: MACHINE_SCHEMA,
  host: {
    name: "a box",
    n_threads: 2,
    bandwidth: 1e10,
    op: 1e-6,
    products: {
      q8_0: { one: 1e10, many: 1e11 },
      q6_K: { one: 1e10, many: 1e11 },
      f32: { one: 1e10, many: 1e11 },
      f16: { one: 1e10, many: 1e11 },
    },
  },
  cards: [],
  drives: [{ path: "/models", random: 1e8, sequential: 1e8 }],
};

/** A file with nothing in it that takes no room. */
function sparse(name: string, bytes: number): string {
  const file = `${testFolder()}/${name}`;
  Deno.writeFileSync(file, new Uint8Array());
  Deno.truncateSync(file, bytes);
  return file;
}

Deno.test("workOf() counts the bytes and multiply-adds of every product of a model", () => {
  using file = openGguf(path);
  using opened = openBackend("cpu");
  const { model, plan } = planEngine(bindModel(file), opened.backend, { n_ctx: 256, slots: 8 });
  const work = workOf(model, plan),
    [routed, others] = [true, false].map((r) => work.products.filter((p) => (p.routed !== undefined) === r));
  assert.deepEqual([work.n_crossing, work.crossing_bytes], [0, 0]);
  assert.deepEqual(
    work.layers,
    Array.from({ length: N_LAYER }, (_, l) => ["gate", "up", "down"].map((n) => `blk.${l}.ffn_${n}_exps.weight`)),
  );
  for (const p of routed) {
    assert.deepEqual([p.bytes, p.macs, p.outputs], [N_EXPERT * N_EMBD * N_FF / 32 * 34, N_USED * N_EMBD * N_FF, false]);
    assert.deepEqual(p.routed, { layer: Number(p.name[4]), n_expert: N_EXPERT, n_used: N_USED });
  }
  assert.deepEqual(others.filter((p) => p.outputs).map((p) => [p.name, p.bytes]), [["output.weight", N_VOCAB * 210]]);
  assert.equal(
    others.reduce((n, p) => n + p.macs, 0),
    N_LAYER * N_EMBD * (256 + 128 + 128 + 256 + N_EXPERT) + N_EMBD * N_VOCAB,
  );
  // 4 heads of 64 numbers in keys and values; a position has 2 x 2 heads of f16.
  assert.deepEqual(
    work.attention,
    Array.from({ length: N_LAYER }, () => ({ place: "host", macs: 4 * 128, bytes: 2 * 2 * 64 * 2, most: Infinity })),
  );
  assert.deepEqual(work.pools, [{ n_slots: 8, layers: [0, 1] }]);
});

Deno.test("plan --machine prints the same numbers wherever it runs", async () => {
  const file = `${testFolder()}/box.json`;
  Deno.writeTextFileSync(file, JSON.stringify(MACHINE));
  const args = ["plan", path, "-c", "256", "--host-room", "2G", "--machine", file];
  const { out, code, err } = await bloomery([...args, "--json"]);
  assert.equal(code, 0, err);
  const { prediction } = JSON.parse(out);
  const layer = N_EMBD * (256 + 128 + 128 + 256) / 32 * 34 + N_EMBD * N_EXPERT * 4;
  const bytes = N_LAYER * (layer + 3 * N_USED * N_EMBD * N_FF / 32 * 34) + N_VOCAB * 210;
  const [products] = prediction.decode.terms;
  assert.ok(Math.abs(products.bytes - bytes) < 1, `${products.bytes}, expected ${bytes}`);
  assert.ok(Math.abs(products.seconds - bytes / 1e10) < 1e-12);
  const seconds = prediction.decode.terms.reduce((n: number, t: { seconds: number }) => n + t.seconds, 0);
  assert.ok(Math.abs(prediction.decode.tokens_per_second * seconds - 1) < 1e-12);
  const text = await bloomery(args);
  assert.match(
    text.out,
    /\ndecode {3}\d+ tokens a second after 0: products on the host \d\.\d\d ms \(\d\.\d MB\) \+ .*\nprompt {3}\d+ tokens/,
  );
  const bad = await bloomery(["plan", path, "--machine", path]);
  assert.match(bad.err, /Cannot use .*machine\.gguf as a machine: .*\[format\.machine\]/);
});

Deno.test("plan --machine counts what host and card each do, and what passes between them", async () => {
  const card = { ...MACHINE.host, name: "a card", bandwidth: 1e12, op: 2e-6, to_card: 1e10, to_host: 1e10 };
  const file = `${testFolder()}/workstation.json`;
  Deno.writeTextFileSync(file, JSON.stringify({ ...MACHINE, cards: [card] }));
  const args = ["plan", path, "-c", "256", "--card-room", "1G", "-ncmoe", "1", "--machine", file, "--json"];
  const { out, err } = await bloomery(args);
  const { prediction, weights, moved_bytes } = JSON.parse(out || `{"prediction": ${JSON.stringify(err)}}`);
  const experts = weights.filter((w: { name: string }) => w.name.startsWith("blk.0.") && w.name.includes("_exps"));
  assert.deepEqual(experts.map((w: { device: number }) => w.device), [0, 0, 0]);
  const term = (what: string, place: string) =>
    prediction.decode.terms.find((t: { what: string; place: string }) => t.what === what && t.place === place);
  assert.equal(term("products", "host").bytes, 3 * N_USED * N_EMBD * N_FF / 32 * 34);
  assert.ok(term("products", "card").bytes > term("products", "host").bytes);
  assert.ok(term("attention", "card") !== undefined && term("attention", "host") === undefined);
  // To the host and back once: rows, ids and weights go, the layer's sum comes.
  assert.equal(term("crossings", "card").bytes, moved_bytes);
  assert.ok(Math.abs(term("crossings", "card").seconds - 2 * 15e-6 - moved_bytes / 1e10) < 1e-12);
  const without = await bloomery([...args.slice(0, -2), `${testFolder()}/box.json`]);
  assert.match(without.err, /Cannot predict a plan that needs a card: the machine has none \[plan\.machine\]/);
});

Deno.test("what is measured can be written, read and predicted with", async () => {
  using opened = openBackend("cpu");
  let last: number[] = [];
  const measured = await measureMachine(opened.backend, {
    types: ["q8_0", "bf16"],
    side: 256,
    bytes: 1 << 20,
    n_rows: 32,
    drive: sparse("drive", 256 << 20),
    onProgress: (...progress) => last = progress,
  });
  assert.deepEqual(last, [4, 4]);
  assert.deepEqual(parseMachine("m.json", JSON.stringify(measured)), measured);
  assert.equal(measured.host.name, opened.device.name);
  assert.deepEqual(Object.keys(measured.host.products), ["q8_0", "bf16"]);
  assert.equal(measured.drives.length, 1);
  using file = openGguf(path);
  const { model, plan } = planEngine(bindModel(file), opened.backend, { n_ctx: 256 });
  const { decode, prompt } = predict(workOf(model, plan), measured);
  assert.ok(decode.tokens_per_second > 0 && prompt.tokens_per_second > decode.tokens_per_second);
});

Deno.test("a file that is too short to measure its drive is refused by name", async () => {
  using opened = openBackend("cpu");
  await assert.rejects(measureDrive(opened.backend, sparse("short-drive", 1 << 20)), {
    code: "format.machine_drive",
    message: /short-drive: it has 1048576 bytes$/,
  });
});

Deno.test("machine keeps what it measured, and bench prints it beside what it measures", async () => {
  const home = Deno.makeTempDirSync();
  const run = async (...args: string[]) => {
    Deno.env.set("XDG_CACHE_HOME", home);
    try {
      return await bloomery(args);
    } finally {
      Deno.env.delete("XDG_CACHE_HOME");
    }
  };
  try {
    const none = await run("plan", path, "--machine", "here");
    assert.match(none.err, /this machine was not measured \[usage\.machine\]\nhint: run bloomery machine first/);
    const drive = sparse("cli-drive", 256 << 20);
    const first = await run("machine", "--device", "cpu", "--size", "256", "--drive", drive, "--json");
    assert.equal(first.code, 0, first.err);
    const kept = keptMachinePath((name) => name === "XDG_CACHE_HOME" ? home : undefined);
    assert.deepEqual(JSON.parse(first.out), JSON.parse(Deno.readTextFileSync(kept)));
    const again = await run("machine", "--device", "cpu");
    assert.match(again.err, /^measured before: .*machine\.json; --again measures anew$/m);
    assert.match(
      again.out,
      /^host .*: memory .*\/s, .* us an op\n {9}f16 .*\n(.*\n)*drive {4}of .*cli-drive: .*\/s at random/,
    );
    const benched = await run("bench", "-m", path, "--device", "cpu", "-p", "16", "-n", "4", "-r", "1");
    assert.match(benched.out, /^case .* predicted$/m, benched.err);
    assert.match(benched.out, /^tg4 .* \d+\.\d$/m);
  } finally {
    Deno.removeSync(home, { recursive: true });
  }
});
