/**
 * Metadata of a model that a command line sets for one run; the file stays as it is.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import { type GgufValue, ggufValue, type Metadata } from "../core/gguf/metadata.ts";
import type { Flag } from "./command.ts";

export const OVERRIDE_FLAG: Flag = {
  name: "override-kv",
  type: "strings",
  separator: ",",
  value: "KEY=TYPE:VALUE",
  help: "set a key of the model's metadata for this run; TYPE is int, float, bool or str; may be repeated",
};

/**
 * One `KEY=TYPE:VALUE`.
 * @throws {UsageError} `usage.override`
 */
export function parseRunOverride(text: string): { key: string; value: GgufValue } {
  const m = /^([^=]+)=(int|float|bool|str):(.*)$/s.exec(text);
  const value = m === null ? undefined : valueOf(m[2], m[3].trim(), m[3]);
  if (m !== null && value !== undefined) return { key: m[1], value };
  const what = m === null ? "it is not KEY=TYPE:VALUE" : `${m[3] === "" ? "nothing" : m[3]} is no ${m[2]}`;
  throw new UsageError("usage.override", `Cannot use --override-kv ${text}: ${what}`, {
    at: { flag: "--override-kv", got: text },
    hint: "write KEY=int:N, KEY=float:X, KEY=bool:true or KEY=str:TEXT",
  });
}

function valueOf(type: string, text: string, raw: string): GgufValue | undefined {
  if (type === "str") return ggufValue.str(raw);
  if (type === "bool") return text === "true" || text === "false" ? ggufValue.bool(text === "true") : undefined;
  const n = Number(text);
  if (text === "" || !Number.isFinite(n)) return undefined;
  if (type === "float") return ggufValue.f32(n);
  if (!Number.isInteger(n) || n < -(2 ** 31) || n >= 2 ** 32) return undefined;
  return n < 0 ? ggufValue.i32(n) : ggufValue.u32(n);
}

/** Sets what the texts say. @returns what was set, in words */
export function overrideMetadata(metadata: Metadata, texts: readonly string[]): string[] {
  return texts.map((text) => {
    const { key, value } = parseRunOverride(text);
    metadata.set(key, value);
    return `${key} = ${value.value}`;
  });
}
