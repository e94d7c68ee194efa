import assert from "node:assert/strict";
import { needingShared, repoDir, sharedDir } from "../../tests/shared.ts";
import { bufferSource, type ByteSource, fileSource } from "../bytes.ts";
import { FormatError } from "../errors.ts";
import { everyValue, Raw, smallFile } from "./_testing.ts";
import { readHeader } from "./header.ts";
import { ggufValue, Metadata } from "./metadata.ts";
import { openGguf, parseShardName, shardName } from "./read.ts";
import { ggmlType } from "./types.ts";
import { bufferTarget, encodeHeader, GgufWriter } from "./write.ts";

/** A source that counts what is read from it. */
function counted(inner: ByteSource): ByteSource & { bytesRead: number; reads: number } {
  return {
    ...inner,
    bytesRead: 0,
    reads: 0,
    read(offset, length) {
      this.bytesRead += length;
      this.reads++;
      return inner.read(offset, length);
    },
  };
}

Deno.test("openGguf() reads values of every type as they were written", () => {
  const file = openGguf(bufferSource("every.gguf", smallFile()));
  const want = everyValue();
  assert.deepEqual([...file.metadata.keys()], [...want.keys()]);
  for (const [key, value] of want) assert.deepEqual(file.metadata.get(key), value, key);
});

Deno.test("openGguf() places tensors and readTensor() reads them, whole and in part", () => {
  const file = openGguf(bufferSource("small.gguf", smallFile()));
  assert.deepEqual(file.tensors.map((t) => [t.name, t.type.name, t.ne, t.bytes, t.shard]), [
    ["token_embd.weight", "q4_0", [64, 3], 108, 0],
    ["output_norm.weight", "f32", [8], 32, 0],
    ["blk.0.ffn_down_exps.weight", "f16", [3, 2, 2], 24, 0],
  ]);
  for (const t of file.tensors) assert.equal(t.offset % 32, 0);
  const norm = file.tensor("output_norm.weight");
  assert.deepEqual([...file.readTensor(norm)], Array.from({ length: 32 }, (_, i) => 109 + i));
  assert.deepEqual([...file.readTensor(norm, 30)], [139, 140]);
  assert.deepEqual([...file.readTensor(norm, 1, 2)], [110, 111]);
  assert.throws(() => file.readTensor(norm, 31, 2), RangeError);
  assert.equal(file.find("absent"), undefined);
  assert.throws(() => file.tensor("absent"), { code: "model.missing_tensor" });
});

Deno.test("openGguf() reads version 2 and another alignment", () => {
  const v2 = smallFile();
  v2[4] = 2;
  assert.equal(openGguf(bufferSource("v2", v2)).shards[0].version, 2);
  const meta = everyValue().set("general.alignment", ggufValue.u32(8));
  const file = openGguf(bufferSource("a8", smallFile(meta, 8)));
  assert.equal(file.alignment, 8);
  assert.equal(file.readTensor(file.tensor("output_norm.weight"))[0], 109);
});

Deno.test("openGguf() takes a tensor without dimensions as one number", () => {
  const file = openGguf(new Raw().head(1, 0).info("one", [], 0, 0).data(4).source());
  assert.deepEqual(file.tensors[0].ne, [1]);
  assert.equal(file.tensors[0].bytes, 4);
});

Deno.test("openGguf() opens a large vocabulary and 100,000 tensors from their headers alone", () => {
  const strings = Array.from({ length: 250_000 }, (_, i) => `token ${i}`);
  const metadata = new Metadata("big", [
    ["general.architecture", ggufValue.str("llama")],
    ["tokenizer.ggml.tokens", ggufValue.strs(strings)],
    ["tokenizer.ggml.scores", ggufValue.f32s(strings.map((_, i) => i))],
  ]);
  const tensors = Array.from({ length: 100_000 }, (_, i) => ({
    name: `blk.${i}.ffn_gate_exps.weight`,
    type: ggmlType("f32"),
    ne: [8],
  }));
  const header = encodeHeader(metadata, tensors);
  const dataBytes = 32 * tensors.length;
  const bytes = new Uint8Array(header.length + dataBytes);
  bytes.set(header);
  const source = counted(bufferSource("big", bytes));
  const file = openGguf(source);
  assert.equal(file.metadata.strs("tokenizer.ggml.tokens").at(249_999), "token 249999");
  assert.equal(file.tensors.length, 100_000);
  // The vocabulary is walked and then taken, so twice the header at most, and one window past its end.
  assert.ok(source.bytesRead < 2 * header.length + 2 ** 19, `${source.bytesRead} of ${header.length}`);
  assert.ok(source.reads < 200);
});

