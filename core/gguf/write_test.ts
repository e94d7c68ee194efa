import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { bufferSource } from "../bytes.ts";
import { everyValue } from "./_testing.ts";
import { type GgufValue, ggufValue, Metadata, type ScalarType, StringArray } from "./metadata.ts";
import { openGguf } from "./read.ts";
import { GGML_TYPES, ggmlType } from "./types.ts";
import { bufferTarget, encodeHeader, GgufWriter, partialPath } from "./write.ts";

const f32 = ggmlType("f32");

function exists(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch {
    return false;
  }
}

async function inFolder(run: (dir: string) => void): Promise<void> {
  const dir = await Deno.makeTempDir();
  try {
    run(dir);
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
}

const two = (path: string) => ({
  path,
  metadata: new Metadata(path, [["general.architecture", ggufValue.str("llama")]]),
  tensors: [{ name: "a", type: f32, ne: [3] }, { name: "b", type: f32, ne: [9] }],
});

Deno.test("GgufWriter writes beside and renames, in pieces as in one", () =>
  inFolder((dir) => {
    const a = new Uint8Array(12).fill(1);
    const b = new Uint8Array(36).fill(2);
    const whole = GgufWriter.create(two(dir + "/whole.gguf"));
    whole.writeTensor("a", a);
    assert.ok(exists(partialPath(dir + "/whole.gguf")));
    assert.ok(!exists(dir + "/whole.gguf"));
    whole.writeTensor(1, b);
    whole.finish();
    assert.ok(!exists(partialPath(dir + "/whole.gguf")));
    const pieces = GgufWriter.create(two(dir + "/pieces.gguf"));
    pieces.writeTensor("a", a.subarray(0, 5), a.subarray(5));
    pieces.writeTensor("b", b.subarray(0, 1));
    pieces.writeTensor("b", b.subarray(1));
    pieces.finish();
    const bytes = Deno.readFileSync(dir + "/whole.gguf");
    assert.deepEqual(Deno.readFileSync(dir + "/pieces.gguf"), bytes);
    assert.equal(bytes.length, whole.totalBytes);
    assert.equal(bytes.length, whole.headerBytes + 32 + 64);
    using file = openGguf(dir + "/whole.gguf");
    assert.deepEqual(file.readTensor(file.tensor("b")), b);
  }));

Deno.test("GgufWriter leaves nothing when it is disposed unfinished, or aborted", () =>
  inFolder((dir) => {
    const path = dir + "/x.gguf";
    {
      using out = GgufWriter.create(two(path));
      out.writeTensor("a", new Uint8Array(12));
    }
    const out = GgufWriter.create(two(path));
    out.abort();
    out.abort();
    assert.deepEqual([...Deno.readDirSync(dir)], []);
    assert.throws(() => GgufWriter.create(two(dir + "/no/such/folder.gguf")), { code: "format.unwritable" });
  }));

Deno.test("GgufWriter refuses wrong order, too many and too few bytes", () => {
  const out = GgufWriter.create({ ...two("m"), path: bufferTarget() });
  assert.throws(() => out.writeTensor("b", new Uint8Array(36)), /does not come next/);
  assert.throws(() => out.writeTensor("absent", new Uint8Array(36)), /does not come next/);
  assert.throws(() => out.writeTensor("a", new Uint8Array(13)), /has 12 bytes, got 13/);
  assert.throws(() => out.finish(), /tensor a has 0 of its 12 bytes/);
});

Deno.test("GgufWriter goes on with a suspended file and gives the same bytes", () =>
  inFolder((dir) => {
    const path = dir + "/r.gguf";
    const a = new Uint8Array(12).fill(7);
    const b = new Uint8Array(36).fill(9);
    const first = GgufWriter.create(two(path));
    first.writeTensor("a", a);
    first.writeTensor("b", b.subarray(0, 10)); // half a tensor is written again
    const whole = first.suspend();
    assert.equal(whole, 1);
    assert.throws(
      () => GgufWriter.create({ ...two(path), metadata: new Metadata(path, [["x", ggufValue.u8(1)]]), resume: whole }),
      { code: "format.resume", message: /other settings/ },
    );
    const second = GgufWriter.create({ ...two(path), resume: whole });
    second.writeTensor("b", b);
    second.finish();
    const target = bufferTarget();
    const straight = GgufWriter.create({ ...two(path), path: target });
    straight.writeTensor("a", a);
    straight.writeTensor("b", b);
    straight.finish();
    assert.deepEqual(Deno.readFileSync(path), target.take());
    assert.throws(() => GgufWriter.create({ ...two(dir + "/none.gguf"), resume: 1 }), { code: "format.resume" });
  }));

Deno.test("encodeHeader() refuses what a reader would refuse", () => {
  const m = new Metadata("m");
  const header = (name: string, ne = [1], type = f32) => () => encodeHeader(m, [{ name, type, ne }]);
  assert.throws(header(""), { code: "format.bad_name" });
  assert.throws(header("x".repeat(64)), { code: "format.bad_name" });
  assert.throws(header("a\0b"), { code: "format.bad_name" });
  assert.throws(header("a", [0]), { code: "format.tensor_shape" });
  assert.throws(header("a", [1, 1, 1, 1, 1]), { code: "format.tensor_shape" });
  assert.throws(header("a", [100], ggmlType("q4_K")), { code: "format.tensor_shape", message: /100.*256.*q4_K/ });
  assert.throws(() => encodeHeader(m, [{ name: "a", type: f32, ne: [1] }, { name: "a", type: f32, ne: [1] }]), {
    code: "format.duplicate_tensor",
  });
  assert.throws(() => encodeHeader(m, [], 48), { code: "format.alignment" });
  assert.throws(() => encodeHeader(new Metadata("m", [["", ggufValue.u8(1)]]), []), { code: "format.bad_name" });
});

Deno.test("encodeHeader() pads with zeros unless told not to", () => {
  const m = everyValue();
  const padded = encodeHeader(m, []);
  const bare = encodeHeader(m, [], 32, false);
  assert.equal(padded.length % 32, 0);
  assert.ok(bare.length < padded.length);
  assert.deepEqual(padded.subarray(0, bare.length), bare);
  assert.ok(padded.subarray(bare.length).every((b) => b === 0));
});

const text = fc.string({ unit: "binary", maxLength: 12 });
const scalars: Record<ScalarType, fc.Arbitrary<GgufValue>> = {
  u8: fc.integer({ min: 0, max: 255 }).map(ggufValue.u8),
  i8: fc.integer({ min: -128, max: 127 }).map(ggufValue.i8),
  u16: fc.integer({ min: 0, max: 65535 }).map(ggufValue.u16),
  i16: fc.integer({ min: -32768, max: 32767 }).map(ggufValue.i16),
  u32: fc.integer({ min: 0, max: 4294967295 }).map(ggufValue.u32),
  i32: fc.integer({ min: -2147483648, max: 2147483647 }).map(ggufValue.i32),
  f32: fc.float({ noNaN: true }).map(ggufValue.f32),
  f64: fc.double({ noNaN: true }).map(ggufValue.f64),
  bool: fc.boolean().map(ggufValue.bool),
  str: fc.oneof(text, fc.uint8Array({ maxLength: 9 })).map(ggufValue.str),
  u64: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }).map(ggufValue.u64),
  i64: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map(ggufValue.i64),
};
const arrays: fc.Arbitrary<GgufValue>[] = [
  fc.array(fc.oneof(text, fc.uint8Array({ maxLength: 5 })), { maxLength: 6 }).map((a) => ({
    type: "array",
    elem: "str",
    value: StringArray.from(a),
  })),
  fc.int32Array().map((value) => ({ type: "array", elem: "i32", value })),
  fc.float32Array().map((value) => ({ type: "array", elem: "f32", value })),
  fc.bigInt64Array().map((value) => ({ type: "array", elem: "i64", value })),
];
const key = fc.string({ unit: "grapheme", minLength: 1, maxLength: 20 }).filter((k) =>
  k.isWellFormed() && !k.includes("\0") && !["general.alignment", "split.count"].includes(k)
);
const tensor = fc.record({
  name: fc.stringMatching(/^[a-z0-9_.]{1,40}$/),
  type: fc.constantFrom(...GGML_TYPES),
  blocks: fc.integer({ min: 1, max: 3 }),
  rest: fc.array(fc.integer({ min: 1, max: 3 }), { maxLength: 3 }),
}).map(({ name, type, blocks, rest }) => ({ name, type, ne: [blocks * type.block, ...rest] }));

