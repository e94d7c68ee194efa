/** Guessed tokens change nothing: ids, logits and what is left in the caches are those of steps of one row, by bits. */
import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { Drafter } from "../core/draft/drafter.ts";
import { Lookup } from "../core/draft/lookup.ts";
import { DraftModel } from "../core/draft/model.ts";
import type { Engine } from "../core/engine/mod.ts";
import { libraryPath, openBackend } from "../ffi/mod.ts";
import { oracle, tell, type Told } from "./drafts.ts";
import { familyPrompt } from "./families.ts";
import { FAMILY_MODELS, N_VOCAB, writeFamilyModel } from "./family_models.ts";
import { withEngine } from "./logits_checks.ts";
import { bloomNano, testFolder } from "./models.ts";
import { needing } from "./shared.ts";

const native = libraryPath("cpu") !== undefined;
/** Windows of 20 positions and pages of 64: an answer from 50 on passes both. */
const N_PROMPT = 50, N_ANSWER = 40, AFTER = [1, 2, 3];

function same(got: Told, want: Told, what: string): void {
  assert.deepEqual(got.ids, want.ids, `${what}: ids`);
  got.rows.forEach((row, i) => assert.deepEqual(row, want.rows[i], `${what}: logits of token ${i}`));
  assert.deepEqual(got.after, want.after, `${what}: what follows`);
}

async function checkFamily(engine: Engine, name: string, sampling = {}): Promise<void> {
  const prompt = familyPrompt(name, N_PROMPT), options = { after: AFTER, sampling };
  const plain = await tell(engine, prompt, N_ANSWER, options), text = [...prompt, ...plain.ids];
  assert.equal(plain.n_steps, N_ANSWER);
  for (const acceptance of [0, 0.7, 1]) {
    using drafter = oracle(engine, text, acceptance);
    const got = await tell(engine, prompt, N_ANSWER, { ...options, drafter });
    same(got, plain, `${name}, ${acceptance} of the guesses right`);
    assert.ok(drafter.counts.n_guesses > 20);
    if (acceptance === 0) assert.equal(drafter.counts.n_right, 0);
    if (acceptance === 1) assert.equal(drafter.counts.n_right, drafter.counts.n_guesses);
    assert.equal(got.n_steps + drafter.counts.n_right, N_ANSWER, "every right guess saves a step");
  }
}

const OPTIONS = { n_ctx: 128, n_cache: 512, n_seq: 2, n_ubatch: 32, cacheTypeK: "f16", cacheTypeV: "f16" } as const;

for (const name of Object.keys(FAMILY_MODELS)) {
  Deno.test({
    ...needing(`${name} with guesses answers what it answers without`, native, "the native library"),
    fn: async () => {
      const path = await writeFamilyModel(`${testFolder()}drafts-${name}.gguf`, FAMILY_MODELS[name]);
      using opened = openBackend("cpu");
      await withEngine(path, opened.backend, OPTIONS, async (engine) => {
        const n_free = engine.n_free;
        await checkFamily(engine, name);
        assert.equal(engine.n_free, n_free, "all pages came back");
      });
    },
  });
}

Deno.test("the reference backend answers the same with guesses", async () => {
  for (const name of ["qwen3next", "gemma3"]) {
    const path = await writeFamilyModel(`${testFolder()}drafts-reference-${name}.gguf`, FAMILY_MODELS[name]);
    using opened = openBackend("reference");
    await withEngine(path, opened.backend, OPTIONS, (engine) => checkFamily(engine, name));
  }
});

/** Chains whose state grows with each token: a token too many or too few changes what follows. */
const CHAINS = fc.record({
  temperature: fc.constantFrom(0, 1, 1.7),
  seed: fc.integer({ min: 0, max: 1000 }),
  repeat_penalty: fc.constantFrom(1, 1.3),
  dry_multiplier: fc.constantFrom(0, 0.8),
  mirostat: fc.constantFrom(0, 0, 2),
  adaptive_target: fc.constantFrom(-1, -1, 0.4),
  top_k: fc.constantFrom(0, 5),
  xtc_probability: fc.constantFrom(0, 0.5),
});

Deno.test({
  ...needing("any sampler chain chooses the same with guesses", native, "the native library"),
  fn: async () => {
    const path = await writeFamilyModel(`${testFolder()}drafts-chains.gguf`, FAMILY_MODELS.qwen3next);
    using opened = openBackend("cpu");
    await withEngine(path, opened.backend, OPTIONS, async (engine) => {
      const prompts = fc.array(fc.integer({ min: 0, max: N_VOCAB - 1 }), { minLength: 1, maxLength: 40 });
      const acceptances = fc.double({ min: 0, max: 1, noNaN: true }), widths = fc.integer({ min: 1, max: 12 });
      await fc.assert(
        fc.asyncProperty(prompts, CHAINS, acceptances, widths, async (prompt, sampling, acceptance, max) => {
          const plain = await tell(engine, prompt, 24, { sampling });
          using drafter = oracle(engine, [...prompt, ...plain.ids], acceptance, max);
          same(await tell(engine, prompt, 24, { sampling, drafter }), plain, JSON.stringify(sampling));
        }),
        { numRuns: 40 },
      );
    });
  },
});

