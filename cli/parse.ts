/**
 * The only module that knows `commander`: turns `Command` definitions into a parser and its help.
 * @module
 */
import { Command as Commander, CommanderError, Option } from "commander";
import { UsageError } from "../core/errors.ts";
import type { Command, Flag, Flags, FlagValue } from "./command.ts";
import { flagValue } from "./flag_value.ts";
import { describeFlag, flagForms } from "./flag_text.ts";
import { REFUSED } from "./llama_flags.ts";
import { nearest } from "./nearest.ts";
import { type Settings, settle } from "./settings.ts";

/** What the command line asks for: run a command, or print a text (help, version). */
export type Parsed =
  | { readonly kind: "run"; readonly command: Command; readonly args: string[]; readonly flags: Flags }
  | { readonly kind: "print"; readonly text: string };

/** A spelling of a flag, dashes included, and whether it turns the flag off. */
type Spellings = ReadonlyMap<string, { readonly flag: Flag; readonly off: boolean }>;

function spellings(flags: readonly Flag[]): Spellings {
  const known = new Map<string, { flag: Flag; off: boolean }>();
  for (const flag of flags) {
    for (const form of flagForms(flag)) known.set(form.text, { flag, off: form.off });
  }
  return known;
}

function unknownFlag(given: string, known: Spellings, command: Command): UsageError {
  const name = given.replace(/^-+/, "");
  if (Object.hasOwn(REFUSED, name)) {
    return new UsageError("usage.not_supported", `bloomery ${command.name} has no ${given}: ${REFUSED[name]}`, {
      at: { flag: given },
    });
  }
  const meant = nearest(given, [...known.keys()].filter((k) => k.startsWith("--")));
  return new UsageError("usage.unknown_flag", `bloomery ${command.name} has no flag ${given}`, {
    at: { flag: given, ...(meant === undefined ? {} : { nearest: meant }) },
    hint: meant !== undefined
      ? `did you mean ${meant}?`
      : given.includes(" ")
      ? "put -- before an argument that begins with a dash"
      : `see bloomery ${command.name} --help`,
  });
}

/**
 * Rewrites every spelling of a flag to `--name` or `--name=value`, so that commander meets no other: it knows neither `-ub` nor
 * values that may be left out.
 * @throws {UsageError} `usage.unknown_flag`, `usage.not_supported`, `usage.value`
 */
function canonical(argv: readonly string[], command: Command): string[] {
  const known = spellings(command.flags);
  const out: string[] = [];
  for (let i = 0; i < argv.length; i++) {
    const arg = argv[i];
    if (arg === "--") return [...out, ...argv.slice(i)];
    if (!arg.startsWith("-") || arg === "-" || arg === "-h" || arg === "--help") {
      out.push(arg === "-h" ? "--help" : arg);
      continue;
    }
    const equals = arg.indexOf("=");
    let head = equals < 0 ? arg : arg.slice(0, equals);
    let value = equals < 0 ? undefined : arg.slice(equals + 1);
    // `-fit` is a long name with one dash.
    let found = known.get(head) ?? known.get(head.replaceAll("_", "-")) ?? known.get(`-${head}`);
    if (found === undefined && /^-[a-zA-Z]-?\d/.test(arg)) {
      // `-c4096`: a number right behind a short flag.
      [head, value] = [arg.slice(0, 2), arg.slice(2)];
      found = known.get(head);
    }
    if (found === undefined) throw unknownFlag(head, known, command);
    const { flag, off } = found;
    if (flag.type === "bool") {
      if (value !== undefined) {
        throw new UsageError("usage.value", `Cannot use ${arg}: ${head} takes no value`, { at: { flag: head } });
      }
      out.push(off ? `--no-${flag.name}` : `--${flag.name}`);
      continue;
    }
    if (value === undefined && flag.bare !== undefined && !flag.choices?.includes(argv[i + 1] ?? "")) value = flag.bare;
    if (value === undefined) {
      value = argv[++i];
      if (flag.pair && value !== undefined) value = argv[i + 1] === undefined ? undefined : `${value},${argv[++i]}`;
      if (value === undefined) {
        throw new UsageError("usage.value", `Cannot use ${head}: its value is missing`, {
          at: { flag: `--${flag.name}` },
          hint: `give ${head} ${flag.value ?? "VALUE"}`,
        });
      }
    }
    out.push(`--${flag.name}=${value}`);
  }
  return out;
}

function addFlag(sub: Commander, flag: Flag): void {
  const forms = flagForms(flag);
  const short = forms.find((f) => f.text.length === 2 && !f.off);
  const value = flag.type === "bool" ? "" : ` <${flag.value ?? "VALUE"}>`;
  const option = new Option(`${short ? `${short.text}, ` : ""}--${flag.name}${value}`, describeFlag(flag));
  if (flag.type !== "bool") option.argParser((text, before) => [...((before as string[] | undefined) ?? []), text]);
  if (flag.noEffect !== undefined) option.hideHelp();
  sub.addOption(option);
  if (flag.off) {
    const off = new Option(`--no-${flag.name}`, `turn --${flag.name} off`);
    if (flag.noEffect !== undefined) off.hideHelp();
    sub.addOption(off);
  }
}

