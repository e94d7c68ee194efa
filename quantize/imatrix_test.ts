import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { BloomeryError, FormatError, UsageError } from "../core/errors.ts";
import {
  convertImatrix,
  type ImatrixFile,
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
