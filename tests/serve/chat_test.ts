import assert from "node:assert/strict";
import type OpenAI from "npm:openai@7.59.0";
import { soon, withServer } from "./harness.ts";

const ask = (content: string) => [{ role: "user" as const, content }];
const TOOLS = [{
  type: "function" as const,
  function: {
    name: "get_weather",
    description: "Weather of a city",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
}];
const CALL = '<tool_call>\\x0a{"name": "get_weather", "arguments": {"city": "Köln"}}\\x0a</tool_call>';

interface Collected {
  content: string;
  reasoning: string;
  calls: { id?: string; name?: string; arguments: string }[];
  reason: string | null;
  roles: string[];
  usage?: OpenAI.CompletionUsage | null;
}

/** What a client makes of a stream. */
async function collect(stream: AsyncIterable<OpenAI.ChatCompletionChunk>): Promise<Collected> {
  const out: Collected = { content: "", reasoning: "", calls: [], reason: null, roles: [] };
  for await (const chunk of stream) {
    if (chunk.usage) out.usage = chunk.usage;
    const choice = chunk.choices[0];
    if (!choice) continue;
    const delta = choice.delta as typeof choice.delta & { reasoning_content?: string };
    if (delta.role) out.roles.push(delta.role);
    out.content += delta.content ?? "";
    out.reasoning += delta.reasoning_content ?? "";
    for (const part of delta.tool_calls ?? []) {
      const call = out.calls[part.index] ??= { arguments: "" };
      if (part.id) call.id = part.id;
      if (part.function?.name) call.name = part.function.name;
      call.arguments += part.function?.arguments ?? "";
    }
    out.reason = choice.finish_reason ?? out.reason;
  }
  return out;
}

Deno.test("chat answers the openai client, whole and streamed alike", async () => {
  await withServer({}, async ({ client }) => {
    const body = { model: "fake", messages: ask("[[[Hello the world]]]"), temperature: 0 };
    const answer = await client.chat.completions.create(body);
    assert.deepEqual(answer.choices[0].message, { role: "assistant", content: "Hello the world" });
    assert.equal(answer.choices[0].finish_reason, "stop");
    assert.equal(answer.object, "chat.completion");
    const streamed = await collect(
      await client.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } }),
    );
    assert.deepEqual([streamed.content, streamed.reason, streamed.roles], ["Hello the world", "stop", ["assistant"]]);
    assert.equal(streamed.usage!.total_tokens, answer.usage!.total_tokens);
    assert.ok(streamed.usage!.prompt_tokens_details!.cached_tokens! > 0);
    const cut = await client.chat.completions.create({ ...body, max_completion_tokens: 3 });
    assert.deepEqual([cut.choices[0].message.content, cut.choices[0].finish_reason], ["Hel", "length"]);
    const stopped = await client.chat.completions.create({ ...body, stop: ["the w"] });
    assert.deepEqual([stopped.choices[0].message.content, stopped.choices[0].finish_reason], ["Hello ", "stop"]);
  });
});

Deno.test("reasoning is split from content in every format", async () => {
  await withServer({}, async ({ client }) => {
    const messages = ask("[[[<think>\\x0aHm, the</b>.\\x0a</think>\\x0a\\x0aYes.]]]");
    const raw = "<think>\nHm, the</b>.\n</think>\n\nYes.";
    const body = { model: "fake", messages };
    for (
      const [format, whole, streamed] of [
        [undefined, ["Yes.", "Hm, the</b>."], ["Yes.", "Hm, the</b>."]],
        ["deepseek", ["Yes.", "Hm, the</b>."], ["Yes.", "Hm, the</b>."]],
        ["none", [raw, ""], [raw, ""]],
        ["deepseek-legacy", ["Yes.", "Hm, the</b>."], [raw, ""]],
      ] as const
    ) {
      const extra = format === undefined ? {} : { reasoning_format: format };
      const answer = await client.chat.completions.create({ ...body, ...extra });
      const message = answer.choices[0].message as { content: string; reasoning_content?: string };
      assert.deepEqual([message.content, message.reasoning_content ?? ""], whole, String(format));
      const got = await collect(await client.chat.completions.create({ ...body, ...extra, stream: true }));
      assert.deepEqual([got.content, got.reasoning], streamed, String(format));
    }
    const off = await client.chat.completions.create({
      model: "fake",
      messages: ask("[[[<think>\\x0a\\x0a</think>\\x0a\\x0aYes.]]]"),
      ...{ chat_template_kwargs: { enable_thinking: false } },
    });
    assert.equal(off.choices[0].message.content, "Yes.");
    assert.equal(off.usage!.completion_tokens, 5, "the empty block is part of the prompt");
  });
});

