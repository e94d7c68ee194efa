/** Answers in a form: grammars, JSON schemas and response_format, against a model that would say something else. */
import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import type { AnswerConstraint } from "../../serve/answer_constraint.ts";
import { constraintOf, lazyConstraint } from "../../serve/constraint.ts";
import { forcedCall, possibleCall } from "../../serve/forced_call.ts";
import { ReasoningBudget } from "../../serve/reasoning_budget.ts";
import type { Conversation } from "../../serve/schemas.ts";
import { fakeModel, IM_END, N_VOCAB, TOOL_CALLS } from "./fake.ts";
import { withServer } from "./harness.ts";

Deno.test("a grammar decides what can be said", async () => {
  await withServer({}, async ({ post, events }) => {
    const ask = async (prompt: string, grammar: string, more: object = {}) =>
      (await post("/completion", { prompt, grammar, temperature: 0, n_predict: 60, ...more })).body;
    assert.equal((await ask("[[[maybe]]]", 'root ::= "yes" | "no"')).content.match(/^(yes|no)$/)?.length, 2);
    const wanted = await ask("[[[no]]]", 'root ::= "yes" | "no"');
    assert.deepEqual([wanted.content, wanted.stop_type, wanted.tokens_predicted], ["no", "eos", 2]);
    const date = await ask("babble", 'root ::= [0-9]{4} "-" [0-9]{2}', { temperature: 1, seed: 3 });
    assert.match(date.content, /^\d{4}-\d{2}$/);
    const streamed = await events("/completion", {
      prompt: "babble",
      grammar: 'root ::= "ab!cd"',
      stream: true,
      stop: ["ab:"],
    });
    assert.equal(streamed.map((e) => e.content).join(""), "ab!cd");
    const cut = await ask("[[[aaaaaaaa]]]", "root ::= [a]*", { n_predict: 3 });
    assert.deepEqual([cut.content, cut.stop_type], ["aaa", "limit"]);
    const seven = { prompt: "[[[7]]]", json_schema: { type: "integer", minimum: 1, maximum: 9 }, temperature: 0 };
    assert.equal((await post("/completion", seven)).body.content, "7");
  });
});

Deno.test("a lazy grammar is in force from its trigger on", async () => {
  await withServer({}, async ({ post }) => {
    const ask = async (script: string, grammar_triggers: unknown, more: object = {}) =>
      (await post("/completion", {
        prompt: `[[[${script}]]]`,
        grammar: 'root ::= "<b>" ("yes" | "no") "</b>"',
        grammar_lazy: true,
        grammar_triggers,
        temperature: 0,
        n_predict: 40,
        ...more,
      })).body;
    const word = [{ type: 1, value: "<b>" }];
    assert.match((await ask("Well, <b>maybe", word)).content, /^Well, <b>(yes|no)<\/b>$/);
    assert.equal((await ask("Well, <i>maybe", word)).content, "Well, <i>maybe");
    assert.match(
      (await ask("a Alice b", [{ type: 0, value: "Alice" }], { grammar: 'root ::= "Alice" [0-9]{2}' })).content,
      /^a Alice\d\d$/,
    );
    const byId = await ask("a Alice b", [{ type: 0, token: 262 }], { grammar: 'root ::= "Alice" [0-9]{2}' });
    assert.match(byId.content, /^a Alice\d\d$/);
    const pattern = (value: string, type = 2) => [{ type, value }];
    const bold = /^Well, <b>(yes|no)<\/b>$/;
    assert.match((await ask("Well, <b>maybe", pattern("<[bi]>"))).content, bold);
    assert.match((await ask("Well, <b>maybe", pattern("[A-Z][^<]*(<b>)"))).content, bold);
    assert.match((await ask("Well, <b>maybe", pattern("[\\s\\S]*?(<b>)[\\s\\S]*", 3))).content, bold);
    assert.equal((await ask("Well, <b>maybe", pattern("<b>", 3))).content, "Well, <b>maybe");
    // A grammar that does not begin like its trigger leaves the text free.
    assert.equal((await ask("Well, <b>maybe", word, { grammar: 'root ::= "x"' })).content, "Well, <b>maybe");
    const eager = await ask("maybe", word, { grammar_lazy: false });
    assert.match(eager.content, /^<b>(yes|no)<\/b>$/);
    for (
      const [triggers, more, param] of [
        [[], {}, "grammar_triggers"],
        [undefined, {}, "grammar_triggers"],
        [word, { grammar: undefined }, "grammar_lazy"],
        [[{ type: 2, value: "(a)\\1" }], {}, "grammar_triggers"],
        [[{ type: 2 }], {}, "grammar_triggers[0]"],
        [[{ type: 4, value: "a" }], {}, "grammar_triggers[0]"],
        [[...word, { type: 0, value: "several tokens" }], {}, "grammar_triggers[1]"],
        [[{ type: 0, token: N_VOCAB }], {}, "grammar_triggers[0]"],
        [[{ type: 1 }], {}, "grammar_triggers[0]"],
      ] as const
    ) assert.equal((await ask("x", triggers, more)).error.param, param);
  });
});

