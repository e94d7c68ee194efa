import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { TextError } from "../../errors.ts";
import { utf8Sequences } from "./automaton.ts";
import { complement, normalize, seq, text, without } from "./expr.ts";
import { parseRegex } from "./regex.ts";
import { compileGbnf, compileJsonSchema, Grammar, GrammarMatcher, VocabTrie } from "./mod.ts";

const encode = (s: string) => new TextEncoder().encode(s);
const noVocab = new VocabTrie(1, () => undefined);

function fits(g: Grammar, text: string): boolean {
  const m = new GrammarMatcher(g, noVocab);
  return m.accept(encode(text)) && m.done;
}

function assertTexts(g: Grammar, good: string[], bad: string[]): void {
  for (const t of good) assert.ok(fits(g, t), `should fit: ${t}`);
  for (const t of bad) assert.ok(!fits(g, t), `should not fit: ${t}`);
}

function refusal(run: () => unknown): string {
  try {
    run();
  } catch (e) {
    if (e instanceof TextError) return e.code;
    throw e;
  }
  return "none";
}

Deno.test("compileGbnf() reads literals, classes, groups, repetitions, comments and lines", () => {
  const g = compileGbnf(String.raw`# a list
root ::= item ("," ws item)*   # items
item ::= "a\x41\"\\" |
  [b-dx] | [^a-z,\]\n ]
  | "é"{2,3}
ws ::= " "?
`);
  assertTexts(g, ['aA"\\', "b,x", "d, c", "Z", "🙂", "éé", "ééé,b"], [
    "",
    "é,",
    "aA",
    "a",
    "]",
    "éééé",
    "b,,c",
    "b , c",
    "e",
  ]);
  assertTexts(compileGbnf('root ::= .+ "!"'), ["hé!", "!!"], ["!", "a\n!", "a"]);
  assertTexts(compileGbnf('root ::= "a"? "b"+ "c"{2} "d"{1,}'), ["abccd", "bbccddd"], ["accd", "abcd", "abcc"]);
});

Deno.test("compileGbnf() names what is wrong, where", () => {
  const message = (source: string) => {
    try {
      compileGbnf(source);
    } catch (e) {
      assert.ok(e instanceof TextError);
      assert.equal(e.code, "text.grammar_syntax");
      return e.message.replace("Cannot parse the grammar, ", "");
    }
    return "";
  };
  assert.equal(message('root ::= "a'), "line 1, column 10: the literal does not end");
  assert.equal(message('root ::= a\nb ::= "x"'), 'line 1, column 10: rule "a" is used but not defined');
  assert.equal(message('a ::= "x"'), 'line 1, column 1: there is no rule "root"');
  assert.equal(message('root ::= "x"\n\nroot ::= "y"'), 'line 3, column 1: rule "root" is defined twice');
  assert.equal(message('root ::= ("x"'), 'line 1, column 14: expected ")"');
  assert.equal(message('root ::= "\\q"'), "line 1, column 11: unknown escape \\q");
  assert.match(message('root ::= "x"{3,2}'), /ends before it begins/);
  assert.match(message("root = 3"), /expected ::=/);
  assert.match(message('root ::= "x" )'), /expected a newline/);
});

Deno.test("grammars that would stall are refused by name, at once", () => {
  const begin = performance.now();
  assert.equal(
    refusal(() => compileGbnf("root ::= " + "(".repeat(60_000) + '"a"' + ")".repeat(60_000))),
    "text.grammar_too_large",
  );
  const choices = Array.from({ length: 100_000 }, (_, i) => `"a${i}"`).join(" | ");
  assert.equal(refusal(() => compileGbnf("root ::= " + choices)), "text.grammar_too_large");
  assert.equal(refusal(() => compileGbnf('root ::= ("a" "b"){1000000}')), "text.grammar_too_large");
  assert.equal(refusal(() => compileGbnf('root ::= ((("a"?){9000}){9000}){9000}')), "text.grammar_too_large");
  // Counts are cheap: a hundred million letters are a few states.
  assert.ok(!fits(compileGbnf('root ::= ((("a"{100}){100}){100}){100}'), "a".repeat(30_000)));
  assert.equal(refusal(() => compileGbnf('root ::= root "x" | "y"')), "text.grammar_left_recursion");
  assert.equal(
    refusal(() => compileGbnf('root ::= a\na ::= e b\nb ::= a "y" | "z"\ne ::= "x"?')),
    "text.grammar_left_recursion",
  );
  assert.equal(refusal(() => compileGbnf("root ::= a\n" + "a ::= b\n" + "b ::= a")), "text.grammar_left_recursion");
  assert.ok(performance.now() - begin < 20_000);
});

