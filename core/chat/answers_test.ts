/** Answers whose markup stands where it should not, is cut, or does not say what a value is: in every split the same reading. */
import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { repoDir } from "../../tests/shared.ts";
import { ArgumentType } from "./tool_calls/argument_type.ts";
import { createOutputParser, type OutputParserOptions } from "./reasoning.ts";

const golden = JSON.parse(Deno.readTextFileSync(repoDir + "tests/goldens/chat/answers.json"));
const QWEN = "<tool_call> <function= <parameter=";
const coder: string = JSON.parse(Deno.readTextFileSync(repoDir + "tests/goldens/chat/templates.json"))
  .templates["Qwen3-Coder"].template;

interface Read {
  content: string;
  reasoning_content: string;
  tool_calls: { name: string; arguments: string }[];
  malformed: boolean;
}

type Options = Partial<OutputParserOptions>;

function read(chunks: readonly string[], options: Options): Read {
  const parser = createOutputParser({ template: QWEN, reasoningFormat: "auto", startsInReasoning: false, ...options });
  const out: Read = { content: "", reasoning_content: "", tool_calls: [], malformed: false };
  for (const d of [...chunks.flatMap((c) => parser.push(c)), ...parser.finish()]) {
    out.content += d.content ?? "";
    out.reasoning_content += d.reasoning_content ?? "";
    out.malformed ||= d.malformed ?? false;
    if (d.tool_call?.name !== undefined) out.tool_calls.push({ name: d.tool_call.name, arguments: "" });
    if (d.tool_call) out.tool_calls[d.tool_call.index].arguments += d.tool_call.arguments;
  }
  return out;
}

/** The reading of a text, after checking that whole, streamed, by character and by any pieces it is the same. */
function readAll(text: string, options: Options): Read {
  const whole = read([text], options);
  assert.deepEqual(read([...text], options), whole, text);
  if (!whole.malformed) assert.deepEqual(read([text], { ...options, streaming: false }), whole, text);
  fc.assert(
    fc.property(fc.array(fc.nat(text.length), { maxLength: 8 }), (cuts) => {
      const at = [0, ...cuts.toSorted((a, b) => a - b), text.length];
      assert.deepEqual(read(at.slice(1).map((end, i) => text.slice(at[i], end)), options), whole);
    }),
    { numRuns: 30 },
  );
  return whole;
}

const full = (r: Partial<Read>): Read => ({
  content: "",
  reasoning_content: "",
  tool_calls: [],
  malformed: false,
  ...r,
});

Deno.test("reasoning that mentions or holds a call is read as people mean it", () => {
  const { cases, tools, startsInReasoning } = golden.tags_in_reasoning;
  assert.equal(cases.length, 5);
  for (const template of [QWEN, coder]) {
    for (const { text, right } of cases) {
      assert.deepEqual(readAll(text, { template, tools, startsInReasoning }), full(right), text);
      // The model may open the block itself, and name tools that are not known.
      const opened = `<think>\n${text}`;
      assert.deepEqual(readAll(opened, { template, tools }), full(right), opened);
      assert.deepEqual(readAll(text, { template, tools: true, startsInReasoning }), full(right), text);
    }
  }
});

Deno.test("arguments in elements are typed by the schema, whatever it is made of", () => {
  const { cases, tools } = golden.typed_arguments;
  assert.equal(cases.length, 8);
  for (const template of [QWEN, coder]) {
    for (const { text, right } of cases) {
      assert.deepEqual(readAll(text, { template, tools }).tool_calls, [{ name: "f", arguments: right }], text);
    }
  }
});

