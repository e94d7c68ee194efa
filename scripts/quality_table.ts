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
import { FILE_TYPES, parseFileType } from "../quantize/file_types.ts";
import { readImatrix, useImatrix } from "../quantize/imatrix.ts";
import { quantize } from "../quantize/quantize.ts";
import { openGgufSource } from "../quantize/quantize_source.ts";
import { compareFile, figures, megabytes, qualityModels } from "./quality.ts";

const { values: flags } = parseArgs({
  args: Deno.args,
  options: {
    windows: { type: "string", default: "16" },
    types: { type: "string" },
    device: { type: "string", default: "cpu" },
    dir: { type: "string" },
  },
});
const dir = flags.dir ?? Deno.makeTempDirSync({ prefix: "quality-" });
Deno.mkdirSync(dir, { recursive: true });
const KEPT = ["F32", "F16", "BF16", "COPY"];
/** Each type once: of several names for one, the last is the whole one. */
const types = flags.types?.split(",") ??
  FILE_TYPES.filter((t, i) => !KEPT.includes(t.name) && FILE_TYPES.findLastIndex((o) => o.id === t.id) === i)
    .map((t) => t.name);

for await (const model of qualityModels(dir, Number(flags.windows), flags.device)) {
  const { name, original, base, windows } = model;
  const imatrix = model.imatrix === undefined ? undefined : useImatrix(readImatrix(model.imatrix));
  console.log(`\n${name}, ${windows.length} windows of 512 tokens; BF16 has ${megabytes(original)} MB\n`);
  console.log("| type | MB | KL, nats | same top-1, % | ΔNLL, nats |");
  console.log("| --- | ---: | ---: | ---: | ---: |");
  for (const type of types) {
    const path = `${dir}/${name}-${type}.gguf`;
    try {
      using source = openGgufSource(original);
      await quantize(source, path, base.backend, { fileType: parseFileType(type), imatrix });
    } catch (error) {
      if (!(error instanceof BloomeryError)) throw error;
      console.error(`${name} ${type}: ${error.message}`);
      continue;
    }
    const cells = [type, megabytes(path), ...figures(await compareFile(path, model, flags.device))];
    console.log(`| ${cells.join(" | ")} |`);
    Deno.removeSync(path);
  }
}
if (flags.dir === undefined) Deno.removeSync(dir, { recursive: true });
