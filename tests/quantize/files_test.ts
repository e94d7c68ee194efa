/**
 * Whole files against those of llama-quantize: every file type, every option, split sets, refusals.
 * @module
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { gunzipSync } from "node:zlib";
import { Flags } from "../../cli/command.ts";
import { quantize as command, quantizeArguments, quantizeOptions } from "../../cli/quantize.ts";
import { parseArgs } from "../../cli/parse.ts";
import { BloomeryError } from "../../core/errors.ts";
import { openNativeBackend } from "../../ffi/backend.ts";
import { prepare } from "../../quantize/prepare/mod.ts";
import { quantize } from "../../quantize/quantize.ts";
import { openGgufSource } from "../../quantize/quantize_source.ts";
import { needingShared, repoDir, sharedDir } from "../shared.ts";

interface Case {
  name: string;
  args: string[];
  exit: "ok" | "error";
  why?: string;
  outputs?: { file: string; sha256: string; bytes: number }[];
}

function sha256(path: string): string {
  return createHash("sha256").update(Deno.readFileSync(path)).digest("hex");
}

/** Runs one command line with files of `folder`; outputs go to `out`. Paths in the arguments are relative to `folder`. */
async function run(backend: ReturnType<typeof openNativeBackend>, folder: string, out: string, args: string[]) {
  const parsed = parseArgs(["quantize", ...args], [command], "");
  assert(parsed.kind === "run");
  const { flags } = parsed;
  const request = await quantizeArguments(parsed.args, flags);
  const placed = new Map(flags.values);
  for (const name of ["imatrix", "tensor-type-file"]) {
    if (flags.has(name)) placed.set(name, flags.strs(name).map((path) => folder + path));
  }
  let options = { ...await quantizeOptions(new Flags(placed)), fileType: request.fileType! };
  if (options.imatrix) options = { ...options, imatrix: { ...options.imatrix, path: flags.strs("imatrix")[0] } };
  using source = openGgufSource(folder + request.input);
  return await quantize(source, out + request.output.replace(/^out\//, ""), backend, options);
}

async function checkCases(folder: string, cases: Case[]): Promise<void> {
  const out = Deno.makeTempDirSync() + "/";
  const wrong: string[] = [];
  {
    using backend = openNativeBackend("cpu", { threads: 2 });
    for (const c of cases) {
      let error: unknown;
      try {
        await run(backend, folder, out, c.args);
      } catch (e) {
        error = e;
      }
      const left = [...Deno.readDirSync(out)].map((e) => e.name);
      if (c.exit === "error") {
        if (!(error instanceof BloomeryError)) {
          wrong.push(`${c.name}: ${error ?? "no error"}, expected one as it ${c.why}`);
        }
        if (left.length > 0) wrong.push(`${c.name}: left ${left.join(", ")}`);
      } else if (error) {
        wrong.push(`${c.name}: ${error}`);
      } else {
        const expected = c.outputs!.map((o) => o.file.replace(/^out\//, ""));
        if (left.sort().join() !== expected.sort().join()) {
          wrong.push(`${c.name}: wrote ${left.join()}, expected ${expected.join()}`);
        }
        for (const o of c.outputs!) {
          const path = out + o.file.replace(/^out\//, "");
          if (left.includes(o.file.replace(/^out\//, "")) && sha256(path) !== o.sha256) {
            wrong.push(`${c.name}: ${o.file} differs`);
          }
        }
      }
      for (const name of left) Deno.removeSync(out + name);
    }
  }
  Deno.removeSync(out, { recursive: true });
  assert.deepEqual(wrong, []);
}

Deno.test("quantize() writes the reference's files: every type, every option, sets, requantizing, refusals (C10)", async () => {
  const kept = `${repoDir}tests/goldens/quantize/files/`;
  const folder = Deno.makeTempDirSync() + "/";
  Deno.mkdirSync(folder + "in");
  for (const { name } of Deno.readDirSync(kept + "in")) {
    Deno.writeFileSync(folder + "in/" + name.replace(/\.gz$/, ""), gunzipSync(Deno.readFileSync(`${kept}in/${name}`)));
  }
  const { cases } = JSON.parse(Deno.readTextFileSync(kept + "manifest.json")) as { cases: Case[] };
  {
    // What is quantized already comes from other runs, whose outputs are among the cases.
    using backend = openNativeBackend("cpu", { threads: 2 });
    await run(backend, folder, folder, ["in/dense.gguf", "in/dense-q8_0.gguf", "Q8_0"]);
    const weighted = ["--imatrix", "in/dense.imatrix.gguf"];
    await run(backend, folder, folder, [...weighted, "in/dense.gguf", "in/dense-iq3_m.gguf", "IQ3_M"]);
  }
  await checkCases(folder, cases);
  Deno.removeSync(folder, { recursive: true });
});

Deno.test({
  ...needingShared(
    "quantize() of the trained models gives the reference's files of every type, with and without importance",
  ),
  fn: async () => {
    const models = `${sharedDir}models/`;
    const folder = Deno.makeTempDirSync() + "/";
    const cases: Case[] = [];
    // The larger model's files of the slow searches take minutes: BLOOMERY_TEST_ALL=1 makes them all.
    const all = Deno.env.get("BLOOMERY_TEST_ALL") === "1";
    const some = new Set(["Q4_K_M", "Q2_K_S", "IQ2_XXS", "IQ3_XXS", "MXFP4_MOE", "IQ1_M", "Q8_0", "F16"]);
    for (const line of Deno.readTextFileSync(models + "reference/quantized-sums.txt").split("\n")) {
      if (line === "" || line.startsWith("#")) continue;
      const [model, type, weighted, sum, bytes] = line.split(" ");
      if (!all && model !== "bloom-nano" && !some.has(type)) continue;
      const flags = weighted === "yes" ? ["--imatrix", `${model}.imatrix.gguf`] : [];
      cases.push({
        name: line.slice(0, line.indexOf(sum)),
        args: [...flags, `${model}-bf16.gguf`, "out/q.gguf", type],
        ...(sum === "refused"
          ? { exit: "error", why: "was refused" }
          : { exit: "ok", outputs: [{ file: "q.gguf", sha256: sum, bytes: Number(bytes) }] }),
      });
    }
    for (const model of ["bloom-nano", "bloom-nano-moe"]) {
      await prepare(models + model, `${folder}${model}-bf16.gguf`);
      Deno.copyFileSync(`${models}reference/${model}/imatrix.gguf`, `${folder}${model}.imatrix.gguf`);
    }
    await checkCases(folder, cases);
    Deno.removeSync(folder, { recursive: true });
  },
});
