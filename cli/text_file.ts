/**
 * Text files that the command line names.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import { osHint, osReason } from "../core/os_error.ts";

/**
 * The text of a file.
 * @param flag The flag that names it, for the message.
 * @throws {UsageError} `usage.file`
 */
export function readText(path: string, flag?: string): string {
  try {
    return Deno.readTextFileSync(path);
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