Deno.test("response_format makes every answer JSON of its schema", async () => {
  await withServer({}, async ({ client }) => {
    const schema = {
      type: "object",
      properties: { name: { enum: ["Ann", "Bob"] }, age: { type: "integer", minimum: 0, maximum: 99 } },
      required: ["name", "age"],
      additionalProperties: false,
    };
    for (let seed = 0; seed < 5; seed++) {
      const answer = await client.chat.completions.create({
        model: "fake",
        messages: [{ role: "user", content: "babble" }],
        response_format: { type: "json_schema", json_schema: { name: "person", schema } },
        seed,
      });
      const person = JSON.parse(answer.choices[0].message.content!);
      assert.ok(["Ann", "Bob"].includes(person.name) && person.age >= 0 && person.age <= 99);
      assert.equal(answer.choices[0].finish_reason, "stop");
    }
    const object = await client.chat.completions.create({
      model: "fake",
      messages: [{ role: "user", content: '[[[{"a": 1}]]]' }],
      response_format: { type: "json_object" },
      temperature: 0,
    });
    assert.deepEqual(JSON.parse(object.choices[0].message.content!), { a: 1 });
    await assert.rejects(client.chat.completions.create({
      model: "fake",
      messages: [{ role: "user", content: "x" }],
      response_format: { type: "json_object" },
      tools: [{ type: "function", function: { name: "f", parameters: {} } }],
    }));
  });
});

Deno.test("tool_choice makes the answer a call, of any tool or of the named one", async () => {
  await withServer({ n_ctx: 2048 }, async ({ client, post }) => {
    const parameters = {
      type: "object",
      properties: { city: { enum: ["Berlin", "Seoul"] }, days: { $ref: "#/$defs/count" } },
      required: ["city", "days"],
      $defs: { count: { type: "integer", minimum: 1, maximum: 7 } },
    };
    const tools = ["get_weather", "get_wind"].map((name) => ({
      type: "function" as const,
      function: { name, parameters },
    }));
    const named = { type: "function" as const, function: { name: "get_wind" } };
    for (const tool_choice of ["required" as const, named]) {
      for (let seed = 0; seed < 3; seed++) {
        const { choices: [choice] } = await client.chat.completions.create({
          model: "fake",
          messages: [{ role: "user", content: "babble" }],
          tools,
          tool_choice,
          seed,
        });
        assert.equal(choice.finish_reason, "tool_calls");
        const [call] = choice.message.tool_calls!;
        assert.ok(call.type === "function");
        assert.ok(tool_choice === "required" || call.function.name === "get_wind");
        const { city, days } = JSON.parse(call.function.arguments);
        assert.ok(["Berlin", "Seoul"].includes(city) && days >= 1 && days <= 7);
      }
    }
    const messages = [{ role: "user", content: "x" }];
    for (
      const [body, param] of [
        [{ tool_choice: "required" }, "tool_choice"],
        [{ tools, tool_choice: { type: "function", function: { name: "f" } } }, "tool_choice.function.name"],
        [{ tools, tool_choice: "required", response_format: { type: "json_object" } }, "tool_choice"],
      ] as const
    ) {
      const { status, body: answer } = await post("/v1/chat/completions", { messages, ...body });
      assert.deepEqual([status, answer.error.param], [400, param]);
    }
  });
});

