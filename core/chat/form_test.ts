/** Grammars of calls against the parsers of calls: what one writes, the other reads. */
import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { needingShared, repoDir, sharedDir } from "../../tests/shared.ts";
import { TextError } from "../errors.ts";
import type { Expr, Rules } from "../sampling/grammar/expr.ts";
import { Grammar, GrammarMatcher, VocabTrie } from "../sampling/grammar/mod.ts";
import { ChatFormat } from "./format.ts";
import { createOutputParser } from "./reasoning.ts";
import { familyOf } from "./tool_calls/families.ts";
import { callRules } from "./tool_calls/form.ts";

const tools = [
  {
    type: "function",
    function: {
      name: "weather",
      parameters: {
        type: "object",
        properties: {
          city: { type: "string" },
          days: { type: "integer", minimum: 1, maximum: 14 },
          unit: { type: "string", enum: ["C", "F"] },
          opt: {
            type: "object",
            properties: { x: { $ref: "#/$defs/list" } },
            additionalProperties: { type: "string" },
          },
          any: {},
          yes: true,
        },
        required: ["city", "days"],
        $defs: { list: { type: "array", items: { type: ["number", "boolean", "null"] } } },
      },
    },
  },
  { type: "function", function: { name: "add", parameters: { type: "object", properties: { a: {}, b: {} } } } },
  { type: "function", function: { name: "now", parameters: { type: "object", properties: {} } } },
];

/** The least of a template that tells a family and how it writes. */
const templates = [
  "<tool_call>",
  "<tool_call> <function= <parameter=",
  "<seed:tool_call>",
  "<｜tool▁calls▁begin｜>",
  "<｜tool▁calls▁begin｜> ```json",
  "dsml_token ｜DSML｜ function_calls",
  "dsml_token ｜DSML｜ tool_calls",
  "<tool_call> <arg_key>",
  "<tool_call> <arg_key> </arg_key>\\n",
  "<|tool_calls_section_begin|> <|tool_call_begin|>",
  "<minimax:tool_call> <invoke name=",
  "<tool_calls> <think>",
  "[TOOL_CALLS]",
  "[TOOL_CALLS] [ARGS]",
  "[TOOL_CALLS] [ARGS] [CALL_ID]",
  '<|start_header_id|> "parameters"',
  "<|channel|> <|message|>",
  "<|START_ACTION|>",
  "<|START_TEXT|> <|START_ACTION|>",
  "Action: ```json",
  "<|tools_prefix|>",
  "<TOOLCALL>",
  "functools[",
  "<function=",
  ">>>all >>>${recipient}",
  "<tool_calls>[",
  "<|role_sep|> <|message_sep|>",
  "<|role_sep|> <|message_sep|> <|function_call|>",
  "<|tool_list_start|>",
  "]<]minimax[>[ <tool_call> <invoke name=",
  "<|open|> <|close|> <|end_of_msg|>",
];

/** A text of a grammar. */
function write({ root, rules }: Rules, random: () => number): string {
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)];
  const go = (e: Expr, depth: number): string => {
    switch (e.type) {
      case "text":
        return e.text;
      case "class": {
        const [lo, hi] = random() < 0.7 ? e.ranges[0] : pick(e.ranges);
        const c = lo + Math.floor(random() * (Math.min(hi, lo + 400) - lo + 1));
        return String.fromCodePoint(c >= 0xd800 && c < 0xe000 ? 0xe000 : c);
      }
      case "seq":
        return e.items.map((item) => go(item, depth)).join("");
      case "alt":
        // Deep down the last alternative, which is never one that goes on.
        return go(depth > 12 ? e.items[e.items.length - 1] : pick(e.items), depth);
      case "repeat": {
        const n = depth > 12 ? e.min : Math.min(e.max, e.min + Math.floor(random() * 3));
        return Array.from({ length: n }, () => go(e.item, depth)).join("");
      }
      case "rule":
        return go(rules.get(e.name)!, depth + 1);
      case "without": {
        const scraps = [
          e.marker.slice(0, -1),
          e.marker.slice(0, 2),
          e.marker.slice(-2),
          "a",
          "\n",
          '"',
          "\\",
          "é",
          "<",
        ];
        const text = Array.from({ length: Math.floor(random() * 6) }, () => pick(scraps)).join("");
        return text.includes(e.marker) ? "" : text;
      }
    }
  };
  return go(rules.get(root)!, 0);
}

