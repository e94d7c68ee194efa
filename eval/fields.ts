/**
 * Files of JSON objects, one a line, read field by field: they come from outside like any other file, so everything is checked,
 * and what is wrong is named by file, line and field.
 * @module
 */
import { EvalError } from "../core/errors.ts";

type Json = Record<string, unknown>;

/** What a kind of file calls its errors, and who writes such files. */
export interface FieldsOf {
  readonly code: "eval.score_file" | "eval.teacher_file" | "eval.report";
  readonly hint: string;
}

/** More tokens than any vocabulary or window has; a number beyond is damage. */
const MAX_COUNT = 1 << 24;
/** What was found, short enough for a message. */
function told(found: unknown): string {
  if (found === undefined) return "nothing";
  const text = JSON.stringify(found);
  return text.length > 80 ? text.slice(0, 77) + "..." : text;
}

/** Getters of one line that name file, line and field. */
export class Fields {
  readonly #fields: Json;

  constructor(readonly file: string, readonly line: number, value: unknown, readonly kind: FieldsOf) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw this.wrong(undefined, value, "a JSON object");
    }
    this.#fields = value as Json;
  }

  wrong(field: string | undefined, found: unknown, expected: string): EvalError {
    const where = field === undefined ? `line ${this.line}` : `line ${this.line}, field "${field}"`;
    return new EvalError(
      this.kind.code,
      `Cannot read ${this.file}, ${where}: found ${told(found)}, expected ${expected}`,
      {
        at: { file: this.file, line: this.line, ...field === undefined ? {} : { field }, got: found ?? null, expected },
        hint: this.kind.hint,
      },
    );
  }

  str(field: string): string {
    const v = this.#fields[field];
    if (typeof v !== "string") throw this.wrong(field, v, "a text");
    return v;
  }

  /** A field that may be missing, as it is. */
  optional(field: string): unknown {
    return this.#fields[field];
  }

  bool(field: string): boolean {
    const v = this.#fields[field];
    if (typeof v !== "boolean") throw this.wrong(field, v, "true or false");
    return v;
  }

  /** A whole number of `least` to `most`. */
  int(field: string, least: number, most: number = MAX_COUNT, absent?: number): number {
    const v = this.#fields[field];
    return v === undefined && absent !== undefined ? absent : this.#whole(field, v, least, most);
  }

  #whole(field: string, v: unknown, least: number, most: number): number {
    if (Number.isInteger(v) && (v as number) >= least && (v as number) <= most) return v as number;
    throw this.wrong(field, v, `a whole number of ${least} to ${most}`);
  }

  /** A finite number. */
  number(field: string): number {
    const v = this.#fields[field];
    if (typeof v === "number" && Number.isFinite(v)) return v;
    throw this.wrong(field, v, "a finite number");
  }

  /** A list of `n` items, or of any number of them. */
  list(field: string, n?: number): readonly unknown[] {
    return this.#list(field, this.#fields[field], n);
  }

  #list(field: string, v: unknown, n?: number): readonly unknown[] {
    if (!Array.isArray(v)) throw this.wrong(field, v, n === undefined ? "a list" : `a list of ${n}`);
    if (n !== undefined && v.length !== n) throw this.wrong(field, `${v.length} items`, `a list of ${n}`);
    return v;
  }

  /** The token ids of a window: two at least, for one predicts the other. */
  window(field: string, most: number, n_vocab: number): number[] {
    const v = this.list(field);
    if (v.length < 2 || v.length > most) throw this.wrong(field, `${v.length} items`, `a list of 2 to ${most}`);
    return this.ids(field, v.length, n_vocab);
  }

  /** Token ids below `n_vocab`. */
  ids(field: string, n: number, n_vocab: number, v: unknown = this.#fields[field]): number[] {
    return this.#list(field, v, n).map((id, i) => this.#whole(`${field}[${i}]`, id, 0, n_vocab - 1));
  }

  /** Logarithms of probabilities: finite, at most 0. */
  logprobs(field: string, n: number, v: unknown = this.#fields[field]): number[] {
    return this.#list(field, v, n).map((x, i) => {
      if (typeof x === "number" && Number.isFinite(x) && x <= 0) return x;
      throw this.wrong(`${field}[${i}]`, x, "the logarithm of a probability: finite and at most 0");
    });
  }
}

/**
 * The lines of a file of JSON objects; an incomplete last line, as a killed run leaves it, is dropped.
 * @param first What the first line is, for the message where there is none.
 * @throws {EvalError}
 */
export function parseLines(text: string, name: string, first: string, kind: FieldsOf): Fields[] {
  const refuse = (line: number, what: string, cause?: unknown) =>
    new EvalError(kind.code, `Cannot read ${name}, line ${line}: ${what}`, {
      at: { file: name, line },
      hint: kind.hint,
      ...(cause === undefined ? {} : { cause }),
    });
  const parsed = text.split("\n").slice(0, -1).map((row, i) => {
    let value: unknown;
    try {
      value = JSON.parse(row);
    } catch (cause) {
      throw refuse(i + 1, (cause as Error).message, cause);
    }
    return new Fields(name, i + 1, value, kind);
  });
  if (parsed.length === 0) throw refuse(1, `found nothing, expected ${first}`);
  return parsed;
}
