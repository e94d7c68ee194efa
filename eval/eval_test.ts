import assert from "node:assert/strict";
import { EvalError } from "../core/errors.ts";
import type { Tokenizer } from "../core/tokenizer/mod.ts";
import { checkSameWindows, renderReport, summarize } from "./compare.ts";
import { parseScoreFile, resumePoint, SCORE_SCHEMA, type ScoreHeader } from "./score.ts";
import { cutWindows } from "./windows.ts";

const tokenizer = {
  addBos: false,
  bos: 9,
  encode: (text: string) => Int32Array.from(text, (c) => c.charCodeAt(0) - 48),
} as unknown as Tokenizer;

const code = (want: string) => (e: unknown) => e instanceof EvalError && e.code === want;

Deno.test("cutWindows() drops the incomplete last window and puts bos in place of the first token when asked", () => {
  const source = { name: "a", text: "0123456" };
  const plain = cutWindows([source], tokenizer, { n_window: 3, skip: 0 });
  assert.deepEqual(plain.map((w) => [...w.ids]), [[0, 1, 2], [3, 4, 5]]);
  const bos = cutWindows([source], tokenizer, { n_window: 3, skip: 0, bos: true });
  assert.deepEqual(bos.map((w) => [...w.ids]), [[9, 1, 2], [9, 4, 5]]);
  assert.deepEqual(
    cutWindows([{ name: "ids", ids: [4, 5, 6] }], tokenizer, { n_window: 2, skip: 0 }).map((w) => [...w.ids]),
    [[
      4,
      5,
    ]],
  );
});

Deno.test("cutWindows() refuses texts that are too short and windows that score nothing", () => {
  assert.throws(
    () => cutWindows([{ name: "a", text: "01" }], tokenizer, { n_window: 3, skip: 0 }),
    code("eval.text_too_short"),
  );
  assert.throws(
    () => cutWindows([{ name: "a", text: "0123" }], tokenizer, { n_window: 3, skip: 2 }),
    code("eval.window"),
  );
  assert.throws(
    () => cutWindows([{ name: "a", text: "0123" }], { ...tokenizer, bos: null }, { n_window: 3, skip: 0, bos: true }),
    code("eval.no_bos"),
  );
});

const header: ScoreHeader = {
  schema: SCORE_SCHEMA,
  model: "m",
  n_vocab: 10,
  n_window: 3,
  skip: 0,
  bos: false,
  top_k: 1,
  sources: [{ name: "a", n_windows: 2 }],
};
const line = {
  source: "a",
  window: 0,
  ids: [0, 1, 2],
  logprob: [-1, -2],
  top_ids: [[1], [2]],
  top_logprob: [[-1], [-2]],
};
const windows = cutWindows([{ name: "a", text: "012345" }], tokenizer, { n_window: 3, skip: 0 });

Deno.test("a score file that was cut goes on after its last whole line", () => {
  const text = `${JSON.stringify(header)}\n${JSON.stringify(line)}\n{"source":"a","wind`;
  const file = parseScoreFile(text, "s.jsonl");
  assert.equal(resumePoint(file, header, windows, "s.jsonl"), 1);
});

Deno.test("a score file of another run is refused, naming the field", () => {
  const file = parseScoreFile(`${JSON.stringify(header)}\n${JSON.stringify(line)}\n`, "s.jsonl");
  assert.throws(() => resumePoint(file, { ...header, skip: 1 }, windows, "s.jsonl"), (e) => {
    return e instanceof EvalError && e.code === "eval.resume_mismatch" && e.at.field === "skip";
  });
  const other = cutWindows([{ name: "a", text: "022345" }], tokenizer, { n_window: 3, skip: 0 });
  assert.throws(() => resumePoint(file, header, other, "s.jsonl"), code("eval.resume_mismatch"));
});

Deno.test("parseScoreFile() refuses what score did not write", () => {
  for (
    const text of [
      "",
      "\n",
      "x\n",
      "{}\n",
      "null\n",
      `${JSON.stringify(header)}\n{"ids":[1]}\n`,
      `${JSON.stringify(header)}\n3\n`,
    ]
  ) {
    assert.throws(() => parseScoreFile(text, "s.jsonl"), code("eval.score_file"), JSON.stringify(text));
  }
});

Deno.test("summarize() gives a row a source and one over all, and renderReport() shows them", () => {
  const result = (source: string, nll: number) => ({
    source,
    nll,
    nllBase: nll - 0.1,
    kl: 0.01,
    sameTop: 0.9,
    n_tokens: 5,
  });
  const rows = summarize([result("a", 1), result("a", 2), result("b", 3)]);
  assert.deepEqual(rows.map((r) => [r.source, r.n_windows, r.n_tokens]), [["a", 2, 10], ["b", 1, 5], ["all", 3, 15]]);
  assert.ok(Math.abs(rows[2].delta_nll.mean - 0.1) < 1e-12);
  assert.ok(rows[2].delta_nll.se! < 1e-12);
  const text = renderReport({
    schema: "bloomery.eval/1",
    model: "m",
    base: "o",
    kl_support: "the whole vocabulary",
    n_window: 3,
    skip: 0,
    bos: false,
    rows,
  });
  assert.match(text, /all +3 +15/);
});

Deno.test("checkSameWindows() refuses models that cut a text differently", () => {
  const other = cutWindows([{ name: "a", text: "012346" }], tokenizer, { n_window: 3, skip: 0 });
  checkSameWindows(windows, windows, ["m", "o"]);
  assert.throws(() => checkSameWindows(windows, other, ["m", "o"]), code("eval.vocabulary"));
});
