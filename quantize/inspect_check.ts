/**
 * Reads a whole GGUF file and reports what is wrong with its data: numbers and scales that are not finite, padding that is not
 * zero. Opening a file has already checked its sizes and offsets. One pass, a few megabytes of memory.
 * Source: the block layouts of the GGUF format; what llama.cpp refuses when it validates quantized data.
 * @module
 */
import { alignUp } from "../core/gguf/layout.ts";
import type { GgufFile, GgufTensor } from "../core/gguf/read.ts";
import { pauses } from "./pause.ts";

export interface CheckProblem {
  path: string;
  tensor?: string;
  /** One clause: what was found. */
  message: string;
  /** Where it is first: row and column in the tensor. */
  row?: number;
  column?: number;
  /** How many values or scales of the tensor have it. */
  count?: number;
}

/** The result, as `bloomery inspect --check --json` prints it. */
export interface CheckReport {
  schema: "bloomery.check.v1";
  ok: boolean;
  n_tensors: number;
  bytes: number;
  /** Data that makes the model unusable. */
  problems: CheckProblem[];
  /** Harmless oddities. */
  warnings: CheckProblem[];
}

export interface CheckOptions {
  signal?: AbortSignal;
  onProgress?: (done: number, total: number) => void;
}

/** Byte offsets of the half-precision scales in a block; types that are not here are checked in their own way. */
const HALF_SCALES: Readonly<Record<string, readonly number[]>> = {
  q4_0: [0],
  q4_1: [0, 2],
  q5_0: [0],
  q5_1: [0, 2],
  q8_0: [0],
  q8_1: [0, 2],
  q2_K: [80, 82],
  q3_K: [108],
  q4_K: [0, 2],
  q5_K: [0, 2],
  q6_K: [208],
  iq2_xxs: [0],
  iq2_xs: [0],
  iq2_s: [0],
  iq3_xxs: [0],
  iq3_s: [0],
  iq1_s: [0],
  iq4_nl: [0],
  iq4_xs: [0],
  tq1_0: [52],
  tq2_0: [64],
  q1_0: [0],
  q2_0: [0],
};

/** Calls `bad` with the index of every element (or first element of a block) whose number or scale is not finite. */
type Scan = (bytes: Uint8Array, bad: (element: number) => void) => void;

/** Numbers of 16 bits with this exponent field, two at a time: adding its lowest bit to a full field carries into the sign. */
function scanHalves(exponent: number): Scan {
  const lowest = exponent & -exponent;
  const mask = exponent << 16 | exponent;
  const carry = lowest << 16 | lowest;
  return (bytes, bad) => {
    const pairs = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length >> 2);
    const x = new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length >> 1);
    const test = (i: number) => {
      if ((x[i] & exponent) === exponent) bad(i);
    };
    for (let i = 0; i < pairs.length; i++) {
      if ((((pairs[i] & mask) + carry) & 0x80008000) === 0) continue;
      test(2 * i);
      test(2 * i + 1);
    }
    if (x.length % 2 === 1) test(x.length - 1);
  };
}
const scanF32: Scan = (bytes, bad) => {
  const x = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  for (let i = 0; i < x.length; i++) if ((x[i] & 0x7f800000) === 0x7f800000) bad(i);
};
const scanF64: Scan = (bytes, bad) => {
  const x = new Float64Array(bytes.buffer, bytes.byteOffset, bytes.length / 8);
  for (let i = 0; i < x.length; i++) if (!Number.isFinite(x[i])) bad(i);
};
/** The exponent byte of a block: 255 stands for NaN. */
const scanMxfp4: Scan = (bytes, bad) => {
  for (let i = 0, e = 0; i < bytes.length; i += 17, e += 32) if (bytes[i] === 255) bad(e);
};
/** The scale is put together from the upper four bits of four words. */
const scanIq1m: Scan = (bytes, bad) => {
  for (let i = 0, e = 0; i < bytes.length; i += 56, e += 256) {
    const high = (k: number) => bytes[i + 49 + 2 * k] >> 4;
    if (((high(3) << 12 | high(2) << 8) & 0x7c00) === 0x7c00) bad(e);
  }
};
/** Scale in single precision at the start of a block of 292 bytes. */
const scanQ8K: Scan = (bytes, bad) => {
  for (let i = 0, e = 0; i < bytes.length; i += 292, e += 256) {
    if ((bytes[i + 3] & 0x7f) === 0x7f && bytes[i + 2] >= 0x80) bad(e);
  }
};

