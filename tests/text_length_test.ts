/** Models that take texts up to a length of their own: a context that is asked for is cut to it, and says why. */
import assert from "node:assert/strict";
import { openBackend } from "../ffi/mod.ts";
import { ENCODER_MODELS } from "./encoder_models.ts";
import { FAMILY_MODELS, type FamilyModel, writeFamilyModel } from "./family_models.ts";
import { withEngine } from "./logits_checks.ts";
import { testFolder } from "./models.ts";

const M3 = FAMILY_MODELS["minimax-m3"];

const MODELS: readonly [what: string, model: FamilyModel, most: number, want: "hidden" | "logits"][] = [
  ["an encoder with a table of positions", ENCODER_MODELS.bert, 512, "hidden"],
  [
    "an indexer that would leave blocks out",
    {
      ...M3,
      keys: { ...M3.keys, "attention.indexer.top_k": 4, "attention.indexer.block_size": 16 },
    },
    64,
    "logits",
  ],
];

for (const [what, model, most, want] of MODELS) {
  Deno.test(`${what}: ${most} tokens and no more`, async () => {
    const path = await writeFamilyModel(`${testFolder()}/text-length.gguf`, model);
    using opened = openBackend("cpu");
    await withEngine(path, opened.backend, { n_ctx: 100_000, n_ubatch: 1024 }, async (engine) => {
      assert.equal(engine.n_ctx, most);
      assert.match(engine.contextReason!, new RegExp(`${model.arch} takes no more than ${most} here`));
      for (const n of [most, most + 1]) {
        using sequence = engine.createSequence();
        const step = engine.step([{ sequence, tokens: new Int32Array(n), output: "last", want }]);
        if (n > most) await assert.rejects(step, { code: "engine.context_full" });
        else assert.equal((await step)[0].n_rows, 1);
      }
    });
    await withEngine(path, opened.backend, { n_ctx: 40 }, (engine) => {
      assert.equal(engine.n_ctx, 40);
      assert.equal(engine.contextReason, undefined);
      return Promise.resolve();
    });
  });
}