/** The files of a split set of `n`, one tensor each, by name. */
function splitSet(n: number, change: (no: number, meta: Metadata) => void = () => {}): Map<string, Uint8Array> {
  const files = new Map<string, Uint8Array>();
  for (let no = 0; no < n; no++) {
    const name = shardName("/d/model", no, n);
    const metadata = new Metadata(name);
    if (no === 0) metadata.set("general.architecture", ggufValue.str("llama"));
    metadata.set("split.no", ggufValue.u16(no)).set("split.count", ggufValue.u16(n));
    metadata.set("split.tensors.count", ggufValue.i32(n));
    change(no, metadata);
    const target = bufferTarget(name);
    using out = GgufWriter.create({
      path: target,
      metadata,
      tensors: [{ name: `t${no}`, type: ggmlType("f32"), ne: [1] }],
    });
    out.writeTensor(0, Uint8Array.of(no, 0, 0, 0));
    out.finish();
    files.set(name, target.take());
  }
  return files;
}

function openSet(files: Map<string, Uint8Array>, first: string = files.keys().next().value!) {
  const open = (path: string): ByteSource => {
    const bytes = files.get(path);
    if (bytes) return bufferSource(path, bytes);
    return fileSource("/nonexistent/" + path);
  };
  return openGguf(open(first), { open });
}

Deno.test("openGguf() opens a split set as one", () => {
  const file = openSet(splitSet(3));
  assert.deepEqual(file.paths, [1, 2, 3].map((i) => `/d/model-0000${i}-of-00003.gguf`));
  assert.deepEqual(file.tensors.map((t) => [t.name, t.shard, file.readTensor(t)[0]]), [
    ["t0", 0, 0],
    ["t1", 1, 1],
    ["t2", 2, 2],
  ]);
  assert.equal(file.metadata.str("general.architecture"), "llama");
});

Deno.test("openGguf() refuses a split set that is not whole or not in order", () => {
  const refuse = (code: string, message: RegExp, run: () => unknown) =>
    assert.throws(run, (e: unknown) => {
      assert.ok(e instanceof FormatError, String(e));
      assert.equal(e.code, code);
      assert.match(e.message, message);
      return true;
    });
  const set = splitSet(4);
  refuse("format.split", /it is file 2 of 4/, () => openSet(set, shardName("/d/model", 1, 4)));
  const gaps = splitSet(4);
  gaps.delete(shardName("/d/model", 1, 4));
  gaps.delete(shardName("/d/model", 3, 4));
  refuse("format.missing_shard", /2 of 4 files .*00002-of-00004.*00004-of-00004/, () => openSet(gaps));
  const renamed = new Map([["/d/other.gguf", set.get(shardName("/d/model", 0, 4))!]]);
  refuse("format.split", /its name/, () => openSet(renamed));
  refuse(
    "format.split",
    /split\.no is 7, expected 2/,
    () => openSet(splitSet(3, (no, m) => no === 2 && m.set("split.no", ggufValue.u16(7)))),
  );
  refuse(
    "format.split",
    /split\.count is 5, expected 3/,
    () => openSet(splitSet(3, (no, m) => no === 1 && m.set("split.count", ggufValue.u16(5)))),
  );
  refuse(
    "format.split",
    /split\.tensors\.count is 9, the files hold 3/,
    () => openSet(splitSet(3, (_, m) => m.set("split.tensors.count", ggufValue.i32(9)))),
  );
  refuse(
    "format.split",
    /split\.count is str/,
    () => openSet(splitSet(3, (_, m) => m.set("split.count", ggufValue.str("3")))),
  );
  const twice = splitSet(2);
  const [a, b] = [...twice.keys()];
  const bytes = twice.get(b)!.slice();
  const at = bytes.findIndex((x, i) => x === 0x74 && bytes[i + 1] === 0x31); // "t1"
  bytes[at + 1] = 0x30;
  twice.set(b, bytes);
  refuse("format.duplicate_tensor", /"t0" is also in .*00001/, () => openSet(twice, a));
});

Deno.test("parseShardName() and shardName() agree", () => {
  assert.deepEqual(parseShardName(shardName("a/b-c", 2, 31)), { prefix: "a/b-c", no: 2, count: 31 });
  assert.equal(parseShardName("a-1-of-2.gguf"), undefined);
});

Deno.test("fileSource() names a file that is absent or a folder", () => {
  assert.throws(() => openGguf("/nonexistent.gguf"), { code: "format.unreadable", message: /nonexistent/ });
  assert.throws(() => openGguf(repoDir), { code: "format.unreadable", message: /folder/ });
});

/** Every GGUF file below a folder. */
function* ggufFiles(dir: string): Generator<string> {
  for (const e of Deno.readDirSync(dir)) {
    if (e.isDirectory) yield* ggufFiles(`${dir}${e.name}/`);
    else if (e.name.endsWith(".gguf")) yield dir + e.name;
  }
}

Deno.test({
  ...needingShared("encodeHeader() gives back the header of every file in the shared folder"),
  fn() {
    let n = 0;
    for (const path of ggufFiles(sharedDir!)) {
      const source = fileSource(path);
      const h = readHeader(source);
      // A vocabulary has no tensors and its converter left it without padding.
      const pad = h.tensors.length > 0 || source.size > h.headerEnd;
      const header = encodeHeader(h.metadata, h.tensors, h.alignment, pad);
      assert.deepEqual(header, source.read(0, header.length), path);
      source.close();
      n++;
    }
    assert.ok(n > 0);
  },
});
