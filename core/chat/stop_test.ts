import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { StopMatcher } from "./stop.ts";

function run(stops: string[], chunks: string[]): { text: string; stopped: string | undefined } {
  const m = new StopMatcher(stops);
  let text = "", stopped: string | undefined;
  for (const c of chunks) {
    const r = m.push(c);
    text += r.text;
    stopped ??= r.stopped;
  }
  return { text: text + (stopped === undefined ? m.flush() : ""), stopped };
}

Deno.test("StopMatcher shows text that only began like a stop string exactly once", () => {
  assert.deepEqual(run(["\n", "ab:"], [..."ab!cd"]), { text: "ab!cd", stopped: undefined });
  assert.deepEqual(run(["\n", "Alice:"], [" Alice", "!"]), { text: " Alice!", stopped: undefined });
  assert.deepEqual(run(["aab"], ["a", "a", "a", "b", "x"]), { text: "a", stopped: "aab" });
  assert.deepEqual(run(["END", ""], ["the EN"]), { text: "the EN", stopped: undefined });
});

Deno.test("StopMatcher takes the stop string completed first, the longest of those", () => {
  assert.deepEqual(run(["abc", "b"], ["abc"]), { text: "a", stopped: "b" });
  assert.deepEqual(run(["c", "abc"], ["xabc"]), { text: "x", stopped: "abc" });
});

Deno.test("StopMatcher holds back no more than a possible beginning", () => {
  const m = new StopMatcher(["</s>"]);
  assert.equal(m.push("a < b <").text, "a < b ");
  assert.equal(m.push(" c").text, "< c");
});

Deno.test("StopMatcher gives the same whatever the chunks", () => {
  const letters = fc.string({ unit: fc.constantFrom("a", "b", "c", "🙂"), maxLength: 30 });
  fc.assert(
    fc.property(
      letters,
      fc.array(fc.string({ unit: fc.constantFrom("a", "b", "c"), maxLength: 4 })),
      fc.array(fc.nat(30)),
      (text, stops, cuts) => {
        const at = [0, ...cuts.map((c) => Math.min(c, text.length)), text.length].sort((a, b) => a - b);
        const chunks = at.slice(1).map((end, i) => text.slice(at[i], end));
        const whole = run(stops, [text]);
        assert.deepEqual(run(stops, chunks), whole);
        if (whole.stopped === undefined) assert.equal(whole.text, text);
        else assert.ok(text.startsWith(whole.text + whole.stopped));
      },
    ),
  );
});
