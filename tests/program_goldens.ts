/**
 * Programs as lines of text: model, bucket, ops, tensors, hash of the words.
 * @module
 */
import { bindModel, buildProgram } from "../core/arch/model.ts";
import { encodeProgram } from "../core/program/encode.ts";
import { ENCODER_MODELS } from "./encoder_models.ts";
import { FAMILY_MODELS, familyFile } from "./family_models.ts";
import { repoDir } from "./shared.ts";

export const PROGRAMS_PATH = `${repoDir}tests/goldens/programs.txt`;

/** Decoding, a short batch, a prompt. */
const BUCKETS = [
  { n_tok: 1, n_out: 1, n_seq: 1, n_page: 8 },
  { n_tok: 8, n_out: 8, n_seq: 8, n_page: 8 },
  { n_tok: 64, n_out: 1, n_seq: 64, n_page: 8 },
];

export async function programLines(): Promise<string[]> {
  const lines: string[] = [];
  for (const [name, described] of Object.entries({ ...FAMILY_MODELS, ...ENCODER_MODELS })) {
    const model = bindModel(familyFile(described));
    for (const bucket of BUCKETS) {
      const p = buildProgram(model, bucket, 16, 0), words = encodeProgram(p) as Uint8Array<ArrayBuffer>;
      const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", words)).toHex().slice(0, 16);
      lines.push(`${name} ${bucket.n_tok}x${bucket.n_out} ops=${p.ops.length} tensors=${p.tensors.length} ${hash}`);
    }
  }
  return lines;
}

/** Writes the golden again. */
if (import.meta.main) {
  const head =
    "# model, rows x output rows, ops, tensors, first half of the SHA-256 of the program's words (tests/programs_test.ts)";
  Deno.writeTextFileSync(PROGRAMS_PATH, [head, ...await programLines(), ""].join("\n"));
  console.error(`wrote ${PROGRAMS_PATH}`);
}
