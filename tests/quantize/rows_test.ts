/**
 * Encoded and decoded rows of every type against those of the reference, bit for bit.
 * @module
 */
import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { NativeError, UsageError } from "../../core/errors.ts";
import { ggmlType } from "../../core/gguf/types.ts";
import { openNativeBackend } from "../../ffi/backend.ts";
import { dequantizeRows, quantizeRows } from "../../quantize/rows.ts";
import { needingShared } from "../shared.ts";
import { keptRowCases, sharedRowCases, WRITTEN, wrongRows } from "./row_cases.ts";

Deno.test("quantizeRows() and dequantizeRows() give the reference's bits, for the rows the repository keeps", async () => {
  const kept = keptRowCases();
  assert(kept.cases.length > 200);
  using backend = openNativeBackend("cpu", { threads: 2 });
  assert.deepEqual(await wrongRows(backend, kept), []);
});

Deno.test({
  ...needingShared("quantizeRows() and dequantizeRows() give the reference's bits, all of them"),
  fn: async () => {
    using backend = openNativeBackend("cpu", { threads: 2 });
    assert.deepEqual(await wrongRows(backend, sharedRowCases()), []);
  },
});

Deno.test("quantizeRows() does not depend on threads or on the other rows", async () => {
  using one = openNativeBackend("cpu", { threads: 1 });
  using three = openNativeBackend("cpu", { threads: 3 });
  const n = 768;
  for (const type of WRITTEN) {
    const data = Float32Array.from({ length: 5 * n }, (_, i) => Math.sin(i * i) * (1 + i % 7));
    const weights = Float32Array.from({ length: n }, (_, i) => 0.1 + i % 5);
    const whole = await quantizeRows(three, type, data, n, { weights });
    assert.deepEqual(await quantizeRows(one, type, data, n, { weights }), whole, type.name);
    const size = whole.length / 5;
    for (let row = 0; row < 5; row++) {
      const alone = await quantizeRows(one, type, data.subarray(row * n, (row + 1) * n), n, { weights });
      assert.deepEqual(alone, whole.subarray(row * size, (row + 1) * size), type.name);
    }
  }
});

Deno.test("dequantizeRows() of what quantizeRows() made is near the rows", async () => {
  using backend = openNativeBackend("cpu", { threads: 2 });
  const n = 256;
  const values = fc.array(fc.float({ min: -4, max: 4, noNaN: true }), { minLength: n, maxLength: n });
  for (const type of WRITTEN) {
    await fc.assert(
      fc.asyncProperty(values, async (row) => {
        const x = Float32Array.from(row);
        const weights = new Float32Array(n).fill(1);
        const y = await dequantizeRows(backend, type, await quantizeRows(backend, type, x, n, { weights }), n);
        const largest = x.reduce((m, v) => Math.max(m, Math.abs(v)), 0);
        // no type is further off than the row's own extent, and wide ones are much nearer
        const bits = 8 * type.bytes / type.block;
        const bound = bits > 8 ? 0.01 : bits > 6 ? 0.06 : bits >= 4 ? 0.3 : 2.2;
        y.forEach((v, i) => assert(Math.abs(v - x[i]) <= bound * largest + 1e-6, `${type.name}: ${x[i]} became ${v}`));
      }),
      { numRuns: 5 },
    );
  }
});

Deno.test("quantizeRows() names what it cannot do", async () => {
  using backend = openNativeBackend("cpu", { threads: 1 });
  const row = new Float32Array(256);
  await assert.rejects(quantizeRows(backend, "q9_9", row, 256), (e) => e instanceof UsageError);
  await assert.rejects(quantizeRows(backend, "q4_K", row, 100), (e) => e instanceof UsageError);
  await assert.rejects(quantizeRows(backend, "q4_0", row, 96), (e) => e instanceof UsageError);
  await assert.rejects(
    quantizeRows(backend, "q4_0", row, 256, { weights: new Float32Array(3) }),
    (e) => e instanceof UsageError,
  );
  for (const type of ["iq1_s", "iq2_xxs", "iq2_xs", "q8_K", "i32"]) {
    await assert.rejects(
      quantizeRows(backend, type, row, 256),
      (e) => e instanceof NativeError && e.code === "native.unsupported",
      type,
    );
  }
  row[3] = 1e30; // its scale is too large for the halves that blocks hold
  await assert.rejects(
    quantizeRows(backend, ggmlType("q8_0"), row, 256),
    (e) => e instanceof NativeError && e.code === "native.data",
  );
});

Deno.test("Backend.quantize() reads rows from a file as from memory, and says where it cannot", async () => {
  using backend = openNativeBackend("cpu", { threads: 2 });
  const [n_rows, n_per_row, offset] = [300, 512, 36];
  const x = Float32Array.from({ length: n_rows * n_per_row }, (_, i) => Math.sin(i) * (1 + i % 7));
  const bytes = new Uint8Array(x.buffer);
  const path = Deno.makeTempFileSync();
  try {
    Deno.writeFileSync(path, Uint8Array.from([...new Uint8Array(offset), ...bytes]));
    const job = { srcType: ggmlType("f32"), n_rows, n_per_row };
    const range = { path, offset, bytes: bytes.length };
    const code = (code: string) => (e: unknown) => e instanceof NativeError && e.code === code;
    for (const name of ["f32", "f16", "q4_0", "q6_K"]) {
      const dstType = ggmlType(name);
      const expected = await backend.quantize({ ...job, src: bytes, dstType });
      const dst = new Uint8Array(expected.length);
      assert.equal(await backend.quantize({ ...job, src: range, dstType, dst }), dst);
      assert.deepEqual(dst, expected, name);
      if (name !== "q6_K") continue;
      const same = { srcType: dstType, dstType, n_rows, n_per_row }; // not decoded and encoded again
      assert.deepEqual(await backend.quantize({ ...same, src: expected }), expected);
    }
    const dstType = ggmlType("q4_0");
    const past = { ...range, offset: offset + 4 };
    await assert.rejects(backend.quantize({ ...job, src: past, dstType }), code("native.io"));
    Deno.truncateSync(path, offset + bytes.length - 1); // after it was opened
    await assert.rejects(backend.quantize({ ...job, src: range, dstType }), code("native.io"));
  } finally {
    Deno.removeSync(path);
  }
  for (const value of [NaN, -Infinity]) {
    x[100_000] = value;
    for (const name of ["f32", "bf16", "q4_0"]) {
      const job = { srcType: ggmlType("f32"), src: bytes, dstType: ggmlType(name), n_rows, n_per_row };
      await assert.rejects(
        backend.quantize(job),
        (e) => e instanceof NativeError && e.code === "native.data" && /row 195, column 160/.test(e.message),
      );
    }
  }
});
