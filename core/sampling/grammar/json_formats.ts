/**
 * Formats of JSON Schema's strings as expressions over their characters, none of which JSON escapes.
 *
 * Dates, times and durations as RFC 3339 has them, dates by the calendar, without leap seconds, letters upper-case.
 * Host names as RFC 1123 (letters, digits and hyphens, labels of up to 63). Addresses as RFC 5321 without quoted and
 * bracketed forms, in a domain of two labels or more. IPv4 in four decimal numbers, IPv6 as RFC 4291 without zones. URIs
 * as RFC 3986, the absolute ones. UUIDs in their usual form.
 * @module
 */
import { alt, classOf, type Expr, optional, repeat, seq, text } from "./expr.ts";

/** Characters, and ranges such as `a-z`. */
function chars(set: string): Expr {
  const ranges: [number, number][] = [];
  for (let i = 0; i < set.length; i++) {
    const lo = set.charCodeAt(i), isRange = set[i + 1] === "-" && i + 2 < set.length;
    ranges.push([lo, isRange ? set.charCodeAt(i += 2) : lo]);
  }
  return classOf(ranges);
}

const some = (item: Expr): Expr => repeat(item, 1, Infinity);
const any = (item: Expr): Expr => repeat(item, 0, Infinity);
const times = (item: Expr, n: number): Expr => repeat(item, n, n);
/** One of some texts. */
const one = (...texts: string[]): Expr => alt(texts.map(text));

const digit = chars("0-9"), hex = chars("0-9A-Fa-f"), alphanumeric = chars("0-9A-Za-z");

/** Two digits from `00` or `01` to a number. */
const upTo = (most: number, least: 0 | 1 = 0): Expr => {
  const tens = Math.floor(most / 10), last = seq(text(`${tens}`), chars(`0-${most % 10}`));
  const middle = Array.from({ length: Math.max(0, tens - 1) }, (_, i) => seq(text(`${i + 1}`), digit));
  return alt([seq(text("0"), least === 0 ? digit : chars("1-9")), ...middle, last]);
};

const date = (() => {
  const year = times(digit, 4);
  const four = alt([seq(chars("02468"), chars("048")), seq(chars("13579"), chars("26"))]); // two digits that 4 divides
  const fourNotZero = alt([
    seq(text("0"), chars("48")),
    seq(chars("2468"), chars("048")),
    seq(chars("13579"), chars("26")),
  ]);
  const leap = alt([seq(times(digit, 2), fourNotZero), seq(four, text("00"))]);
  return alt([
    seq(
      year,
      alt([
        seq(one("-01-", "-03-", "-05-", "-07-", "-08-", "-10-", "-12-"), upTo(31, 1)),
        seq(one("-04-", "-06-", "-09-", "-11-"), upTo(30, 1)),
        seq(text("-02-"), upTo(28, 1)),
      ]),
    ),
    seq(leap, text("-02-29")),
  ]);
})();

const time = seq(
  upTo(23),
  text(":"),
  upTo(59),
  text(":"),
  upTo(59),
  optional(seq(text("."), repeat(digit, 1, 9))),
  alt([text("Z"), seq(chars("+-"), upTo(23), text(":"), upTo(59))]),
);

const duration = (() => {
  const part = (letter: string): Expr => seq(repeat(digit, 1, 9), text(letter));
  const chain = (...letters: string[]): Expr =>
    alt(letters.map((_, i) =>
      letters.slice(i).reduceRight<Expr | undefined>(
        (rest, letter) => rest === undefined ? part(letter) : seq(part(letter), optional(rest)),
        undefined,
      )!
    ));
  const clock = seq(text("T"), chain("H", "M", "S"));
  return seq(text("P"), alt([seq(chain("Y", "M", "D"), optional(clock)), clock, part("W")]));
})();

const label = seq(alphanumeric, optional(seq(repeat(chars("0-9A-Za-z-"), 0, 61), alphanumeric)));
const hostname = seq(label, any(seq(text("."), label)));

const email = (() => {
  const atom = chars("0-9A-Za-z!#$%&'*+/=?^_`{|}~-");
  // Up to 64 characters without the dots, which stand alone between others.
  const local = seq(atom, repeat(seq(optional(text(".")), atom), 0, 63));
  const top = seq(chars("A-Za-z"), repeat(chars("0-9A-Za-z-"), 0, 61), alphanumeric);
  return seq(local, text("@"), some(seq(label, text("."))), top);
})();

const ipv4 = (() => {
  const byte = alt([
    seq(text("25"), chars("0-5")),
    seq(text("2"), chars("0-4"), digit),
    seq(text("1"), times(digit, 2)),
    seq(chars("1-9"), digit),
    digit,
  ]);
  return seq(times(seq(byte, text(".")), 3), byte);
})();

const ipv6 = (() => {
  const group = repeat(hex, 1, 4), before = seq(group, text(":"));
  const last = alt([seq(before, group), ipv4]);
  /** Up to `n` groups before `::`. */
  const head = (n: number): Expr => n === 0 ? text("") : optional(seq(repeat(before, 0, n - 1), group));
  return alt([
    seq(times(before, 6), last),
    ...[5, 4, 3, 2, 1, 0].map((n) => seq(head(5 - n), text("::"), times(before, n), last)),
    seq(head(6), text("::"), group),
    seq(head(7), text("::")),
  ]);
})();

const uri = (() => {
  const escaped = seq(text("%"), hex, hex);
  const plain = "0-9A-Za-z._~!$&'()*+,;=-";
  const or = (more: string): Expr => alt([chars(more + plain), escaped]);
  const segment = or(":@"), path = any(seq(text("/"), any(segment)));
  const address = seq(
    text("["),
    alt([ipv6, seq(text("v"), some(hex), text("."), some(chars(`:${plain}`)))]),
    text("]"),
  );
  const authority = seq(
    optional(seq(any(or(":")), text("@"))),
    alt([address, any(or(""))]),
    optional(seq(text(":"), any(digit))),
  );
  return seq(
    chars("A-Za-z"),
    any(chars("0-9A-Za-z+.-")),
    text(":"),
    alt([
      seq(text("//"), authority, path),
      seq(text("/"), optional(seq(some(segment), path))),
      seq(some(segment), path),
      text(""),
    ]),
    optional(seq(text("?"), any(or(":@/?")))),
    optional(seq(text("#"), any(or(":@/?")))),
  );
})();

const uuid = seq(times(hex, 8), times(seq(text("-"), times(hex, 4)), 3), text("-"), times(hex, 12));

const FORMATS: ReadonlyMap<string, Expr> = new Map(
  Object.entries({
    date,
    time,
    "date-time": seq(date, text("T"), time),
    duration,
    email,
    hostname,
    ipv4,
    ipv6,
    uri,
    uuid,
  }),
);

/** The texts of a format; undefined for a format that is not known. */
export function formatOf(name: unknown): Expr | undefined {
  return typeof name === "string" ? FORMATS.get(name) : undefined;
}
