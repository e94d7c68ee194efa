import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { BloomeryError, FormatError, UsageError } from "../core/errors.ts";
import { ggufValue, Metadata } from "../core/gguf/metadata.ts";
import { ggmlType } from "../core/gguf/types.ts";
import { GgufWriter } from "../core/gguf/write.ts";
import {
  convertImatrix,
  type ImatrixFile,
  imatrixKey,
  imatrixStatistics,
  importanceOf,
  mergeImatrices,
  readImatrix,
  useImatrix,
  writeImatrix,
} from "./imatrix.ts";

function withFolder(body: (folder: string) => void): void {
  const folder = Deno.makeTempDirSync() + "/";
  try {
    body(folder);
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
}

function sample(path = "im.gguf"): ImatrixFile {
  return {
    path,
    format: "gguf",
    datasets: ["text.txt"],
    n_chunks: 2,
    chunk_size: 512,
    sums: new Map([
      ["blk.0.attn_q.weight", { sums: Float32Array.of(2, 4, 6), counts: Float32Array.of(2) }],
      ["blk.0.ffn_up_exps.weight", { sums: Float32Array.of(3, 3, 0, 0), counts: Float32Array.of(3, 0) }],
    ]),
  };
}

/** The old format: counts, names, values. */
function oldFormat(entries: [name: string, calls: number, values: number[]][], tail?: [number, string]): Uint8Array {
  const parts: Uint8Array[] = [];
  const i32 = (n: number) => parts.push(new Uint8Array(Int32Array.of(n).buffer));
  const text = (s: string) => {
    const bytes = new TextEncoder().encode(s);
    i32(bytes.length);
    parts.push(bytes);
  };
  i32(entries.length);
  for (const [name, calls, values] of entries) {
    text(name);
    i32(calls);
    i32(values.length);
    parts.push(new Uint8Array(Float32Array.from(values).buffer));
  }
  if (tail) {
    i32(tail[0]);
    text(tail[1]);
  }
  return new Uint8Array(parts.flatMap((p) => [...p]));
}

Deno.test("writeImatrix() and readImatrix() keep everything", () =>
  withFolder((folder) => {
    writeImatrix(sample(), folder + "im.gguf");
    assert.deepEqual(readImatrix(folder + "im.gguf"), { ...sample(folder + "im.gguf") });
  }));

Deno.test("importance is sums over counts, and 1 for an expert that was never used", () => {
  const { entries } = useImatrix(sample());
  assert.deepEqual([...entries.get("blk.0.attn_q.weight")!], [1, 2, 3]);
  assert.deepEqual([...entries.get("blk.0.ffn_up_exps.weight")!], [1, 1, 1, 1]);
});

Deno.test("the old format gives values over calls, and values where there were none", () =>
  withFolder((folder) => {
    const path = folder + "im.dat";
    Deno.writeFileSync(path, oldFormat([["a.weight", 4, [8, 2]], ["b.weight", 0, [5]]], [7, "wiki"]));
    const file = readImatrix(path);
    assert.equal(file.format, "dat");
    const { entries, n_chunks, dataset } = useImatrix(file);
    assert.deepEqual([n_chunks, dataset], [7, "wiki"]);
    assert.deepEqual([...entries].map(([name, v]) => [name, ...v]), [["a.weight", 2, 0.5], ["b.weight", 5]]);
  }));

Deno.test("useImatrix() filters by parts of names", () => {
  assert.deepEqual([...useImatrix(sample(), { include: ["attn"] }).entries.keys()], ["blk.0.attn_q.weight"]);
  assert.deepEqual([...useImatrix(sample(), { exclude: ["attn"] }).entries.keys()], ["blk.0.ffn_up_exps.weight"]);
  assert.throws(() => useImatrix(sample(), { include: ["a"], exclude: ["b"] }), UsageError);
});

Deno.test("useImatrix() refuses NaN and infinity, with every entry that has one", () => {
  const file = sample();
  const sums = new Map([
    ["x.weight", { sums: Float32Array.of(1, NaN), counts: Float32Array.of(1) }],
    ["y.weight", { sums: Float32Array.of(Infinity), counts: Float32Array.of(1) }],
  ]);
  assert.throws(
    () => useImatrix({ ...file, sums }),
    (e) => e instanceof FormatError && e.message.includes('"x.weight" is NaN at 1') && e.message.includes('"y.weight"'),
  );
});

Deno.test("mergeImatrices() adds sums and counts, and names what does not fit", () => {
  const merged = mergeImatrices([sample("a"), sample("b")], "ab");
  assert.deepEqual(merged.sums.get("blk.0.attn_q.weight"), {
    sums: Float32Array.of(4, 8, 12),
    counts: Float32Array.of(4),
  });
  assert.equal(merged.n_chunks, 4);
  assert.deepEqual(importanceOf(merged.sums.get("blk.0.attn_q.weight")!, "gguf"), Float32Array.of(1, 2, 3));
  const other = sample("c");
  const sums = new Map([["blk.0.attn_q.weight", { sums: Float32Array.of(1), counts: Float32Array.of(1) }]]);
  assert.throws(() => mergeImatrices([sample("a"), { ...other, sums }], "x"), FormatError);
});

/** A file of the old format with two experts in its second entry. */
function sampleDat(): ImatrixFile {
  const sums = new Map([
    ["blk.0.attn_q.weight", { sums: Float32Array.of(3, 6, 9), counts: Float32Array.of(3) }],
    ["blk.0.ffn_up_exps.weight", { sums: Float32Array.of(4, 4, 8, 8), counts: Float32Array.of(2) }],
    ["blk.9.only.weight", { sums: Float32Array.of(5), counts: Float32Array.of(1) }],
  ]);
  return { path: "o.dat", format: "dat", datasets: ["old.txt"], n_chunks: 3, chunk_size: 0, sums };
}

Deno.test("mergeImatrices() adds files of both formats: a call is a chunk's rows of every matrix", () => {
  for (const files of [[sample("a"), sampleDat()], [sampleDat(), sample("a")]]) {
    const merged = mergeImatrices(files, "x");
    assert.deepEqual([merged.format, merged.chunk_size, merged.n_chunks], ["gguf", 512, 5]);
    assert.deepEqual(merged.sums.get("blk.0.attn_q.weight"), {
      sums: Float32Array.of(2 + 3 * 512, 4 + 6 * 512, 6 + 9 * 512),
      counts: Float32Array.of(2 + 3 * 512),
    });
    assert.deepEqual(merged.sums.get("blk.0.ffn_up_exps.weight"), {
      sums: Float32Array.of(3 + 4 * 512, 3 + 4 * 512, 8 * 512, 8 * 512),
      counts: Float32Array.of(3 + 2 * 512, 2 * 512),
    });
    assert.deepEqual(merged.sums.get("blk.9.only.weight"), {
      sums: Float32Array.of(2560),
      counts: Float32Array.of(512),
    });
  }
  const both = mergeImatrices([sampleDat(), sampleDat()], "x");
  assert.deepEqual([both.format, both.sums.get("blk.9.only.weight")!.sums[0]], ["dat", 10]);
  assert.throws(() => mergeImatrices([{ ...sample("a"), chunk_size: 0 }, sampleDat()], "x"), FormatError);
});

Deno.test("convertImatrix() and writeImatrix() give the old format: means times calls, 1 for what was not reached", () =>
  withFolder((folder) => {
    const sums = new Map([
      ["a_exps.weight", { sums: Float32Array.of(2048, 512, 9, 9), counts: Float32Array.of(1024, 0) }],
      ["b.weight", { sums: Float32Array.of(513), counts: Float32Array.of(513) }],
    ]);
    const old = convertImatrix({ ...sample("a"), sums }, "dat"), path = folder + "o.dat";
    writeImatrix(old, path);
    assert.deepEqual(readImatrix(path), {
      ...old,
      path,
      sums: new Map([
        ["a_exps.weight", { sums: Float32Array.of(4, 1, 2, 2), counts: Float32Array.of(2) }],
        ["b.weight", { sums: Float32Array.of(2), counts: Float32Array.of(2) }],
      ]),
    });
    assert.deepEqual([old.n_chunks, old.datasets, old.chunk_size], [2, ["text.txt"], 0]);
    assert.equal(convertImatrix(old, "dat"), old);
    assert.throws(() => convertImatrix(old, "gguf"), FormatError);
    assert.throws(() => convertImatrix({ ...sample("a"), chunk_size: 0 }, "dat"), FormatError);
  }));

Deno.test("imatrixStatistics() describes each entry", () => {
  const [q, up] = imatrixStatistics(sample());
  assert.deepEqual([q.name, q.n_in, q.n_mat, q.min, q.max, q.mean, q.sum], ["blk.0.attn_q.weight", 3, 1, 1, 3, 2, 6]);
  assert.deepEqual([up.min_count, up.max_count, up.entropy, up.active_percent], [0, 3, 2, 100]);
});

Deno.test("imatrixStatistics() gives deviation and entropy as by hand, of weights some of which are 0", () => {
  const sums = new Map([["a", { sums: Float32Array.of(2, 2, 4, 0), counts: Float32Array.of(2) }]]);
  const [s] = imatrixStatistics({ ...sample(), sums });
  assert.deepEqual([s.sum, s.mean, s.min, s.max, s.active_percent], [4, 1, 0, 2, 75]);
  assert.ok(Math.abs(s.deviation - Math.sqrt(0.5)) < 1e-12);
  assert.equal(s.entropy, 0.25 * 2 + 0.25 * 2 + 0.5);
  const [none] = imatrixStatistics({
    ...sample(),
    sums: new Map([["a", { sums: new Float32Array(2), counts: Float32Array.of(1) }]]),
  });
  assert.deepEqual([none.entropy, none.active_percent], [0, 0]);
});

Deno.test("useImatrix() lists matrices that no row reached, which the old format does not tell", () => {
  assert.deepEqual([...useImatrix(sample()).unreached!], [["blk.0.ffn_up_exps.weight", [1]]]);
  assert.equal(useImatrix({ ...sample(), format: "dat" }).unreached!.size, 0);
});

Deno.test("readImatrix() takes the smallest files of the old format, and refuses an empty one", () =>
  withFolder((folder) => {
    const path = folder + "im.dat";
    Deno.writeFileSync(path, oldFormat([["a", 2, [4]]]));
    const { n_chunks, datasets, sums } = readImatrix(path);
    assert.deepEqual([n_chunks, datasets, [...sums.keys()]], [0, [], ["a"]]);
    Deno.writeFileSync(path, oldFormat([]));
    assert.throws(() => readImatrix(path), (e) => e instanceof FormatError && /has 0 entries/.test(e.message));
  }));

/** A GGUF matrix of tensors with these sizes. */
function ggufOf(path: string, tensors: Record<string, number>): void {
  const metadata = new Metadata(path).set("general.type", ggufValue.str("imatrix"))
    .set("imatrix.datasets", ggufValue.strs([]))
    .set("imatrix.chunk_count", ggufValue.u32(1)).set("imatrix.chunk_size", ggufValue.u32(1));
  const parts = Object.entries(tensors).map(([name, n]) => ({ name, type: ggmlType("f32"), ne: [n] }));
  using writer = GgufWriter.create({ path, metadata, tensors: parts });
  parts.forEach(({ ne }, i) => writer.writeTensor(i, new Uint8Array(new Float32Array(ne[0]).fill(1).buffer)));
  writer.finish();
}

Deno.test("readImatrix() wants sums of squares and counts of each weight, and sums as many as squares", () =>
  withFolder((folder) => {
    const path = folder + "im.gguf";
    const refusal = (tensors: Record<string, number>): string | undefined => {
      ggufOf(path, tensors);
      try {
        readImatrix(path);
        return undefined;
      } catch (error) {
        assert.ok(error instanceof FormatError);
        return error.message.replace(/^.*: /, "");
      }
    };
    assert.equal(refusal({ "a.in_sum2": 4, "a.counts": 2, "a.in_sum": 4 }), undefined);
    assert.equal(refusal({ "a.in_sum2": 4, "a.counts": 2, "a.in_sum": 3 }), '"a" has 3 sums and 4 sums of squares');
    assert.equal(refusal({ "a.in_sum2": 4 }), '"a" has no tensor counts');
    assert.equal(refusal({ "a.counts": 4 }), '"a" has no tensor in_sum2');
    assert.equal(refusal({ "a.in_sum2": 4, "a.counts": 3 }), '"a" has 4 sums for 3 matrices');
  }));

Deno.test("convertImatrix() counts calls of chunks of one token, and refuses chunks of none", () => {
  const old = convertImatrix({ ...sample(), chunk_size: 1 }, "dat");
  assert.deepEqual([...old.sums.values()].map((s) => s.counts[0]), [2, 3]);
  assert.throws(() => convertImatrix({ ...sample(), chunk_size: 0 }, "dat"), FormatError);
});

Deno.test("imatrixKey() knows weights by names and values, in any order", () => {
  const of = (...entries: [string, number[]][]) =>
    imatrixKey({ entries: new Map(entries.map(([name, v]) => [name, Float32Array.from(v)])) });
  const key = of(["a", [1, 2]], ["b", [3]]);
  assert.equal(of(["b", [3]], ["a", [1, 2]]), key);
  const others = [
    of(["a", [1, 2]], ["c", [3]]),
    of(["a", [1, 2]], ["b", [4]]),
    of(["a", [1, 2]]),
    of(["a", [1]], ["b", [2, 3]]),
  ];
  assert.equal(new Set([key, ...others]).size, 5);
});

Deno.test("readImatrix() refuses cut and mangled files by name (property)", () =>
  withFolder((folder) => {
    const good = oldFormat([["a.weight", 4, [8, 2, 1]], ["b.weight", 1, [5]]], [7, "wiki"]);
    const path = folder + "im.dat";
    fc.assert(fc.property(fc.nat(good.length - 1), fc.nat(255), fc.nat(good.length), (at, value, end) => {
      const bytes = good.slice(0, end);
      if (at < end) bytes[at] = value;
      Deno.writeFileSync(path, bytes);
      try {
        readImatrix(path);
      } catch (error) {
        assert(error instanceof BloomeryError, String(error));
      }
    }));
  }));