Deno.test("encodeHeader() of what openGguf() read is the header again, whatever the metadata and tensors", () => {
  fc.assert(
    fc.property(
      fc.uniqueArray(fc.tuple(key, fc.oneof(...Object.values(scalars), ...arrays)), { selector: ([k]) => k }),
      fc.uniqueArray(tensor, { selector: (t) => t.name, maxLength: 5 }),
      fc.constantFrom(1, 8, 32, 4096),
      (entries, tensors, alignment) => {
        const metadata = new Metadata("p", entries).set("general.alignment", ggufValue.u32(alignment));
        const target = bufferTarget();
        const out = GgufWriter.create({ path: target, metadata, tensors, alignment });
        for (let t = out.next; t; t = out.next) {
          const bytes = t.ne.reduce((a, b) => a * b) / t.type.block * t.type.bytes;
          out.writeTensor(t.name, new Uint8Array(bytes).fill(5));
        }
        out.finish();
        const bytes = target.take();
        const file = openGguf(bufferSource("p", bytes));
        assert.equal(file.tensors.length, tensors.length);
        for (const t of file.tensors) assert.ok(file.readTensor(t).every((b) => b === 5));
        const header = encodeHeader(file.metadata, file.tensors, file.alignment);
        assert.deepEqual(header, bytes.slice(0, header.length));
      },
    ),
    { numRuns: 150 },
  );
});