const OWN_WAY: Readonly<Record<string, Scan>> = {
  f16: scanHalves(0x7c00),
  bf16: scanHalves(0x7f80),
  f32: scanF32,
  f64: scanF64,
  mxfp4: scanMxfp4,
  iq1_m: scanIq1m,
  q8_K: scanQ8K,
};

function scanFor(t: GgufTensor): Scan | undefined {
  const offsets = HALF_SCALES[t.type.name];
  if (!offsets) return OWN_WAY[t.type.name]; // integers and nvfp4 have no value that is not finite
  const { block, bytes: size } = t.type;
  return (bytes, bad) => {
    for (let i = 0, e = 0; i < bytes.length; i += size, e += block) {
      // The upper byte of a half tells: exponent all ones.
      for (const at of offsets) if ((bytes[i + at + 1] & 0x7c) === 0x7c) bad(e);
    }
  };
}

const CHUNK = 4 * 1024 * 1024;

/**
 * Checks all data of an opened file.
 * @throws {FormatError} `format.truncated` when the file has become shorter since it was opened.
 */
export async function checkGguf(file: GgufFile, options: CheckOptions = {}): Promise<CheckReport> {
  const pause = pauses(options.signal);
  const total = file.tensors.reduce((n, t) => n + t.bytes, 0);
  const report: CheckReport = {
    schema: "bloomery.check.v1",
    ok: true,
    n_tensors: file.tensors.length,
    bytes: total,
    problems: [],
    warnings: [],
  };
  let done = 0;
  for (const t of file.tensors) {
    const scan = scanFor(t);
    const chunk = Math.max(1, Math.floor(CHUNK / t.type.bytes)) * t.type.bytes;
    let first = -1;
    let count = 0;
    for (let at = 0; at < t.bytes; at += chunk) {
      const bytes = file.readTensor(t, at, Math.min(chunk, t.bytes - at));
      const base = at / t.type.bytes * t.type.block;
      // Typed arrays want their own alignment, which a view into a larger buffer may not have.
      scan?.(bytes.byteOffset % 8 === 0 ? bytes : bytes.slice(), (element) => {
        if (count++ === 0) first = base + element;
      });
      done += bytes.length;
      options.onProgress?.(done, total);
      await pause();
    }
    if (count > 0) {
      const what = t.type.block > 1 ? "scale" : "value";
      const row = Math.floor(first / t.ne[0]);
      const column = first % t.ne[0];
      const message = `${count} ${what}${count === 1 ? " is" : "s are"} not finite, the first at row ${row}, column ` +
        `${column} (${t.type.name})`;
      report.problems.push({ path: t.path, tensor: t.name, message, row, column, count });
    }
  }
  checkPadding(file, report);
  report.ok = report.problems.length === 0;
  return report;
}

/** Padding is zero and nothing follows the last tensor. */
function checkPadding(file: GgufFile, report: CheckReport): void {
  for (const [shard, { path, size, alignment, dataStart }] of file.shards.entries()) {
    const tensors = file.tensors.filter((t) => t.shard === shard);
    for (const t of tensors) {
      const end = t.offset + t.bytes;
      const padding = Math.min(alignUp(end, alignment), size) - end;
      if (padding > 0 && file.readShard(shard, end, padding).some((b) => b !== 0)) {
        report.warnings.push({ path, tensor: t.name, message: "the padding after its data is not zero" });
      }
    }
    const last = tensors.at(-1);
    const end = last ? alignUp(last.offset + last.bytes, alignment) : dataStart;
    if (size > end) report.warnings.push({ path, message: `${size - end} bytes follow the last tensor` });
  }
  const quantized = file.tensors.some((t) => t.type.block > 1);
  if (quantized && !file.metadata.has("general.quantization_version")) {
    report.warnings.push({ path: file.name, message: 'key "general.quantization_version" is missing' });
  }
}
