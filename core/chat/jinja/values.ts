/**
 * Values of the template language and what Python says of them: `str()`, `repr()`, truth, equality, order, JSON.
 *
 * JavaScript values stand for themselves where the two languages agree. Integers are numbers, or bigints beyond 2^53,
 * floats are `Float` (Python prints 1.0 where JavaScript prints 1), dicts are `Map` (key order, integer keys), tuples are
 * `Tuple`.
 * @module
 */
import { sourceOf } from "../../json.ts";

/** A Python float. */
export class Float {
  constructor(readonly value: number) {}
}

/** A Python tuple: prints with parentheses, otherwise a list. */
export class Tuple extends Array<Value> {
  static of_(items: Value[]): Tuple {
    const t = new Tuple();
    for (const item of items) t.push(item);
    return t;
  }
}

/** Text marked by `|safe`: joined to plain text, the plain text is HTML-escaped, as markupsafe does. */
export class Markup {
  constructor(readonly text: string) {}
}

/** A missing variable or member; `message` is what Jinja says when it is used. */
export class Undefined {
  constructor(readonly message: string) {}
}

/** The object of `namespace(...)`, the one thing a template may assign members of. */
export class Namespace {
  constructor(readonly members: Map<Value, Value>) {}
}

/** A macro, a method or a global function. */
export type Callable = (args: Value[], kwargs: Map<string, Value>) => Value;

export type Value =
  | string
  | number
  | bigint
  | boolean
  | null
  | Float
  | Markup
  | Undefined
  | Namespace
  | Callable
  | Value[]
  | Map<Value, Value>;

/** A template that cannot be evaluated: what Python would raise as TypeError, UndefinedError and so on. */
export class TemplateFailure extends Error {}

/** `raise_exception(words)`: the template refuses the conversation. */
export class TemplateRefusal extends Error {}

/** JSON-like input to values; what {@link sourceOf} knows of a parsed text counts: order of keys, floats, long integers. */
export function toValue(input: unknown): Value {
  switch (typeof input) {
    case "string":
    case "boolean":
    case "bigint":
      return input;
    case "number":
      return Number.isInteger(input) ? input : new Float(input);
    case "function":
      return input as Callable;
    case "object": {
      if (input === null) return null;
      const source = sourceOf(input);
      const member = (key: string | number, value: unknown) => {
        const literal = source?.literals?.get(key);
        return literal === undefined ? toValue(value) : numberOf(literal);
      };
      if (Array.isArray(input)) return input.map((value, i) => member(i, value));
      const entries = input instanceof Map
        ? input.entries()
        : source?.keys?.map((key) => [key, (input as Record<string, unknown>)[key]] as const) ?? Object.entries(input);
      const map = new Map<Value, Value>();
      for (const [key, value] of entries) if (value !== undefined) map.set(key as Value, member(key, value));
      return map;
    }
    default:
      return new Undefined("value is undefined");
  }
}

/** The number that a JSON literal is in Python. */
function numberOf(literal: string): Value {
  if (/[.eE]/.test(literal)) return new Float(Number(literal));
  const n = Number(literal);
  return Number.isSafeInteger(n) ? n : BigInt(literal);
}

/** The type name that Python's messages would carry. */
export function typeName(v: Value): string {
  if (v === null) return "NoneType";
  if (typeof v === "string") return "str";
  if (typeof v === "number" || typeof v === "bigint") return "int";
  if (typeof v === "boolean") return "bool";
  if (typeof v === "function") return "function";
  if (v instanceof Float) return "float";
  if (v instanceof Markup) return "Markup";
  if (v instanceof Undefined) return "Undefined";
  if (v instanceof Namespace) return "Namespace";
  if (v instanceof Tuple) return "tuple";
  return Array.isArray(v) ? "list" : "dict";
}

export const isText = (v: Value): v is string | Markup => typeof v === "string" || v instanceof Markup;

/** The characters of a string or of marked text. */
export const textOf = (v: string | Markup): string => typeof v === "string" ? v : v.text;

