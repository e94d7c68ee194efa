/**
 * What went wrong for people with other quantizers, each with the behaviour it should have had.
 * @module
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { QuantizeError, UsageError } from "../../core/errors.ts";
import { ggufValue, Metadata } from "../../core/gguf/metadata.ts";
import { openGguf } from "../../core/gguf/read.ts";
import { ggmlType } from "../../core/gguf/types.ts";
import { GgufWriter } from "../../core/gguf/write.ts";
import type { Backend } from "../../core/program/backend.ts";
import { openNativeBackend } from "../../ffi/backend.ts";
import { openFolderSource } from "../../quantize/folder_source.ts";
import { parseFileType } from "../../quantize/file_types.ts";
import { type Imatrix, writeImatrix } from "../../quantize/imatrix.ts";
import { prepare } from "../../quantize/prepare/mod.ts";
import { quantize, type QuantizeOptions, type QuantizeResult } from "../../quantize/quantize.ts";
import { openGgufSource } from "../../quantize/quantize_source.ts";
import { summaryLines } from "../../quantize/quantize_summary.ts";
import { repoDir } from "../shared.ts";
import {
  fillWeights,
  type SyntheticModel,
  syntheticTensors,
  writeSynthetic,
  writeSyntheticFolder,
} from "./synthetic.ts";

function sha256(path: string): string {
  return createHash("sha256").update(Deno.readFileSync(path)).digest("hex");
}

/** A folder with a model in it, a backend, and a way to quantize the one with the other. */
class Bench implements Disposable {
  readonly folder = Deno.makeTempDirSync() + "/";
  readonly backend: Backend = openNativeBackend("cpu", { threads: 2 });

  constructor(model: SyntheticModel = {}) {
    writeSynthetic(this.folder + "in.gguf", model);
  }

  async run(
    type: string,
    options: Partial<QuantizeOptions> = {},
    names: { from?: string; to?: string } = {},
  ): Promise<QuantizeResult> {
    using source = openGgufSource(this.folder + (names.from ?? "in.gguf"));
    const fileType = parseFileType(type);
    return await quantize(source, this.folder + (names.to ?? "out.gguf"), this.backend, { fileType, ...options });
  }

  /** Types of the output's tensors by name. */
  types(name = "out.gguf"): Record<string, string> {
    using file = openGguf(this.folder + name);
    return Object.fromEntries(file.tensors.map((t) => [t.name, t.type.name]));
  }

  files(): string[] {
    return [...Deno.readDirSync(this.folder)].map((e) => e.name).sort();
  }

  [Symbol.dispose](): void {
    this.backend[Symbol.dispose]();
    Deno.removeSync(this.folder, { recursive: true });
  }
}

/** Importance for some of the synthetic model's weights. */
function imatrixFor(names: (name: string) => boolean, length = (ne: number[]) => ne[0]): Imatrix {
  const entries = new Map<string, Float32Array>();
  for (const [i, { name, ne }] of syntheticTensors().entries()) {
    if (!names(name)) continue;
    const values = new Float32Array(length(ne));
    fillWeights(values, 100 + i);
    entries.set(name, values.map((v) => 0.01 + v * v));
  }
  return { path: "im.gguf", dataset: undefined, n_chunks: 0, entries };
}

async function refused(work: Promise<unknown>, code: string): Promise<QuantizeError> {
  try {
    await work;
  } catch (error) {
    assert(error instanceof QuantizeError, String(error));
    assert.equal(error.code, code, error.message);
    return error;
  }
  throw new assert.AssertionError({ message: "was not refused" });
}

Deno.test("rows that are no whole blocks fall back, and the closing summary says so (C1)", async () => {
  using bench = new Bench({ n_embd: 96, n_ff: 160, n_vocab: 32 });
  const { summary } = await bench.run("Q4_K_M");
  const types = bench.types();
  assert.equal(types["blk.0.attn_q.weight"], "q5_0");
  assert.equal(types["output.weight"], "q8_0");
  assert.equal(types["token_embd.weight"], "q5_0");
  assert.deepEqual([...new Set(summary.fallbacks.map((f) => `${f.from} ${f.to}`))].sort(), ["q4_K q5_0", "q6_K q8_0"]);
  assert(summary.bpw > summary.nominal_bpw + 0.5);
  assert.match(summaryLines(summary).at(-1)!, /fell back/);
});

