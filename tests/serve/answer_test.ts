/** Where in an answer stop strings, forms, budgets and calls apply, as clients see it. */
import assert from "node:assert/strict";
import type { AnswerConstraint } from "../../serve/answer_constraint.ts";
import { Sampler } from "../../core/sampling/mod.ts";
import { constraintOf } from "../../serve/constraint.ts";
import { Generation } from "../../serve/generation.ts";
import { fakeModel, fakeTokenizer, IM_END, N_VOCAB } from "./fake.ts";
import { type Harness, withServer } from "./harness.ts";

const ask = (script: string) => [{ role: "user" as const, content: `[[[${script}]]]` }];
const XML = "{# <tool_call> <function= <parameter= <think> #}{% for m in messages %}<|im_start|>{{ m.role }}\n" +
  '{{ m.content }}<|im_end|>\n{% endfor %}{{ "<|im_start|>assistant\\n" }}';

interface Answer {
  content: string;
  reasoning: string;
  calls: { name: string; arguments: string }[];
  reason: string;
}

/** A chat's answer, streamed or not. */
async function answer({ post, events }: Harness, body: object, stream: boolean): Promise<Answer> {
  const request = { temperature: 0, ...body, stream };
  const out: Answer = { content: "", reasoning: "", calls: [], reason: "" };
  const add = (delta: any) => {
    out.content += delta.content ?? "";
    out.reasoning += delta.reasoning_content ?? "";
    for (const [i, c] of (delta.tool_calls ?? []).entries()) {
      const call = out.calls[c.index ?? i] ??= { name: c.function.name, arguments: "" };
      call.arguments += c.function.arguments;
    }
  };
  if (stream) {
    for (const e of await events("/v1/chat/completions", request)) {
      if (e === "[DONE]" || e.choices.length === 0) continue;
      add(e.choices[0].delta);
      out.reason = e.choices[0].finish_reason ?? out.reason;
    }
    return out;
  }
  const { status, body: { choices, error } } = await post("/v1/chat/completions", request);
  assert.equal(status, 200, JSON.stringify(error));
  add(choices[0].message);
  return { ...out, reason: choices[0].finish_reason };
}

Deno.test("stop strings are looked for in the answer, not in reasoning that is split off", async () => {
  await withServer({}, async (h) => {
    const thought = "The user asks.", messages = ask(`<think>\\x0a${thought}\\x0a</think>\\x0a\\x0aHello user, bye`);
    for (const stream of [false, true]) {
      const of = (more: object) => answer(h, { messages, ...more }, stream);
      const full = { reasoning: thought, calls: [], reason: "stop" };
      assert.deepEqual(await of({ stop: ["user"] }), { ...full, content: "Hello " });
      assert.deepEqual(await of({ stop: ["asks", "</think>", ", b"] }), { ...full, content: "Hello user" });
      // White space between tag and answer is neither.
      assert.deepEqual(await of({ stop: ["\n\n"] }), { ...full, content: "Hello user, bye" });
      assert.deepEqual(await of({ stop: ["Hel"] }), { ...full, content: "" });
      const raw = await of({ stop: ["user"], reasoning_format: "none" });
      assert.deepEqual(raw, { ...full, reasoning: "", content: "<think>\nThe " });
      const plain = await answer(h, { messages: ask("<thanks user"), stop: ["nks", "x"] }, stream);
      assert.deepEqual(plain, { ...full, reasoning: "", content: "<tha" });
      const early = await answer(h, { messages: ask("<thanks user"), stop: ["<th"] }, stream);
      assert.deepEqual(early, { ...full, reasoning: "", content: "" });
      const cut = await answer(h, { messages: ask("<thi"), stop: ["user"] }, stream);
      assert.deepEqual(cut, { ...full, reasoning: "", content: "<thi" });
    }
    const streamed = await h.events("/v1/chat/completions", { messages, temperature: 0, stop: ["user"], stream: true });
    const pieces = streamed.filter((e) => e.choices?.[0].delta.reasoning_content);
    assert.ok(pieces.length > 5, "reasoning is sent as it comes");
    const { body } = await h.post("/v1/messages", {
      messages,
      max_tokens: 99,
      temperature: 0,
      stop_sequences: ["user"],
    });
    assert.deepEqual(body.content.map((b: any) => [b.type, b.text ?? b.thinking]), [["thinking", thought], [
      "text",
      "Hello ",
    ]]);
    assert.deepEqual([body.stop_reason, body.stop_sequence], ["stop_sequence", "user"]);
    const none = await h.post("/v1/messages", { messages, max_tokens: 99, temperature: 0, stop_sequences: ["asks"] });
    assert.deepEqual([none.body.stop_reason, none.body.content.at(-1).text], ["end_turn", "Hello user, bye"]);
  });
});

