/**
 * `bloomery pipeline` on bloom-nano, from the checkpoint to the upload: run, run again, changed, killed, followed, and without a GGUF
 * file in between.
 */
import assert from "node:assert/strict";
import { bloomery } from "../cli/_testing.ts";
import { sha256 } from "../hub/_testing.ts";
import { fakeStore } from "../hub/_upload_testing.ts";
import { bloomNano, testFolder } from "./models.ts";
import { repoDir } from "./shared.ts";

const dir = `${testFolder()}/pipeline`;
Deno.mkdirSync(dir);
const TEXT = `${dir}/text.txt`;
Deno.writeTextFileSync(TEXT, Deno.readTextFileSync(`${repoDir}tests/goldens/perplexity/prose.txt`).slice(0, 700));
const CHECKPOINT = `${repoDir}models/bloom-nano`;
const REPO = "owner/bloom-nano-GGUF";

/** A recipe file of its own folder. */
function recipe(name: string, more: Record<string, unknown> = {}): string {
  const path = `${dir}/${name}.json`;
  Deno.writeTextFileSync(
    path,
    JSON.stringify({
      name: "bloom-nano",
      source: CHECKPOINT,
      out: name,
      prepare: { outtype: "bf16" },
      quantize: ["Q8_0", { type: "Q4_0", name: "Q4_0-mixed", tensor_types: ["attn_v=q6_K"] }],
      splice: [{ name: "spliced", base: "Q4_0-mixed", donor: "Q8_0", take: ["blk.0.*"] }],
      eval: { texts: [TEXT], window: 64 },
      card: { license: "apache-2.0", base_model: "owner/bloom-nano" },
      ...more,
    }),
  );
  return path;
}

async function run(path: string, ...args: string[]): Promise<{ code: number; documents: any[]; err: string }> {
  const { code, out, err } = await bloomery(["pipeline", path, "--device", "cpu", "--json", ...args]);
  return { code, err, documents: out.trimEnd().split("\n").filter((l) => l !== "").map((l) => JSON.parse(l)) };
}

const read = (path: string) => Deno.readFileSync(`${dir}/${path}`);
const MODELS = ["Q8_0", "Q4_0-mixed", "spliced"];

Deno.test("the whole pipeline: checkpoint to report and upload in one command, and nothing the second time", async () => {
  await using hub = fakeStore({ repo: REPO, token: "hf_t", partSize: 3e6 });
  const more = { upload: { hub: REPO } }, path = recipe("whole", more);
  const access = ["--hf-endpoint", hub.endpoint, "--hf-token", "hf_t"];
  const dry = await run(path, "--dry-run", ...access);
  assert.equal(dry.code, 0, dry.err);
  const [{ steps }] = dry.documents;
  assert.deepEqual(steps.map((s: any) => s.state), ["run", ...Array(steps.length - 1).fill("later")]);
  assert.throws(() => Deno.statSync(`${dir}/whole`), Deno.errors.NotFound, "a dry run writes nothing");
  const predicted = (id: string) => steps.find((s: any) => s.id === id).written;

  const first = await run(path, ...access);
  assert.equal(first.code, 0, first.err);
  const ran = first.documents.at(-1).ran;
  assert.deepEqual(ran, [
    "prepare",
    "quantize Q8_0",
    "quantize Q4_0-mixed",
    "splice spliced",
    "eval Q8_0",
    "eval Q4_0-mixed",
    "eval spliced",
    "manifest",
    "upload",
  ]);
  // What the header and its vocabulary take is not predicted.
  const size = read("whole/bloom-nano-Q8_0.gguf").length;
  assert.ok(predicted("quantize Q8_0") < size && predicted("quantize Q8_0") > 0.9 * size);

  const manifest = JSON.parse(new TextDecoder().decode(read("whole/manifest.json")));
  assert.deepEqual(manifest.models.map((m: any) => m.name), MODELS);
  for (const { file, bytes, sha256: hash, figures } of manifest.models) {
    const data = read(`whole/${file}`);
    assert.deepEqual([data.length, sha256(data)], [bytes, hash]);
    assert.ok(figures.kl.mean > 0 && figures.kl.se > 0);
    assert.deepEqual(hub.files.get(file), data);
  }
  const [q8, q4, spliced] = manifest.models.map((m: any) => m.figures.kl.mean);
  assert.ok(q8 < spliced && spliced < q4, `KL ${q8}, ${spliced}, ${q4}`);
  assert.deepEqual(manifest.models[1].made_by.quantize.tensor_types, ["attn_v=q6_K"]);
  const card = new TextDecoder().decode(read("whole/README.md"));
  assert.match(card, /^---\nlicense: "apache-2.0"\nbase_model: "owner\/bloom-nano"\n/);
  assert.match(card, new RegExp(`\\| bloom-nano-Q8_0.gguf \\| 7\\.5 \\| ${q8.toFixed(5)} ± `));
  assert.deepEqual(hub.files.get("README.md"), read("whole/README.md"));
  assert.ok(hub.files.has("bloom-nano-spliced.eval.html"));
  // Each type is what bloomery quantize makes of it alone.
  const alone = `${dir}/alone.gguf`;
  const words = ["--tensor-type", "attn_v=q6_K", await bloomNano("bf16"), alone, "Q4_0", "--device", "cpu"];
  assert.equal((await bloomery(["quantize", ...words])).code, 0);
  assert.deepEqual(read("whole/bloom-nano-Q4_0-mixed.gguf"), Deno.readFileSync(alone));

  const second = await run(path, ...access);
  assert.deepEqual(second.documents.at(-1).ran, []);
  const third = await run(recipe("whole", { ...more, eval: { texts: [TEXT], window: 48 } }), ...access);
  assert.deepEqual(third.documents.at(-1).ran, ["eval Q8_0", "eval Q4_0-mixed", "eval spliced", "manifest", "upload"]);
  const [plan] = (await run(path, "--dry-run", ...access)).documents;
  assert.ok(plan.steps.every((s: any) => s.state === "done" && s.measured));
});

