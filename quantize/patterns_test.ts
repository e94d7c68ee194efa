import assert from "node:assert/strict";
import { globs } from "./patterns.ts";

Deno.test("globs() fits whole names, * any text and everything else itself", () => {
  const names = globs(["blk.*.ffn_down*", "a+(b)"])!;
  assert.ok(names.test("blk.12.ffn_down_exps.weight"));
  assert.ok(names.test("a+(b)"));
  for (const other of ["xblk.1.ffn_down", "blkX1.ffn_down", "blk.1.ffn_up", "aab", ""]) assert.ok(!names.test(other));
  assert.equal(globs([]), undefined);
  assert.equal(globs(undefined), undefined);
});
