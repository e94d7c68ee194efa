/**
 * Ops over weights that are tables or matrices.
 * @module
 */
import type { OpDesc } from "../program.ts";
import type { Step } from "./step.ts";

/** Sum of products; the same order whatever the caller. */
function dotAt(a: Float32Array, ai: number, b: ArrayLike<number>, bi: number, n: number): number {
  let sum = 0;
  for (let i = 0; i < n; i++) sum += a[ai + i] * b[bi + i];
  return sum;
}

/** f64, so that inner loops see one kind of array. */
function floats(x: ArrayLike<number>): Float64Array {
  return x instanceof Float64Array ? x : Float64Array.from(x);
}

export function getRows(s: Step, op: OpDesc): void {
  const [table, idsOf] = op.src, ids = s.ints(idsOf), [n] = s.shape(table);
  const isInt = s.program.tensors[table].type.name === "i32";
  const y = isInt ? s.intResult(op.dst[0]) : s.result(op.dst[0]);
  if (s.isWeight(table)) {
    const w = s.weight(table);
    ids.forEach((id, i) => {
      if (id >= 0) y.set(w.row(id), i * n);
    });
  } else {
    const x = s.values(table), size = s.size(table);
    ids.forEach((row, i) => y.set(x.subarray(row * size, (row + 1) * size), i * size));
  }
}

export function mulMat(s: Step, op: OpDesc): void {
  const w = s.weight(op.src[0]).all, x = floats(s.values(op.src[1])), y = s.result(op.dst[0]);
  const [n_in, n_out, H] = s.shape(op.src[0]);
  const n_rows = x.length / n_in;
  for (let r = 0; r < n_rows; r++) {
    const at = H > 1 ? (r % H) * n_in * n_out : 0;
    for (let o = 0; o < n_out; o++) y[r * n_out + o] = dotAt(w, at + o * n_in, x, r * n_in, n_in);
  }
}

export function mulMatId(s: Step, op: OpDesc): void {
  const w = s.weight(op.src[0]).all, x = floats(s.values(op.src[1])), ids = s.ints(op.src[2]);
  const y = s.result(op.dst[0]);
  const [n_in, n_out] = s.shape(op.src[0]), [k] = s.shape(op.src[2]);
  const each = s.shape(op.src[1])[1] === k && k > 1;
  ids.forEach((e, i) => {
    const row = each ? i : Math.floor(i / k);
    for (let o = 0; o < n_out; o++) y[i * n_out + o] = dotAt(w, (e * n_out + o) * n_in, x, row * n_in, n_in);
  });
}
