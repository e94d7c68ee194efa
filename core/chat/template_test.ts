import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { gunzipSync } from "node:zlib";
import { needingShared, repoDir, sharedDir } from "../../tests/shared.ts";
import { TextError } from "../errors.ts";
import { parseJson } from "../json.ts";
import { type ChatMessage, ChatTemplate } from "./template.ts";

const options = { bosToken: "<s>", eosToken: "</s>", now: () => new Date(2026, 0, 15, 12, 30), name: "test.jinja" };

interface Case {
  name: string;
  messages: ChatMessage[];
  tools: unknown[] | null;
  add_generation_prompt: boolean;
  kwargs: Record<string, unknown>;
  expected?: string;
  /** What Python said where it failed; `TemplateError: ` is the template's own refusal. */
  error?: string;
}

function renderText(source: string, kwargs: Record<string, unknown> = {}): string {
  return new ChatTemplate(source, options).render({ messages: [], kwargs });
}

function textError(run: () => unknown): TextError {
  try {
    run();
  } catch (e) {
    if (e instanceof TextError) return e;
    throw e;
  }
  return assert.fail("nothing was thrown");
}

function checkCases(name: string, source: string, cases: Case[]): void {
  const template = new ChatTemplate(source, { ...options, name });
  for (const c of cases) {
    const render = () =>
      template.render({
        messages: c.messages,
        ...(c.tools ? { tools: c.tools } : {}),
        addGenerationPrompt: c.add_generation_prompt,
        kwargs: c.kwargs,
      });
    if (c.error === undefined) assert.equal(render(), c.expected, `${name}, ${c.name}`);
    else if (c.error.startsWith("TemplateError: ")) {
      const e = textError(render);
      assert.equal(`${e.code} ${e.message}`, `text.template_refused ${c.error.slice(15)}`, `${name}, ${c.name}`);
    } else {
      // Python's own limits: a rendering or a named error are both right, anything else is not.
      try {
        render();
      } catch (e) {
        assert.ok(e instanceof TextError, `${name}, ${c.name}: ${e}`);
      }
    }
  }
}

Deno.test("ChatTemplate renders chosen templates of released models as transformers does", () => {
  const golden = JSON.parse(Deno.readTextFileSync(repoDir + "tests/goldens/chat/templates.json"));
  for (const [name, t] of Object.entries<{ template: string; cases: Case[] }>(golden.templates)) {
    checkCases(name, t.template, t.cases);
  }
});

Deno.test({
  ...needingShared("ChatTemplate renders all templates of the shared set as transformers does"),
  fn() {
    const dir = sharedDir + "templates/";
    const all = JSON.parse(new TextDecoder().decode(gunzipSync(Deno.readFileSync(dir + "expected.json.gz"))));
    for (const [file, cases] of Object.entries<Case[]>(all.templates)) {
      checkCases(file, Deno.readTextFileSync(dir + file), cases);
    }
  },
});

Deno.test({
  ...needingShared("ChatTemplate renders the repository's own model as its reference does"),
  fn() {
    const config = JSON.parse(Deno.readTextFileSync(repoDir + "models/bloom-nano/tokenizer_config.json"));
    const template = new ChatTemplate(config.chat_template, options);
    const file = sharedDir + "models/reference/tokenizer/chat_template_cases.json";
    for (const c of JSON.parse(Deno.readTextFileSync(file))) {
      const { add_generation_prompt, tools, ...kwargs } = c.kwargs;
      assert.equal(
        template.render({ messages: c.messages, tools, addGenerationPrompt: add_generation_prompt, kwargs }),
        c.text,
      );
    }
  },
});

