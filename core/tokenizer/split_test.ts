import assert from "node:assert/strict";
import { goldenDir, readJson } from "./_testing.ts";
import { PRE_TOKENIZER_NAMES, preTokenizer } from "./pretokenizers.ts";
import { Prepared, split } from "./split.ts";

const golden: { texts: string[]; splits: Record<string, string[]> } = readJson(`${goldenDir}splits.json`);

function lengths(text: string, name: string, follow: "llama.cpp" | "release" = "llama.cpp"): string {
  const pre = preTokenizer(name, follow)!;
  const ends = split(new Prepared(pre.isRaw ? text.replaceAll(" ", "\u2581") : text), pre.steps);
  return ends.map((end, i) => end - (i === 0 ? 0 : ends[i - 1])).join(" ");
}

for (const [name, splits] of Object.entries(golden.splits)) {
  Deno.test(`split() cuts as llama.cpp does with ${name} (${preTokenizer(name)!.cuts})`, () => {
    golden.texts.forEach((text, i) => assert.equal(lengths(text, name), splits[i], JSON.stringify(text)));
  });
}

Deno.test("the golden splits hold every way of cutting but the two that change the text", () => {
  const ways = new Set(PRE_TOKENIZER_NAMES.map((name) => preTokenizer(name)!.cuts));
  for (const name of Object.keys(golden.splits)) ways.delete(preTokenizer(name)!.cuts);
  assert.deepEqual([...ways], ["MMBERT", "WHITESPACE"]);
});

Deno.test("split() does not use the engine's newer Unicode tables", () => {
  // U+1C89 and U+A7CB are letters since Unicode 16; U+2EBF0 since 15.1
  assert.equal(lengths("a\u1c89", "qwen2"), "1 1");
  assert.equal(lengths("a\ua7cb", "qwen2"), "1 1");
  assert.equal(lengths("a\u{2ebf0}", "qwen2"), "2");
});

Deno.test("split() covers any text of a million equal characters in linear time with every pre-tokenizer", () => {
  const started = performance.now();
  for (
    const name of PRE_TOKENIZER_NAMES.filter((n, i, all) =>
      all.findIndex((other) => preTokenizer(other)!.cuts === preTokenizer(n)!.cuts) === i
    )
  ) {
    for (const unit of ["a", "A", " ", "\n", "1", "!", "'", "\u4e2d", "\u0301", "\u{1f600}", " \u00e9", "aA"]) {
      const text = unit.repeat(100_000);
      for (const given of [text, text + "x", "\u4e2d" + text]) {
        const prepared = new Prepared(given);
        const ends = split(prepared, preTokenizer(name)!.steps);
        assert.equal(ends[ends.length - 1], prepared.n, `${name} ${JSON.stringify(unit)}`);
      }
    }
  }
  // quadratic cutting of a single one of these would take minutes
  assert.ok(performance.now() - started < 60_000);
});

Deno.test("split() can cut by the case of every script, and keep marks in words, as the releases do", () => {
  const text = "\u041f\u0440\u0438\u0432\u0435\u0442\u041c\u0438\u0440"; // Cyrillic, upper case in the middle
  assert.equal(lengths(text, "gpt-4o"), "9");
  assert.equal(lengths(text, "gpt-4o", "release"), "6 3");
  assert.equal(lengths(text, "tekken", "release"), "6 3");
  assert.equal(lengths("HelloWorld\u4e2d\u56fdx", "kimi-k2"), "10 2 1");
  assert.equal(lengths("HelloWorld\u4e2d\u56fdx", "kimi-k2", "release"), "5 5 2 1");
  assert.equal(lengths("\u0915\u093f\u0915", "gpt-4o"), "1 2"); // Devanagari letters around a vowel sign
  assert.equal(lengths("\u0915\u093f\u0915", "gpt-4o", "release"), "3");
  assert.equal(lengths("it's 12345 don'T!\n", "gpt-4o", "release"), "4 1 3 2 6 2");
});

Deno.test("split() with ufakzeka knows no contractions, which the form it otherwise shares does", () => {
  assert.equal(lengths("b'searching x've", "ufakzeka"), "1 10 2 3");
  assert.equal(lengths("b'searching x've", "qwen2"), "1 2 8 2 3");
});