const typed = [{
  function: {
    name: "f",
    parameters: {
      allOf: [{ $ref: "#/$defs/rest" }],
      additionalProperties: { type: "string" },
      properties: {
        text: { anyOf: [{ type: "string" }, { type: "null" }] },
        either: { type: ["integer", "string"] },
        few: { enum: ["1", 2, null] },
        flag: { type: "boolean" },
        both: { allOf: [{ type: ["string", "number"] }, { type: ["number", "null"] }] },
        open: { oneOf: [{ type: "string" }, {}] },
        loop: { $ref: "#/properties/loop" },
        list: { type: "array", items: { type: "string" } },
        nothing: { nullable: true, type: "string" },
        one: { const: { a: [1] } },
        never: { allOf: [{ type: "string" }, { type: "null" }] },
        shared: { allOf: [{ enum: ["1", 2] }, { enum: ["1", 3] }] },
        half: { allOf: [{ enum: ["1", 2.5, 3] }, { type: ["string", "integer"] }] },
        empty: { enum: [] },
        deep: { anyOf: [{ const: { a: [1] } }, { const: null }, { type: "string" }] },
      },
      $defs: { rest: { properties: { far: { $ref: "#/$defs/a~1b" } } }, "a/b": { type: "string" } },
    },
  },
}];
/** `[argument, text, JSON]`. */
const values: [string, string, string][] = [
  ["text", "12", '"12"'],
  ["text", "null", "null"],
  ["text", '"quoted"', '"quoted"'],
  ["text", "{}", '"{}"'],
  ["either", "12", "12"],
  ["either", "1.5", '"1.5"'],
  ["either", "True", '"True"'],
  ["few", "1", '"1"'],
  ["few", "2", "2"],
  ["few", "3", "3"],
  ["flag", "True", "true"],
  ["flag", "maybe", '"maybe"'],
  ["both", "1.5", "1.5"],
  ["open", "12", "12"],
  ["loop", "12", "12"],
  ["list", "['a']", '["a"]'],
  ["list", "a", '"a"'],
  ["nothing", "null", "null"],
  ["nothing", "7", '"7"'],
  ["one", '{"a": [1]}', '{"a": [1]}'],
  ["never", "12", "12"],
  ["shared", "1", '"1"'],
  ["half", "1", '"1"'],
  ["half", "3", "3"],
  ["half", "2.5", "2.5"],
  ["empty", "12", "12"],
  ["deep", '{"a": [1]}', '{"a": [1]}'],
  ["deep", '{"a": [2]}', JSON.stringify('{"a": [2]}')],
  ["deep", '{"a": [1], "b": 1}', JSON.stringify('{"a": [1], "b": 1}')],
  ["deep", '{"b": [1]}', JSON.stringify('{"b": [1]}')],
  ["deep", "[1]", '"[1]"'],
  ["deep", "null", "null"],
  ["far", "12", '"12"'],
  ["other", "12", '"12"'],
];
const N = "]<]minimax[>[";
/** One call with one argument, in each family's elements. */
const elements: Record<string, [template: string, call: (key: string, value: string) => string]> = {
  qwen: [QWEN, (k, v) => `<tool_call>\n<function=f>\n<parameter=${k}>\n${v}\n</parameter>\n</function>\n</tool_call>`],
  seed: [
    "<seed:tool_call>",
    (k, v) => `<seed:tool_call>\n<function=f>\n<parameter=${k}>${v}</parameter>\n</function>\n</seed:tool_call>`,
  ],
  glm: [
    "<tool_call> <arg_key>",
    (k, v) => `<tool_call>f\n<arg_key>${k}</arg_key>\n<arg_value>${v}</arg_value>\n</tool_call>`,
  ],
  m2: [
    "<minimax:tool_call> <invoke name=",
    (k, v) =>
      `<minimax:tool_call>\n<invoke name="f">\n<parameter name="${k}">${v}</parameter>\n</invoke>\n</minimax:tool_call>`,
  ],
  m3: [
    "]<]minimax[>[ <tool_call> <invoke name=",
    (k, v) => `${N}<tool_call>\n${N}<invoke name="f">\n${N}<${k}>${v}${N}</${k}>\n${N}</invoke>\n${N}</tool_call>`,
  ],
  dsml: [
    "dsml_token ｜DSML｜ tool_calls",
    (k, v) =>
      `<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="${k}" string="false">${v}` +
      `</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>`,
  ],
  k3: [
    "<|open|> <|close|> <|end_of_msg|>",
    (k, v) =>
      `<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="${k}" type="number"<|sep|>${v}` +
      `<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>`,
  ],
};

