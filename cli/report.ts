/**
 * How a command's failure reaches the user: one message, a hint and an exit code, whatever was thrown.
 * @module
 */
import { BloomeryError } from "../core/errors.ts";
import { osError } from "../core/os_error.ts";
import { EXIT } from "./command.ts";
import { ClosedPipe, type Io } from "./io.ts";

/** Prints why a command failed. @returns the exit code */
export function report(error: unknown, json: boolean, io: Pick<Io, "json" | "error">): number {
  if (error instanceof ClosedPipe) return EXIT.done;
  const known = error instanceof BloomeryError ? error : osError(error);
  if (known === undefined) {
    // Nobody foresaw it: a fault of ours, and whoever repairs it needs the place.
    io.error(`bloomery has a bug: ${error instanceof Error ? error.stack ?? error.message : String(error)}`);
    io.error("hint: please report this text and the command line");
    return EXIT.failed;
  }
  if (json) {
    try {
      io.json(known.toJSON());
      return exitCode(known);
    } catch (failed) {
      if (failed instanceof ClosedPipe) return exitCode(known);
      // stdout takes nothing: tell it on stderr.
    }
  }
  io.error(`${known.message} [${known.code}]`);
  if (known.hint) io.error(`hint: ${known.hint}`);
  return exitCode(known);
}

function exitCode(error: BloomeryError): number {
  return error.code.startsWith("usage.") ? EXIT.usage : EXIT.failed;
}