Deno.test("schemas that would stall are refused by name, at once", () => {
  const deep = (n: number) => {
    let s: unknown = { type: "string" };
    for (let i = 0; i < n; i++) s = { type: "array", items: s };
    return s;
  };
  const defs = { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } };
  assert.equal(refusal(() => compileJsonSchema({ $ref: "#/$defs/a", $defs: defs })), "text.schema");
  assert.equal(refusal(() => compileJsonSchema({ $ref: "#" })), "text.schema");
  const choice = { a: { anyOf: [{ $ref: "#/$defs/a" }, { type: "null" }] } };
  assert.equal(refusal(() => compileJsonSchema({ $ref: "#/$defs/a", $defs: choice })), "text.grammar_left_recursion");
  const merge = { a: { allOf: [{ $ref: "#/$defs/a" }] } };
  assert.equal(refusal(() => compileJsonSchema({ $ref: "#/$defs/a", $defs: merge })), "text.grammar_too_large");
  assert.equal(refusal(() => compileJsonSchema(deep(1500))), "text.grammar_too_large");
  assert.equal(refusal(() => compileJsonSchema(deep(100))), "none");
  assert.equal(
    refusal(() => compileJsonSchema({ type: "string", pattern: "(".repeat(5000) + ")".repeat(5000) })),
    "text.grammar_too_large",
  );
  assert.equal(
    refusal(() => compileJsonSchema({ type: "array", items: {}, maxItems: 100_000 })),
    "text.grammar_too_large",
  );
  for (
    const bad of [
      null,
      3,
      "x",
      { type: "thing" },
      { type: [] },
      { enum: [] },
      { $ref: "http://x" },
      { $ref: "#/nowhere" },
      { type: "string", minLength: -1 },
      { type: "string", minLength: 3, maxLength: 2 },
      { type: "integer", minimum: 3, maximum: 2 },
      { anyOf: [] },
      false,
    ]
  ) {
    assert.equal(refusal(() => compileJsonSchema(bad)), "text.schema", JSON.stringify(bad));
  }
});

Deno.test("GrammarMatcher survives patterns whose automata explode", () => {
  const g = compileGbnf('root ::= [ab]* "a" [ab]{400}');
  assert.ok(fits(g, "ab".repeat(300) + "a" + "b".repeat(400)));
  assert.ok(!fits(g, "b".repeat(500)));
});

Deno.test("compileJsonSchema() of anything takes JSON and nothing else", () => {
  const g = compileJsonSchema({});
  fc.assert(fc.property(fc.jsonValue(), fc.boolean(), (v, spaced) => {
    const text = JSON.stringify(v, (_, x) => typeof x === "number" ? Math.round(x) % 1e9 : x, spaced ? 2 : 0);
    assert.ok(fits(g, text.replaceAll("\x7f", "\\u007f")), text);
  }));
  assertTexts(g, ['"\\u00e9\\n🙂"', "-1.5e+3", "0", '{ "a": 1}'], [
    "",
    "01",
    "+1",
    "1.",
    "[1,]",
    '{"a":}',
    "{1:2}",
    '"\n"',
    "nul",
    '"a" "b"',
    '"\\x"',
  ]);
});

Deno.test("compileJsonSchema() takes objects in order, optional members left out, others only where allowed", () => {
  const g = compileJsonSchema({
    type: "object",
    properties: { a: { type: "integer" }, b: { type: "string" }, c: { type: "boolean" } },
    required: ["b"],
  });
  assertTexts(g, [
    '{"b":"x"}',
    '{"a":1,"b":"x"}',
    '{"a": 1, "b": "x", "c": true}',
    '{"b":"","c":false}',
    '{\n  "b": "x"\n}',
  ], [
    "{}",
    '{"a":1}',
    '{"b":"x","a":1}',
    '{"b":"x","d":1}',
    '{"b":"x",}',
    '{,"b":"x"}',
    '{"b":1}',
  ]);
  const open = compileJsonSchema({
    type: "object",
    properties: { ab: { type: "integer" } },
    additionalProperties: { type: "null" },
  });
  assertTexts(open, ["{}", '{"ab":1}', '{"a":null}', '{"ab":1,"abc":null,"x":null}', '{"b":null,"":null}'], [
    '{"ab":null}',
    '{"x":1}',
    '{"a":null,"ab":null}',
  ]);
  assertTexts(compileJsonSchema({ type: "object" }), ["{}", '{"x":[1]}'], ["[]"]);
  assertTexts(compileJsonSchema({ type: "object", additionalProperties: false }), ["{}"], ['{"x":1}']);
  assertTexts(compileJsonSchema({ properties: { 'q"\n': { const: 1 } }, required: ['q"\n'] }), ['{"q\\"\\n":1}'], [
    "{}",
  ]);
});

