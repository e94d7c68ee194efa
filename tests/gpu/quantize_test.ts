/**
 * Encoders and decoders on a card: the bytes of the reference, and the host's bytes on rows made up anew at each run.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { NativeError } from "../../core/errors.ts";
import { GGML_TYPES, type GgmlType, ggmlType, rowBytes } from "../../core/gguf/types.ts";
import type { Backend } from "../../core/program/backend.ts";
import { libraryPath, openNativeBackend } from "../../ffi/mod.ts";
import { parseFileType } from "../../quantize/file_types.ts";
import { readImatrix, useImatrix } from "../../quantize/imatrix.ts";
import { quantize } from "../../quantize/quantize.ts";
import { openGgufSource } from "../../quantize/quantize_source.ts";
import { quantizeRows } from "../../quantize/rows.ts";
import { bloomNano, testFolder } from "../models.ts";
import { keptRowCases, sharedRowCases, WRITTEN, wrongRows } from "../quantize/row_cases.ts";
import { needing, needingShared, sharedDir } from "../shared.ts";

/** Index of the first card, or undefined. */
function firstCard(): number | undefined {
  if (libraryPath("cuda") === undefined) return undefined;
  using backend = openNativeBackend("cuda");
  return backend.devices.find((d) => d.kind === "cuda")?.index;
}

const card = firstCard();

function test(name: string, fn: (backend: Backend, device: number) => Promise<void>, needsShared = false): void {
  Deno.test({
    ...card !== undefined && needsShared
      ? needingShared(`cuda: ${name}`)
      : needing(`cuda: ${name}`, card !== undefined, "a card"),
    fn: async () => {
      using backend = openNativeBackend("cuda");
      await fn(backend, card!);
    },
  });
}

test("the reference's rows, those the repository keeps", async (backend, device) => {
  assert.deepEqual(await wrongRows(backend, keptRowCases(), device), []);
});

test("the reference's rows, all of them", async (backend, device) => {
  assert.deepEqual(await wrongRows(backend, sharedRowCases(), device), []);
}, true);

/** Numbers in [0, 1) from a seed. */
function generator(seed: number): () => number {
  let a = seed >>> 0;
  return () => {
    a = a + 0x6D2B79F5 >>> 0;
    let t = Math.imul(a ^ a >>> 15, a | 1);
    t ^= t + Math.imul(t ^ t >>> 7, t | 61);
    return ((t ^ t >>> 14) >>> 0) / 2 ** 32;
  };
}

const normal = (r: () => number) => Math.sqrt(-2 * Math.log(1 - r())) * Math.cos(2 * Math.PI * r());

/** What a row may look like; `u` is one number for the whole row. */
const SHAPES: Record<string, (r: () => number, u: number, i: number) => number> = {
  normal: (r) => 0.05 * normal(r),
  heavy: (r) => normal(r) / Math.max(1e-3, Math.abs(normal(r))),
  zeros: () => 0,
  signedZeros: (r) => r() < 0.5 ? 0 : -0,
  sparse: (r) => r() < 0.9 ? 0 : normal(r),
  constant: (_, u) => u - 0.5,
  positive: (r) => 3 + r(),
  subnormal: (r) => normal(r) * 1e-40,
  tiny: (r, u) => normal(r) * 10 ** (-40 + 34 * u),
  large: (r) => normal(r) * 1000,
  ties: (r) => Math.round(8 * normal(r)) / 8,
  levels: (r) => Math.floor(3 * r()) - 1,
  outlier: (r, _, i) => i === 37 ? 100 : 0.01 * normal(r),
  blocks: (r, _, i) => [0, 0.3 * normal(r), 1e-9 * normal(r), r(), -r()][Math.floor(i / 32) % 5],
};
/** And these, which some types refuse. */
const HUGE: typeof SHAPES = {
  huge: (r) => normal(r) * 1e30,
  mostlyHuge: (r, _, i) => i % 97 === 0 ? 3e38 * r() : normal(r),
};

const WEIGHTS: Record<string, ((r: () => number) => number) | undefined> = {
  none: undefined,
  even: () => 1,
  uneven: (r) => -Math.log(1 - r()),
  zeros: (r) => r() < 0.3 ? 0 : r(),
};

function rowsOf(shapes: typeof SHAPES, n: number, repeat: number, seed: number): Float32Array {
  const r = generator(seed);
  const rows = Object.values(shapes).flatMap((shape) => Array.from({ length: repeat }, () => shape));
  const out = new Float32Array(rows.length * n);
  rows.forEach((shape, row) => {
    const u = r();
    for (let i = 0; i < n; i++) out[row * n + i] = shape(r, u, i);
  });
  return out;
}