export function truthy(v: Value): boolean {
  if (v instanceof Float) return v.value !== 0;
  if (v instanceof Markup) return v.text !== "";
  if (v instanceof Undefined) return false;
  if (Array.isArray(v)) return v.length > 0;
  if (v instanceof Map) return v.size > 0;
  return Boolean(v);
}

/** A number of Python's tower (bool included), or undefined. */
export function numeric(v: Value): number | undefined {
  if (typeof v === "number") return v;
  if (typeof v === "boolean" || typeof v === "bigint") return Number(v);
  return v instanceof Float ? v.value : undefined;
}

/** Python's `==`: by value for lists and dicts, `1 == 1.0 == True`. */
export function equal(a: Value, b: Value): boolean {
  const na = numeric(a), nb = numeric(b);
  if (na !== undefined || nb !== undefined) return na === nb;
  if (isText(a) && isText(b)) return textOf(a) === textOf(b);
  if (a instanceof Undefined && b instanceof Undefined) return true;
  if (Array.isArray(a) && Array.isArray(b)) {
    return a instanceof Tuple === b instanceof Tuple && a.length === b.length && a.every((x, i) => equal(x, b[i]));
  }
  if (a instanceof Map && b instanceof Map) {
    return a.size === b.size && [...a].every(([k, v]) => b.has(k) && equal(v, b.get(k)!));
  }
  return a === b;
}

/** Python's `<` as a sign; strings by code point. Throws where Python does. */
export function compare(a: Value, b: Value): number {
  const na = numeric(a), nb = numeric(b);
  if (na !== undefined && nb !== undefined) return na - nb;
  if (isText(a) && isText(b)) return compareText(textOf(a), textOf(b));
  if (Array.isArray(a) && Array.isArray(b)) {
    for (let i = 0; i < Math.min(a.length, b.length); i++) {
      const c = equal(a[i], b[i]) ? 0 : compare(a[i], b[i]);
      if (c !== 0) return c;
    }
    return a.length - b.length;
  }
  throw new TemplateFailure(`'<' not supported between instances of '${typeName(a)}' and '${typeName(b)}'`);
}

function compareText(a: string, b: string): number {
  if (a === b) return 0;
  const x = [...a], y = [...b];
  for (let i = 0; i < Math.min(x.length, y.length); i++) {
    if (x[i] !== y[i]) return x[i].codePointAt(0)! - y[i].codePointAt(0)!;
  }
  return x.length - y.length;
}

/**
 * Items that `for` and the sequence filters walk over. None has none of them: Python would refuse, but what templates walk
 * over without asking is `tools` and `documents`, and a conversation without tools is no error of the user's.
 */
export function iterate(v: Value): Value[] {
  if (Array.isArray(v)) return v;
  if (isText(v)) return [...textOf(v)];
  if (v instanceof Map) return [...v.keys()];
  if (v === null || v instanceof Undefined) return [];
  throw new TemplateFailure(`'${typeName(v)}' object is not iterable`);
}

/** Length in Python's sense: strings count code points. */
export function lengthOf(v: Value): number {
  if (Array.isArray(v)) return v.length;
  if (isText(v)) return codePoints(textOf(v));
  if (v instanceof Map) return v.size;
  if (v instanceof Undefined) return 0;
  throw new TemplateFailure(`object of type '${typeName(v)}' has no len()`);
}

function codePoints(s: string): number {
  let n = 0;
  for (const _ of s) n++;
  return n;
}

/** `repr(float)`: shortest digits, exponent form below 1e-4 and from 1e16. */
export function floatText(x: number): string {
  if (Number.isNaN(x)) return "nan";
  if (!Number.isFinite(x)) return x > 0 ? "inf" : "-inf";
  if (Object.is(x, -0)) return "-0.0";
  const size = Math.abs(x);
  if (x !== 0 && (size < 1e-4 || size >= 1e16)) {
    const [digits, exponent] = x.toExponential().split("e");
    const sign = exponent[0] === "-" ? "-" : "+";
    return `${digits}e${sign}${exponent.slice(1).padStart(2, "0")}`;
  }
  return Number.isInteger(x) ? `${x}.0` : String(x);
}