Deno.test("compileJsonSchema() takes arrays, tuples, choices and literals", () => {
  assertTexts(compileJsonSchema({ type: "array", items: { type: "integer" }, minItems: 2, maxItems: 3 }), [
    "[1,2]",
    "[1, 2, 3]",
  ], ["[]", "[1]", "[1,2,3,4]", '["a","b"]']);
  assertTexts(compileJsonSchema({ type: "array", items: { type: "null" }, maxItems: 0 }), ["[]"], ["[null]"]);
  const many = compileJsonSchema({ type: "array", items: { type: "integer" }, maxItems: 1000 });
  const list = (n: number) => `[${new Array(n).fill(1)}]`;
  assertTexts(many, [list(0), list(129), list(999), list(1000)], [list(1001), list(1200)]);
  assertTexts(compileJsonSchema({ prefixItems: [{ type: "integer" }, { type: "string" }] }), ['[1,"a"]'], [
    "[1]",
    '["a",1]',
  ]);
  assertTexts(compileJsonSchema({ enum: ["a", 1, null, { x: [1] }] }), ['"a"', "1", "null", '{"x":[1]}'], ["a", "2"]);
  assertTexts(compileJsonSchema({ anyOf: [{ type: "string" }, { const: 5 }] }), ['"x"', "5"], ["6"]);
  assertTexts(compileJsonSchema({ type: ["integer", "null"] }), ["7", "null"], ['"7"']);
  const all = {
    allOf: [{ properties: { a: { type: "integer" } }, required: ["a"] }, { $ref: "#/$defs/b" }],
    $defs: { b: { properties: { b: {} } } },
  };
  assertTexts(compileJsonSchema({ type: "object", ...all }), ['{"a":1}', '{"a":1,"b":[]}'], ["{}", '{"b":1}']);
});

Deno.test("compileJsonSchema() follows references, cycles included", () => {
  const g = compileJsonSchema({
    $ref: "#/$defs/node",
    $defs: {
      node: {
        type: "object",
        properties: { v: { type: "integer" }, kids: { type: "array", items: { $ref: "#/$defs/node" } } },
        required: ["v"],
      },
    },
  });
  assertTexts(g, ['{"v":1,"kids":[{"v":2},{"v":3,"kids":[]}]}'], ['{"kids":[]}', '{"v":1,"kids":[{}]}']);
  assertTexts(compileJsonSchema({ anyOf: [{ type: "array", items: { $ref: "#" } }, { type: "null" }] }), [
    "[[],[null,[]]]",
  ], ["[1]"]);
});

Deno.test("compileJsonSchema() keeps the bounds of integers exactly", () => {
  const bound = fc.integer({ min: -1500, max: 1500 });
  fc.assert(
    fc.property(bound, bound, fc.array(fc.integer({ min: -20000, max: 20000 })), (a, b, more) => {
      const lo = Math.min(a, b), hi = Math.max(a, b);
      const g = compileJsonSchema({ type: "integer", minimum: lo, maximum: hi });
      for (const n of [lo - 1, lo, lo + 1, hi - 1, hi, hi + 1, 0, -1, 9, 10, 99, 100, ...more]) {
        assert.equal(fits(g, String(n)), n >= lo && n <= hi, `${n} in ${lo}..${hi}`);
      }
      const open = compileJsonSchema({ type: "integer", exclusiveMinimum: a });
      for (const n of [a - 1, a, a + 1, 123456789]) assert.equal(fits(open, String(n)), n > a, `${n} > ${a}`);
    }),
    { numRuns: 60 },
  );
});