const callForm = (template: string) => familyOf(template).form?.(template);
const noVocab = new VocabTrie(1, () => undefined);

function takes(grammar: Grammar, text: string): boolean {
  const matcher = new GrammarMatcher(grammar, noVocab);
  return matcher.accept(new TextEncoder().encode(text)) && matcher.done;
}

function parsed(
  template: string,
  text: string,
  own: unknown[] = tools,
): { calls: { name: string; arguments: string }[]; content: string } {
  const parser = createOutputParser({ template, reasoningFormat: "auto", tools: own, startsInReasoning: false });
  const calls: { name: string; arguments: string }[] = [];
  let content = "";
  for (const d of [...parser.push(text), ...parser.finish()]) {
    assert.ok(!d.malformed, text);
    content += d.content ?? "";
    if (d.tool_call?.name !== undefined) calls.push({ name: d.tool_call.name, arguments: "" });
    if (d.tool_call) calls[d.tool_call.index].arguments += d.tool_call.arguments;
  }
  return { calls, content };
}

for (const template of templates) {
  Deno.test(`callRules() writes what the parser reads: ${template}`, () => {
    const form = callForm(template)!;
    fc.assert(
      fc.property(
        fc.boolean(),
        fc.array(fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })),
        (many, seeds) => {
          const rules = callRules(form, tools, many);
          let n = 0;
          const text = write(rules, () => seeds.length === 0 ? 0.5 : (seeds[n++ % seeds.length] + n * 0.37) % 1);
          assert.ok(takes(new Grammar(rules), text), text);
          const { calls, content } = parsed(template, text);
          assert.equal(content, "", text);
          assert.ok(many ? calls.length >= 1 : calls.length === 1, text);
          for (const call of calls) {
            const tool = tools.find((t) => t.function.name === call.name)!.function;
            const args = JSON.parse(call.arguments);
            const { properties = {}, required = [] } = tool.parameters as { properties?: object; required?: string[] };
            assert.ok(Object.keys(args).every((key) => Object.hasOwn(properties, key)), text);
            assert.ok(required.every((key) => Object.hasOwn(args, key)), text);
            if (tool.name !== "weather") continue;
            assert.equal(typeof args.city, "string", text);
            assert.ok(Number.isInteger(args.days) && args.days >= 1 && args.days <= 14, text);
            assert.ok(["C", "F", undefined].includes(args.unit), text);
            for (const x of args.opt?.x ?? []) assert.ok(x === null || ["number", "boolean"].includes(typeof x), text);
          }
        },
      ),
      { numRuns: 60 },
    );
  });
}

const withParameters = (parameters: unknown, name = "f") => [{ type: "function", function: { name, parameters } }];
const M3 = "]<]minimax[>[ <tool_call> <invoke name=";

/** A grammar's texts as its family's parser reads them: the arguments of the first call. */
function argumentsOf(template: string, own: unknown[], n: number): Record<string, unknown>[] {
  const rules = callRules(callForm(template)!, own, false), grammar = new Grammar(rules);
  return Array.from({ length: n }, (_, i) => {
    let seed = i + 1;
    const text = write(rules, () => (seed = seed * 16807 % 2147483647) / 2147483647);
    assert.ok(takes(grammar, text), text);
    const { calls, content } = parsed(template, text, own);
    assert.deepEqual([content, calls.length], ["", 1], text);
    return JSON.parse(calls[0].arguments);
  });
}

