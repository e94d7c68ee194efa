import assert from "node:assert/strict";
import { openReferenceBackend } from "../core/program/reference.ts";
import { fakeEngine, lseOf } from "./_testing.ts";
import {
  checkScoreFits,
  compareModels,
  compareWithRows,
  compareWithScore,
  renderReport,
  renderTable,
  summarize,
  type WindowResult,
} from "./compare.ts";
import { encodeKldRow, type KldRow, kldRowBytes } from "./kld_file.ts";
import { kldChunks, scoredRows } from "./rows.ts";
import { scoreTogether, scoreWindows } from "./score.ts";
import type { Window } from "./windows.ts";

const N_VOCAB = 7;
const WINDOWS: readonly Window[] = [
  { source: "a", index: 0, ids: Int32Array.from([1, 2, 3, 4, 5, 6]), skip: 2 },
  { source: "a", index: 1, ids: Int32Array.from([6, 0, 3]), skip: 0 },
  { source: "b", index: 0, ids: Int32Array.from([2, 2, 5, 1, 0]), skip: 3 },
];

/** What a comparison gives, worked out from the definition. */
function expected(of: (ids: ArrayLike<number>) => Float32Array, base: (ids: ArrayLike<number>) => Float32Array) {
  return WINDOWS.map(({ ids, skip }) => {
    const positions = Array.from({ length: ids.length - 1 - skip }, (_, i) => {
      const before = ids.subarray(0, skip + i + 1), target = ids[skip + i + 1];
      const q = of(before), p = base(before), lseQ = lseOf(q), lseP = lseOf(p);
      const best = (row: Float32Array) => row.indexOf(Math.max(...row));
      return {
        kl: [...p].reduce((s, x, id) => s + Math.exp(x - lseP) * (x - lseP - (q[id] - lseQ)), 0),
        same: best(p) === best(q) ? 1 : 0,
        nll: lseQ - q[target],
        nllBase: lseP - p[target],
      };
    });
    const mean = (value: (x: typeof positions[number]) => number) =>
      positions.reduce((s, x) => s + value(x), 0) / positions.length;
    return {
      kl: mean((x) => x.kl),
      sameTop: mean((x) => x.same),
      nll: mean((x) => x.nll),
      nllBase: mean((x) => x.nllBase),
    };
  });
}

function check(found: readonly WindowResult[], wanted: ReturnType<typeof expected>, tolerance: number, what: string) {
  assert.equal(found.length, WINDOWS.length);
  found.forEach((r, i) => {
    assert.deepEqual([r.source, r.index], [WINDOWS[i].source, WINDOWS[i].index]);
    assert.equal(r.n_tokens, WINDOWS[i].ids.length - 1 - WINDOWS[i].skip);
    assert.equal(r.sameTop, wanted[i].sameTop, `${what}: window ${i}, same top-1`);
    for (const key of ["kl", "nll", "nllBase"] as const) {
      assert.ok(Math.abs(r[key] - wanted[i][key]) < tolerance, `${what}: ${key} ${r[key]}, expected ${wanted[i][key]}`);
    }
    assert.equal(r.detail.kls.length, r.n_tokens);
    assert.equal(r.detail.same.reduce((s, x) => s + x, 0), Math.round(r.sameTop * r.n_tokens));
  });
}

const model = () => fakeEngine(N_VOCAB, 3), base = () => fakeEngine(N_VOCAB, 4);
const wanted = expected(model().logitsAfter, base().logitsAfter);
const agreement = wanted.map((w) => w.sameTop);
assert.ok(
  agreement.some((x) => x > 0) && agreement.some((x) => x < 0.5),
  `the models must agree in part: ${agreement}`,
);

Deno.test("compareModels() gives KL, likelihoods and top-1 agreement as their definitions do", async () => {
  check(await compareModels(openReferenceBackend(), model().engine, base().engine, WINDOWS), wanted, 1e-5, "models");
});