Deno.test("compileJsonSchema() keeps multipleOf exactly, within bounds too", () => {
  const some = fc.array(fc.integer({ min: -5000, max: 5000 }));
  const bound = fc.option(fc.integer({ min: -1500, max: 1500 }), { nil: undefined });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 60 }), bound, bound, some, (multipleOf, minimum, maximum, more) => {
      const wanted = (n: number) => n % multipleOf === 0 && n >= (minimum ?? n) && n <= (maximum ?? n);
      const lo = minimum ?? -1000, hi = maximum ?? 1000;
      const schema = { type: "integer", multipleOf, minimum, maximum };
      if (minimum !== undefined && maximum !== undefined && Math.ceil(lo / multipleOf) * multipleOf > hi) {
        assert.equal(refusal(() => compileJsonSchema(schema)), "text.schema");
        return;
      }
      const g = compileJsonSchema(schema);
      assert.deepEqual(g.ignored, []);
      for (const n of [0, multipleOf, -multipleOf, 7 * multipleOf, lo, hi, lo - 1, hi + 1, 123456789, ...more]) {
        assert.equal(fits(g, String(n)), wanted(n), `${n} of ${multipleOf} in ${minimum}..${maximum}`);
      }
      for (const bad of ["", "-", "01", "1.0"]) assert.ok(!fits(g, bad));
    }),
    { numRuns: 60 },
  );
  assertTexts(compileJsonSchema({ type: "number", multipleOf: 0.01 }), ["3", "-3.1", "12.99"], ["1.005", "1e3", "1."]);
  assertTexts(compileJsonSchema({ type: "number", multipleOf: 5 }), ["0", "-15", "100"], ["3", "5.0"]);
  const largest = compileJsonSchema({ type: "integer", multipleOf: 256, minimum: 3 });
  assertTexts(largest, ["256", "102400"], ["0", "3", "257"]);
});

Deno.test("compileJsonSchema() keeps the bounds of numbers exactly where they are integers", () => {
  const bound = fc.integer({ min: -120, max: 120 });
  const number = fc.oneof(
    bound.map(String),
    fc.tuple(bound, fc.stringMatching(/^[0-9]{1,3}$/)).map((p) => p.join(".")),
  );
  fc.assert(
    fc.property(bound, bound, fc.boolean(), fc.boolean(), fc.array(number), (a, b, overLo, underHi, numbers) => {
      const lo = Math.min(a, b), hi = Math.max(a, b) + 1;
      const g = compileJsonSchema({
        type: "number",
        [overLo ? "exclusiveMinimum" : "minimum"]: lo,
        [underHi ? "exclusiveMaximum" : "maximum"]: hi,
      });
      assert.deepEqual(g.ignored, []);
      for (
        const text of [...numbers, `${lo}`, `${hi}`, `${lo}.5`, `${hi}.5`, `${lo}.0`, `${hi}.00`, "-0.001", "0.01"]
      ) {
        const n = Number(text);
        assert.equal(
          fits(g, text),
          (overLo ? n > lo : n >= lo) && (underHi ? n < hi : n <= hi),
          `${text} in ${lo}..${hi}`,
        );
      }
    }),
    { numRuns: 300 },
  );
  assertTexts(compileJsonSchema({ type: "number", minimum: 0 }), ["0", "0.5", "123456.75"], ["-0.5", "-1"]);
});

Deno.test("compileJsonSchema() lists the keywords that it does not keep, by place", () => {
  const ignored = (schema: unknown) => compileJsonSchema(schema).ignored;
  assert.deepEqual(
    ignored({
      type: "object",
      title: "t",
      properties: {
        a: { type: "array", items: { type: "string", format: "idn-email" }, uniqueItems: true },
        b: { type: "string", pattern: "^a", minLength: 3 },
        c: { type: ["string", "null"], minLength: 2, default: "x" },
        d: { anyOf: [{ type: "integer", minimum: 0 }, { type: "null" }], not: { const: 3 } },
        e: { type: "number", minimum: 0.5 },
        f: { type: "integer", multipleOf: 1000 },
      },
      patternProperties: { "^x": {} },
      additionalProperties: false,
      minProperties: 1,
    }).toSorted(),
    [
      "#/minProperties",
      "#/patternProperties",
      "#/properties/a/items/format",
      "#/properties/a/uniqueItems",
      "#/properties/b/minLength",
      "#/properties/d/not",
      "#/properties/e/minimum",
      "#/properties/f/multipleOf",
    ],
  );
  const usual = { $ref: "#/$defs/a", $defs: { a: { type: "array", items: { enum: [1] }, maxItems: 3 } } };
  assert.deepEqual(ignored(usual), []);
});

