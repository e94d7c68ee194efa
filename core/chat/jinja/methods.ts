/**
 * The methods of Python's str, list and dict that templates call, and `strftime`.
 * @module
 */
import {
  type Callable,
  compare,
  equal,
  Float,
  isText,
  iterate,
  lengthOf,
  numeric,
  repr,
  str,
  TemplateFailure,
  textOf,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

type Method<T> = (self: T, args: Value[], kwargs: Map<string, Value>) => Value;

/** What `str.strip()` takes for white: Unicode spaces and four separators, but not U+FEFF. */
const SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const LEADING = new RegExp(`^${SPACE}+`), TRAILING = new RegExp(`${SPACE}+$`), RUN = new RegExp(`${SPACE}+`);

// Built from a string: the separators U+001C to U+001E are meant, which a linter takes for a slip in a literal.
const LINE_END = new RegExp(`\r\n|[\n\r\v\f${String.fromCharCode(0x1c, 0x1d, 0x1e)}\x85\u2028\u2029]`);

/** `strip`, `lstrip`, `rstrip`: white space, or any of the given characters. */
export function strip(s: string, chars: Value | undefined, left: boolean, right: boolean): string {
  if (chars === undefined || chars === null || chars instanceof Undefined) {
    // A trailing scan by regex is quadratic on long runs of white space inside the text, so it is by hand.
    if (left) s = s.replace(LEADING, "");
    if (right) {
      let end = s.length;
      while (end > 0 && TRAILING.test(s[end - 1])) end--;
      s = s.slice(0, end);
    }
    return s;
  }
  const set = new Set([...need(chars, "strip")]);
  const cs = [...s];
  let from = 0, to = cs.length;
  if (left) { while (from < to && set.has(cs[from])) from++; }
  if (right) { while (to > from && set.has(cs[to - 1])) to--; }
  return cs.slice(from, to).join("");
}

function need(v: Value | undefined, what: string): string {
  if (v === undefined || !isText(v)) throw new TemplateFailure(`${what}() wants a string, got ${typeName(v ?? null)}`);
  return textOf(v);
}

function limit(v: Value | undefined): number {
  const n = v === undefined || v === null ? -1 : numeric(v);
  return n === undefined || n < 0 ? Infinity : n;
}

function split(s: string, sep: Value | undefined, max: number, fromRight: boolean): Value[] {
  if (sep === undefined || sep === null) {
    let rest = strip(s, undefined, true, true);
    const parts: string[] = [];
    if (rest === "") return parts;
    if (!fromRight) {
      while (parts.length < max) {
        const m = RUN.exec(rest);
        if (!m) break;
        parts.push(rest.slice(0, m.index));
        rest = rest.slice(m.index + m[0].length);
      }
      return [...parts, rest];
    }
    const words = rest.split(RUN);
    if (words.length - 1 <= max) return words;
    const kept: string[] = [];
    while (kept.length < max) {
      const word = words.pop()!;
      kept.unshift(word);
      rest = strip(rest.slice(0, rest.length - word.length), undefined, false, true);
    }
    return [rest, ...kept];
  }
  const mark = need(sep, "split");
  if (mark === "") throw new TemplateFailure("empty separator");
  const parts = s.split(mark);
  if (parts.length - 1 <= max) return parts;
  return fromRight
    ? [parts.slice(0, parts.length - max).join(mark), ...parts.slice(parts.length - max)]
    : [...parts.slice(0, max), parts.slice(max).join(mark)];
}

function affix(s: string, v: Value | undefined, test: (s: string, part: string) => boolean): boolean {
  return Array.isArray(v) ? v.some((part) => test(s, need(part, "startswith"))) : test(s, need(v, "startswith"));
}

/** `str.replace(old, new, count)`; a count below zero replaces all. */
export function replace(s: string, from: string, to: string, count: number): string {
  if (count === Infinity) return from === "" ? [...s].map((c) => to + c).join("") + to : s.split(from).join(to);
  let out = "", rest = s;
  for (; count > 0; count--) {
    const at = rest.indexOf(from);
    if (at < 0 || (from === "" && rest === "")) break;
    out += from === "" ? to + rest.slice(0, 1) : rest.slice(0, at) + to;
    rest = rest.slice(from === "" ? 1 : at + from.length);
  }
  return out + rest;
}

/** `str.title()`: first letter of every run of letters up, the others down. */
export const titleCase = (s: string): string =>
  s.replace(/\p{L}+/gu, (w) => {
    const [head, ...tail] = [...w];
    return head.toUpperCase() + tail.join("").toLowerCase();
  });

export const capitalize = (s: string): string => {
  const [head = "", ...tail] = [...s];
  return head.toUpperCase() + tail.join("").toLowerCase();
};

/** `"..." % args`, the conversions s r d i f x and %. */
export function percentFormat(s: string, args: Value): string {
  const list = args instanceof Tuple ? [...args] : [args];
  let next = 0;
  return s.replace(
    /%(?:\((\w+)\))?([-0+ ]*)(\d+)?(?:\.(\d+))?([srdifx%])/g,
    (_, name, flags, width, precision, kind) => {
      if (kind === "%") return "%";
      const v = name === undefined ? list[next++] : args instanceof Map ? args.get(name) : undefined;
      if (v === undefined) throw new TemplateFailure("not enough arguments for format string");
      let text = kind === "s" ? str(v) : kind === "r" ? repr(v) : "";
      if (text === "" && kind !== "s" && kind !== "r") {
        const n = numeric(v);
        if (n === undefined) throw new TemplateFailure(`%${kind} format: a number is required, not ${typeName(v)}`);
        text = kind === "f" ? n.toFixed(Number(precision ?? 6)) : kind === "x" ? n.toString(16) : String(Math.trunc(n));
      }
      const size = Number(width ?? 0);
      if (flags.includes("-")) return text.padEnd(size);
      return flags.includes("0") ? text.padStart(size, "0") : text.padStart(size);
    },
  );
}

function braceFormat(s: string, args: Value[], kwargs: Map<string, Value>): string {
  let next = 0;
  return s.replace(/\{\{|\}\}|\{(\w*)(?::[^}]*)?\}/g, (all, name) => {
    if (all === "{{") return "{";
    if (all === "}}") return "}";
    const v = name === "" ? args[next++] : /^\d+$/.test(name) ? args[Number(name)] : kwargs.get(name);
    if (v === undefined) throw new TemplateFailure(`format() has no argument for {${name}}`);
    return str(v);
  });
}

