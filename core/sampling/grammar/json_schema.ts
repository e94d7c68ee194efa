/**
 * JSON Schema to rules: the texts of the JSON values that a schema allows, of draft 2020-12 what OpenAI and llama.cpp
 * take.
 *
 * Understood: type (one or several), properties, required, additionalProperties, items, prefixItems, minItems,
 * maxItems, enum, const, anyOf, oneOf, allOf (of objects), $ref within the document, minLength, maxLength, pattern,
 * format (those of `json_formats.ts`), minimum, maximum, exclusiveMinimum and exclusiveMaximum that are integers,
 * multipleOf up to 256 of integers, and 0.1, 0.01 and so on of numbers. Properties come in the schema's order. An object
 * with properties takes no others unless additionalProperties says so. oneOf is anyOf. What else would narrow the values
 * is not kept, and listed as ignored, as is a pattern beyond what `regex.ts` takes.
 * @module
 */
import { TextError } from "../../errors.ts";
import { alt, classOf, type Expr, LIMITS, optional, refuse, repeat, rule, type Rules, seq, text } from "./expr.ts";
import {
  anyInteger,
  anyNumber,
  integerBetween,
  MAX_DIVISOR,
  multiplesBetween,
  numberBetween,
  withDecimals,
} from "./json_numbers.ts";
import { formatOf } from "./json_formats.ts";
import { atPointer, pointerPart } from "./json_pointer.ts";
import { anyString, stringOf, stringOfLength, stringOtherThan } from "./json_strings.ts";
import { patternOf } from "./regex.ts";

type Schema = Record<string, unknown>;

/** Keywords that narrow what a schema allows, by the type that they narrow. */
const KEYWORDS: Record<string, string> = Object.fromEntries(
  ([
    ["string", "minLength maxLength pattern format"],
    ["number", "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"],
    ["array", "items prefixItems minItems maxItems uniqueItems contains minContains maxContains unevaluatedItems"],
    ["array", "additionalItems"],
    ["object", "properties required additionalProperties patternProperties propertyNames minProperties maxProperties"],
    ["object", "dependentRequired dependentSchemas dependencies unevaluatedProperties"],
    ["any", "type enum const anyOf oneOf allOf not if then else $ref $dynamicRef nullable"],
  ] as const).flatMap(([type, names]) => names.split(" ").map((name) => [name, type])),
);
/** Formats that say how to read a number, not how to write it. */
const LOOSE_FORMATS = ["int32", "int64", "float", "double"];

/** White space where JSON allows some: none, a space, or a line end with some indentation. */
const blank = optional(alt([text(" "), seq(text("\n"), repeat(classOf([[9, 9], [32, 32]]), 0, 40))]));

/**
 * Compiles a schema.
 * @param document Where references lead.
 * @param start The part of the document to compile, and its place as errors name it; all of it unless given.
 * @throws {TextError} `text.schema` naming the place in the schema, `text.grammar_too_large`.
 */
export function parseJsonSchema(
  document: unknown,
  start: { schema: unknown; at: string } = { schema: document, at: "#" },
): Rules & { readonly ignored: readonly string[] } {
  return new Compiler(document).compile(start);
}

/** Bounds of numbers further out, of which `Number.MAX_SAFE_INTEGER` is a usual one, are moved in to here. */
const FARTHEST = 1e15;

/**
 * A bound of a number moved in to what grammars count to; undefined for what is no number, and for a bound that nothing
 * within those could meet.
 */
function within(v: unknown, side: "least" | "most"): number | undefined {
  if (typeof v !== "number") return undefined;
  const moved = side === "least" ? Math.max(v, -FARTHEST) : Math.min(v, FARTHEST);
  return Math.abs(moved) > FARTHEST ? undefined : moved;
}

class Compiler {
  readonly #rules = new Map<string, Expr>();
  readonly #refs = new Map<string, string>();
  #count = 0;

  constructor(readonly document: unknown) {}

