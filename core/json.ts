/**
 * JSON texts whose order of keys and kinds of numbers matter: a chat template prints what a client sent as Python would,
 * `{"b": 1.0, "7": 12345678901234567890}` and not `{"7": 12345678901234567000, "b": 1}`.
 *
 * JavaScript's objects put integer-like keys first, and its numbers have no floats apart and no integers beyond 2^53. The
 * values here are the ordinary ones all the same, so that every reader and checker of them works; what they lost is kept
 * beside them and found again by {@link sourceOf}.
 * @module
 */

/** What a parsed object or array does not show of its source. */
export interface JsonSource {
  /** An object's keys in the order of the text, where its own order is another. */
  readonly keys?: readonly string[];
  /** Literals of numbers that lost something: `1.0`, `1e2`, `12345678901234567890`; by key or index. */
  readonly literals?: ReadonlyMap<string | number, string>;
}

const sources = new WeakMap<object, JsonSource>();

/** What {@link parseJson} kept beside an object or array; undefined where nothing was lost. */
export function sourceOf(value: object): JsonSource | undefined {
  return sources.get(value);
}

/** Integer-like keys, floats that are whole numbers, long integers: without any of them JSON.parse says it all. */
const LOSSY = /"\d+"\s*:|\d\.\d|\d[eE]|\d{16}|-0/;

/**
 * `JSON.parse(text)`, with {@link sourceOf} of what is inside.
 * @throws {SyntaxError} as JSON.parse does
 */
export function parseJson(text: string): unknown {
  const value = JSON.parse(text);
  if (typeof value === "object" && value !== null && LOSSY.test(text)) annotate(text, value);
  return value;
}

/** The text of a parsed value, without white space: the inverse of {@link parseJson} but for that. */
export function writeJson(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  const { keys, literals } = sourceOf(value) ?? {};
  const member = (key: string | number, v: unknown) => literals?.get(key) ?? writeJson(v);
  if (Array.isArray(value)) return `[${value.map((v, i) => member(i, v)).join(",")}]`;
  const members = value as Record<string, unknown>;
  const given = (keys ?? Object.keys(members)).filter((key) => members[key] !== undefined);
  return `{${given.map((key) => `${JSON.stringify(key)}:${member(key, members[key])}`).join(",")}}`;
}

/** The members of several objects in one, the last of equal keys; the literals of numbers go with them. */
export function mergeJson(...objects: readonly Readonly<Record<string, unknown>>[]): Record<string, unknown> {
  const merged: Record<string, unknown> = Object.assign({}, ...objects);
  const literals = new Map<string | number, string>();
  for (const object of objects) {
    for (const key of Object.keys(object)) {
      const literal = sourceOf(object)?.literals?.get(key);
      if (literal === undefined) literals.delete(key);
      else literals.set(key, literal);
    }
  }
  if (literals.size > 0) sources.set(merged, { literals });
  return merged;
}

/** An object or array of the text that is being walked through. */
interface Open {
  /** The parsed object; undefined for one that a later equal key replaced. */
  readonly value: Record<string | number, unknown> | undefined;
  /** Keys so far; undefined in an array. */
  readonly keys: Set<string> | undefined;
  /** Key or index of the member that comes next. */
  at: string | number;
  literals: Map<string | number, string> | undefined;
}

/** Walks a text that JSON.parse took, beside its value. */
function annotate(text: string, root: object): void {
  const token = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],]|-?\d[-+.\deE]*/gs;
  const colon = /\s*:/y;
  const open: Open[] = [];
  for (let m = token.exec(text); m !== null; m = token.exec(text)) {
    const [found] = m, top = open.at(-1);
    if (found === "{" || found === "[") {
      const value = top === undefined ? root : top.value?.[top.at];
      // An equal key further on may have left a value of another kind: what is walked here is then lost, as it should be.
      const fits = typeof value === "object" && value !== null && Array.isArray(value) === (found === "[");
      open.push({
        value: fits ? value as Record<string | number, unknown> : undefined,
        keys: found === "{" ? new Set() : undefined,
        at: 0,
        literals: undefined,
      });
    } else if (found === "}" || found === "]") {
      keep(open.pop()!);
    } else if (found === ",") {
      if (typeof top!.at === "number") top!.at++;
    } else if (found[0] === '"') {
      if (top?.keys === undefined) continue;
      colon.lastIndex = token.lastIndex;
      if (!colon.test(text)) continue;
      top.at = found.includes("\\") ? JSON.parse(found) as string : found.slice(1, -1);
      top.keys.add(top.at);
      top.literals?.delete(top.at); // of an equal key before
    } else if (losesSource(found) && top !== undefined) {
      (top.literals ??= new Map()).set(top.at, found);
    }
  }
}

function losesSource(literal: string): boolean {
  const n = Number(literal);
  if (!Number.isInteger(n)) return false;
  return /[.eE]/.test(literal) || !Number.isSafeInteger(n) || Object.is(n, -0);
}

function keep({ value, keys, literals }: Open): void {
  if (value === undefined) return;
  const own = keys === undefined ? [] : Object.keys(value);
  const moved = keys !== undefined && keys.size === own.length && [...keys].some((key, i) => key !== own[i]);
  if (moved || literals !== undefined) {
    sources.set(value, { ...(moved ? { keys: [...keys!] } : {}), ...(literals ? { literals } : {}) });
  }
}
