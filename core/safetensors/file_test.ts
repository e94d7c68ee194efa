import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { bufferSource } from "../bytes.ts";
import { FormatError } from "../errors.ts";
import { rawSafetensors, smallSafetensors } from "./_testing.ts";
import { duplicateKey } from "./duplicate_key.ts";
import { openSafetensors, SAFETENSORS_DTYPES } from "./file.ts";

function refusal(bytes: Uint8Array): FormatError {
  try {
    openSafetensors(bufferSource("x.safetensors", bytes));
  } catch (error) {
    assert.ok(error instanceof FormatError, `${error}`);
    assert.ok(error.message.includes("x.safetensors"), error.message);
    return error;
  }
  return assert.fail("was opened");
}

Deno.test("openSafetensors() reads every dtype by name, empty tensors and scalars", () => {
  const header: Record<string, unknown> = {};
  let end = 0;
  for (const [dtype, bits] of Object.entries(SAFETENSORS_DTYPES)) {
    header[dtype] = { dtype, shape: [2, 4], data_offsets: [end, end += bits] };
  }
  header.empty = { dtype: "F32", shape: [0, 7], data_offsets: [end, end] };
  header.scalar = { dtype: "F32", shape: [], data_offsets: [end, end += 4] };
  const bytes = rawSafetensors(JSON.stringify(header) + "   ", end);
  const file = openSafetensors(bufferSource("all", bytes));
  assert.equal(file.tensors.size, Object.keys(header).length);
  for (const [dtype, bits] of Object.entries(SAFETENSORS_DTYPES)) {
    const t = file.tensors.get(dtype)!;
    assert.equal(t.bytes, bits);
    assert.equal(file.readTensor(t).length, bits);
  }
  const f64 = file.tensors.get("F64")!;
  assert.deepEqual([...file.readTensor(f64, 2, 3)], [3, 4, 5]);
  assert.throws(() => file.readTensor(f64, 60, 5), RangeError);
  assert.equal(file.readTensor(file.tensors.get("scalar")!).length, 4);
});

Deno.test("openSafetensors() gives tensors in the order of their data and the header's metadata", () => {
  const header = {
    b: { dtype: "U8", shape: [1], data_offsets: [2, 3] },
    __metadata__: { format: "pt" },
    a: { dtype: "U8", shape: [2], data_offsets: [0, 2] },
  };
  const file = openSafetensors(bufferSource("f", rawSafetensors(JSON.stringify(header), 3)));
  assert.deepEqual([...file.tensors.keys()], ["a", "b"]);
  assert.deepEqual(file.metadata, { format: "pt" });
});