const find = (s: string, part: string, last: boolean) => {
  const at = last ? s.lastIndexOf(part) : s.indexOf(part);
  return at <= 0 ? at : lengthOf(s.slice(0, at));
};

const every = (pattern: RegExp): Method<string> => (s) => pattern.test(s);

export const strMethods: Record<string, Method<string>> = {
  strip: (s, [chars]) => strip(s, chars, true, true),
  lstrip: (s, [chars]) => strip(s, chars, true, false),
  rstrip: (s, [chars]) => strip(s, chars, false, true),
  split: (s, [sep, max], kw) => split(s, sep ?? kw.get("sep"), limit(max ?? kw.get("maxsplit")), false),
  rsplit: (s, [sep, max], kw) => split(s, sep ?? kw.get("sep"), limit(max ?? kw.get("maxsplit")), true),
  splitlines: (s) => {
    const lines = s.split(LINE_END);
    if (lines.at(-1) === "") lines.pop();
    return lines;
  },
  partition: (s, [sep]) => {
    const at = s.indexOf(need(sep, "partition"));
    return Tuple.of_(at < 0 ? [s, "", ""] : [s.slice(0, at), sep, s.slice(at + str(sep).length)]);
  },
  rpartition: (s, [sep]) => {
    const at = s.lastIndexOf(need(sep, "rpartition"));
    return Tuple.of_(at < 0 ? ["", "", s] : [s.slice(0, at), sep, s.slice(at + str(sep).length)]);
  },
  startswith: (s, [part]) => affix(s, part, (a, b) => a.startsWith(b)),
  endswith: (s, [part]) => affix(s, part, (a, b) => a.endsWith(b)),
  removeprefix: (s, [part]) => s.startsWith(need(part, "removeprefix")) ? s.slice(str(part).length) : s,
  removesuffix: (s, [part]) =>
    str(part) !== "" && s.endsWith(need(part, "removesuffix")) ? s.slice(0, s.length - str(part).length) : s,
  replace: (s, [from, to, count], kw) =>
    replace(s, need(from, "replace"), need(to, "replace"), limit(count ?? kw.get("count"))),
  upper: (s) => s.toUpperCase(),
  lower: (s) => s.toLowerCase(),
  casefold: (s) => s.toLowerCase(),
  title: (s) => titleCase(s),
  capitalize: (s) => capitalize(s),
  find: (s, [part]) => find(s, need(part, "find"), false),
  rfind: (s, [part]) => find(s, need(part, "rfind"), true),
  index: (s, [part]) => {
    const at = find(s, need(part, "index"), false);
    if (at < 0) throw new TemplateFailure("substring not found");
    return at;
  },
  count: (s, [part]) => need(part, "count") === "" ? lengthOf(s) + 1 : s.split(str(part)).length - 1,
  join: (s, [items]) => iterate(items).map((x) => need(x, "join")).join(s),
  format: (s, args, kw) => braceFormat(s, args, kw),
  zfill: (s, [width]) => s.padStart(numeric(width) ?? 0, "0"),
  ljust: (s, [width, fill]) => s.padEnd(numeric(width) ?? 0, fill === undefined ? " " : str(fill)),
  rjust: (s, [width, fill]) => s.padStart(numeric(width) ?? 0, fill === undefined ? " " : str(fill)),
  isdigit: every(/^\p{Nd}+$/u),
  isnumeric: every(/^\p{N}+$/u),
  isalpha: every(/^\p{L}+$/u),
  isalnum: every(/^[\p{L}\p{N}]+$/u),
  isspace: every(new RegExp(`^${SPACE}+$`)),
  isupper: (s) => s !== s.toLowerCase() && s === s.toUpperCase(),
  islower: (s) => s !== s.toUpperCase() && s === s.toLowerCase(),
};