Deno.test("a budget ends the reasoning after so many tokens, never within a character", async () => {
  await withServer({}, async ({ client, post }) => {
    // The fake model does not notice: it goes on where its script would be.
    const answer = async (thoughts: string, budget: object) => {
      const body = { model: "fake", messages: ask(`[[[<think>${thoughts}</think>Yes.]]]`), temperature: 0, ...budget };
      const { message } = (await client.chat.completions.create(body)).choices[0];
      return [(message as { reasoning_content?: string }).reasoning_content, message.content];
    };
    const long = "x".repeat(40);
    assert.deepEqual(await answer(long, {}), [long, "Yes."]);
    assert.deepEqual(await answer(long, { reasoning_budget_tokens: -1 }), [long, "Yes."]);
    assert.deepEqual(await answer(long, { reasoning_budget_tokens: 60 }), [long, "Yes."]);
    assert.deepEqual(await answer(long, { reasoning_budget_tokens: 5 }), ["xxxxx", `${"x".repeat(27)}</think>Yes.`]);
    assert.deepEqual(await answer(long, { thinking_budget_tokens: 0 }), [undefined, `${"x".repeat(32)}</think>Yes.`]);
    assert.equal((await answer("é".repeat(20), { reasoning_budget_tokens: 3 }))[0], "éé");
    const bad = await post("/v1/chat/completions", { messages: ask("x"), reasoning_budget_tokens: -2 });
    assert.deepEqual([bad.status, bad.body.error.param], [400, "reasoning_budget_tokens"]);
  });
  await withServer({ reasoningBudget: 5 }, async ({ client }) => {
    const answer = async (budget: object) => {
      const body = { model: "fake", messages: ask(`[[[<think>${"x".repeat(40)}</think>Yes.]]]`), temperature: 0 };
      const { message } = (await client.chat.completions.create({ ...body, ...budget })).choices[0];
      return (message as { reasoning_content?: string }).reasoning_content?.length;
    };
    assert.equal(await answer({}), 5, "the server's limit");
    assert.equal(await answer({ reasoning_budget_tokens: 7 }), 7, "the request's");
    assert.equal(await answer({ thinking_budget_tokens: -1 }), 40, "none at all");
  });
  const harmony = "<|channel|> <|message|>{{ messages[0].content }}";
  await withServer({ template: harmony, reasoningBudget: 5 }, async ({ post }) => {
    assert.equal((await post("/v1/chat/completions", { messages: ask("x"), max_tokens: 1 })).status, 200);
    const { status, body } = await post("/v1/chat/completions", { messages: ask("x"), thinking_budget_tokens: 9 });
    assert.deepEqual([status, body.error.param], [400, "thinking_budget_tokens"]);
  });
});

Deno.test("tool calls are parsed, whole and streamed, and their history renders", async () => {
  await withServer({}, async ({ client, post }) => {
    const body = { model: "fake", messages: ask(`[[[Let me see. ${CALL}]]]`), tools: TOOLS };
    const answer = await client.chat.completions.create(body);
    const [choice] = answer.choices;
    assert.equal(choice.finish_reason, "tool_calls");
    const [call] = choice.message.tool_calls!;
    assert.ok(call.type === "function" && call.id.length > 0);
    assert.equal(call.function.name, "get_weather");
    assert.deepEqual(JSON.parse(call.function.arguments), { city: "Köln" });
    assert.equal(choice.message.content?.trim(), "Let me see.");
    const got = await collect(await client.chat.completions.create({ ...body, stream: true }));
    assert.equal(got.reason, "tool_calls");
    assert.deepEqual(got.calls.map((c) => [c.name, JSON.parse(c.arguments)]), [["get_weather", { city: "Köln" }]]);
    assert.equal(got.content.trim(), "Let me see.");
    assert.ok(got.calls[0].id);
    // Without tools, and with tool_choice none, it is text.
    for (const more of [{ tools: undefined }, { tool_choice: "none" as const }]) {
      const plain = await client.chat.completions.create({ ...body, ...more } as typeof body);
      assert.ok(plain.choices[0].message.content!.includes("<tool_call>"));
      assert.equal(plain.choices[0].finish_reason, "stop");
    }
    const history = [
      ...ask("Weather?"),
      choice.message,
      { role: "tool", tool_call_id: call.id, content: "rain" },
    ];
    const { body: rendered } = await post("/apply-template", { messages: history });
    assert.ok(
      rendered.prompt.includes('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Köln"}}\n</tool_call>'),
    );
  });
});

