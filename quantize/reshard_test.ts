import assert from "node:assert/strict";
import { ggufValue, Metadata } from "../core/gguf/metadata.ts";
import { openGguf } from "../core/gguf/read.ts";
import { type GgmlType, ggmlType } from "../core/gguf/types.ts";
import { GgufWriter } from "../core/gguf/write.ts";
import { repoDir } from "../tests/shared.ts";
import { largeInput, smallInput } from "./_reshard_input.ts";
import { mergeGguf, planSplit, type ReshardProgress, spliceGguf, type SpliceOptions, splitGguf } from "./reshard.ts";

async function inFolder(run: (dir: string) => Promise<void>): Promise<void> {
  const dir = await Deno.makeTempDir() + "/";
  try {
    await run(dir);
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
}

async function sha256(path: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", Deno.readFileSync(path));
  return [...new Uint8Array(digest)].map((b) => b.toString(16).padStart(2, "0")).join("");
}

const names = (dir: string) => [...Deno.readDirSync(dir)].map((e) => e.name).sort();

Deno.test("splitGguf() and mergeGguf() write the bytes of llama-gguf-split", () =>
  inFolder(async (dir) => {
    Deno.writeFileSync(dir + "large.gguf", largeInput());
    Deno.writeFileSync(dir + "small.gguf", smallInput());
    const [large, small] = [dir + "large.gguf", dir + "small.gguf"];
    await splitGguf(large, dir + "size1", { splitMaxSize: 1e6 });
    await splitGguf(large, dir + "size2", { splitMaxSize: 2e6 });
    await splitGguf(large, dir + "size2bare", { splitMaxSize: 2e6, noTensorFirstSplit: true });
    await splitGguf(small, dir + "count2", { splitMaxTensors: 2 });
    await splitGguf(small, dir + "count5", { splitMaxTensors: 5 });
    await splitGguf(small, dir + "count3bare", { splitMaxTensors: 3, noTensorFirstSplit: true });
    await splitGguf(small, dir + "default");
    await mergeGguf(dir + "size2-00001-of-00004.gguf", dir + "merge-size2.gguf");
    await mergeGguf(dir + "count3bare-00001-of-00003.gguf", dir + "merge-count3bare.gguf");
    await mergeGguf(dir + "count5-00001-of-00001.gguf", dir + "merge-count5.gguf");
    await splitGguf(dir + "merge-count3bare.gguf", dir + "again2", { splitMaxTensors: 2 });
    const golden = Deno.readTextFileSync(repoDir + "tests/goldens/reshard/sums.txt").split("\n")
      .filter((line) => line !== "" && !line.startsWith("#"));
    assert.deepEqual(names(dir), golden.map((line) => line.slice(66)).sort());
    for (const line of golden) {
      const name = line.slice(66);
      assert.equal(await sha256(dir + name), line.slice(0, 64), name);
    }
  }));

Deno.test("splitGguf() divides a set anew", () =>
  inFolder(async (dir) => {
    Deno.writeFileSync(dir + "small.gguf", smallInput());
    await splitGguf(dir + "small.gguf", dir + "a", { splitMaxTensors: 1 });
    await splitGguf(dir + "a-00001-of-00005.gguf", dir + "b", { splitMaxTensors: 2 });
    await splitGguf(dir + "small.gguf", dir + "c", { splitMaxTensors: 2 });
    for (const end of ["1-of-00003", "2-of-00003", "3-of-00003"]) {
      assert.equal(await sha256(`${dir}b-0000${end}.gguf`), await sha256(`${dir}c-0000${end}.gguf`));
    }
  }));

Deno.test("planSplit() keeps a large first tensor where it is and refuses odd limits", () => {
  const t = (bytes: number) => ({ bytes });
  assert.deepEqual(planSplit([t(100), t(10), t(10)], { splitMaxSize: 64 }).map((f) => f.length), [1, 2]);
  assert.deepEqual(planSplit([], { splitMaxTensors: 2 }), [[]]);
  assert.deepEqual(planSplit([t(1)], { noTensorFirstSplit: true }), [[], [t(1)]]);
  for (const limits of [{ splitMaxSize: 0 }, { splitMaxTensors: 1.5 }, { splitMaxSize: 1, splitMaxTensors: 1 }]) {
    assert.throws(() => planSplit([], limits), { code: "usage.split_limits" });
  }
  assert.throws(() => planSplit(Array.from({ length: 65536 }, () => t(1)), { splitMaxTensors: 1 }), {
    code: "usage.split_limits",
  });
});

Deno.test("outputs are never inputs, and replace other files only when told to", () =>
  inFolder(async (dir) => {
    Deno.writeFileSync(dir + "small.gguf", smallInput());
    await splitGguf(dir + "small.gguf", dir + "a", { splitMaxTensors: 3 });
    const first = dir + "a-00001-of-00002.gguf";
    const exists = { code: "usage.output_exists" };
    await assert.rejects(splitGguf(dir + "small.gguf", dir + "a", { splitMaxTensors: 3 }), exists);
    await splitGguf(dir + "small.gguf", dir + "a", { splitMaxTensors: 3, overwrite: true });
    await assert.rejects(splitGguf(first, dir + "a", { splitMaxTensors: 3, overwrite: true }), exists);
    await assert.rejects(mergeGguf(first, first, { overwrite: true }), exists);
    await assert.rejects(mergeGguf(first, dir + "small.gguf"), exists);
    await assert.rejects(mergeGguf(dir + "small.gguf", dir + "m.gguf"), { code: "format.split" });
  }));

Deno.test("an aborted split or merge leaves nothing", () =>
  inFolder(async (dir) => {
    Deno.writeFileSync(dir + "small.gguf", smallInput());
    await splitGguf(dir + "small.gguf", dir + "a", { splitMaxTensors: 3 });
    const before = names(dir);
    const stop = new AbortController();
    const onProgress = ({ done }: ReshardProgress) => done > 40 && stop.abort(new Error("stopped"));
    const options = { signal: stop.signal, onProgress };
    await assert.rejects(splitGguf(dir + "small.gguf", dir + "b", { splitMaxTensors: 1, ...options }), /stopped/);
    await assert.rejects(mergeGguf(dir + "a-00001-of-00002.gguf", dir + "m.gguf", options), /stopped/);
    assert.deepEqual(names(dir), before);
  }));

type Tensors = Record<string, { type?: GgmlType; ne: number[]; fill: number }>;

function write(path: string, arch: string, tensors: Tensors): void {
  const metadata = new Metadata(path, [
    ["general.architecture", ggufValue.str(arch)],
    ["split.no", ggufValue.u16(0)],
    ["general.name", ggufValue.str(path)],
  ]);
  const infos = Object.entries(tensors).map(([name, t]) => ({ name, type: t.type ?? ggmlType("f32"), ne: t.ne }));
  using out = GgufWriter.create({ path, metadata, tensors: infos });
  for (const { name, type, ne } of infos) {
    const bytes = ne.reduce((a, b) => a * b) / type.block * type.bytes;
    out.writeTensor(name, new Uint8Array(bytes).fill(tensors[name].fill));
  }
  out.finish();
}

Deno.test("spliceGguf() replaces tensors where they stand and adds the rest at the end", () =>
  inFolder(async (dir) => {
    const [base, donor, out] = [dir + "base.gguf", dir + "donor.gguf", dir + "out.gguf"];
    write(base, "llama", { a: { ne: [32], fill: 1 }, b: { ne: [32, 2], fill: 2 }, c: { ne: [3], fill: 3 } });
    write(donor, "llama", {
      "mtp.x": { ne: [5], fill: 9 },
      b: { ne: [32, 2, 1], type: ggmlType("q8_0"), fill: 8 },
      a: { ne: [32], fill: 7 },
    });
    const take: SpliceOptions["take"] = (name) => name === "b" || name.startsWith("mtp.");
    const result = await spliceGguf(base, donor, out, { take });
    assert.deepEqual(result.replaced, ["b"]);
    assert.deepEqual(result.added, ["mtp.x"]);
    using file = openGguf(out);
    assert.deepEqual(file.tensors.map((t) => [t.name, t.type.name, file.readTensor(t)[0]]), [
      ["a", "f32", 1],
      ["b", "q8_0", 8],
      ["c", "f32", 3],
      ["mtp.x", "f32", 9],
    ]);
    assert.deepEqual([...file.metadata.keys()], [
      "general.architecture",
      "general.name",
      "general.quantization_version",
    ]);
    assert.equal(file.metadata.str("general.name"), base);
    assert.equal(Deno.statSync(out).size, result.bytes);
  }));

Deno.test("spliceGguf() refuses another architecture, other shapes, and taking nothing", () =>
  inFolder(async (dir) => {
    const [base, donor, other] = [dir + "base.gguf", dir + "donor.gguf", dir + "other.gguf"];
    write(base, "llama", { a: { ne: [4], fill: 1 }, b: { ne: [4], fill: 1 } });
    write(donor, "llama", { a: { ne: [5], fill: 1 }, b: { ne: [4, 2], fill: 1 } });
    write(other, "qwen3", { a: { ne: [4], fill: 1 } });
    const splice = (from: string, take: (n: string) => boolean) => spliceGguf(base, from, dir + "out.gguf", { take });
    await assert.rejects(splice(donor, () => true), {
      code: "quantize.splice_shape",
      message: /"a" is \[5\], expected \[4\]; "b" is \[4,2\], expected \[4\]/,
    });
    await assert.rejects(splice(donor, () => false), { code: "quantize.splice_nothing" });
    await assert.rejects(splice(other, () => true), { code: "model.architecture", message: /qwen3, expected llama/ });
    assert.deepEqual(names(dir), ["base.gguf", "donor.gguf", "other.gguf"]);
  }));
