/** Rows of n-gram tables: exact to 63 bits, from the token's own id back. */
import assert from "node:assert/strict";
import { Ops } from "../program/program.ts";
import { ngramRows, type NgramSpec } from "./ngram.ts";

/** The rows of the last token of `ids`. */
function rowsOf(s: Partial<NgramSpec>, ids: number[]): number[] {
  const spec = { table: "t.weight", n_rows: 1000, width: 4, n_head: 1, multipliers: [], primes: [], offsets: [], ...s };
  const op = new Ops({ n_tok: 1, n_out: 1, n_seq: 1, n_page: 1 }, { find: () => undefined });
  ngramRows(op, "rows", spec, (token) => spec.multipliers.map((_, back) => BigInt(token(back))));
  const [input] = op.finish().derived, out = new Int32Array(input.n + 1).fill(-7);
  input.row(out, 1, ids.length - 1, (back) => ids[ids.length - 1 - back] ?? -1, () => 0);
  assert.equal(out[0], -7, "the number before the offset is left alone");
  assert.equal(input.limit, 1000);
  return [...out.subarray(1)];
}

Deno.test("ngramRows() hashes two tokens, then three, each head by its prime and offset", () => {
  const s = { n_head: 2, multipliers: [3n, 5n, 9n], primes: [7n, 11n, 13n, 17n], offsets: [0n, 7n, 18n, 31n] };
  // 4, 6 before it, 2 before that: 12 ^ 30 = 18; 18 ^ 18 = 0.
  assert.deepEqual(rowsOf(s, [2, 6, 4]), [18 % 7, 18 % 11 + 7, 18, 31]);
  // With 5 in place of 2: 18 ^ 45 = 63.
  assert.deepEqual(rowsOf(s, [5, 6, 4]), [18 % 7, 18 % 11 + 7, 63 % 13 + 18, 63 % 17 + 31]);
});

Deno.test("ngramRows() is exact where products are near 2^63", () => {
  // 95 * 90071992547409931 ^ 94 * 60071992547409937 = 4079514629131600427, which no double holds.
  const s = { multipliers: [90071992547409931n, 60071992547409937n], primes: [997n], offsets: [0n] };
  assert.deepEqual(rowsOf(s, [94, 95]), [388]);
});