/** A chat in which the fake model's script works, written as another family writes calls. */
const templateOf = (markers: string) =>
  `{# ${markers} #}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}` +
  '{{ "<|im_start|>assistant\\n" }}';

Deno.test("tool_choice forces calls of every way to write them", async () => {
  const parameters = {
    type: "object",
    properties: { city: { enum: ["Berlin", "Seoul"] }, note: { type: "string", enum: ["a < b", "c"] } },
    required: ["city", "note"],
  };
  const tools = [{ type: "function" as const, function: { name: "get_weather", parameters } }];
  for (
    const markers of [
      "<tool_call> <function= <parameter=",
      "<tool_call> <arg_key>",
      "[TOOL_CALLS] [ARGS]",
      "<|channel|> <|message|>",
      "<|tool_calls_section_begin|> <|tool_call_begin|>",
      "<｜tool▁calls▁begin｜>",
      "<minimax:tool_call> <invoke name=",
      "dsml_token DSML tool_calls",
    ]
  ) {
    await withServer({ n_ctx: 2048, template: templateOf(markers) }, async ({ client }) => {
      const { choices: [choice] } = await client.chat.completions.create({
        model: "fake",
        messages: [{ role: "user", content: "babble" }],
        tools,
        tool_choice: "required",
        max_tokens: 900,
        temperature: 0,
      });
      assert.equal(choice.finish_reason, "tool_calls", markers);
      const [call] = choice.message.tool_calls!;
      assert.ok(call.type === "function" && call.function.name === "get_weather");
      const { city, note } = JSON.parse(call.function.arguments);
      assert.ok(["Berlin", "Seoul"].includes(city) && ["a < b", "c"].includes(note), markers);
    });
  }
  await withServer({ template: templateOf("<response> <think>") }, async ({ post }) => {
    const messages = [{ role: "user", content: "x" }];
    const { status, body } = await post("/v1/chat/completions", { messages, tools, tool_choice: "required" });
    assert.deepEqual([status, body.error.param], [400, "tool_choice"]);
  });
});

Deno.test("a forced call may use the markers that are control tokens; another form may not", () => {
  const model = fakeModel({ template: templateOf("[TOOL_CALLS] [ARGS]") });
  assert.ok(model.chat.preservedTokens.has(TOOL_CALLS));
  const allowed = (constraint: AnswerConstraint | undefined) => {
    const logits = new Float32Array(N_VOCAB);
    constraint!.apply(logits);
    return [logits[TOOL_CALLS] === 0, logits[IM_END] === 0];
  };
  const request = { tool_choice: "required", tools: [{ type: "function", function: { name: "f" } }] };
  const call = forcedCall(request as unknown as Conversation, model.chat);
  const constraint = constraintOf({ call }, model);
  assert.deepEqual(allowed(constraint), [true, false]);
  constraint!.accept(TOOL_CALLS);
  assert.deepEqual(allowed(constraint), [false, false]);
  for (const byte of new TextEncoder().encode("f[ARGS]{}")) constraint!.accept(byte);
  assert.deepEqual(allowed(constraint), [false, true]);
  assert.deepEqual(allowed(constraintOf({ grammar: 'root ::= "[" .*' }, model)), [false, false]);
});