  compile({ schema, at }: { schema: unknown; at: string }): Rules & { readonly ignored: readonly string[] } {
    const root = this.#schema(schema, at, 0);
    this.#rules.set("root", root);
    return { root: "root", rules: this.#rules, ignored: [...this.#ignored] };
  }

  readonly #ignored = new Set<string>();

  /** Notes the keywords of a schema that are not kept: neither in the list nor without meaning for the type. */
  #kept(s: Schema, at: string, keywords: readonly string[], type?: string): void {
    for (const key of Object.keys(s)) {
      const of = KEYWORDS[key];
      if (of === undefined || keywords.includes(key) || s[key] === undefined) continue;
      if (of !== "any" && type !== undefined && of !== (type === "integer" ? "number" : type)) continue;
      if (key === "format" && typeof s.format === "string" && LOOSE_FORMATS.includes(s.format)) continue;
      this.#ignored.add(`${at}/${key}`);
    }
  }

  /** A rule that exists once under its name. */
  #shared(name: string, make: () => Expr): Expr {
    if (!this.#rules.has(name)) {
      this.#rules.set(name, text("")); // stands in while a rule that calls itself is made
      this.#rules.set(name, make());
    }
    return rule(name);
  }

  #named(prefix: string, e: Expr): Expr {
    const name = `${prefix}-${this.#count++}`;
    if (this.#rules.size >= LIMITS.rules) refuse("the number of rules", this.#rules.size + 1, LIMITS.rules);
    this.#rules.set(name, e);
    return rule(name);
  }

  #ws = (): Expr => this.#shared("ws", () => blank);
  #string = (): Expr => this.#shared("string", () => anyString);
  #comma = (): Expr => seq(text(","), this.#ws());

  #value = (): Expr =>
    this.#shared(
      "value",
      () =>
        alt([
          this.#anyObject(),
          this.#anyArray(),
          this.#string(),
          this.#scalar("number"),
          this.#scalar("boolean"),
          this.#scalar("null"),
        ]),
    );

  #anyObject = (): Expr =>
    this.#shared(
      "object",
      () => this.#braces("{", seq(this.#string(), this.#colon(), this.#value()), "}", 0, Infinity),
    );

  #anyArray = (): Expr => this.#shared("array", () => this.#braces("[", this.#value(), "]", 0, Infinity));

  #colon = (): Expr => seq(text(":"), this.#ws());

  #scalar(type: string): Expr {
    return this.#shared(
      type,
      () =>
        type === "number"
          ? anyNumber
          : type === "integer"
          ? anyInteger
          : type === "boolean"
          ? alt([text("true"), text("false")])
          : text("null"),
    );
  }

  /** `min` to `max` items, with commas, in brackets. */
  #braces(open: string, item: Expr, close: string, min: number, max: number): Expr {
    if (max === 0) return seq(text(open), this.#ws(), text(close));
    const more = Math.max(0, min - 1);
    const list = seq(item, this.#ws(), repeat(seq(this.#comma(), item, this.#ws()), more, max - 1));
    return seq(text(open), this.#ws(), min > 0 ? list : optional(list), text(close));
  }

  #schema(given: unknown, at: string, depth: number): Expr {
    if (depth > LIMITS.depth) refuse("the nesting of the schema", `over ${LIMITS.depth}`, LIMITS.depth);
    if (given === true) return this.#value();
    if (typeof given !== "object" || given === null || Array.isArray(given)) {
      return this.#fail(
        at,
        given === false ? "false allows no value" : `expected a schema, found ${JSON.stringify(given)?.slice(0, 40)}`,
      );
    }
    const s = given as Schema;
    if (s.$ref !== undefined) {
      // At the root, keywords beside it may be what it leads to.
      if (at !== "#") this.#kept(s, at, ["$ref", "type"]);
      return this.#ref(s.$ref, at, depth);
    }
    if ("const" in s) {
      this.#kept(s, at, ["const", "type"]);
      return this.#literal(s.const);
    }
    if (s.enum !== undefined) {
      this.#kept(s, at, ["enum", "type"]);
      if (!Array.isArray(s.enum) || s.enum.length === 0) this.#fail(`${at}/enum`, "expected a list with values");
      return this.#named("enum", alt((s.enum as unknown[]).map((v) => this.#literal(v))));
    }
    for (const key of ["anyOf", "oneOf"] as const) {
      const list = s[key];
      if (list === undefined) continue;
      if (!Array.isArray(list) || list.length === 0) return this.#fail(`${at}/${key}`, "expected a list with schemas");
      this.#kept(s, at, [key, "type"]);
      return this.#named("any", alt(list.map((x, i) => this.#schema(x, `${at}/${key}/${i}`, depth + 1))));
    }
    if (s.allOf !== undefined) return this.#schema(this.#merged(s, at), at, depth + 1);
    if (Array.isArray(s.type)) {
      if (s.type.length === 0) this.#fail(`${at}/type`, "expected at least one type");
      return this.#named("any", alt(s.type.map((type) => this.#typed({ ...s, type }, at, depth))));
    }
    return this.#typed(s, at, depth);
  }

  #typed(s: Schema, at: string, depth: number): Expr {
    const type = s.type ??
      (s.properties || s.required || s.additionalProperties !== undefined
        ? "object"
        : s.items !== undefined || s.prefixItems !== undefined
        ? "array"
        : s.pattern !== undefined || s.minLength !== undefined || s.maxLength !== undefined || s.format !== undefined
        ? "string"
        : undefined);
    switch (type) {
      case undefined:
        this.#kept(s, at, []);
        return this.#value();
      case "object":
        return this.#object(s, at, depth);
      case "array":
        return this.#array(s, at, depth);
      case "string":
        return this.#text(s, at);
      case "integer":
        return this.#integer(s, at);
      case "number":
        return this.#number(s, at);
      case "boolean":
      case "null":
        this.#kept(s, at, ["type"], String(type));
        return this.#scalar(String(type));
      default:
        return this.#fail(`${at}/type`, `unknown type ${JSON.stringify(type)}`);
    }
  }

  #text(s: Schema, at: string): Expr {
    if (s.pattern !== undefined) {
      if (typeof s.pattern !== "string") return this.#fail(`${at}/pattern`, "expected a string");
      const pattern = s.pattern;
      const text = patternOf(pattern);
      if (text !== undefined) {
        // The format only describes then what the pattern says.
        this.#kept(s, at, ["type", "pattern", "format"], "string");
        return this.#shared(`pattern ${pattern}`, () => stringOf(text));
      }
      this.#ignored.add(`${at}/pattern`);
    }
    const format = formatOf(s.format), kept = format === undefined ? ["minLength", "maxLength"] : ["format"];
    this.#kept(s, at, ["type", "pattern", ...kept], "string");
    if (format !== undefined) return this.#shared(`format ${s.format}`, () => stringOf(format));
    const min = this.#countOf(s, "minLength", at) ?? 0, max = this.#countOf(s, "maxLength", at) ?? Infinity;
    if (max < min) this.#fail(at, `maxLength ${max} is less than minLength ${min}`);
    return min === 0 && max === Infinity
      ? this.#string()
      : this.#shared(`string ${min} ${max}`, () => stringOfLength(min, max));
  }

  #integer(s: Schema, at: string): Expr {
    const kept = ["type"];
    const bound = (key: string, side: "least" | "most"): number | undefined => {
      const v = within(s[key], side);
      if (v !== undefined) kept.push(key);
      return v;
    };
    const over = bound("exclusiveMinimum", "least"), under = bound("exclusiveMaximum", "most");
    const lo = Math.max(
      Math.ceil(bound("minimum", "least") ?? -Infinity),
      over === undefined ? -Infinity : Math.floor(over) + 1,
    );
    const hi = Math.min(
      Math.floor(bound("maximum", "most") ?? Infinity),
      under === undefined ? Infinity : Math.ceil(under) - 1,
    );
    const divisor = s.multipleOf;
    const divides = typeof divisor === "number" && Number.isInteger(divisor) && divisor > 0 && divisor <= MAX_DIVISOR;
    if (divides) kept.push("multipleOf");
    this.#kept(s, at, kept, "integer");
    if (divides && divisor > 1) {
      return this.#shared(
        `integer ${lo} ${hi} of ${divisor}`,
        () =>
          multiplesBetween(divisor, lo, hi, (name, make) => this.#shared(name, make)) ??
            this.#fail(at, `no multiple of ${divisor} lies between ${lo} and ${hi}`),
      );
    }
    if (lo === -Infinity && hi === Infinity) return this.#scalar("integer");
    return this.#shared(
      `integer ${lo} ${hi}`,
      () => integerBetween(lo, hi) ?? this.#fail(at, `no integer lies between ${lo} and ${hi}`),
    );
  }

  #number(s: Schema, at: string): Expr {
    if (typeof s.multipleOf === "number" && Number.isInteger(s.multipleOf)) return this.#integer(s, at);
    const kept = ["type"];
    /** A bound, as an integer that lies no further in. */
    const bound = (key: string, side: "least" | "most"): number | undefined => {
      const v = within(s[key], side);
      if (Number.isInteger(v)) kept.push(key);
      return v === undefined ? undefined : side === "least" ? Math.floor(v) : Math.ceil(v);
    };
    const decimals = [1, 2, 3, 4, 5, 6].find((n) => s.multipleOf === Number(`1e-${n}`));
    const least = bound("minimum", "least"), over = bound("exclusiveMinimum", "least");
    const most = bound("maximum", "most"), under = bound("exclusiveMaximum", "most");
    const lo = Math.max(least ?? -Infinity, over ?? -Infinity), hi = Math.min(most ?? Infinity, under ?? Infinity);
    const bounded = Number.isFinite(lo) || Number.isFinite(hi);
    if (decimals !== undefined && !bounded) kept.push("multipleOf");
    this.#kept(s, at, kept, "number");
    if (!bounded) {
      return decimals === undefined
        ? this.#scalar("number")
        : this.#shared(`number of ${decimals} decimals`, () => withDecimals(decimals));
    }
    const overLo = over === lo && kept.includes("exclusiveMinimum");
    const underHi = under === hi && kept.includes("exclusiveMaximum");
    return this.#shared(
      `number ${lo} ${hi} ${overLo} ${underHi}`,
      () => numberBetween({ lo, hi, overLo, underHi }) ?? this.#fail(at, `no number lies between ${lo} and ${hi}`),
    );
  }

  #array(s: Schema, at: string, depth: number): Expr {
    const min = this.#countOf(s, "minItems", at) ?? 0, max = this.#countOf(s, "maxItems", at) ?? Infinity;
    if (max < min) this.#fail(at, `maxItems ${max} is less than minItems ${min}`);
    const fixed = Array.isArray(s.prefixItems) ? s.prefixItems : Array.isArray(s.items) ? s.items : undefined;
    const tuple = ["type", "prefixItems", ...(s.prefixItems === undefined || s.items === false ? ["items"] : [])];
    this.#kept(s, at, fixed ? tuple : ["type", "items", "minItems", "maxItems"], "array");
    if (fixed) {
      const items = fixed.map((x, i) => seq(this.#schema(x, `${at}/prefixItems/${i}`, depth + 1), this.#ws()));
      const list = items.flatMap((e, i) => i === 0 ? [e] : [this.#comma(), e]);
      return this.#named("tuple", seq(text("["), this.#ws(), ...list, text("]")));
    }
    if (s.items === undefined && min === 0 && max === Infinity) return this.#anyArray();
    const item = s.items === undefined ? this.#value() : this.#schema(s.items, `${at}/items`, depth + 1);
    return this.#named("array", this.#braces("[", item, "]", min, max));
  }

  #object(s: Schema, at: string, depth: number): Expr {
    this.#kept(s, at, ["type", "properties", "required", "additionalProperties"], "object");
    const properties = (s.properties ?? {}) as Schema;
    if (typeof properties !== "object" || properties === null || Array.isArray(properties)) {
      return this.#fail(`${at}/properties`, "expected an object");
    }
    const required = new Set(Array.isArray(s.required) ? s.required.filter((x) => typeof x === "string") : []);
    const extra = s.additionalProperties;
    if (Object.keys(properties).length === 0 && required.size === 0) {
      if (extra === undefined || extra === true) {
        return s.properties === undefined || extra === true ? this.#anyObject() : text("{}");
      }
      if (extra === false) return seq(text("{"), this.#ws(), text("}"));
    }
    const names = [...Object.keys(properties), ...[...required].filter((n) => !Object.hasOwn(properties, n))];
    const members = names.map((name) => {
      const value = Object.hasOwn(properties, name)
        ? this.#schema(properties[name], `${at}/properties/${pointerPart(name)}`, depth + 1)
        : this.#value();
      return { member: seq(this.#literal(name), this.#colon(), value, this.#ws()), required: required.has(name) };
    });
    // Two chains from the last property backwards: with a comma to come first, and with none written yet.
    let after: Expr = text(""), first: Expr = text("");
    if (extra !== undefined && extra !== false) {
      const value = extra === true ? this.#value() : this.#schema(extra, `${at}/additionalProperties`, depth + 1);
      const member = this.#named("extra", seq(stringOtherThan(names), this.#colon(), value, this.#ws()));
      after = this.#named("rest", repeat(seq(this.#comma(), member), 0, Infinity));
      first = this.#named("first", optional(seq(member, after)));
    }
    for (const { member, required } of members.reverse()) {
      const named = this.#named("member", member);
      const withComma = seq(this.#comma(), named, after), alone = seq(named, after);
      [first, after] = [
        this.#named("first", required ? alone : alt([alone, first])),
        this.#named("rest", required ? withComma : alt([withComma, after])),
      ];
    }
    return this.#named("object", seq(text("{"), this.#ws(), first, text("}")));
  }

  #literal(v: unknown): Expr {
    return text(JSON.stringify(v));
  }

  /** The rule of a schema elsewhere in the document; made once, so that cycles end. */
  #ref(ref: unknown, at: string, depth: number): Expr {
    if (typeof ref !== "string") return this.#fail(`${at}/$ref`, "expected a string");
    const known = this.#refs.get(ref);
    if (known !== undefined) return rule(known);
    const name = `ref ${ref}`;
    this.#refs.set(ref, name);
    this.#rules.set(name, this.#schema(this.#target(ref, at), ref, depth + 1));
    return rule(name);
  }

  /** What a reference leads to, through references that are nothing else. */
  #target(ref: string, at: string): unknown {
    const seen = new Set<string>();
    for (let next = ref;;) {
      if (seen.has(next)) return this.#fail(`${at}/$ref`, `the references ${[...seen].join(" → ")} go in a circle`);
      seen.add(next);
      const found = this.#lookup(next, at);
      const on = (found as Schema | null)?.$ref;
      if (typeof on !== "string") return found;
      next = on;
    }
  }

  #lookup(ref: string, at: string): unknown {
    if (!ref.startsWith("#")) return this.#fail(`${at}/$ref`, `"${ref}" lies outside the document`);
    const found = atPointer(this.document, ref);
    if (found === undefined) return this.#fail(`${at}/$ref`, `"${ref}" points to nothing in the document`);
    return found;
  }

  /** allOf as one schema: properties and what is required join, other keywords take the last word. */
  #merged(s: Schema, at: string): Schema {
    if (!Array.isArray(s.allOf)) return this.#fail(`${at}/allOf`, "expected a list of schemas");
    const { allOf, ...out } = s;
    const properties: Schema = { ...(out.properties as Schema | undefined) };
    const required = new Set<unknown>(Array.isArray(out.required) ? out.required : []);
    const queue = [...(allOf as unknown[])];
    for (let n = 0; queue.length > 0; n++) {
      if (n > 1000) refuse("the number of schemas in allOf", "over 1000", 1000);
      let part = queue.shift() as Schema;
      if (typeof part?.$ref === "string") part = this.#target(part.$ref, at) as Schema;
      if (typeof part !== "object" || part === null) continue;
      const { allOf: inner, properties: p, required: r, ...rest } = part;
      if (Array.isArray(inner)) queue.unshift(...inner);
      Object.assign(properties, p);
      if (Array.isArray(r)) { for (const name of r) required.add(name); }
      Object.assign(out, rest);
    }
    if (Object.keys(properties).length > 0) out.properties = properties;
    if (required.size > 0) out.required = [...required];
    return out;
  }

  #countOf(s: Schema, key: string, at: string): number | undefined {
    const v = s[key];
    if (v === undefined) return undefined;
    if (typeof v !== "number" || !Number.isInteger(v) || v < 0) {
      return this.#fail(`${at}/${key}`, `expected a whole number, found ${JSON.stringify(v)}`);
    }
    return v;
  }

  #fail(at: string, why: string): never {
    throw new TextError("text.schema", `Cannot compile the schema at ${at}: ${why}`, {
      at: { pointer: at },
      hint: "correct the schema",
    });
  }
}
