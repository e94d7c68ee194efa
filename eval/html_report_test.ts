import assert from "node:assert/strict";
import { type Report, summarize, type WindowResult } from "./compare.ts";
import { escapeHtml, renderHtml, tokenClass } from "./html_report.ts";

const TEXTS = ["<b>", " the", "ing", "42", "한", ".", "\n"];
const tokens = {
  text: (id: number) => TEXTS[id],
  decode: (ids: readonly number[]) => ids.map((id) => TEXTS[id]).join(""),
};

function result(source: string, index: number, ids: number[], kls: number[], same: number[]): WindowResult {
  const mean = (x: number[]) => x.reduce((a, b) => a + b, 0) / x.length;
  const skip = ids.length - 1 - kls.length;
  const means = { nll: 2 + mean(kls), nllBase: 2, kl: mean(kls), sameTop: mean(same), n_tokens: kls.length };
  return { source, index, ...means, detail: { ids, skip, kls, same } };
}

const results = [
  result("en", 0, [0, 1, 2, 3, 5], [0.1, 0.2, 7.25, 0.3], [1, 1, 0, 1]),
  result("en", 1, [0, 1, 2, 3, 5], [0.1, 0.2, 0.1, 0.3], [1, 0, 1, 1]),
  result("ko & more", 0, [0, 4, 4, 6], [0.5, 0.25], [1, 1]),
];
const report: Report = {
  schema: "bloomery.eval/1",
  model: "<script>alert(1)</script>.gguf",
  base: "o.gguf",
  kl_support: "all",
  n_window: 5,
  skip: 0,
  bos: false,
  rows: summarize(results),
  windows: [],
};
const page = renderHtml(report, results, tokens);

Deno.test("renderHtml() makes one page that loads nothing and runs nothing", () => {
  assert.doesNotMatch(page, /<script|<link|<img|<iframe|https?:|src=|url\(|@import|\son\w+=/i);
  assert.match(page, /&lt;script&gt;alert\(1\)&lt;\/script&gt;\.gguf/);
  assert.match(page, /^<!doctype html>/);
  const open = [...page.matchAll(/<(figure|svg|table|tr|td|th|tbody|thead|text|p|h1|h2|mark)[ >]/g)].map((m) => m[1]);
  for (const tag of new Set(open)) {
    const closed = page.split(`</${tag}>`).length - 1;
    assert.equal(closed, open.filter((t) => t === tag).length, `${tag} is closed as often as it is opened`);
  }
  assert.doesNotMatch(page, /NaN|undefined|Infinity/);
});

Deno.test("renderHtml() shows every row with its error, and the worst position first, with its text", () => {
  for (const row of report.rows) {
    assert.ok(page.includes(`<td>${escapeHtml(row.source)}</td><td>${row.n_windows}</td>`));
  }
  assert.match(page, /ko &amp; more/);
  const [first, second] = page.slice(page.indexOf("Worst positions")).split("<tr>").slice(2);
  assert.match(first, /<td>en<\/td><td>0<\/td><td>3<\/td><td>7\.2500<\/td><td>no<\/td>/);
  assert.match(first, /&lt;b&gt; theing<mark>42<\/mark>/);
  assert.match(second, /<td>ko &amp; more<\/td><td>0<\/td><td>2<\/td><td>0\.5000<\/td>/);
});

Deno.test("renderHtml() puts positions and kinds of tokens where they belong", () => {
  const told = [...page.matchAll(/positions (\d+): ([\d.]+) ± ([\d.-]+), (\d+) tokens/g)].map((m) => m.slice(1));
  assert.deepEqual(told.map(([at, mean, , n]) => [at, mean, n]), [
    ["1", "0.10000", "2"],
    ["2", "0.30000", "3"],
    ["3", "2.53333", "3"],
    ["4", "0.30000", "2"],
  ]);
  assert.equal(told[0][2], "0.00000");
  assert.match(page, />digits \(2\)<\/text>.*?>50\.00 ± 50\.00 %/);
  assert.match(page, />start of a Latin word \(2\)<\/text>.*?>100\.00 ± 0\.00 %/);
});

Deno.test("tokenClass() tells kinds of tokens apart by their text", () => {
  const cases: [string, string][] = [
    ["", "no text of its own"],
    [" \n", "white space"],
    [" the", "start of a Latin word"],
    ["ing", "within a Latin word"],
    ["한", "letters of other scripts"],
    [" 42", "digits"],
    ["):", "punctuation and symbols"],
    ["\uFFFD", "part of a character"],
  ];
  for (const [text, expected] of cases) assert.equal(tokenClass(text), expected, JSON.stringify(text));
});
