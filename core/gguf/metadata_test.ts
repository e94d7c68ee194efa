import assert from "node:assert/strict";
import { ModelError } from "../errors.ts";
import { ggufValue, Metadata, StringArray } from "./metadata.ts";

const meta = new Metadata("m.gguf", [
  ["n", ggufValue.u64(7)],
  ["neg", ggufValue.i8(-1)],
  ["big", ggufValue.u64(2n ** 60n)],
  ["f", ggufValue.f64(0.5)],
  ["yes", ggufValue.bool(true)],
  ["text", ggufValue.str("hi")],
  ["words", ggufValue.strs(["a", "b"])],
  ["ids", { type: "array", elem: "i64", value: BigInt64Array.of(1n, -2n) }],
  ["long", { type: "array", elem: "u64", value: BigUint64Array.of(2n ** 40n) }],
  ["scale", ggufValue.f32s([1, 2])],
]);

function rejects(code: string, run: () => unknown): void {
  assert.throws(run, (e: unknown) => {
    assert.ok(e instanceof ModelError);
    assert.equal(e.code, code);
    assert.match(e.message, /m\.gguf/);
    assert.equal(e.at.file, "m.gguf");
    return true;
  });
}

Deno.test("Metadata getters take any integer width", () => {
  assert.equal(meta.u32("n"), 7);
  assert.equal(meta.int("neg"), -1);
  assert.equal(meta.f32("n"), 7);
  assert.equal(meta.f32("f"), 0.5);
  assert.equal(meta.bool("yes"), true);
  assert.equal(meta.str("text"), "hi");
  assert.deepEqual(meta.strs("words").toArray(), ["a", "b"]);
  assert.deepEqual([...meta.ints("ids")], [1, -2]);
  assert.deepEqual([...meta.floats("scale")], [1, 2]);
});

Deno.test("Metadata getters give the default only for an absent key", () => {
  assert.equal(meta.u32("absent", 3), 3);
  assert.equal(meta.str("absent", undefined), undefined);
  rejects("model.key_type", () => meta.u32("text", 3));
});

Deno.test("Metadata getters name file and key when missing or of the wrong type", () => {
  rejects("model.missing_key", () => meta.u32("absent"));
  for (const key of ["neg", "big", "f", "yes", "text", "words"]) rejects("model.key_type", () => meta.u32(key));
  rejects("model.key_type", () => meta.int("big"));
  rejects("model.key_type", () => meta.f32("text"));
  rejects("model.key_type", () => meta.bool("n"));
  rejects("model.key_type", () => meta.str("n"));
  rejects("model.key_type", () => meta.strs("ids"));
  rejects("model.key_type", () => meta.ints("scale"));
  rejects("model.key_type", () => meta.ints("long"));
  rejects("model.key_type", () => meta.floats("ids"));
});

Deno.test("Metadata.perLayer() spreads a scalar and checks the length of an array", () => {
  assert.deepEqual(meta.perLayer("n", 3), [7, 7, 7]);
  assert.deepEqual(meta.perLayer("scale", 2), [1, 2]);
  assert.deepEqual(meta.perLayer("scale", 1), [1]);
  assert.deepEqual(meta.perLayer("ids", 2), [1, -2]);
  assert.equal(meta.perLayer("absent", 2, undefined), undefined);
  rejects("model.key_type", () => meta.perLayer("scale", 3));
  rejects("model.key_type", () => meta.perLayer("words", 1));
  rejects("model.key_type", () => meta.perLayer("text", 1));
});

Deno.test("Metadata keeps its order: set() in place, append() at the end", () => {
  const m = new Metadata("m", [["a", ggufValue.u8(1)], ["b", ggufValue.u8(2)]]);
  m.set("a", ggufValue.u8(3)).set("c", ggufValue.u8(4));
  assert.deepEqual([...m.keys()], ["a", "b", "c"]);
  m.append("a", ggufValue.u8(5));
  assert.deepEqual([...m.keys()], ["b", "c", "a"]);
  const copy = m.clone();
  copy.remove("b");
  assert.equal(m.size, 3);
  assert.equal(copy.size, 2);
});

Deno.test("StringArray keeps bytes that are not text", () => {
  const a = StringArray.from(["x", Uint8Array.of(0xff), "\ufeffy", ""]);
  assert.equal(a.length, 4);
  assert.deepEqual(a.bytesAt(1), Uint8Array.of(0xff));
  assert.deepEqual([...a], ["x", "\ufffd", "\ufeffy", ""]);
  assert.throws(() => a.at(4), RangeError);
  assert.throws(() => a.at(-1), RangeError);
});