/** `str(v)`, what `{{ v }}` prints. */
export function str(v: Value): string {
  if (typeof v === "string") return v;
  if (v instanceof Markup) return v.text;
  if (v instanceof Undefined) return "";
  return repr(v);
}

/** `repr(v)`, what a list prints of its members. */
export function repr(v: Value): string {
  if (v === null) return "None";
  if (typeof v === "boolean") return v ? "True" : "False";
  if (typeof v === "number" || typeof v === "bigint") return String(v); // -0 is "0"
  if (v instanceof Float) return floatText(v.value);
  if (isText(v)) return quote(textOf(v));
  if (v instanceof Undefined) return "Undefined";
  if (v instanceof Tuple) return v.length === 1 ? `(${repr(v[0])},)` : `(${[...v].map(repr).join(", ")})`;
  if (Array.isArray(v)) return `[${v.map(repr).join(", ")}]`;
  if (v instanceof Map) return `{${[...v].map(([k, x]) => `${repr(k)}: ${repr(x)}`).join(", ")}}`;
  return v instanceof Namespace ? `<Namespace ${repr(v.members)}>` : "<function>";
}

function quote(s: string): string {
  const mark = s.includes("'") && !s.includes('"') ? '"' : "'";
  let out = mark;
  for (const c of s) {
    const code = c.codePointAt(0)!;
    if (c === mark || c === "\\") out += "\\" + c;
    else if (c === "\n") out += "\\n";
    else if (c === "\r") out += "\\r";
    else if (c === "\t") out += "\\t";
    else if (code < 32 || (code >= 0x7f && code <= 0xa0) || code === 0xad) {
      out += "\\x" + code.toString(16).padStart(2, "0");
    } else out += c;
  }
  return out + mark;
}

export interface JsonStyle {
  indent: number | string | null;
  separators: [string, string] | null;
  sortKeys: boolean;
  ensureAscii: boolean;
}

/** `json.dumps` as transformers calls it: spaces after `,` and `:`, no HTML escapes, non-ASCII verbatim. */
export function json(v: Value, style: JsonStyle): string {
  const pad = typeof style.indent === "number" ? " ".repeat(style.indent) : style.indent;
  const [comma, colon] = style.separators ?? (pad === null ? [", ", ": "] : [",", ": "]);
  const text = (s: string) => {
    const quoted = JSON.stringify(s);
    return style.ensureAscii
      ? quoted.replace(/[\x7f-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"))
      : quoted;
  };
  const wrap = (open: string, parts: string[], close: string, depth: number) => {
    if (parts.length === 0) return open + close;
    if (pad === null) return open + parts.join(comma) + close;
    const inner = "\n" + pad.repeat(depth + 1);
    return open + inner + parts.join(comma + inner) + "\n" + pad.repeat(depth) + close;
  };
  const write = (x: Value, depth: number): string => {
    if (x === null || x instanceof Undefined) return "null";
    if (typeof x === "boolean") return String(x);
    if (typeof x === "number" || typeof x === "bigint") return repr(x);
    if (x instanceof Float) {
      return Number.isFinite(x.value)
        ? floatText(x.value)
        : Number.isNaN(x.value)
        ? "NaN"
        : x.value > 0
        ? "Infinity"
        : "-Infinity";
    }
    if (isText(x)) return text(textOf(x));
    if (Array.isArray(x)) return wrap("[", [...x].map((item) => write(item, depth + 1)), "]", depth);
    if (x instanceof Map) {
      const entries = [...x];
      if (style.sortKeys) entries.sort((a, b) => compare(a[0], b[0]));
      const key = (k: Value) => text(isText(k) ? textOf(k) : write(k, 0));
      return wrap("{", entries.map(([k, item]) => key(k) + colon + write(item, depth + 1)), "}", depth);
    }
    throw new TemplateFailure(`Object of type ${typeName(x)} is not JSON serializable`);
  };
  return write(v, 0);
}

/** HTML escapes as markupsafe writes them. */
export function escapeHtml(s: string): string {
  return s.replace(/[&<>'"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;" })[c]!);
}