// transformers' sandbox refuses the mutating methods; templates in the wild call them, and llama.cpp lets them.
export const listMethods: Record<string, Method<Value[]>> = {
  append: (l, [x]) => (l.push(x), null),
  extend: (l, [xs]) => (l.push(...iterate(xs)), null),
  insert: (l, [at, x]) => (l.splice(numeric(at) ?? 0, 0, x), null),
  pop: (l, [at]) => {
    const [x] = l.splice(at === undefined ? -1 : numeric(at) ?? -1, 1);
    if (x === undefined) throw new TemplateFailure("pop index out of range");
    return x;
  },
  remove: (l, [x]) => {
    const at = l.findIndex((y) => equal(x, y));
    if (at < 0) throw new TemplateFailure("list.remove(x): x not in list");
    return (l.splice(at, 1), null);
  },
  reverse: (l) => (l.reverse(), null),
  sort: (l) => (l.sort(compare), null),
  index: (l, [x]) => {
    const at = l.findIndex((y) => equal(x, y));
    if (at < 0) throw new TemplateFailure(`${repr(x)} is not in list`);
    return at;
  },
  count: (l, [x]) => l.filter((y) => equal(x, y)).length,
  copy: (l) => [...l],
};

export const dictMethods: Record<string, Method<Map<Value, Value>>> = {
  get: (d, [key, fallback], kw) => d.get(key) ?? fallback ?? kw.get("default") ?? null,
  items: (d) => [...d].map(([k, v]) => Tuple.of_([k, v])),
  keys: (d) => [...d.keys()],
  values: (d) => [...d.values()],
  pop: (d, [key, fallback]) => {
    const v = d.get(key);
    if (v === undefined && fallback === undefined) throw new TemplateFailure(`KeyError: ${repr(key)}`);
    d.delete(key);
    return v ?? fallback;
  },
  setdefault: (d, [key, fallback]) => {
    if (!d.has(key)) d.set(key, fallback ?? null);
    return d.get(key)!;
  },
  update: (d, [other], kw) => {
    if (other instanceof Map) { for (const [k, v] of other) d.set(k, v); }
    for (const [k, v] of kw) d.set(k, v);
    return null;
  },
  copy: (d) => new Map(d),
};

