/**
 * The command line: finds the subcommand, runs it, turns errors into one message and an exit code. No logic of its own.
 * @module
 */
import { BloomeryError } from "../core/errors.ts";
import { type Command, EXIT } from "./command.ts";
import { ClosedPipe, createIo, type Io } from "./io.ts";
import { parseArgs } from "./parse.ts";
import { commands } from "./commands.ts";

const ABOUT = "Prepares, quantizes, serves and scores language models on your own machine.";

function report(error: unknown, json: boolean, io: Io): number {
  if (error instanceof ClosedPipe) return EXIT.done;
  if (error instanceof BloomeryError) {
    if (json) io.json(error.toJSON());
    else {
      io.error(`${error.message} [${error.code}]`);
      if (error.hint) io.error(`hint: ${error.hint}`);
    }
    return error.code.startsWith("usage.") ? EXIT.usage : EXIT.failed;
  }
  throw error;
}

async function run(argv: string[]): Promise<number> {
  const stop = new AbortController();
  const json = argv.includes("--json");
  let interrupted = false;
  const onSignal = () => {
    // The first signal asks the command to stop; the second ends the process.
    if (interrupted) Deno.exit(EXIT.interrupted);
    interrupted = true;
    stop.abort();
  };
  Deno.addSignalListener("SIGINT", onSignal);
  Deno.addSignalListener("SIGTERM", onSignal);
  const io = createIo({ quiet: argv.includes("--quiet") || argv.includes("-q"), signal: stop.signal });
  try {
    if (argv[0] === "--version" || argv[0] === "version") {
      const { versionText } = await import("./version.ts");
      io.out(versionText());
      return EXIT.done;
    }
    const parsed = parseArgs(argv, commands as readonly Command[], ABOUT);
    if (parsed.kind === "print") {
      io.out(parsed.text);
      return argv.length === 0 ? EXIT.usage : EXIT.done;
    }
    const code = await parsed.command.run({ args: parsed.args, flags: parsed.flags, io });
    return interrupted && code === EXIT.done && parsed.command.name !== "serve" ? EXIT.interrupted : code;
  } catch (error) {
    if (interrupted && error instanceof DOMException && error.name === "AbortError") return EXIT.interrupted;
    return report(error, json, io);
  } finally {
    Deno.removeSignalListener("SIGINT", onSignal);
    Deno.removeSignalListener("SIGTERM", onSignal);
  }
}

if (import.meta.main) Deno.exitCode = await run(Deno.args);
