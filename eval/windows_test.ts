import assert from "node:assert/strict";
import { spread } from "./windows.ts";

Deno.test("spread() takes items evenly, from all parts", () => {
  const items = Array.from({ length: 10 }, (_, i) => i);
  assert.deepEqual(spread(items, 1), [5]);
  assert.deepEqual(spread(items, 2), [2, 7]);
  assert.deepEqual(spread(items, 5), [1, 3, 5, 7, 9]);
  assert.deepEqual(spread(items, 10), items);
  assert.deepEqual(spread(items, 11), items);
  assert.deepEqual(spread(items, undefined), items);
});