const own = (table: Record<string, unknown>, name: string): boolean => Object.hasOwn(table, name);

/** Whether any type has a method of this name. */
export const isMethodName = (name: string): boolean =>
  own(strMethods, name) || own(listMethods, name) || own(dictMethods, name);

/** `self.name` bound to `self`, or undefined where Python has no such attribute (or we know none). */
export function method(self: Value, name: string): Callable | undefined {
  if (isText(self)) return own(strMethods, name) ? (a, k) => strMethods[name](textOf(self), a, k) : undefined;
  if (Array.isArray(self)) return own(listMethods, name) ? (a, k) => listMethods[name](self, a, k) : undefined;
  if (self instanceof Map) return own(dictMethods, name) ? (a, k) => dictMethods[name](self, a, k) : undefined;
  if (self instanceof Float && name === "is_integer") return () => Number.isInteger(self.value);
  return undefined;
}

const MONTHS = "January February March April May June July August September October November December".split(" ");
const DAYS = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split(" ");

/** C `strftime` in the C locale, of the local time of `t`. Unknown conversions stay as they are. */
export function strftime(t: Date, format: string): string {
  const two = (n: number) => String(n).padStart(2, "0");
  const hour12 = t.getHours() % 12 === 0 ? 12 : t.getHours() % 12;
  const dayOfYear = Math.round(
    (Date.UTC(t.getFullYear(), t.getMonth(), t.getDate()) - Date.UTC(t.getFullYear(), 0, 1)) / 864e5,
  ) + 1;
  const offset = -t.getTimezoneOffset();
  const table: Record<string, () => string> = {
    Y: () => String(t.getFullYear()),
    y: () => two(t.getFullYear() % 100),
    m: () => two(t.getMonth() + 1),
    d: () => two(t.getDate()),
    e: () => String(t.getDate()).padStart(2),
    b: () => MONTHS[t.getMonth()].slice(0, 3),
    h: () => MONTHS[t.getMonth()].slice(0, 3),
    B: () => MONTHS[t.getMonth()],
    a: () => DAYS[t.getDay()].slice(0, 3),
    A: () => DAYS[t.getDay()],
    H: () => two(t.getHours()),
    I: () => two(hour12),
    M: () => two(t.getMinutes()),
    S: () => two(t.getSeconds()),
    f: () => String(t.getMilliseconds() * 1000).padStart(6, "0"),
    p: () => t.getHours() < 12 ? "AM" : "PM",
    j: () => String(dayOfYear).padStart(3, "0"),
    w: () => String(t.getDay()),
    u: () => String(t.getDay() === 0 ? 7 : t.getDay()),
    z: () => (offset < 0 ? "-" : "+") + two(Math.floor(Math.abs(offset) / 60)) + two(Math.abs(offset) % 60),
    Z: () => offset === 0 ? "UTC" : "",
    s: () => String(Math.floor(t.getTime() / 1000)),
    n: () => "\n",
    t: () => "\t",
    "%": () => "%",
    F: () => strftime(t, "%Y-%m-%d"),
    T: () => strftime(t, "%H:%M:%S"),
    R: () => strftime(t, "%H:%M"),
    D: () => strftime(t, "%m/%d/%y"),
    x: () => strftime(t, "%m/%d/%y"),
    X: () => strftime(t, "%H:%M:%S"),
    c: () => strftime(t, "%a %b %e %H:%M:%S %Y"),
  };
  return format.replace(/%(-?)([a-zA-Z%])/g, (all, plain, kind) => {
    if (!Object.hasOwn(table, kind)) return all;
    const text = table[kind]();
    return plain ? text.replace(/^[0 ]+(?=.)/, "") : text;
  });
}
