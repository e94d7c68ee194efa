import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { bufferSource, type ByteSource, encodeUtf8 } from "../bytes.ts";
import { FormatError } from "../errors.ts";
import { Raw, smallFile } from "./_testing.ts";
import { openGguf } from "./read.ts";

/** Opens and expects a refusal that names the file; returns it. */
function refusal(source: ByteSource): FormatError {
  try {
    openGguf(source, { open: () => assert.fail("opened another file") });
  } catch (error) {
    assert.ok(error instanceof FormatError, `${error}`);
    assert.ok(error.message.includes(source.name), error.message);
    assert.ok(error.message.length < 500 && !error.message.endsWith("."), error.message);
    return error;
  }
  return assert.fail("was opened");
}

const key = (type: number) => new Raw().head(0, 1).str("k").u32(type);
const one = (ne: (bigint | number)[], type = 0, offset: bigint | number = 0) =>
  new Raw().head(1, 0).info("t", ne, type, offset).data(64);
const alignment = (type: number, n: number) => new Raw().head(0, 1).str("general.alignment").u32(type).u32(n).data(0);

const CASES: [what: string, bytes: Raw, code: string, message: RegExp][] = [
  ["an empty file", new Raw(), "format.not_fetched", /is empty/],
  [
    "a Git LFS pointer",
    new Raw().bytes(encodeUtf8("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 42\n")),
    "format.not_fetched",
    /Git LFS pointer.*42 bytes/,
  ],
  [
    "another magic",
    new Raw().bytes(encodeUtf8("ggml----------")),
    "format.bad_magic",
    /67 67 6d 6c, expected 47 47 55/,
  ],
  ["version 1", new Raw().head(0, 0, 1), "format.version", /version 1, expected 2 or 3/],
  ["version 4", new Raw().head(0, 0, 4), "format.version", /version 4/],
  ["version 0", new Raw().head(0, 0, 0), "format.version", /version 0/],
  ["big-endian", new Raw().bytes(encodeUtf8("GGUF")).bytes([0, 0, 0, 3]), "format.big_endian", /big-endian/],
  ["2^40 keys", new Raw().head(0, 2n ** 40n).data(64), "format.truncated", /the key count.*present/],
  ["2^63 tensors", new Raw().head(2n ** 63n, 0).data(64), "format.truncated", /the tensor count/],
  ["-1 keys", new Raw().head(0, -1n).data(64), "format.truncated", /the key count/],
  ["a string of 2^62", key(8).u64(2n ** 62n).data(64), "format.truncated", /wants 4611686018427387904 bytes/],
  ["a string of 2^64-1", key(8).u64(-1n).data(64), "format.truncated", /key "k"/],
  ["an array of 2^60 u32", key(9).u32(4).u64(2n ** 60n).data(64), "format.truncated", /elements of key "k"/],
  ["an array of 2^60 strings", key(9).u32(8).u64(2n ** 60n).data(64), "format.truncated", /elements of key "k"/],
  ["an array of 2^64-1 bytes", key(9).u32(0).u64(-1n).data(64), "format.truncated", /elements of key "k"/],
  [
    "a long string in an array",
    key(9).u32(8).u64(2).u64(1).u8(65).u64(2n ** 61n).data(64),
    "format.truncated",
    /string 1/,
  ],
  ["an array of arrays", key(9).u32(9).u64(1).u32(0).u64(0).data(64), "format.value_type", /array of arrays/],
  ["a value type of 13", key(13).data(64), "format.value_type", /is 13, expected 0 to 12/],
  ["an element type of 99", key(9).u32(99).u64(0).data(64), "format.value_type", /element type.* is 99/],
  ["a bool of 2", key(7).u8(2).data(8), "format.bad_value", /a bool of 2/],
  ["a bool of 9 in an array", key(9).u32(7).u64(2).u8(1).u8(9).data(8), "format.bad_value", /element 1.*bool of 9/],
  ["an empty key", new Raw().head(0, 1).str("").u32(0).u8(0).data(64), "format.bad_key", /has 0 bytes/],
  ["a long key", new Raw().head(0, 1).str("x".repeat(65536)).u32(0).u8(0), "format.bad_key", /65536 bytes/],
  ["a NUL in a key", new Raw().head(0, 1).str("a\0b").u32(0).u8(0).data(8), "format.bad_key", /NUL/],
  [
    "a key that is not text",
    new Raw().head(0, 1).str(Uint8Array.of(0xff)).u32(0).u8(0).data(8),
    "format.bad_key",
    /UTF-8/,
  ],
  [
    "a key twice",
    new Raw().head(0, 2).str("k").u32(0).u8(1).str("k").u32(0).u8(1).data(8),
    "format.duplicate_key",
    /key "k" is there twice/,
  ],
  ["alignment 0", alignment(4, 0), "format.alignment", /u32 0/],
  ["alignment 48", alignment(4, 48), "format.alignment", /u32 48/],
  ["alignment 2^21", alignment(4, 2 ** 21), "format.alignment", /at most 1048576/],
  ["alignment as i32", alignment(5, 32), "format.alignment", /i32 32/],
  ["no tensor name", new Raw().head(1, 0).info("", [1], 0, 0).data(64), "format.bad_tensor_name", /0 bytes/],
  [
    "a tensor name of 64",
    new Raw().head(1, 0).info("x".repeat(64), [1], 0, 0).data(64),
    "format.bad_tensor_name",
    /64 bytes/,
  ],
  ["a NUL in a tensor name", new Raw().head(1, 0).info("a\0", [1], 0, 0).data(64), "format.bad_tensor_name", /NUL/],
  [
    "a tensor twice",
    new Raw().head(2, 0).info("t", [1], 0, 0).info("t", [1], 0, 32).data(64),
    "format.duplicate_tensor",
    /"t" is there twice/,
  ],
  ["5 dimensions", one([1, 1, 1, 1, 1]), "format.tensor_shape", /"t" has 5 dimensions/],
  ["9 dimensions", one([1, 1, 1, 1, 1, 1, 1, 1, 1]), "format.tensor_shape", /"t" has 9 dimensions/],
  [
    "2^32-1 dimensions",
    new Raw().head(1, 0).str("t").u32(2 ** 32 - 1).data(64),
    "format.tensor_shape",
    /4294967295 dim/,
  ],
  ["dimensions of 0", one([0, 0]), "format.tensor_shape", /dimension of 0/],
  ["a second dimension of 0", one([4, 0]), "format.tensor_shape", /\[4,0\]/],
  ["a product past 2^64", one([1152, 4398046511105n]), "format.tensor_shape", /"t".*size overflows/],
  ["a product that wraps to 0", one([2n ** 32n, 2n ** 32n]), "format.tensor_shape", /size overflows/],
  ["a negative dimension", one([-1n]), "format.tensor_shape", /size overflows/],
  ["100 columns of q4_K", one([100], 12), "format.tensor_shape", /100 elements.*256.*q4_K/],
  ["type 43", one([1], 43), "format.tensor_type", /"t" has type 43/],
  ["type 4", one([1], 4), "format.tensor_type", /Q4_2.*removed/],
  ["type 31", one([1], 31), "format.tensor_type", /Q4_0_4_4/],
  ["type 2^32-1", one([1], 2 ** 32 - 1), "format.tensor_type", /4294967295/],
  ["an offset of 4", one([1], 0, 4), "format.tensor_offset", /offset 4, which is not a multiple of the alignment 32/],
  ["an offset with a gap", one([1], 0, 32), "format.tensor_offset", /offset 32, expected 0/],
  ["an offset of 2^40", one([1], 0, 2n ** 40n), "format.tensor_offset", /offset 1099511627776/],
  ["an offset of 2^64-32", one([1], 0, 2n ** 64n - 32n), "format.tensor_offset", /"t"/],
  [
    "tensors on top of each other",
    new Raw().head(2, 0).info("a", [8], 0, 0).info("b", [8], 0, 0).data(64),
    "format.tensor_offset",
    /"b" starts at offset 0, expected 32/,
  ],
  ["data past the end", one([1000]), "format.truncated", /"t" ends at byte \d+, \d+ are present/],
  ["data far past the end", one([2n ** 50n]), "format.truncated", /"t" ends at/],
];

