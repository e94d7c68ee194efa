/** Cases of the ops in core/program/reference/rows.ts. */
import {
  GATE_KIND,
  type GateKind,
  NORM_KIND,
  type NormKind,
  UNARY_KIND,
  type UnaryKind,
} from "../../../core/program/ops.ts";
import { NMSE, normal, type OpCase, type Size } from "../case.ts";

/** `a`, `b` of the kinds that take them. */
const UNARY_PARAMS: Partial<Record<UnaryKind, [a: number, b: number]>> = {
  scale: [1.7, -0.3],
  softcap: [1.5, 0],
  clamp: [-0.4, 0.9],
  signed_sqrt: [0.05, 0],
};
const GATE_PARAMS: Partial<Record<GateKind, [a: number, b: number]>> = {
  silu_clamp: [0.7, 0],
  situ: [1.3, 0.8],
  oai: [0.9, 1.702],
};

function kinds<K extends string>(table: Readonly<Record<K, number>>): K[] {
  return Object.keys(table) as K[];
}

export function rowCases(size: Size): OpCase[] {
  const big = size === "bench";
  const sequences = big ? [512] : [9, 1, 4];
  const n = big ? 4096 : 100, H = big ? 32 : 3;
  const cases: OpCase[] = [];

  for (const kind of kinds<NormKind>(NORM_KIND)) {
    cases.push({
      name: `NORM ${kind} [${n}]`,
      sequences,
      nmse: NMSE.f32,
      build(b) {
        b.out("y", b.op.norm(kind, b.act("x", [n], normal(1, 0.5)), b.weight("w", [n]), 1e-5));
      },
    }, {
      name: `NORM ${kind} per head, no weight, source a slice`,
      sequences,
      nmse: NMSE.f32,
      build(b) {
        b.out("y", b.op.norm(kind, b.act("x", [40, H]).slice(7, 33), undefined, 1e-6));
      },
    }, {
      name: `NORM ${kind} with weight and bias per head`,
      sequences,
      nmse: NMSE.f32,
      build(b) {
        b.out("y", b.op.norm(kind, b.act("x", [128, H]), b.weight("w", [128, H]), 1e-6, b.weight("b", [128, H])));
      },
    }, {
      name: `NORM ${kind} with a shared weight and bias per head, heads a slice`,
      sequences,
      nmse: NMSE.f32,
      build(b) {
        const x = b.act("x", [64, H + 2]).slice(1, H, 1);
        b.out("y", b.op.norm(kind, x, b.weight("w", [64]), 1e-6, b.weight("b", [64])));
      },
    });
  }
  cases.push({
    name: "NORM rms of tiny numbers, where eps counts",
    sequences,
    nmse: NMSE.f32,
    build(b) {
      b.out("y", b.op.rms_norm(b.act("x", [n], normal(1e-3)), b.weight("w", [n]), 1e-5));
    },
  });

  for (const name of ["add", "mul"] as const) {
    const pair = (what: string, build: OpCase["build"]) =>
      cases.push({ name: `${name.toUpperCase()} ${what}`, sequences, nmse: NMSE.f32, build });
    pair("of two activations", (b) => b.out("y", b.op[name](b.act("a", [n]), b.act("b", [n]))));
    pair("with itself", (b) => b.out("y", b.op[name](b.act("a", [n]), b.act("a", [n]))));
    pair("with a weight for every row", (b) => b.out("y", b.op[name](b.act("a", [n]), b.weight("w", [n]))));
    pair("with a weight of one number", (b) => b.out("y", b.op[name](b.act("a", [n]), b.weight("w", [1]))));
    pair("with a weight for every head", (b) => b.out("y", b.op[name](b.act("a", [33, H]), b.weight("w", [33]))));
    pair("with a number a head", (b) => b.out("y", b.op[name](b.act("a", [33, H]), b.weight("w", [1, H]))));
    pair(
      "with a weight of the row's shape",
      (b) => b.out("y", b.op[name](b.act("a", [33, H]), b.weight("w", [33, H]))),
    );
    pair("with a number a row", (b) => b.out("y", b.op[name](b.act("a", [33, H]), b.act("b", [1, 1]))));
    pair("with a number a head and row", (b) => b.out("y", b.op[name](b.act("a", [33, H]), b.act("b", [1, H]))));
    pair("of a column and a line", (b) => b.out("y", b.op[name](b.act("a", [1, H]), b.act("b", [17, 1]))));
    pair("of slices of one value", (b) => {
      const x = b.act("x", [3 * 20 + 4]);
      b.out("y", b.op[name](x.slice(3, 20), x.slice(24, 20)));
    });
    pair("of slices of heads", (b) => {
      const x = b.act("x", [24, 2 * H + 1]).slice(4, 16);
      b.out("y", b.op[name](x.slice(0, H, 1), x.slice(H + 1, H, 1)));
    });
    pair("with an input of the step", (b) => {
      const given = b.op.derived({
        name: "given",
        type: "f32",
        limit: 0,
        row: (out, at, position) => {
          for (let i = 0; i < 5; i++) out[at + i] = Math.fround(Math.sin(position + i));
        },
      }, [5]);
      b.out("y", b.op[name](b.act("a", [5]), given));
    });
  }

  for (const kind of kinds<UnaryKind>(UNARY_KIND)) {
    const [p, q] = UNARY_PARAMS[kind] ?? [0, 0];
    cases.push({
      name: `UNARY ${kind}`,
      sequences,
      nmse: NMSE.curve,
      build(b) {
        // Wide enough for both ends of every curve.
        b.out("y", b.op.unary(kind, b.act("x", [n], normal(kind === "exp" ? 2 : 6)), p, q));
      },
    });
  }
  cases.push({
    name: "UNARY silu of a slice",
    sequences,
    nmse: NMSE.curve,
    build(b) {
      b.out("y", b.op.unary("silu", b.act("x", [50, H]).slice(9, 31)));
    },
  });

  for (const kind of kinds<GateKind>(GATE_KIND)) {
    const [p, q] = GATE_PARAMS[kind] ?? [0, 0];
    cases.push({
      name: `GATE ${kind}`,
      sequences,
      nmse: NMSE.curve,
      build(b) {
        b.out("z", b.op.gate(kind, b.act("x", [n], normal(3)), b.act("y", [n], normal(3)), p, q));
      },
    });
  }
  cases.push({
    name: "GATE situ without a bound on y",
    sequences,
    nmse: NMSE.curve,
    build(b) {
      b.out("z", b.op.gate("situ", b.act("x", [n], normal(3)), b.act("y", [n], normal(3)), 1.1, 0));
    },
  }, {
    name: "GATE silu of the halves of one value",
    sequences,
    nmse: NMSE.curve,
    build(b) {
      const x = b.act("x", [2 * n, 2]);
      b.out("z", b.op.gate("silu", x.slice(0, n), x.slice(n, n)));
    },
  });

  const d = big ? 128 : 16;
  const freqs = (half: number) => ({ fill: (_: unknown, i: number) => 10000 ** (-i / half) });
  for (const kind of ["pairs", "halves"] as const) {
    const rope = (what: string, build: OpCase["build"]) =>
      cases.push({ name: `ROPE ${kind} ${what}`, sequences: big ? sequences : [70, 1, 4], nmse: NMSE.curve, build });
    rope("of whole heads", (b) => {
      b.out("y", b.op.rope(b.act("x", [d, H]), b.weight("f", [d / 2], freqs(d / 2)), { kind, mscale: 1.3 }));
    });
    rope("of the first numbers, head a slice", (b) => {
      const x = b.act("x", [d + 6, H]).slice(6, d);
      b.out("y", b.op.rope(x, b.weight("f", [d / 4], freqs(d / 4)), { kind }));
    });
    rope("of the last numbers, backwards", (b) => {
      const f = b.weight("f", [d / 4], freqs(d / 4));
      b.out("y", b.op.rope(b.act("x", [d, H]), f, { kind, offset: d / 2, inverse: true }));
    });
    for (const shift of [-3, 5]) {
      rope(`shifted by ${shift}`, (b) => {
        b.out("y", b.op.rope(b.act("x", [d, 1]), b.weight("f", [d / 2], freqs(d / 2)), { kind, shift }));
      });
    }
  }

  cases.push({
    name: "MIX with weights of the row",
    sequences,
    nmse: NMSE.f32,
    build(b) {
      b.out("y", b.op.mix(b.act("x", [n, 4]), b.act("w", [4, 3])));
    },
  }, {
    name: "MIX to one, as experts are summed",
    sequences,
    nmse: NMSE.f32,
    build(b) {
      b.out("y", b.op.expert_sum(b.act("x", [n, 6]), b.act("w", [6])));
    },
  }, {
    name: "MIX with a weight",
    sequences,
    nmse: NMSE.f32,
    build(b) {
      b.out("y", b.op.mix(b.act("x", [n, 4]), b.weight("w", [4, 2])));
    },
  }, {
    name: "MIX of slices",
    sequences,
    nmse: NMSE.f32,
    build(b) {
      b.out("y", b.op.mix(b.act("x", [30, 5]).slice(3, 21).slice(1, 4, 1), b.act("w", [6, 3]).slice(2, 4)));
    },
  }, {
    name: "CONCAT along the first axis",
    sequences,
    nmse: 0,
    build(b) {
      b.out("y", b.op.concat([b.act("a", [7]), b.act("b", [n]), b.act("c", [1])]));
    },
  }, {
    name: "CONCAT of heads along the first axis, sources slices",
    sequences,
    nmse: 0,
    build(b) {
      b.out("y", b.op.concat([b.act("a", [30, H]).slice(10, 16), b.act("b", [8, H])]));
    },
  }, {
    name: "CONCAT along the second axis",
    sequences,
    nmse: 0,
    build(b) {
      b.out("y", b.op.concat([b.act("a", [12, 1]), b.act("b", [12, H]), b.act("c", [20, 2]).slice(8, 12)], 1));
    },
  }, {
    name: "CONCAT of i32",
    sequences,
    nmse: 0,
    build(b) {
      b.out("y", b.op.concat([b.ints("a", [5], -1, 90), b.ints("b", [2], 0, 9)]));
    },
  }, {
    name: "SOFTMAX",
    sequences,
    nmse: NMSE.curve,
    build(b) {
      b.out("y", b.op.softmax(b.act("x", [n], normal(4))));
    },
  }, {
    name: "SOFTMAX of heads, source a slice",
    sequences,
    nmse: NMSE.curve,
    build(b) {
      b.out("y", b.op.softmax(b.act("x", [12, H], normal(20)).slice(5, 7)));
    },
  });
  for (const hyper of [2, 4]) {
    cases.push({
      name: `SINKHORN of ${hyper} streams`,
      sequences,
      nmse: NMSE.curve,
      build(b) {
        const width = hyper * hyper + 2 * hyper;
        const { pre, post, comb } = b.op.sinkhorn(
          b.act("m", [width], normal(2)),
          b.weight("scale", [3], { fill: normal(0.2, 0.7) }),
          b.weight("base", [width]),
          { n: hyper, iterations: hyper === 4 ? 20 : 1, eps: 1e-6 },
        );
        b.out("pre", pre);
        b.out("post", post);
        b.out("comb", comb);
      },
    });
  }
  cases.push({
    name: "DOT of two activations",
    sequences,
    nmse: NMSE.f32,
    build(b) {
      b.out("y", b.op.dot(b.act("a", [n, 2], normal(1, 0.3)), b.act("b", [n, 2], normal(1, 0.3))));
    },
  }, {
    name: "DOT with a weight",
    sequences,
    nmse: NMSE.f32,
    build(b) {
      b.out("y", b.op.dot(b.act("a", [33, H], normal(1, 0.3)), b.weight("w", [33], { fill: normal(1, 0.3) })));
    },
  }, {
    name: "DOT with a weight a head, source a slice",
    sequences,
    nmse: NMSE.f32,
    build(b) {
      const a = b.act("a", [40, H], normal(1, 0.3)).slice(5, 33);
      b.out("y", b.op.dot(a, b.weight("w", [33, H], { fill: normal(1, 0.3) })));
    },
  }, {
    name: "COPY of a slice of a slice",
    sequences,
    nmse: 0,
    build(b) {
      b.out("y", b.op.copy(b.act("x", [20, H + 3]).slice(2, 15).slice(1, H + 1, 1).slice(4, 9)));
    },
  }, {
    name: "COPY of i32",
    sequences,
    nmse: 0,
    build(b) {
      b.out("y", b.op.copy(b.ints("x", [9], -5, 5).slice(2, 5)));
    },
  });
  return cases;
}
