import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { TriggerWatch } from "./mod.ts";

const encoder = new TextEncoder();

Deno.test("TriggerWatch finds the first word, whatever the tokens, and gives the text from it on", () => {
  const text = fc.array(fc.constantFrom("a", "b", "ä", "ab"), { maxLength: 12 }).map((s) => s.join(""));
  const words = fc.array(fc.constantFrom("ab", "ba", "aab", "ä", "bäb"), { minLength: 1, maxLength: 3 });
  fc.assert(
    fc.property(text, words, fc.array(fc.nat(30), { maxLength: 6 }), (text, words, cuts) => {
      const bytes = encoder.encode(text);
      const at = [0, ...cuts.map((c) => c % (bytes.length + 1)).toSorted((a, b) => a - b), bytes.length];
      const watch = new TriggerWatch(words.map((word) => ({ word })));
      const starts = words.map((w) => text.indexOf(w)).filter((i) => i >= 0);
      let found: Uint8Array | undefined, end = 0;
      for (let i = 1; i < at.length && found === undefined; i++) {
        found = watch.push(0, bytes.slice(at[i - 1], at[i]));
        end = at[i];
      }
      assert.equal(found !== undefined, starts.length > 0);
      if (found === undefined) return;
      // Of words that overlap one may be complete before another that began earlier.
      const from = end - found.length;
      assert.deepEqual(found, bytes.slice(from, end));
      assert.ok(words.some((w) => encoder.encode(w).every((b, i) => bytes[from + i] === b)));
    }),
    { numRuns: 500 },
  );
});

Deno.test("TriggerWatch finds tokens by id, and no empty words", () => {
  const watch = new TriggerWatch([{ token: 7 }, { word: "" }]);
  assert.equal(watch.push(6, encoder.encode("x")), undefined);
  assert.deepEqual(watch.push(7, encoder.encode("y")), encoder.encode("y"));
  const long = new TriggerWatch([{ word: "end" }]);
  for (let i = 0; i < 1000; i++) assert.equal(long.push(0, encoder.encode("en ")), undefined);
  assert.deepEqual(long.push(0, encoder.encode("the end.")), encoder.encode("end."));
});

/** Feeds a text byte by byte, a token each. */
function begin(trigger: { pattern: string; whole: boolean }, text: string): string | undefined {
  const watch = new TriggerWatch([trigger]);
  for (const byte of encoder.encode(text)) {
    const found = watch.push(0, Uint8Array.of(byte));
    if (found !== undefined) return new TextDecoder().decode(found);
  }
  return undefined;
}

Deno.test("TriggerWatch finds what a pattern matches first, and begins at its first group", () => {
  const cases: [pattern: string, whole: boolean, text: string, found: string | undefined][] = [
    ["b+c", false, "abbc", "bbc"],
    ["a(bc)", false, "xxabcd", "bc"],
    ["a(?:b)(c)", false, "abc", "c"],
    ["a((b)c)", false, "abc", "bc"],
    ["(?:a(b))c", false, "abc", "abc"],
    ["a|(b)", false, "xb", "b"],
    ["^a(b)", false, "xab", undefined],
    ["^a(b)", false, "ab", "b"],
    ["[(]x(y)", false, "(xy", "y"],
    ["\\(x(y)", false, "(xy", "y"],
    ["a\\$", false, "a$", "a$"],
    ["ä(ö)", false, "xäö", "ö"],
    ["ab", true, "xab", undefined],
    ["x?ab", true, "xab", "xab"],
    ["[\\s\\S]*?(<t>)[\\s\\S]*", true, "one <t>", "<t>"],
  ];
  for (const [pattern, whole, text, found] of cases) assert.equal(begin({ pattern, whole }, text), found, pattern);
});

Deno.test("TriggerWatch matches where JavaScript's engine does, for patterns of all kinds", () => {
  const pattern = fc.array(fc.constantFrom("a", "b", "[ab]", "a*", "b+", "(a)", "(ab)?", "(?:a|b)", "."), {
    minLength: 1,
    maxLength: 5,
  }).map((parts) => parts.join(""));
  const text = fc.array(fc.constantFrom("a", "b", "c"), { minLength: 1, maxLength: 9 }).map((s) => s.join(""));
  fc.assert(
    fc.property(pattern, text, fc.boolean(), (pattern, text, whole) => {
      const js = new RegExp(whole ? `^(?:${pattern})$` : pattern);
      // Looked for behind each byte.
      const first = Array.from(text, (_, i) => text.slice(0, i + 1)).find((t) => js.test(t));
      assert.equal(begin({ pattern, whole }, text) !== undefined, first !== undefined, `${pattern} in ${text}`);
    }),
    { numRuns: 500 },
  );
});

Deno.test("TriggerWatch follows a pattern of a hostile client in linear time, and refuses what it cannot follow", () => {
  assert.equal(begin({ pattern: "(?:a+)+(x)$", whole: false }, "a".repeat(3000)), undefined);
  for (const pattern of ["(a)\\1", "a(?=b)", "("]) {
    assert.throws(() => new TriggerWatch([{ pattern, whole: false }]), (e: any) => /^text\./.test(e.code), pattern);
  }
});