interface Job {
  readonly to: GgmlType;
  readonly from: GgmlType;
  readonly src: Uint8Array;
  readonly n: number;
  readonly weights?: Float32Array | undefined;
}

/** The encoded bytes, or what was refused. */
async function outcome(backend: Backend, device: number, job: Job): Promise<Uint8Array | string> {
  try {
    return await backend.quantize({
      srcType: job.from,
      src: job.src,
      dstType: job.to,
      n_rows: job.src.length / rowBytes(job.from, job.n),
      n_per_row: job.n,
      weights: job.weights,
      device,
    });
  } catch (error) {
    if (error instanceof NativeError) return `${error.code}: ${error.message}`;
    throw error;
  }
}

/** Where two results part, or undefined. */
function difference(got: Uint8Array | string, want: Uint8Array | string, type: GgmlType): string | undefined {
  if (typeof got === "string" || typeof want === "string") {
    return got === want ? undefined : `${shown(got)}, the host ${shown(want)}`;
  }
  if (got.length !== want.length) return `${got.length} bytes, the host ${want.length}`;
  const at = got.findIndex((v, i) => v !== want[i]);
  if (at < 0) return undefined;
  const n = got.reduce((sum, v, i) => sum + (v === want[i] ? 0 : 1), 0);
  return `${n} bytes differ, the first in block ${Math.floor(at / type.bytes)} at byte ${at % type.bytes}`;
}
const shown = (result: Uint8Array | string) => typeof result === "string" ? `"${result}"` : "encoded it";

const bytesOf = (values: Float32Array) => new Uint8Array(values.buffer, values.byteOffset, values.byteLength);

test("rows of every kind are encoded as the host does, for every type", async (backend, device) => {
  const seed = Date.now() % 1e9;
  const wrong: string[] = [];
  for (const to of WRITTEN) {
    for (const n of [to.block, 3 * to.block, 1024 + to.block]) {
      for (const [name, weight] of Object.entries(WEIGHTS)) {
        const r = generator(seed + n);
        const weights = weight && Float32Array.from({ length: n }, () => weight(r));
        for (const [repeat, shapes] of [[3, SHAPES], [1, HUGE]] as const) {
          const job = { to, from: ggmlType("f32"), src: bytesOf(rowsOf(shapes, n, repeat, seed)), n, weights };
          const bad = difference(await outcome(backend, device, job), await outcome(backend, 0, job), to);
          if (bad) wrong.push(`${to.name}, rows of ${n}, weights ${name}: ${bad}`);
        }
      }
    }
  }
  assert.deepEqual(wrong, [], `seed ${seed}`);
});

test("each shape alone, so that one refusal hides no other", async (backend, device) => {
  const seed = Date.now() % 1e9;
  const wrong: string[] = [];
  const n = 512;
  const r = generator(seed);
  for (const to of WRITTEN) {
    for (const [shape, value] of Object.entries({ ...SHAPES, ...HUGE })) {
      for (const [name, weight] of Object.entries(WEIGHTS)) {
        const weights = weight && Float32Array.from({ length: n }, () => weight(r));
        const job = { to, from: ggmlType("f32"), src: bytesOf(rowsOf({ [shape]: value }, n, 2, seed)), n, weights };
        const bad = difference(await outcome(backend, device, job), await outcome(backend, 0, job), to);
        if (bad) wrong.push(`${to.name}, ${shape}, weights ${name}: ${bad}`);
      }
    }
  }
  assert.deepEqual(wrong, [], `seed ${seed}`);
});

test("more rows than one stage holds, from every kind of source", async (backend, device) => {
  const seed = Date.now() % 1e9;
  const r = generator(seed);
  const n = 5120;
  const n_rows = 1300; // three stages and a rest
  const values = Float32Array.from({ length: n_rows * n }, () => r() + r() + r() - 1.5);
  const weights = Float32Array.from({ length: n }, () => r());
  const wrong: string[] = [];
  for (const from of ["f32", "f16", "bf16", "q8_0", "q4_K", "iq4_nl"]) {
    const src = from === "f32" ? bytesOf(values) : await quantizeRows(backend, from, values, n);
    for (const to of ["q4_0", "q4_K", "q6_K", "iq4_xs", "iq2_xxs", "f16"]) {
      const job = { to: ggmlType(to), from: ggmlType(from), src, n, weights };
      const bad = difference(await outcome(backend, device, job), await outcome(backend, 0, job), job.to);
      if (bad) wrong.push(`${from} to ${to}: ${bad}`);
    }
  }
  assert.deepEqual(wrong, [], `seed ${seed}`);
});

