/**
 * JSON's numbers as expressions: within bounds that are integers, and multiples of a number.
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

/** Integers from `lo` to `hi`, either of which may be infinite; undefined if there are no such numbers. */
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

const fraction = seq(text("."), digits(1, MOST));
const zeros = repeat(text("0"), 0, MOST - 1);
const positiveFraction = seq(text("."), zeros, nonZero, digits(0, MOST - 1));

export interface Bounds {
  /** Integers, or infinite. */
  lo: number;
  hi: number;
  /** The bound itself is left out. */
  overLo: boolean;
  underHi: boolean;
}

/** Numbers within bounds, without exponents; undefined if there are no such numbers. */
export function numberBetween({ lo, hi, overLo, underHi }: Bounds): Expr | undefined {
  const parts: Expr[] = [];
  if (lo < 0) {
    const below = magnitudes(hi < 0 ? -hi : 0, -lo, hi <= 0 && underHi, overLo);
    if (below) parts.push(seq(text("-"), below));
  }
  if (hi >= 0) {
    const above = magnitudes(Math.max(lo, 0), hi, lo >= 0 && overLo, underHi);
    if (above) parts.push(above);
  }
  return parts.length === 0 ? undefined : alt(parts);
}

/** Numbers without sign from `lo` to `hi`. */
function magnitudes(lo: number, hi: number, overLo: boolean, underHi: boolean): Expr | undefined {
  if (lo > hi) return undefined;
  const parts: Expr[] = [];
  const whole = naturals(overLo ? lo + 1 : lo, hi - 1);
  if (whole) parts.push(seq(whole, optional(fraction)));
  if (overLo && lo < hi) parts.push(seq(text(String(lo)), positiveFraction));
  if (!underHi && Number.isFinite(hi) && !(overLo && lo === hi)) {
    parts.push(seq(text(String(hi)), optional(seq(text(".0"), zeros))));
  }
  return parts.length === 0 ? undefined : alt(parts);
}

/** Numbers with at most so many decimals. */
export const withDecimals = (most: number): Expr => seq(anyInteger, optional(seq(text("."), digits(1, most))));

/** Larger divisors would make a large automaton. */
export const MAX_DIVISOR = 256;
/** Digits of multiples: what a double holds exactly. */
const EXACT = 15;

/**
 * Multiples of a divisor from `lo` to `hi`, either of which may be infinite; undefined if there are no such numbers.
 * @param shared A rule of a name, made once.
 */
export function multiplesBetween(
  divisor: number,
  lo: number,
  hi: number,
  shared: (name: string, make: () => Expr) => Expr,
): Expr | undefined {
  const possible = new Map<string, Expr | undefined>();
  /** `n` more digits behind a number of some remainder that make a multiple; bounds as digits, where they matter. */
  const rest = (n: number, remainder: number, from?: string, to?: string): Expr | undefined => {
    if (n === 0) return remainder === 0 ? empty : undefined;
    const key = `${n} ${remainder} ${from} ${to}`;
    if (possible.has(key)) return possible.get(key);
    const ways: Expr[] = [];
    for (let d = Number(from?.[0] ?? 0); d <= Number(to?.[0] ?? 9); d++) {
      const tail = rest(
        n - 1,
        (remainder * 10 + d) % divisor,
        from !== undefined && d === Number(from[0]) ? from.slice(1) : undefined,
        to !== undefined && d === Number(to[0]) ? to.slice(1) : undefined,
      );
      if (tail) ways.push(seq(text(String(d)), tail));
    }
    const all = ways.length === 0 ? undefined : shared(`multiple ${divisor} ${key}`, () => alt(ways));
    possible.set(key, all);
    return all;
  };
  const natural = (lo: number, hi: number): Expr | undefined => {
    const parts: Expr[] = [];
    const top = Math.min(Number.isFinite(hi) ? String(hi).length : EXACT, EXACT);
    for (let n = String(lo).length; n <= top; n++) {
      const from = Math.max(lo, n === 1 ? 0 : 10 ** (n - 1)), to = Math.min(hi, 10 ** n - 1);
      const some = from > to ? undefined : rest(n, 0, String(from), String(to));
      if (some) parts.push(some);
    }
    return parts.length === 0 ? undefined : alt(parts);
  };
  const below = lo < 0 ? natural(hi < 0 ? -hi : 1, -lo) : undefined;
  const above = hi >= 0 ? natural(Math.max(lo, 0), hi) : undefined;
  const parts = [...(below ? [seq(text("-"), below)] : []), ...(above ? [above] : [])];
  return parts.length === 0 ? undefined : alt(parts);
}