Deno.test("noFallback refuses before anything is written, naming every tensor (C1)", async () => {
  using bench = new Bench({ n_embd: 96, n_ff: 160, n_vocab: 32 });
  const error = await refused(bench.run("Q4_K_M", { noFallback: true }), "quantize.plan");
  const named = (error.at.problems as string[]).join("\n");
  for (const name of ["token_embd.weight", "blk.1.ffn_down.weight"]) assert.match(named, new RegExp(name));
  assert.match(error.message, /"token_embd\.weight", "\S+", "\S+" and 9 more\n/);
  assert.deepEqual(bench.files(), ["in.gguf"]);
});

Deno.test("an importance matrix of half the model: small types are refused with all names, others proceed (C3)", async () => {
  using bench = new Bench();
  const imatrix = imatrixFor((name) => name.startsWith("blk.0."));
  const error = await refused(bench.run("IQ2_XXS", { imatrix }), "quantize.plan");
  for (const part of ["attn_q", "attn_k", "ffn_up", "ffn_gate"]) {
    const named = (error.at.problems as string[]).join("\n");
    assert.match(named, new RegExp(`blk\\.1\\.${part}`));
    assert.doesNotMatch(named, new RegExp(`blk\\.0\\.${part}`));
  }
  assert.match(error.hint!, /--tensor-type/);
  assert.deepEqual(bench.files(), ["in.gguf"]);
  const { warnings } = await bench.run("Q4_K_M", { imatrix });
  assert.equal(warnings.length, 1);
  assert.match(warnings[0], /^7 tensors have no entry/);
});

Deno.test("experts that the calibration never reached are counted by layer, from either format", async () => {
  const model = { arch: "qwen3moe", n_expert: 4, n_expert_used: 2 };
  using bench = new Bench(model);
  const never: Record<string, number[]> = { "blk.0.ffn_up_exps.weight": [1], "blk.1.ffn_up_exps.weight": [0, 3] };
  never["blk.0.ffn_down_exps.weight"] = [1, 2];
  const sums = new Map(
    syntheticTensors(model).filter((t) => t.ne.length > 1).map(({ name, ne }) => {
      const n_mat = ne[2] ?? 1;
      const isNever = (m: number) => never[name]?.includes(m) === true;
      const values = new Float32Array(ne[0] * n_mat).map((_, i) => isNever(Math.floor(i / ne[0])) ? 0 : 1);
      const counts = new Float32Array(n_mat).map((_, m) => isNever(m) ? 0 : 5);
      return [name, { sums: values, counts }];
    }),
  );
  const file = { path: "im", datasets: [], n_chunks: 1, chunk_size: 512, sums };
  const { imatrixStatistics, useImatrix } = await import("../../quantize/imatrix.ts");
  for (const format of ["gguf", "dat"] as const) {
    const read = { ...file, format };
    if (format === "dat") {
      read.sums = new Map([...sums].map(([name, entry]) => [name, { ...entry, counts: Float32Array.of(5) }]));
    }
    const { summary, warnings } = await bench.run("Q4_K_M", { imatrix: useImatrix(read) });
    assert.deepEqual(summary.unreached_experts, [
      { layer: 0, n_expert: 4, experts: [1, 2] },
      { layer: 1, n_expert: 4, experts: [0, 3] },
    ], format);
    assert.deepEqual(warnings, [
      "the calibration never reached 4 experts, which are encoded without importance: layer 0: 2 of 4; layer 1: 2 of 4",
    ]);
  }
  const statistics = imatrixStatistics({ ...file, format: "gguf" });
  assert.equal(statistics.find((s) => s.name === "blk.1.ffn_up_exps.weight")!.n_unreached, 2);
  const { summary, warnings } = await bench.run("Q4_K_M");
  assert.deepEqual([summary.unreached_experts, warnings], [[], []]);
});

Deno.test("an entry of the wrong size is refused, naming both sizes (C5)", async () => {
  using bench = new Bench();
  const imatrix = imatrixFor((name) => name === "blk.0.attn_q.weight", () => 128);
  const error = await refused(bench.run("Q4_0", { imatrix }), "quantize.plan");
  assert.match(error.message, /128 values for tensor "blk\.0\.attn_q\.weight", expected 256/);
});

for (const [what, value] of [["NaN", NaN], ["Infinity", Infinity]] as const) {
  Deno.test(`${what} in a weight is refused with tensor, row, column and value, and nothing is left (C6)`, async () => {
    using bench = new Bench({
      edit: (name, values) => {
        if (name === "blk.1.ffn_down.weight") values[37 * 512 + 11] = value;
      },
    });
    const error = await refused(bench.run("IQ4_NL"), "quantize.non_finite");
    assert.match(error.message, new RegExp(`"blk\\.1\\.ffn_down\\.weight".* row 37, column 11 is ${what}`));
    assert.deepEqual([error.at.row, error.at.column], [37, 11]);
    assert.deepEqual(bench.files(), ["in.gguf"]);
    await refused(bench.run("COPY"), "quantize.non_finite"); // tensors that are only copied are looked at too
  });
}