Deno.test("compareWithRows() gives the same over rows of 16 bits, and compareWithScore() over candidates and the rest", async () => {
  const chunks = await kldChunks(base().engine, WINDOWS), size = kldRowBytes(N_VOCAB);
  const rows = (w: Window): KldRow[] => {
    const { bytes } = chunks[WINDOWS.indexOf(w)], view = new DataView(bytes.buffer);
    return Array.from({ length: bytes.length / size }, (_, r) => ({
      scale: view.getFloat32(r * size, true),
      least: view.getFloat32(r * size + 4, true),
      codes: Uint16Array.from({ length: N_VOCAB }, (_, i) => view.getUint16(r * size + 8 + 2 * i, true)),
    }));
  };
  check(await compareWithRows(model().engine, WINDOWS, rows), wanted, 2e-4, "rows");

  const lines = await Array.fromAsync(scoreWindows(base().engine, WINDOWS, { topK: 2 }));
  const found = await compareWithScore(model().engine, lines);
  // With two candidates the KL is a lower bound; what a position has of it is a term for each and one for the rest.
  const bounds = WINDOWS.map(({ ids, skip }) =>
    Array.from({ length: ids.length - 1 - skip }, (_, i) => {
      const before = ids.subarray(0, skip + i + 1), p = base().logitsAfter(before), q = model().logitsAfter(before);
      const top = [...p.keys()].sort((a, b) => p[b] - p[a] || a - b).slice(0, 2);
      const of = (row: Float32Array, id: number) => Math.exp(row[id] - lseOf(row));
      const rest = (row: Float32Array) => 1 - top.reduce((s, id) => s + of(row, id), 0);
      return top.reduce((s, id) => s + of(p, id) * Math.log(of(p, id) / of(q, id)), 0) +
        rest(p) * Math.log(rest(p) / rest(q));
    })
  );
  found.forEach((r, w) => r.detail.kls.forEach((kl, i) => assert.ok(Math.abs(kl - bounds[w][i]) < 1e-4, `${w} ${i}`)));
  const kls = found.map((r) => r.kl);
  assert.ok(kls.every((kl, i) => kl > 0 && kl <= wanted[i].kl + 1e-5), String(kls));
  check(found.map((r, i) => ({ ...r, kl: wanted[i].kl })), wanted, 1e-5, "candidates");
});

Deno.test("scoredRows() runs windows together, brings back no more logits than allowed, and gives what each gives alone", async () => {
  const take = async (windows: readonly Window[], rows: number) => {
    const fake = model();
    const got = windows.map(() => [] as number[]);
    for await (const { window, out } of scoredRows(fake.engine, windows, rows * 4 * N_VOCAB)) {
      assert.equal(out.full!.length, out.n_rows * N_VOCAB);
      got[window].push(...out.targetLogprob);
    }
    return { got, steps: fake.steps };
  };
  const alone = await Promise.all(WINDOWS.map((w) => take([w], 100)));
  const whole = await take(WINDOWS, 100);
  assert.deepEqual(whole.steps, ["2:none 3:none", "3:all 2:all 1:all"]);
  const cut = await take(WINDOWS, 2);
  assert.deepEqual(cut.steps, ["2:none 3:none", "2:all", "1:all 1:all", "1:all 1:all"]);
  for (const { got } of [whole, cut]) assert.deepEqual(got, alone.map((a) => a.got[0]));
});

Deno.test("scoreTogether() asks for no logits of what is not scored", async () => {
  const fake = model();
  const scores = await scoreTogether(fake.engine, WINDOWS, 2);
  assert.deepEqual(fake.steps, ["2:none 3:none", "3:all 2:all 1:all"]);
  scores.forEach((s, w) => {
    const { ids, skip } = WINDOWS[w];
    assert.equal(s.logprob.length, ids.length - 1 - skip);
    s.logprob.forEach((x, i) => {
      const row = fake.logitsAfter(ids.subarray(0, skip + i + 1));
      assert.ok(Math.abs(x - (row[ids[skip + i + 1]] - lseOf(row))) < 1e-6);
      const best = Math.max(...row);
      assert.equal(s.topIds[i * 2], row.indexOf(best));
      assert.ok(Math.abs(s.topLogprob[i * 2] - (best - lseOf(row))) < 1e-6);
    });
  });
});

