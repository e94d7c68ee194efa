import assert from "node:assert/strict";
import { formatAmount, formatDuration, Progress } from "./progress.ts";

Deno.test("the rate of work that goes on counts what this run has done", () => {
  const progress = new Progress(1000, 0);
  progress.update(600, 500);
  assert.equal(progress.ownWork, 100);
  assert.equal(progress.rate(2000), 50);
  assert.equal(progress.remaining(2000), 8);
  progress.update(700);
  assert.equal(progress.rate(2000), 100);
});

Deno.test("amounts and durations keep their digits small", () => {
  assert.deepEqual([0, 999, 1000, 12_345_678, 5e12].map((n) => formatAmount(n, "B")), [
    "0 B",
    "999 B",
    "1.0 kB",
    "12.3 MB",
    "5.0 TB",
  ]);
  assert.deepEqual([NaN, Infinity, -1, 0, 59.4, 60, 3599, 7260].map(formatDuration), [
    "-",
    "-",
    "-",
    "0s",
    "59s",
    "1m00s",
    "59m59s",
    "2h01m",
  ]);
});
