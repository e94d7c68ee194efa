/**
 * Compares `csrc/bloomery.h` with its TypeScript twins: functions (name, order, parameter types, result), op numbers, use flags
 * and versions. Part of `deno task ok`.
 * @module
 */
import { PROGRAM_MAGIC, PROGRAM_VERSION } from "../core/program/encode.ts";
import { INPUT, KIND, OPS, ROPE_KIND, SCORE_KIND, USE } from "../core/program/ops.ts";
import { ABI_VERSION } from "../ffi/library.ts";
import { SYMBOLS } from "../ffi/symbols.ts";

const header = await Deno.readTextFile(new URL("../csrc/bloomery.h", import.meta.url));
const code = header.replace(/\/\/[^\n]*/g, "");
const problems: string[] = [];

function same(what: string, found: unknown, expected: unknown): void {
  if (JSON.stringify(found) !== JSON.stringify(expected)) {
    problems.push(`${what}: ${JSON.stringify(found)} in TypeScript, ${JSON.stringify(expected)} in bloomery.h`);
  }
}

/** The FFI type of a C parameter: handles are pointers, other pointers are buffers. */
function ffiType(c: string): string {
  const type = c.trim().replace(/\b\w+(\[\])?$/, "").trim().replace(/^const /, "");
  if (/^bl_\w+ \*(const \*|\*)$/.test(type)) return "buffer"; // arrays of handles, and where handles are returned
  if (/^bl_\w+ \*$/.test(type)) return "pointer";
  if (type.endsWith("*")) return "buffer";
  const scalars: Record<string, string> = {
    uint32_t: "u32",
    int32_t: "i32",
    uint64_t: "u64",
    int64_t: "i64",
    float: "f32",
  };
  return scalars[type] ?? `unknown type "${type}"`;
}

const functions = [...code.matchAll(/BL_API\s+(\w+)\s+(bl_\w+)\s*\(([^)]*)\)\s*;/g)];
same("functions", Object.keys(SYMBOLS), functions.map((m) => m[2]));
const results: Record<string, string> = { int32_t: "i32", uint32_t: "u32", uint64_t: "u64", void: "void" };
for (const [, result, name, parameters] of functions) {
  const symbol = (SYMBOLS as Record<string, Deno.ForeignFunction>)[name];
  if (!symbol) continue;
  const wanted = parameters.trim() === "void" || parameters.trim() === "" ? [] : parameters.split(",").map(ffiType);
  same(`${name} parameters`, symbol.parameters, wanted);
  same(`${name} result`, symbol.result, results[result]);
}

/** Members of a C enum by name. */
function enumOf(name: string): Record<string, number> {
  const body = new RegExp(`typedef enum ${name} \\{([^}]*)\\}`).exec(code)?.[1] ?? "";
  return Object.fromEntries([...body.matchAll(/(BL_\w+)\s*=\s*(\d+)/g)].map((m) => [m[1], Number(m[2])]));
}
const prefixed = (prefix: string, values: Record<string, number>) =>
  Object.fromEntries(Object.entries(values).map(([k, v]) => [prefix + k.toUpperCase(), v]));
const defines = Object.fromEntries(
  [...code.matchAll(/#define (BL_\w+) (0x[0-9A-Fa-f]+|\d+)u?/g)].map((m) => [m[1], Number(m[2])]),
);
same("ops", prefixed("BL_OP_", Object.fromEntries(Object.entries(OPS).map(([k, o]) => [k, o.code]))), enumOf("bl_op"));
same("tensor kinds", prefixed("BL_KIND_", KIND), enumOf("bl_tensor_kind"));
same("inputs", prefixed("BL_INPUT_", INPUT), enumOf("bl_input"));
const constants = {
  BL_ABI_VERSION: ABI_VERSION,
  BL_PROGRAM_MAGIC: PROGRAM_MAGIC,
  BL_PROGRAM_VERSION: PROGRAM_VERSION,
  ...prefixed("BL_USE_", USE),
  ...prefixed("BL_ROPE_", ROPE_KIND),
  ...prefixed("BL_SCORE_", SCORE_KIND),
};
for (const [name, value] of Object.entries(constants)) same(name, value, defines[name]);

for (const p of problems) console.error(p);
console.log(`abi: ${functions.length} functions, ${Object.keys(OPS).length} ops, ${problems.length} problems`);
if (problems.length > 0) Deno.exitCode = 1;
