/** `bloomery measure` and `quantize --budget` on bloom-nano: against eval, by bits; continued; and what is refused. */
import assert from "node:assert/strict";
import { bloomery } from "../cli/_testing.ts";
import { openGguf } from "../core/gguf/read.ts";
import { ggmlType } from "../core/gguf/types.ts";
import { openBackend } from "../ffi/mod.ts";
import { candidates } from "../quantize/measure/candidates.ts";
import { weightedError } from "../quantize/measure/error.ts";
import { type MeasureFile, parseMeasure, writeMeasure } from "../quantize/measure/measure_file.ts";
import { openGgufSource } from "../quantize/quantize_source.ts";
import { dequantizeRows, quantizeRows } from "../quantize/rows.ts";
import { wholePrompt, withEngine } from "./logits_checks.ts";
import { bloomNano, testFolder } from "./models.ts";
import { repoDir } from "./shared.ts";

const dir = `${testFolder()}/measure`;
Deno.mkdirSync(dir);
const prose = Deno.readTextFileSync(`${repoDir}tests/goldens/perplexity/prose.txt`);
const TEXT = `${dir}/text.txt`, OTHER = `${dir}/other.txt`, MEASURE = `${dir}/measure.json`;
Deno.writeTextFileSync(TEXT, prose.slice(0, 600));
Deno.writeTextFileSync(OTHER, prose.slice(prose.length / 2));

const read = (path: string) => parseMeasure(Deno.readTextFileSync(path), path);

async function run(...args: string[]) {
  const { code, out, err } = await bloomery([...args, "--device", "cpu", "--json"]);
  const documents = out.trimEnd().split("\n").filter((line) => line !== "").map((line) => JSON.parse(line));
  return { code, err, last: documents.at(-1) };
}

async function done(...args: string[]) {
  const ran = await run(...args);
  assert.equal(ran.code, 0, `${args.join(" ")}: ${ran.err} ${JSON.stringify(ran.last)}`);
  return ran.last;
}

const WINDOWS = ["--window", "48"];
const measureArgs = async (output: string, ...more: string[]) => [
  ...["measure", "-m", await bloomNano("bf16"), "-f", TEXT, "-o", output, ...WINDOWS],
  ...more,
];

Deno.test("a loss is the KL that eval finds of a file with that tensor alone quantized, and a cut run goes on to the same bytes", async () => {
  const original = await bloomNano("bf16");
  await done(...await measureArgs(MEASURE, "--types", "q3_K,q4_K,q5_K"));
  await done(...await measureArgs(MEASURE, "--types", "q3_K,q4_K,q5_K,q6_K"));
  const whole = read(MEASURE);
  assert.equal(whole.tensors.length, 43);
  assert.ok(whole.tensors.every((t) => t.losses.map((l) => l.type.name).join() === "q3_K,q4_K,q5_K,q6_K"));
  assert.throws(() => Deno.statSync(`${MEASURE}.rows`), Deno.errors.NotFound);

  const file = `${dir}/one.gguf`;
  const name = "blk.3.ffn_down.weight", only = ["--tensor-type", "^blk\\.3\\.ffn_down\\.weight$=q4_K"];
  await done("quantize", ...only, "--tensor-type", ".*=bf16", original, file, "Q8_0");
  const { rows, windows } = await done("eval", "-m", file, "--against", original, "-f", TEXT, ...WINDOWS);
  assert.ok(windows.length > 2);
  const { loss, se } = whole.tensors.find((t) => t.name === name)!.losses[1];
  assert.deepEqual({ mean: loss, se }, rows.at(-1).kl);

  // What a run that was killed has left: the tensors that were done.
  const stopped = `${dir}/stopped.json`;
  writeMeasure({ ...whole, tensors: whole.tensors.slice(0, 40) }, stopped);
  const again = await done(...await measureArgs(stopped, "--types", "q3_K,q4_K,q5_K,q6_K"));
  assert.equal(again.n_losses, 172);
  assert.deepEqual(Deno.readFileSync(stopped), Deno.readFileSync(MEASURE));
  const other = await run(...await measureArgs(stopped, "--window", "32"));
  assert.deepEqual([other.code, other.last.error.code], [1, "quantize.resume_mismatch"]);
  assert.match(other.last.error.message, /n_window was 48, now it is 32/);
});

/** A file of losses as the first test has left it, changed. */
function changed(name: string, change: (file: MeasureFile) => MeasureFile): string {
  const path = `${dir}/${name}.json`;
  writeMeasure(change(read(MEASURE)), path);
  return path;
}

