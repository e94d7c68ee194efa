import assert from "node:assert/strict";
import { everyValue, smallFile } from "../core/gguf/_testing.ts";
import { bufferSource } from "../core/bytes.ts";
import { ggufValue, Metadata } from "../core/gguf/metadata.ts";
import { type GgufFile, openGguf } from "../core/gguf/read.ts";
import { GGML_TYPES, ggmlType } from "../core/gguf/types.ts";
import { bufferTarget, GgufWriter } from "../core/gguf/write.ts";
import { inspectGguf } from "./inspect.ts";
import { checkGguf } from "./inspect_check.ts";
import { diffGguf } from "./inspect_diff.ts";
import { printable, renderCheck, renderDiff, renderReport } from "./inspect_text.ts";

/** A file of one tensor per entry, with these bytes. */
function fileOf(
  tensors: readonly { name: string; type: string; ne: number[]; bytes: Uint8Array }[],
  metadata: Metadata = new Metadata("m", [["general.quantization_version", ggufValue.u32(2)]]),
): GgufFile {
  const target = bufferTarget("m.gguf");
  const infos = tensors.map((t) => ({ name: t.name, type: ggmlType(t.type), ne: t.ne }));
  const out = GgufWriter.create({ path: target, metadata, tensors: infos });
  for (const t of tensors) out.writeTensor(t.name, t.bytes);
  out.finish();
  return openGguf(bufferSource("m.gguf", target.take()));
}

Deno.test("inspectGguf() counts tensors, parameters, bytes and bits per weight", () => {
  const metadata = everyValue().set("general.file_type", ggufValue.u32(15));
  const file = openGguf(bufferSource("small.gguf", smallFile(metadata)));
  const r = inspectGguf(file);
  assert.equal(r.architecture, "llama");
  assert.equal(r.file_type, "Q4_K_M");
  assert.equal(r.n_tensors, 3);
  assert.equal(r.n_parameters, 192 + 8 + 12);
  assert.equal(r.tensor_bytes, 108 + 32 + 24);
  assert.equal(r.bits_per_weight, 164 * 8 / 212);
  assert.deepEqual(r.types[0], { type: "q4_0", n_tensors: 1, n_parameters: 192, bytes: 108, bits_per_weight: 4.5 });
  assert.deepEqual(r.tensors[2].ne, [3, 2, 2]);
  const key = (name: string) => r.metadata.find((k) => k.key === name)!;
  assert.deepEqual(key("v.u64").value, "18446744073709551615");
  assert.deepEqual(key("a.bools").value, [true, false]);
  assert.deepEqual(key("a.f32s").value, [0.25, -1, "NaN"]);
  assert.deepEqual(key("a.strs"), { key: "a.strs", type: "array", elem: "str", length: 5, value: key("a.strs").value });
  assert.deepEqual(JSON.parse(JSON.stringify(r)).n_tensors, 3);
});

Deno.test("inspectGguf() shortens arrays, and shows f32 values as they were meant", () => {
  const many = new Metadata("m", [
    ["tokens", ggufValue.strs(Array.from({ length: 100 }, (_, i) => `t${i}`))],
    ["eps", ggufValue.f32(1e-5)],
    ["pi", ggufValue.f32(Math.PI)],
  ]);
  const file = fileOf([], many);
  const value = (limit: number, i: number) => inspectGguf(file, { arrayElements: limit }).metadata[i].value;
  assert.deepEqual(value(2, 0), ["t0", "t1"]);
  assert.equal((value(Infinity, 0) as unknown[]).length, 100);
  assert.equal(value(2, 1), 0.00001);
  assert.equal(value(2, 2), 3.1415927);
});

