/**
 * Perplexity of quantized files against llama-perplexity's on the same files and windows: NLL within 0.2 %. Four types on two
 * short texts of the repository; with ../shared one more on a long text, and all of its types, texts and models with
 * BLOOMERY_TEST_ALL=1.
 */
import assert from "node:assert/strict";
import { openGguf } from "../core/gguf/read.ts";
import { tokenizerFromGguf } from "../core/tokenizer/mod.ts";
import { scoreWindow } from "../eval/score.ts";
import { meanOf } from "../eval/stats.ts";
import { cutWindows } from "../eval/windows.ts";
import { openBackend } from "../ffi/mod.ts";
import { openGgufSource, parseFileType, quantize, readImatrix, useImatrix } from "../mod.ts";
import { withEngine } from "./logits_checks.ts";
import { bloomNano, preparedModel, testFolder } from "./models.ts";
import { needingShared, repoDir, sharedDir } from "./shared.ts";

const all = Deno.env.get("BLOOMERY_TEST_ALL") === "1";

/** Mean negative log-likelihood of a file over the second halves of a text's windows, as llama-perplexity counts it. */
async function nllOf(path: string, text: string, n_window: number): Promise<number> {
  using opened = openBackend("cpu");
  const nll: number[] = [];
  await withEngine(path, opened.backend, {}, async (engine) => {
    using file = openGguf(path);
    const skip = n_window / 2;
    const windows = cutWindows([{ name: "text", text }], tokenizerFromGguf(file.metadata), { n_window, skip });
    for (const w of windows) nll.push(-meanOf((await scoreWindow(engine, w.ids, skip, 1)).logprob));
  });
  return meanOf(nll);
}

const golden = JSON.parse(Deno.readTextFileSync(`${repoDir}tests/goldens/perplexity/peer.json`)) as {
  window: number;
  ppl: Record<string, Record<string, number>>;
};

Deno.test("perplexity of bloom-nano in BF16, Q8_0, Q4_K_M and Q4_0 is llama-perplexity's within 0.2 % in NLL", async () => {
  using opened = openBackend("cpu");
  const bf16 = await bloomNano("bf16");
  for (const type of ["BF16", "Q8_0", "Q4_K_M", "Q4_0"]) {
    const path = type === "BF16" ? bf16 : `${testFolder()}/perplexity-${type}.gguf`;
    if (type !== "BF16") {
      using source = openGgufSource(bf16);
      await quantize(source, path, opened.backend, { fileType: parseFileType(type) });
    }
    for (const [text, ppl] of Object.entries(golden.ppl)) {
      const expected = Math.log(ppl[type]);
      const found = await nllOf(
        path,
        Deno.readTextFileSync(`${repoDir}tests/goldens/perplexity/${text}.txt`),
        golden.window,
      );
      assert.ok(Math.abs(found - expected) < 2e-3 * expected, `${type} ${text}: NLL ${found}, peer ${expected}`);
    }
  }
});

Deno.test({
  ...needingShared("perplexity of quantized files is llama-perplexity's within 0.2 % in NLL"),
  fn: async () => {
    const rows = Deno.readTextFileSync(`${sharedDir}models/reference/ppl-peer.txt`).split("\n")
      .map((line) => /^(bloom-nano\S*) (\S+) (\w+) ([\d.]+) /.exec(line)?.slice(1))
      .filter((row) => row !== undefined && ["Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0"].includes(row[1]))
      .filter((row) => all || row!.slice(0, 3).join() === "bloom-nano,Q4_K_M,code") as string[][];
    assert.ok(rows.length > 0);
    for (const [model, type, set, ppl] of rows) {
      using opened = openBackend("cpu");
      const path = `${testFolder()}/${model}-${type}.gguf`;
      using source = openGgufSource(await preparedModel(`${sharedDir}models/${model}`, "bf16"));
      await quantize(source, path, opened.backend, {
        fileType: parseFileType(type),
        imatrix: useImatrix(readImatrix(`${sharedDir}models/reference/${model}/imatrix.gguf`)),
      });
      const text = Deno.readTextFileSync(`${sharedDir}eval-text/${set}.txt`);
      const found = await nllOf(path, text, 512);
      const expected = Math.log(Number(ppl)), error = Math.abs(found - expected) / expected;
      if (all) {
        const line = `NLL ${found.toFixed(5)}, peer ${expected.toFixed(5)}, ${(error * 100).toFixed(3)} %`;
        console.log(`${model} ${type} ${set}: ${line}`);
      }
      assert.ok(error < 2e-3, `${model} ${type} ${set}: NLL ${found}, peer ${expected}`);
    }
  },
});
