/** Every architecture on the reference backend and the CPU. */
import assert from "node:assert/strict";
import {
  FAMILY_GOLDENS_PATH,
  type FamilyGolden,
  familyGolden,
  familyPrompt,
  registerFamilyTests,
  registerTinyTests,
} from "./families.ts";
import { FAMILY_MODELS, writeFamilyModel } from "./family_models.ts";
import { openBackend } from "../ffi/mod.ts";
import { wholePrompt, withEngine } from "./logits_checks.ts";
import { testFolder } from "./models.ts";

Deno.test("reference: random models give what their goldens keep", async () => {
  const goldens: Record<string, FamilyGolden> = JSON.parse(Deno.readTextFileSync(FAMILY_GOLDENS_PATH)).models;
  assert.deepEqual(Object.keys(goldens), Object.keys(FAMILY_MODELS), "deno task golden:families writes them again");
  for (const [name, want] of Object.entries(goldens)) {
    const got = await familyGolden(name);
    assert.deepEqual(got.greedy, want.greedy, `${name}: greedy ids`);
    want.logits.forEach((x, i) => {
      assert.ok(Math.abs(got.logits[i] - x) <= 1e-4, `${name}: logit ${i} is ${got.logits[i]}, expected ${x}`);
    });
  }
});

for (const name of ["reference", "cpu"]) {
  Deno.test(`${name}: a chunk of llama4 gives what it gives as a prompt of its own`, async () => {
    // One layer, which sees chunks of 40 positions; rotation only tells distances.
    const model = { ...FAMILY_MODELS.llama4, keys: { ...FAMILY_MODELS.llama4.keys, block_count: 1 } };
    const path = await writeFamilyModel(`${testFolder()}/chunks-${name}.gguf`, model),
      ids = familyPrompt("llama4", 100);
    using opened = openBackend(name);
    await withEngine(path, opened.backend, { n_ctx: 256, cacheTypeK: "f32", cacheTypeV: "f32" }, async (engine) => {
      const whole = (await wholePrompt(engine, ids)).full!, n_vocab = whole.length / ids.length;
      for (const [from, to] of [[0, 40], [40, 80], [80, 100]]) {
        const alone = (await wholePrompt(engine, ids.slice(from, to))).full!;
        alone.forEach((x, i) => {
          const got = whole[from * n_vocab + i];
          assert.ok(Math.abs(got - x) <= 1e-4, `position ${from + Math.floor(i / n_vocab)}: ${got}, alone ${x}`);
        });
      }
    });
  });
}

registerTinyTests("reference");
registerFamilyTests("cpu");
registerTinyTests("cpu");
