/**
 * The one error hierarchy. Every error that reaches a user carries a stable `code`, a message of one sentence
 * (what failed, where, what was found, what was wanted) and a `hint` that says what to do.
 *
 * A broken invariant of our own is a bug and throws a plain `Error` instead.
 * @module
 */

/** The part of a code before its dot; each names the subclass that carries it. */
export type ErrorArea =
  | "format"
  | "model"
  | "plan"
  | "native"
  | "usage"
  | "text"
  | "engine"
  | "quantize"
  | "serve"
  | "eval"
  | "hub"
  | "os";

/** A stable, never reused identifier such as `format.bad_magic`. */
export type ErrorCode = `${ErrorArea}.${string}`;

/** Facts of an error for programs and `--json`; JSON-serializable. */
export type ErrorFacts = Record<string, unknown>;

export interface BloomeryErrorOptions {
  /** The facts of the message once more, for programs. */
  at?: ErrorFacts;
  /** What the user can do about it. */
  hint?: string;
  cause?: unknown;
}

/** Base of all errors that are somebody's input's fault or the machine's, not ours. */
export class BloomeryError extends Error {
  /** Stable, for programs. */
  readonly code: ErrorCode;
  /** The facts of the message once more. */
  readonly at: ErrorFacts;
  /** What to do about it. */
  readonly hint: string | undefined;

  /** `message` is one sentence: what failed, where, what was found, what was wanted. */
  constructor(code: ErrorCode, message: string, options: BloomeryErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = new.target.name;
    this.code = code;
    this.at = options.at ?? {};
    this.hint = options.hint;
  }

  /** The `--json` form: `{"error": {code, message, hint, at}}`. */
  toJSON(): { error: { code: ErrorCode; message: string; hint?: string; at: ErrorFacts } } {
    return {
      error: {
        code: this.code,
        message: this.message,
        ...(this.hint === undefined ? {} : { hint: this.hint }),
        at: this.at,
      },
    };
  }
}

/** A file's bytes are not what its format says. Codes `format.*`. */
export class FormatError extends BloomeryError {}

/** A well-formed file does not describe a model that can be used. Codes `model.*`. */
export class ModelError extends BloomeryError {}

/** Placement or type planning refused. Codes `plan.*`. */
export class PlanError extends BloomeryError {}

/** The native library or a device refused. Codes `native.*`. */
export class NativeError extends BloomeryError {}

/** Flags, arguments or request bodies are off. Codes `usage.*`. */
export class UsageError extends BloomeryError {}

/** Tokenizers, chat templates, grammars. Codes `text.*`. */
export class TextError extends BloomeryError {}

/** Sequences, caches, steps. Codes `engine.*`. */
export class EngineError extends BloomeryError {}

/** Quantization and conversion. Codes `quantize.*`. */
export class QuantizeError extends BloomeryError {}

/** Requests to the server that cannot be answered. Codes `serve.*`. */
export class ServeError extends BloomeryError {}

/** Scores and comparisons. Codes `eval.*`. */
export class EvalError extends BloomeryError {}

/** Downloads of models. Codes `hub.*`. */
export class HubError extends BloomeryError {}

/** A file, a disk or a network did not do what was asked; `os_error.ts` makes them. Codes `os.*`. */
export class OsError extends BloomeryError {}

/** Items shown of a list in a message. */
const SHOWN = 3;

/** A list in a message: three items and how many more there are. `at` of the error has them all. */
export function shortList(items: readonly string[], separator = ", "): string {
  if (items.length <= SHOWN) return items.join(separator);
  return `${items.slice(0, SHOWN).join(separator)} and ${items.length - SHOWN} more`;
}

/** Problems of different kinds, each on a line of its own: this many fit on a screen beside the hint. */
const PROBLEMS = 8;

/** Problems in a message: the one there is, or all on lines of their own; of very many, three and how many more there are. */
export function problemList(problems: readonly string[]): string {
  if (problems.length === 1) return problems[0];
  const shown = problems.length > PROBLEMS
    ? [...problems.slice(0, SHOWN), `and ${problems.length - SHOWN} more`]
    : problems;
  return [`${problems.length} problems:`, ...shown].join("\n  ");
}