// Constructs that the library's own evaluator renders otherwise, each with the text that Python gives.
const constructs: [construct: string, source: string, expected: string][] = [
  [
    "str() of a list is Python's repr",
    `{{ [1, "a'b", none, true, 1.0, {"k": []}] }}`,
    `[1, "a'b", None, True, 1.0, {'k': []}]`,
  ],
  ["none prints, undefined does not", `{{ none }}|{{ nothing }}`, `None|`],
  ["division gives a float", `{{ 4 / 2 }} {{ 7 // 2 }} {{ -7 % 3 }}`, `2.0 3 2`],
  ["== compares by value and not across types", `{{ [1] == [1] }} {{ "1" == 1 }} {{ 1 == true }}`, `True False True`],
  ["a loop round has its own scope", `{% for i in [1, 2] %}{{ x }}{% set x = i %}{% endfor %}{{ x }}`, ``],
  [
    "break and continue keep what was printed",
    `{% for i in range(4) %}{{ i }}{% if i == 2 %}!{% break %}{% endif %}{% endfor %}`,
    `012!`,
  ],
  [
    "a macro sees where it was written",
    `{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% for x in [5] %}{{ m() }}{% endfor %}`,
    `1`,
  ],
  ["lstrip takes characters", `{{ "xxabx".lstrip("x") }} {{ "\n a".lstrip("\n") }}`, `abx  a`],
  ["rsplit and maxsplit", `{{ "a b c".rsplit(" ", 1) }} {{ "a,b,c".split(",", 1) }}`, `['a b', 'c'] ['a', 'b,c']`],
  ["strings count code points", `{{ "🙂x"|length }} {{ "🙂x"[1] }} {{ "🙂x"[::-1] }}`, `2 x x🙂`],
  [
    "dict keys may be integers",
    `{% set d = {512: "a", 0: "b"} %}{{ d[512] }}{% for k, v in d.items() %}{{ k + 1 }}{% endfor %}`,
    `a5131`,
  ],
  ["tests with arguments", `{{ 4 is divisibleby(2) }} {{ 3 is not in [1, 2] }} {{ "a" is eq "a" }}`, `True True True`],
  ["filters on undefined", `{{ nothing|length }}{{ nothing|trim }}{{ nothing|default("d") }}`, `0d`],
  ["sequence filters on none", `{{ none|selectattr("a")|list|length }}`, `0`],
  ["map with a filter name", `{{ ["a", "b"]|map("upper")|join("-") }}`, `A-B`],
  ["rejectattr with a test", `{{ [{"a": 1}, {"a": 2}]|rejectattr("a", "equalto", 1)|list }}`, `[{'a': 2}]`],
  ["safe text escapes what joins it", `{{ "<b>"|safe + "<i>" }} {{ "<b>"|safe ~ "<i>" }}`, `<b>&lt;i&gt; <b><i>`],
  ["tojson spaces as Python", `{{ {"b": [1, 2.0], "a": "<é>"}|tojson }}`, `{"b": [1, 2.0], "a": "<é>"}`],
  [
    "tojson indent, sort_keys, separators",
    `{{ {"b": 1, "a": {}}|tojson(sort_keys=true, separators=(",", ":")) }}{{ [1]|tojson(indent=2) }}`,
    `{"a":{},"b":1}[\n  1\n]`,
  ],
  ["strftime_now", `{{ strftime_now("%Y-%m-%d %H:%M %b %A %-d") }}`, `2026-01-15 12:30 Jan Thursday 15`],
  ["newline inside a tag", `{% if false %}a{%-\n else\n -%}b{% endif %}`, `b`],
  [
    "call blocks and caller",
    `{% macro m(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) m(3) %}{{ y + 1 }}{% endcall %}`,
    `<4>`,
  ],
  ["CR LF in the source is LF", `a\r\n{% if true %}\r\nb\r\n{% endif %}\r\nc`, `a\nb\nc`],
  ["generation blocks are transparent", `{% generation %}a{% endgeneration %}`, `a`],
  [
    "a dict's methods win over its keys after a dot",
    `{{ {"items": 3}["items"] }} {{ {"items": 3}.items() }}`,
    `3 [('items', 3)]`,
  ],
];

Deno.test("ChatTemplate gives Python's text for constructs that JavaScript shows through", () => {
  for (const [construct, source, expected] of constructs) assert.equal(renderText(source), expected, construct);
});