Deno.test("a budget is kept to the byte, its types can be repeated, and it beats the mixture of its size", async () => {
  const original = await bloomNano("bf16"), mixture = `${dir}/mixture.gguf`, chosen = `${dir}/chosen.gguf`;
  await done("quantize", original, mixture, "Q4_K_M");
  const { size } = Deno.statSync(mixture);
  await done("quantize", original, chosen, "--budget", String(size), "--measure", MEASURE);
  const got = Deno.statSync(chosen).size;
  assert.ok(got <= size && got > 0.995 * size, `${got} of ${size}`);
  const klOf = async (path: string) =>
    (await done("eval", "-m", path, "--against", original, "-f", OTHER, "--window", "128")).rows.at(-1).kl.mean;
  const [was, is] = [await klOf(mixture), await klOf(chosen)];
  assert.ok(is < 0.9 * was, `KL ${is}, of the mixture ${was}`);

  const types = `${dir}/chosen.tensor-types.txt`, repeated = `${dir}/repeated.gguf`;
  const text = Deno.readTextFileSync(types);
  assert.equal(text.split("\n").filter((line) => /^\^[a-z0-9_\\.]+\$=[a-z0-9_A-Z]+$/.test(line)).length, 43);
  using file = openGguf(chosen);
  const label = file.metadata.u32("general.file_type") === 15 ? "Q4_K_M" : "Q5_K_M";
  await done("quantize", "--tensor-type-file", types, original, repeated, label);
  assert.deepEqual(Deno.readFileSync(repeated), Deno.readFileSync(chosen));

  const bits = await done("quantize", original, `${dir}/bits.gguf`, "--budget", "5.25bpw", "--measure", MEASURE);
  assert.ok(bits.bpw <= 5.25 && bits.bpw > 5.2, String(bits.bpw));
  // A type that is named stays, and what is left of the budget goes to the others.
  const fixed = `${dir}/fixed.gguf`;
  await done("quantize", original, fixed, "--budget", "5.25bpw", "--measure", MEASURE, "--tensor-type", "attn_v=q8_0");
  using with8 = openGguf(fixed);
  assert.ok(with8.tensors.filter((t) => t.name.includes("attn_v")).every((t) => t.type.name === "q8_0"));
  const wide = await done("quantize", original, `${dir}/wide.gguf`, "--budget", "1GiB", "--measure", MEASURE);
  assert.equal(wide.bpw, wide.source_bpw);
});

Deno.test("a budget that cannot be kept, and losses of something else, are refused by name", async () => {
  const original = await bloomNano("bf16"), output = `${dir}/refused.gguf`;
  const refusal = async (...args: string[]) => {
    const { code, last } = await run("quantize", ...args);
    assert.notEqual(code, 0);
    assert.throws(() => Deno.statSync(output), Deno.errors.NotFound);
    return last.error;
  };
  const small = await refusal(original, output, "--budget", "2bpw", "--measure", MEASURE);
  assert.equal(small.code, "quantize.budget");
  assert.match(small.message, /the smallest measured types of its tensors take 3\.4\d+ bits per weight$/);
  // The size that it names is one that can be had.
  const { smallest } = (await refusal(original, output, "--budget", "1M", "--measure", MEASURE)).at;
  const least = `${dir}/least.gguf`;
  await done("quantize", original, least, "--budget", String(smallest), "--measure", MEASURE);
  assert.equal(Deno.statSync(least).size, smallest);

  const other = await refusal(await bloomNano("f16"), output, "--budget", "4bpw", "--measure", MEASURE);
  assert.equal(other.code, "quantize.stale_measure");
  assert.match(other.message, /it was measured of another model/);
  const weighted = changed("weighted", (m) => ({ ...m, job: { ...m.job, imatrix: "a.gguf", imatrix_key: "00" } }));
  const unweighted = await refusal(original, output, "--budget", "4bpw", "--measure", weighted);
  assert.equal(unweighted.code, "quantize.stale_measure");
  assert.match(unweighted.message, /with importance matrix a\.gguf, and none is given/);
  const fewer = changed("fewer", (m) => ({ ...m, tensors: m.tensors.filter((t) => t.name !== "blk.2.attn_k.weight") }));
  const missing = await refusal(original, output, "--budget", "4bpw", "--measure", fewer);
  assert.equal(missing.code, "quantize.not_measured");
  assert.match(missing.message, /no losses of 1 tensors: blk\.2\.attn_k\.weight/);
  const codes = [
    await refusal(original, output, "--budget", "4bpw"),
    await refusal(original, output, "--budget", "four", "--measure", MEASURE),
    await refusal(original, output, "Q4_K_M", "--measure", MEASURE),
    await refusal(original, output, "--budget", "4bpw", "--measure", MEASURE, "--pure"),
    await refusal(original, "--budget", "4bpw", "--measure", MEASURE),
  ].map((e) => e.code);
  assert.deepEqual(codes, [
    "usage.missing_flag",
    "usage.budget",
    "usage.arguments",
    "usage.arguments",
    "usage.arguments",
  ]);
});