Deno.test("values too large for a type's scales are refused with tensor and rows (C6)", async () => {
  using bench = new Bench({
    edit: (name, values) => {
      if (name === "blk.0.attn_k.weight") values[3] = 1e30;
    },
  });
  const error = await refused(bench.run("Q8_0"), "quantize.encode");
  assert.match(error.message, /"blk\.0\.attn_k\.weight" to q8_0/);
  assert.deepEqual(bench.files(), ["in.gguf"]);
});

Deno.test("the bytes do not depend on how little memory there is (C8)", async () => {
  using bench = new Bench();
  const imatrix = imatrixFor(() => true);
  await bench.run("IQ3_XXS", { imatrix });
  const whole = sha256(bench.folder + "out.gguf");
  for (const room of [1, 40_000]) {
    await bench.run("IQ3_XXS", { imatrix, room });
    assert.equal(sha256(bench.folder + "out.gguf"), whole);
  }
});

Deno.test("a stopped run leaves nothing under the final name and resumes to the same bytes (C9)", async () => {
  using bench = new Bench();
  await bench.run("Q4_K_M", {}, { to: "once.gguf" });
  const stop = new AbortController();
  let tensors = 0;
  const stopped = bench.run("Q4_K_M", {
    signal: stop.signal,
    onProgress: (p) => {
      if (p.whole && ++tensors === 7) stop.abort();
    },
  });
  await assert.rejects(stopped);
  assert(!bench.files().includes("out.gguf"));
  const { n_resumed } = await bench.run("Q4_K_M", { resume: true });
  assert.equal(n_resumed, 7);
  assert.equal(sha256(bench.folder + "out.gguf"), sha256(bench.folder + "once.gguf"));
  assert.deepEqual(bench.files(), ["in.gguf", "once.gguf", "out.gguf"]);
});

Deno.test("a run of other settings is not resumed (C9)", async () => {
  using bench = new Bench();
  const stop = new AbortController();
  const progress = { signal: stop.signal, onProgress: () => stop.abort() };
  await assert.rejects(bench.run("Q4_K_M", progress));
  await refused(bench.run("Q5_K_M", { resume: true }), "quantize.resume");
  await bench.run("Q5_K_M"); // and starts anew when not asked to resume
  assert.deepEqual(bench.files(), ["in.gguf", "out.gguf"]);
});

Deno.test("a run whose tensors come from others is not resumed, though its header is the same (C9)", async () => {
  using bench = new Bench({ n_layer: 3 });
  const stop = new AbortController();
  const stopped = { signal: stop.signal, onProgress: () => stop.abort() };
  await assert.rejects(bench.run("Q4_0", { pruneLayers: [1], ...stopped }));
  await refused(bench.run("Q4_0", { pruneLayers: [2], resume: true }), "quantize.resume");

  const model = bench.folder + "model";
  writeSyntheticFolder(model, { n_embd: 256, n_ff: 512, n_layer: 2, n_vocab: 512 }, 1);
  const run = async (outtype: "f32" | "f16", options: Partial<QuantizeOptions>) => {
    using source = openFolderSource(model, { outtype });
    await quantize(source, bench.folder + "hf.gguf", bench.backend, { fileType: parseFileType("Q4_0"), ...options });
  };
  const again = new AbortController();
  await assert.rejects(run("f32", { signal: again.signal, onProgress: () => again.abort() }));
  await refused(run("f16", { resume: true }), "quantize.resume");
});

Deno.test("a backend reads the file that has a path now, not the one that had it", async () => {
  using bench = new Bench();
  await bench.run("Q8_0", {}, { to: "first.gguf" });
  writeSynthetic(bench.folder + "other.gguf", { edit: (_, values) => values.forEach((v, i) => values[i] = 2 * v) });
  await bench.run("Q8_0", {}, { from: "other.gguf", to: "expected.gguf" });
  Deno.renameSync(bench.folder + "other.gguf", bench.folder + "in.gguf");
  await bench.run("Q8_0", {}, { to: "second.gguf" });
  assert.equal(sha256(bench.folder + "second.gguf"), sha256(bench.folder + "expected.gguf"));
  assert.notEqual(sha256(bench.folder + "second.gguf"), sha256(bench.folder + "first.gguf"));
});