Deno.test("compileJsonSchema() moves far bounds in, and takes a format beside a pattern as its description", () => {
  const far = compileJsonSchema({
    type: "integer",
    minimum: Number.MIN_SAFE_INTEGER,
    maximum: Number.MAX_SAFE_INTEGER,
  });
  assert.deepEqual(far.ignored, []);
  assertTexts(far, ["0", "-7", "1000000000000000", "-1000000000000000"], ["1000000000000001", "-9007199254740991"]);
  const over = compileJsonSchema({ type: "integer", exclusiveMinimum: -1e300, maximum: 3 });
  assert.deepEqual(over.ignored, []);
  assertTexts(over, ["3", "-5"], ["4"]);
  const number = compileJsonSchema({ type: "number", minimum: 0, maximum: Number.MAX_VALUE });
  assert.deepEqual(number.ignored, []);
  assertTexts(number, ["0.5", "1000000000000000"], ["-1", "1000000000000001"]);
  // Nothing that a grammar counts to would meet this one.
  assert.deepEqual(compileJsonSchema({ type: "number", minimum: 1e18 }).ignored, ["#/minimum"]);
  const uuid = compileJsonSchema({ type: "string", format: "uuid", pattern: "^[0-9a-f]{2}$" });
  assert.deepEqual(uuid.ignored, []);
  assertTexts(uuid, ['"0f"'], ['"0"', '"00000000-0000-0000-0000-000000000000"']);
});

Deno.test("compileJsonSchema() counts characters of strings, long bounds too", () => {
  const g = compileJsonSchema({ type: "string", minLength: 2, maxLength: 2000 });
  const s = (n: number, c = "é") => `"${c.repeat(n)}"`;
  assertTexts(g, [s(2), s(127), s(128), s(129), s(1999), s(2000), s(2000, "\\n")], [s(1), s(2001), s(2128)]);
  const nested = compileJsonSchema({ type: "array", maxItems: 2000, items: { type: "string", maxLength: 4000 } });
  assertTexts(nested, [`[${s(4000)}, ""]`], [`[${s(4001)}]`]);
});

Deno.test("compileJsonSchema() escapes what a pattern describes", () => {
  assertTexts(compileJsonSchema({ type: "string", pattern: '^[a-c"\\\\]+$' }), ['"abc"', '"a\\"b"', '"\\\\"'], [
    '""',
    '"d"',
    '"""',
  ]);
  assertTexts(compileJsonSchema({ type: "string", pattern: "^\\d{3}-\\w+(x|yy)?$" }), ['"123-ab"', '"123-abyy"'], [
    '"12-a"',
    '"123-"',
  ]);
  assertTexts(compileJsonSchema({ type: "string", pattern: "b" }), ['"abc"', '"b"', '"\\n\\"b"'], ['"ac"', '""']);
  assertTexts(compileJsonSchema({ type: "string", format: "date" }), ['"2026-01-15"'], ['"2026-13-15"', '"x"']);
  assertTexts(compileJsonSchema({ type: "string", format: "date-time" }), ['"2026-01-15T12:30:00Z"'], ['"2026-01-15"']);
  assertTexts(compileJsonSchema({ type: "string", format: "idn-email" }), ['"any"'], ["1"]);
});

Deno.test("compileJsonSchema() leaves out a pattern that grammars cannot say, and that alone", () => {
  for (const p of ["(?=a)b", "\\bword", "a(?!b)", "(a)\\1", "a**", "[b-a]", "(a", "a)", "a^b", "[]", "^+a$"]) {
    assert.equal(refusal(() => parseRegex(p)), "text.schema_pattern", p);
    const g = compileJsonSchema({ type: "object", properties: { a: { type: "string", pattern: p, maxLength: 2 } } });
    assert.deepEqual(g.ignored, ["#/properties/a/pattern"], p);
    assertTexts(g, ['{"a": "xy"}'], ['{"a": "xyz"}', '{"a": 1}']);
  }
  const both = compileJsonSchema({ type: "string", pattern: "(?=a)b", format: "ipv4" });
  assert.deepEqual(both.ignored, ["#/pattern"]);
  assertTexts(both, ['"1.2.3.4"'], ['"b"']);
});

/** Small regular expressions as source for both engines. */
const regex = fc.letrec<{ e: string }>((tie) => ({
  e: fc.oneof(
    { maxDepth: 4 },
    fc.constantFrom("a", "b", "[ab]", "[^a]", "."),
    fc.tuple(tie("e"), tie("e")).map(([x, y]) => `${x}${y}`),
    fc.tuple(tie("e"), tie("e")).map(([x, y]) => `(${x}|${y})`),
    fc.tuple(tie("e"), fc.constantFrom("?", "*", "+", "{2}", "{1,3}", "{0,2}")).map(([x, q]) => `(${x})${q}`),
  ),
})).e;