Deno.test("renderReport() shows all parts and no control characters of the file", () => {
  const hostile = new Metadata("m", [
    ["general.name", ggufValue.str("\x1b]0;owned\x07\u202e")],
    ["k\x1b[2J", ggufValue.str("\x9b31m")],
  ]);
  const file = fileOf([{ name: "t\x1b", type: "f32", ne: [2], bytes: new Uint8Array(8) }], hostile);
  const text = renderReport(inspectGguf(file));
  // deno-lint-ignore no-control-regex
  assert.doesNotMatch(text.replaceAll("\n", ""), /[\x00-\x1f\x7f-\x9f\u202e]/);
  assert.match(text, /1 tensors/);
  assert.match(text, /t\\u\{1b\}/);
  assert.equal(printable("a\u0000é"), "a\\u{0}é");
  assert.match(renderReport(inspectGguf(fileOf([]))), /0 tensors/);
});

/** Bytes of two rows of two blocks whose scales are all 1.0, or as near as the type has it. */
function healthy(type: string): { ne: number[]; bytes: Uint8Array } {
  const t = ggmlType(type);
  return { ne: [2 * t.block, 2], bytes: new Uint8Array(4 * t.bytes) };
}

/** Where in a block of each type the upper byte of a scale, or of a number, lies. */
const UPPER_BYTES: Record<string, number[]> = {
  f32: [3],
  f16: [1],
  bf16: [1],
  f64: [7],
  q4_0: [1],
  q4_1: [1, 3],
  q5_0: [1],
  q5_1: [1, 3],
  q8_0: [1],
  q8_1: [1, 3],
  q2_K: [81, 83],
  q3_K: [109],
  q4_K: [1, 3],
  q5_K: [1, 3],
  q6_K: [209],
  q8_K: [3],
  iq2_xxs: [1],
  iq2_xs: [1],
  iq2_s: [1],
  iq3_xxs: [1],
  iq3_s: [1],
  iq1_s: [1],
  iq4_nl: [1],
  iq4_xs: [1],
  tq1_0: [53],
  tq2_0: [65],
  q1_0: [1],
  q2_0: [1],
};

for (const { name: type, bytes: size, block } of GGML_TYPES) {
  Deno.test(`checkGguf() finds scales of ${type} that are not finite`, async () => {
    const good = healthy(type);
    assert.ok((await checkGguf(fileOf([{ name: "t", type, ...good }]))).ok);
    if (/^i\d/.test(type) || type === "nvfp4") {
      const all = { ...good, bytes: good.bytes.map(() => 255) };
      assert.ok((await checkGguf(fileOf([{ name: "t", type, ...all }]))).ok);
      return;
    }
    const places: number[][] = type === "mxfp4"
      ? [[0]]
      : type === "iq1_m"
      ? [[53, 55]]
      : UPPER_BYTES[type].map((at) => [at - 1, at]);
    for (const place of places) {
      const bytes = good.bytes.slice();
      for (const at of place) bytes[3 * size + at] = 255; // the last block: row 1, second block
      const r = await checkGguf(fileOf([{ name: "t", type, ne: good.ne, bytes }]));
      assert.equal(r.ok, false);
      const [p] = r.problems;
      assert.deepEqual([p.tensor, p.row, p.column, p.count], ["t", 1, block, 1]);
      assert.match(renderCheck(r), /problem: m\.gguf: tensor "t": 1 (scale|value) is not finite.*row 1/);
    }
  });
}

Deno.test("checkGguf() tells finite halves from others, whatever their neighbours", async () => {
  for (const [type, exponent] of [["f16", 0x7c00], ["bf16", 0x7f80]] as const) {
    // Every number of 16 bits, in an order that pairs unlike ones, and one more so that the last stands alone.
    const x = Uint16Array.from({ length: 65537 }, (_, i) => Math.imul(i, 40503));
    const file = fileOf([{ name: "t", type, ne: [65537], bytes: new Uint8Array(x.buffer) }]);
    const [p] = (await checkGguf(file)).problems;
    const bad = (n: number) => (n & exponent) === exponent;
    assert.equal(p.count, x.filter(bad).length);
    assert.equal(p.column, x.findIndex(bad));
  }
});

