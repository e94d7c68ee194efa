import assert from "node:assert/strict";
import { editDistance, nearest } from "./nearest.ts";

Deno.test("editDistance() counts insertions, deletions, replacements and swaps", () => {
  assert.deepEqual(
    [["", ""], ["abc", "abc"], ["abc", "acb"], ["abc", "ab"], ["", "xy"], ["kitten", "sitting"]].map(([a, b]) =>
      editDistance(a, b)
    ),
    [0, 0, 1, 1, 2, 3],
  );
});

Deno.test("nearest() finds a mistyped name, a longer one, and nothing far away", () => {
  const known = ["--ctx-size", "--temp", "--top-k", "--reasoning-format"];
  assert.equal(nearest("--ctx-szie", known), "--ctx-size");
  assert.equal(nearest("--ctx_size", known), "--ctx-size");
  assert.equal(nearest("--tmep", known), "--temp");
  assert.equal(nearest("--reasoning", known), "--reasoning-format");
  assert.equal(nearest("--banana", known), undefined);
  assert.equal(nearest("-x", known), undefined);
});
