/**
 * What quantizing costs: the table of the README. Every type of the two small models against BF16, on English, Korean and code.
 *
 *   deno run -A scripts/quality_table.ts [--windows 16] [--types Q4_K_M,Q4_0] [--device cpu] [--dir FOLDER]
 *
 * Models, texts and importance are those of ../shared where it is; without it bloom-nano alone, on two short texts and without
 * importance, so without the types that need it. A row is printed as it is done; ± is the standard error over windows.
 * @module
 */
import { parseArgs } from "node:util";
import { BloomeryError } from "../core/errors.ts";
import { compareModels, summarize, type WindowResult } from "../eval/compare.ts";
import { inGroups } from "../eval/score.ts";
import { estimateText } from "../eval/stats.ts";
import { cutWindows, type Window } from "../eval/windows.ts";
import { openModel } from "../ffi/mod.ts";
import { FILE_TYPES, parseFileType } from "../quantize/file_types.ts";
import { readImatrix, useImatrix } from "../quantize/imatrix.ts";
import { prepare } from "../quantize/prepare/mod.ts";
import { quantize } from "../quantize/quantize.ts";
import { openGgufSource } from "../quantize/quantize_source.ts";
import { repoDir, sharedDir } from "../tests/shared.ts";

const { values: flags } = parseArgs({
  args: Deno.args,
  options: {
    windows: { type: "string", default: "16" },
    types: { type: "string" },
    device: { type: "string", default: "cpu" },
    dir: { type: "string" },
  },
});
const N_WINDOW = 512, AT_ONCE = 8;
const dir = flags.dir ?? Deno.makeTempDirSync({ prefix: "quality-" });
Deno.mkdirSync(dir, { recursive: true });
const models = sharedDir === undefined
  ? [`${repoDir}models/bloom-nano`]
  : ["bloom-nano", "bloom-nano-moe"].map((name) => `${sharedDir}models/${name}`);
const texts = sharedDir === undefined
  ? ["prose", "code"].map((name) => `${repoDir}tests/goldens/perplexity/${name}.txt`)
  : ["english", "korean", "code"].map((name) => `${sharedDir}eval-text/${name}.txt`);
const KEPT = ["F32", "F16", "BF16", "COPY"];
/** Each type once: of several names for one, the last is the whole one. */
const types = flags.types?.split(",") ??
  FILE_TYPES.filter((t, i) => !KEPT.includes(t.name) && FILE_TYPES.findLastIndex((o) => o.id === t.id) === i)
    .map((t) => t.name);

/** The first windows of each text, as many as are asked for. */
function someWindows(windows: readonly Window[]): Window[] {
  return windows.filter((w) => w.index < Number(flags.windows));
}

for (const checkpoint of models) {
  const name = checkpoint.split("/").at(-1)!;
  const original = `${dir}/${name}-bf16.gguf`;
  await prepare(checkpoint, original, { outtype: "bf16" });
  const options = { device: flags.device, n_ctx: N_WINDOW, n_seq: AT_ONCE, n_cache: N_WINDOW * 4, topK: 1 };
  using base = await openModel(original, options);
  const sources = texts.map((path) => ({ name: path.split("/").at(-1)!, text: Deno.readTextFileSync(path) }));
  const windows = someWindows(cutWindows(sources, base.model.tokenizer, { n_window: N_WINDOW, skip: 0 }));
  const importance = sharedDir === undefined
    ? undefined
    : useImatrix(readImatrix(`${sharedDir}models/reference/${name}/imatrix.gguf`));
  const bytes = Deno.statSync(original).size;
  console.log(`\n${name}, ${windows.length} windows of ${N_WINDOW} tokens; BF16 has ${(bytes / 1e6).toFixed(2)} MB\n`);
  console.log("| type | MB | KL, nats | same top-1, % | ΔNLL, nats |");
  console.log("| --- | ---: | ---: | ---: | ---: |");
  for (const type of types) {
    const path = `${dir}/${name}-${type}.gguf`;
    try {
      using source = openGgufSource(original);
      const fileType = parseFileType(type);
      await quantize(source, path, base.backend, { fileType, ...(importance ? { imatrix: importance } : {}) });
    } catch (error) {
      if (!(error instanceof BloomeryError)) throw error;
      console.error(`${name} ${type}: ${error.message}`);
      continue;
    }
    const results: WindowResult[] = [];
    using opened = await openModel(path, options);
    const { engine } = opened.model;
    for (const group of inGroups(windows, { n_seq: AT_ONCE, n_ubatch: engine.n_ubatch })) {
      results.push(...await compareModels(opened.backend, engine, base.model.engine, group));
    }
    const row = summarize(results).at(-1)!;
    const cells = [
      type,
      (Deno.statSync(path).size / 1e6).toFixed(2),
      estimateText(row.kl, 5),
      estimateText(row.same_top, 2, 100),
      estimateText(row.delta_nll, 5),
    ];
    console.log(`| ${cells.join(" | ")} |`);
    Deno.removeSync(path);
  }
}
if (flags.dir === undefined) Deno.removeSync(dir, { recursive: true });
