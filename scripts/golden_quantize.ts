/**
 * Rewrites tests/goldens/quantize from the whole set of reference vectors and files, where it lies beside the repository.
 * They were made by llama-quantize 0.7.0 (ggml 0.27.0, x86-64): encoded rows of every type, and whole files.
 *
 * Usage: deno run -A scripts/golden_quantize.ts
 * @module
 */
import { gzipSync } from "node:zlib";
import { repoDir, sharedDir } from "../tests/shared.ts";

if (!sharedDir) {
  console.error("there is no ../shared beside the repository: nothing to update from");
  Deno.exit(1);
}

/** Rows of four kinds: well-behaved, with stretches of everything, with ties, and down to subnormal numbers. */
const INPUTS = ["gauss", "mixed", "ties", "tiny"];
const WEIGHTS = ["exp", "zeros30"];
/** Inputs that are outputs of other runs; the test makes them. */
const MADE = ["in/dense-q8_0.gguf", "in/dense-iq3_m.gguf"];

const from = `${sharedDir}formats/goldens/`;
const to = `${repoDir}tests/goldens/quantize/`;

function keep(source: string, name: string): void {
  Deno.writeFileSync(`${to}${name}.gz`, gzipSync(Deno.readFileSync(from + source), { level: 9 }));
}

for (const folder of ["rows", "files/in"]) {
  try {
    Deno.removeSync(to + folder, { recursive: true });
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  Deno.mkdirSync(to + folder, { recursive: true });
}

for (const name of INPUTS) keep(`inputs/${name}.f32`, `rows/${name}.f32`);
for (const name of WEIGHTS) keep(`imatrix/${name}.f32`, `rows/${name}.f32`);

interface RowCase {
  type: string;
  input: string;
  imatrix: string | null;
  sha256: string;
  deq_sha256: string;
  valid: boolean;
}
const base = (path: string) => path.replace(/^.*\//, "").replace(/\.f32$/, "");
const rows = (JSON.parse(Deno.readTextFileSync(`${from}manifest.json`)).cases as RowCase[])
  .filter((c) => INPUTS.includes(base(c.input)) && (c.imatrix === null || WEIGHTS.includes(base(c.imatrix))))
  .map((c) =>
    [c.type, base(c.input), c.imatrix ? base(c.imatrix) : "-", c.sha256, c.deq_sha256, c.valid ? "valid" : "invalid"]
      .join(" ")
  );
Deno.writeTextFileSync(
  `${to}rows.txt`,
  "# Made by scripts/golden_quantize.ts from rows that llama-quantize 0.7.0 encoded; exact.\n" +
    "# 8 rows of 512 values: type, input, importance, SHA-256 of the encoded bytes, of the decoded f32, valid as file data\n" +
    rows.join("\n") + "\n",
);

interface FileCase {
  name: string;
  args: string[];
  inputs: string[];
}
const { cases } = JSON.parse(Deno.readTextFileSync(`${from}files/manifest.json`)) as { cases: FileCase[] };
const inputs = new Set(cases.flatMap((c) => c.inputs));
for (const name of inputs) if (!MADE.includes(name)) keep(`files/${name}`, `files/${name}`);
Deno.writeTextFileSync(
  `${to}files/manifest.json`,
  '{\n"made_by": "scripts/golden_quantize.ts from runs of llama-quantize 0.7.0; exact",\n"cases": [\n' +
    cases.map((c) => JSON.stringify(c)).join(",\n") + "\n]\n}\n",
);
console.log(`${rows.length} row cases, ${cases.length} runs`);
