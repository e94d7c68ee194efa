/**
 * Outputs, looked at before any work: their folder has to be there, what has their name has to be a file, and a command never
 * writes over a file that exists, unless `--overwrite` is given.
 * @module
 */
import { basename, dirname } from "node:path";
import { OsError, UsageError } from "../core/errors.ts";
import { osError } from "../core/os_error.ts";
import type { Flags } from "./command.ts";

/**
 * Refuses outputs that exist, and those that cannot be made.
 * @param output The file to be made, or with `set` what the names of its files begin with.
 * @throws {UsageError} `usage.output_exists`, `usage.output` · {@link OsError} `os.not_found`, `os.not_folder`
 */
export function refuseExisting(output: string, flags: Flags, options: { set?: boolean } = {}): void {
  requirePlace(output);
  if (flags.bool("overwrite")) return;
  const found = options.set ? fileOfSet(output) : kindOf(output) !== undefined ? output : undefined;
  if (found === undefined) return;
  throw new UsageError("usage.output_exists", `Cannot write ${found}: it exists already`, {
    at: { file: found },
    hint: "choose another output, or give --overwrite",
  });
}

/**
 * Refuses an output whose folder is not there, before hours of work end at it, and one that is no file: a finished file takes
 * the place of what has its name, /dev/null too.
 * @throws {OsError} `os.not_found`, `os.not_folder` · {@link UsageError} `usage.output`
 */
export function requirePlace(output: string): void {
  const kind = kindOf(output);
  if (kind !== undefined && kind !== "a file") {
    throw new UsageError("usage.output", `Cannot write ${output}: it is ${kind}`, {
      at: { file: output },
      hint: "give the name of the file to make",
    });
  }
  const folder = dirname(output);
  try {
    if (Deno.statSync(folder).isDirectory) return;
  } catch (error) {
    const known = osError(error);
    if (known === undefined) throw error;
    throw new OsError(known.code, `Cannot write ${output}: the folder ${folder} is not there`, {
      at: { file: output, folder },
      hint: "make the folder first, or choose another output",
      cause: error,
    });
  }
  throw new OsError("os.not_folder", `Cannot write ${output}: ${folder} is no folder`, {
    at: { file: output, folder },
  });
}

/** What has a name; undefined where nothing has. */
function kindOf(path: string): "a file" | "a folder" | "a device or a pipe" | undefined {
  try {
    const { isFile, isDirectory } = Deno.statSync(path);
    return isFile ? "a file" : isDirectory ? "a folder" : "a device or a pipe";
  } catch {
    return undefined; // whoever writes says what is wrong with the path
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
