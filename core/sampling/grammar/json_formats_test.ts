/** Formats of strings against what others say of the same texts. */
import assert from "node:assert/strict";
import { isIPv4, isIPv6 } from "node:net";
import fc from "npm:fast-check@4.11.0";
import { compileJsonSchema, type Grammar, GrammarMatcher, VocabTrie } from "./mod.ts";

const noVocab = new VocabTrie(1, () => undefined);

function takes(grammar: Grammar, text: string): boolean {
  const matcher = new GrammarMatcher(grammar, noVocab);
  return matcher.accept(new TextEncoder().encode(JSON.stringify(text))) && matcher.done;
}

const format = (name: string): Grammar => {
  const grammar = compileJsonSchema({ type: "string", format: name });
  assert.deepEqual(grammar.ignored, []);
  return grammar;
};

function assertTexts(name: string, good: readonly string[], bad: readonly string[]): void {
  const grammar = format(name);
  for (const text of good) assert.ok(takes(grammar, text), `${name} should take ${text}`);
  for (const text of bad) assert.ok(!takes(grammar, text), `${name} should not take ${text}`);
}

/** A text with one of its characters changed, left out or doubled. */
const spoilt = (texts: fc.Arbitrary<string>, characters: string): fc.Arbitrary<string> =>
  fc.tuple(texts, fc.nat(), fc.constantFrom(...characters), fc.nat(2)).map(([text, at, c, how]) => {
    at %= text.length + 1;
    return text.slice(0, at) + (how === 1 ? "" : c) + text.slice(how === 0 ? at : at + 1);
  });

/** The format takes exactly the texts that the oracle takes, of valid ones and of those next to them. */
function assertAgrees(name: string, texts: fc.Arbitrary<string>, characters: string, oracle: (t: string) => boolean) {
  const grammar = format(name);
  fc.assert(fc.property(texts, (text) => assert.ok(takes(grammar, text), `${name} should take ${text}`)));
  fc.assert(
    fc.property(
      spoilt(texts, characters),
      (text) => assert.equal(takes(grammar, text), oracle(text), `${name} ${text}`),
    ),
    { numRuns: 1000 },
  );
}

const pad = (n: number, digits: number) => String(n).padStart(digits, "0");
const twice = (most: number, least = 0) => fc.integer({ min: least, max: most }).map((n) => pad(n, 2));
const date = fc.date({
  min: new Date("0000-01-01T00:00:00Z"),
  max: new Date("9999-12-31T00:00:00Z"),
  noInvalidDate: true,
})
  .map((d) => d.toISOString().slice(0, 10));
const time = fc.tuple(
  twice(23),
  twice(59),
  twice(59),
  fc.constantFrom("", ".0", ".123456789"),
  fc.oneof(
    fc.constant("Z"),
    fc.tuple(fc.constantFrom("+", "-"), twice(23), twice(59)).map(([s, h, m]) => `${s}${h}:${m}`),
  ),
).map(([h, m, s, fraction, zone]) => `${h}:${m}:${s}${fraction}${zone}`);

function isDate(text: string): boolean {
  const m = /^(\d{4})-(\d\d)-(\d\d)$/.exec(text);
  if (!m) return false;
  const d = new Date(0);
  d.setUTCFullYear(Number(m[1]), Number(m[2]) - 1, Number(m[3]));
  return d.toISOString().slice(0, 10) === text;
}

const isTime = (text: string): boolean => {
  const m = /^(\d\d):(\d\d):(\d\d)(?:\.\d{1,9})?(?:Z|[+-](\d\d):(\d\d))$/.exec(text);
  return m !== null && [23, 59, 59, 23, 59].every((most, i) => Number(m[i + 1] ?? 0) <= most);
};

Deno.test("format date takes the days of the calendar", () => {
  assertAgrees("date", date, "0123456789-", isDate);
  const grammar = format("date");
  for (const year of [0, 4, 100, 1900, 2000, 2023, 2024, 2100, 2400]) {
    for (let month = 0; month <= 13; month++) {
      for (let day = 0; day <= 32; day++) {
        const text = `${pad(year, 4)}-${pad(month, 2)}-${pad(day, 2)}`;
        assert.equal(takes(grammar, text), isDate(text), text);
      }
    }
  }
});

Deno.test("format time and date-time take clock times with a zone", () => {
  assertAgrees("time", time, "0123456789:.Z+-", isTime);
  const both = fc.tuple(date, time).map(([d, t]) => `${d}T${t}`);
  assertAgrees("date-time", both, "0123456789:.Z+-T", (text) => {
    const at = text.indexOf("T");
    return isDate(text.slice(0, at)) && isTime(text.slice(at + 1));
  });
});

