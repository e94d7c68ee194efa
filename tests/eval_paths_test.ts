/**
 * The three ways to compare with an original give the same: both models at once, whole rows on the disk, and the best candidates
 * as a lower bound. Held to what whole rows of logits give by hand.
 */
import assert from "node:assert/strict";
import { bloomery } from "../cli/_testing.ts";
import { openGguf } from "../core/gguf/read.ts";
import { tokenizerFromGguf } from "../core/tokenizer/mod.ts";
import { cutWindows } from "../eval/windows.ts";
import { openBackend } from "../ffi/mod.ts";
import { openGgufSource, parseFileType, quantize } from "../mod.ts";
import { wholePrompt, withEngine } from "./logits_checks.ts";
import { bloomNano, testFolder } from "./models.ts";

const dir = `${testFolder()}/eval-paths`;
Deno.mkdirSync(dir);
const TEXT = `${dir}/text.txt`;
Deno.writeTextFileSync(
  TEXT,
  "The function returns the number of bytes that were written, or a negative error code. ".repeat(4),
);
const WINDOW = 16, SKIP = 8;

const logSoftmax = (row: Float32Array) => {
  const most = row.reduce((a, b) => Math.max(a, b));
  const lse = most + Math.log(row.reduce((s, x) => s + Math.exp(x - most), 0));
  return Float64Array.from(row, (x) => x - lse);
};

Deno.test("eval gives by every path what whole rows give by hand", async () => {
  const original = await bloomNano("bf16"), model = `${dir}/q4.gguf`;
  using opened = openBackend("cpu");
  using source = openGgufSource(original);
  await quantize(source, model, opened.backend, { fileType: parseFileType("Q4_0") });

  using file = openGguf(original);
  const windows = cutWindows([{ name: "text", text: Deno.readTextFileSync(TEXT) }], tokenizerFromGguf(file.metadata), {
    n_window: WINDOW,
    skip: SKIP,
  });
  const rowsOf = (path: string) =>
    withEngine(path, opened.backend, {}, async (engine) => {
      const rows: Float64Array[] = [];
      for (const w of windows) {
        const { full } = await wholePrompt(engine, w.ids);
        for (let i = SKIP; i < WINDOW - 1; i++) {
          rows.push(logSoftmax(full!.subarray(i * engine.n_vocab, (i + 1) * engine.n_vocab)));
        }
      }
      return rows;
    });
  const p = await rowsOf(original), q = await rowsOf(model);
  const mean = (of: (p: Float64Array, q: Float64Array, i: number) => number) =>
    p.reduce((s, row, i) => s + of(row, q[i], i), 0) / p.length;
  const best = (row: Float64Array) => row.indexOf(row.reduce((a, b) => Math.max(a, b)));
  const kl = mean((p, q) => p.reduce((s, x, i) => s + Math.exp(x) * (x - q[i]), 0));
  const same = mean((p, q) => best(p) === best(q) ? 1 : 0);
  const per = WINDOW - 1 - SKIP;
  const target = (i: number) => windows[Math.floor(i / per)].ids[SKIP + i % per + 1];
  const delta = mean((p, q, i) => p[target(i)] - q[target(i)]);
  assert.ok(kl > 1e-3 && same < 1, "the model has to differ for this test to say anything");

  const run = async (...args: string[]) => {
    const { code, out, err } = await bloomery([...args, "--device", "cpu", "--window", String(WINDOW), "--json"]);
    assert.equal(code, 0, err);
    return JSON.parse(out);
  };
  const files = [["jsonl", "--skip", String(SKIP), "--top", "100"], ["kld"]].map(async ([format, ...more]) => {
    const path = `${dir}/original.${format}`;
    await run("score", "-m", original, "-f", TEXT, "--format", format, "-o", path, ...more);
    return path;
  });
  const [jsonl, kld] = await Promise.all(files);
  const near = (found: number, expected: number, tolerance: number, what: string) =>
    assert.ok(Math.abs(found - expected) < tolerance, `${what}: ${found}, expected ${expected}`);
  for (
    const [against, ...more] of [[original, "-f", TEXT, "--skip", String(SKIP)], [kld], [jsonl]]
  ) {
    const together = await run("eval", "-m", model, "--against", against, ...more);
    const { rows: [row] } = together;
    const alone = await run("eval", "-m", model, "--against", against, "--at-once", "1", ...more);
    assert.deepEqual(together, alone, `${against}: windows that are run together give what each gives alone, by bits`);
    assert.equal(row.n_tokens, p.length);
    near(row.same_top.mean, same, 1e-9, `${against}: same top-1`);
    near(row.delta_nll.mean, delta, 1e-4, `${against}: dNLL`);
    near(row.ppl_ratio.mean, Math.exp(delta), 2e-4, `${against}: ratio`);
    if (against === jsonl) {
      assert.ok(row.kl.mean <= kl + 1e-6, "over buckets it is a lower bound");
      assert.ok(row.kl.mean > 0.8 * kl, `over 100 candidates it is near: ${row.kl.mean} of ${kl}`);
    } else near(row.kl.mean, kl, 1e-4, `${against}: KL`);
  }

  const page = `${dir}/report.html`;
  const withPage = ["eval", "-m", model, "--against", kld, "--report", page];
  await run(...withPage);
  const html = Deno.readTextFileSync(page);
  assert.match(html, /Worst positions/);
  assert.match(html, /<mark>[^<]+<\/mark>/);
  const again = await bloomery([...withPage, "--device", "cpu", "--json"]);
  assert.equal(JSON.parse(again.out).error.code, "usage.output_exists");
  await run(...withPage, "--overwrite");
});
