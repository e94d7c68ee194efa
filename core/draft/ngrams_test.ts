import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { NgramStore } from "./ngrams.ts";

function store(tokens: readonly number[], capacity = 1024): NgramStore {
  const s = new NgramStore(capacity);
  for (const t of tokens) s.push(t);
  return s;
}

Deno.test("NgramStore.find gives what followed the longest common ending, the latest of several", () => {
  const s = store([1, 2, 3, 4, 9, 8, 2, 3, 4, 5, 5, 5, 7, 2, 3, 4, 6]);
  assert.deepEqual(s.find([2, 3, 4], 2), { length: 3, tokens: [6] });
  assert.deepEqual(s.find([8, 2, 3, 4], 2), { length: 4, tokens: [5, 5] });
  assert.deepEqual(s.find([1, 2, 3, 4], 3), { length: 4, tokens: [9, 8, 2] });
  assert.equal(s.find([3, 4], 3), undefined);
  assert.equal(s.find([3, 4, 7], 3), undefined);
  assert.equal(s.find([2, 3, 4], 0), undefined);
});

Deno.test("NgramStore.find goes on beyond the end of a text that repeats, and never across two texts", () => {
  const text = [1, 2, 3, 1, 2, 3];
  assert.deepEqual(store(text).find(text, 7, true), { length: 3, tokens: [1, 2, 3, 1, 2, 3, 1] });
  const s = store([1, 2, 3, 4]);
  s.end();
  for (const t of [5, 1, 2, 3]) s.push(t);
  assert.deepEqual(s.find([1, 2, 3], 4), { length: 3, tokens: [4] });
  s.end();
  assert.deepEqual(s.find([1, 2, 3], 4), { length: 3, tokens: [4] });
});

Deno.test("NgramStore forgets the oldest tokens and finds only what is there", () => {
  const texts = fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 0, maxLength: 1200 });
  fc.assert(fc.property(texts, fc.integer({ min: 1, max: 9 }), (text, n) => {
    const s = store(text, 256), kept = text.slice(-256), found = s.find(text, n, true);
    if (found === undefined) {
      const key = text.slice(-3).join();
      // With few searches a place may be missed only where there are many.
      const places = kept.slice(0, -3).filter((_, i) => kept.slice(i, i + 3).join() === key).length;
      assert.ok(text.length < 4 || places === 0, `${places} places were missed`);
      return;
    }
    assert.equal(found.tokens.length, n);
    // Some place of what is kept has this ending and goes on like this, into its own continuation where it reaches the end.
    const places = kept.map((_, i) => i).filter((i) => {
      if (i < found.length) return false;
      const whole = [...kept, ...found.tokens];
      return kept.slice(i - found.length, i).join() === kept.slice(-found.length).join() &&
        whole.slice(i, i + n).join() === found.tokens.join();
    });
    assert.ok(places.length > 0);
  }));
});