for (const [what, bytes, code, message] of CASES) {
  Deno.test(`openGguf() refuses ${what}`, () => {
    const error = refusal(bytes.source());
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
  });
}

Deno.test("openGguf() refuses what asks for exabytes without taking memory", () => {
  const hostile = CASES.map(([, bytes]) => bytes.source());
  for (const source of hostile) refusal(source); // warm
  const rss = Deno.memoryUsage().rss;
  for (let round = 0; round < 20; round++) for (const source of hostile) refusal(source);
  assert.ok(Deno.memoryUsage().rss - rss < 50e6);
});

Deno.test("openGguf() refuses a file cut at any byte before its data ends", () => {
  const whole = smallFile();
  const dataEnd = whole.length - 8; // the last tensor has 24 bytes and 8 of padding
  for (let n = 0; n < whole.length; n++) {
    const source = bufferSource("cut.gguf", whole.subarray(0, n));
    if (n >= dataEnd) openGguf(source);
    else {
      const { code, at } = refusal(source);
      assert.ok(code === "format.truncated" || code === "format.not_fetched", `${code} at ${n}`);
      if (code === "format.truncated") assert.ok(typeof at.wanted === "number" && typeof at.present === "number");
    }
  }
});

/** Runs on damaged bytes: either a refusal, or a file whose tensors can all be read. */
function survives(bytes: Uint8Array): void {
  const source = bufferSource("fuzz.gguf", bytes);
  const absent = () => {
    throw new FormatError("format.unreadable", "absent", { cause: new Deno.errors.NotFound() });
  };
  try {
    const file = openGguf(source, { open: absent });
    for (const t of file.tensors) assert.equal(file.readTensor(t).length, t.bytes);
  } catch (error) {
    assert.ok(error instanceof FormatError, `${error} ${(error as Error).stack}`);
  }
}

Deno.test("openGguf() survives every byte of a file set to 0, 255 and its complement", () => {
  const whole = smallFile();
  for (let i = 0; i < whole.length; i++) {
    for (const b of [0, 255, ~whole[i] & 255]) {
      const bytes = whole.slice();
      bytes[i] = b;
      survives(bytes);
    }
  }
});

Deno.test("openGguf() survives random edits", () => {
  const whole = smallFile();
  const edit = fc.tuple(fc.nat(whole.length - 1), fc.uint8Array({ minLength: 1, maxLength: 9 }));
  fc.assert(
    fc.property(fc.array(edit, { minLength: 1, maxLength: 4 }), fc.nat(whole.length), (edits, length) => {
      const bytes = whole.slice();
      for (const [at, patch] of edits) bytes.set(patch.subarray(0, bytes.length - at), at);
      survives(bytes);
      survives(bytes.slice(0, length));
    }),
    { numRuns: 3000 },
  );
});

Deno.test("openGguf() survives random bytes after a good start", () => {
  fc.assert(
    fc.property(fc.nat(3), fc.nat(3), fc.uint8Array({ maxLength: 300 }), (tensors, keys, tail) => {
      survives(new Raw().head(tensors, keys).bytes(tail).take());
    }),
    { numRuns: 3000 },
  );
});
