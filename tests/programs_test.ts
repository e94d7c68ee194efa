/**
 * The programs of every architecture, by hash: a change of an architecture, of the builder or of the encoder shows here. After a
 * change that was meant, `deno task golden:programs` writes them again.
 */
import assert from "node:assert/strict";
import { ARCHITECTURES } from "../core/arch/mod.ts";
import { ENCODER_MODELS } from "./encoder_models.ts";
import { FAMILY_MODELS } from "./family_models.ts";
import { programLines, PROGRAMS_PATH } from "./program_goldens.ts";

Deno.test("every architecture has a small model", () => {
  const known = new Set([...Object.values(FAMILY_MODELS), ...Object.values(ENCODER_MODELS)].map((m) => m.arch));
  const without = ARCHITECTURES.filter((a) => !a.names.some((name) => known.has(name)));
  assert.deepEqual(without.map((a) => a.names), []);
});

Deno.test("programs are what their golden says", async () => {
  const want = Deno.readTextFileSync(PROGRAMS_PATH).split("\n").filter((l) => l !== "" && !l.startsWith("#"));
  assert.deepEqual(await programLines(), want, "after a change that was meant: deno task golden:programs");
});
