/**
 * The rows that llama-quantize encoded, for tests of every device that encodes and decodes.
 * @module
 */
import { createHash } from "node:crypto";
import { gunzipSync } from "node:zlib";
import { NativeError } from "../../core/errors.ts";
import { GGML_TYPES } from "../../core/gguf/types.ts";
import type { Backend } from "../../core/program/backend.ts";
import { dequantizeRows, quantizeRows } from "../../quantize/rows.ts";
import { repoDir, sharedDir } from "../shared.ts";

const COLUMNS = 512;

/** Types that can be written. */
export const WRITTEN = GGML_TYPES.filter((t) => !/^(q8_1|q8_K|i8|i16|i32|i64|f64)$/.test(t.name));

interface RowCase {
  type: string;
  input: string;
  imatrix: string | undefined;
  sha256: string;
  deq_sha256: string;
  valid: boolean;
}

export interface RowCases {
  readonly cases: readonly RowCase[];
  /** The values of an input or of an importance matrix. */
  readonly floats: (name: string) => Float32Array;
}

function sha256(data: Uint8Array | Float32Array): string {
  return createHash("sha256").update(new Uint8Array(data.buffer, data.byteOffset, data.byteLength)).digest("hex");
}

/** Those the repository keeps. */
export function keptRowCases(): RowCases {
  const folder = `${repoDir}tests/goldens/quantize/`;
  const cases = Deno.readTextFileSync(folder + "rows.txt").split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line): RowCase => {
      const [type, input, imatrix, sha256, deq_sha256, valid] = line.split(" ");
      return {
        type,
        input,
        imatrix: imatrix === "-" ? undefined : imatrix,
        sha256,
        deq_sha256,
        valid: valid === "valid",
      };
    });
  const floats = (name: string) =>
    new Float32Array(new Uint8Array(gunzipSync(Deno.readFileSync(`${folder}rows/${name}.f32.gz`))).buffer);
  return { cases, floats };
}

/** All of them, where ../shared is. */
export function sharedRowCases(): RowCases {
  const folder = `${sharedDir}formats/goldens/`;
  const { cases } = JSON.parse(Deno.readTextFileSync(folder + "manifest.json")) as {
    cases: (Omit<RowCase, "imatrix"> & { imatrix: string | null })[];
  };
  const floats = (path: string) => new Float32Array(Deno.readFileSync(folder + path).buffer);
  return { cases: cases.map((c) => ({ ...c, imatrix: c.imatrix ?? undefined })), floats };
}

/** What a device of `backend` does differently, a sentence a case. */
export async function wrongRows(backend: Backend, { cases, floats }: RowCases, device = 0): Promise<string[]> {
  const wrong: string[] = [];
  for (const c of cases) {
    const name = `${c.type} of ${c.input} with ${c.imatrix ?? "no importance"}`;
    const weights = c.imatrix === undefined ? {} : { weights: floats(c.imatrix) };
    try {
      const data = await quantizeRows(backend, c.type, floats(c.input), COLUMNS, { ...weights, device });
      if (!c.valid) wrong.push(`${name} has an invalid scale and was not refused`);
      if (sha256(data) !== c.sha256) wrong.push(`${name} is encoded differently`);
      else if (sha256(await dequantizeRows(backend, c.type, data, COLUMNS, { device })) !== c.deq_sha256) {
        wrong.push(`${name} is decoded differently`);
      }
    } catch (error) {
      const refused = error instanceof NativeError && error.code === "native.data";
      if (c.valid || !refused) wrong.push(`${name}: ${error}`);
    }
  }
  return wrong;
}