test("refuses what the host refuses, in the same words", async (backend, device) => {
  const src = bytesOf(rowsOf({ normal: SHAPES.normal }, 256, 40, 1));
  for (const to of ["iq1_s", "iq2_xxs", "iq2_xs", "q8_K", "i32"]) {
    const job = { to: ggmlType(to), from: ggmlType("f32"), src, n: 256 };
    const refused = await outcome(backend, device, job);
    assert.match(String(refused), /^native.unsupported: Cannot write/, to);
    assert.equal(refused, await outcome(backend, 0, job));
  }
  const huge = bytesOf(rowsOf(HUGE, 256, 700, 1));
  for (const to of ["q8_0", "q4_K", "f16", "iq3_s"]) {
    const job = { to: ggmlType(to), from: ggmlType("f32"), src: huge, n: 256 };
    const refused = await outcome(backend, device, job);
    assert.match(String(refused), /^native.data: Cannot write/, to);
    assert.equal(refused, await outcome(backend, 0, job));
  }
  const negative = new Float32Array(256).fill(-1);
  for (const to of ["iq2_xxs", "iq3_s", "iq1_s"]) {
    const job = { to: ggmlType(to), from: ggmlType("f32"), src, n: 256, weights: negative };
    assert.deepEqual(await outcome(backend, device, job), await outcome(backend, 0, job), to);
  }
  await assert.rejects(
    quantizeRows(backend, "q4_K", new Float32Array(256), 256, { device: 99 }),
    (e) => e instanceof NativeError && e.code === "native.argument",
  );
});

test("blocks of any bytes are decoded as the host does, for every type", async (backend, device) => {
  const seed = Date.now() % 1e9;
  const r = generator(seed);
  for (const type of GGML_TYPES) {
    const n = type.block * 3001;
    const src = Uint8Array.from({ length: rowBytes(type, n) }, () => 256 * r());
    const got = await backend.dequantize(type, src, n, device), want = await backend.dequantize(type, src, n);
    const gotBits = new Uint32Array(got.buffer), wantBits = new Uint32Array(want.buffer);
    const at = gotBits.findIndex((v, i) => v !== wantBits[i] && !(Number.isNaN(got[i]) && Number.isNaN(want[i])));
    assert.equal(at, -1, `${type.name}, seed ${seed}: value ${at} is ${got[at]}, the host's ${want[at]}`);
  }
  const n = 5_000_000 - 5_000_000 % 256; // three stages
  const src = Uint8Array.from({ length: rowBytes(ggmlType("q4_K"), n) }, (_, i) => i % 144 < 4 ? 42 : 256 * r());
  const got = await backend.dequantize(ggmlType("q4_K"), src, n, device);
  assert.deepEqual(
    createHash("sha256").update(bytesOf(got)).digest("hex"),
    createHash("sha256").update(bytesOf(await backend.dequantize(ggmlType("q4_K"), src, n))).digest("hex"),
  );
});

test("whole files of bloom-nano", async (backend, device) => {
  const input = await bloomNano("bf16");
  const sum = async (fileType: string, device: number, weighted: boolean) => {
    using source = openGgufSource(input);
    const output = `${testFolder()}/card-${device}.gguf`;
    const imatrix = weighted && sharedDir
      ? useImatrix(readImatrix(`${sharedDir}models/reference/bloom-nano/imatrix.gguf`), { include: [], exclude: [] })
      : undefined;
    await quantize(source, output, backend, { fileType: parseFileType(fileType), device, imatrix });
    const digest = createHash("sha256").update(Deno.readFileSync(output)).digest("hex");
    Deno.removeSync(output);
    return digest;
  };
  for (const type of ["Q4_K_M", "Q2_K", "Q6_K", "Q5_K_S", "Q3_K_L", "IQ4_XS", "IQ3_S", "Q8_0", "Q5_1", "TQ2_0"]) {
    assert.equal(await sum(type, device, false), await sum(type, 0, false), type);
  }
  if (!sharedDir) return;
  for (const type of ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_M", "IQ3_XXS", "IQ3_M", "Q4_K_M", "Q2_K_S", "Q4_0"]) {
    assert.equal(await sum(type, device, true), await sum(type, 0, true), `${type} with importance`);
  }
});
