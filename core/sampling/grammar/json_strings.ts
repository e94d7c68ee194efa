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
import { parseRegex } from "./regex.ts";

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

/** A string that a pattern describes. */
export const stringOfPattern = (pattern: string): Expr => seq(text('"'), escaped(parseRegex(pattern)), text('"'));

/** A string other than the given ones. */
export function stringOtherThan(names: readonly string[]): Expr {
  const written = names.map((n) => [...JSON.stringify(n).slice(1, -1)]);
  const rest = (words: string[][]): Expr => {
    if (words.length === 0) return repeat(anyChar, 0, Infinity);
    const byFirst = Map.groupBy(words.filter((w) => w.length > 0), (w) => w[0]);
    const taken = [...byFirst.keys()].map((c) => [c.codePointAt(0)!, c.codePointAt(0)!] as const);
    const free = intersect(PLAIN, complement(taken));
    const ways: Expr[] = [seq(classOf(free), repeat(anyChar, 0, Infinity))];
    for (const [c, group] of byFirst) {
      // Names with escapes are told apart up to the escape: texts that go on with one are left out altogether.
      if (c !== "\\") ways.push(seq(text(c), rest(group.map((w) => w.slice(1)))));
    }
    if (!byFirst.has("\\")) ways.push(seq(escape, repeat(anyChar, 0, Infinity)));
    const other = alt(ways);
    return words.some((w) => w.length === 0) ? other : optional(other);
  };
  return seq(text('"'), rest(written), text('"'));
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
