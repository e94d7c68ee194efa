/**
 * Files that the command line names.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import { osHint, osReason } from "../core/os_error.ts";

function reading<T>(read: (path: string) => T, path: string, flag: string | undefined): T {
  try {
    return read(path);
  } catch (cause) {
    const hint = osHint(cause);
    const of = flag === undefined ? "" : ` of --${flag}`;
    throw new UsageError("usage.file", `Cannot read ${path}${of}: ${osReason(cause)}`, {
      at: { file: path, ...(flag === undefined ? {} : { flag: `--${flag}` }) },
      ...(hint === undefined ? {} : { hint }),
      cause,
    });
  }
}

/**
 * The text of a file.
 * @param flag The flag that names it, for the message.
 * @throws {UsageError} `usage.file`
 */
export function readText(path: string, flag?: string): string {
  return reading(Deno.readTextFileSync, path, flag);
}

/** The bytes of a file. @throws {UsageError} `usage.file` */
export function readBytes(path: string, flag?: string): Uint8Array<ArrayBuffer> {
  return reading(Deno.readFileSync, path, flag);
}