Deno.test("ChatTemplate refuses unknown filters, tests and bad syntax at construction, naming the line", () => {
  const line = (source: string) => {
    const e = textError(() => new ChatTemplate(source, options));
    assert.equal(e.code, "text.template_syntax");
    return [e.at.line, e.message.replace(/^Cannot parse test.jinja, line \d+: /, "")];
  };
  assert.deepEqual(line("a\n{{ x | nope }}"), [2, "No filter named 'nope'"]);
  assert.deepEqual(line("{{ 'x | nope' }}\n{% if y %}\n\n{{ x | nope }}{% endif %}"), [4, "No filter named 'nope'"]);
  assert.deepEqual(line("\n\n{% set z = x is odder %}"), [3, "No test named 'odder'"]);
  assert.equal(line("a\n\n{% if %}")[0], 3);
  assert.equal(line("a\n{# c\n #}\n{{ 'abc }}")[0], 4);
  assert.equal(line("{% for %}")[0], 1);
  const why = "expected ',', found 'for': Jinja has no comprehensions";
  assert.deepEqual(line("{% for x in (y) %}[for]{% endfor %}\n{{ [x.for, x for x in y] }}"), [2, why]);
  assert.deepEqual(line("{{ f(x for x in y) }}"), [1, why]);
});

Deno.test("ChatTemplate carries the template's own words when it refuses", () => {
  const e = textError(() => renderText(`{{ raise_exception("Roles must alternate") }}`));
  assert.equal(e.code, "text.template_refused");
  assert.equal(e.message, "Roles must alternate");
});

Deno.test("ChatTemplate fails by name, never by crash, on templates that cannot be evaluated", () => {
  for (
    const source of [
      `{{ x.y }}`,
      `{{ "a" + 1 }}`,
      `{{ nothing() }}`,
      `{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}`,
      `{{ range(1000000000) }}`,
      `{% set a, b = [1] %}`,
      `{{ 1 // 0 }}`,
    ]
  ) {
    assert.equal(textError(() => renderText(source)).code, "text.template_failed", source);
  }
});

Deno.test("ChatTemplate gives a text or a TextError, whatever the source", () => {
  const scraps = fc.constantFrom(
    ...[
      "{{",
      "}}",
      "{%",
      "%}",
      "{#",
      "#}",
      "-",
      " ",
      "\n",
      "if ",
      "else",
      "endif",
      "for ",
      "in ",
      "endfor",
      "set ",
      "macro ",
      "endmacro",
      "m",
      "x",
      ".",
      "|",
      "is ",
      "not ",
      "(",
      ")",
      "[",
      "]",
      "{",
      "}",
      ",",
      ":",
      "=",
      "==",
      "+",
      "~",
      "%",
      "'",
      '"',
      "1",
      "2.5",
      "none",
      "messages",
      "loop",
      "upper",
      "tojson",
      "length",
      "defined",
      "range",
      "namespace",
      "split",
      "\\",
      "é",
      "generation",
    ],
  );
  const source = fc.oneof(fc.array(scraps, { maxLength: 25 }).map((s) => s.join("")), fc.string());
  fc.assert(
    fc.property(source, fc.boolean(), (body, inTag) => {
      try {
        const template = new ChatTemplate(inTag ? `{{ ${body} }}` : body, options);
        assert.equal(typeof template.render({ messages: [{ role: "user", content: "x" }] }), "string");
      } catch (e) {
        assert.ok(e instanceof TextError, `${e} of ${JSON.stringify(body)}`);
      }
    }),
    { numRuns: 5000 },
  );
});

Deno.test("a template prints keys in the order of the request, floats as floats and long integers whole", () => {
  const t = new ChatTemplate("{{ messages[0].x|tojson }} {{ messages[0].x }} {{ k }} {{ messages[0].x.b is float }}", {
    bosToken: "",
    eosToken: "",
  });
  const x = '{"b": 1.0, "7": 12345678901234567890, "a": {"1": 1e20, "0": -0.0}}';
  const { messages, kwargs } = parseJson(`{"messages": [{"role": "user", "x": ${x}}], "kwargs": {"k": 2.0}}`) as {
    messages: ChatMessage[];
    kwargs: Record<string, unknown>;
  };
  assert.equal(
    t.render({ messages, kwargs }),
    `{"b": 1.0, "7": 12345678901234567890, "a": {"1": 1e+20, "0": -0.0}} ` +
      `{'b': 1.0, '7': 12345678901234567890, 'a': {'1': 1e+20, '0': -0.0}} 2.0 True`,
  );
});

Deno.test("a template may walk over tools where there are none", () => {
  const t = new ChatTemplate("{% for t in tools %}x{% endfor %}{{ tools|list|length }}{{ tools is none }}", {
    bosToken: "",
    eosToken: "",
  });
  assert.equal(t.render({ messages: [] }), "0True");
});
