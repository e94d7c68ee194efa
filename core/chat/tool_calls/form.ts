/**
 * The other direction: how a family writes calls, as a grammar, for answers that must be calls.
 *
 * A grammar takes nothing that the family's parser would not read as the same call. It is the family's usual way of
 * writing: parsers take more.
 * @module
 */
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
import { parseJsonSchema } from "../../sampling/grammar/json_schema.ts";

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
  /** The arguments one by one, in the schema's order. */
  readonly members: readonly FormMember[];
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

/** The arguments of a call in `<open>value<close>` elements, where the values end at `marker`. */
export const elements = (
  tool: FormTool,
  open: (m: FormMember) => string,
  close: string,
  marker: string,
): Expr => memberList(tool, (m) => seq(text(open(m)), m.value(marker), text(close)));

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
    ? seq(rule("call"), repeat(seq(form.between, rule("call")), 0, Infinity))
    : rule("call");
  const none = text("");
  rules.set("answer", seq(optional(alt([text("\n"), text("\n\n")])), form.begin ?? none, list, form.end ?? none));
  return { root: "answer", rules, ignored: [...ignored] };
}

interface ToolFunction {
  name: string;
  parameters?: Record<string, unknown> | null | undefined;
}

function formTool(f: ToolFunction, rules: Map<string, Expr>, ignored: Set<string>, prefix: string): FormTool {
  const parameters = f.parameters ?? {};
  const properties = parameters.properties;
  const keys = typeof properties === "object" && properties !== null ? Object.keys(properties) : [];
  const required = Array.isArray(parameters.required) ? parameters.required : [];
  const added = (prefix: string, schema: unknown, change: (leaf: Expr) => Expr): Expr => {
    const compiled = parseJsonSchema(schema);
    for (const at of compiled.ignored) ignored.add(`${f.name}: ${at}`);
    for (const [name, e] of compiled.rules) {
      rules.set(prefix + name, mapLeaves(e, (leaf) => leaf.type === "rule" ? rule(prefix + leaf.name) : change(leaf)));
    }
    return rule(prefix + compiled.root);
  };
  return {
    name: f.name,
    get args() {
      return added(`${prefix} `, { type: "object", ...parameters }, (e) => e);
    },
    members: keys.map((key, i) => {
      const schema = (properties as Record<string, any>)[key] ?? {};
      const isString = schema.type === "string";
      const texts: unknown[] | undefined = "const" in schema
        ? [schema.const]
        : Array.isArray(schema.enum)
        ? schema.enum
        : undefined;
      const json = () => {
        const pointer = key.replaceAll("~", "~0").replaceAll("/", "~1");
        const document = { ...parameters, $ref: `#/properties/${encodeURIComponent(pointer)}` };
        // A "<" within a value, which could begin a marker, is written in JSON's other way.
        return added(`${prefix}.${i} `, document, withoutAngles);
      };
      return {
        key,
        required: required.includes(key),
        isString,
        json,
        value: (close) => !isString ? json() : texts ? alt(texts.map((t) => text(String(t)))) : without(close),
      };
    }),
  };
}

const ANGLE: readonly (readonly [number, number])[] = [[0x3c, 0x3c]];

function withoutAngles(e: Expr): Expr {
  if (e.type === "text") return text(e.text.replaceAll("<", "\\u003c"));
  if (e.type !== "class" || intersect(e.ranges, ANGLE).length === 0) return e;
  return alt([classOf(intersect(e.ranges, complement(ANGLE))), text("\\u003c")]);
}
