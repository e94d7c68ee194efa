/**
 * Times of the op cases of tests/ops beside their floors.
 *
 *   deno run -A scripts/bench_ops.ts [--device cpu] [--threads N] [--only REGEX] [--rounds 7] [--tflops X] > ops.csv
 *
 * A case's program has its ops several times over, each time with weights of its own, so that none is in a cache by chance; the
 * time of one is the difference between many and one. The floor is what must move at the rate a large copy has in the same run,
 * or what must be computed at `--tflops`, whichever is more.
 * @module
 */
import type { GgmlType } from "../core/gguf/types.ts";
import { openBackend } from "../ffi/mod.ts";
import type { OpCase } from "../tests/ops/case.ts";
import { opCases } from "../tests/ops/cases/mod.ts";
import { addCosts, type Cost, costOf } from "../tests/ops/cost.ts";
import { CaseData, CaseRun } from "../tests/ops/run.ts";

function flag(name: string): string | undefined {
  const i = Deno.args.indexOf(`--${name}`);
  return i < 0 ? undefined : Deno.args[i + 1];
}

const rounds = Number(flag("rounds") ?? 7), tflops = Number(flag("tflops") ?? Infinity);
const only = new RegExp(flag("only") ?? ".");
const threads = flag("threads");
using opened = openBackend(flag("device") ?? "cpu", threads === undefined ? {} : { threads: Number(threads) });
const { backend, device } = opened;

/** Weights of all repetitions together. */
const ROOM = 2 ** 30;

interface Timing {
  readonly seconds: number;
  /** Largest over smallest. */
  readonly spread: number;
  readonly cost: Cost;
}

/** The last rows of every sequence, over a context that nobody has written. */
function lastRows(c: OpCase) {
  return c.sequences.map((n, seq) => ({ seq, from: n - Math.min(n, c.timed ?? n), to: n }));
}

/** The case with its ops `times` over. */
function repeated(c: OpCase, times: number): OpCase {
  return {
    ...c,
    build: (b) => {
      for (let i = 0; i < times; i++) {
        b.variant = i;
        c.build(b);
      }
    },
  };
}

async function medianOf(run: CaseRun, step: ReturnType<typeof lastRows>): Promise<{ median: number; spread: number }> {
  const times: number[] = [];
  for (let i = 0; i < rounds + 2; i++) {
    const from = performance.now();
    await run.step(step, []);
    if (i >= 2) times.push(performance.now() - from);
  }
  times.sort((a, b) => a - b);
  return { median: times[times.length >> 1] / 1000, spread: times[times.length - 1] / times[0] };
}

async function time(c: OpCase): Promise<Timing> {
  const step = lastRows(c), n_tok = step.reduce((n, p) => n + p.to - p.from, 0);
  const rows = step.flatMap((p) =>
    Array.from({ length: p.to - p.from }, (_, i) => ({ seq: p.seq, position: p.from + i }))
  );
  const data = new CaseData(c, 1, backend);
  using one = await CaseRun.open(data, backend, device.index, n_tok, 1);
  // Tables of activations are read once whatever the repetitions.
  const work = one.program.ops.filter((op) => !(op.op === "GET_ROWS" && one.isTable(op.src[0])));
  const cost = addCosts(work.map((op) => costOf(one.program, op, rows, c.cache ?? "f32")));
  const bytes = one.program.weights.reduce((n, w) => n + w.ne.reduce((a, b) => a * b, 1) * bytesEach(w.type), 0);
  const times = Math.max(2, Math.min(9, Math.floor(ROOM / bytes)));
  using many = await CaseRun.open(new CaseData(repeated(c, times), 1, backend, data), backend, device.index, n_tok, 1);
  const a = await medianOf(one, step), b = await medianOf(many, step);
  return { seconds: (b.median - a.median) / (times - 1), spread: Math.max(a.spread, b.spread), cost };
}

function bytesEach(type: GgmlType): number {
  return type.bytes / type.block;
}

/** Bytes per second of a copy that no cache holds. */
async function copyRate(): Promise<number> {
  const n = 2 ** 20;
  const { seconds, cost } = await time({
    name: "copy",
    sequences: [64],
    nmse: 0,
    build: (b) => b.out("y", b.op.copy(b.act("x", [n], () => 1))),
  });
  return cost.bytes / seconds;
}

const rate = await copyRate();
console.error(`${device.name}: a copy moves ${(rate / 1e9).toFixed(1)} GB/s`);
console.log("case,us,floor_us,share,GB_per_s,GFLOP_per_s,spread");
for (const c of opCases("bench")) {
  if (!only.test(c.name)) continue;
  const { seconds, spread, cost } = await time(c);
  const floor = Math.max(cost.bytes / rate, cost.flops / (tflops * 1e12));
  const cells = [
    `"${c.name}"`,
    (seconds * 1e6).toFixed(1),
    (floor * 1e6).toFixed(1),
    (floor / seconds).toFixed(2),
    (cost.bytes / seconds / 1e9).toFixed(1),
    (cost.flops / seconds / 1e9).toFixed(1),
    spread.toFixed(2),
  ];
  console.log(cells.join(","));
}
