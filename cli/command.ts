/**
 * What a subcommand file exports. A flag is defined once: parsing, help, environment variables, config files, completions and
 * the man page derive from that definition.
 * @module
 */
import type { Io } from "./io.ts";

export type FlagType = "bool" | "int" | "number" | "string" | "strings";

export interface Flag {
  /** Long name without dashes: `ctx-size`. Also the key in a config file. */
  readonly name: string;
  /** Other spellings: `c` is `-c`, `n-ctx` is `--n-ctx` and `-n-ctx`. */
  readonly alias?: readonly string[];
  readonly type: FlagType;
  /** What the value is called in help: `N`; shells complete a `FILE` or a `DIR` of this machine. */
  readonly value?: string;
  readonly help: string;
  readonly default?: boolean | number | string;
  readonly choices?: readonly string[];
  readonly min?: number;
  readonly max?: number;
  /** Words that stand for a number: `{ auto: -1 }`. */
  readonly words?: Readonly<Record<string, number>>;
  /** Environment variable that is read where the flag is not given. */
  readonly env?: string;
  /** A switch that `--no-NAME` turns off, and other spellings of that. */
  readonly off?: readonly string[];
  /** The value when the flag stands alone, for flags whose value may be left out; needs `choices`. */
  readonly bare?: string;
  /** Takes two values, which are kept as `A,B`. */
  readonly pair?: boolean;
  /** One text may hold several values, separated by this. */
  readonly separator?: string;
  readonly required?: boolean;
  /** Why the flag changes nothing here. llama.cpp's command lines have it, so it is accepted with a warning. */
  readonly noEffect?: string;
  /** Why a switch cannot be turned on here, where llama.cpp's command lines may turn it off. */
  readonly refusedOn?: string;
}

export interface Argument {
  readonly name: string;
  readonly help: string;
  readonly optional?: boolean;
  readonly variadic?: boolean;
  /** Words the shell completes the argument with; default: file names. */
  readonly choices?: readonly string[];
}

export type FlagValue = boolean | number | string | string[] | undefined;

export interface Invocation {
  readonly args: readonly string[];
  readonly flags: Flags;
  readonly io: Io;
}

export interface Command {
  readonly name: string;
  readonly summary: string;
  readonly arguments: readonly Argument[];
  readonly flags: readonly Flag[];
  /** Text after the flags in help: examples, notes. */
  readonly epilog?: string;
  /** @returns the exit code. Heavy modules are imported in here, so that `--help` stays fast. */
  run(invocation: Invocation): Promise<number>;
}

/** Where a value came from; the first that has one decides. */
export type FlagOrigin = "flag" | "env" | "config" | "default";

/** Typed access to parsed flags; the parser has already checked types, ranges and choices. */
export class Flags {
  constructor(
    readonly values: ReadonlyMap<string, FlagValue>,
    readonly origins: ReadonlyMap<string, FlagOrigin> = new Map(),
  ) {}

  has(name: string): boolean {
    return this.values.get(name) !== undefined;
  }
  /** The user gave it: on the command line, in the environment or in a config file. */
  given(name: string): boolean {
    return this.has(name) && this.origins.get(name) !== "default";
  }
  bool(name: string): boolean {
    return this.values.get(name) === true;
  }
  num(name: string): number | undefined {
    return this.values.get(name) as number | undefined;
  }
  str(name: string): string | undefined {
    return this.values.get(name) as string | undefined;
  }
  strs(name: string): string[] {
    return (this.values.get(name) as string[] | undefined) ?? [];
  }
}

/** What a process ends with. `threshold`: the work was done, and a limit was not met. */
export const EXIT = { done: 0, failed: 1, usage: 2, threshold: 3, interrupted: 130 } as const;
