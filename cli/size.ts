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