Deno.test("callRules(): arguments that the schema does not name may be given, where it does not exclude them", () => {
  const named = { properties: { n: { type: "integer" } }, required: ["n"] };
  for (const template of templates) {
    const any = [{ type: "object" }, { additionalProperties: true }, { $ref: "#/$defs/a", $defs: { a: { ...named } } }];
    for (const parameters of [...any, { ...named, additionalProperties: {} }]) {
      const own = withParameters(parameters);
      if (template === M3) {
        assert.throws(
          () => callRules(callForm(template)!, own, false),
          (e) => e instanceof TextError && e.code === "text.schema" && /"f".*list them in properties/.test(e.message),
        );
        continue;
      }
      const all = argumentsOf(template, own, 30);
      const others = all.filter((args) => Object.keys(args).some((key) => key !== "n"));
      // Where arguments are an object, the reference is followed.
      const followed = "$ref" in parameters && all.every((args) => Number.isInteger(args.n));
      assert.equal(others.length > 0, !followed, `${template} ${JSON.stringify(parameters)}`);
      if ("required" in parameters) assert.ok(all.every((args) => Number.isInteger(args.n)));
    }
    const more = { ...named, required: ["n", "more"] };
    for (const args of argumentsOf(template, withParameters(more), 10)) {
      assert.deepEqual(Object.keys(args), ["n", "more"], template);
    }
    for (const none of [undefined, { type: "object", properties: {} }, { additionalProperties: false }]) {
      assert.deepEqual(argumentsOf(template, withParameters(none), 3), [{}, {}, {}], template);
    }
  }
});

Deno.test("callRules() lists what a family does not keep of a tool's parameters", () => {
  const parameters = {
    type: "object",
    properties: { "a/b": { type: "string", pattern: "^x", maxLength: 3 }, c: { type: "string", enum: ["x"] } },
    additionalProperties: { type: "integer" },
    minProperties: 1,
  };
  const ignored = (template: string) => callRules(callForm(template)!, withParameters(parameters), false).ignored;
  assert.deepEqual(ignored("<tool_call>"), ["f: #/minProperties", "f: #/properties/a~1b/maxLength"]);
  assert.deepEqual(ignored("<tool_call> <arg_key>")?.toSorted(), [
    "f: #/additionalProperties",
    "f: #/minProperties",
    "f: #/properties/a~1b/maxLength",
  ]);
});

/** The call of a tool `f` with one argument `a`, as Qwen's XML has it. */
const xmlCall = (value: string) =>
  `<tool_call>\n<function=f>\n<parameter=a>\n${value}\n</parameter>\n</function>\n</tool_call>`;
const XML = "<tool_call> <function= <parameter=";
const xmlGrammar = (a: unknown, more: object = {}) => {
  const parameters = { properties: { a }, required: ["a"], additionalProperties: false, ...more };
  const rules = callRules(callForm(XML)!, withParameters(parameters), false);
  return { grammar: new Grammar(rules), ignored: rules.ignored };
};

Deno.test("callRules() keeps patterns and formats of strings that are written as they are", () => {
  for (
    const [schema, good, bad, ignored = []] of [
      [{ type: "string", format: "ipv4" }, ["1.2.3.4"], ["1.2.3", "x"]],
      [{ type: "string", pattern: "^[a-z]+$" }, ["abc"], ["ABC", ""]],
      [{ type: "string", pattern: "^a.*$" }, ['a"b'], ["b", "a<b"]],
      [{ type: "string", pattern: "(?=x)", format: "date" }, ["2024-02-29"], ["2023-02-29"], ["pattern"]],
      [{ type: "string", pattern: "(?=x)" }, ["anything < b"], [], ["pattern"]],
      // What needs the character that the end of a value begins with is free text.
      [{ type: "string", pattern: "^<b>$" }, ["<b>", "x"], [], ["pattern"]],
      [{ type: "string", format: "email", maxLength: 9 }, ["a@b.co"], ["a"], ["maxLength"]],
      [{ type: "string", minLength: 2 }, ["x"], [], ["minLength"]],
      [{ allOf: [{ type: "string", pattern: "^x$" }] }, ["y"], [], ["pattern"]],
      [{ type: "string", pattern: "^x$", allOf: [{ type: "string" }] }, ["y"], [], ["pattern"]],
    ] as [object, string[], string[], string[]?][]
  ) {
    const { grammar, ignored: told } = xmlGrammar(schema);
    for (const value of good) assert.ok(takes(grammar, xmlCall(value)), value);
    for (const value of bad) assert.ok(!takes(grammar, xmlCall(value)), value);
    assert.deepEqual(told, ignored.map((keyword) => `f: #/properties/a/${keyword}`));
  }
});

