/** The reference backend, the oracle of the others: ops whose results are known by hand, and rows of all cases by bits. */
import assert from "node:assert/strict";
import {
  DELTA_RULE,
  GATE_KIND,
  NORM_KIND,
  OPS,
  POOL_KIND,
  ROPE_KIND,
  SCORE_KIND,
  UNARY_KIND,
} from "../../core/program/ops.ts";
import { openReferenceBackend } from "../../core/program/reference.ts";
import type { CaseBuilder, Fill, OpCase } from "./case.ts";
import { opCases } from "./cases/mod.ts";
import { alone, CaseData, CaseRun, checkCase, type Outputs } from "./run.ts";

const backend = openReferenceBackend();

/** Outputs of rows of one sequence. */
async function outputs(n_rows: number, build: (b: CaseBuilder) => void): Promise<Outputs> {
  const c: OpCase = { name: "by hand", sequences: [n_rows], nmse: 0, build };
  using run = await CaseRun.open(new CaseData(c, 1, backend), backend, 0, n_rows, 1);
  return await run.run(alone(c, n_rows));
}

const given = (...values: number[]): Fill => (_, i) => values[i];

/** Equal up to f32. */
function near(got: ArrayLike<number>, want: readonly number[]): void {
  assert.equal(got.length, want.length);
  want.forEach((w, i) => assert.ok(Math.abs(got[i] - w) <= 1e-6 * (1 + Math.abs(w)), `${i}: ${got[i]}, expected ${w}`));
}

Deno.test("reference: NORM of 3 and 4", async () => {
  const { rms, layer, l2 } = await outputs(1, (b) => {
    const x = b.act("x", [2], given(3, 4));
    b.out("rms", b.op.norm("rms", x, b.weight("w", [2], { fill: given(1, 10) }), 0));
    b.out("layer", b.op.norm("layer", x, undefined, 0));
    b.out("l2", b.op.norm("l2", x, undefined, 0));
  });
  near(rms, [3 / Math.sqrt(12.5), 40 / Math.sqrt(12.5)]);
  near(layer, [-1, 1]);
  near(l2, [0.6, 0.8]);
});

Deno.test("reference: gelu_erf and softplus at known places", async () => {
  const { gelu, soft } = await outputs(1, (b) => {
    const x = b.act("x", [4], given(1, -2, 7, 25));
    b.out("gelu", b.op.unary("gelu_erf", x));
    b.out("soft", b.op.unary("softplus", x));
  });
  near(gelu, [0.8413447460685429, -0.0455002638963584, 7, 25]);
  near(soft, [1.3132616875182228, 0.1269280110429725, 7.000911466453774, 25]);
});

Deno.test("reference: ROPE turns by the position, and inverse turns back", async () => {
  const { pairs, halves, back } = await outputs(3, (b) => {
    const f = b.weight("f", [2], { fill: given(1, 0.5) });
    const x = b.act("x", [4, 1], given(1, 0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 4));
    b.out("pairs", b.op.rope(x, f, { kind: "pairs" }));
    b.out("halves", b.op.rope(x, f, { kind: "halves" }));
    b.out("back", b.op.rope(b.op.rope(x, f, { kind: "halves" }), f, { kind: "halves", inverse: true }));
  });
  near(pairs.slice(0, 4), [1, 0, 1, 0]);
  near(pairs.slice(4, 8), [Math.cos(1), Math.sin(1), Math.cos(0.5), Math.sin(0.5)]);
  near(halves.slice(4, 8), [Math.cos(1) - Math.sin(1), 0, Math.sin(1) + Math.cos(1), 0]);
  near(back.slice(8), [1, 2, 3, 4]);
});

Deno.test("reference: ATTENTION over equal keys is the mean of what a row sees", async () => {
  const { all, window, sink } = await outputs(4, (b) => {
    const zero = b.act("k", [2, 1], () => 0), v = b.act("v", [1, 1], (_, i) => i + 1);
    const q = b.act("q", [2, 1]);
    b.out("all", b.op.attention(q, b.op.kv("a", zero, v), { scale: 1, n_head_kv: 1 }));
    b.out("window", b.op.attention(q, b.op.kv("b", zero, v, { window: 2 }), { scale: 1, n_head_kv: 1 }));
    const sinks = b.weight("sinks", [1], { fill: () => 0 });
    b.out("sink", b.op.attention(q, b.op.kv("c", zero, v), { scale: 1, n_head_kv: 1, sinks }));
  });
  near(all, [1, 1.5, 2, 2.5]);
  near(window, [1, 1.5, 2.5, 3.5]);
  near(sink, [1 / 2, 3 / 3, 6 / 4, 10 / 5]);
});

Deno.test("reference: INDEX lists the best, ascending, equal scores by the lower number", async () => {
  const { rows, blocks, pinned } = await outputs(6, (b) => {
    const k = b.op.stream("k", 1, { role: "f32" });
    b.op.write(b.act("k rows", [1], given(5, 1, 5, 7, 5, 0)), k);
    const q = b.act("q", [1, 1], () => 1);
    b.out("rows", b.op.index(q, k, 2, { scale: 1 }));
    b.out("blocks", b.op.index(q, k, 2, { scale: 1, unit: 2 }));
    b.out("pinned", b.op.index(q, k, 2, { scale: 1, unit: 2, pin: true }));
  });
  assert.deepEqual([...rows], [0, -1, 0, 1, 0, 2, 0, 3, 0, 3, 0, 3]);
  assert.deepEqual([...blocks], [0, -1, 0, -1, 0, 1, 0, 1, 0, 1, 0, 1]);
  assert.deepEqual([...pinned], [0, -1, 0, -1, 0, 1, 0, 1, 1, 2, 1, 2]);
});

