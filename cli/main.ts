/**
 * The command line: finds the subcommand, runs it, turns errors into one message and an exit code. No logic of its own.
 * @module
 */
import { EXIT } from "./command.ts";
import { commands } from "./commands.ts";
import { Interrupts } from "./interrupt.ts";
import { createIo } from "./io.ts";
import { parseArgs } from "./parse.ts";
import { report } from "./report.ts";
import { withoutEffect } from "./settings.ts";
import { readText } from "./text_file.ts";

const ABOUT = "Prepares, quantizes, serves and scores language models on your own machine.";

async function run(argv: string[]): Promise<number> {
  // Arguments behind `--` are no flags. Errors before the flags are known are to be printed as they ask.
  const own = argv.slice(0, argv.includes("--") ? argv.indexOf("--") : undefined);
  let json = own.includes("--json");
  const interrupts = new Interrupts(() => {
    io.endBars();
    if (interrupts.resume !== undefined) io.note(interrupts.resume);
    Deno.exit(EXIT.interrupted);
  });
  const io = createIo({ quiet: own.includes("--quiet") || own.includes("-q"), interrupts });
  const onInterrupt = () => interrupts.receive("SIGINT");
  const onTerminate = () => interrupts.receive("SIGTERM");
  Deno.addSignalListener("SIGINT", onInterrupt);
  Deno.addSignalListener("SIGTERM", onTerminate);
  try {
    if (argv[0] === "--version" || argv[0] === "version") {
      const { versionText } = await import("./version.ts");
      io.out(versionText());
      return EXIT.done;
    }
    const parsed = parseArgs(argv, commands, ABOUT, {
      env: (name) => Deno.env.get(name),
      readConfig: (path) => readText(path, "config"),
    });
    if (parsed.kind === "print") {
      io.out(parsed.text);
      return argv.length === 0 ? EXIT.usage : EXIT.done;
    }
    const { command, args, flags } = parsed;
    json = flags.bool("json");
    for (const line of withoutEffect(command, flags)) io.warn(line);
    const code = await command.run({ args, flags, io });
    io.endBars();
    if (!interrupts.interrupted || code !== EXIT.done || command.name === "serve") return code;
    if (interrupts.resume !== undefined) io.note(interrupts.resume);
    return EXIT.interrupted;
  } catch (error) {
    io.endBars();
    if (interrupts.interrupted && error instanceof DOMException && error.name === "AbortError") {
      if (interrupts.resume !== undefined) io.note(interrupts.resume);
      return EXIT.interrupted;
    }
    return report(error, json, io);
  } finally {
    Deno.removeSignalListener("SIGINT", onInterrupt);
    Deno.removeSignalListener("SIGTERM", onTerminate);
  }
}

if (import.meta.main) Deno.exitCode = await run(Deno.args);