Deno.test("the server warns of schema keywords that it does not enforce, and refuses them where the schema is strict", async () => {
  const told: string[] = [];
  await withServer({ n_ctx: 2048, onWarning: (text) => told.push(text) }, async ({ post }) => {
    const schema = { type: "array", items: { enum: [1, 2] }, maxItems: 2, uniqueItems: true };
    const ask = (strict: boolean) =>
      post("/v1/chat/completions", {
        messages: [{ role: "user", content: "babble" }],
        response_format: { type: "json_schema", json_schema: { name: "list", strict, schema } },
      });
    assert.equal((await ask(false)).status, 200);
    assert.deepEqual(told, ["response_format.json_schema: the server does not enforce #/uniqueItems"]);
    const { status, body } = await ask(true);
    assert.deepEqual([status, body.error.param], [400, "response_format.json_schema"]);
    assert.match(body.error.message, /#\/uniqueItems/);
    const parameters = { type: "object", properties: { list: schema }, required: ["list"] };
    const tools = [{ type: "function", function: { name: "f", strict: true, parameters } }];
    const forced = await post("/v1/chat/completions", {
      messages: [{ role: "user", content: "babble" }],
      tools,
      tool_choice: "required",
    });
    assert.deepEqual([forced.status, forced.body.error.param], [400, "tool_choice"]);
    assert.match(forced.body.error.message, /f: #\/properties\/list\/uniqueItems/);
  });
});

Deno.test("a call that the model begins by itself is held to its tool's parameters, text and reasoning are not", async () => {
  const parameters = {
    type: "object",
    properties: { city: { enum: ["Berlin", "Seoul"] } },
    required: ["city"],
    additionalProperties: false,
  };
  const tools = [{ type: "function" as const, function: { name: "get_wind", parameters } }];
  const told: string[] = [];
  const ask = (script: string, template: string | undefined, more: object = {}) => {
    let message: any;
    const options = { n_ctx: 2048, onWarning: (text: string) => told.push(text), ...(template ? { template } : {}) };
    return withServer(options, async ({ client }) => {
      const answer = await client.chat.completions.create({
        model: "fake",
        messages: [{ role: "user", content: `[[[${script}]]]` }],
        tools,
        temperature: 0,
        ...more,
      });
      message = answer.choices[0].message;
    }).then(() => message);
  };
  const spoilt: [script: string, template?: string][] = [
    ["Let me see.\\x0a<tool_call>\\x0a{broken"],
    ["<think>I say <tool_call> soon.</think>Let me see.<tool_call>\\x0a{broken"],
    ["Let me see.<tool_call>\\x0a<function=get_rain>", templateOf("<tool_call> <function= <parameter=")],
    ["Let me see.[TOOL_CALLS]oops", templateOf("[TOOL_CALLS] [ARGS]")],
    ["Let me see.\\x0aAction:\\x0a```json\\x0aoops", templateOf("Action: ```json")],
  ];
  for (const [script, template] of spoilt) {
    const message = await ask(script, template, { parallel_tool_calls: false });
    assert.equal(message.content, "Let me see.", script);
    assert.equal(message.tool_calls?.[0].function.name, "get_wind", script);
    assert.ok(["Berlin", "Seoul"].includes(JSON.parse(message.tool_calls[0].function.arguments).city));
    assert.equal(message.reasoning_content, script.includes("think") ? "I say <tool_call> soon." : undefined);
  }
  assert.equal((await ask("No call at all, <tool_cal.", undefined)).content, "No call at all, <tool_cal.");
  assert.equal(
    (await ask("A Call to Action: vote.", templateOf("Action: ```json"))).content,
    "A Call to Action: vote.",
  );
  // Another way to begin than the form's is read all the same.
  const bare = "<function=get_wind>\\x0a<parameter=city>\\x0aOslo\\x0a</parameter>\\x0a</function>";
  const other = await ask(bare, templateOf("<tool_call> <function= <parameter="));
  assert.deepEqual(JSON.parse(other.tool_calls[0].function.arguments), { city: "Oslo" });
  assert.deepEqual(told, []);
  // Parameters that cannot be compiled hold nobody up.
  const odd = {
    type: "function",
    function: { name: "f", parameters: { type: "object", properties: { a: { type: "date" } } } },
  };
  // Nor is anybody told twice.
  for (const _ of [1, 2]) {
    const free = await ask('<tool_call>\\x0a{"name": "f", "arguments": {"a": 1}}\\x0a</tool_call>', undefined, {
      tools: [odd],
    });
    assert.deepEqual(JSON.parse(free.tool_calls[0].function.arguments), { a: 1 });
  }
  assert.equal(told.length, 1);
  assert.match(told[0], /^tools: the server does not enforce f: # \(.*"date"\)$/);
});

Deno.test("a tool whose schema names no arguments is called with any, by itself and where it must be", async () => {
  const parameters = { type: "object", additionalProperties: true };
  const tools = [{ type: "function" as const, function: { name: "note", parameters } }];
  const call =
    "<tool_call>\\x0a<function=note>\\x0a<parameter=a>\\x0a1\\x0a</parameter>\\x0a</function>\\x0a</tool_call>\\x0a";
  const told: string[] = [];
  const template = templateOf("<tool_call> <function= <parameter=");
  await withServer({ n_ctx: 2048, template, onWarning: (text) => told.push(text) }, async ({ client }) => {
    for (const tool_choice of ["auto", "required"] as const) {
      const { choices: [{ message }] } = await client.chat.completions.create({
        model: "fake",
        messages: [{ role: "user", content: `[[[${call}]]]` }],
        tools,
        tool_choice,
        temperature: 0,
      });
      const [{ function: f }] = message.tool_calls as { function: { arguments: string } }[];
      assert.deepEqual([JSON.parse(f.arguments), message.content], [{ a: 1 }, null], tool_choice);
    }
  });
  assert.equal(told.length, 0);
  // Where a family cannot say them, calls are free, and cannot be forced.
  const m3 = templateOf("]<]minimax[>[ <tool_call> <invoke name=");
  await withServer({ n_ctx: 2048, template: m3, onWarning: (text) => told.push(text) }, async ({ post }) => {
    const body = { messages: [{ role: "user", content: "[[[Hi.]]]" }], tools, temperature: 0 };
    assert.equal((await post("/v1/chat/completions", body)).body.choices[0].message.content, "Hi.");
    const forced = await post("/v1/chat/completions", { ...body, tool_choice: "required" });
    assert.deepEqual([forced.status, forced.body.error.param], [400, "tool_choice"]);
    assert.match(forced.body.error.message, /"note".*list them in properties/);
  });
  assert.equal(told.length, 1);
  assert.match(told[0], /^tools: the server does not enforce the tools' parameters: .*"note"/);
});

Deno.test("a budget of reasoning ends with a call that ends the reasoning", async () => {
  const parameters = { type: "object", properties: { text: { type: "string" } }, required: ["text"] };
  const tools = [{ type: "function" as const, function: { name: "note", parameters } }];
  const text = "a".repeat(40);
  const call =
    `<tool_call>\\x0a<function=note>\\x0a<parameter=text>\\x0a${text}\\x0a</parameter>\\x0a</function>\\x0a</tool_call>`;
  const template = templateOf("<tool_call> <function= <parameter=");
  await withServer({ n_ctx: 2048, template }, async ({ post }) => {
    const { body } = await post("/v1/chat/completions", {
      messages: [{ role: "user", content: `[[[<think>x${call}]]]` }],
      tools,
      temperature: 0,
      reasoning_budget_tokens: 20,
    });
    const { message } = body.choices[0];
    assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { text });
    assert.deepEqual([message.reasoning_content, message.malformed], ["x", undefined]);
  });
});

Deno.test("constraints and budgets take any ids that come", () => {
  const model = fakeModel();
  const tools = [{ type: "function", function: { name: "f", parameters: { type: "object" } } }];
  const call = possibleCall({ tools } as unknown as Conversation, model.chat)!;
  const { tokenizer } = model;
  const script = [...'<think>hm</think>x<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'];
  const ids = fc.array(fc.oneof(fc.nat(N_VOCAB - 1), fc.constantFrom(...script).map((c) => c.charCodeAt(0))));
  fc.assert(
    fc.property(ids, fc.nat(script.length), fc.boolean(), (random, cut, open) => {
      const tracker = model.chat.createTracker({
        reasoningFormat: "auto",
        stream: true,
        tools,
        parallelToolCalls: true,
        inReasoning: open,
      });
      const before = { tracker, open, opener: "<think>" };
      const constraints = [
        lazyConstraint(call, model, tracker, () => {})!,
        constraintOf({ grammar: 'root ::= [a-z]* "é"?' }, model, before)!,
        constraintOf({ call }, model, before)!,
      ];
      const budget = new ReasoningBudget(tracker, "</think>", 3, tokenizer);
      for (const id of [...script.slice(0, cut).map((c) => c.charCodeAt(0)), ...random]) {
        tracker.push(tokenizer.pieceBytes(id, model.chat.preservedTokens.has(id)));
        for (const constraint of constraints) {
          constraint.accept(id);
          assert.equal(typeof constraint.finished, "boolean");
        }
        assert.ok((budget.next() ?? 0) < N_VOCAB);
        budget.accept(id);
      }
    }),
    { numRuns: 300 },
  );
});