Deno.test("importance is collected on the way, and weighs what is quantized with it", async () => {
  const more = {
    imatrix: { texts: [TEXT], flags: ["--ctx-size", "64"] },
    quantize: ["IQ2_S", { type: "Q4_0", imatrix: false }],
    splice: [],
  };
  const path = recipe("weighed", more);
  const first = await run(path);
  assert.equal(first.code, 0, first.err);
  assert.deepEqual(first.documents.at(-1).ran.slice(0, 4), ["prepare", "imatrix", "quantize IQ2_S", "quantize Q4_0"]);
  const alone = `${dir}/weighed-alone.gguf`, matrix = `${dir}/weighed/bloom-nano.imatrix.gguf`;
  const words = ["--imatrix", matrix, await bloomNano("bf16"), alone, "IQ2_S", "--device", "cpu"];
  assert.equal((await bloomery(["quantize", ...words])).code, 0);
  assert.deepEqual(sha256(read("weighed/bloom-nano-IQ2_S.gguf")), sha256(Deno.readFileSync(alone)));
  assert.deepEqual((await run(path)).documents.at(-1).ran, []);
});

Deno.test("losses are measured on the way, and a budget takes its types from them; other settings measure anew", async () => {
  const more = {
    measure: { by: "error", types: ["q2_K", "q4_K", "q6_K"] },
    quantize: [{ budget: "4.2bpw" }],
    splice: [],
  };
  const path = recipe("measured", more);
  const first = await run(path);
  assert.equal(first.code, 0, first.err);
  const ran = ["prepare", "measure", "quantize 4.2bpw", "eval 4.2bpw", "manifest"];
  assert.deepEqual(first.documents.at(-1).ran, ran);
  const alone = `${dir}/measured-alone.gguf`, losses = `${dir}/measured/bloom-nano.measure.json`;
  const words = [await bloomNano("bf16"), alone, "--budget", "4.2bpw", "--measure", losses, "--device", "cpu"];
  assert.equal((await bloomery(["quantize", ...words])).code, 0);
  assert.deepEqual(sha256(read("measured/bloom-nano-4.2bpw.gguf")), sha256(Deno.readFileSync(alone)));
  const { models: [{ made_by }] } = JSON.parse(new TextDecoder().decode(read("measured/manifest.json")));
  assert.deepEqual(made_by, { quantize: { budget: "4.2bpw" } });
  assert.deepEqual((await run(path)).documents.at(-1).ran, []);
  const weighted = { ...more, imatrix: { texts: [TEXT], flags: ["--ctx-size", "64"] } };
  const second = await run(recipe("measured", weighted));
  assert.equal(second.code, 0, second.err);
  assert.deepEqual(second.documents.at(-1).ran, ["imatrix", ...ran.slice(1)]);
  const other = await run(recipe("measured", { ...weighted, imatrix: { texts: [TEXT], flags: ["--ctx-size", "48"] } }));
  assert.deepEqual([other.code, other.documents.at(-1).ran], [0, ["imatrix", ...ran.slice(1)]], other.err);
});

