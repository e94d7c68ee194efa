/**
 * The only module that knows `commander`: turns `Command` definitions into a parser.
 * @module
 */
import { Command as Commander, CommanderError, InvalidArgumentError, Option } from "commander";
import { UsageError } from "../core/errors.ts";
import { type Command, type Flag, Flags, type FlagValue } from "./command.ts";

/** What the command line asks for: run a command, or print a text (help, version). */
export type Parsed =
  | { readonly kind: "run"; readonly command: Command; readonly args: string[]; readonly flags: Flags }
  | { readonly kind: "print"; readonly text: string };

function parseValue(flag: Flag): (text: string, previous: unknown) => FlagValue {
  return (text, previous) => {
    if (flag.type === "strings") return [...((previous as string[] | undefined) ?? []), text];
    if (flag.type === "string") return text;
    const n = Number(text);
    const whole = flag.type === "int";
    const expected = whole ? "a whole number" : "a number";
    if (text.trim() === "" || !Number.isFinite(n) || (whole && !Number.isInteger(n))) {
      throw new InvalidArgumentError(`found "${text}", expected ${expected}`);
    }
    if (n < (flag.min ?? -Infinity) || n > (flag.max ?? Infinity)) {
      throw new InvalidArgumentError(`found ${text}, expected ${flag.min ?? "any"} to ${flag.max ?? "any"}`);
    }
    return n;
  };
}

function toOption(flag: Flag): Option {
  const names = [...(flag.alias ?? []), flag.name];
  const short = names.find((n) => n.length === 1);
  const value = flag.type === "bool" ? "" : ` <${flag.value ?? "VALUE"}>`;
  const option = new Option(`${short ? `-${short}, ` : ""}--${flag.name}${value}`, flag.help);
  if (flag.type !== "bool") option.argParser(parseValue(flag));
  if (flag.choices) option.choices([...flag.choices]);
  if (flag.default !== undefined) option.default(flag.default);
  if (flag.required) option.makeOptionMandatory();
  return option;
}

/** Rewrites `--n-ctx` and `-ub` style aliases, which commander does not know, to the flag's name. */
function canonical(argv: readonly string[], flags: readonly Flag[]): string[] {
  const long = new Map<string, string>();
  for (const flag of flags) {
    for (const alias of flag.alias ?? []) {
      if (alias.length > 1) {
        long.set(`-${alias}`, `--${flag.name}`);
        long.set(`--${alias}`, `--${flag.name}`);
      }
    }
  }
  const end = argv.indexOf("--");
  return argv.map((a, i) => {
    if (end >= 0 && i >= end) return a;
    const [head, ...rest] = a.split("=");
    const name = long.get(head);
    return name === undefined ? a : [name, ...rest].join("=");
  });
}

/**
 * Parses a command line.
 * @throws {UsageError} `usage.arguments`, worded for the terminal
 */
export function parseArgs(argv: readonly string[], commands: readonly Command[], about: string): Parsed {
  let parsed: Parsed | undefined;
  let printed = "";
  const program = new Commander("bloomery")
    .description(about)
    .option("--version", "print version, commit, ABI and devices")
    .configureOutput({ writeOut: (s) => printed += s, writeErr: () => {} })
    .exitOverride()
    .helpCommand(true)
    .showSuggestionAfterError(true);
  for (const command of commands) {
    const sub = program.command(command.name).summary(command.summary).description(command.summary);
    for (const a of command.arguments) {
      const name = a.variadic ? `${a.name}...` : a.name;
      sub.argument(a.optional ? `[${name}]` : `<${name}>`, a.help);
    }
    for (const flag of command.flags) sub.addOption(toOption(flag));
    if (command.epilog) sub.addHelpText("after", `\n${command.epilog}`);
    sub.exitOverride().configureOutput({ writeOut: (s) => printed += s, writeErr: () => {} });
    sub.action(() => {
      const options = sub.opts() as Record<string, FlagValue>;
      const camel = (name: string) => name.replace(/-(.)/g, (_, c: string) => c.toUpperCase());
      // commander stores `--no-x` as `x`, false when given.
      const valueOf = (name: string): FlagValue =>
        name.startsWith("no-") ? options[camel(name.slice(3))] === false : options[camel(name)];
      const values = new Map(command.flags.map((f) => [f.name, valueOf(f.name)] as const));
      parsed = { kind: "run", command, args: [...sub.args], flags: new Flags(values) };
    });
  }
  const chosen = commands.find((c) => c.name === argv[0]);
  try {
    program.parse(chosen ? [argv[0], ...canonical(argv.slice(1), chosen.flags)] : [...argv], { from: "user" });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0) return { kind: "print", text: printed };
    if (argv.length === 0) return { kind: "print", text: program.helpInformation() };
    throw new UsageError("usage.arguments", error.message.replace(/^error: /, "").replace(/\n[^]*$/, ""), {
      hint: chosen ? `see bloomery ${chosen.name} --help` : "see bloomery --help",
    });
  }
  if (parsed) return parsed;
  return { kind: "print", text: printed || program.helpInformation() };
}
