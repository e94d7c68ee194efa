/**
 * The tests a native device must pass on bloom-nano (and, where ../shared is, on bloom-nano-moe and the evaluation texts):
 * registered once for the CPU and once for a card.
 * @module
 */
import assert from "node:assert/strict";
import { openBackend } from "../ffi/mod.ts";
import { tokenizerFromGguf } from "../core/tokenizer/mod.ts";
import { openGguf } from "../core/gguf/read.ts";
import { cutWindows } from "../eval/windows.ts";
import { scoreWindow } from "../eval/score.ts";
import { meanOf } from "../eval/stats.ts";
import { bloomNano, preparedModel, type ReferencePrompt, referencePrompts } from "./models.ts";
import { checkBatch, checkGreedy, checkLogits, checkPromptSplits, withEngine } from "./logits_checks.ts";
import { sharedDir } from "./shared.ts";

const F32_CACHE = { cacheTypeK: "f32", cacheTypeV: "f32" } as const;

/** The large set's prompts of a model, with all the positions the reference has. */
function sharedPrompts(model: string): Record<string, ReferencePrompt> {
  const from = `${sharedDir}models/reference/${model}/`;
  const all = JSON.parse(Deno.readTextFileSync(`${from}prompts.json`));
  for (const p of Object.values<any>(all)) {
    const bin = Deno.readFileSync(from + p.file);
    const floats = (key: string) => {
      const { shape, offset } = p.arrays[key];
      return Array.from(
        new Float32Array(bin.buffer.slice(offset, offset + 4 * shape.reduce((a: number, b: number) => a * b, 1))),
      );
    };
    p.next_logprob = floats("next_logprob");
    p.logits_last = floats("logits_last8").slice(-p.arrays.logits_last8.shape[1]);
  }
  return all;
}

/** Registers the tests for `--device name`. */
export function registerNativeTests(name: string, options: { ignore?: boolean } = {}): void {
  const ignore = options.ignore ?? false;
  const test = (what: string, fn: () => Promise<void>, needsShared = false) =>
    Deno.test({ name: `${name}: ${what}`, ignore: ignore || (needsShared && !sharedDir), fn });

  for (const outtype of ["f32", "bf16", "f16"] as const) {
    test(`logits and greedy ids of bloom-nano with ${outtype} weights`, async () => {
      using opened = openBackend(name);
      const device = opened.device.index;
      await withEngine(await bloomNano(outtype), opened.backend, { device, ...F32_CACHE }, async (engine) => {
        for (const [key, p] of Object.entries(referencePrompts())) {
          await checkLogits(engine, p, key);
          if (outtype === "bf16") await checkGreedy(engine, p, key);
        }
      });
    });
  }

  for (const cache of ["f16", "q8_0"] as const) {
    test(`pieces, batches and forks give the same bits with a ${cache} cache`, async () => {
      const { english, code, chat_thinking } = referencePrompts();
      using opened = openBackend(name);
      const device = opened.device.index;
      for (const outtype of ["bf16", "q8_0"] as const) {
        await withEngine(
          await bloomNano(outtype),
          opened.backend,
          { device, cacheTypeK: cache, cacheTypeV: cache },
          async (engine) => {
            await checkPromptSplits(engine, english.ids, [1, 7, 64, 100]);
            await checkBatch(engine, [english.ids.slice(0, 70), code.ids.slice(0, 33), chat_thinking.ids, [5]], 3);
          },
        );
      }
    });
  }

  test("logits and greedy ids of all prompts of both models", async () => {
    for (const model of ["bloom-nano", "bloom-nano-moe"]) {
      using opened = openBackend(name);
      const path = await preparedModel(`${sharedDir}models/${model}`, "bf16");
      await withEngine(path, opened.backend, { device: opened.device.index, ...F32_CACHE }, async (engine) => {
        for (const [key, p] of Object.entries(sharedPrompts(model))) {
          await checkLogits(engine, p, `${model} ${key}`);
          await checkGreedy(engine, p, `${model} ${key}`);
        }
      });
    }
  }, true);

  test("mean NLL of the evaluation texts within 1e-4 of the reference", async () => {
    for (const model of ["bloom-nano", "bloom-nano-moe"]) {
      const summary = JSON.parse(Deno.readTextFileSync(`${sharedDir}models/reference/${model}/summary.json`));
      const path = await preparedModel(`${sharedDir}models/${model}`, "bf16");
      using file = openGguf(path);
      const tokenizer = tokenizerFromGguf(file.metadata);
      using opened = openBackend(name);
      await withEngine(path, opened.backend, { device: opened.device.index, ...F32_CACHE }, async (engine) => {
        // A third of the windows keeps the test short; their NLLs are in the reference one by one.
        for (const set of ["english", "korean", "code"]) {
          const text = Deno.readTextFileSync(`${sharedDir}eval-text/${set}.txt`);
          const windows = cutWindows([{ name: set, text }], tokenizer, { n_window: 512, skip: 0 });
          const expected: number[] = summary.perplexity[set].per_window_nll;
          assert.equal(windows.length, expected.length, `${model} ${set}: windows`);
          const got: number[] = [], want: number[] = [];
          for (let i = 0; i < windows.length; i += 3) {
            got.push(-meanOf((await scoreWindow(engine, windows[i].ids, 0, 1)).logprob));
            want.push(expected[i]);
          }
          const error = Math.abs(meanOf(got) - meanOf(want));
          assert.ok(error < 1e-4, `${model} ${set}: mean NLL differs by ${error}`);
        }
      });
    }
  }, true);
}
