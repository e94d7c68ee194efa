/**
 * The values of a command's flags from all places, in their order: flag, environment variable, config file, default.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import { type Command, type Flag, type FlagOrigin, Flags, type FlagValue } from "./command.ts";
import { configValues } from "./config.ts";
import { flagValue } from "./flag_value.ts";
import { shownForms } from "./flag_text.ts";
import { REFUSED } from "./llama_flags.ts";

/** The places besides the command line; what is absent here does not exist. */
export interface Settings {
  /** An environment variable. */
  readonly env?: (name: string) => string | undefined;
  /** The text of a config file. */
  readonly readConfig?: (path: string) => string;
}

/** The value of a flag in the environment. A switch is off where `LLAMA_ARG_NO_...` is set, whatever to. */
function envValue(flag: Flag, env: (name: string) => string | undefined): FlagValue {
  if (flag.env === undefined) return undefined;
  if (flag.off) {
    const negative = flag.env.replace(/^LLAMA_ARG_/, "LLAMA_ARG_NO_");
    if (negative !== flag.env && env(negative) !== undefined) return false;
  }
  const text = env(flag.env);
  return text === undefined || text === "" ? undefined : flagValue(flag, [text], flag.env);
}

const OFF = ["", "0", "false", "off", "disabled", "none"];

/** @throws {UsageError} `usage.not_supported` where a variable asks for what llama.cpp's tools have and this program has not */
function refuseVariables(command: Command, env: (name: string) => string | undefined): void {
  if (!command.flags.some((flag) => flag.noEffect !== undefined)) return; // it takes no command lines of theirs
  const own = new Set(command.flags.map((flag) => flag.env));
  for (const [name, why] of Object.entries(REFUSED)) {
    const variable = `LLAMA_ARG_${name.replaceAll("-", "_").toUpperCase()}`;
    if (own.has(variable) || OFF.includes((env(variable) ?? "").toLowerCase())) continue;
    throw new UsageError("usage.not_supported", `bloomery ${command.name} has no ${variable}: ${why}`, {
      at: { flag: variable },
    });
  }
}

/**
 * Completes what the command line gives.
 * @param given Values of the command line.
 * @param commands All commands: a config file may hold flags of others.
 * @throws {UsageError} `usage.missing_flag`, `usage.value`, `usage.config`
 */
export function settle(
  command: Command,
  given: ReadonlyMap<string, FlagValue>,
  settings: Settings,
  commands: readonly Command[],
): Flags {
  if (settings.env) refuseVariables(command, settings.env);
  const values = new Map<string, FlagValue>();
  const origins = new Map<string, FlagOrigin>();
  const path = given.get("config");
  const config = typeof path === "string" && settings.readConfig
    ? configValues(settings.readConfig(path), path, command, commands)
    : new Map<string, FlagValue>();
  for (const flag of command.flags) {
    const sources: [FlagOrigin, FlagValue][] = [
      ["flag", given.get(flag.name)],
      ["env", settings.env ? envValue(flag, settings.env) : undefined],
      ["config", config.get(flag.name)],
      ["default", flag.default],
    ];
    const found = sources.find(([, value]) => value !== undefined);
    if (found) {
      if (flag.refusedOn !== undefined && found[1] === true) {
        const name = found[0] === "env" ? flag.env! : `--${flag.name}`;
        throw new UsageError("usage.not_supported", `bloomery ${command.name} has no ${name}: ${flag.refusedOn}`, {
          at: { flag: name },
        });
      }
      origins.set(flag.name, found[0]);
      values.set(flag.name, found[1]);
    } else if (flag.required) {
      const names = shownForms(flag).join(" or ");
      throw new UsageError("usage.missing_flag", `bloomery ${command.name} needs ${names}: it is missing`, {
        at: { flag: `--${flag.name}` },
        hint: `give ${shownForms(flag)[0]} ${flag.value ?? "VALUE"}: ${flag.help}`,
      });
    }
  }
  return new Flags(values, origins);
}

/** Flags that were given and change nothing, each with its reason. */
export function withoutEffect(command: Command, flags: Flags): string[] {
  return command.flags.filter((flag) => flag.noEffect !== undefined && flags.given(flag.name))
    .map((flag) => {
      const name = flags.origins.get(flag.name) === "env" ? flag.env : `--${flag.name}`;
      return `${name} has no effect: ${flag.noEffect}`;
    });
}