Deno.test("a string that may be null is shown as it comes, and is what its text says", () => {
  const [template, call] = elements.qwen;
  const scraps = fc.array(fc.constantFrom(..."null|None|nul|12|true|\"|'|x|\n| |{}|[1]|<|ä".split("|")), {
    maxLength: 4,
  });
  const type = new ArgumentType({ anyOf: [{ type: "string" }, { type: "null" }] });
  fc.assert(
    fc.property(scraps.map((s) => s.join("")), (text) => {
      const right = [{ name: "f", arguments: `{"text": ${type.json(text)}}` }];
      assert.deepEqual(read([call("text", text)], { template, tools: typed }).tool_calls, right);
      assert.deepEqual(read([...call("text", text)], { template, tools: typed }).tool_calls, right);
    }),
    { numRuns: 500 },
  );
  const parser = createOutputParser({ template, reasoningFormat: "auto", startsInReasoning: false, tools: typed });
  parser.push(call("text", "").replace(/\n<\/parameter>.*/s, ""));
  assert.deepEqual(parser.push("no end "), [{ tool_call: { index: 0, arguments: '"text": "no end ' } }]);
  assert.deepEqual(parser.push("yet"), [{ tool_call: { index: 0, arguments: "yet" } }]);
});

Deno.test("every family with arguments in elements types them the same", () => {
  for (const [name, [template, call]] of Object.entries(elements)) {
    for (const [key, text, json] of values) {
      const { tool_calls, content, malformed } = read([call(key, text)], { template, tools: typed });
      const right = [{ name: "f", arguments: `{"${key}": ${json}}` }];
      assert.deepEqual([tool_calls, content, malformed], [right, "", false], `${name} ${key}`);
    }
  }
});

Deno.test("elements within elements are typed by the schema within the schema", () => {
  const parameters = {
    properties: {
      o: { type: "object", properties: { s: { type: "string" }, l: { type: "array", items: { enum: ["1"] } } } },
    },
  };
  const [template, call] = elements.m3;
  const value = `${N}<s>12${N}</s>${N}<n>12${N}</n>${N}<l>${N}<item>1${N}</item>${N}</l>`;
  const { tool_calls } = read([call("o", value)], { template, tools: [{ function: { name: "f", parameters } }] });
  assert.deepEqual(JSON.parse(tool_calls[0].arguments), { o: { s: "12", n: 12, l: ["1"] } });
});

const tools = [{ function: { name: "read", parameters: { properties: { p: { type: "string" } } } } }];
const CALL = "<tool_call>\n<function=read>\n<parameter=p>\n/tmp/a\n</parameter>\n</function>\n</tool_call>";
const called = [{ name: "read", arguments: '{"p": "/tmp/a"}' }];

Deno.test("reasoning goes on behind what only looks like a call, however far the likeness goes", () => {
  for (
    const mention of [
      "<tool_call>",
      "<tool_call>\n<function=",
      "<tool_call>\n<function=read>",
      "<tool_call><function=read> and more</function>",
      "<function=write><parameter=p>x</parameter></function>",
      "<tool_call>\n<function=read>\n<parameter=p>\nno end",
      "<tool_call>\n<function=read>\n<parameter=p>\nx</parameter> oops",
      `<tool_call>${CALL.replace("read", "write")}`,
    ]
  ) {
    const thought = `First ${mention} then.\n\nMore`;
    const answer = readAll(`${thought}\n</think>\n\nHi.`, { tools, startsInReasoning: true });
    assert.deepEqual(answer, full({ reasoning_content: thought, content: "Hi." }), mention);
    const both = readAll(`${thought}\n</think>\n\n${CALL}`, { tools, startsInReasoning: true });
    // An argument that never ends takes what follows for its text, up to the end that the call behind has.
    if (mention.endsWith("no end")) assert.equal(both.tool_calls.length, 1);
    else assert.deepEqual(both, full({ reasoning_content: thought, tool_calls: called }), mention);
  }
});

