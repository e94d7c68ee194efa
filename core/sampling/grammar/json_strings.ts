/**
 * JSON's strings as expressions: any, of a length, of a pattern, other than some.
 * @module
 */
import {
  alt,
  classOf,
  complement,
  empty,
  type Expr,
  intersect,
  LIMITS,
  optional,
  type Ranges,
  repeat,
  seq,
  text,
} from "./expr.ts";

/** Characters that stand for themselves between quotes. */
const PLAIN: Ranges = complement([[0, 0x1f], [0x22, 0x22], [0x5c, 0x5c], [0x7f, 0x7f]]);
const hex = classOf([[0x30, 0x39], [0x41, 0x46], [0x61, 0x66]]);
const escape = seq(
  text("\\"),
  alt([
    classOf([...'"\\/bfnrt'].map((c) => [c.charCodeAt(0), c.charCodeAt(0)] as const)),
    seq(text("u"), repeat(hex, 4, 4)),
  ]),
);

/** One character as JSON writes it. */
export const anyChar: Expr = alt([classOf(PLAIN), escape]);

/** A string of `min` to `max` characters. */
export const stringOfLength = (min: number, max: number): Expr =>
  seq(text('"'), repeat(anyChar, min, max, LIMITS.repeat), text('"'));

export const anyString: Expr = stringOfLength(0, Infinity);

/** A string of some texts. */
export const stringOf = (e: Expr): Expr => seq(text('"'), escaped(e), text('"'));

/** A string other than the given ones. */
export function stringOtherThan(names: readonly string[]): Expr {
  // Names with escapes are told apart up to the escape: texts that go on with one are left out altogether.
  return seq(text('"'), otherThan(names.map((n) => [...JSON.stringify(n).slice(1, -1)]), PLAIN, escape), text('"'));
}

/** A text of some characters other than the given ones. */
export const textOtherThan = (names: readonly string[], characters: Ranges): Expr =>
  otherThan(names.map((n) => [...n]), characters, undefined);

/** @param escape What may stand for a character too, and begins with a backslash. */
function otherThan(words: readonly string[][], characters: Ranges, escape: Expr | undefined): Expr {
  const any = repeat(escape === undefined ? classOf(characters) : alt([classOf(characters), escape]), 0, Infinity);
  if (words.length === 0) return any;
  const byFirst = Map.groupBy(words.filter((w) => w.length > 0), (w) => w[0]);
  const taken = [...byFirst.keys()].map((c) => [c.codePointAt(0)!, c.codePointAt(0)!] as const);
  const ways: Expr[] = [seq(classOf(intersect(characters, complement(taken))), any)];
  for (const [c, group] of byFirst) {
    if (c !== "\\") ways.push(seq(text(c), otherThan(group.map((w) => w.slice(1)), characters, escape)));
  }
  if (escape !== undefined && !byFirst.has("\\")) ways.push(seq(escape, any));
  const other = alt(ways);
  return words.some((w) => w.length === 0) ? other : optional(other);
}

/** An expression over characters, with what JSON escapes escaped. */
function escaped(e: Expr): Expr {
  switch (e.type) {
    case "class": {
      const ways: Expr[] = [];
      const plain = intersect(e.ranges, [...PLAIN, [0x7f, 0x7f]]);
      if (plain.length > 0) ways.push(classOf(plain));
      for (const [lo, hi] of intersect(e.ranges, [[0, 0x1f], [0x22, 0x22], [0x5c, 0x5c]])) {
        for (let c = lo; c <= hi; c++) ways.push(text(JSON.stringify(String.fromCharCode(c)).slice(1, -1)));
      }
      return ways.length === 0 ? classOf([]) : alt(ways);
    }
    case "text":
      return text(JSON.stringify(e.text).slice(1, -1));
    case "seq":
    case "alt":
      return { ...e, items: e.items.map(escaped) };
    case "repeat":
      return { ...e, item: escaped(e.item) };
    default:
      return empty;
  }
}