Deno.test("replaceWeight() gives a model its own weights back, by bits", async () => {
  using opened = openBackend("cpu");
  const path = await bloomNano("bf16"), ids = Int32Array.from({ length: 9 }, (_, i) => 40 + 3 * i);
  await withEngine(path, opened.backend, {}, async (engine) => {
    const own = (await wholePrompt(engine, ids)).full!;
    using source = openGgufSource(path);
    const t = source.tensors.find((t) => t.name === "token_embd.weight")!;
    const rows = await opened.backend.dequantize(t.type, await source.read(t, 0, t.ne[1]), t.ne[0] * t.ne[1]);
    const type = ggmlType("q4_0"), data = await quantizeRows(opened.backend, type, rows, t.ne[0]);
    await engine.replaceWeight(t.name, { type, data });
    const other = (await wholePrompt(engine, ids)).full!;
    assert.notDeepEqual(other, own);
    await engine.replaceWeight(t.name, undefined);
    assert.deepEqual((await wholePrompt(engine, ids)).full!, own);
  });
});

Deno.test("the weighted error is what its formula gives by hand, of all rows and of some", async () => {
  using opened = openBackend("cpu");
  using source = openGgufSource(await bloomNano("bf16"));
  const name = "blk.1.attn_k.weight", type = ggmlType("q3_K"), n = 256;
  const importance = Float32Array.from({ length: n }, (_, i) => 0.5 + (i * 7) % 13);
  const imatrix = { path: "m", dataset: undefined, n_chunks: 1, entries: new Map([[name, importance]]) };
  const tensor = candidates(source, [type], imatrix).find((c) => c.name === name)!;
  const raw = await source.read(tensor.source, 0, 128);
  const x = await opened.backend.dequantize(tensor.source.type, raw, 128 * n);
  const y = await dequantizeRows(
    opened.backend,
    type,
    await quantizeRows(opened.backend, type, x, n, { weights: importance }),
    n,
  );
  const share = (rows: readonly number[]) => {
    let lost = 0, all = 0;
    for (const row of rows) {
      for (let i = 0; i < n; i++) {
        const at = row * n + i;
        lost += importance[i] * (x[at] - y[at]) ** 2;
        all += importance[i] * x[at] ** 2;
      }
    }
    return lost / all;
  };
  const errorOf = async (rows: number) => (await weightedError(opened.backend, source, tensor, type, rows)).mean;
  assert.equal(await errorOf(0), share(Array.from({ length: 128 }, (_, i) => i)));
  assert.equal(await errorOf(4), share([16, 48, 80, 112]));
  assert.equal(await errorOf(500), await errorOf(0));
});

Deno.test("losses by error need no text, and choose types too", async () => {
  const original = await bloomNano("bf16"), output = `${dir}/error.json`, chosen = `${dir}/by-error.gguf`;
  await done("measure", "-m", original, "-o", output, "--by", "error", "--rows", "16", "--types", "q2_K,q4_K,q6_K");
  const { job, tensors } = read(output);
  assert.deepEqual([job.by, job.over, tensors.length], ["error", { rows: 16, reach: "1, or 1 / (2 layers)" }, 43]);
  // An error of the head, which is the embedding here, reaches the output whole, and one of six layers a twelfth.
  const of = async (name: string) => {
    using opened = openBackend("cpu");
    using source = openGgufSource(original);
    const tensor = candidates(source, [ggmlType("q4_K")], undefined).find((c) => c.name === name)!;
    return (await weightedError(opened.backend, source, tensor, ggmlType("q4_K"), 16)).mean;
  };
  const written = (name: string) => tensors.find((t) => t.name === name)!.losses[1].loss;
  assert.equal(written("token_embd.weight"), await of("token_embd.weight"));
  assert.equal(written("blk.4.ffn_up.weight"), await of("blk.4.ffn_up.weight") / 12);
  for (const { losses } of tensors) assert.ok(losses[0].loss > losses[1].loss && losses[1].loss > losses[2].loss);
  const made = await done("quantize", original, chosen, "--budget", "4.5bpw", "--measure", output);
  assert.ok(made.bpw <= 4.5 && made.bpw > 4.4);
});