Deno.test("a pipeline that is killed anywhere goes on to the same files", async () => {
  const path = recipe("killed");
  /** Runs until a step is done, some milliseconds more, and kills it. */
  const kill = async (after: string | undefined, ms: number) => {
    const child = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", `${repoDir}cli/main.ts`, "pipeline", path, "--device", "cpu", "--json"],
      stdout: "piped",
      stderr: "null",
    }).spawn();
    let text = "";
    const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
    while (after !== undefined && !text.includes(`"id":"${after}"`)) {
      const { value, done } = await reader.read();
      if (done) break;
      text += value;
    }
    await new Promise((resolve) => setTimeout(resolve, ms));
    try {
      child.kill("SIGKILL");
    } catch {
      // It has ended already.
    }
    await reader.cancel();
    await child.status;
  };
  for (
    const [after, ms] of [[undefined, 400], ["prepare", 20], ["prepare", 120], ["quantize Q4_0-mixed", 5], [
      "eval Q8_0",
      30,
    ]] as const
  ) {
    await kill(after, ms);
  }
  const last = await run(path);
  assert.equal(last.code, 0, last.err);
  assert.ok(!last.documents.at(-1).ran.includes("eval Q8_0"), "what was done before the last kill stays done");
  const whole = await run(recipe("unhurt"));
  assert.equal(whole.code, 0, whole.err);
  for (const name of MODELS) {
    assert.deepEqual(read(`killed/bloom-nano-${name}.gguf`), read(`unhurt/bloom-nano-${name}.gguf`), name);
  }
  const left = [...Deno.readDirSync(`${dir}/killed`)].map((e) => e.name).filter((n) => n.includes(".partial"));
  assert.deepEqual(left, [], "no unfinished file is left");
  const text = (of: string) => new TextDecoder().decode(read(`${of}/manifest.json`));
  assert.equal(text("killed"), text("unhurt"));
});

Deno.test("--hf makes the same models and figures without a GGUF file in between, under --room, and a command uploads them", async () => {
  Deno.mkdirSync(`${dir}/uploaded`);
  const path = recipe("direct", {
    upload: { command: ["cp", "{file}", `${dir}/uploaded/{sha256}-{name}`] },
  });
  const { code, documents, err } = await run(path, "--hf", "--room", "2M");
  assert.equal(code, 0, err);
  assert.ok(!documents.at(-1).ran.includes("prepare"));
  assert.throws(() => Deno.statSync(`${dir}/direct/bloom-nano.gguf`), Deno.errors.NotFound);
  for (const name of MODELS) {
    const file = `bloom-nano-${name}.gguf`, data = read(`direct/${file}`);
    assert.deepEqual(data, read(`unhurt/${file}`), name);
    assert.deepEqual(read(`uploaded/${sha256(data)}-${file}`), data);
  }
  assert.deepEqual((await run(path, "--hf", "--room", "8M")).documents.at(-1).ran, [], "room changes no bytes");
  const rows = (of: string) => JSON.parse(new TextDecoder().decode(read(`${of}/bloom-nano-Q8_0.eval.json`))).rows;
  assert.deepEqual(rows("direct"), rows("unhurt"), "the checkpoint is the original, and gives the same figures");
});

Deno.test("--follow prepares a checkpoint that is still arriving", async () => {
  const arriving = `${dir}/arriving/bloom-nano`; // the model is named after its folder
  Deno.mkdirSync(arriving, { recursive: true });
  const files = [...Deno.readDirSync(CHECKPOINT)].map((e) => e.name);
  for (const name of files.filter((n) => n !== "model.safetensors")) {
    Deno.copyFileSync(`${CHECKPOINT}/${name}`, `${arriving}/${name}`);
  }
  const path = recipe("followed", { source: arriving, quantize: ["Q8_0"], splice: [], eval: undefined });
  const running = run(path, "--follow");
  await new Promise((resolve) => setTimeout(resolve, 1500));
  Deno.copyFileSync(`${CHECKPOINT}/model.safetensors`, `${arriving}/model.safetensors.part`);
  Deno.renameSync(`${arriving}/model.safetensors.part`, `${arriving}/model.safetensors`);
  const { code, err } = await running;
  assert.equal(code, 0, err);
  assert.deepEqual(read("followed/bloom-nano-Q8_0.gguf"), read("unhurt/bloom-nano-Q8_0.gguf"));
  assert.deepEqual((await run(path)).documents.at(-1).ran, [], "the checkpoint is known as it is when it is whole");
});

Deno.test("a limit that is not met ends the pipeline before anything is published", async () => {
  const path = recipe("limit", {
    quantize: ["Q4_0"],
    splice: [],
    eval: { texts: [TEXT], window: 64, max_kl: 1e-6 },
    upload: { command: ["false"] },
  });
  const { code, err } = await run(path);
  assert.equal(code, 3, err);
  assert.match(err, /eval Q4_0: a threshold was not met/);
  assert.throws(() => Deno.statSync(`${dir}/limit/manifest.json`), Deno.errors.NotFound);
  assert.ok(JSON.parse(new TextDecoder().decode(read("limit/bloom-nano-Q4_0.eval.json"))).rows[0].kl.mean > 1e-6);
  const failing = await run(
    recipe("limit", { quantize: ["Q4_0"], splice: [], eval: undefined, upload: { command: ["false"] } }),
  );
  assert.deepEqual([failing.code, failing.documents.at(-1).error.code], [2, "usage.upload"]);
});
