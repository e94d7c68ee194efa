/** `bloomery imatrix collect`: against llama-imatrix, by bits between ways to cut the work, killed and continued. */
import assert from "node:assert/strict";
import { gunzipSync } from "node:zlib";
import { bloomery } from "../cli/_testing.ts";
import { bindModel } from "../core/arch/model.ts";
import { Engine } from "../core/engine/mod.ts";
import { BloomeryError } from "../core/errors.ts";
import { USE } from "../core/program/program.ts";
import { openReferenceBackend } from "../core/program/reference.ts";
import { openBackend } from "../ffi/mod.ts";
import { type ImatrixFile, readImatrix } from "../quantize/imatrix.ts";
import {
  collectImatrix,
  type CollectJob,
  collects,
  type CollectState,
  coverage,
  coverageLines,
  imatrixOf,
} from "../quantize/imatrix/collect.ts";
import { readState, statePath, writeState } from "../quantize/imatrix/state.ts";
import { contentKey } from "../core/gguf/content_key.ts";
import { openGguf } from "../core/gguf/read.ts";
import { FAMILY_MODELS, writeFamilyModel } from "./family_models.ts";
import { bloomNano, testFolder } from "./models.ts";
import { repoDir } from "./shared.ts";

const dir = `${testFolder()}/imatrix`;
Deno.mkdirSync(dir);
const prose = `${repoDir}tests/goldens/perplexity/prose.txt`;

function worstOf(got: ImatrixFile, want: ImatrixFile): number {
  assert.deepEqual([...got.sums.keys()], [...want.sums.keys()]);
  let worst = 0;
  for (const [name, { sums, counts }] of want.sums) {
    const own = got.sums.get(name)!;
    assert.deepEqual([...own.counts], [...counts], name);
    sums.forEach((v, i) => worst = Math.max(worst, Math.abs(own.sums[i] - v) / Math.max(v, 1e-30)));
  }
  return worst;
}

async function collect(output: string, ...args: string[]) {
  const model = await bloomNano("f32");
  return await bloomery([
    ...["imatrix", "collect", "-m", model, "--device", "cpu", "-f", prose, "-c", "128", "-ctk", "f32", "-ctv", "f32"],
    ...["--process-output", "-o", output, "--json", ...args],
  ]);
}

Deno.test("imatrix collect gives what llama-imatrix gives, and a killed run goes on to the same bytes", async () => {
  const golden = `${dir}/golden.dat`, whole = `${dir}/whole.dat`, cut = `${dir}/cut.dat`;
  Deno.writeFileSync(golden, gunzipSync(Deno.readFileSync(`${repoDir}tests/goldens/imatrix/bloom-nano.dat.gz`)));
  const ran = await collect(whole, "--chunks", "4", "--output-format", "dat");
  assert.equal(ran.code, 0, ran.err);
  const worst = worstOf(readImatrix(whole), readImatrix(golden));
  assert.ok(worst < 1e-4, `an importance differs by ${worst}`);
  assert.deepEqual(JSON.parse(ran.out).n_chunks, 4);
  assert.equal(readImatrix(whole).n_chunks, 4);

  // A run that is killed behind its second window has left that window's state.
  const model = await bloomNano("f32");
  const state = await stateBehind(2, cut, model);
  writeState(state, statePath(cut));
  const other = await collect(cut, "--chunks", "3", "--output-format", "dat");
  assert.deepEqual([other.code, JSON.parse(other.out).error.code], [1, "quantize.resume_mismatch"]);
  writeState({ ...state, job: { ...state.job, model_key: "00" } }, statePath(cut));
  const foreign = JSON.parse((await collect(cut, "--chunks", "4", "--output-format", "dat")).out).error;
  assert.deepEqual([foreign.code, /it was another model/.test(foreign.message)], ["quantize.resume_mismatch", true]);
  writeState(state, statePath(cut));
  const continued = await collect(cut, "--chunks", "4", "--output-format", "dat");
  assert.equal(continued.code, 0, continued.err);
  assert.match(continued.err, /behind 2 of 4 windows/);
  assert.deepEqual(Deno.readFileSync(cut), Deno.readFileSync(whole));
  assert.throws(() => Deno.statSync(statePath(cut)), Deno.errors.NotFound);
  const again = await collect(cut);
  assert.deepEqual([again.code, JSON.parse(again.out).error.code], [2, "usage.output_exists"]);
});

/** What a run of the test above has done behind some windows. */
async function stateBehind(n: number, output: string, model: string): Promise<CollectState> {
  const { tokenizerFromGguf } = await import("../core/tokenizer/mod.ts");
  const { cutWindows } = await import("../eval/windows.ts");
  const { hashWindows } = await import("../quantize/imatrix/collect.ts");
  using file = openGguf(model);
  const texts = [{ name: prose, text: Deno.readTextFileSync(prose) }];
  const cut = { n_window: 128, skip: 0 };
  const windows = cutWindows(texts, tokenizerFromGguf(file.metadata), cut).slice(0, 4);
  const tokens = await hashWindows(windows);
  const model_key = contentKey(file, (t) => file.place(t));
  // A model is the same one under another name.
  const job = { model: `/elsewhere/${model}`, model_key, datasets: [prose], n_ctx: 128, tokens, process_output: true };
  using opened = openBackend("cpu");
  using engine = await Engine.load(file, opened.backend, {
    n_ctx: 128,
    cacheTypeK: "f32",
    cacheTypeV: "f32",
    collect: collects(true),
  });
  const stop = new AbortController();
  await assert.rejects(
    collectImatrix({
      engine,
      job,
      windows,
      signal: stop.signal,
      onWindow: (state) => {
        if (state.n_done < n) return;
        // What is written while a run goes on is what it has then.
        writeState(state, `${output}.then`);
        stop.abort();
      },
    }),
    { name: "AbortError" },
  );
  const last = readState(`${output}.then`);
  assert.equal(last.n_done, n);
  return last;
}

