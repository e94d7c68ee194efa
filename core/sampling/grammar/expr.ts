/**
 * Grammars as expressions over Unicode characters, and the limits they keep.
 * @module
 */
import { TextError } from "../../errors.ts";

/** A set of code points as inclusive, sorted, disjoint ranges. */
export type Ranges = readonly (readonly [lo: number, hi: number])[];

export type Expr =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "class"; readonly ranges: Ranges }
  | { readonly type: "seq"; readonly items: readonly Expr[] }
  | { readonly type: "alt"; readonly items: readonly Expr[] }
  /** `max` may be Infinity. */
  | { readonly type: "repeat"; readonly item: Expr; readonly min: number; readonly max: number }
  | { readonly type: "rule"; readonly name: string }
  /** Any text without a marker in it. */
  | { readonly type: "without"; readonly marker: string };

/** Named expressions; `root` is where a text begins. */
export interface Rules {
  readonly root: string;
  readonly rules: ReadonlyMap<string, Expr>;
  /** Places in a schema, as JSON pointers, of keywords that the rules do not keep. */
  readonly ignored?: readonly string[];
}

/** What a grammar may not exceed; far beyond what people write, far below what would stall a server. */
export const LIMITS = {
  /** Characters of a GBNF text or a pattern. */
  text: 4 << 20,
  /** Nesting of groups, of schemas. */
  depth: 400,
  /** Alternatives of one choice. */
  alternatives: 50_000,
  /** Count in a repetition of characters. */
  repeat: 10_000_000,
  /** Items of an array, or repetitions of a group that is more than one character. */
  items: 10_000,
  /** States of the compiled automaton. */
  states: 400_000,
  /** States with those that counted repetitions make while a text is followed. */
  copies: 4_000_000,
  /** States looked at while nodes are made from sets of states: exponential patterns end here. */
  work: 50_000_000,
  /** Stacks that an ambiguous grammar may keep at one place of a text. */
  stacks: 4096,
  /** Rules. */
  rules: 100_000,
} as const;

/** Refuses a grammar that exceeds a limit. */
export function refuse(what: string, found: number | string, limit: number): never {
  throw new TextError(
    "text.grammar_too_large",
    `Cannot compile the grammar: ${what} is ${found}, the limit is ${limit}`,
    {
      at: { what, found, limit },
      hint: "simplify the grammar or schema",
    },
  );
}

export const text = (s: string): Expr => ({ type: "text", text: s });
export const rule = (name: string): Expr => ({ type: "rule", name });
export const seq = (...items: Expr[]): Expr => items.length === 1 ? items[0] : { type: "seq", items };
export const without = (marker: string): Expr => ({ type: "without", marker });
export const empty: Expr = { type: "seq", items: [] };

export function alt(items: readonly Expr[]): Expr {
  if (items.length > LIMITS.alternatives) refuse("the number of alternatives", items.length, LIMITS.alternatives);
  return items.length === 1 ? items[0] : { type: "alt", items };
}

/** @param limit Most repetitions; characters may have more than groups. */
export function repeat(
  item: Expr,
  min: number,
  max: number,
  limit: number = item.type === "class" ? LIMITS.repeat : LIMITS.items,
): Expr {
  const most = Number.isFinite(max) ? max : min;
  if (most > limit) refuse("the count of a repetition", most, limit);
  return { type: "repeat", item, min, max };
}

export const optional = (item: Expr): Expr => repeat(item, 0, 1);

/** An expression with its leaves (texts, classes, rules, markers) exchanged. */
export function mapLeaves(e: Expr, leaf: (e: Expr) => Expr): Expr {
  switch (e.type) {
    case "seq":
    case "alt":
      return { ...e, items: e.items.map((item) => mapLeaves(item, leaf)) };
    case "repeat":
      return { ...e, item: mapLeaves(e.item, leaf) };
    default:
      return leaf(e);
  }
}

export const MAX_CODE_POINT = 0x10ffff;

/** Sorts and joins ranges. */
export function normalize(ranges: readonly (readonly [number, number])[]): Ranges {
  const out: [number, number][] = [];
  for (const [lo, hi] of ranges.toSorted((a, b) => a[0] - b[0])) {
    const last = out.at(-1);
    if (last && lo <= last[1] + 1) last[1] = Math.max(last[1], hi);
    else if (lo <= hi) out.push([lo, hi]);
  }
  return out;
}

/** The code points outside. */
export function complement(ranges: Ranges): Ranges {
  const out: [number, number][] = [];
  let next = 0;
  for (const [lo, hi] of normalize(ranges)) {
    if (lo > next) out.push([next, lo - 1]);
    next = hi + 1;
  }
  if (next <= MAX_CODE_POINT) out.push([next, MAX_CODE_POINT]);
  return out;
}

/** The code points in both. */
export function intersect(a: Ranges, b: Ranges): Ranges {
  return complement(normalize([...complement(a), ...complement(b)]));
}

export const classOf = (ranges: readonly (readonly [number, number])[]): Expr => ({
  type: "class",
  ranges: normalize(ranges),
});