Deno.test("reference: POOL writes where a group ends, with the first halves of the group before", async () => {
  const { mean, overlap } = await outputs(4, (b) => {
    const k = b.op.stream("k", 2, { role: "f32" }), z = b.op.stream("z", 2, { role: "f32" });
    b.op.write(b.act("k rows", [2], given(1, 10, 3, 30, 5, 50, 7, 70)), k);
    b.op.write(b.act("z rows", [2], () => 0), z);
    b.out("mean", b.op.pool("mean", k, 2));
    b.out("overlap", b.op.pool("softmax", k, 2, { z, overlap: true }));
  });
  near(mean, [0, 0, 2, 20, 0, 0, 6, 60]);
  near(overlap, [0, (10 + 30) / 2, 0, (1 + 3 + 50 + 70) / 4]);
});

Deno.test("reference: CONV is a delay when only its first tap is 1", async () => {
  const { y, far } = await outputs(5, (b) => {
    const x = b.act("x", [1], (_, i) => i + 1), w = b.weight("w", [3, 1], { fill: given(1, 0, 0) });
    b.out("y", b.op.conv("a", x, w));
    b.out("far", b.op.conv("b", x, w, { dilation: 2 }));
  });
  near(y, [0, 0, 1, 2, 3]);
  near(far, [0, 0, 0, 0, 1]);
});

Deno.test("reference: DELTA reads back what it wrote, PLAIN adds up", async () => {
  const { delta, plain, decayed } = await outputs(3, (b) => {
    const k = b.act("k", [2, 1], given(1, 0, 0, 1, 1, 0)), v = b.act("v", [1, 1], given(3, 5, 7));
    const one = b.act("one", [1, 1], () => 1), none = b.act("none", [1, 1], () => 0);
    const half = b.act("half", [1, 1], () => Math.log(0.5));
    b.out("delta", b.op.delta("a", { q: k, k, v, g: none, beta: one }));
    b.out("plain", b.op.delta("b", { q: k, k, v, g: none, beta: one }, { rule: "plain" }));
    b.out("decayed", b.op.delta("c", { q: k, k, v, g: half, beta: one }, { rule: "plain" }));
  });
  near(delta, [3, 5, 7]);
  near(plain, [3, 5, 10]);
  near(decayed, [3, 5, 7 + 3 / 4]);
});

Deno.test("reference: SINKHORN's rows and columns add up to 1", async () => {
  const { comb } = await outputs(1, (b) => {
    const one = b.weight("scale", [3], { fill: () => 1 }), base = b.weight("base", [24], { fill: () => 0 });
    b.out("comb", b.op.sinkhorn(b.act("m", [24]), one, base, { n: 4, iterations: 50, eps: 1e-9 }).comb);
  });
  for (let i = 0; i < 4; i++) {
    near([comb[4 * i] + comb[4 * i + 1] + comb[4 * i + 2] + comb[4 * i + 3]], [1]);
    near([comb[i] + comb[4 + i] + comb[8 + i] + comb[12 + i]], [1]);
  }
});

Deno.test("reference: ROUTER takes experts of the best groups only", async () => {
  // Groups (0.9, 0.1), (0.6, 0.5), (0.2, 0.2): by the best expert the first, by the sum of two the second.
  const logit = (p: number) => Math.log(p / (1 - p));
  const choose = async (group_top: number) => {
    const { ids, weights } = await outputs(1, (b) => {
      const x = b.act("x", [6], given(...[0.9, 0.1, 0.6, 0.5, 0.2, 0.2].map(logit)));
      const r = b.op.router(x, 2, { score: "sigmoid", renorm: true, groups: 3, groups_used: 1, group_top, scale: 2 });
      b.out("ids", r.ids);
      b.out("weights", r.weights);
    });
    near(weights, group_top === 1 ? [1.8, 0.2] : [2 * 0.6 / 1.1, 2 * 0.5 / 1.1]);
    return [...ids];
  };
  assert.deepEqual(await choose(1), [0, 1]);
  assert.deepEqual(await choose(2), [2, 3]);
});

Deno.test("the cases have every op, and every kind of an op", () => {
  const seen = new Set<string>();
  for (const c of opCases("test")) {
    const builder = new CaseData(c, 1, backend).builder(4, 0);
    for (const op of builder.op.finish().ops) {
      seen.add(op.op);
      const kind = OPS[op.op].params.findIndex(([name]) => ["kind", "score", "rule"].includes(name));
      if (kind >= 0) seen.add(`${op.op} ${op.params[kind]}`);
    }
  }
  const kinds = {
    NORM: NORM_KIND,
    UNARY: UNARY_KIND,
    GATE: GATE_KIND,
    ROPE: ROPE_KIND,
    ROUTER: SCORE_KIND,
    POOL: POOL_KIND,
    DELTA: DELTA_RULE,
  };
  const want = [
    ...Object.keys(OPS),
    ...Object.entries(kinds).flatMap(([op, kind]) => Object.values(kind).map((k) => `${op} ${k}`)),
  ];
  assert.deepEqual(want.filter((name) => !seen.has(name)), []);
});

Deno.test("reference: rows of every case by bits, whatever the steps", async () => {
  // Only the native library encodes quantized weights; f16 rows take the path of the others.
  const others = /^(GET_ROWS of|MUL_MAT(_ID)?) (?!f32)|^(ATTENTION|INDEX) f16/;
  for (const c of opCases("test").filter((c) => !others.test(c.name))) {
    await checkCase(c, { backend, device: 0, reference: backend, native: backend, seed: Date.now() % 1000 });
  }
});