/**
 * Kills a run once its journal has an entry. As soon as it writes it is made to wait for longer than the journal does
 * between entries: a fast machine would be through before the first.
 */
async function killMidway(child: Deno.ChildProcess, files: () => string[], journal: string): Promise<void> {
  let ended = false;
  const status = child.status.then(() => ended = true);
  const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
  const until = async (isThere: () => boolean) => {
    while (!ended && !isThere()) await pause(1);
    assert(!ended, "the run was over before it could be killed");
  };
  await until(() => files().some((name) => name.endsWith(".partial")));
  child.kill("SIGSTOP");
  await pause(1200);
  child.kill("SIGCONT");
  await until(() => files().includes(journal));
  child.kill("SIGKILL");
  await status;
}

Deno.test("a killed process resumes to the same bytes (C9)", async () => {
  using bench = new Bench({ n_embd: 1024, n_ff: 3072, n_layer: 2 });
  const main = `${repoDir}cli/main.ts`;
  const command = (...more: string[]) =>
    new Deno.Command(Deno.execPath(), {
      args: [
        "run",
        "-A",
        "--no-check",
        main,
        "quantize",
        "--device",
        "cpu",
        ...more,
        "in.gguf",
        "out.gguf",
        "IQ3_S",
        "1",
      ],
      cwd: bench.folder,
      stdout: "null",
      stderr: "null",
    });
  const child = command().spawn();
  const journal = bench.folder + "out.gguf.partial.json";
  await killMidway(child, () => bench.files(), "out.gguf.partial.json");
  assert(!bench.files().includes("out.gguf"));
  assert(JSON.parse(Deno.readTextFileSync(journal)).written[0] > 0);
  assert.equal((await command("--resume").output()).code, 0);
  const resumed = sha256(bench.folder + "out.gguf");
  await bench.run("IQ3_S");
  assert.equal(resumed, sha256(bench.folder + "out.gguf"));
  assert(!bench.files().some((name) => name.includes("partial")));
});

