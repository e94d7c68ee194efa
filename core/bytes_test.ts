import assert from "node:assert/strict";
import {
  bufferSource,
  ByteCursor,
  decodeLossy,
  decodeUtf8,
  emptyOrPointer,
  encodeUtf8,
  fileSource,
  writeText,
} from "./bytes.ts";

Deno.test("ByteCursor reads across its windows as from one buffer", () => {
  const bytes = new Uint8Array(1_000_003);
  for (let i = 0; i < bytes.length; i++) bytes[i] = (i * 7) & 127;
  const view = new DataView(bytes.buffer);
  const cursor = new ByteCursor(bufferSource("b", bytes));
  let at = 0;
  let step = 0;
  while (cursor.remaining > 400_000) {
    assert.equal(cursor.position, at);
    assert.equal(cursor.u64("x"), view.getBigUint64(at, true));
    assert.equal(cursor.i16("x"), view.getInt16(at + 8, true));
    assert.equal(cursor.u8("x"), bytes[at + 10]);
    assert.equal(cursor.f32("x"), view.getFloat32(at + 11, true));
    at += 15;
    const n = (step++ * 7919) % 300_000; // below and above a window
    assert.deepEqual(cursor.bytes(n, "x"), bytes.slice(at, at + n));
    at += n;
    assert.equal(cursor.text(33, "x"), decodeUtf8(bytes.slice(at, at + 33)));
    at += 33;
    cursor.skip(n % 1000, "x");
    at += n % 1000;
  }
  assert.equal(cursor.text(300_000, "x")!.length, 300_000);
});

Deno.test("ByteCursor says file, field, offset, wanted and present when bytes run out", () => {
  const cursor = new ByteCursor(bufferSource("f.bin", new Uint8Array(10)));
  cursor.skip(4, "start");
  for (
    const read of [
      () => cursor.u64("the field"),
      () => cursor.bytes(8, "the field"),
      () => cursor.bytes(2 ** 40, () => "the field"),
      () => cursor.skip(7, "the field"),
      () => cursor.text(7, "the field"),
    ]
  ) {
    assert.throws(read, {
      code: "format.truncated",
      message: /^Cannot read the field of f\.bin: wants \d+ bytes at 4, 6 are present$/,
    });
  }
  assert.equal(cursor.position, 4);
});

Deno.test("ByteCursor.count() holds counts against what remains, and against a limit", () => {
  const at = (n: bigint) => {
    const bytes = new Uint8Array(40);
    new DataView(bytes.buffer).setBigUint64(0, n, true);
    return new ByteCursor(bufferSource("c", bytes));
  };
  assert.equal(at(4n).count("n", 8, 10), 4);
  assert.throws(() => at(5n).count("n", 8, 10), { code: "format.truncated", message: /wants 40 bytes/ });
  assert.throws(() => at(11n).count("n", 1, 10), { code: "format.limit" });
  assert.throws(() => at(2n ** 64n - 1n).count("n", 8, 2 ** 60), { code: "format.truncated" });
});

Deno.test("ByteCursor.skipStrings() ends strings where reading them one by one does, and says which one is broken", () => {
  const lengths = Array.from({ length: 3000 }, (_, i) => i === 1000 ? 300_000 : (i * 7919) % 500); // one above a window
  const bytes = new Uint8Array(lengths.reduce((sum, n) => sum + 8 + n, 5));
  const view = new DataView(bytes.buffer);
  const expected: number[] = [];
  for (let i = 0, at = 0; i < lengths.length; i++) {
    view.setBigUint64(5 + at, BigInt(lengths[i]), true);
    expected.push(at += 8 + lengths[i]);
  }
  const walk = (data: Uint8Array, limit = 1 << 30) => {
    const cursor = new ByteCursor(bufferSource("f.bin", data));
    cursor.skip(5, "x");
    const ends = new Uint32Array(lengths.length);
    assert.equal(cursor.skipStrings(ends, (i) => `string ${i}`, limit), cursor.position - 5);
    return ends;
  };
  assert.deepEqual([...walk(bytes)], expected);
  assert.throws(() => walk(bytes.subarray(0, -1)), { code: "format.truncated", message: /string 2999 of f\.bin/ });
  assert.throws(() => walk(bytes, 299_999), { code: "format.limit", message: /string 1000 of f\.bin/ });
  view.setUint32(5 + expected[9] + 4, 1, true); // 4 GiB and more
  assert.throws(() => walk(bytes), { code: "format.truncated", message: /string 10 of f\.bin/ });
});

Deno.test("writeText() writes what the encoder writes", () => {
  for (
    const text of ["", "abc", "\0\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff", "a\u{1f600}b\u{10ffff}", "x\ud800y", "\udc00"]
  ) {
    const out = new Uint8Array(3 + text.length * 3);
    assert.deepEqual(out.slice(3, writeText(text, out, 3)), encodeUtf8(text), JSON.stringify(text));
  }
});

Deno.test("decodeUtf8() is exact and decodeLossy() never fails", () => {
  for (const text of ["", "abc", "é", "\ufeffx", "a".repeat(100), "한국어".repeat(50)]) {
    assert.equal(decodeUtf8(encodeUtf8(text)), text);
  }
  for (const bytes of [[0x80], [0xc3], [0xed, 0xa0, 0x80], [0xff, 65]]) {
    assert.equal(decodeUtf8(Uint8Array.from(bytes)), undefined);
    assert.match(decodeLossy(Uint8Array.from(bytes)), /\ufffd/);
  }
});

Deno.test("fileSource() reads ranges, also when the file shrinks meanwhile", () => {
  const path = Deno.makeTempFileSync();
  Deno.writeFileSync(path, Uint8Array.of(1, 2, 3, 4, 5));
  const source = fileSource(path);
  try {
    assert.equal(source.size, 5);
    assert.deepEqual([...source.read(1, 3)], [2, 3, 4]);
    assert.throws(() => source.read(3, 3), { code: "format.truncated", message: /wants 3 bytes at 3, 2 are present/ });
    Deno.truncateSync(path, 2);
    assert.throws(() => source.read(1, 3), { code: "format.truncated", message: /wants 3 bytes at 1, 1 are present/ });
  } finally {
    source.close();
    source.close();
    Deno.removeSync(path);
  }
});

Deno.test("emptyOrPointer() tells files that hold nothing", () => {
  const of = (text: string) => emptyOrPointer(bufferSource("p", encodeUtf8(text)))?.what;
  assert.match(of("")!, /empty/);
  assert.match(of("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 12\n")!, /LFS pointer.*\(12 bytes\)/);
  assert.equal(of("GGUF"), undefined);
});
