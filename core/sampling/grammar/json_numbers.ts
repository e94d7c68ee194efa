/**
 * JSON's numbers as expressions, within bounds where these are integers.
 * @module
 */
import { alt, classOf, empty, type Expr, optional, repeat, seq, text } from "./expr.ts";

const digit = classOf([[0x30, 0x39]]);
const nonZero = classOf([[0x31, 0x39]]);
/** Most digits before the point: what a double can tell apart. */
const MOST = 16;
const digits = (min: number, max: number): Expr => max === 0 ? empty : repeat(digit, min, max);
const between09 = (lo: string, hi: string): Expr => classOf([[lo.charCodeAt(0), hi.charCodeAt(0)]]);

const natural = alt([text("0"), seq(nonZero, digits(0, MOST - 1))]);

export const anyInteger: Expr = seq(optional(text("-")), natural);
export const anyNumber: Expr = seq(
  anyInteger,
  optional(seq(text("."), digits(1, MOST))),
  optional(seq(classOf([[0x45, 0x45], [0x65, 0x65]]), optional(classOf([[0x2b, 0x2b], [0x2d, 0x2d]])), digits(1, 3))),
);

/** Integers from `lo` to `hi`, either of which may be infinite; undefined where there is none. */
export function integerBetween(lo: number, hi: number): Expr | undefined {
  if (lo > hi) return undefined;
  const parts: Expr[] = [];
  if (lo < 0) {
    const magnitudes = naturals(hi < 0 ? -hi : 1, -lo);
    if (magnitudes) parts.push(seq(text("-"), magnitudes));
  }
  if (hi >= 0) parts.push(naturals(Math.max(lo, 0), hi)!);
  return alt(parts);
}

/** Numbers without sign from `lo` to `hi`. */
function naturals(lo: number, hi: number): Expr | undefined {
  if (lo > hi) return undefined;
  const parts: Expr[] = [];
  const top = Number.isFinite(hi) ? String(hi).length : MOST;
  for (let n = String(lo).length; n <= top; n++) {
    const least = n === 1 ? 0 : 10 ** (n - 1), most = 10 ** n - 1;
    const from = Math.max(lo, least), to = Math.min(hi, most);
    parts.push(
      from === least && to === most && n > 1
        ? seq(nonZero, digits(n - 1, n - 1))
        : sameLength(String(from), String(to)),
    );
  }
  return alt(parts);
}

/** Digit strings from `lo` to `hi`, all of one length. */
function sameLength(lo: string, hi: string): Expr {
  if (lo === hi) return text(lo);
  if (lo[0] === hi[0]) return seq(text(lo[0]), sameLength(lo.slice(1), hi.slice(1)));
  const rest = lo.length - 1;
  if (rest === 0) return between09(lo, hi);
  const parts = [seq(text(lo[0]), atLeast(lo.slice(1))), seq(text(hi[0]), atMost(hi.slice(1)))];
  const from = String.fromCharCode(lo.charCodeAt(0) + 1), to = String.fromCharCode(hi.charCodeAt(0) - 1);
  if (from <= to) parts.push(seq(between09(from, to), digits(rest, rest)));
  return alt(parts);
}

function atLeast(s: string): Expr {
  if (s.length === 1) return between09(s, "9");
  if (/^0+$/.test(s)) return digits(s.length, s.length);
  const parts = [seq(text(s[0]), atLeast(s.slice(1)))];
  if (s[0] < "9") {
    parts.push(seq(between09(String.fromCharCode(s.charCodeAt(0) + 1), "9"), digits(s.length - 1, s.length - 1)));
  }
  return alt(parts);
}

function atMost(s: string): Expr {
  if (s.length === 1) return between09("0", s);
  if (/^9+$/.test(s)) return digits(s.length, s.length);
  const parts = [seq(text(s[0]), atMost(s.slice(1)))];
  if (s[0] > "0") {
    parts.push(seq(between09("0", String.fromCharCode(s.charCodeAt(0) - 1)), digits(s.length - 1, s.length - 1)));
  }
  return alt(parts);
}