/** What is accepted for llama.cpp's sake, in one paragraph of help. */
function acceptedText(command: Command): string {
  const names = command.flags.filter((f) => f.noEffect !== undefined).map((f) => `--${f.name}`);
  if (names.length === 0) return "";
  const lines: string[] = [];
  for (const name of names) {
    const last = lines.at(-1);
    if (last === undefined || last.length + name.length > 100) lines.push(`  ${name}`);
    else lines[lines.length - 1] = `${last} ${name}`;
  }
  return `\nAccepted as llama.cpp's tools have them, without effect here:\n${lines.join("\n")}`;
}

/** A flag as commander has it, before types are looked at. */
function givenFlags(sub: Commander, command: Command): Map<string, FlagValue> {
  const options = sub.opts() as Record<string, string[] | boolean | undefined>;
  const camel = (name: string) => name.replace(/-(.)/g, (_, c: string) => c.toUpperCase());
  const given = new Map<string, FlagValue>();
  for (const flag of command.flags) {
    // commander stores `--no-x` as `x`, false when given and true when not.
    const negative = flag.name.startsWith("no-");
    const value = options[camel(negative ? flag.name.slice(3) : flag.name)];
    if (negative) { if (value === false) given.set(flag.name, true); }
    else if (typeof value === "boolean") given.set(flag.name, value);
    else if (value !== undefined) given.set(flag.name, flagValue(flag, value, `--${flag.name}`));
  }
  return given;
}

function unknownCommand(name: string, commands: readonly Command[]): UsageError {
  const meant = nearest(name, commands.map((c) => c.name));
  return new UsageError("usage.unknown_command", `bloomery has no command ${name}`, {
    at: { command: name, ...(meant === undefined ? {} : { nearest: meant }) },
    hint: meant === undefined ? "see bloomery --help" : `did you mean bloomery ${meant}?`,
  });
}

/** A command of two words has a dash between them in its name: `eval teach` is `eval-teach`. */
function joinWords(argv: readonly string[], commands: readonly Command[]): readonly string[] {
  const at = argv[0] === "help" ? 1 : 0, name = `${argv[at]}-${argv[at + 1]}`;
  return commands.some((c) => c.name === name) ? [...argv.slice(0, at), name, ...argv.slice(at + 2)] : argv;
}

/**
 * Parses a command line.
 * @param settings Where values come from that no flag gives.
 * @throws {UsageError} `usage.*`, worded for the terminal
 */
export function parseArgs(
  words: readonly string[],
  commands: readonly Command[],
  about: string,
  settings: Settings = {},
): Parsed {
  const argv = joinWords(words, commands);
  let parsed: Parsed | undefined;
  let printed = "";
  const program = new Commander("bloomery")
    .description(about)
    .option("--version", "print version, commit, ABI and devices")
    .configureOutput({ writeOut: (s) => printed += s, writeErr: () => {} })
    .exitOverride()
    .helpCommand("help [command]", "show the help of a command");
  for (const command of commands) {
    const sub = program.command(command.name).summary(command.summary).description(command.summary);
    for (const a of command.arguments) {
      const name = a.variadic ? `${a.name}...` : a.name;
      sub.argument(a.optional ? `[${name}]` : `<${name}>`, a.help);
    }
    for (const flag of command.flags) addFlag(sub, flag);
    const after = [acceptedText(command), command.epilog ? `\n${command.epilog}` : ""].filter((t) => t !== "");
    if (after.length > 0) sub.addHelpText("after", after.join("\n"));
    sub.exitOverride().configureOutput({ writeOut: (s) => printed += s, writeErr: () => {} });
    sub.action(() => {
      const flags = settle(command, givenFlags(sub, command), settings, commands);
      parsed = { kind: "run", command, args: [...sub.args], flags };
    });
  }
  const find = (name: string | undefined) => commands.find((c) => c.name === name);
  const chosen = find(argv[0]);
  const named = argv[0] === "help" ? argv[1] : argv[0];
  if (named !== undefined && named !== "help" && !named.startsWith("-") && !find(named)) {
    throw unknownCommand(named, commands);
  }
  try {
    program.parse(chosen ? [argv[0], ...canonical(argv.slice(1), chosen)] : [...argv], { from: "user" });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0) return { kind: "print", text: printed };
    if (argv.length === 0) return { kind: "print", text: program.helpInformation() };
    throw new UsageError("usage.arguments", reworded(error, chosen), {
      hint: chosen ? `see bloomery ${chosen.name} --help` : "see bloomery --help",
    });
  }
  if (parsed) return parsed;
  return { kind: "print", text: printed || program.helpInformation() };
}

/** commander's message in the form of ours. */
function reworded(error: CommanderError, command: Command | undefined): string {
  const text = error.message.replace(/^error: /, "").replace(/\n[^]*$/, "");
  if (command === undefined) return text;
  const missing = /^missing required argument '(.+)'$/.exec(text)?.[1];
  if (missing !== undefined) return `bloomery ${command.name} needs the argument ${missing}: it is missing`;
  if (error.code === "commander.excessArguments") {
    const most = command.arguments.length;
    const takes = most === 0 ? "no arguments" : most === 1 ? "one argument" : `${most} arguments`;
    const found = / but got (.*?)\.?$/s.exec(text)?.[1];
    return `bloomery ${command.name} takes ${takes}${found === undefined ? "" : `, found ${found}`}`;
  }
  return text;
}