Deno.test("encodeKldRow() of a row that spans less than 16 keeps its least value", () => {
  const row = Float32Array.from([0, 1, 2]), bytes = new Uint8Array(kldRowBytes(3)), view = new DataView(bytes.buffer);
  encodeKldRow(row, lseOf(row), bytes, 0);
  assert.ok(Math.abs(view.getFloat32(4, true) - (0 - lseOf(row))) < 1e-6);
  assert.deepEqual([0, 1, 2].map((i) => view.getUint16(8 + 2 * i, true)), [0, 32768, 65535]);
});

Deno.test("summarize() weighs windows by tokens in every figure, and kl_max is the largest", () => {
  const results: WindowResult[] = [0.2, 0.6].map((kl, index) => ({
    source: "a",
    index,
    nll: 1 + index,
    nllBase: 1,
    kl,
    sameTop: index === 0 ? 1 : 0.5,
    n_tokens: index === 0 ? 1 : 3,
    detail: {
      ids: [0, 1, 2, 3],
      skip: 0,
      kls: index === 0 ? [0.2] : [0.1, 0.7, 1],
      same: index === 0 ? [1] : [1, 0, 0],
    },
  }));
  const rows = summarize(results);
  assert.equal(rows.length, 1, "one text has no row over all");
  const [row] = rows;
  const near = (a: number, b: number) => assert.ok(Math.abs(a - b) < 1e-12, `${a}, expected ${b}`);
  near(row.kl.mean, (0.2 + 3 * 0.6) / 4);
  near(row.same_top.mean, (1 + 3 * 0.5) / 4);
  near(row.nll.mean, (1 + 3 * 2) / 4);
  near(row.delta_nll.mean, 0.75);
  near(row.ppl.mean, Math.exp(1.75));
  near(row.ppl_base.mean, Math.E);
  assert.equal(row.kl_max, 1);
});

Deno.test("renderTable() pads names on the right and figures on the left", () => {
  assert.deepEqual(renderTable([["a", "b"], ["long", "1234"]]), ["a        b", "long  1234"]);
});

Deno.test("scoredRows() and scoreTogether() run no step of nothing where no window skips", async () => {
  const windows = WINDOWS.map((w) => ({ ...w, skip: 0 }));
  const rows = model(), scores = model();
  for await (const _ of scoredRows(rows.engine, windows)) { /* all of them */ }
  await scoreTogether(scores.engine, windows, 1);
  for (const { steps } of [rows, scores]) assert.deepEqual(steps, ["5:all 2:all 4:all"]);
});

Deno.test("scoreWindows() begins where it is told and runs so many windows at once, one where nobody says", async () => {
  const ran = async (options: { from?: number; n_seq?: number }) => {
    const fake = model();
    const lines = await Array.fromAsync(scoreWindows(fake.engine, WINDOWS, { topK: 1, ...options }));
    return [lines.map((l) => `${l.source}${l.window}`), fake.steps.filter((s) => s.includes("all"))];
  };
  assert.deepEqual(await ran({}), [["a0", "a1", "b0"], ["3:all", "2:all", "1:all"]]);
  assert.deepEqual(await ran({ from: 1, n_seq: 2 }), [["a1", "b0"], ["2:all 1:all"]]);
  assert.deepEqual(await ran({ n_seq: 2 }), [["a0", "a1", "b0"], ["3:all 2:all", "1:all"]]);
  const stop = AbortSignal.abort();
  assert.deepEqual(await Array.fromAsync(scoreWindows(model().engine, WINDOWS, { topK: 1, signal: stop })), []);
});

Deno.test("checkScoreFits() refuses another vocabulary", () => {
  checkScoreFits(5, 5, ["m", "o"]);
  assert.throws(() => checkScoreFits(5, 6, ["m", "o"]), {
    code: "eval.vocabulary",
    message: /6 tokens .*, 5 in the file/,
  });
});

Deno.test("renderReport() says what is not scored, and only that", () => {
  const text = (skip: number) =>
    renderReport({
      schema: "bloomery.eval/1",
      model: "m",
      base: "o",
      kl_support: "all",
      n_window: 9,
      skip,
      bos: false,
      rows: [],
      windows: [],
    });
  assert.match(text(4), /nor are the 4 after it/);
  assert.doesNotMatch(text(0), /nor are/);
});