Deno.test("patterns fit the same texts as the engine's own regular expressions", () => {
  fc.assert(
    fc.property(
      regex,
      fc.array(fc.string({ unit: fc.constantFrom("a", "b", "c"), maxLength: 6 }), { maxLength: 10 }),
      (source, texts) => {
        const g = compileJsonSchema({ type: "string", pattern: `^${source}$` }),
          oracle = new RegExp(`^(?:${source})$`, "u");
        for (const t of texts) assert.equal(fits(g, `"${t}"`), oracle.test(t), `${source} on ${t}`);
      },
    ),
    { numRuns: 300 },
  );
});

Deno.test("utf8Sequences() cover exactly the characters given", () => {
  const points = [
    0,
    0x41,
    0x7f,
    0x80,
    0x7ff,
    0x800,
    0xd7ff,
    0xe000,
    0xfffd,
    0xffff,
    0x10000,
    0x1f642,
    0x3ffff,
    0x40000,
    0x10ffff,
  ];
  const point = fc.oneof(fc.constantFrom(...points), fc.integer({ min: 0, max: 0x10ffff }));
  fc.assert(fc.property(fc.array(fc.tuple(point, point)), fc.array(point), (pairs, extra) => {
    const ranges = normalize(pairs.map(([a, b]) => [Math.min(a, b), Math.max(a, b)] as const));
    const sequences = utf8Sequences(ranges);
    for (const c of [...points, ...extra, ...ranges.flat()]) {
      if (c >= 0xd800 && c <= 0xdfff) continue;
      const bytes = encode(String.fromCodePoint(c));
      const hits = sequences.filter((s) =>
        s.length === bytes.length && s.every(([lo, hi], i) => bytes[i] >= lo && bytes[i] <= hi)
      ).length;
      assert.equal(hits, ranges.some(([lo, hi]) => c >= lo && c <= hi) ? 1 : 0);
    }
    assert.deepEqual(complement(complement(ranges)), ranges);
  }));
});

Deno.test("without() takes every text that lacks the marker, and no other", () => {
  const unit = fc.constantFrom("a", "b", "<", "é", "🙂", "\n");
  const string = (maxLength: number) => fc.string({ unit, maxLength });
  fc.assert(
    fc.property(string(4), string(20), (begin, text) => {
      const marker = begin + "<";
      const g = new Grammar({ root: "root", rules: new Map([["root", without(marker)]]) });
      assert.equal(fits(g, text), !text.includes(marker));
      assert.ok(!fits(g, text + marker));
    }),
    { numRuns: 500 },
  );
});

/** A vocabulary with all bytes, duplicates, long runs, halves of characters and tokens across quotes. */
const pieces: Uint8Array[] = [
  ...Array.from({ length: 256 }, (_, i) => Uint8Array.of(i)),
  ...[
    '"',
    '",',
    '": ',
    '":',
    '"}',
    '"a',
    'a"',
    ' "',
    '{"',
    "[{",
    "}]",
    "},",
    "true",
    "false",
    "null",
    "12",
    "3.5",
    "\\n",
    "\\u00",
    "\\",
    "name",
    'name"',
    'ame": "',
    "é",
    "éé",
    "🙂",
    "hello",
    " world",
    " ".repeat(20),
    "x".repeat(70),
    "a".repeat(5),
    "b".repeat(9),
    "ab",
    "aab",
    "\n  ",
    "0",
    "00",
    "1e",
    "-",
    "-1",
  ].map(encode),
  Uint8Array.of(0xc3),
  Uint8Array.of(0xf0, 0x9f),
  Uint8Array.of(0x99, 0x82),
  Uint8Array.of(0x61, 0xc3),
  Uint8Array.of(0xa9, 0x22),
];
const vocab = new VocabTrie(pieces.length + 1, (id) => pieces[id]);

/** The mask agrees with trying every token, all along a text. */
function assertMasks(g: Grammar, text: Uint8Array): void {
  const m = new GrammarMatcher(g, vocab);
  for (let at = 0; at <= text.length;) {
    const mask = m.allowed();
    for (let id = 0; id < pieces.length; id++) {
      assert.equal(
        Boolean((mask[id >>> 5] >>> (id & 31)) & 1),
        m.fits(pieces[id]),
        `token ${id} after ${new TextDecoder().decode(text.subarray(0, at))}`,
      );
    }
    assert.equal((mask[pieces.length >>> 5] >>> (pieces.length & 31)) & 1, 0);
    if (at === text.length) break;
    assert.ok(m.accept(text.subarray(at, ++at)));
  }
  assert.ok(m.done);
}