Deno.test("checkGguf() warns of padding that is not zero and of bytes after the end", async () => {
  const whole = smallFile();
  whole[whole.length - 1] = 1;
  const bytes = new Uint8Array(whole.length + 5);
  bytes.set(whole);
  const r = await checkGguf(openGguf(bufferSource("p.gguf", bytes)));
  // The fixture's numbers are arbitrary bytes; only its warnings count here.
  assert.deepEqual(r.warnings.map((w) => w.message), [
    "the padding after its data is not zero",
    "5 bytes follow the last tensor",
    'key "general.quantization_version" is missing',
  ]);
});

Deno.test("checkGguf() can be stopped and tells progress", async () => {
  const file = openGguf(bufferSource("s.gguf", smallFile()));
  const seen: number[] = [];
  await checkGguf(file, { onProgress: (done, total) => seen.push(done / total) });
  assert.equal(seen.at(-1), 1);
  await assert.rejects(checkGguf(file, { signal: AbortSignal.abort(new Error("stop")) }), /stop/);
});

Deno.test("diffGguf() finds keys, types, shapes and bytes that differ", async () => {
  const meta = (name: string, more: [string, ReturnType<typeof ggufValue.u32>][] = []) =>
    new Metadata("m", [["name", ggufValue.str(name)], ["split.no", ggufValue.u16(name.length)], ...more]);
  const f32 = (name: string, n: number, fill = 0) => ({
    name,
    type: "f32",
    ne: [4, n],
    bytes: new Uint8Array(16 * n).fill(fill),
  });
  const changed = f32("bytes", 3);
  changed.bytes[40] = 1;
  changed.bytes[47] = 1;
  const a = fileOf(
    [f32("same", 1), f32("bytes", 3), f32("shape", 1), f32("gone", 1)],
    meta("a", [["x", ggufValue.u32(1)]]),
  );
  const b = fileOf([changed, f32("same", 1), f32("shape", 2), f32("new", 1)], meta("bb", [["y", ggufValue.u32(1)]]));
  const d = await diffGguf(a, b);
  assert.equal(d.same, false);
  assert.equal(d.n_same, 1);
  assert.deepEqual(d.metadata, [
    { key: "name", a: 'str "a"', b: 'str "bb"' },
    { key: "x", a: "u32 1" },
    { key: "y", b: "u32 1" },
  ]);
  assert.deepEqual(d.tensors.map((t) => [t.name, t.bytes, t.row]), [
    ["bytes", 2, 2],
    ["shape", undefined, undefined],
    ["gone", undefined, undefined],
    ["new", undefined, undefined],
  ]);
  const text = renderDiff(d);
  assert.match(text, /bytes +f32 \[4, 3\]: 2 bytes, the first in row 2/);
  assert.match(text, /gone +f32 \[4\] -> absent/);
  assert.equal((await diffGguf(a, b, { headersOnly: true })).tensors.length, 3);
});

Deno.test("diffGguf() takes files for the same whatever their order, and says where long values part", async () => {
  const t = (name: string) => ({ name, type: "f32", ne: [1], bytes: new Uint8Array(4) });
  const [x, y] = [["x", ggufValue.u8(1)], ["y", ggufValue.f32(NaN)]] as const;
  const order = await diffGguf(
    fileOf([t("a"), t("b")], new Metadata("m", [x, y])),
    fileOf([t("b"), t("a")], new Metadata("m", [y, x])),
  );
  assert.ok(order.same && order.key_order && order.tensor_order);
  const tokens = (last: string) =>
    fileOf(
      [],
      new Metadata("m", [["t", ggufValue.strs(["a", "b", last])], ["s", ggufValue.str("x".repeat(99) + last)]]),
    );
  const d = await diffGguf(tokens("c"), tokens("d"));
  assert.deepEqual(d.metadata[0], { key: "t", a: 'array of 3 str, at 2 "c"', b: 'array of 3 str, at 2 "d"' });
  assert.match(d.metadata[1].a!, /100 bytes, differs at 99/);
});