Deno.test("calls stream piece by piece; one that is cut off is told by the finish reason", async () => {
  await withServer({}, async ({ client, events }) => {
    const body = { model: "fake", messages: ask(`[[[${CALL}]]]`), tools: TOOLS };
    const chunks = await events("/v1/chat/completions", { ...body, stream: true });
    const pieces = chunks.flatMap((e) => e.choices?.[0]?.delta.tool_calls ?? []);
    assert.deepEqual(Object.keys(pieces[0]).sort(), ["function", "id", "index", "type"]);
    assert.equal(pieces[0].function.name, "get_weather");
    assert.ok(pieces.length > 5);
    for (const piece of pieces.slice(1)) {
      assert.deepEqual([Object.keys(piece), Object.keys(piece.function)], [["index", "function"], ["arguments"]]);
    }
    const cut = await collect(await client.chat.completions.create({ ...body, stream: true, max_tokens: 58 }));
    assert.deepEqual([cut.reason, cut.calls.length], ["length", 1]);
    assert.ok('{"city": "Köln"}'.startsWith(cut.calls[0].arguments) && cut.calls[0].arguments.startsWith("{"));
    // Whole answers show no call that is not complete.
    const { choices: [whole] } = await client.chat.completions.create({ ...body, max_tokens: 58 });
    assert.deepEqual([whole.finish_reason, whole.message.tool_calls], ["length", undefined]);
    assert.ok(whole.message.content!.startsWith("<tool_call>"));
    assert.equal((whole.message as unknown as { malformed: boolean }).malformed, true);
  });
});

Deno.test("a streamed call that went bad before the limit came is told as cut off", async () => {
  const template = "{# <|channel|> <|message|> #}{{ messages[0].content }}<|im_start|>assistant\n";
  await withServer({ template, n_ctx: 1024 }, async ({ client }) => {
    const content = `[[[<|channel|>commentary to=functions.get_weather<|message|>{"city": oops ${"x".repeat(99)}]]]`;
    const cut = await collect(
      await client.chat.completions.create({
        model: "fake",
        messages: ask(content),
        tools: TOOLS,
        stream: true,
        max_tokens: 120,
        temperature: 0,
      }),
    );
    assert.deepEqual([cut.reason, cut.calls.length], ["length", 1]);
  });
});

Deno.test("a token that a budget says has its log-probability too", async () => {
  await withServer({ topK: 4 }, async ({ client }) => {
    const { choices: [{ logprobs }] } = await client.chat.completions.create({
      model: "fake",
      messages: ask(`[[[<think>${"x".repeat(20)}</think>Yes.]]]`),
      temperature: 0,
      logprobs: true,
      max_tokens: 16,
      ...{ reasoning_budget_tokens: 5 },
    });
    const tokens = logprobs!.content!.map((e) => e.token);
    assert.ok(tokens.includes("</"), tokens.join(" "));
    for (const e of logprobs!.content!) assert.ok(e.logprob > -100, `${e.token} ${e.logprob}`);
  });
});

Deno.test("log-probabilities cover every token of a streamed chat once", async () => {
  await withServer({}, async ({ client }) => {
    const body = {
      model: "fake",
      messages: ask("[[[<think>\\x0aHm.\\x0a</think>\\x0a\\x0aYes 😀.]]]"),
      logprobs: true,
      top_logprobs: 2,
    };
    const whole = await client.chat.completions.create(body);
    const entries = whole.choices[0].logprobs!.content!;
    assert.equal(entries.length, whole.usage!.completion_tokens - 1, "all but the end token");
    const streamed = [];
    for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
      streamed.push(...chunk.choices[0].logprobs?.content ?? []);
    }
    assert.deepEqual(streamed, entries);
    for (const e of entries) assert.equal(e.top_logprobs[0].logprob >= e.top_logprobs[1].logprob, true);
  });
});

Deno.test("content parts, the developer role and continued answers reach the template", async () => {
  await withServer({}, async ({ post }) => {
    const { body } = await post("/apply-template", {
      messages: [
        { role: "developer", content: "Be brief." },
        { role: "user", content: [{ type: "text", text: "a" }, { type: "text", text: "b" }] },
        { role: "assistant", content: "Once upon" },
      ],
      continue_final_message: true,
    });
    const turns = ["system\nBe brief.<|im_end|>", "user\na\nb<|im_end|>", "assistant\nOnce upon"];
    assert.equal(body.prompt, turns.map((t) => `<|im_start|>${t}`).join("\n"));
    const none = await post("/apply-template", {
      messages: [{ role: "user", content: "x" }],
      add_generation_prompt: false,
    });
    assert.equal(none.body.prompt, "<|im_start|>user\nx<|im_end|>\n");
  });
});

Deno.test("template variables of a request keep their numbers as written", async () => {
  await withServer({ template: "{{ k }} {{ n }}" }, async ({ post }) => {
    const body = '{"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"k": 1.0, "n": 1}}';
    assert.equal((await post("/apply-template", body)).body.prompt, "1.0 1");
  });
});

Deno.test("a chat client that leaves frees its slot within a second", async () => {
  await withServer({ n_slots: 1, stepMs: 10 }, async ({ server, client }) => {
    const stream = await client.chat.completions.create({
      model: "fake",
      messages: ask("babble"),
      stream: true,
      logit_bias: { "257": -100 },
    });
    for await (const _ of stream) break;
    await soon(() => server.scheduler.n_active === 0, "the slot is free");
  });
});
