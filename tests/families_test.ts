/** Every architecture on the reference backend and the CPU. */
import assert from "node:assert/strict";
import {
  FAMILY_GOLDENS_PATH,
  type FamilyGolden,
  familyGolden,
  registerFamilyTests,
  registerTinyTests,
} from "./families.ts";
import { FAMILY_MODELS } from "./family_models.ts";

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

registerTinyTests("reference");
registerFamilyTests("cpu");
registerTinyTests("cpu");