Deno.test({
  ...needing("bloom-nano repeats itself in fewer steps with lookup", native, "the native library"),
  fn: async () => {
    using opened = openBackend("cpu");
    await withEngine(await bloomNano("bf16"), opened.backend, { n_ctx: 512 }, async (engine) => {
      const prompt = Array.from({ length: 24 }, (_, i) => 40 + i % 6);
      const plain = await tell(engine, prompt, 60);
      using drafter = new Drafter(new Lookup(), { fixed: true });
      const first = await tell(engine, prompt, 60, { drafter }), second = await tell(engine, prompt, 60, { drafter });
      same(first, plain, "with lookup");
      same(second, plain, "with lookup and what was said before");
      assert.ok(first.n_steps < plain.n_steps, `${first.n_steps} steps`);
      assert.ok(second.n_steps * 5 < plain.n_steps, `${second.n_steps} steps of what was said before`);
    });
  },
});

/** A drafter of another model, and the rows that its engine computes. */
function modelDrafter(draft: Engine, max: number, options: { pMin?: number; n_seq?: number } = {}) {
  const rows = { n: 0 }, step = draft.step.bind(draft);
  draft.step = (requests) => {
    rows.n += requests.reduce((n, r) => n + r.tokens.length, 0);
    return step(requests);
  };
  const proposer = new DraftModel(draft, { n_vocab: N_VOCAB, n_seq: 2, ...options });
  return { drafter: new Drafter(proposer, { max, fixed: true }), rows };
}

Deno.test({
  ...needing("a draft model guesses right where it is the model, whatever its caches", native, "the native library"),
  fn: async () => {
    using opened = openBackend("cpu");
    for (const name of ["llama", "gemma3", "qwen3next", "mamba"]) {
      const path = await writeFamilyModel(`${testFolder()}draft-model-${name}.gguf`, FAMILY_MODELS[name]);
      const prompt = familyPrompt(name, N_PROMPT), options = { after: AFTER };
      await withEngine(
        path,
        opened.backend,
        OPTIONS,
        (engine) =>
          withEngine(path, opened.backend, { ...OPTIONS, topK: 1 }, async (draft) => {
            const plain = await tell(engine, prompt, N_ANSWER, options);
            const made = modelDrafter(draft, 4);
            using drafter = made.drafter;
            same(await tell(engine, prompt, N_ANSWER, { ...options, drafter }), plain, name);
            assert.equal(drafter.counts.n_right, drafter.counts.n_guesses);
            assert.ok(drafter.counts.n_right >= N_ANSWER * 0.75);
            // The next answer of the conversation computes the prompt's rows once: the sequence is still there.
            made.rows.n = 0;
            const longer = [...prompt, ...plain.ids, 5], next = await tell(engine, longer, 8, options);
            same(await tell(engine, longer, 8, { ...options, drafter }), next, `${name} goes on`);
            if (name !== "mamba" && name !== "qwen3next") assert.ok(made.rows.n < 40, `${made.rows.n} rows`);
          }),
      );
    }
  },
});

Deno.test({
  ...needing(
    "a draft model of another kind, with a full cache, or unsure of itself changes no answer",
    native,
    "the native library",
  ),
  fn: async () => {
    using opened = openBackend("cpu");
    const path = await writeFamilyModel(`${testFolder()}drafted.gguf`, FAMILY_MODELS.llama);
    const other = await writeFamilyModel(`${testFolder()}drafting.gguf`, FAMILY_MODELS.qwen3next);
    const prompt = familyPrompt("llama", N_PROMPT);
    await withEngine(path, opened.backend, OPTIONS, async (engine) => {
      const plain = await tell(engine, prompt, N_ANSWER);
      await withEngine(other, opened.backend, OPTIONS, async (draft) => {
        using wrong = modelDrafter(draft, 5).drafter;
        same(await tell(engine, prompt, N_ANSWER, { drafter: wrong }), plain, "another model's guesses");
        assert.ok(wrong.counts.n_right < wrong.counts.n_guesses);
        using sure = new Drafter(new DraftModel(draft, { n_vocab: N_VOCAB, n_seq: 1, pMin: 0.9 }), { fixed: true });
        same(await tell(engine, prompt, N_ANSWER, { drafter: sure }), plain, "sure guesses");
        assert.ok(sure.counts.n_guesses < wrong.counts.n_guesses);
        using padded = new Drafter(new DraftModel(draft, { n_vocab: 0, n_seq: 1 }), { fixed: true });
        same(await tell(engine, prompt, N_ANSWER, { drafter: padded }), plain, "ids the model does not have");
        assert.equal(padded.counts.n_guesses, 0);
      });
      await withEngine(path, opened.backend, { ...OPTIONS, n_ctx: 64, n_cache: 64 }, async (draft) => {
        using other = draft.createSequence();
        const full = modelDrafter(draft, 5).drafter;
        using _ = full;
        await draft.step([{ sequence: other, tokens: [1], output: "none" }]);
        same(await tell(engine, prompt, N_ANSWER, { drafter: full }), plain, "no room in the draft's cache");
        assert.equal(full.counts.n_guesses, 0);
      });
    });
  },
});
