/**
 * Ops that choose: experts, tokens. Numbers are compared as f32, which is what a backend has, so that ties are the same.
 * @module
 */
import { NONE, SCORE_KIND } from "../ops.ts";
import type { OpDesc } from "../program.ts";
import { softmaxInPlace, softplus } from "./rows.ts";
import type { Step } from "./step.ts";

/** Numbers of the `k` largest, best first; of equal ones the lower number first. */
function best(values: Float32Array, k: number): number[] {
  if (k * 8 > values.length) return [...values.keys()].sort((a, b) => values[b] - values[a] || a - b).slice(0, k);
  const top: number[] = [];
  for (let i = 0; i < values.length; i++) {
    if (top.length === k && !(values[i] > values[top[k - 1]])) continue;
    let at = top.length;
    while (at > 0 && values[i] > values[top[at - 1]]) at--;
    top.splice(at, 0, i);
    if (top.length > k) top.pop();
  }
  return top;
}

export function router(s: Step, op: OpDesc): void {
  const [score, n_group, n_group_used, group_top, renorm, sum_add, sum_min, scale] = op.params;
  const logits = s.values(op.src[0]), bias = s.vector(op.src[1]);
  const given = op.src[2] === NONE ? undefined : s.ints(op.src[2]);
  const ids = s.intResult(op.dst[0]), weights = s.result(op.dst[1]);
  const [n] = s.shape(op.src[0]), [k] = s.shape(op.dst[0]), perGroup = n / n_group;
  const scores = new Float64Array(n), ranked = new Float32Array(n);
  for (let r = 0; r < s.rows(op.dst[0]); r++) {
    for (let e = 0; e < n; e++) {
      const x = logits[r * n + e];
      if (score === SCORE_KIND.softmax) scores[e] = x;
      else scores[e] = score === SCORE_KIND.sigmoid ? 1 / (1 + Math.exp(-x)) : Math.sqrt(softplus(x));
    }
    if (score === SCORE_KIND.softmax) softmaxInPlace(scores, 0, n);
    for (let e = 0; e < n; e++) ranked[e] = scores[e] + (bias ? bias[e] : 0);
    if (n_group > 1) {
      const sums = Float32Array.from({ length: n_group }, (_, g) => {
        const group = ranked.subarray(g * perGroup, (g + 1) * perGroup);
        return best(group, Math.min(group_top, perGroup)).reduce((sum, e) => sum + group[e], 0);
      });
      const used = new Set(best(sums, n_group_used));
      for (let e = 0; e < n; e++) if (!used.has(Math.floor(e / perGroup))) ranked[e] = -Infinity;
    }
    const chosen = given ? [...given.subarray(r * k, (r + 1) * k)] : best(ranked, k);
    const sum = chosen.reduce((total, e) => total + scores[e], 0);
    const divisor = renorm ? Math.max(sum + sum_add, sum_min) : 1;
    chosen.forEach((e, i) => {
      ids[r * k + i] = e;
      weights[r * k + i] = scores[e] / divisor * scale;
    });
  }
}

export function topK(s: Step, op: OpDesc): void {
  const x = s.values(op.src[0]), [n] = s.shape(op.src[0]), [k] = s.shape(op.dst[0]);
  const ids = s.intResult(op.dst[0]), values = s.result(op.dst[1]), lse = s.result(op.dst[2]);
  const row = new Float32Array(n);
  for (let r = 0; r < lse.length; r++) {
    for (let i = 0; i < n; i++) row[i] = x[r * n + i];
    const top = best(row, k);
    top.forEach((id, i) => {
      ids[r * k + i] = id;
      values[r * k + i] = x[r * n + id];
    });
    const max = x[r * n + top[0]];
    let sum = 0;
    for (let i = 0; i < n; i++) sum += Math.exp(x[r * n + i] - max);
    lse[r] = max + Math.log(sum);
  }
}

export function targetLogprob(s: Step, op: OpDesc): void {
  const x = s.values(op.src[0]), lse = s.values(op.src[1]), targets = s.ints(op.src[2]);
  const [n] = s.shape(op.src[0]), y = s.result(op.dst[0]);
  for (let r = 0; r < y.length; r++) y[r] = targets[r] < 0 ? 0 : x[r * n + targets[r]] - lse[r];
}
