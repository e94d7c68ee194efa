/**
 * Calls whose arguments are JSON in the model's text: they pass through as written.
 * @module
 */
import type { ToolSet } from "./call.ts";
import { JsonScanner } from "./json_scan.ts";
import { cutOff, jsonValue, literal, type Reading, type Source, space } from "./stream.ts";
import type { CallWriter } from "./writer.ts";
import { tryJson } from "./loose_json.ts";

/** Members of an object that is a call. */
export interface CallKeys {
  name: string;
  args: readonly string[];
  id?: string;
}

const KEYS: CallKeys = { name: "name", args: ["arguments", "parameters"], id: "id" };

const isObject = (v: unknown): v is Record<string, unknown> => typeof v === "object" && v !== null && !Array.isArray(v);

/** Reads the arguments of an open call, an object, and ends the call; false when the call was held and is malformed. */
export function* objectArguments(s: Source, w: CallWriter, ends: readonly string[]): Reading<boolean> {
  const scanner = new JsonScanner();
  while (true) {
    const from = s.pos;
    s.pos = scanner.scan(s.text, from);
    w.write(s.text.slice(from, s.pos));
    if (scanner.done) {
      w.end();
      return true;
    }
    if (scanner.bad || s.ended) return yield* w.broken(ends);
    s.forget();
    yield;
  }
}

/** Reads a call's arguments behind its name: an object, or nothing before the closing marker. */
export function* jsonArguments(
  s: Source,
  w: CallWriter,
  name: string,
  ends: readonly string[],
  id?: string,
): Reading<boolean> {
  yield* space(s);
  if (s.text[s.pos] === "{") {
    w.begin(name, id);
    return yield* objectArguments(s, w, ends);
  }
  const end = yield* literal(s, ends);
  if (end === undefined) return false;
  s.pos -= end.length;
  w.add({ name, arguments: "{}", ...(id === undefined ? {} : { id }) });
  return true;
}

/**
 * Reads an object with a call's name and arguments inside. Nothing is sent before both are known; an id behind the
 * arguments is ignored.
 *
 * @param ends Markers behind the object; one of them may replace its last brace.
 */
export function* callObject(
  s: Source,
  tools: ToolSet,
  w: CallWriter,
  ends: readonly string[],
  keys: CallKeys = KEYS,
): Reading<boolean> {
  if ((yield* literal(s, ["{"])) === undefined) return false;
  let name: string | undefined, id: string | undefined, held: string | undefined;
  let shown = false;
  for (let first = true;; first = false) {
    yield* space(s);
    const next = yield* literal(s, ["}", ",", ...ends]);
    if (next === "}") break;
    if (next !== undefined && ends.includes(next)) {
      s.pos -= next.length;
      return shown;
    }
    if ((next === ",") === first) return false;
    const key = yield* jsonString(s);
    yield* space(s);
    if (key === undefined || (yield* literal(s, [":"])) === undefined) return false;
    yield* space(s);
    if (!shown && name !== undefined && keys.args.includes(key) && s.text[s.pos] === "{") {
      w.begin(name, id);
      if (!(yield* objectArguments(s, w, ends))) return false;
      shown = true;
      continue;
    }
    const value = yield* jsonValue(s);
    if (value === undefined) return false;
    if (key === keys.name && name === undefined) {
      name = stringOf(value)?.trim();
      if (name === undefined || !tools.has(name)) return false;
    } else if (key === keys.id) id = stringOf(value) || undefined;
    else if (keys.args.includes(key)) held ??= value;
  }
  if (!shown) {
    const args = argumentsText(held);
    if (name === undefined || args === undefined) return false;
    w.add({ name, arguments: args, ...(id === undefined ? {} : { id }) });
  }
  s.mark = s.pos;
  return true;
}

/** Reads an object `{NAME: {arguments}}`. */
export function* keyedCall(s: Source, tools: ToolSet, w: CallWriter, ends: readonly string[]): Reading<boolean> {
  if ((yield* literal(s, ["{"])) === undefined) return false;
  const name = yield* jsonString(s);
  yield* space(s);
  if (name === undefined || !tools.has(name) || (yield* literal(s, [":"])) === undefined) return false;
  yield* space(s);
  if (s.text[s.pos] === "{") {
    w.begin(name);
    if (!(yield* objectArguments(s, w, ends))) return false;
  } else if (!(yield* jsonArguments(s, w, name, ["}", ...ends]))) return false;
  yield* space(s);
  if ((yield* literal(s, ["}"])) !== undefined) s.mark = s.pos;
  return true;
}

/** Reads an array of calls. */
export function* callArray(
  s: Source,
  w: CallWriter,
  ends: readonly string[],
  one: () => Reading<boolean>,
): Reading<boolean> {
  yield* space(s);
  if ((yield* literal(s, ["["])) === undefined) return false;
  while (true) {
    yield* space(s);
    if (!(yield* one())) return false;
    yield* space(s);
    const next = yield* literal(s, ["]", ",", ...ends]);
    if (next === undefined) {
      if (!s.ended || (s.pos < s.text.length && !cutOff(s, ends))) return false;
      s.pos = s.text.length; // the end of the text cut the array's end: the call before is complete
    } else if (ends.includes(next)) s.pos -= next.length;
    w.explained();
    if (next !== ",") return true;
  }
}

function* jsonString(s: Source): Reading<string | undefined> {
  yield* space(s);
  return s.text[s.pos] === '"' ? stringOf(yield* jsonValue(s)) : undefined;
}

function stringOf(text: string | undefined): string | undefined {
  const value = text === undefined ? undefined : tryJson(text);
  return typeof value === "string" ? value : undefined;
}

/** JSON text of arguments: an object as written; a string that holds one is opened; none is `{}`. */
function argumentsText(text: string | undefined): string | undefined {
  if (text === undefined || text === "null") return "{}";
  const value = tryJson(text);
  if (isObject(value)) return text;
  if (typeof value !== "string") return undefined;
  return value.trim() === "" ? "{}" : isObject(tryJson(value)) ? value.trim() : undefined;
}