Deno.test("a killed prepare resumes to the same bytes, and a set has no names before it is whole (C9)", async () => {
  const folder = Deno.makeTempDirSync() + "/";
  try {
    const model = { n_embd: 1024, n_ff: 3072, n_layer: 3, n_vocab: 8192 };
    writeSyntheticFolder(folder + "model", model, 2);
    const command = (out: string, ...more: string[]) =>
      new Deno.Command(Deno.execPath(), {
        args: ["run", "-A", "--no-check", `${repoDir}cli/main.ts`, "prepare", "model", "-o", out, "--outtype", "f32"]
          .concat("--split-max-tensors", "12", ...more),
        cwd: folder,
        stdout: "null",
        stderr: "piped",
      });
    const whole = await command("once.gguf").output();
    assert.equal(whole.code, 0, new TextDecoder().decode(whole.stderr));
    const names = () => [...Deno.readDirSync(folder)].map((e) => e.name).filter((n) => n.startsWith("out"));
    const child = command("out.gguf").spawn();
    await killMidway(child, names, "out-00001-of-00003.gguf.partial.json");
    await child.stderr.cancel();
    assert(names().every((n) => n.includes(".partial")), names().join());
    assert.equal((await command("out.gguf", "--resume").output()).code, 0);
    for (const i of [1, 2, 3]) {
      assert.equal(sha256(`${folder}out-0000${i}-of-00003.gguf`), sha256(`${folder}once-0000${i}-of-00003.gguf`));
    }
    assert.equal(names().length, 3);
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
});

Deno.test("quantizing what is quantized needs permission (C10)", async () => {
  using bench = new Bench();
  await bench.run("Q4_0", {}, { to: "q4.gguf" });
  const error = await refused(bench.run("Q4_K_M", {}, { from: "q4.gguf" }), "quantize.plan");
  assert.match(error.message, /is quantized already \(q4_0\)/);
  assert.match(error.hint!, /--allow-requantize/);
  await bench.run("Q4_K_M", { allowRequantize: true }, { from: "q4.gguf" });
  assert.equal(bench.types()["blk.0.attn_q.weight"], "q4_K");
  await bench.run("Q4_0", {}, { from: "q4.gguf" }); // nothing changes type: no permission needed
  await bench.run("IQ4_NL", {}, { to: "iq4.gguf" }); // the same of an i-quant
  const other = await refused(bench.run("Q4_K_M", {}, { from: "iq4.gguf" }), "quantize.plan");
  assert.match(other.message, /is quantized already \(iq4_nl\)/);
  await bench.run("Q4_K_M", { allowRequantize: true }, { from: "iq4.gguf" });
});

// llama-quantize keeps such a file's general.alignment and places tensors by 32 all the same: what it writes, no reader takes.
Deno.test("quantize() keeps the alignment of the source, or takes the one that an override gives", async () => {
  using bench = new Bench();
  const ne = [32, 3];
  const values = Float32Array.from({ length: 96 }, (_, i) => Math.sin(i));
  const make = (alignment: number) => {
    const path = bench.folder + "aligned.gguf";
    const metadata = new Metadata(path, [
      ["general.architecture", ggufValue.str("llama")],
      ["llama.block_count", ggufValue.u32(1)],
      ["general.alignment", ggufValue.u32(alignment)],
    ]);
    const tensors = ["output.weight", "token_embd.weight"].map((name) => ({ name, type: ggmlType("f32"), ne }));
    using writer = GgufWriter.create({ path, metadata, tensors, alignment });
    for (const i of tensors.keys()) writer.writeTensor(i, new Uint8Array(values.buffer));
    writer.finish();
  };
  make(32);
  await bench.run("Q8_0", {}, { from: "aligned.gguf", to: "want.gguf" });
  using want = openGguf(bench.folder + "want.gguf");
  const check = (alignment: number) => {
    using file = openGguf(bench.folder + "out.gguf");
    assert.equal(file.alignment, alignment);
    assert.equal(file.metadata.u32("general.alignment"), alignment);
    for (const t of file.tensors) {
      assert.equal(t.offset % alignment, 0);
      assert.deepEqual(file.readTensor(t), want.readTensor(want.find(t.name)!), t.name);
    }
  };
  for (const alignment of [1, 8, 64, 4096]) {
    make(alignment);
    await bench.run("Q8_0", {}, { from: "aligned.gguf" });
    check(alignment);
  }
  const overrides = [{ key: "general.alignment", value: ggufValue.u32(128) }];
  await bench.run("Q8_0", { overrides }, { from: "aligned.gguf" });
  check(128);
  const before = bench.files();
  const bad = { overrides: [{ key: "general.alignment", value: ggufValue.u32(48) }] };
  await assert.rejects(bench.run("Q8_0", bad, { from: "aligned.gguf" }), { code: "format.alignment" });
  assert.deepEqual(bench.files(), before);
});

Deno.test("the output is never an input", async () => {
  using bench = new Bench();
  const before = sha256(bench.folder + "in.gguf");
  await assert.rejects(bench.run("Q4_0", {}, { to: "in.gguf" }), (e) => e instanceof UsageError);
  assert.equal(sha256(bench.folder + "in.gguf"), before);
});

Deno.test("a Hugging Face folder gives the bytes of prepare and quantize", async () => {
  const folder = Deno.makeTempDirSync() + "/";
  using backend = openNativeBackend("cpu", { threads: 2 });
  const model = `${repoDir}models/bloom-nano`;
  await prepare(model, folder + "bf16.gguf");
  for (const type of ["Q4_K_M", "IQ4_XS", "F16"]) {
    const options = { fileType: parseFileType(type) };
    using two = openGgufSource(folder + "bf16.gguf");
    await quantize(two, folder + "two.gguf", backend, options);
    using one = openFolderSource(model);
    await quantize(one, folder + "one.gguf", backend, options);
    assert.equal(sha256(folder + "one.gguf"), sha256(folder + "two.gguf"), type);
  }
  Deno.removeSync(folder, { recursive: true });
});

Deno.test("importance matrices reach the output's metadata and change its bytes", async () => {
  using bench = new Bench();
  const imatrix = imatrixFor(() => true);
  writeImatrix({
    path: "im.gguf",
    format: "gguf",
    datasets: ["calibration.txt"],
    n_chunks: 3,
    chunk_size: 512,
    sums: new Map([...imatrix.entries].map(([name, sums]) => [name, { sums, counts: Float32Array.of(1) }])),
  }, bench.folder + "im.gguf");
  const { readImatrix, useImatrix } = await import("../../quantize/imatrix.ts");
  const read = useImatrix(readImatrix(bench.folder + "im.gguf"));
  await bench.run("Q4_K_S", { imatrix: read });
  using file = openGguf(bench.folder + "out.gguf");
  assert.equal(file.metadata.str("quantize.imatrix.dataset"), "calibration.txt");
  assert.equal(file.metadata.u32("quantize.imatrix.entries_count"), imatrix.entries.size);
  assert.equal(file.metadata.u32("quantize.imatrix.chunks_count"), 3);
});
