/**
 * What the parsers of all families produce, and the JSON that most of them wrap.
 * @module
 */
import type { Reading, Source } from "./stream.ts";

/** A complete call: `arguments` is JSON text of an object. */
export interface Call {
  name: string;
  arguments: string;
  /** Where the format carries one. */
  id?: string;
}

/** What is known of the request's tools. */
export interface ToolSet {
  /** Whether a call of this name is one of the request's tools; all names where the request's are not known. */
  has(name: string): boolean;
  /** Whether the schema says that this argument is a string; undefined where it says nothing. */
  isString(name: string, argument: string): boolean | undefined;
}

/** Where and how a family writes calls. */
export interface Family {
  name: string;
  /** Tags around reasoning at the start of an answer. */
  reasoning?: { start: string; end: string };
  /** Tags around the answer proper, which are no part of it. */
  content?: { start: string; end: string };
  /** A call may end the reasoning without its closing tag. */
  callEndsReasoning?: boolean;
  /** Markers that open calls; none where a family has no calls that could be told from text. */
  starts: readonly string[];
  /**
   * Reads the calls behind a marker, all up to where content may go on.
   * @returns undefined where it is no call after all; what was read is content then.
   */
  calls?(s: Source, marker: string, tools: ToolSet): Reading<Call[] | undefined>;
  /** Calls may stand without marker where the answer begins with one of these. */
  bareStarts?: readonly string[];
  bare?(s: Source, tools: ToolSet): Reading<Call[] | undefined>;
  /** Markers that are control tokens and must reach the parser as text. */
  preserved: readonly string[];
  /** Strings that end an answer besides the end tokens. */
  stops?: readonly string[];
}

/** Parses JSON, undefined where it is none. */
export function tryJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const isObject = (v: unknown): v is Record<string, unknown> => typeof v === "object" && v !== null && !Array.isArray(v);

/** The text of a member of an object's JSON text, as written: key order and number format stay the model's. */
export function memberText(object: string, key: string): string | undefined {
  let depth = 0, found: string | undefined;
  let name: string | undefined, start = -1;
  const close = (end: number) => {
    if (depth === 1 && name === key && start >= 0) found = object.slice(start, end).trim();
    if (depth === 1) [name, start] = [undefined, -1];
  };
  for (let i = 0; i < object.length; i++) {
    const c = object[i];
    if (c === '"') {
      const from = i;
      for (i++; i < object.length && object[i] !== '"'; i++) if (object[i] === "\\") i++;
      if (depth === 1 && start < 0) name = tryJson(object.slice(from, i + 1)) as string;
    } else if (c === ":" && depth === 1 && start < 0) start = i + 1;
    else if (c === "{" || c === "[") depth++;
    else if (c === "}" || c === "]") {
      close(i);
      depth--;
    } else if (c === ",") close(i);
  }
  return found;
}

/** JSON text of arguments: an object as written; a string that holds one is opened; none is `{}`. */
export function argumentsText(text: string | undefined): string | undefined {
  if (text === undefined || text === "" || text === "null") return "{}";
  const value = tryJson(text);
  if (isObject(value)) return text;
  if (typeof value === "string") {
    return value.trim() === "" ? "{}" : isObject(tryJson(value)) ? value.trim() : undefined;
  }
  return undefined;
}

/** A call from an object with its name and arguments inside; undefined where it is none. */
export function callFromObject(
  text: string,
  tools: ToolSet,
  keys: { name: string; args: readonly string[]; id?: string } = {
    name: "name",
    args: ["arguments", "parameters"],
    id: "id",
  },
): Call | undefined {
  const object = tryJson(text);
  if (!isObject(object)) return undefined;
  const name = object[keys.name];
  if (typeof name !== "string" || !tools.has(name.trim())) return undefined;
  const key = keys.args.find((k) => Object.hasOwn(object, k));
  const args = argumentsText(key === undefined ? undefined : memberText(text, key));
  if (args === undefined) return undefined;
  const id = keys.id === undefined ? undefined : object[keys.id];
  return { name: name.trim(), arguments: args, ...(typeof id === "string" && id !== "" ? { id } : {}) };
}

/** Calls from the text of a JSON array of such objects. */
export function callsFromArray(
  text: string,
  tools: ToolSet,
  keys?: { name: string; args: readonly string[]; id?: string },
): Call[] | undefined {
  const items = elementTexts(text);
  const calls = items?.map((item) => callFromObject(item, tools, keys));
  return calls && calls.length > 0 && calls.every((c) => c !== undefined) ? calls : undefined;
}

/** Texts of an array's elements. */
export function elementTexts(array: string): string[] | undefined {
  const list = tryJson(array);
  if (!Array.isArray(list)) return undefined;
  const texts: string[] = [];
  let depth = 0, start = array.indexOf("[") + 1;
  for (let i = start - 1; i < array.length; i++) {
    const c = array[i];
    if (c === '"') { for (i++; i < array.length && array[i] !== '"'; i++) if (array[i] === "\\") i++; }
    else if (c === "{" || c === "[") depth++;
    else if (c === "}" || c === "]") depth--;
    if ((c === "," && depth === 1) || depth === 0) {
      const text = array.slice(start, i).trim();
      if (text !== "") texts.push(text);
      start = i + 1;
    }
  }
  return texts;
}

/** Arguments written one by one in markup, assembled into JSON text. */
export class ArgumentList {
  readonly #parts: string[] = [];
  constructor(readonly call: string, readonly tools: ToolSet) {}

  /**
   * @param value As written. A string by schema is literal; other values are JSON, or Python's spelling of it, or
   * else a string after all.
   * @param literal Set where the markup itself says string or not.
   */
  add(key: string, value: string, literal = this.tools.isString(this.call, key)): void {
    this.#parts.push(`${JSON.stringify(key)}: ${literal === true ? JSON.stringify(value) : looseJson(value)}`);
  }

  text(): string {
    return `{${this.#parts.join(", ")}}`;
  }
}

/** JSON text of a value that is JSON, Python's `True`, `None` or single-quoted strings, or plain text. */
function looseJson(value: string): string {
  const text = value.trim();
  if (tryJson(text) !== undefined) return text;
  if (/^[[{'TFN]/.test(text)) {
    const json = fromPython(text);
    if (tryJson(json) !== undefined) return json;
  }
  return JSON.stringify(value);
}

/** Python's literals rewritten to JSON's; strings keep their contents. */
export function fromPython(text: string): string {
  return text.replace(/'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\b(?:True|False|None)\b/gs, (token) => {
    if (token[0] === "'") {
      const body = token.slice(1, -1).replace(/\\'/g, "'").replace(/(?<!\\)"/g, '\\"');
      return `"${body.replace(/\n/g, "\\n")}"`;
    }
    return { True: "true", False: "false", None: "null" }[token] ?? token;
  });
}