Deno.test("callRules() writes as text what can be a string alone, whatever says so", () => {
  const $defs = { S: { type: "string" }, T: { enum: ["1", "two"] } };
  for (
    const [schema, good, bad] of [
      [{ $ref: "#/$defs/S" }, [["12", "12"], ['"12"', '"12"']], []],
      [{ $ref: "#/$defs/T" }, [["1", "1"], ["two", "two"]], ["2", '"1"']],
      [{ enum: ["1", "2"] }, [["1", "1"]], ['"1"', "3"]],
      [{ const: "3" }, [["3", "3"]], ['"3"']],
      [{ allOf: [{ type: "string" }] }, [["12", "12"]], []],
      [{ type: ["string"] }, [["12", "12"]], []],
      // Not a string alone: as JSON.
      [{ anyOf: [{ type: "string" }, { type: "null" }] }, [['"12"', "12"], ["null", null]], ["12"]],
      [{ enum: ["1", 2] }, [['"1"', "1"], ["2", 2]], ["1"]],
    ] as [object, [text: string, value: unknown][], string[]][]
  ) {
    const { grammar } = xmlGrammar(schema, { $defs });
    const own = withParameters({ properties: { a: schema }, $defs });
    for (const [text, a] of good) {
      assert.ok(takes(grammar, xmlCall(text)), text);
      assert.deepEqual(JSON.parse(parsed(XML, xmlCall(text), own).calls[0].arguments), { a }, JSON.stringify(schema));
    }
    for (const text of bad) assert.ok(!takes(grammar, xmlCall(text)), text);
  }
});

Deno.test("callRules(): references lead to the tool's parameters, in arguments that are written one by one too", () => {
  const tree = {
    type: "object",
    properties: { x: { type: "array", items: { $ref: "#" }, maxItems: 1 }, "\ud800": { type: "integer" } },
    additionalProperties: false,
  };
  const grammar = new Grammar(callRules(callForm("<tool_call> <arg_key>")!, withParameters(tree), false));
  const call = (x: string) => `<tool_call>f<arg_key>x</arg_key><arg_value>${x}</arg_value></tool_call>`;
  assert.ok(takes(grammar, call('[{"x": [{}]}]')));
  assert.ok(!takes(grammar, call('[{"y": 1}]')));
  assert.ok(!takes(grammar, call("[[]]")));
});

Deno.test("callRules(): the line may end behind the last of several calls", () => {
  for (const template of templates) {
    const form = callForm(template)!;
    if (form.between === undefined) continue;
    const rules = callRules(form, withParameters(undefined), true);
    const text = write(rules, () => 0.99), grammar = new Grammar(rules);
    assert.equal(parsed(template, text, withParameters(undefined)).content, "", text);
    if (form.end === undefined) assert.ok(takes(grammar, `${text.trimEnd()}\n`), template);
    assert.ok(takes(grammar, text), template);
  }
});

Deno.test("callRules() writes keys that are no words, and refuses those that a family's markup cannot carry", () => {
  const own = (key: string) => withParameters({ properties: { [key]: { type: "integer" } }, required: [key] });
  for (const template of templates) {
    for (const key of ["max-results", "größe", "a.b", "R&amp;D"]) {
      for (const args of argumentsOf(template, own(key), 2)) assert.deepEqual(Object.keys(args), [key], template);
    }
    for (const key of ['a"b', "a<b", " a", "a>b", "a/b", "a b", "a=b", "]<]minimax[>["]) {
      try {
        for (const args of argumentsOf(template, own(key), 2)) assert.deepEqual(Object.keys(args), [key], template);
      } catch (e) {
        assert.ok(
          e instanceof TextError && e.code === "text.schema" && e.message.includes(JSON.stringify(key)),
          `${e}`,
        );
        assert.ok(template !== "<tool_call>");
      }
    }
  }
  assert.throws(() => argumentsOf(M3, own("a/b"), 1), TextError);
  assert.throws(() => argumentsOf("<|tool_list_start|>", own("a b"), 1), TextError);
});

