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