const t = (fields: string) => rawSafetensors(`{"t":{${fields}}}`, 8);
const CASES: [what: string, bytes: Uint8Array, code: string, message: RegExp][] = [
  ["an empty file", new Uint8Array(0), "format.not_fetched", /is empty/],
  [
    "a Git LFS pointer",
    new TextEncoder().encode("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 976\n"),
    "format.not_fetched",
    /LFS pointer.*976/,
  ],
  ["a file of 5 bytes", new Uint8Array(5), "format.truncated", /header length/],
  ["a header of 2^62", rawSafetensors("{}", 0, 2n ** 62n), "format.limit", /4611686018427387904/],
  ["a header of 2^64-1", rawSafetensors("{}", 0, -1n), "format.limit", /at most 100000000/],
  ["a header past the end", rawSafetensors("{}", 0, 99n), "format.truncated", /the header.*99 bytes/],
  ["a header that is not text", rawSafetensors("{}", 9, 4n), "format.bad_json", /not JSON/],
  ["a header that is an array", rawSafetensors("[]", 0), "format.bad_json", /expected {/],
  ["an empty header", rawSafetensors("", 0), "format.bad_json", /expected {/],
  ["metadata that is no strings", rawSafetensors('{"__metadata__":{"a":1}}', 0), "format.bad_json", /__metadata__/],
  ["a tensor that is a number", rawSafetensors('{"t":1}', 0), "format.bad_json", /"t" is not an object/],
  ["an unknown dtype", t('"dtype":"F31","shape":[8],"data_offsets":[0,8]'), "format.tensor_type", /"t".*"F31"/],
  [
    "a dtype of __proto__",
    t('"dtype":"__proto__","shape":[8],"data_offsets":[0,8]'),
    "format.tensor_type",
    /__proto__/,
  ],
  ["no dtype", t('"shape":[8],"data_offsets":[0,8]'), "format.tensor_type", /undefined/],
  ["a negative size", t('"dtype":"U8","shape":[-8],"data_offsets":[0,8]'), "format.tensor_shape", /\[-8\]/],
  ["a size of 1.5", t('"dtype":"U8","shape":[1.5],"data_offsets":[0,8]'), "format.tensor_shape", /1\.5/],
  ["a shape that is a string", t('"dtype":"U8","shape":"8","data_offsets":[0,8]'), "format.tensor_shape", /"8"/],
  [
    "a shape that overflows",
    t('"dtype":"U8","shape":[4294967296,4294967296,0.0e0],"data_offsets":[0,8]'),
    "format.tensor_shape",
    /wants 0/,
  ],
  [
    "a product past 2^53",
    t('"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,8]'),
    "format.tensor_shape",
    /overflows/,
  ],
  [
    "a shape of other bytes",
    t('"dtype":"F32","shape":[3],"data_offsets":[0,8]'),
    "format.tensor_shape",
    /has 8 bytes.*wants 12/,
  ],
  ["half a byte", t('"dtype":"F4","shape":[3],"data_offsets":[0,2]'), "format.tensor_shape", /wants 1\.5/],
  ["offsets the wrong way", t('"dtype":"U8","shape":[8],"data_offsets":[8,0]'), "format.tensor_offset", /\[8,0\]/],
  ["one offset", t('"dtype":"U8","shape":[8],"data_offsets":[8]'), "format.tensor_offset", /\[8\]/],
  ["offsets past the end", t('"dtype":"U8","shape":[9],"data_offsets":[0,9]'), "format.short_file", /1 are missing/],
  ["a gap at the start", t('"dtype":"U8","shape":[4],"data_offsets":[4,8]'), "format.tensor_offset", /gap of 4 bytes/],
  ["trailing bytes", t('"dtype":"U8","shape":[4],"data_offsets":[0,4]'), "format.trailing_bytes", /4 bytes follow/],
  [
    "overlapping tensors",
    rawSafetensors(
      '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[6],"data_offsets":[2,8]}}',
      8,
    ),
    "format.tensor_offset",
    /"b" overlap/,
  ],
  [
    "a tensor twice",
    rawSafetensors(
      '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"\\u0061":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}',
      8,
    ),
    "format.duplicate_tensor",
    /"a" is in its header twice/,
  ],
  [
    "a field twice",
    t('"dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]'),
    "format.duplicate_tensor",
    /"dtype"/,
  ],
];

for (const [what, bytes, code, message] of CASES) {
  Deno.test(`openSafetensors() refuses ${what}`, () => {
    const error = refusal(bytes);
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
  });
}

Deno.test("openSafetensors() refuses a file cut at any byte", () => {
  const whole = smallSafetensors({ a: 5, b: 9 });
  openSafetensors(bufferSource("x", whole));
  for (let n = 0; n < whole.length; n++) refusal(whole.subarray(0, n));
});

Deno.test("openSafetensors() survives random edits", () => {
  const whole = smallSafetensors({ a: 5, b: 9, "c\u0000": 1 });
  const edit = fc.tuple(fc.nat(whole.length - 1), fc.oneof(fc.nat(255), fc.constantFrom(34, 44, 48, 57, 91, 123, 125)));
  fc.assert(
    fc.property(fc.array(edit, { minLength: 1, maxLength: 4 }), (edits) => {
      const bytes = whole.slice();
      for (const [at, b] of edits) bytes[at] = b;
      try {
        const file = openSafetensors(bufferSource("x.safetensors", bytes));
        for (const t of file.tensors.values()) assert.equal(file.readTensor(t).length, t.bytes);
      } catch (error) {
        assert.ok(error instanceof FormatError, `${error}`);
      }
    }),
    { numRuns: 3000 },
  );
});

Deno.test("duplicateKey() agrees with a JSON text written key by key", () => {
  const key = fc.constantFrom("a", "b", '"', "\\", "a:", "{", "é");
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof({ depthSize: "small" }, fc.nat(), key, tie("list"), tie("object")),
    list: fc.array(tie("value"), { maxLength: 3 }).map((a) => ({ list: a })),
    object: fc.array(fc.tuple(key, tie("value")), { maxLength: 3 }).map((pairs) => ({ pairs })),
  }));
  const write = (v: any): string =>
    typeof v !== "object"
      ? JSON.stringify(v)
      : v.list
      ? `[${v.list.map(write).join(" ,")}]`
      : `{${v.pairs.map(([k, x]: [string, unknown]) => `${JSON.stringify(k)} :${write(x)}`).join(", ")}}`;
  const twice = (v: any): boolean =>
    typeof v === "object" &&
      (v.list ?? v.pairs.map((p: unknown[]) => p[1])).some(twice) ||
    !!v.pairs && new Set(v.pairs.map((p: unknown[]) => p[0])).size < v.pairs.length;
  fc.assert(fc.property(value, (v) => assert.equal(duplicateKey(write(v)) !== undefined, twice(v))), { numRuns: 500 });
  assert.equal(duplicateKey(`{"${"x".repeat(1e6)}":1}`), undefined);
});