Deno.test("format duration takes parts in their order, none left out between two", () => {
  assertTexts("duration", [
    ...["P1Y", "P1Y2M", "P1Y2M3D", "P3D", "PT1H", "PT1M30S", "PT0S", "P4W", "P1DT12H", "P2M3DT1H2M3S", "P999999999D"],
  ], ["", "P", "PT", "P1", "1D", "P1DT", "P1Y3D", "PT1H3S", "P1W2D", "P1S", "PT1D", "P-1D", "P1.5D", "p1d", "P1D "]);
});

Deno.test("format ipv4 and ipv6 take what the operating system's readers take", () => {
  assertAgrees("ipv4", fc.ipV4(), "0123456789.x", isIPv4);
  assertAgrees("ipv6", fc.ipV6(), "0123456789abcdefF:.g", isIPv6);
  assertTexts(
    "ipv6",
    ["::", "::1", "1::", "fe80::1:2", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8"],
    [
      "",
      ":",
      "1:2:3:4:5:6:7",
      "1:2:3:4:5:6:7:8:9",
      "1::2::3",
      "12345::",
      "::1.2.3",
      "::1.2.3.256",
      "fe80::1%eth0",
      "[::1]",
    ],
  );
});

Deno.test("format hostname takes labels of letters, digits and inner hyphens", () => {
  const long = "a".repeat(63);
  assertTexts(
    "hostname",
    ["localhost", "example.com", "a", "1.2", "xn--p1ai.x", "a--b", "A-1.b-2.C", long, `${long}.${long}`],
    ["", ".", "a.", ".a", "a..b", "-a", "a-", "a.-b", "a_b", "a b", "ä.de", `${long}a`, `a.${long}b.c`],
  );
  const grammar = format("hostname");
  fc.assert(fc.property(fc.domain(), (text) => assert.ok(takes(grammar, text), text)));
});

Deno.test("format email takes addresses in a domain", () => {
  assertTexts("email", [
    ...["joe@example.com", "a@b.co", "te~st@x.org", "first.last+tag@sub.example.co.uk", "o'neil@x.ie", "1@2.ab"],
    ...[`${"a".repeat(64)}@x.org`, "a@b.xn--p1ai"],
  ], [
    ...[
      "",
      "a",
      "@x.org",
      "a@",
      "a@b",
      "a@b.c",
      ".a@x.org",
      "a.@x.org",
      "a..b@x.org",
      "a b@x.org",
      "a@x..org",
      "a@-x.org",
    ],
    ...[
      "a@x-.org",
      "a@x.org.",
      "a@@x.org",
      "a@x.123",
      '"a b"@x.org',
      "a@[1.2.3.4]",
      `${"a".repeat(65)}@x.org`,
      "ä@x.org",
    ],
  ]);
  const grammar = format("email");
  fc.assert(fc.property(fc.emailAddress(), (text) => assert.ok(takes(grammar, text), text)));
});

Deno.test("format uri takes absolute URIs", () => {
  assertTexts("uri", [
    ...[
      "https://example.com",
      "http://foo.bar/?baz=qux#quux",
      "urn:isbn:0451450523",
      "mailto:a@b.org",
      "ftp://ftp.is.co.za/rfc.txt",
    ],
    ...[
      "ldap://[2001:db8::7]/c=GB?objectClass?one",
      "tel:+1-816-555-1212",
      "http://u:p@h:8080/a%20b//c?d=/?#e",
      "file:///etc/x",
    ],
    ...["a:", "x:/", "http://[v1.a:b]/", "http://192.168.0.1:/"],
  ], [
    ...[
      "",
      "abc",
      "/abc",
      "//foo.bar/?baz",
      "\\\\WINDOWS\\share",
      "http:// no.com",
      ":// no",
      "1a:b",
      "http://a b",
      "http://a/<b>",
    ],
    ...[
      "http://a/%2",
      "http://a/%zz",
      "https://[@a.org/",
      "http://a/#b#c",
      "http://ä.de",
      "http://a:b/",
      "http://[1::2::3]/",
      "a:{b}",
    ],
  ]);
  const c = "[\\w.~!$&'()*+,;=-]|%[0-9a-fA-F]{2}", p = `(?:${c}|[:@])`;
  const rest = `(?:/${p}*)*(?:\\?(?:${p}|[/?])*)?(?:#(?:${p}|[/?])*)?`;
  const http = new RegExp(
    `^[a-z][a-z0-9+.-]*:(?://(?:(?:${c}|:)*@)?(?:${c})*(?::\\d*)?|(?!//)${p}*)${rest}$`,
    "i",
  );
  const urls = fc.webUrl({ withFragments: true, withQueryParameters: true });
  assertAgrees("uri", urls, '<> \\^`{|}"%/:@?#[]a1é', (t) => http.test(t));
});

Deno.test("format uuid takes 32 hexadecimal digits in five groups", () => {
  const isUuid = (text: string) => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);
  assertAgrees("uuid", fc.uuid(), "0123456789abcdefABF-g", isUuid);
});
