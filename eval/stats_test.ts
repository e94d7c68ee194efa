import assert from "node:assert/strict";
import { estimate, estimateText, expEstimate, meanOf, quantileEstimate, studentP } from "./stats.ts";

Deno.test("estimate() gives the mean and s / sqrt(n)", () => {
  const e = estimate([1, 2, 3, 4]);
  assert.equal(e.mean, 2.5);
  assert.ok(Math.abs(e.se! - Math.sqrt(5 / 3 / 4)) < 1e-15);
});

Deno.test("estimate() weighs windows by their tokens, and its error is that of a ratio", () => {
  const e = estimate([1, 3], [30, 10]);
  assert.equal(e.mean, 1.5);
  // Deviations of the sums: 30 * -0.5 and 10 * 1.5.
  assert.ok(Math.abs(e.se! - Math.sqrt((15 ** 2 + 15 ** 2) * 2) / 40) < 1e-15);
  assert.ok(Math.abs(estimate([1, 2, 4], [7, 7, 7]).se! - estimate([1, 2, 4]).se!) < 1e-15);
});

Deno.test("a single window has no standard error", () => {
  assert.deepEqual(estimate([7]), { mean: 7, se: null });
  assert.deepEqual(expEstimate(estimate([0])), { mean: 1, se: null });
  assert.equal(estimateText(estimate([7]), 2), "7.00 ± -");
  assert.equal(estimateText({ mean: 0.5, se: 0.01 }, 1, 100), "50.0 ± 1.0");
});

Deno.test("expEstimate() scales the error by the mean", () => {
  const e = expEstimate({ mean: 1, se: 0.1 });
  assert.equal(e.mean, Math.E);
  assert.ok(Math.abs(e.se! - Math.E * 0.1) < 1e-15);
  assert.equal(meanOf(new Float32Array([1, 3])), 2);
});

Deno.test("quantileEstimate() gives a quantile of all values, and an error that is of the windows", () => {
  const values = Array.from({ length: 100 }, (_, i) => i + 1);
  const windows = [values.filter((x) => x % 2 === 1), values.filter((x) => x % 2 === 0)];
  assert.deepEqual([0, 0.5, 0.9, 0.991, 1].map((p) => quantileEstimate(windows, p).mean), [1, 50, 90, 100, 100]);
  assert.deepEqual(quantileEstimate([values], 0.5), { mean: 50, se: null });
  assert.ok(quantileEstimate(windows, 0.5).se! <= 1, "windows that are alike know the half well");
  const unlike = quantileEstimate([values.slice(0, 50), values.slice(50)], 0.5).se!;
  assert.ok(unlike > 20, `windows that differ do not: ${unlike}`);
  // The error of the share leads beyond both ends.
  const ends = [0.01, 0.99].map((p) => quantileEstimate([values.slice(0, 50), values.slice(50)], p).se!);
  assert.ok(ends.every((se) => se >= 0 && se <= 50), String(ends));
});

Deno.test("studentP() is the two-sided probability of Student's t", () => {
  const cases = [
    [2.228139, 10, 0.05],
    [12.70620, 1, 0.05],
    [1, 1, 0.5],
    [1.959964, 1e7, 0.05],
    [3.169273, 10, 0.01],
    [
      0.5,
      30,
      0.620723,
    ],
    [0, 5, 1],
    [-2.228139, 10, 0.05],
    [Infinity, 5, 0],
  ];
  for (const [t, df, p] of cases) {
    assert.ok(Math.abs(studentP(t, df) - p) < 2e-6, `${t} ${df}: ${studentP(t, df)}, ${p}`);
  }
  assert.ok(Number.isNaN(studentP(NaN, 5)));
});