Deno.test("calls within reasoning: several, one that is not whole, and text before the tag that was left open", () => {
  const o = { tools, startsInReasoning: true };
  const twice = readAll(`a ${CALL}\n${CALL}</think>b`, o);
  assert.deepEqual(twice, full({ reasoning_content: "a", content: "b", tool_calls: [...called, ...called] }));
  const late = readAll(`a ${CALL} b </think> c </think> d`, o);
  assert.deepEqual(late, full({ reasoning_content: "a", content: "bc </think> d", tool_calls: called }));
  const cut = readAll(`a ${CALL.slice(0, -40)}`, o);
  assert.deepEqual(cut, full({ reasoning_content: `a ${CALL.slice(0, -40)}` }));
  const kept = readAll(`a ${CALL}\n</think>\n\nb`, { ...o, reasoningFormat: "none" });
  assert.deepEqual(kept, full({ content: "a </think>\n\nb", tool_calls: called }));
  const single = readAll(`a ${CALL}${CALL}`, { ...o, parallelToolCalls: false });
  assert.deepEqual(single, full({ reasoning_content: "a", content: CALL, tool_calls: called }));
  const free = readAll(`a ${CALL}\n</think>\n\nb`, { startsInReasoning: true });
  assert.deepEqual(free, full({ reasoning_content: `a ${CALL}`, content: "b" }));
});

Deno.test("a closing tag that the end of the answer cuts is nobody's text", () => {
  for (const [family, [template, call]] of Object.entries(elements)) {
    const text = call("far", "x y"), end = text.indexOf("x y") + 3;
    for (let cut = end; cut <= text.length; cut++) {
      const { content, tool_calls: [c, ...more] } = read([text.slice(0, cut)], { template, tools: typed });
      assert.deepEqual([content, more], ["", []], family);
      // One character of a tag may be text. A value that the markup calls JSON comes whole.
      assert.ok(
        ["{", '{"far": "x y', '{"far": "x y"', '{"far": "x y"}'].includes(c.arguments.replace(/(?:\\n|[<\]])$/, "")),
      );
    }
  }
  const o = { tools, startsInReasoning: true };
  for (let n = 2; n <= "</think>".length; n++) {
    assert.deepEqual(readAll(`Hm.\n${"</think>".slice(0, n)}`, o), full({ reasoning_content: "Hm." }));
    const behind = readAll(`Hm. ${CALL}\n${"</think>".slice(0, n)}`, o);
    assert.deepEqual(behind, full({ reasoning_content: "Hm.", tool_calls: called }));
  }
  assert.equal(readAll("1 <", o).reasoning_content, "1 <");
  const odd = '<TOOLCALL>[{"name": "read", "arguments": {"p": "/tmp/a"}} oops]</TOOLCALL>';
  const broken = readAll(odd, { template: "<TOOLCALL>", tools });
  assert.deepEqual(broken, full({ tool_calls: called, content: " oops]</TOOLCALL>", malformed: true }));
  assert.equal(readAll("Hm.</th", { ...o, reasoningFormat: "none" }).content, "Hm.</th");
  for (
    const [template, text] of [
      ["<tool_call>", '<tool_call>\n{"name": "read", "arguments": {"p": "/tmp/a"}}\n</tool_'],
      [
        "<｜tool▁calls▁begin｜>",
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>{"p": "/tmp/a"}<｜tool▁call▁end｜><｜tool▁ca',
      ],
      [
        "<|tool_calls_section_begin|> <|tool_call_begin|>",
        '<|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{"p": "/tmp/a"}<|tool_call_end|><|tool_ca',
      ],
      ["<tool_calls> <think>", '<tool_calls>\n{"name": "read", "arguments": {"p": "/tmp/a"}}\n</tool_c'],
      ["<TOOLCALL>", '<TOOLCALL>[{"name": "read", "arguments": {"p": "/tmp/a"}}</TOOL'],
      ["<TOOLCALL>", '<TOOLCALL>[{"name": "read", "arguments": {"p": "/tmp/a"}}]</TOOL'],
      ["[TOOL_CALLS]", '[TOOL_CALLS][{"name": "read", "arguments": {"p": "/tmp/a"}}'],
      ["<function=", '<function=read>{"p": "/tmp/a"}</func'],
    ] as const
  ) {
    assert.deepEqual(readAll(text, { template, tools }), full({ tool_calls: called }), text);
  }
});
