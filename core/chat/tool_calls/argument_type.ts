/**
 * What a tool's schema lets an argument be, for calls whose markup does not say whether `12` is a number or a text.
 * @module
 */
import { looseJson, tryJson } from "./loose_json.ts";

type Kind = "string" | "number" | "integer" | "boolean" | "null" | "object" | "array";
type Schema = Record<string, unknown>;

/** One way to be: a value of these kinds and, where there is a list, one of it. */
interface Way {
  kinds: ReadonlySet<Kind>;
  values?: readonly unknown[];
}

const KINDS: readonly Kind[] = ["string", "number", "integer", "boolean", "null", "object", "array"];
const ANY: readonly Way[] = [{ kinds: new Set(KINDS) }];
/** Schemas that one schema is made of; more than that say too little to be worth the search. */
const MAX_PARTS = 200;

const isObject = (v: unknown): v is Schema => typeof v === "object" && v !== null && !Array.isArray(v);

function kindOf(v: unknown): Kind {
  if (v === null) return "null";
  if (Array.isArray(v)) return "array";
  if (typeof v === "number") return Number.isInteger(v) ? "integer" : "number";
  return typeof v as "string" | "boolean" | "object";
}

function same(a: unknown, b: unknown): boolean {
  if (typeof a !== "object" || a === null || typeof b !== "object" || b === null) return a === b;
  const keys = Object.keys(a);
  return Array.isArray(a) === Array.isArray(b) && keys.length === Object.keys(b).length &&
    keys.every((k) => Object.hasOwn(b, k) && same((a as Schema)[k], (b as Schema)[k]));
}

/** A schema within a document, asked for the values that it takes. What it does not understand narrows nothing. */
export class ArgumentType {
  #ways: readonly Way[] | undefined;
  #n_parts = 0;

  /** @param document Where references lead. */
  constructor(readonly schema: unknown, readonly document: unknown = schema) {}

