/**
 * `deno task golden:families`: writes tests/goldens/families.json again, from the reference backend.
 * @module
 */
import { FAMILY_GOLDENS_PATH, familyGolden } from "./families.ts";
import { FAMILY_MODELS } from "./family_models.ts";

const models: Record<string, unknown> = {};
for (const name of Object.keys(FAMILY_MODELS)) models[name] = await familyGolden(name);
const golden = {
  made_by: "tests/family_goldens.ts: random models of tests/family_models.ts on the reference backend, 150 tokens",
  tolerance: "1e-4 absolute on logits; greedy ids equal",
  models,
};
const text = JSON.stringify(golden, null, 1).replace(
  /\[\s+([^\]]*?)\s+\]/g,
  (_, list: string) => `[${list.replace(/\s+/g, " ")}]`,
);
Deno.writeTextFileSync(FAMILY_GOLDENS_PATH, text + "\n");
console.error(`wrote ${FAMILY_GOLDENS_PATH}`);
