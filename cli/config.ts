/**
 * Config files: flags as JSON. A key is the name of a flag and holds for every command that has it; the name of a command holds
 * an object with flags for that command alone, which go first. A name that is not the same flag everywhere must be in such an
 * object.
 * @module
 */
import { z } from "zod";
import { UsageError } from "../core/errors.ts";
import { parseJson } from "../core/json.ts";
import type { Command, Flag, FlagValue } from "./command.ts";
import { expectedValue, flagValue } from "./flag_value.ts";
import { nearest } from "./nearest.ts";

/** What JSON a flag takes; `flagValue` checks the rest. */
function schemaOf(flag: Flag): z.ZodType<string | number | boolean | (string | number)[]> {
  const text = z.union([z.string(), z.number()]);
  if (flag.type === "bool") return z.boolean();
  if (flag.type === "strings") return z.union([text, z.array(text)]);
  if (flag.type === "string" || flag.words) return text;
  return z.number();
}

function expectedJson(flag: Flag): string {
  if (flag.type === "bool") return "true or false";
  return flag.type === "strings" ? "a text or a list of texts" : expectedValue(flag);
}

/** Names under which a config file may have a flag: its name, long aliases, each also with underscores. */
function keysOf(flag: Flag): string[] {
  return [flag.name, ...(flag.alias ?? []).filter((a) => a.length > 2)].flatMap((name) =>
    name.includes("-") ? [name, name.replaceAll("-", "_")] : [name]
  );
}

/** The flags of a command by key. */
function flagsByKey(command: Command): Map<string, Flag> {
  const byKey = new Map<string, Flag>();
  for (const flag of command.flags) {
    if (flag.name === "config") continue; // a config file names no other
    for (const key of keysOf(flag)) byKey.set(key, flag);
  }
  return byKey;
}

function refuse(path: string, what: string, hint?: string): never {
  throw new UsageError("usage.config", `Cannot use ${path}: ${what}`, {
    at: { file: path },
    ...(hint === undefined ? {} : { hint }),
  });
}

/** @throws {UsageError} `usage.config` */
function read(
  object: Record<string, unknown>,
  byKey: ReadonlyMap<string, Flag>,
  path: string,
  within: string,
): Map<string, FlagValue> {
  const values = new Map<string, FlagValue>();
  for (const [key, value] of Object.entries(object)) {
    const flag = byKey.get(key);
    if (flag === undefined) continue;
    const name = `key "${within}${key}"`;
    if (values.has(flag.name)) refuse(path, `${name} sets --${flag.name} a second time`);
    const json = schemaOf(flag).safeParse(value);
    if (!json.success) refuse(path, `${name} is ${JSON.stringify(value)}, expected ${expectedJson(flag)}`);
    values.set(flag.name, flagValue(flag, [json.data].flat().map(String), `${name} of ${path}:`));
  }
  return values;
}

function refuseUnknown(path: string, object: Record<string, unknown>, known: readonly string[], within: string): void {
  const shape = z.strictObject(Object.fromEntries(known.map((key) => [key, z.unknown().optional()])));
  const checked = shape.safeParse(object);
  if (checked.success) return;
  const [key] = checked.error.issues.flatMap((issue) => issue.code === "unrecognized_keys" ? issue.keys : []);
  const meant = nearest(key, known);
  refuse(
    path,
    `there is no key "${within}${key}"`,
    meant === undefined ? undefined : `did you mean "${within}${meant}"?`,
  );
}

/**
 * The flags of a command that a config file sets.
 * @param text The file's text.
 * @throws {UsageError} `usage.config` naming file and key; `usage.value`
 */
export function configValues(
  text: string,
  path: string,
  command: Command,
  commands: readonly Command[],
): Map<string, FlagValue> {
  let parsed: unknown;
  try {
    parsed = parseJson(text);
  } catch (cause) {
    refuse(path, `it is not JSON: ${(cause as Error).message}`);
  }
  const object = z.record(z.string(), z.unknown()).safeParse(parsed);
  if (!object.success) refuse(path, "it holds no JSON object", 'write {"ctx-size": 4096}');
  const keys = commands.map(flagsByKey);
  const names = commands.map((c) => c.name);
  refuseUnknown(path, object.data, [...new Set([...keys.flatMap((k) => [...k.keys()]), ...names])], "");
  const sections = new Map<string, Map<string, FlagValue>>();
  commands.forEach((c, i) => {
    // A flag's own key goes before a command of the same name.
    if (!Object.hasOwn(object.data, c.name)) return;
    const section = z.record(z.string(), z.unknown()).safeParse(object.data[c.name]);
    if (!section.success) {
      if (keys.some((k) => k.has(c.name))) return;
      refuse(path, `key "${c.name}" is no object with flags of bloomery ${c.name}`);
    }
    refuseUnknown(path, section.data, [...keys[i].keys()], `${c.name}.`);
    sections.set(c.name, read(section.data, keys[i], path, `${c.name}.`));
  });
  for (const key of Object.keys(object.data)) {
    if (sections.has(key)) continue;
    const meanings = new Map<string, string>(); // flag to the first command that has it
    commands.forEach((c, i) => {
      const flag = keys[i].get(key);
      const meaning = `${flag?.type} ${flag?.name}`;
      if (flag !== undefined && !meanings.has(meaning)) meanings.set(meaning, c.name);
    });
    const [one, other] = meanings.values();
    if (other === undefined) continue;
    refuse(
      path,
      `key "${key}" is one flag for bloomery ${one} and another for bloomery ${other}`,
      `write {"${one}": {"${key}": ...}}`,
    );
  }
  const common = read(object.data, flagsByKey(command), path, "");
  return new Map([...common, ...(sections.get(command.name) ?? [])]);
}
