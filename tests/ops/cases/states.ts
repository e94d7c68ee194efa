/** Cases of the ops in core/program/reference/states.ts: sequences that begin, go on and are mixed with others. */
import type { DeltaRule } from "../../../core/program/ops.ts";
import { NMSE, normal, type OpCase, type Size } from "../case.ts";

export function stateCases(size: Size): OpCase[] {
  const big = size === "bench";
  const cases: OpCase[] = [];
  const sequences = big ? [512] : [40, 2, 9];
  const C = big ? 8192 : 37;
  for (const [K, dilation] of [[4, 1], [3, 1], [2, 1], [4, 3]]) {
    for (const silu of [false, true]) {
      for (const bias of [false, true]) {
        cases.push({
          name: `CONV of ${K}, ${dilation} apart${silu ? ", silu" : ""}${bias ? ", bias" : ""}`,
          sequences,
          nmse: NMSE.curve,
          build(b) {
            const x = bias ? b.act("x", [C + 9]).slice(4, C) : b.act("x", [C]);
            const w = b.weight("w", [K, C]);
            b.out("y", b.op.conv("conv", x, w, { dilation, silu, bias: bias ? b.weight("b", [C]) : undefined }));
          },
        });
      }
    }
  }
  const [dk, dv, Hk, Hv] = big ? [128, 128, 16, 32] : [16, 24, 2, 4];
  for (const rule of ["delta", "plain"] as DeltaRule[]) {
    for (const dg of [1, dk]) {
      for (const tiled of [false, true]) {
        cases.push({
          name: `DELTA ${rule}, ${dg} decays a head${tiled ? ", tiled" : ""}`,
          sequences,
          nmse: NMSE.curve,
          build(b) {
            const near1 = normal(dk ** -0.5);
            const x = {
              q: b.act("q", [dk + 8, Hk], near1).slice(8, dk),
              k: b.act("k", [dk, Hk], near1),
              v: b.act("v", [dv, Hv]),
              g: b.act("g", [dg, Hv], (next) => -1.5 * next() ** 2),
              beta: b.act("beta", [1, Hv], (next) => next()),
            };
            b.out("y", b.op.delta("state", x, { rule, tiled }));
          },
        });
      }
    }
  }
  if (!big) {
    cases.push({
      name: "DELTA of heads of 128",
      sequences: [20, 1],
      nmse: NMSE.curve,
      build(b) {
        const x = {
          q: b.act("q", [128, 2], normal(0.1)),
          k: b.act("k", [128, 2], normal(0.09)),
          v: b.act("v", [128, 4]),
          g: b.act("g", [128, 4], (next) => -8 * next() ** 4), // some channels forget at once
          beta: b.act("beta", [1, 4], (next) => next()),
        };
        b.out("y", b.op.delta("state", x));
      },
    });
  }
  if (!big) {
    const wide = 300;
    cases.push({
      name: "SQUARES of matrices, of heads and of experts",
      sequences,
      nmse: NMSE.f32,
      collects: true,
      build(b) {
        const x = b.act("x", [wide + 5]).slice(5, wide), heads = b.act("heads", [32, 3]);
        const experts = b.op.router(b.act("logits", [4]), 2, { score: "softmax", renorm: false }).ids;
        b.out("both", b.op.add(b.op.mul_mat(b.weight("a", [wide, 8]), x), b.op.mul_mat(b.weight("b", [wide, 8]), x)));
        b.out("each", b.op.mul_mat(b.weight("heads_each", [32, 8, 3]), heads));
        b.out("one", b.op.mul_mat(b.weight("heads_one", [32, 8]), heads));
        const up = b.op.mul_mat_id(b.weight("up", [wide, 32, 4]), x, experts);
        b.out("down", b.op.mul_mat_id(b.weight("down", [32, 8, 4]), up, experts));
      },
    });
  }
  cases.push({
    name: "CONV and DELTA with a cache of keys beside their states",
    sequences,
    nmse: NMSE.curve,
    build(b) {
      const x = b.op.conv("conv", b.act("x", [dk * Hv]), b.weight("w", [4, dk * Hv]), { silu: true });
      const k = b.op.norm("l2", x.heads(Hv), undefined, 1e-6);
      const y = b.op.delta("state", {
        q: k,
        k,
        v: b.act("v", [dv, Hv]),
        g: b.act("g", [1, Hv], (next) => -next()),
        beta: b.act("beta", [1, Hv], (next) => next()),
      });
      const seg = b.op.kv("l", k, b.act("v", [dv, Hv]));
      b.out("y", y);
      b.out("z", b.op.attention(k, seg, { scale: 1, n_head_kv: Hv }));
    },
  });
  return cases;
}