const wind = {
  type: "function",
  function: {
    name: "get_wind",
    parameters: { type: "object", properties: { city: { enum: ["Berlin", "Seoul"] } }, required: ["city"] },
  },
};
const windCall = (city: string) =>
  `<tool_call>\\x0a<function=get_wind>\\x0a<parameter=city>\\x0a${city}\\x0a</parameter>\\x0a</function>\\x0a</tool_call>`;

Deno.test("a mention of a call in the reasoning forces nothing; a call there is held to its form", async () => {
  await withServer({ template: XML, n_ctx: 2048 }, async (h) => {
    for (const stream of [false, true]) {
      const of = (script: string) => answer(h, { messages: ask(script), tools: [wind] }, stream);
      const mention = "Should I use <tool_call>? Or <function=get_wind>? No.";
      assert.deepEqual(await of(`<think>${mention}</think>Hi.`), {
        content: "Hi.",
        reasoning: mention,
        calls: [],
        reason: "stop",
      });
      for (const script of [`<think>Hm.${windCall("Oslo")}`, `<think>Hm.</think>${windCall("Oslo")}`]) {
        const { reasoning, calls: [call], reason } = await of(script);
        assert.deepEqual([reasoning, call.name, reason], ["Hm.", "get_wind", "tool_calls"]);
        assert.ok(["Berlin", "Seoul"].includes(JSON.parse(call.arguments).city), call.arguments);
      }
    }
  });
});

Deno.test("a budget of reasoning waits for what looks like a call, and goes on where it was none", async () => {
  await withServer({ template: XML, n_ctx: 2048 }, async (h) => {
    const thought = `${"x".repeat(8)}<tool_call>\\x0aor ${"y".repeat(30)}`;
    const body = { messages: ask(`<think>${thought}</think>Hi`), tools: [wind], reasoning_budget_tokens: 16 };
    const { reasoning } = await answer(h, body, false);
    assert.equal(reasoning, `${"x".repeat(8)}<tool_call>\no`);
  });
});

Deno.test("a call that the limit cuts ends with length, and keeps what was whole before", async () => {
  await withServer({ n_ctx: 2048 }, async (h) => {
    const call = (city: string) =>
      `<tool_call>\\x0a{"name": "get_wind", "arguments": {"city": "${city}"}}\\x0a</tool_call>`;
    const free = { type: "function", function: { name: "get_wind", parameters: { type: "object" } } };
    const messages = ask(`See. ${call("Berlin")}\\x0a${call("Seoul")}`);
    const all = { name: "get_wind", arguments: '{"city": "Berlin"}' };
    const whole = await answer(h, { messages, tools: [free] }, true);
    assert.deepEqual([whole.reason, whole.calls.length], ["tool_calls", 2]);
    for (const stream of [false, true]) {
      // From within the head of the second call up to its last brace but one.
      for (const max_tokens of [95, 115, 130]) {
        const { content, calls, reason } = await answer(h, { messages, tools: [free], max_tokens }, stream);
        assert.deepEqual([reason, calls[0]], ["length", all], `${max_tokens}`);
        assert.ok(content.startsWith("See."));
        if (!stream) assert.equal(calls.length, 1);
      }
    }
    const ofMessages = { messages, max_tokens: 115, temperature: 0 };
    const tools = [{ name: "get_wind", input_schema: { type: "object" } }];
    const { body } = await h.post("/v1/messages", { ...ofMessages, tools });
    assert.equal(body.stop_reason, "max_tokens");
    assert.deepEqual(body.content.find((b: any) => b.type === "tool_use").input, { city: "Berlin" });
  });
});

