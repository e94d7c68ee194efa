/**
 * The one rule for files that exist: a command never writes over one, unless `--overwrite` is given.
 * @module
 */
import { basename, dirname } from "node:path";
import { UsageError } from "../core/errors.ts";
import type { Flags } from "./command.ts";

/**
 * Refuses outputs that exist.
 * @param output The file to be made, or with `set` what the names of its files begin with.
 * @throws {UsageError} `usage.output_exists`
 */
export function refuseExisting(output: string, flags: Flags, options: { set?: boolean } = {}): void {
  if (flags.bool("overwrite")) return;
  const found = options.set ? fileOfSet(output) : isThere(output) ? output : undefined;
  if (found === undefined) return;
  throw new UsageError("usage.output_exists", `Cannot write ${found}: it exists already`, {
    at: { file: found },
    hint: "choose another output, or give --overwrite",
  });
}

/** Devices such as /dev/null are no files that could be lost. */
function isThere(path: string): boolean {
  try {
    const { isFile, isDirectory } = Deno.statSync(path);
    return isFile || isDirectory;
  } catch {
    return false; // whoever writes says what is wrong with the path
  }
}

/** A file of a split set with these names. */
function fileOfSet(output: string): string | undefined {
  const prefix = basename(output).replace(/\.gguf$/, "");
  try {
    for (const { name } of Deno.readDirSync(dirname(output))) {
      if (name.startsWith(`${prefix}-`) && /^-\d{5}-of-\d{5}\.gguf$/.test(name.slice(prefix.length))) {
        return `${dirname(output)}/${name}`;
      }
    }
  } catch {
    // the folder is not there: whoever writes says so
  }
  return undefined;
}
