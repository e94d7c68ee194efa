/** Cases of the ops in core/program/reference/choose.ts. Numbers that are compared lie apart by more than rounding, or are equal. */
import { SCORE_KIND, type ScoreKind } from "../../../core/program/ops.ts";
import { NMSE, normal, oneOf, type OpCase, type Size } from "../case.ts";

/** Logits that are equal or 0.37 apart, and whose sums of scores do not meet by symmetry. */
const apart = oneOf(...Array.from({ length: 17 }, (_, i) => 0.11 + 0.37 * (i - 8)));
const biases = oneOf(0, 0.0313, 0.0711, -0.0537, 0.1171);

export function chooseCases(size: Size): OpCase[] {
  const big = size === "bench";
  const cases: OpCase[] = [];
  const sequences = big ? [512] : [19, 1];
  const n = big ? 256 : 24, k = big ? 8 : 5;
  for (const score of Object.keys(SCORE_KIND) as ScoreKind[]) {
    const router = (what: string, build: OpCase["build"]) =>
      cases.push({ name: `ROUTER ${score} ${what}`, sequences, nmse: NMSE.curve, build });
    for (const renorm of [false, true]) {
      router(`${renorm ? "renormalized" : "as they are"}`, (b) => {
        const { ids, weights } = b.op.router(b.act("x", [n], apart), k, { score, renorm, scale: 2.5 });
        b.out("ids", ids);
        b.out("weights", weights);
      });
    }
    router("with a bias that only chooses", (b) => {
      const { ids, weights } = b.op.router(b.act("x", [n], apart), k, {
        score,
        renorm: true,
        bias: b.weight("bias", [n], { fill: biases }),
        sum_add: 1e-20,
      });
      b.out("ids", ids);
      b.out("weights", weights);
    });
    for (const group_top of [1, 2]) {
      router(`of groups ranked by their best ${group_top}`, (b) => {
        const { ids, weights } = b.op.router(b.act("x", [n], apart), k, {
          score,
          renorm: true,
          groups: 4,
          groups_used: 2,
          group_top,
          sum_min: 0.5,
        });
        b.out("ids", ids);
        b.out("weights", weights);
      });
    }
    router("with experts that are given", (b) => {
      const given = b.ints("given", [k], 0, n - 1);
      const { ids, weights } = b.op.router(b.act("x", [n], normal(3)), k, { score, renorm: true, given });
      b.out("ids", ids);
      b.out("weights", weights);
    });
  }
  cases.push({
    name: "ROUTER of logits that are all equal",
    sequences,
    nmse: NMSE.curve,
    build(b) {
      const { ids, weights } = b.op.router(b.act("x", [n], oneOf(0.25)), k, { score: "softmax", renorm: true });
      b.out("ids", ids);
      b.out("weights", weights);
    },
  });
  for (const [vocab, top] of big ? [[151936, 64]] : [[1000, 40], [33, 33], [5000, 1]]) {
    cases.push({
      name: `TOP_K ${top} of ${vocab}`,
      sequences: big ? [64] : [7, 2],
      nmse: NMSE.curve,
      build(b) {
        const x = b.op.out_rows(b.act("x", [vocab], normal(3)));
        const { ids, values, lse } = b.op.top_k(x, top);
        b.out("ids", ids);
        b.out("values", values);
        b.out("lse", lse);
        b.out("target", b.op.target_logprob(x, lse));
      },
    });
  }
  cases.push({
    name: "TOP_K of few different numbers",
    sequences: [7, 2],
    nmse: NMSE.curve,
    build(b) {
      const { ids, values } = b.op.top_k(b.op.out_rows(b.act("x", [700], oneOf(1.5, -2, 0.25))), 50);
      b.out("ids", ids);
      b.out("values", values);
    },
  });
  return cases;
}