Deno.test("no half character gets into the arguments of a call, wherever the answer is cut", async () => {
  for (
    const [template, call] of [
      [undefined, '<tool_call>\\x0a{"name": "note", "arguments": {"t": "ä€😀"}}\\x0a</tool_call>'],
      [
        XML,
        "<tool_call>\\x0a<function=note>\\x0a<parameter=t>\\x0aä€😀\\x0a</parameter>\\x0a</function>\\x0a</tool_call>",
      ],
    ] as const
  ) {
    await withServer({ ...(template ? { template } : {}), n_ctx: 2048 }, async (h) => {
      const parameters = { type: "object", properties: { t: { type: "string" } } };
      const body = { messages: ask(call), tools: [{ type: "function", function: { name: "note", parameters } }] };
      const { calls: [whole] } = await answer(h, body, true);
      assert.deepEqual(JSON.parse(whole.arguments), { t: "ä€😀" });
      let n_cut = 0;
      for (let max_tokens = 30; max_tokens < 75; max_tokens++) {
        const { content, calls } = await answer(h, { ...body, max_tokens }, true);
        for (const { arguments: text } of calls) {
          assert.ok(!text.includes("\ufffd") && text.isWellFormed(), text);
          const closed = text.replace(/"?\}?$/, "").replace(/\\n$/, "");
          assert.ok(whole.arguments.startsWith(closed), text);
          n_cut++;
        }
        if (calls.length > 0) assert.equal(content, "");
      }
      assert.ok(n_cut > 10);
    });
  }
});

/** The fake model with a token that opens reasoning, and one that closes it and begins an answer. */
function withOpener() {
  const model = fakeModel(), tokenizer = fakeTokenizer(), OPENER = 7, CLOSER = 8;
  const encoder = new TextEncoder();
  const texts = new Map([[OPENER, "<think>"], [CLOSER, '</think>\n\t "a']]);
  return {
    OPENER,
    CLOSER,
    model: {
      ...model,
      tokenizer: {
        ...tokenizer,
        pieceBytes: (id: number, special?: boolean) =>
          texts.has(id) ? encoder.encode(texts.get(id)) : tokenizer.pieceBytes(id, special),
        encode: (text: string, o?: object) => text === "<think>" ? Int32Array.of(OPENER) : tokenizer.encode(text, o),
      },
    },
  };
}

Deno.test("stop strings are looked for behind the tag, in a token that holds both", async () => {
  for (
    const [stop, text, word] of [["think", '</think>\n\t "a"', ""], ["\t", '</think>\n\t "a"', ""], [
      '"a',
      "</think>\n\t ",
      '"a',
    ]]
  ) {
    const { model, CLOSER } = withOpener();
    const input = { reasoningFormat: "auto" as const, stream: true, parallelToolCalls: true, inReasoning: true };
    const generation = new Generation(model, {
      prompt: Int32Array.of(1),
      maxTokens: 9,
      sampler: new Sampler({ temperature: 0 }, N_VOCAB),
      stops: [stop],
      tracker: model.chat.createTracker(input),
    });
    for (const token of [CLOSER, 0x22, IM_END]) {
      const row = { ids: Int32Array.of(token), logits: Float32Array.of(1), lse: 1, targetLogprob: 0 };
      if (generation.onRow(row).stop) break;
    }
    generation.onEnd({ kind: "stopped" }, generation.times, generation.guesses);
    let shown = "", met = "";
    for await (const event of generation) {
      if (event.type === "text") shown += event.text;
      else if (event.type === "end") met = event.stoppingWord;
    }
    assert.deepEqual([shown, met], [text, word]);
  }
});

Deno.test("a form holds from the first token, unless the prompt opened the reasoning or the model may", () => {
  const { model, OPENER, CLOSER } = withOpener();
  const schema = { type: "string", enum: ["a"] };
  const requests = {
    grammar: { grammar: 'root ::= "\\"a\\""' },
    json_schema: { json_schema: schema },
    response_format: { response_format: { type: "json_schema", json_schema: { schema } } },
  };
  for (const [name, request] of Object.entries(requests)) {
    for (const open of [false, true]) {
      for (const opener of [undefined, "<think>"]) {
        const input = { reasoningFormat: "auto" as const, stream: true, parallelToolCalls: true, inReasoning: open };
        const tracker = model.chat.createTracker(input);
        const constraint = constraintOf(request, model, { tracker, open, opener })!;
        const say = (token: number) => {
          tracker.push(model.tokenizer.pieceBytes(token));
          constraint.accept(token);
        };
        const allowed = (c: AnswerConstraint) => {
          const logits = new Float32Array(N_VOCAB);
          if (c.active) c.apply(logits);
          return [OPENER, 0x22, 0x41, IM_END].map((id) => logits[id] === 0);
        };
        const mayOpen = opener !== undefined && name === "response_format";
        const what = `${name} ${open} ${opener}`;
        assert.deepEqual(allowed(constraint), open ? [true, true, true, true] : [mayOpen, true, false, false], what);
        if (!open && !mayOpen) continue;
        if (!open) say(OPENER);
        for (const c of "Hm.</think") say(c.charCodeAt(0));
        assert.deepEqual([constraint.active, constraint.finished], [false, false], what);
        say(0x3e);
        assert.deepEqual(allowed(constraint), [false, true, false, false], what);
        for (const c of '"a"') say(c.charCodeAt(0));
        assert.deepEqual([constraint.finished, allowed(constraint)], [true, [false, false, false, true]], what);
      }
    }
  }
  // A token may close the reasoning and begin the form.
  const input = { reasoningFormat: "auto" as const, stream: true, parallelToolCalls: true, inReasoning: true };
  const tracker = model.chat.createTracker(input);
  const constraint = constraintOf(requests.grammar, model, { tracker, open: true, opener: undefined })!;
  for (const token of [CLOSER, 0x22]) {
    assert.ok(!constraint.finished);
    tracker.push(model.tokenizer.pieceBytes(token));
    constraint.accept(token);
  }
  assert.ok(constraint.finished);
});

Deno.test("whether an answer may reason is read off the prompt, the template and what the request says", () => {
  const { chat } = fakeModel();
  const render = (kwargs: Record<string, unknown>, of = chat) => {
    const { inReasoning, mayReason } = of.render({
      messages: [{ role: "user", content: "x" }],
      addGenerationPrompt: true,
      continueFinal: false,
      kwargs,
    });
    return [inReasoning, mayReason];
  };
  assert.deepEqual(render({}), [false, true]);
  assert.deepEqual(render({ enable_thinking: false }), [false, false]);
  const of = (template: string) => fakeModel({ template }).chat;
  assert.deepEqual(render({}, of("{{ messages[0].content }}")), [false, false], "speaks of no reasoning");
  assert.deepEqual(render({}, of("x<think>\n")), [true, false]);
  assert.deepEqual(render({}, of("x<think>\n\n</think>\n\n")), [false, false]);
  // Switched off in a template that does not close it.
  assert.deepEqual(render({ enable_thinking: false }, of("{# <think> #}x")), [false, false]);
  const messages = [{ role: "user", content: "x" }, { role: "assistant", content: "<think>a" }];
  const input = { messages, addGenerationPrompt: false, continueFinal: true, kwargs: {} };
  const { inReasoning, mayReason } = chat.render(input);
  assert.deepEqual([inReasoning, mayReason], [true, false]);
});

Deno.test("one pattern or one tool that no grammar can say frees nothing else", async () => {
  const told: string[] = [];
  const string = (more: object) => ({
    type: "object",
    properties: { to: { type: "string", ...more } },
    required: ["to"],
  });
  const tool = (name: string, parameters: object, strict?: boolean) => ({
    type: "function",
    function: { name, parameters, ...(strict === undefined ? {} : { strict }) },
  });
  const send = (strict?: boolean) => tool("send", string({ pattern: "^(?!a)b$", format: "email" }), strict);
  const note = (strict?: boolean) => tool("note", string({ maxLength: 3 }), strict);
  await withServer({ n_ctx: 2048, onWarning: (text) => told.push(text) }, async ({ post }) => {
    const chat = async (script: string, body: object) => {
      const { status, body: { choices, error } } = await post("/v1/chat/completions", {
        messages: ask(script),
        temperature: 0,
        max_tokens: 300,
        ...body,
      });
      return status === 200 ? choices[0].message : { status, message: error.message };
    };
    const call = (name: string, to: string) =>
      `<tool_call>\\x0a{"name": "${name}", "arguments": {"to": "${to}"}}\\x0a</tool_call>`;
    const argumentsOf = (message: any) => JSON.parse(message.tool_calls[0].function.arguments);
    for (const tool_choice of ["auto", "required", { type: "function", function: { name: "note" } }]) {
      const message = await chat(call("note", "abcdef"), { tools: [send(), note()], tool_choice });
      assert.deepEqual(argumentsOf(message).to.length, 3);
    }
    assert.deepEqual(told.splice(0), [
      "tools: the server does not enforce send: #/properties/to/pattern",
      "tool_choice: the server does not enforce send: #/properties/to/pattern",
    ]);
    // The rest of that tool: its format.
    const required = { tools: [send(), note()], tool_choice: "required" };
    assert.deepEqual(argumentsOf(await chat(call("send", "a@b.co"), required)), { to: "a@b.co" });
    const spoilt = await chat(call("send", "x y"), required), text = spoilt.content ?? argumentsOf(spoilt).to;
    assert.ok(text.includes("x") && !text.includes("x "), text);
    // Strict is a matter of the tool that has it.
    const other = await chat(call("note", "abc"), { tools: [send(), note(true)], tool_choice: "required" });
    assert.deepEqual(argumentsOf(other), { to: "abc" });
    const refused = await chat("x", { tools: [send(true), note()], tool_choice: "required" });
    assert.equal(refused.status, 400);
    assert.match(refused.message, /^tool_choice: strict is true, .*send: #\/properties\/to\/pattern$/);
    told.length = 0;
    const odd = tool("odd", { type: "object", properties: { a: { type: "date" } } });
    const held = await chat(call("note", "abcdef"), { tools: [odd, note()] });
    assert.equal(argumentsOf(held).to.length, 3);
    const free = await chat(call("odd", "x"), { tools: [odd, note()] });
    assert.deepEqual(argumentsOf(free), { to: "x" });
    assert.equal(told.length, 1);
    assert.match(told[0], /^tools: the server does not enforce odd: # \(.*"date"\)$/);
    await chat("x", { tools: [odd, send()] });
    assert.match(told[1], /^tools: the server does not enforce odd: # \(.*"date"\), send: #\/properties\/to\/pattern$/);
  });
});

Deno.test("strict takes the formats that typed clients send", async () => {
  await withServer({ n_ctx: 1024 }, async ({ post }) => {
    const formats = ["email", "hostname", "ipv4", "ipv6", "duration", "uri", "uuid", "date", "time", "date-time"];
    for (const format of formats) {
      const schema = {
        type: "object",
        properties: { a: { type: "string", format } },
        required: ["a"],
        additionalProperties: false,
      };
      const response_format = { type: "json_schema", json_schema: { name: "x", strict: true, schema } };
      const { status } = await post("/v1/chat/completions", { messages: ask("x"), max_tokens: 9, response_format });
      assert.equal(status, 200, format);
    }
  });
});
