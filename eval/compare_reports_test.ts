import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { EvalError } from "../core/errors.ts";
import { compareReports, parseReport, renderDifferences } from "./compare_reports.ts";

const names: [string, string] = ["a.json", "b.json"];

/** A report whose windows have these divergences; agreement and likelihood follow them. */
function report(kls: number[], more: Record<string, unknown> = {}): string {
  return JSON.stringify({
    schema: "bloomery.eval/1",
    model: "m",
    base: "o",
    kl_support: "all",
    windows: kls.map((kl, i) => ({
      source: i % 2 === 0 ? "en" : "ko",
      index: i >> 1,
      n_tokens: 10 + i,
      nll: 2 + kl,
      nll_base: 2,
      kl,
      same_top: 1 - kl,
    })),
    ...more,
  });
}
const compare = (a: string, b: string) => compareReports(parseReport(a, names[0]), parseReport(b, names[1]), names);

// Windows differ much from one another, and the two models little and always alike: only pairs show it.
const NEAR = [0.1, 0.5, 0.3, 0.9, 0.2, 0.7, 0.4, 0.8];
const FAR = NEAR.map((x, i) => x + 0.01 + 0.001 * (i % 3));

Deno.test("compareReports() sees by pairs which model is nearer, in every figure and whichever comes first", () => {
  const rows = compare(report(NEAR), report(FAR));
  assert.deepEqual(rows.map((r) => [r.source, r.n_windows]), [["en", 4], ["ko", 4], ["all", 8]]);
  for (const row of rows) {
    assert.deepEqual([row.kl.nearer, row.nll.nearer, row.same_top.nearer], ["a", "a", "a"]);
    assert.ok(row.kl.p! < 1e-3 && row.kl.difference.mean > 0.009 && row.kl.difference.mean < 0.013);
  }
  const [, , all] = compare(report(FAR), report(NEAR));
  assert.deepEqual([all.kl.nearer, all.nll.nearer, all.same_top.nearer], ["b", "b", "b"]);
  assert.match(renderDifferences(rows, ["x.gguf", "y.gguf"]), /all +KL .* A is better/);
});

Deno.test("compareReports() claims no difference where there is none to see", () => {
  const noise = NEAR.map((x, i) => x + (i % 4 < 2 ? 0.01 : -0.01));
  const rows = compare(report(NEAR), report(noise));
  assert.ok(rows.every((r) => r.kl.nearer === "neither"));
  const same = compare(report(NEAR), report(NEAR));
  assert.ok(same.every((r) => r.kl.nearer === "neither" && r.kl.p === 1));
  const [single] = compare(report([0.1]), report([0.9]));
  assert.deepEqual([single.kl.p, single.kl.nearer, single.kl.difference.se], [null, "neither", null]);
});

Deno.test("compareReports() refuses reports that have not the same original, windows or divergence", () => {
  const others = [
    report(NEAR, { base: "p" }),
    report(NEAR, { kl_support: "some" }),
    report(NEAR.slice(1)),
    report(NEAR, {
      windows: JSON.parse(report(NEAR)).windows.map((w: object) => ({ ...w, n_tokens: 3 })),
    }),
  ];
  for (const other of others) assert.throws(() => compare(report(NEAR), other), { code: "eval.reports_differ" });
});

Deno.test("parseReport() gives a report or an EvalError, whatever the text", () => {
  assert.throws(() => parseReport(report(NEAR, { windows: undefined }), "r"), { message: /field "windows"/ });
  assert.throws(() => parseReport(report([]), "r"), { code: "eval.report", message: /at least one/ });
  assert.throws(() => parseReport("{", "r"), { code: "eval.report" });
  const key = fc.constantFrom("schema", "model", "base", "kl_support", "windows");
  const field = fc.constantFrom("source", "index", "n_tokens", "nll", "nll_base", "kl", "same_top");
  fc.assert(fc.property(key, field, fc.jsonValue(), fc.boolean(), (key, field, value, deep) => {
    const changed = JSON.parse(report(NEAR));
    if (deep) changed.windows[0][field] = value;
    else changed[key] = value;
    try {
      for (const w of parseReport(JSON.stringify(changed), "r").windows) {
        assert.ok(Number.isFinite(w.kl) && w.n_tokens > 0);
      }
    } catch (e) {
      assert.ok(e instanceof EvalError && e.code === "eval.report", String(e));
    }
  }));
});
