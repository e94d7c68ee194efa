/**
 * Filters (`value | name(args)`) and tests (`value is name(args)`) of Jinja, as templates of chat models use them.
 * @module
 */
import { parseJson } from "../../json.ts";
import { capitalize, isMethodName, method, percentFormat, replace, strip, titleCase } from "./methods.ts";
import {
  type Callable,
  compare,
  equal,
  escapeHtml,
  Float,
  isText,
  iterate,
  json,
  lengthOf,
  Markup,
  numeric,
  repr,
  str,
  TemplateFailure,
  textOf,
  toValue,
  truthy,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

type Filter = (v: Value, args: Value[], kwargs: Map<string, Value>) => Value;
type Test = (v: Value, ...args: Value[]) => boolean;

const given = (v: Value | undefined): v is Value => v !== undefined && v !== null && !(v instanceof Undefined);

/** `a.b.0` looked up member by member, as `map(attribute=...)` and its kin do. */
function attribute(item: Value, path: Value): Value {
  let v = item;
  for (const part of typeof path === "number" ? [path] : str(path).split(".")) {
    if (v instanceof Map) v = v.get(part) ?? new Undefined(`'dict object' has no attribute '${part}'`);
    else if (Array.isArray(v) && /^\d+$/.test(String(part))) v = v[Number(part)] ?? new Undefined("list index");
    else return new Undefined(`'${typeName(v)}' object has no attribute '${part}'`);
  }
  return v;
}

const fold = (v: Value): Value => isText(v) ? textOf(v).toLowerCase() : v;

function sorted(items: Value[], key: (v: Value) => Value, reverse: boolean, caseSensitive: boolean): Value[] {
  const keyed = items.map((item) => ({ item, key: caseSensitive ? key(item) : fold(key(item)) }));
  keyed.sort((a, b) => reverse ? compare(b.key, a.key) : compare(a.key, b.key));
  return keyed.map((k) => k.item);
}

function toInt(v: Value, fallback: Value, base: number): Value {
  const n = numeric(v);
  if (n !== undefined) return Math.trunc(n);
  if (!isText(v)) return fallback;
  const text = strip(textOf(v), undefined, true, true).replaceAll("_", "");
  if (/^[+-]?\d+$/.test(text) && base === 10) return Number(text);
  if (base !== 10) {
    const parsed = parseInt(text, base);
    return Number.isNaN(parsed) ? fallback : parsed;
  }
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Math.trunc(Number(text)) : fallback;
}

function toFloat(v: Value, fallback: Value): Value {
  const n = numeric(v);
  if (n !== undefined) return new Float(n);
  if (!isText(v)) return fallback;
  const text = strip(textOf(v), undefined, true, true);
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? new Float(Number(text)) : fallback;
}

function indent(s: string, width: Value, first: boolean, blank: boolean): string {
  const pad = isText(width) ? textOf(width) : " ".repeat(numeric(width) ?? 4);
  return s.split("\n").map((line, i) => (i === 0 ? first : blank || line !== "") ? pad + line : line).join("\n");
}

/** Half to even, as Python's round(). */
function roundHalfEven(x: number, digits: number): number {
  const scale = 10 ** digits, y = x * scale, floor = Math.floor(y), part = y - floor;
  const whole = part > 0.5 ? floor + 1 : part < 0.5 ? floor : floor % 2 === 0 ? floor : floor + 1;
  return whole / scale;
}

/** Keeps the items for which the test named by `args` (or truth) answers `keep`. */
function select(items: Value, args: Value[], keep: boolean, of: (item: Value) => Value): Value[] {
  if (!truthy(items)) return [];
  const [name, ...rest] = args;
  const test: Test = name === undefined ? truthy : testNamed(str(name));
  return iterate(items).filter((item) => test(of(item), ...rest) === keep);
}

function map(items: Value, args: Value[], kwargs: Map<string, Value>): Value[] {
  if (!truthy(items)) return [];
  const path = kwargs.get("attribute");
  if (path !== undefined) {
    const fallback = kwargs.get("default");
    return iterate(items).map((item) => {
      const v = attribute(item, path);
      return v instanceof Undefined && fallback !== undefined ? fallback : v;
    });
  }
  const [name, ...rest] = args;
  if (name === undefined) throw new TemplateFailure("map requires a filter argument");
  return iterate(items).map((item) => applyFilter(str(name), item, rest, kwargs));
}

function groupBy(items: Value, path: Value): Value[] {
  const groups: [Value, Value[]][] = [];
  for (const item of sorted(iterate(items), (v) => attribute(v, path), false, false)) {
    const key = attribute(item, path);
    const last = groups.at(-1);
    if (last && equal(last[0], key)) last[1].push(item);
    else groups.push([key, [item]]);
  }
  return groups.map(([key, list]) => Tuple.of_([key, list]));
}

function chunks(items: Value[], size: number, fill: Value | undefined): Value[] {
  const rows: Value[] = [];
  for (let i = 0; i < items.length; i += size) {
    const row = items.slice(i, i + size);
    while (fill !== undefined && row.length < size) row.push(fill);
    rows.push(row);
  }
  return rows;
}

const filters: Record<string, Filter> = {
  abs: (v) => v instanceof Float ? new Float(Math.abs(v.value)) : Math.abs(numeric(v) ?? NaN),
  attr: (v, [name]) => attribute(v, name),
  batch: (v, [size, fill]) => chunks(iterate(v), numeric(size) ?? 1, fill),
  bool: (v) => truthy(v),
  capitalize: (v) => capitalize(str(v)),
  center: (v, [width]) => {
    const s = str(v), total = Math.max(0, (numeric(width) ?? 80) - lengthOf(s));
    return " ".repeat(Math.floor(total / 2)) + s + " ".repeat(Math.ceil(total / 2));
  },
  default: (v, [fallback, boolean], kw) =>
    v instanceof Undefined || (truthy(boolean ?? kw.get("boolean") ?? false) && !truthy(v))
      ? fallback ?? kw.get("default_value") ?? ""
      : v,
  dictsort: (v, [caseSensitive, by, reverse], kw) => {
    if (!(v instanceof Map)) throw new TemplateFailure(`dictsort wants a mapping, got ${typeName(v)}`);
    const index = str(by ?? kw.get("by") ?? "key") === "value" ? 1 : 0;
    const items = [...v].map(([k, x]) => Tuple.of_([k, x]));
    const flag = (x: Value | undefined, name: string) => truthy(x ?? kw.get(name) ?? false);
    return sorted(items, (x) => (x as Tuple)[index], flag(reverse, "reverse"), flag(caseSensitive, "case_sensitive"));
  },
  escape: (v) => v instanceof Markup ? v : new Markup(escapeHtml(str(v))),
  first: (v) => iterate(v)[0] ?? new Undefined("No first item, sequence was empty."),
  float: (v, [fallback]) => toFloat(v, fallback ?? new Float(0)),
  forceescape: (v) => new Markup(escapeHtml(str(v))),
  format: (v, args, kw) => percentFormat(str(v), kw.size > 0 ? new Map<Value, Value>(kw) : Tuple.of_(args)),
  // No filter of Jinja's: DeepSeek's templates expect it of whoever renders them.
  from_json: (v) => {
    try {
      return toValue(parseJson(str(v)));
    } catch (e) {
      throw new TemplateFailure(`from_json: ${(e as Error).message}`);
    }
  },
  groupby: (v, [path], kw) => groupBy(v, path ?? kw.get("attribute") ?? 0),
  indent: (v, [width, first, blank], kw) =>
    indent(
      str(v),
      width ?? kw.get("width") ?? 4,
      truthy(first ?? kw.get("first") ?? false),
      truthy(blank ?? kw.get("blank") ?? false),
    ),
  int: (v, [fallback, base], kw) =>
    toInt(v, fallback ?? kw.get("default") ?? 0, numeric(base ?? kw.get("base") ?? 10)!),
  items: (v) => v instanceof Undefined ? [] : method(v, "items")?.([], new Map()) ?? fail("items", v),
  join: (v, [separator, path], kw) => {
    const by = path ?? kw.get("attribute");
    const items = given(by) ? iterate(v).map((x) => attribute(x, by)) : iterate(v);
    return items.map(str).join(str(separator ?? kw.get("d") ?? ""));
  },
  last: (v) => iterate(v).at(-1) ?? new Undefined("No last item, sequence was empty."),
  length: (v) => lengthOf(v),
  list: (v) => [...iterate(v)],
  lower: (v) => str(v).toLowerCase(),
  map: (v, args, kw) => map(v, args, kw),
  max: (v) => extreme(iterate(v), 1),
  min: (v) => extreme(iterate(v), -1),
  pprint: (v) => repr(v),
  reject: (v, args) => select(v, args, false, (x) => x),
  rejectattr: (v, [path, ...rest]) => select(v, rest, false, (x) => attribute(x, path)),
  replace: (v, [from, to, count], kw) => {
    const times = count ?? kw.get("count");
    return replace(str(v), str(from), str(to), given(times) && numeric(times)! >= 0 ? numeric(times)! : Infinity);
  },
  reverse: (v) => isText(v) ? [...textOf(v)].reverse().join("") : [...iterate(v)].reverse(),
  round: (v, [precision, how], kw) => {
    const digits = numeric(precision ?? kw.get("precision") ?? 0)!, x = numeric(v) ?? NaN, scale = 10 ** digits;
    const mode = str(how ?? kw.get("method") ?? "common");
    if (mode === "ceil") return new Float(Math.ceil(x * scale) / scale);
    return new Float(mode === "floor" ? Math.floor(x * scale) / scale : roundHalfEven(x, digits));
  },
  safe: (v) => new Markup(str(v)),
  select: (v, args) => select(v, args, true, (x) => x),
  selectattr: (v, [path, ...rest]) => select(v, rest, true, (x) => attribute(x, path)),
  slice: (v, [count]) => {
    const items = iterate(v), n = numeric(count) ?? 1, size = Math.floor(items.length / n), extra = items.length % n;
    return Array.from({ length: n }, (_, i) => {
      const from = i * size + Math.min(i, extra);
      return items.slice(from, from + size + (i < extra ? 1 : 0));
    });
  },
  sort: (v, [reverse, caseSensitive, path], kw) => {
    const by = path ?? kw.get("attribute");
    const flag = (x: Value | undefined, name: string) => truthy(x ?? kw.get(name) ?? false);
    const key = given(by) ? (x: Value) => attribute(x, by) : (x: Value) => x;
    return sorted(iterate(v), key, flag(reverse, "reverse"), flag(caseSensitive, "case_sensitive"));
  },
  string: (v) => v instanceof Markup ? v : str(v),
  striptags: (v) => strip(str(v).replace(/<[^>]*>/g, "").replace(/\s+/g, " "), undefined, true, true),
  sum: (v, [path], kw) => {
    const by = path ?? kw.get("attribute");
    const items = given(by) ? iterate(v).map((x) => attribute(x, by)) : iterate(v);
    const total = items.reduce((n: number, x) => n + (numeric(x) ?? NaN), 0);
    return items.some((x) => x instanceof Float) ? new Float(total) : total;
  },
  title: (v) => titleCase(str(v)),
  tojson: (v, [indentArg], kw) => {
    const width = indentArg ?? kw.get("indent");
    const separators = kw.get("separators");
    return json(v, {
      indent: given(width) ? (isText(width) ? textOf(width) : numeric(width)!) : null,
      separators: Array.isArray(separators) ? [str(separators[0]), str(separators[1])] : null,
      sortKeys: truthy(kw.get("sort_keys") ?? false),
      ensureAscii: truthy(kw.get("ensure_ascii") ?? false),
    });
  },
  trim: (v, [chars], kw) => strip(str(v), chars ?? kw.get("chars"), true, true),
  truncate: (v, [size], kw) => {
    const s = [...str(v)], max = numeric(size ?? kw.get("length") ?? 255)!;
    return s.length <= max + 5 ? s.join("") : s.slice(0, max - 3).join("") + "...";
  },
  unique: (v) => {
    const seen: Value[] = [];
    return iterate(v).filter((x) => {
      const key = fold(x);
      if (seen.some((y) => equal(y, key))) return false;
      seen.push(key);
      return true;
    });
  },
  upper: (v) => str(v).toUpperCase(),
  urlencode: (v) => encodeURIComponent(str(v)).replaceAll("%2F", "/"),
  wordcount: (v) => (str(v).match(/[\p{L}\p{N}_]+/gu) ?? []).length,
};
filters.d = filters.default;
filters.e = filters.escape;
filters.count = filters.length;

function extreme(items: Value[], sign: number): Value {
  if (items.length === 0) return new Undefined("No aggregated item, sequence was empty.");
  return items.reduce((best, x) => Math.sign(compare(fold(x), fold(best))) === sign ? x : best);
}

function fail(filter: string, v: Value): never {
  throw new TemplateFailure(`filter ${filter} cannot be applied to ${typeName(v)}`);
}

/** Tests whose argument follows the name come here with it. */
const tests: Record<string, Test> = {
  boolean: (v) => typeof v === "boolean",
  callable: (v) => typeof v === "function",
  defined: (v) => !(v instanceof Undefined),
  divisibleby: (v, n) => (numeric(v) ?? NaN) % (numeric(n) ?? NaN) === 0,
  eq: (v, x) => equal(v, x),
  escaped: (v) => v instanceof Markup,
  even: (v) => (numeric(v) ?? NaN) % 2 === 0,
  false: (v) => v === false,
  filter: (v) => isFilter(str(v)),
  float: (v) => v instanceof Float,
  ge: (v, x) => compare(v, x) >= 0,
  gt: (v, x) => compare(v, x) > 0,
  in: (v, x) => contains(x, v),
  integer: (v) => typeof v === "number" || typeof v === "bigint",
  iterable: (v) => isText(v) || Array.isArray(v) || v instanceof Map || v instanceof Undefined,
  le: (v, x) => compare(v, x) <= 0,
  lower: (v) => str(v) === str(v).toLowerCase() && str(v) !== str(v).toUpperCase(),
  lt: (v, x) => compare(v, x) < 0,
  mapping: (v) => v instanceof Map,
  ne: (v, x) => !equal(v, x),
  none: (v) => v === null,
  number: (v) => numeric(v) !== undefined,
  odd: (v) => Math.abs((numeric(v) ?? NaN) % 2) === 1,
  sameas: (v, x) => v === x,
  sequence: (v) => isText(v) || Array.isArray(v) || v instanceof Map || v instanceof Undefined,
  string: (v) => isText(v),
  test: (v) => isTest(str(v)),
  true: (v) => v === true,
  undefined: (v) => v instanceof Undefined,
  upper: (v) => str(v) === str(v).toUpperCase() && str(v) !== str(v).toLowerCase(),
};
Object.assign(tests, {
  "==": tests.eq,
  equalto: tests.eq,
  "!=": tests.ne,
  "<": tests.lt,
  lessthan: tests.lt,
  "<=": tests.le,
  ">": tests.gt,
  greaterthan: tests.gt,
  ">=": tests.ge,
});

/** Python's `needle in holder`. */
export function contains(holder: Value, needle: Value): boolean {
  if (isText(holder)) {
    if (!isText(needle)) {
      throw new TemplateFailure(`'in <string>' requires string as left operand, not ${typeName(needle)}`);
    }
    return textOf(holder).includes(textOf(needle));
  }
  if (holder instanceof Map) return holder.has(needle instanceof Markup ? needle.text : needle);
  return iterate(holder).some((x) => equal(x, needle));
}

/** A name usable after `|`: a filter, or a method of str, list or dict, which llama.cpp takes there too. */
export const isFilter = (name: string): boolean => Object.hasOwn(filters, name) || isMethodName(name);

export const isTest = (name: string): boolean => Object.hasOwn(tests, name);

export function testNamed(name: string): Test {
  if (!isTest(name)) throw new TemplateFailure(`No test named '${name}'`);
  return tests[name];
}

export function applyFilter(name: string, v: Value, args: Value[], kwargs: Map<string, Value>): Value {
  if (Object.hasOwn(filters, name)) return filters[name](v, args, kwargs);
  const call: Callable | undefined = method(v, name);
  if (call) return call(args, kwargs);
  if (isMethodName(name)) return fail(name, v);
  throw new TemplateFailure(`No filter named '${name}'`);
}
