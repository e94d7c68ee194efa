import assert from "node:assert/strict";
import { EvalError } from "../core/errors.ts";
import type { Tokenizer } from "../core/tokenizer/mod.ts";
import fc from "npm:fast-check@4.11.0";
import type { Engine } from "../core/engine/mod.ts";
import { checkSameWindows, isWithin, renderReport, summarize } from "./compare.ts";
import { inGroups, resumePoint, SCORE_SCHEMA, type ScoreHeader, scoreWindows } from "./score.ts";
import { parseScoreFile } from "./score_file.ts";
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

Deno.test("cutWindows() makes one short window of a text that is shorter than a window", () => {
  const cut = (text: string, skip: number) => cutWindows([{ name: "a", text }], tokenizer, { n_window: 4, skip });
  assert.deepEqual(cut("012", 0), [{ source: "a", index: 0, ids: new Int32Array([0, 1, 2]), skip: 0 }]);
  assert.equal(cut("012", 1).length, 1);
  assert.throws(() => cut("012", 2), { code: "eval.text_too_short", message: /3 tokens, expected at least 4/ });
  assert.throws(() => cut("", 0), code("eval.text_too_short"));
});

Deno.test("cutWindows() refuses texts that are too short and windows that score nothing", () => {
  assert.throws(
    () => cutWindows([{ name: "a", text: "0" }], tokenizer, { n_window: 3, skip: 0 }),
    code("eval.text_too_short"),
  );
  assert.throws(
    () => cutWindows([{ name: "a", text: "0123" }], tokenizer, { n_window: 3, skip: 2 }),
    code("eval.window"),
  );
  for (const [n_window, skip] of [[1, 0], [3, -1], [2, 1]]) {
    assert.throws(() => cutWindows([{ name: "a", text: "0123" }], tokenizer, { n_window, skip }), code("eval.window"));
  }
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
  const longer = [{ ...windows[0], ids: new Int32Array([0, 1, 2, 3]) }, windows[1]];
  assert.throws(() => resumePoint(file, header, longer, "s.jsonl"), code("eval.resume_mismatch"));
  const otherStart = [{ ...windows[0], skip: 1 }, windows[1]];
  assert.throws(() => resumePoint(file, header, otherStart, "s.jsonl"), code("eval.resume_mismatch"));
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

const wide: ScoreHeader = { ...header, top_k: 3 };
const rows = {
  ...line,
  top_ids: [[1, 4, 7], [2, 0, 9]],
  top_logprob: [[-1, -2, -3], [-0.5, -1.5, -9]],
};

/** A file of one window in which one field is another. */
function changed(where: "header" | "line", field: string, value: unknown): string {
  const [h, l] = [structuredClone(wide) as object, structuredClone(rows) as object];
  const path = field.split(/[.[\]]+/).filter((part) => part !== "");
  let place = (where === "header" ? h : l) as Record<string, unknown>;
  for (const part of path.slice(0, -1)) place = place[part] as Record<string, unknown>;
  place[path.at(-1)!] = value;
  return `${JSON.stringify(h)}\n${JSON.stringify(l)}\n`;
}

Deno.test("parseScoreFile() names file, line and field of what is wrong", () => {
  parseScoreFile(changed("line", "window", 0), "s.jsonl");
  const cases: ["header" | "line", string, unknown, RegExp][] = [
    ["header", "n_vocab", 0, /found 0, expected a whole number of 1 to/],
    ["header", "n_vocab", "10", /found "10"/],
    ["header", "n_window", 1.5, /found 1\.5/],
    ["header", "skip", 2, /expected a whole number of 0 to 1/],
    ["header", "top_k", 11, /expected a whole number of 1 to 10/],
    ["header", "bos", 1, /expected true or false/],
    ["header", "model", null, /expected a text/],
    ["header", "sources[0].name", 4, /expected a text/],
    ["header", "sources[0].n_windows", -1, /expected a whole number from 0/],
    ["line", "source", "b", /found "b", expected a source of the first line/],
    ["line", "window", 2, /expected a whole number of 0 to 1/],
    ["line", "ids[1]", 10, /found 10, expected a whole number of 0 to 9/],
    ["line", "ids[1]", -1, /found -1/],
    ["line", "ids", [1], /found "1 items", expected a list of 2 to 3/],
    ["line", "ids", [1, 2, 3, 4], /found "4 items", expected a list of 2 to 3/],
    ["line", "skip", 2, /found 2, expected a whole number of 0 to 1/],
    ["line", "logprob[0]", 0.5, /found 0\.5, expected the logarithm/],
    ["line", "logprob[0]", null, /found null, expected the logarithm/],
    ["line", "top_ids[1][2]", 99, /found 99, expected a whole number of 0 to 9/],
    ["line", "top_logprob[1][2]", "x", /found "x"/],
    ["line", "top_logprob[0]", [-1, -2], /expected a list of 3/],
    ["line", "top_ids", 3, /expected a list of 2/],
  ];
  for (const [where, field, value, message] of cases) {
    const refusal = (e: unknown) =>
      e instanceof EvalError && e.code === "eval.score_file" && e.at.file === "s.jsonl" && e.at.field === field &&
      e.at.line === (where === "header" ? 1 : 2) && message.test(e.message) &&
      e.message.includes(`s.jsonl, line ${e.at.line}, field "${field}"`);
    assert.throws(() => parseScoreFile(changed(where, field, value), "s.jsonl"), refusal, `${field} ${value}`);
  }
  const refuses = (text: string, message: RegExp) =>
    assert.throws(() => parseScoreFile(text, "s.jsonl"), { code: "eval.score_file", message });
  refuses(changed("line", "ids", [1, 2]), /"logprob": found "2 items", expected a list of 1/);
  refuses(changed("line", "skip", 1), /"logprob": found "2 items", expected a list of 1/);
  refuses(changed("line", "top_ids[0]", [1, 4, 1]), /"top_ids\[0\]": found 1, expected each token once/);
  refuses(changed("line", "top_logprob[0]", [-0.1, -0.2, -3]), /sum to 1\.77\d*", expected at most 1/);
  refuses(changed("line", "window", 0) + JSON.stringify(rows) + "\n", /line 3, .* each window once; line 2 has it too/);
});

Deno.test("parseScoreFile() sorts candidates that are in another order", () => {
  const text = changed("line", "top_logprob[1]", [-1.5, -9, -0.5]);
  const [parsed] = parseScoreFile(text, "s.jsonl").lines;
  assert.deepEqual(parsed.top_ids, [[1, 4, 7], [9, 2, 0]]);
  assert.deepEqual(parsed.top_logprob, [[-1, -2, -3], [-0.5, -1.5, -9]]);
});

Deno.test("parseScoreFile() gives a checked file or an EvalError, whatever the text", () => {
  const good = changed("line", "window", 1);
  const values = fc.oneof(fc.jsonValue(), fc.constantFrom(-1, 0, 1e9, -1e-300, null, true, "", [], [[]], {}));
  const fields = fc.constantFrom(
    ...["schema", "model", "n_vocab", "n_window", "skip", "bos", "top_k", "sources", "sources[0]"].map((f) =>
      ["header", f] as const
    ),
    ...[
      "source",
      "window",
      "ids",
      "ids[0]",
      "skip",
      "logprob",
      "logprob[1]",
      "top_ids",
      "top_ids[0]",
      "top_logprob[1][0]",
    ]
      .map((f) => ["line", f] as const),
  );
  const cuts = fc.tuple(fc.nat(good.length), fc.nat(good.length), fc.string());
  const texts = fc.oneof(
    fc.tuple(fields, values).map(([[where, field], value]) => changed(where, field, value)),
    cuts.map(([a, b, text]) => good.slice(0, Math.min(a, b)) + text + good.slice(Math.max(a, b))),
  );
  fc.assert(fc.property(texts, (text) => {
    let file;
    try {
      file = parseScoreFile(text, "s.jsonl");
    } catch (e) {
      assert.ok(e instanceof EvalError && e.code === "eval.score_file", String(e));
      assert.ok(typeof e.at.line === "number");
      return;
    }
    const { n_vocab, top_k } = file.header;
    for (const { ids, logprob, top_ids, top_logprob } of file.lines) {
      assert.ok([...ids, ...top_ids.flat()].every((id) => Number.isInteger(id) && id >= 0 && id < n_vocab));
      assert.ok([...logprob, ...top_logprob.flat()].every((x) => Number.isFinite(x) && x <= 0));
      for (const row of top_ids) assert.equal(new Set(row).size, top_k);
      for (const row of top_logprob) assert.deepEqual(row, [...row].sort((a, b) => b - a));
    }
  }));
});

Deno.test("inGroups() fills steps with windows, in order, and runs a long one alone", () => {
  const of = (...lengths: number[]) =>
    lengths.map((n, index) => ({ source: "a", index, ids: new Int32Array(n), skip: 0 }));
  const cut = (lengths: number[], n_seq: number) =>
    [...inGroups(of(...lengths), { n_seq, n_ubatch: 10 })].map((g) => g.map((w) => w.index));
  assert.deepEqual(cut([3, 3, 4, 1, 12, 5, 5], 8), [[0, 1, 2], [3], [4], [5, 6]]);
  assert.deepEqual(cut([1, 1, 1], 2), [[0, 1], [2]]);
  assert.deepEqual(cut([], 2), []);
});

/** An engine whose every log-probability is this, and its best candidate's logit too. */
function fakeEngine(logprob: number, logit: number): Engine {
  return {
    topK: 1,
    createSequence: () => ({ [Symbol.dispose]() {} }),
    step: ([{ tokens }]: { tokens: Int32Array }[]) =>
      Promise.resolve([{
        ids: new Int32Array(tokens.length),
        logits: new Float32Array(tokens.length).fill(logit),
        lse: new Float32Array(tokens.length),
        targetLogprob: new Float32Array(tokens.length).fill(logprob),
      }]),
  } as unknown as Engine;
}

Deno.test("scoreWindows() gives logarithms of at most 0, and refuses what is not finite", async () => {
  const score = (engine: Engine) => Array.fromAsync(scoreWindows(engine, windows, { topK: 1 }));
  const [first] = await score(fakeEngine(1e-6, 2e-6));
  assert.deepEqual([first.logprob, first.top_logprob], [[0, 0], [[0], [0]]]);
  await assert.rejects(score(fakeEngine(NaN, -1)), { code: "eval.non_finite", message: /next token is NaN/ });
  await assert.rejects(score(fakeEngine(-1, -Infinity)), {
    code: "eval.non_finite",
    message: /candidates is -Infinity/,
  });
});

Deno.test("isWithin() keeps no limit for NaN", () => {
  assert.deepEqual([isWithin(0.1, 0.1), isWithin(0.2, 0.1), isWithin(NaN, 0.1), isWithin(Infinity, 0.1)], [
    true,
    false,
    false,
    false,
  ]);
});

Deno.test("summarize() gives a row a source and one over all, and renderReport() shows them", () => {
  const result = (source: string, nll: number) => ({
    source,
    index: 0,
    nll,
    nllBase: nll - 0.1,
    kl: 0.01,
    sameTop: 0.9,
    n_tokens: 5,
    detail: { ids: [0, 1, 2, 3, 4, 5], skip: 0, kls: [0, 0, 0, 0, 0.05], same: [1, 1, 1, 1, 0] },
  });
  const rows = summarize([result("a", 1), result("a", 2), result("b", 3)]);
  assert.deepEqual(rows.map((r) => [r.source, r.n_windows, r.n_tokens]), [["a", 2, 10], ["b", 1, 5], ["all", 3, 15]]);
  assert.ok(Math.abs(rows[2].delta_nll.mean - 0.1) < 1e-12);
  assert.ok(rows[2].delta_nll.se! < 1e-12);
  const uneven = summarize([{ ...result("a", 1), n_tokens: 30 }, { ...result("a", 2), n_tokens: 10 }]);
  assert.equal(uneven[0].nll.mean, 1.25, "the mean is over tokens, not over windows");
  const text = renderReport({
    schema: "bloomery.eval/1",
    model: "m",
    base: "o",
    kl_support: "the whole vocabulary",
    n_window: 3,
    skip: 0,
    bos: false,
    rows,
    windows: [],
  });
  assert.match(text, /all +3 +15/);
  assert.ok(Math.abs(rows[2].ppl_ratio.mean - Math.exp(0.1)) < 1e-12);
  assert.deepEqual([rows[2].kl_p50.mean, rows[2].kl_p90.mean, rows[2].kl_max], [0, 0.05, 0.05]);
});

Deno.test("checkSameWindows() refuses models that cut a text differently", () => {
  const other = cutWindows([{ name: "a", text: "012346" }], tokenizer, { n_window: 3, skip: 0 });
  checkSameWindows(windows, windows, ["m", "o"]);
  assert.throws(() => checkSameWindows(windows, other, ["m", "o"]), code("eval.vocabulary"));
});