Deno.test("GrammarMatcher's masks allow exactly the tokens that fit", () => {
  const schema = {
    type: "object",
    properties: {
      name: { type: "string" },
      short: { type: "string", maxLength: 10 },
      long: { type: "string", maxLength: 600 },
      n: { type: "integer", maximum: 300 },
      list: { type: "array", items: {} },
    },
    required: ["name"],
  };
  const value = { name: 'é"\\🙂', short: "ab", long: "aab".repeat(60), n: -12, list: [1.5, null, { a: [true, "x"] }] };
  assertMasks(compileJsonSchema(schema), encode(JSON.stringify(value)));
  assertMasks(compileJsonSchema({}), encode('{"a": [1, "b", {"c": null}], "d": ""}'));
  assertMasks(compileGbnf('root ::= [^"\\n]* "!"'), encode("free text é!"));
  assertMasks(compileGbnf('root ::= w (" " w)*\nw ::= [a-z] w | [a-z]'), encode("ab aab"));
  assertMasks(compileGbnf('root ::= "(" root ")" root | ""'), encode("((())())"));
});

Deno.test("GrammarMatcher's masks are exact where strings are counted, at both bounds and between", () => {
  const string = (minLength: number, maxLength: number) => compileJsonSchema({ type: "string", minLength, maxLength });
  assertMasks(string(0, 7), encode('"aab\\néb"'));
  assertMasks(string(90, 93), encode(`"${"ab\\u00e9".repeat(31)}"`));
  assertMasks(string(200, 400), encode(`"${"x".repeat(130)}é"`.replace("é", "y".repeat(80))));
  assertMasks(string(2, 9000), encode('"ab🙂"'));
  const value = seq(text("v="), without("</v>"), text("</v>"));
  assertMasks(new Grammar({ root: "root", rules: new Map([["root", value]]) }), encode("v=a<b <éab</v>"));
  assertMasks(compileGbnf('root ::= [^<]{3,120} "<" [^"]* "!"'), encode("ab é<x!"));
  assertMasks(compileGbnf('root ::= .{0,40} "," ("ab" | "a"){2,30} "."'), encode("x,y,abaab."));
  assertMasks(compileGbnf('root ::= line{1,20}\nline ::= [^\\n]{0,90} "\\n"'), encode("ab\n\nhello\n"));
});

Deno.test("GrammarMatcher's masks agree with trying every token, on random repetitions", () => {
  const item = fc.constantFrom("[^<]", "[ab]", '("a" | "ab")', '("b" [^"] | "é")', '("a" "b"?)');
  const count = fc.tuple(fc.nat(9), fc.oneof(fc.nat(9), fc.nat(90)));
  const part = fc.tuple(item, count).map(([x, [min, more]]) => `${x}{${min},${min + more}}`);
  fc.assert(
    fc.property(fc.array(part, { minLength: 1, maxLength: 3 }), fc.string({ unit: fc.constantFrom("a", "b", "é") }), (
      parts,
      text,
    ) => {
      const m = new GrammarMatcher(compileGbnf(`root ::= (${parts.join(' "," ')}){1,6} "."?`), vocab);
      for (const b of encode(text)) {
        const mask = m.allowed();
        for (let id = 0; id < pieces.length; id++) {
          assert.equal(Boolean((mask[id >>> 5] >>> (id & 31)) & 1), m.fits(pieces[id]), `token ${id}`);
        }
        if (!m.accept(Uint8Array.of(b))) return;
      }
    }),
    { numRuns: 200 },
  );
});

Deno.test("GrammarMatcher's masks agree with trying every token, on random patterns", () => {
  fc.assert(
    fc.property(regex, fc.string({ unit: fc.constantFrom("a", "b"), maxLength: 6 }), (source, text) => {
      const g = compileJsonSchema({ type: "string", pattern: `^${source}$` });
      const m = new GrammarMatcher(g, vocab);
      for (const b of encode(`"${text}`)) {
        if (!m.accept(Uint8Array.of(b))) return;
        const mask = m.allowed();
        for (let id = 0; id < pieces.length; id++) {
          assert.equal(Boolean((mask[id >>> 5] >>> (id & 31)) & 1), m.fits(pieces[id]));
        }
      }
    }),
    { numRuns: 150 },
  );
});

