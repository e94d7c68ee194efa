/**
 * A flag in words: its spellings, and the line that help, the man page and completions show.
 * @module
 */
import type { Flag } from "./command.ts";

/** One spelling with its dashes. */
export interface FlagForm {
  readonly text: string;
  /** It turns the flag off. */
  readonly off: boolean;
}

/** All spellings of a flag; the first is `--name`. A longer alias is taken with one dash and with two. */
export function flagForms(flag: Flag): FlagForm[] {
  const dashed = (name: string) => name.length === 1 ? [`-${name}`] : [`--${name}`, `-${name}`];
  const forms = [`--${flag.name}`, ...(flag.alias ?? []).flatMap(dashed)].map((text) => ({ text, off: false }));
  const off = flag.off ? [`--no-${flag.name}`, ...flag.off.flatMap(dashed)] : [];
  return [...forms, ...off.map((text) => ({ text, off: true }))];
}

/** The spellings to show: `-c, -n-ctx, --ctx-size`. */
export function shownForms(flag: Flag): string[] {
  const short = (flag.alias ?? []).map((name) => name.length > 5 ? `--${name}` : `-${name}`);
  return [...short, `--${flag.name}`, ...(flag.off ? [`--no-${flag.name}`] : [])];
}

/** Help of a flag with its choices, default and environment variable. */
export function describeFlag(flag: Flag): string {
  const facts = [
    ...(flag.choices ? [flag.choices.join(", ")] : []),
    ...(flag.default === undefined ? [] : [`default ${flag.default}`]),
    ...(flag.alias?.some((a) => a.length > 1)
      ? [`also ${flag.alias.filter((a) => a.length > 1).map((a) => a.length > 5 ? `--${a}` : `-${a}`).join(", ")}`]
      : []),
    ...(flag.env === undefined ? [] : [flag.env]),
  ];
  return facts.length === 0 ? flag.help : `${flag.help} [${facts.join("; ")}]`;
}
