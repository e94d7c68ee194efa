import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { type Choice, smallest, solveBudget } from "./solve.ts";

/** All choices, one after the other. */
function bruteForce(tensors: readonly (readonly Choice[])[], budget: number): number | undefined {
  let best: number | undefined;
  const visit = (i: number, cost: number, loss: number) => {
    if (cost > budget) return;
    if (i === tensors.length) return void (best = Math.min(best ?? Infinity, loss));
    for (const c of tensors[i]) visit(i + 1, cost + c.cost, loss + c.loss);
  };
  visit(0, 0, 0);
  return best;
}

const choice = fc.record({ cost: fc.integer({ min: 1, max: 40 }), loss: fc.integer({ min: 0, max: 1000 }) });
const groups = fc.array(fc.array(choice, { minLength: 1, maxLength: 5 }), { minLength: 1, maxLength: 6 });

Deno.test("solveBudget() is as good as trying everything", () => {
  fc.assert(
    fc.property(groups, fc.integer({ min: 1, max: 200 }), (tensors, budget) => {
      const found = solveBudget(tensors, budget);
      const best = bruteForce(tensors, budget);
      assert.equal(found?.loss, best);
      if (found === undefined) return void assert.ok(smallest(tensors) > budget);
      assert.ok(found.isBest && found.cost <= budget);
      const picked = found.picks.map((p, i) => tensors[i][p]);
      assert.equal(found.loss, picked.reduce((n, c) => n + c.loss, 0));
      assert.equal(found.cost, picked.reduce((n, c) => n + c.cost, 0));
    }),
    { numRuns: 2000 },
  );
});

Deno.test("solveBudget() takes the best of everything where there is room, and says so when it had to give up some", () => {
  const tensors = Array.from({ length: 40 }, (_, i) => [
    { cost: 10 + i % 7, loss: 50 + (i * 37) % 11 },
    { cost: 17 + i % 5, loss: 20 + (i * 53) % 13 },
    { cost: 29 + i % 3, loss: 5 + (i * 29) % 4 },
  ]);
  const rich = solveBudget(tensors, 10_000)!;
  assert.deepEqual(rich.picks, tensors.map(() => 2));
  const best = solveBudget(tensors, 800)!, some = solveBudget(tensors, 800, 3)!;
  assert.deepEqual([best.isBest, some.isBest], [true, false]);
  assert.ok(some.cost <= 800 && some.loss >= best.loss);
  assert.ok(some.loss <= 1.1 * best.loss, `${some.loss} against ${best.loss}`);
});

Deno.test("solveBudget() finds what the steps of the hulls miss, also where that is smaller", () => {
  const of = (...pairs: [number, number][]) => pairs.map(([cost, loss]) => ({ cost, loss }));
  const tensors = [
    of([40, 562], [19, 947], [14, 398], [3, 975], [19, 488]),
    of([18, 71]),
    of([38, 318], [25, 639], [8, 761], [34, 707], [27, 941]),
    of([34, 806], [15, 41], [21, 922], [35, 37]),
    of([32, 340], [34, 451], [39, 795]),
    of([13, 447], [8, 303], [32, 236], [10, 334], [34, 370]),
  ];
  const best = solveBudget(tensors, 123)!, hulls = solveBudget(tensors, 123, 0)!;
  assert.deepEqual([best.loss, best.cost, best.isBest], [1792, 112, true]);
  assert.deepEqual([hulls.loss, hulls.cost, hulls.isBest], [1847, 119, false]);
  assert.equal(bruteForce(tensors, 123), 1792);
});

Deno.test("solveBudget() takes what the convex hull leaves out", () => {
  // The middle choice lies above the line between the others, and is the only one that fits.
  const tensors = [[{ cost: 10, loss: 100 }, { cost: 15, loss: 90 }, { cost: 20, loss: 0 }]];
  assert.deepEqual(solveBudget(tensors, 19)!.picks, [1]);
  assert.deepEqual(solveBudget(tensors, 20)!.picks, [2]);
  assert.equal(solveBudget(tensors, 9), undefined);
});
