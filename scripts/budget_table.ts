/**
 * Types chosen under a budget against the K_M mixtures of the same size: the second table of docs/quality.md.
 *
 *   deno run -A scripts/budget_table.ts [--windows 16] [--by kl] [--chunks 12] [--types Q3_K_M,Q4_K_M] [--models bloom-nano] [--dir FOLDER]
 *
 * Losses are measured on the second halves of the texts, and files are compared with their original on the first windows of the first
 * halves. The budget of a file is the size of the K_M file, whole, to the byte. `difference` is paired by window.
 * @module
 */
import { parseArgs } from "node:util";
import { bloomery } from "../cli/_testing.ts";
import { estimate, estimateText } from "../eval/stats.ts";
import { compareFile, figures, megabytes, qualityModels, texts } from "./quality.ts";

const { values: flags } = parseArgs({
  args: Deno.args,
  options: {
    windows: { type: "string", default: "16" },
    by: { type: "string", default: "kl" },
    chunks: { type: "string", default: "12" },
    window: { type: "string", default: "256" },
    types: { type: "string", default: "Q3_K_M,Q4_K_M,Q5_K_M" },
    models: { type: "string" },
    "measure-types": { type: "string" },
    device: { type: "string", default: "cpu" },
    dir: { type: "string" },
  },
});
const { device } = flags;
const dir = flags.dir ?? Deno.makeTempDirSync({ prefix: "budget-" });
Deno.mkdirSync(dir, { recursive: true });

async function run(...args: string[]): Promise<void> {
  const { code, err } = await bloomery([...args, "--device", device]);
  if (code !== 0) throw new Error(`bloomery ${args.join(" ")}: ${err}`);
}

const halves = texts.map((path) => {
  const text = Deno.readTextFileSync(path), half = `${dir}/${path.split("/").at(-1)}`;
  Deno.writeTextFileSync(half, text.slice(text.length / 2));
  return half;
});

for await (const model of qualityModels(dir, Number(flags.windows), device, flags.models?.split(","))) {
  const { name, original, windows } = model;
  const measure = `${dir}/${name}.${flags.by}.json`;
  const weighted = model.imatrix === undefined ? [] : ["--imatrix", model.imatrix];
  const over = flags.by === "error"
    ? []
    : [...halves.flatMap((path) => ["-f", path]), "--window", flags.window, "--chunks", flags.chunks];
  const tried = flags["measure-types"] === undefined ? [] : ["--types", flags["measure-types"]];
  await run("measure", "-m", original, "-o", measure, "--by", flags.by, ...weighted, ...over, ...tried);
  console.log(`\n${name}, ${windows.length} windows of 512 tokens, measured by ${flags.by}\n`);
  console.log("| file | MB | KL, nats | same top-1, % | ΔNLL, nats | difference of KL |");
  console.log("| --- | ---: | ---: | ---: | ---: | ---: |");
  for (const type of flags.types.split(",")) {
    const mixture = `${dir}/${name}-${type}.gguf`, chosen = `${dir}/${name}-budget-${type}.gguf`;
    await run("quantize", original, mixture, type, ...weighted, "--overwrite");
    const budget = ["--budget", String(Deno.statSync(mixture).size), "--measure", measure];
    await run("quantize", original, chosen, ...budget, ...weighted, "--overwrite");
    const [was, is] = [await compareFile(mixture, model, device), await compareFile(chosen, model, device)];
    const difference = estimate(is.map((w, i) => w.kl - was[i].kl), is.map((w) => w.n_tokens));
    console.log(`| ${[type, megabytes(mixture), ...figures(was), ""].join(" | ")} |`);
    console.log(`| ${["budget", megabytes(chosen), ...figures(is), estimateText(difference, 5)].join(" | ")} |`);
  }
}
if (flags.dir === undefined) Deno.removeSync(dir, { recursive: true });
