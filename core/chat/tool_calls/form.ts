/**
 * The other direction: how a family writes calls, as a grammar, for answers that must be calls.
 *
 * A grammar takes nothing that the family's parser would not read as the same call. It is the family's usual way of
 * writing: parsers take more.
 * @module
 */
import { TextError } from "../../errors.ts";
import {
  alt,
  classOf,
  complement,
  type Expr,
  intersect,
  mapLeaves,
  optional,
  repeat,
  rule,
  type Rules,
  seq,
  text,
  without,
} from "../../sampling/grammar/expr.ts";
import { formatOf } from "../../sampling/grammar/json_formats.ts";
import { pointerPart } from "../../sampling/grammar/json_pointer.ts";
import { parseJsonSchema } from "../../sampling/grammar/json_schema.ts";
import { textOtherThan } from "../../sampling/grammar/json_strings.ts";
import { patternOf } from "../../sampling/grammar/regex.ts";
import { ArgumentType } from "./argument_type.ts";

/** How a family writes calls. */
export interface CallForm {
  /** Before the first call and behind the last. */
  begin?: Expr;
  end?: Expr;
  /** Between two calls; undefined where an answer has one at most. */
  between?: Expr;
  /** One call. */
  call(tool: FormTool): Expr;
}

/** A tool as forms see it. */
export interface FormTool {
  readonly name: string;
  /** The arguments as one JSON object. */
  readonly args: Expr;
  /** The arguments that the schema names, one by one, in its order. */
  readonly members: readonly FormMember[];
  /** Any number of others, where the schema does not name all that may be given. */
  readonly extra: FormExtra | undefined;
}

/** An argument that the schema does not name. */
export interface FormExtra {
  readonly key: Expr;
  /** The value as JSON, without `<`. */
  json(): Expr;
}

export interface FormMember {
  readonly key: string;
  readonly required: boolean;
  /** A string by its schema, and written as it is; JSON otherwise. */
  readonly isString: boolean;
  /** The value as JSON, a string too, without `<`. */
  json(): Expr;
  /** The value, up to the marker behind it, which is no part of it. */
  value(close: string): Expr;
}

const name = (tool: FormTool): string => JSON.stringify(tool.name);

/** A call as an object with name and arguments inside. */
export const objectCall = (
  tool: FormTool,
  keys: { name: string; args: string } = { name: "name", args: "arguments" },
) => seq(text(`{"${keys.name}": ${name(tool)}, "${keys.args}": `), tool.args, text("}"));

/** Arguments one by one: those that are required, and any of the others, in order. */
export const memberList = (tool: FormTool, one: (m: FormMember) => Expr): Expr =>
  seq(...tool.members.map((m) => m.required ? one(m) : optional(one(m))));

/**
 * The arguments of a call in `<open>value<close>` elements, where the values end at `marker`.
 * @param open The text before a value; the same for strings and others where the reader finds out by itself.
 */
