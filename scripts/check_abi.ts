/**
 * Compares `csrc/bloomery.h` and `csrc/bloomery_ops.h` with their TypeScript twins: functions (name, order, parameter types,
 * result), statuses, ops (number, operands, parameters, enums), use flags and versions; and the kinds of op parameters with
 * `csrc/ops.def`. Part of `deno task ok`.
 * @module
 */
import { PROGRAM_MAGIC, PROGRAM_VERSION } from "../core/program/encode.ts";
import * as ops from "../core/program/ops.ts";
import { INPUT, KIND, USE } from "../core/program/program.ts";
import { ABI_VERSION, STATUS } from "../ffi/library.ts";
import { SYMBOLS } from "../ffi/symbols.ts";

const read = (name: string) => Deno.readTextFile(new URL(`../csrc/${name}`, import.meta.url));
const bare = (text: string) => text.replace(/\/\/[^\n]*/g, "");
const opsHeader = bare(await read("bloomery_ops.h"));
const code = bare(await read("bloomery.h")) + opsHeader;
const problems: string[] = [];

function same(what: string, found: unknown, expected: unknown): void {
  if (JSON.stringify(found) !== JSON.stringify(expected)) {
    problems.push(`${what}: ${JSON.stringify(found)} in TypeScript, ${JSON.stringify(expected)} in csrc`);
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
same("tensor kinds", prefixed("BL_KIND_", KIND), enumOf("bl_tensor_kind"));
same("inputs", prefixed("BL_INPUT_", INPUT), enumOf("bl_input"));
same(
  "statuses",
  Object.fromEntries(STATUS.map((name, i) => [name.replace("native.", i === 0 ? "BL_" : "BL_ERR_").toUpperCase(), i])),
  enumOf("bl_status"),
);

// --- ops --------------------------------------------------------------------------------------------------------------------

const info: readonly [string, ops.OpInfo][] = Object.entries(ops.OPS);
same(
  "ops",
  prefixed("BL_OP_", { ...Object.fromEntries(info.map(([k, o]) => [k, o.code])), COUNT: info.length + 1 }),
  enumOf("bl_op"),
);
for (const [name, op] of info) {
  const row = new RegExp(`X\\(${name}, (\\d+), (\\d+), (\\d+)u, (\\d+), (\\d+)\\)`).exec(opsHeader)?.slice(1).map(
    Number,
  );
  const optional = op.src.reduce((bits, s, i) => op.optional.includes(s) ? bits | 1 << i : bits, 0);
  same(`arity of ${name}`, [op.dst.length, op.src.length, optional, op.more ? 1 : 0, op.params.length], row);
  const named = (kind: string, names: readonly string[]) => {
    const found = Object.fromEntries(names.map((n, i) => [`BL_${kind}_${name}_${n.toUpperCase()}`, i]));
    const all = [...opsHeader.matchAll(new RegExp(`(BL_${kind}_${name}_\\w+) = (\\d+)`, "g"))];
    // Names of MUL_MAT_ID also begin with those of MUL_MAT.
    const own = all.filter((m) => !info.some(([o]) => o.startsWith(`${name}_`) && m[1].startsWith(`BL_${kind}_${o}_`)));
    const wanted = Object.fromEntries(own.map((m) => [m[1], Number(m[2])]));
    // Operands behind the named ones have a name in the header of their own.
    if (op.more && kind === "SRC") delete wanted[`BL_SRC_${name}_MORE`];
    same(`${kind} of ${name}`, found, wanted);
  };
  named("DST", op.dst);
  named("SRC", op.src);
  named("PARAM", op.params.map(([n]) => n));
}

const table = await read("ops.def");
for (const block of table.split(/^op /m).slice(1)) {
  const name = block.split(" ", 1)[0];
  const params = /^ {2}param (.*)$/m.exec(block)?.[1].split(/\s+/) ?? [];
  // An enum is a u32.
  const kinds = params.map((p) => p.split(":")).map(([n, kind]) => [n, ["i32", "f32"].includes(kind) ? kind : "u32"]);
  same(`kinds of ${name}'s parameters`, info.find(([o]) => o === name)?.[1].params, kinds);
}
const enums = [...table.matchAll(/^enum (\w+)\n((?: {2}.*\n)+)/gm)];
for (const [, name, lines] of enums) {
  const prefix = `BL_${name.replace(/_KIND$|_RULE$/, "")}_`;
  const wanted = Object.fromEntries(
    lines.trimEnd().split("\n").map((l) => l.trim().split(/\s+/)).map(([n, v]) => [prefix + n, Number(v)]),
  );
  same(name, prefixed(prefix, (ops as unknown as Record<string, Record<string, number>>)[name]), wanted);
  const inHeader = enumOf(`bl_${name.toLowerCase()}`);
  delete inHeader[`BL_${name}_COUNT`];
  same(`${name} in bloomery_ops.h`, inHeader, wanted);
}

const constants = {
  BL_ABI_VERSION: ABI_VERSION,
  BL_PROGRAM_MAGIC: PROGRAM_MAGIC,
  BL_PROGRAM_VERSION: PROGRAM_VERSION,
  BL_NONE: ops.NONE,
  BL_NO_OPERAND: ops.NONE,
  ...prefixed("BL_USE_", USE),
};
for (const [name, value] of Object.entries(constants)) same(name, value, defines[name]);

for (const p of problems) console.error(p);
console.log(`abi: ${functions.length} functions, ${info.length} ops, ${problems.length} problems`);
if (problems.length > 0) Deno.exitCode = 1;
