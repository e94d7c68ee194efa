/**
 * The values that a tool's schema allows for an argument. Markup like `<parameter=n>12</parameter>` does not say whether 12
 * is a number or a string; the schema does.
 * @module
 */
import { atPointer } from "../../sampling/grammar/json_pointer.ts";
import { looseJson, tryJson } from "./loose_json.ts";

type Kind = "string" | "number" | "integer" | "boolean" | "null" | "object" | "array";
type Schema = Record<string, unknown>;

/** An alternative: a value of one of these kinds and, when there is a list, one of the list. */
interface Way {
  kinds: ReadonlySet<Kind>;
  values?: readonly unknown[];
}

const KINDS: readonly Kind[] = ["string", "number", "integer", "boolean", "null", "object", "array"];
const ANY: readonly Way[] = [{ kinds: new Set(KINDS) }];
/** Most schemas that one schema may be made of; a larger one allows any value. */
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

/** A schema within a document. Keywords other than types, values, references and combinations are ignored. */
export class ArgumentType {
  #ways: readonly Way[] | undefined;
  #n_parts = 0;

  /** @param document Where references lead. */
  constructor(readonly schema: unknown, readonly document: unknown = schema) {}

  /** The schema allows strings only, so a value is its text as written. */
  get isString(): boolean {
    return this.#all.length > 0 &&
      this.#all.every((w) =>
        w.values?.every((v) => typeof v === "string") ?? [...w.kinds].every((k) => k === "string")
      );
  }

  /** The schema allows any string, null, and nothing else. */
  get isOptionalString(): boolean {
    const all = this.#all;
    return all.every((w) => w.values === undefined && [...w.kinds].every((k) => k === "string" || k === "null")) &&
      this.takes("") && this.takes(null);
  }

  /** The schema allows any value. */
  get isAny(): boolean {
    return this.#all === ANY;
  }

  /** All allowed values, when the schema lists them. */
  get values(): readonly unknown[] | undefined {
    return this.#all.every((w) => w.values !== undefined) ? this.#all.flatMap((w) => w.values!) : undefined;
  }

  /** JSON of a value written as text: a JSON or Python literal when the schema allows its value, else a string. */
  json(text: string): string {
    const loose = looseJson(text);
    return !this.takes(tryJson(loose)) && this.takes(text) ? JSON.stringify(text) : loose;
  }

  /** Whether the schema allows a value of this kind and, when it lists values, this value. */
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

  /** Whether the schema, or one that it is made of, has a keyword. */
  uses(keyword: string): boolean {
    return this.#find((s) => s[keyword]).length > 0;
  }

  get #all(): readonly Way[] {
    if (this.#ways === undefined) {
      this.#n_parts = 0;
      const ways = this.#waysOf(this.schema, []);
      this.#ways = ways.length === 0 ? ANY : ways; // nothing is allowed: the schema is wrong, not the argument
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
      narrow(this.#waysOf(atPointer(this.document, s.$ref), [...refs, s.$ref]));
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

  /** Results of `of`, other than undefined, for the schema and for those that it is made of. */
  #find(of: (s: Schema) => unknown): unknown[] {
    const found: unknown[] = [];
    let n = 0;
    const go = (s: unknown, refs: readonly string[]): void => {
      if (!isObject(s) || ++n > MAX_PARTS) return;
      const own = of(s);
      if (own !== undefined) found.push(own);
      if (typeof s.$ref === "string" && !refs.includes(s.$ref)) go(atPointer(this.document, s.$ref), [...refs, s.$ref]);
      for (const list of [s.allOf, s.anyOf, s.oneOf]) {
        if (Array.isArray(list)) { for (const part of list) go(part, refs); }
      }
    };
    go(this.schema, []);
    return found;
  }
}

const listed = (values: readonly unknown[]): Way => ({ kinds: new Set(values.map(kindOf)), values });

/** Values that both alternatives allow; empty when they have none in common. */
function both(a: Way, b: Way): Way[] {
  const kinds = a.kinds.intersection(b.kinds);
  const all = a.values && b.values ? a.values.filter((v) => b.values!.some((w) => same(v, w))) : a.values ?? b.values;
  const values = all?.filter((v) => kinds.has(kindOf(v)));
  if (kinds.size === 0 || values?.length === 0) return [];
  return [values === undefined ? { kinds } : listed(values)];
}
