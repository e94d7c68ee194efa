/**
 * Sizes on the command line: `4G` as llama-gguf-split takes it.
 * @module
 */
import { UsageError } from "../core/errors.ts";

const UNITS: Readonly<Record<string, number>> = { "": 1, K: 1e3, M: 1e6, G: 1e9, T: 1e12 };

/**
 * Bytes of a decimal number with K, M, G or T (powers of 1000) after it, or none.
 * @throws {UsageError} `usage.size`
 */
export function parseSize(text: string, flag: string): number {
  const m = /^(\d+(?:\.\d+)?)([KMGT]?)B?$/i.exec(text);
  const bytes = m ? Math.round(Number(m[1]) * UNITS[m[2].toUpperCase()]) : NaN;
  if (Number.isSafeInteger(bytes) && bytes > 0) return bytes;
  throw new UsageError("usage.size", `Cannot use --${flag} ${text}: expected a size such as 500M or 4G`, {
    at: { flag, got: text },
  });
}

const BINARY: Readonly<Record<string, number>> = { K: 2 ** 10, M: 2 ** 20, G: 2 ** 30, T: 2 ** 40 };

/**
 * A budget of a model: `3.2bpw`, bits per weight, or a size such as `24GiB` or `24G`.
 * @throws {UsageError} `usage.budget`
 */
export function parseBudget(text: string): { bytes: number } | { bpw: number } {
  const m = /^(\d+(?:\.\d+)?)\s*(bpw|[KMGT]iB|[KMGT]?B?)$/i.exec(text);
  const n = Number(m?.[1]), unit = m?.[2].toUpperCase() ?? "";
  if (unit === "BPW" && n > 0) return { bpw: n };
  const bytes = Math.floor(n * (unit.endsWith("IB") ? BINARY[unit[0]] : UNITS[unit.replace("B", "")]));
  if (Number.isSafeInteger(bytes) && bytes > 0) return { bytes };
  throw new UsageError("usage.budget", `Cannot use --budget ${text}: expected bits per weight or a size`, {
    at: { flag: "budget", got: text },
    hint: "write 3.2bpw, 24GiB or 24G",
  });
}
