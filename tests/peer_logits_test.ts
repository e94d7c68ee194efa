/** Random models as llama.cpp computes them (`scripts/peer_logits.ts`). */
import assert from "node:assert/strict";
import { tokenizerFromGguf } from "../core/tokenizer/mod.ts";
import { openGguf } from "../core/gguf/read.ts";
import { openBackend } from "../ffi/mod.ts";
import { FAMILY_MODELS } from "./family_models.ts";
import { withEngine } from "./logits_checks.ts";
import { testFolder } from "./models.ts";
import { PEER_LOGITS_PATH, type PeerLogits, peerModel, peerText } from "./peer_models.ts";

/** What stays of F32 sums in another order. */
const TOLERANCE = 2e-4;

/** Its table of GELU has 16 bits. */
const GELU = { why: "GELU by a table of 16 bits", most: 3e-3 };

/** Where llama.cpp computes something else: why, and how far apart they are at most. */
const APART: Readonly<Record<string, { readonly why: string; readonly most: number }>> = {
  gemma2: GELU,
  gemma3: GELU,
  gemma4: GELU,
  starcoder2: GELU,
  "grok, 1": GELU,
  "grok, 2": { why: "the router's logits are not capped", most: 0.1 },
  ernie4_5: { why: "the bias behind attention, which released models have, is left out", most: 2 },
  "exaone4, windows": { why: "windows in files of 64 layers only", most: 4 },
  qwen2vl: { why: "its rotation for pictures rounds; the same weights as qwen2 agree to 1e-5", most: 1e-2 },
};

const { models, without }: { models: Record<string, PeerLogits>; without: Record<string, string> } = JSON.parse(
  Deno.readTextFileSync(PEER_LOGITS_PATH),
);

Deno.test("every random model is compared with llama.cpp, or it is written why not", () => {
  const named = [...Object.keys(models), ...Object.keys(without)].toSorted();
  assert.deepEqual(named, Object.keys(FAMILY_MODELS).toSorted(), "scripts/peer_logits.ts writes them again");
});

for (const [name, want] of Object.entries(models)) {
  Deno.test(`${name}: logits are llama.cpp's`, async () => {
    const path = `${testFolder()}/peer-logits.gguf`;
    await peerModel(path, name, want.variant);
    const ids = tokenizerFromGguf(openGguf(path).metadata).encode(peerText(name));
    assert.deepEqual([...ids], want.ids);
    using opened = openBackend("cpu");
    const options = { n_ctx: 128, cacheTypeK: "f32", cacheTypeV: "f32" } as const;
    await withEngine(path, opened.backend, options, async (engine) => {
      using sequence = engine.createSequence();
      const [row] = await engine.step([{ sequence, tokens: ids, output: "last", want: "logits" }]);
      const worst = want.logits.reduce((most, x, i) => Math.max(most, Math.abs(x - row.full![i])), 0);
      const apart = APART[name];
      assert.ok(worst <= (apart?.most ?? TOLERANCE), `a logit differs by ${worst}`);
      assert.ok(!apart || worst > TOLERANCE, `${apart?.why}: no longer apart`);
    });
  });
}
