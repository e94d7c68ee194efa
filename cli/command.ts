/**
 * What a subcommand file exports. A flag is defined once: parsing, help and the README table derive from it.
 * @module
 */
import type { Io } from "./io.ts";

export type FlagType = "bool" | "int" | "number" | "string" | "strings";

export interface Flag {
  /** Long name without dashes: `ctx-size`. */
  readonly name: string;
  /** Other spellings: `c` is `-c`, `n-ctx` is `--n-ctx`. */
  readonly alias?: readonly string[];
  readonly type: FlagType;
  /** What the value is called in help: `N`, `FILE`. */
  readonly value?: string;
  readonly help: string;
  readonly default?: boolean | number | string;
  readonly choices?: readonly string[];
  readonly min?: number;
  readonly max?: number;
  /** May be given more than once; type `strings`. */
  readonly required?: boolean;
}

export interface Argument {
  readonly name: string;
  readonly help: string;
  readonly optional?: boolean;
  readonly variadic?: boolean;
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

/** Typed access to parsed flags; the parser has already checked types, ranges and choices. */
export class Flags {
  constructor(readonly values: ReadonlyMap<string, FlagValue>) {}

  has(name: string): boolean {
    return this.values.get(name) !== undefined;
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

/** Exit codes of style.md's convention. */
export const EXIT = { done: 0, failed: 1, usage: 2, threshold: 3, interrupted: 130 } as const;

/** Flags that several commands share. */
export const COMMON = {
  json: { name: "json", type: "bool", help: "print one JSON document on stdout" },
  quiet: { name: "quiet", alias: ["q"], type: "bool", help: "no progress on stderr" },
  model: {
    name: "model",
    alias: ["m"],
    type: "string",
    value: "FILE",
    help: "GGUF file, or the first of a split set",
    required: true,
  },
  device: {
    name: "device",
    type: "string",
    value: "DEVICE",
    default: "auto",
    help: "auto, cpu, cuda[:i] or reference",
  },
  threads: {
    name: "threads",
    alias: ["t"],
    type: "int",
    value: "N",
    default: 0,
    min: 0,
    max: 1024,
    help: "host threads, 0 = one per core",
  },
  ctxSize: {
    name: "ctx-size",
    alias: ["c"],
    type: "int",
    value: "N",
    min: 1,
    help: "tokens of context (n_ctx); default: what the model was trained for, at most 8192",
  },
  ubatchSize: {
    name: "ubatch-size",
    alias: ["ub"],
    type: "int",
    value: "N",
    default: 512,
    min: 1,
    max: 8192,
    help: "most token rows of one device step (n_ubatch)",
  },
  cacheTypeK: {
    name: "cache-type-k",
    alias: ["ctk"],
    type: "string",
    value: "TYPE",
    default: "f16",
    choices: ["f32", "f16", "q8_0"],
    help: "type of cached keys",
  },
  cacheTypeV: {
    name: "cache-type-v",
    alias: ["ctv"],
    type: "string",
    value: "TYPE",
    default: "f16",
    choices: ["f32", "f16", "q8_0"],
    help: "type of cached values",
  },
} as const satisfies Record<string, Flag>;

/** Flags of every command that runs a model; `cli/open.ts` reads them. */
export const MODEL_FLAGS: readonly Flag[] = [
  COMMON.model,
  COMMON.device,
  COMMON.threads,
  COMMON.ctxSize,
  COMMON.ubatchSize,
  COMMON.cacheTypeK,
  COMMON.cacheTypeV,
];