Deno.test("callRules() refuses a property that is no schema by its place", () => {
  for (const template of ["<tool_call>", "<tool_call> <arg_key>"]) {
    for (const x of [false, "text"]) {
      assert.throws(
        () => callRules(callForm(template)!, withParameters({ properties: { x } }), false),
        (e) => e instanceof TextError && e.code === "text.schema" && e.message.includes("#/properties/x"),
      );
    }
  }
});

/** The grammar takes what the template writes of a past call: the model knows no other way. */
function assertTakesOwn(name: string, source: string): void {
  const format = new ChatFormat(source, { bosToken: "<s>", eosToken: "</s>", name });
  const grammar = new Grammar(callRules(callForm(source)!, tools, true));
  const call = (args: object, i: number) => ({
    id: `abc12345${i}`,
    type: "function",
    function: { name: "weather", arguments: args },
  });
  const first = { city: "Zürich\nab", days: 3, unit: "C" }, second = { city: "b", days: 14 };
  for (const args of [[first], [first, second]]) {
    const prompt = format.renderText({
      messages: [{ role: "user", content: "Hi" }, { role: "assistant", content: "", tool_calls: args.map(call) }],
      tools,
      addGenerationPrompt: false,
    });
    // The call is the last thing in the prompt but for markers that end the turn.
    const tags = familyOf(source).reasoning;
    const starts = Array.from(prompt, (_, i) => i).filter((i) => prompt.startsWith("weather", i)).slice(-args.length);
    const found = Array.from({ length: starts[0] + 1 }, (_, i) => starts[0] - i).some((from) => {
      if (tags && prompt.slice(from, starts[0]).includes(tags.end)) return false;
      const matcher = new GrammarMatcher(grammar, noVocab);
      let done = from; // complete up to here
      for (let i = from; i < prompt.length && matcher.accept(new TextEncoder().encode(prompt[i])); i++) {
        if (matcher.done) done = i;
      }
      return done > starts[starts.length - 1];
    });
    assert.ok(found, `${name}: ${prompt.slice(-400)}`);
  }
}

Deno.test("callRules() takes what chosen templates write", () => {
  const golden = JSON.parse(Deno.readTextFileSync(repoDir + "tests/goldens/chat/templates.json")).templates;
  for (
    const name of ["Qwen-Qwen3-0.6B", "Qwen3-Coder", "deepseek-ai-DeepSeek-V3.1", "GLM-4.6", "ByteDance-Seed-OSS"]
  ) assertTakesOwn(name, golden[name].template);
});

Deno.test({
  ...needingShared("callRules() takes what the templates of the shared set write"),
  fn() {
    for (
      const name of [
        "Apertus-8B-Instruct",
        "Apriel-1.6-15b-Thinker-fixed",
        "Bielik-11B-v3.0-Instruct",
        "GLM-4.7-Flash",
        "GLM-5.2",
        "Kimi-K2-Instruct",
        "Kimi-K2-Thinking",
        "MiMo-VL",
        "Mistral-Small-3.2-24B-Instruct-2506",
        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
        "Qwen-QwQ-32B",
        "Qwen-Qwen2.5-7B-Instruct",
        "Qwen3.5-4B",
        "Reka-Edge",
        "StepFun3.5-Flash",
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
        "deepseek-ai-DeepSeek-V3.2",
        "deepseek-ai-DeepSeek-V4",
        "fireworks-ai-llama-3-firefunction-v2",
        "llama-cpp-deepseek-r1",
        "meetkai-functionary-medium-v3.1",
        "meetkai-functionary-medium-v3.2",
        "mistralai-Ministral-3-14B-Reasoning-2512",
        "mistralai-Mistral-Nemo-Instruct-2407",
        "unsloth-Apriel-1.5",
        "unsloth-mistral-Devstral-Small-2507",
      ]
    ) assertTakesOwn(name, Deno.readTextFileSync(`${sharedDir}templates/${name}.jinja`));
  },
});