export function elements(
  tool: FormTool,
  open: (m: Pick<FormMember, "key" | "isString">) => string,
  close: string,
  marker: string,
): Expr {
  const named = memberList(tool, (m) => {
    checkKey(tool, m.key, /^(?!\s)[^<>"]+(?<!\s)$/);
    return seq(text(open(m)), m.value(marker), text(close));
  });
  const { extra } = tool;
  if (extra === undefined) return named;
  const one = (isString: boolean, value: Expr) => {
    const [before, behind] = open({ key: HOLE, isString }).split(HOLE);
    return seq(text(before), extra.key, text(behind), value, text(close));
  };
  const asText = one(true, without(marker));
  const told = open({ key: HOLE, isString: true }) !== open({ key: HOLE, isString: false });
  return seq(named, repeat(told ? alt([asText, one(false, extra.json())]) : asText, 0, Infinity));
}

/** Stands for a key that is yet to be written. */
const HOLE = "\0";

/**
 * Refuses an argument whose name the family's markup cannot carry.
 * @throws {TextError} `text.schema`
 */
export function checkKey(tool: FormTool, key: string, writable: RegExp): void {
  if (!writable.test(key)) cannotWrite(tool, `its argument ${JSON.stringify(key)} cannot be written in it; rename it`);
}

/** @throws {TextError} `text.schema` */
export function cannotWrite(tool: FormTool, why: string): never {
  throw new TextError(
    "text.schema",
    `Cannot describe calls of "${tool.name}" in this model's markup: ${why}`,
    { at: { tool: tool.name }, hint: 'tool_choice "auto" leaves the choice to the model' },
  );
}

/**
 * The rules of an answer that is one call, or several where `many`.
 * @param tools As requests have them.
 * @throws {TextError} `text.schema` and kin for parameters that cannot be compiled.
 */
export function callRules(form: CallForm, tools: readonly unknown[], many: boolean): Rules {
  const rules = new Map<string, Expr>(), ignored = new Set<string>();
  const calls = (tools as { function?: ToolFunction }[]).map((tool, i) =>
    form.call(formTool((tool.function ?? tool) as ToolFunction, rules, ignored, `tool${i}`))
  );
  rules.set("call", alt(calls));
  const list = many && form.between !== undefined
    ? seq(rule("call"), repeat(seq(form.between, rule("call")), 0, Infinity), behindCalls)
    : rule("call");
  const none = text("");
  rules.set("answer", seq(optional(alt([text("\n"), text("\n\n")])), form.begin ?? none, list, form.end ?? none));
  return { root: "answer", rules, ignored: [...ignored] };
}

/** White space that parsers skip: a model that ends its line behind the last call is not made to go on. */
const behindCalls = repeat(classOf([[9, 10], [13, 13], [32, 32]]), 0, 4);

interface ToolFunction {
  name: string;
  parameters?: Record<string, unknown> | null | undefined;
}

/** Keywords of the parameters that arguments written one by one do not keep. */
const NOT_KEPT = [
  ...["$ref", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "propertyNames", "minProperties"],
  ...["maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"],
];
/** Those that may name further arguments. */
const COMPOSED = ["$ref", "allOf", "anyOf", "oneOf"];
/** Keywords of strings that are not kept where a string is written as it is. */
const NOT_KEPT_OF_STRINGS = ["pattern", "format", "minLength", "maxLength"];

/** Characters of names that no markup means anything by, and no reader takes for white space. */
const KEY_CHARACTERS = [
  ...[[0x24, 0x24], [0x2d, 0x2e], [0x30, 0x39], [0x41, 0x5a], [0x5f, 0x5f], [0x61, 0x7a]] as const,
  ...[[0xc0, 0x167f], [0x3041, 0xd7ff]] as const,
];

type Schema = Record<string, unknown>;

const isObject = (v: unknown): v is Schema => typeof v === "object" && v !== null && !Array.isArray(v);

function formTool(f: ToolFunction, rules: Map<string, Expr>, ignored: Set<string>, prefix: string): FormTool {
  const document: Schema = f.parameters ?? { properties: {} }; // without parameters there are no arguments
  const properties = isObject(document.properties) ? document.properties : {};
  const required = Array.isArray(document.required) ? document.required.filter((x) => typeof x === "string") : [];
  const keys = [...new Set([...Object.keys(properties), ...required])];
  const added = (prefix: string, change: (leaf: Expr) => Expr, ...schema: Parameters<typeof parseJsonSchema>): Expr => {
    const compiled = parseJsonSchema(...schema);
    for (const at of compiled.ignored) ignored.add(`${f.name}: ${at}`);
    for (const [name, e] of compiled.rules) {
      rules.set(prefix + name, mapLeaves(e, (leaf) => leaf.type === "rule" ? rule(prefix + leaf.name) : change(leaf)));
    }
    return rule(prefix + compiled.root);
  };
  const note = (s: Schema, at: string, keywords: readonly string[]) => {
    for (const key of keywords) if (s[key] !== undefined) ignored.add(`${f.name}: ${at}/${key}`);
  };
  const member = (key: string, i: number): FormMember => {
    const given = Object.hasOwn(properties, key) ? properties[key] ?? true : true;
    const at = `#/properties/${pointerPart(key)}`;
    const type = new ArgumentType(given, document);
    const { isString, values: texts } = type;
    // A "<" within a value, which could begin a marker, is written in JSON's other way.
    const json = () => added(`${prefix}.${i} `, withoutAngles, document, { schema: given, at });
    return {
      key,
      required: required.includes(key),
      isString,
      json,
      value(close) {
        if (!isString) return json();
        if (texts) return alt(texts.map((t) => text(String(t))));
        const own = writable(given, close);
        for (const keyword of NOT_KEPT_OF_STRINGS) {
          if (type.uses(keyword) && !own?.keeps.includes(keyword)) ignored.add(`${f.name}: ${at}/${keyword}`);
        }
        return own?.text ?? without(close);
      },
    };
  };
  const others = document.additionalProperties;
  const given = (key: string) => document[key] !== undefined;
  const open = COMPOSED.some(given) ||
    (others !== false && (others !== undefined || given("patternProperties") || !isObject(document.properties)));
  return {
    name: f.name,
    get args() {
      return added(`${prefix} `, (e) => e, { type: "object", ...document });
    },
    get members() {
      note(document, "#", NOT_KEPT);
      if (isObject(others) && Object.keys(others).length > 0) note(document, "#", ["additionalProperties"]);
      return keys.map(member);
    },
    extra: !open ? undefined : {
      key: textOtherThan(["", ...keys], KEY_CHARACTERS),
      json: () => added(`${prefix}.extra `, withoutAngles, true),
    },
  };
}

/**
 * The texts of a string's pattern or format, where they are written as they are: without the character that the closing
 * marker begins with. Undefined where there is neither, or nothing is left.
 */
function writable(s: unknown, close: string): { text: Expr; keeps: readonly string[] } | undefined {
  if (!isObject(s) || COMPOSED.some((keyword) => s[keyword] !== undefined)) return undefined;
  const pattern = typeof s.pattern === "string" ? patternOf(s.pattern) : undefined;
  const given = pattern ?? formatOf(s.format);
  if (given === undefined) return undefined;
  const first = close.codePointAt(0)!, others = complement([[first, first]]);
  let whole = true;
  const text = mapLeaves(given, (leaf) => {
    if (leaf.type === "text") whole &&= !leaf.text.includes(close[0]);
    if (leaf.type !== "class") return leaf;
    const ranges = intersect(leaf.ranges, others);
    whole &&= ranges.length > 0;
    return classOf(ranges);
  });
  return whole ? { text, keeps: pattern === undefined ? ["format"] : ["pattern", "format"] } : undefined;
}

const ANGLE: readonly (readonly [number, number])[] = [[0x3c, 0x3c]];

function withoutAngles(e: Expr): Expr {
  if (e.type === "text") return text(e.text.replaceAll("<", "\\u003c"));
  if (e.type !== "class" || intersect(e.ranges, ANGLE).length === 0) return e;
  return alt([classOf(intersect(e.ranges, complement(ANGLE))), text("\\u003c")]);
}
