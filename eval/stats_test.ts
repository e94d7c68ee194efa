import assert from "node:assert/strict";
import { estimate, estimateText, expEstimate, meanOf } from "./stats.ts";

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
