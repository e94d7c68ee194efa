/** The CPU library on bloom-nano: reference logits, row independence, determinism over thread counts. */
import assert from "node:assert/strict";
import { openBackend } from "../ffi/mod.ts";
import { bloomNano, referencePrompts } from "./models.ts";
import { wholePrompt, withEngine } from "./logits_checks.ts";
import { registerNativeTests } from "./native_checks.ts";

registerNativeTests("cpu");

Deno.test("cpu: one thread and three give the same bits", async () => {
  const { ids } = referencePrompts().code;
  const rows: Float32Array[] = [];
  for (const threads of [1, 3]) {
    using opened = openBackend("cpu", { threads });
    await withEngine(await bloomNano("bf16"), opened.backend, {}, async (engine) => {
      rows.push((await wholePrompt(engine, ids)).full!);
    });
  }
  assert.deepEqual(new Uint8Array(rows[0].buffer), new Uint8Array(rows[1].buffer));
});