const WINDOWS = [1, 2, 3].map((k) => ({
  ids: Int32Array.from({ length: 23 - k }, (_, i) => 1 + (7 * k * i + k) % 60),
}));
const JOB: CollectJob = { model: "m", model_key: "00", datasets: ["t"], n_ctx: 22, tokens: "", process_output: true };

async function familySums(
  name: string,
  options: { n_ubatch: number; threads?: number; reference?: boolean; slots?: number },
): Promise<CollectState> {
  using backend = options.reference
    ? openReferenceBackend()
    : openBackend("cpu", { threads: options.threads ?? 1 }).backend;
  using file = openGguf(`${dir}/${name}.gguf`);
  using engine = await Engine.load(file, backend, {
    n_ctx: 64,
    cacheTypeK: "f32",
    cacheTypeV: "f32",
    n_ubatch: options.n_ubatch,
    ...(options.slots === undefined ? {} : { slots: options.slots }),
    collect: collects(true),
  });
  assert.equal(engine.residency !== undefined, options.slots !== undefined);
  return await collectImatrix({ engine, job: JOB, windows: WINDOWS });
}

for (const name of ["qwen3moe", "deepseek32", "qwen35moe"]) {
  Deno.test(`the sums of ${name} depend neither on threads nor on steps, and are the reference's`, async () => {
    using file = openGguf(await writeFamilyModel(`${dir}/${name}.gguf`, FAMILY_MODELS[name]));
    const one = await familySums(name, { n_ubatch: 64 });
    const cut = await familySums(name, { n_ubatch: 8, threads: 3 });
    assert.deepEqual(cut.sums, one.sums);
    // Experts that come and go during a step have the sums of resident ones.
    for (const slots of [1, 5]) {
      assert.deepEqual((await familySums(name, { n_ubatch: 16, slots })).sums, one.sums, `${slots} slots`);
    }
    const want = await familySums(name, { n_ubatch: 64, reference: true });
    assert.deepEqual([...one.sums.keys()], [...want.sums.keys()]);
    const rows = WINDOWS.reduce((n, w) => n + w.ids.length, 0);
    for (const [weight, { sums, counts }] of one.sums) {
      const ref = want.sums.get(weight)!, total = counts.reduce((a, b) => a + b, 0);
      const close = sums.every((v, i) => Math.abs(v - ref.sums[i]) <= 1e-4 * Math.abs(ref.sums[i]) + 1e-6);
      assert.ok(close, weight);
      assert.equal(sums.length / counts.length, file.tensor(weight).ne[0], weight);
      assert.equal(counts.length, file.tensor(weight).ne[2] ?? 1, weight);
      if (/_exps\./.test(weight)) {
        assert.equal(total % rows, 0, weight);
        assert.ok(counts.length > 1 && total / rows > 1, weight);
      } else assert.ok([...counts].every((n) => n === rows), `${weight} ${counts}`);
    }
    // Every matrix that the model multiplies by has its sums.
    const missing = bindModel(file).weights.filter((w) => (w.uses & USE.MUL_MAT) !== 0 && !one.sums.has(w.name));
    assert.deepEqual(missing.map((w) => w.name), []);
  });
}

Deno.test("readState() keeps a state, and refuses another file", () => {
  const path = `${dir}/a.state`;
  const sums = new Map([["blk.0.a.weight", { sums: Float64Array.of(1 / 3, 2, 3, 4), counts: Float64Array.of(5, 0) }]]);
  const state: CollectState = { job: JOB, n_done: 3, nll: Math.PI, n_scored: 60, sums };
  writeState(state, path);
  assert.deepEqual(readState(path), state);
  const bytes = Deno.readFileSync(path);
  for (let end = 0; end < bytes.length - 32; end += 37) {
    Deno.writeFileSync(path, bytes.subarray(0, end));
    assert.throws(() => readState(path), BloomeryError);
  }
});

Deno.test("coverage() names the experts that no row reached, by layer", () => {
  const sums = new Map([
    ["blk.10.x_exps.weight", { sums: Float64Array.of(1, 1, 1), counts: Float64Array.of(4, 2, 9) }],
    ["blk.2.x_exps.weight", { sums: Float64Array.of(1, 0, 1), counts: Float64Array.of(4, 0, 9) }],
    ["blk.2.y.weight", { sums: Float64Array.of(1), counts: Float64Array.of(4) }],
  ]);
  const file = imatrixOf({ job: JOB, n_done: 1, nll: 0, n_scored: 1, sums }, "x");
  assert.deepEqual(coverageLines(coverage(file)), [
    "blk.2.x_exps.weight: 2 of 3 reached, rows 0 / 4 / 9 (fewest, median, most), not reached: 1",
    "blk.10.x_exps.weight: 3 of 3 reached, rows 2 / 4 / 9 (fewest, median, most)",
  ]);
});

Deno.test("an activation that is not finite is refused with its weight and column", async () => {
  const engine = {
    createSequence: () => ({ [Symbol.dispose]() {} }),
    step: () => Promise.resolve([{ targetLogprob: new Float32Array(2) }]),
    collected:
      () => [{ weights: ["w"], n_in: 2, sums: Float64Array.of(1, 2, 3, Infinity), counts: Float64Array.of(1, 1) }],
  } as unknown as Engine;
  const run = collectImatrix({ engine, job: JOB, windows: [{ ids: Int32Array.of(1, 2) }] });
  await assert.rejects(
    run,
    (e) => e instanceof BloomeryError && e.code === "quantize.not_finite_sum" && e.at.column === 1,
  );
});