Deno.test("GrammarMatcher applies to logits, ends where the text is complete", () => {
  const g = compileGbnf('root ::= "true" | "null"');
  const m = new GrammarMatcher(g, vocab);
  const end = pieces.length;
  const tried = () => {
    const logits = new Float32Array(pieces.length + 1);
    m.apply(logits, [end]);
    return [...logits.keys()].filter((i) => logits[i] > -Infinity);
  };
  const id = (s: string) => pieces.findIndex((p, i) => i > 255 && new TextDecoder().decode(p) === s);
  assert.deepEqual(tried(), [110, 116, id("true"), id("null")]);
  assert.ok(!m.done);
  assert.ok(!m.accept(encode("tx")));
  assert.ok(m.accept(encode("true")));
  assert.ok(m.done && m.finished);
  assert.deepEqual(tried(), [end]);
  const poor = new VocabTrie(1, () => encode("z"));
  assert.throws(
    () => new GrammarMatcher(g, poor).apply(new Float32Array(1)),
    (e) => e instanceof TextError && e.code === "text.no_candidate",
  );
});

Deno.test("GrammarMatcher goes through long and deep texts", () => {
  const g = compileJsonSchema({ anyOf: [{ type: "array", items: { $ref: "#" } }, { type: "string" }] });
  const m = new GrammarMatcher(g, vocab);
  assert.ok(m.accept(encode("[".repeat(20_000))));
  m.allowed();
  assert.ok(m.accept(encode("]".repeat(20_000))));
  assert.ok(m.done);
  const flat = new GrammarMatcher(compileJsonSchema({}), vocab);
  assert.ok(flat.accept(encode("[" + '{"k": [1, "v"]}, '.repeat(20_000) + "null]")));
  assert.ok(flat.done);
});

Deno.test("compileGbnf() gives a grammar or a TextError, whatever the text", () => {
  const scraps = fc.constantFrom(
    ...[
      "root",
      "::=",
      "a",
      '"x"',
      '"',
      "[a-z]",
      "[",
      "]",
      "^",
      "(",
      ")",
      "|",
      "*",
      "+",
      "?",
      "{2}",
      "{1,",
      "}",
      " ",
      "\n",
      "#",
      "\\",
      "\\x4",
      ".",
      "é",
      "-",
    ],
  );
  const source = fc.oneof(
    fc.array(scraps, { maxLength: 20 }).map((s) => "root ::= " + s.join("")),
    fc.array(scraps, { maxLength: 20 }).map((s) => s.join("")),
    fc.string(),
  );
  fc.assert(
    fc.property(source, (s) => {
      try {
        new GrammarMatcher(compileGbnf(s), vocab).allowed();
      } catch (e) {
        assert.ok(e instanceof TextError, `${e} of ${JSON.stringify(s)}`);
      }
    }),
    { numRuns: 3000 },
  );
});

Deno.test("compileJsonSchema() gives a grammar or a TextError, whatever the schema", () => {
  const word = fc.constantFrom(
    "string",
    "integer",
    "object",
    "array",
    "null",
    "a",
    "#",
    "#/$defs/a",
    "#/%",
    "^a+$",
    "(",
    0,
    1,
    3,
    -1,
    1e9,
    true,
    false,
    null,
  );
  const schema = fc.letrec<{ s: unknown }>((tie) => ({
    s: fc.oneof(
      { maxDepth: 4, withCrossShrink: true },
      word,
      fc.array(tie("s"), { maxLength: 3 }),
      fc.dictionary(
        fc.constantFrom(
          "type",
          "properties",
          "required",
          "items",
          "prefixItems",
          "anyOf",
          "allOf",
          "enum",
          "const",
          "$ref",
          "$defs",
          "minLength",
          "maxLength",
          "minItems",
          "maxItems",
          "minimum",
          "maximum",
          "pattern",
          "format",
          "additionalProperties",
          "a",
          "b",
        ),
        tie("s"),
        { maxKeys: 5 },
      ),
    ),
  })).s;
  fc.assert(
    fc.property(schema, (s) => {
      try {
        new GrammarMatcher(compileJsonSchema(s), vocab).allowed();
      } catch (e) {
        assert.ok(e instanceof TextError, `${e} of ${JSON.stringify(s)}`);
      }
    }),
    { numRuns: 3000 },
  );
});
