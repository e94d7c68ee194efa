/**
 * Perplexity of quantized files against the peer's on the same files and windows: NLL within 0.2 %. One type here; all types,
 * texts and both models with BLOOMERY_TEST_ALL=1.
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
import { preparedModel, testFolder } from "./models.ts";
import { needingShared, sharedDir } from "./shared.ts";

const N_WINDOW = 512;
const all = Deno.env.get("BLOOMERY_TEST_ALL") === "1";

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
      await withEngine(path, opened.backend, {}, async (engine) => {
        using file = openGguf(path);
        const text = Deno.readTextFileSync(`${sharedDir}eval-text/${set}.txt`);
        const skip = N_WINDOW / 2;
        const windows = cutWindows([{ name: set, text }], tokenizerFromGguf(file.metadata), {
          n_window: N_WINDOW,
          skip,
        });
        const nll: number[] = [];
        for (const w of windows) nll.push(-meanOf((await scoreWindow(engine, w.ids, skip, 1)).logprob));
        const expected = Math.log(Number(ppl)), error = Math.abs(meanOf(nll) - expected) / expected;
        if (all) {
          console.log(
            `${model} ${type} ${set}: NLL ${meanOf(nll).toFixed(5)}, peer ${expected.toFixed(5)}, ${
              (error * 100).toFixed(3)
            } %`,
          );
        }
        assert.ok(error < 2e-3, `${model} ${type} ${set}: NLL ${meanOf(nll)}, peer ${expected}`);
      });
    }
  },
});