  /** Strings and nothing else: a value is its text as written. */
  get isString(): boolean {
    return this.#all.length > 0 &&
      this.#all.every((w) =>
        w.values?.every((v) => typeof v === "string") ?? [...w.kinds].every((k) => k === "string")
      );
  }

  /** Any string or null, and nothing else. */
  get isOptionalString(): boolean {
    const all = this.#all;
    return all.every((w) => w.values === undefined && [...w.kinds].every((k) => k === "string" || k === "null")) &&
      this.takes("") && this.takes(null);
  }

  /** Nothing is known of the values. */
  get isAny(): boolean {
    return this.#all === ANY;
  }

  /** All the values, where the schema lists them. */
  get values(): readonly unknown[] | undefined {
    return this.#all.every((w) => w.values !== undefined) ? this.#all.flatMap((w) => w.values!) : undefined;
  }

  /** JSON of a value that is written as text: JSON or Python's literals, where the schema takes what they say. */
  json(text: string): string {
    const loose = looseJson(text);
    return !this.takes(tryJson(loose)) && this.takes(text) ? JSON.stringify(text) : loose;
  }

  /** Whether a value's kind is one that the schema allows, and the value one of those that it lists. */
  takes(value: unknown): boolean {
    const kind = kindOf(value);
    return this.#all.some((w) => w.kinds.has(kind) && (w.values?.some((v) => same(v, value)) ?? true));
  }

  /** The type of a member. */
  property(key: string): ArgumentType {
    const named = this.#find((s) =>
      isObject(s.properties) && Object.hasOwn(s.properties, key) ? s.properties[key] : undefined
    );
    const found = named.length > 0 ? named : this.#find((s) => s.additionalProperties);
    return new ArgumentType(found.length === 0 ? true : { anyOf: found }, this.document);
  }

  /** The type of a list's items. */
  get item(): ArgumentType {
    const found = this.#find((s) => s.items);
    return new ArgumentType(found.length === 0 ? true : { anyOf: found }, this.document);
  }

  /** Whether a keyword stands in the schema or in one that it is made of. */
  uses(keyword: string): boolean {
    return this.#find((s) => s[keyword]).length > 0;
  }

  get #all(): readonly Way[] {
    if (this.#ways === undefined) {
      this.#n_parts = 0;
      const ways = this.#waysOf(this.schema, []);
      this.#ways = ways.length === 0 || ways.some((w) => w.kinds.size === KINDS.length && !w.values) ? ANY : ways;
    }
    return this.#ways;
  }

  #waysOf(s: unknown, refs: readonly string[]): readonly Way[] {
    if (!isObject(s) || ++this.#n_parts > MAX_PARTS) return ANY;
    let ways = ANY;
    const narrow = (more: readonly Way[]) => {
      if (more === ANY || ways.length * more.length > MAX_PARTS ** 2) return;
      ways = ways === ANY ? more : ways.flatMap((a) => more.flatMap((b) => both(a, b)));
    };
    if (typeof s.$ref === "string" && !refs.includes(s.$ref)) {
      narrow(this.#waysOf(lookUp(this.document, s.$ref), [...refs, s.$ref]));
    }
    const types = (Array.isArray(s.type) ? s.type : s.type === undefined ? [] : [s.type]).flatMap((t) =>
      t === "number" ? ["number", "integer"] as const : KINDS.includes(t as Kind) ? [t as Kind] : []
    );
    if (types.length > 0) narrow([{ kinds: new Set<Kind>(s.nullable === true ? [...types, "null"] : types) }]);
    if ("const" in s) narrow([listed([s.const])]);
    if (Array.isArray(s.enum) && s.enum.length > 0) narrow([listed(s.enum)]);
    for (const list of [s.anyOf, s.oneOf]) {
      if (!Array.isArray(list) || list.length === 0) continue;
      const each = list.map((part) => this.#waysOf(part, refs));
      if (!each.includes(ANY)) narrow(each.flat());
    }
    if (Array.isArray(s.allOf)) { for (const part of s.allOf) narrow(this.#waysOf(part, refs)); }
    return ways;
  }

  /** What the schema, or those that it is made of, say: all that is not undefined. */
  #find(of: (s: Schema) => unknown): unknown[] {
    const found: unknown[] = [];
    let n = 0;
    const go = (s: unknown, refs: readonly string[]): void => {
      if (!isObject(s) || ++n > MAX_PARTS) return;
      const own = of(s);
      if (own !== undefined) found.push(own);
      if (typeof s.$ref === "string" && !refs.includes(s.$ref)) go(lookUp(this.document, s.$ref), [...refs, s.$ref]);
      for (const list of [s.allOf, s.anyOf, s.oneOf]) {
        if (Array.isArray(list)) { for (const part of list) go(part, refs); }
      }
    };
    go(this.schema, []);
    return found;
  }
}

const listed = (values: readonly unknown[]): Way => ({ kinds: new Set(values.map(kindOf)), values });

/** What both ways allow; no way where they have nothing in common. */
function both(a: Way, b: Way): Way[] {
  const kinds = a.kinds.intersection(b.kinds);
  const all = a.values && b.values ? a.values.filter((v) => b.values!.some((w) => same(v, w))) : a.values ?? b.values;
  const values = all?.filter((v) => kinds.has(kindOf(v)));
  if (kinds.size === 0 || values?.length === 0) return [];
  return [values === undefined ? { kinds } : listed(values)];
}

function lookUp(document: unknown, ref: string): unknown {
  if (!ref.startsWith("#")) return undefined;
  let here = document;
  for (const part of ref.slice(1).split("/").filter((p) => p !== "")) {
    const key = unescaped(part);
    if (typeof here !== "object" || here === null || !Object.hasOwn(here, key)) return undefined;
    here = (here as Schema)[key];
  }
  return here;
}

function unescaped(part: string): string {
  try {
    part = decodeURIComponent(part);
  } catch {
    // A stray per cent sign stands for itself.
  }
  return part.replaceAll("~1", "/").replaceAll("~0", "~");
}
