import assert from "node:assert/strict";
import Anthropic from "npm:@anthropic-ai/sdk@1.14.0";
import { soon, withServer } from "./harness.ts";

const TOOLS = [{
  name: "get_weather",
  description: "Weather of a city",
  input_schema: { type: "object" as const, properties: { city: { type: "string" } }, required: ["city"] },
}];
const CALL = '<tool_call>\\x0a{"name": "get_weather", "arguments": {"city": "Köln"}}\\x0a</tool_call>';

type Options = Parameters<typeof withServer>[0];

function withClient(
  options: Options,
  test: (client: Anthropic, harness: Parameters<Parameters<typeof withServer>[1]>[0]) => Promise<void>,
): Promise<void> {
  return withServer(options, async (harness) => {
    const apiKey = options.apiKeys?.[0] ?? "none";
    await test(new Anthropic({ baseURL: harness.server.url, apiKey, maxRetries: 0 }), harness);
  });
}

const ask = (content: string) => [{ role: "user" as const, content }];

Deno.test("messages answers the Anthropic client, whole and streamed alike", async () => {
  await withClient({ apiKeys: ["key"] }, async (client) => {
    const cases: [string, object, unknown[], string, string | null][] = [
      ["Hello the world", {}, [{ type: "text", text: "Hello the world" }], "end_turn", null],
      ["Hello", { max_tokens: 3 }, [{ type: "text", text: "Hel" }], "max_tokens", null],
      ["Hello. More", { stop_sequences: ["."] }, [{ type: "text", text: "Hello" }], "stop_sequence", "."],
      [
        "<think>\\x0aHm.\\x0a</think>\\x0a\\x0aYes.",
        {},
        [{ type: "thinking", thinking: "Hm.", signature: "" }, { type: "text", text: "Yes." }],
        "end_turn",
        null,
      ],
    ];
    for (const [script, more, content, stop_reason, stop_sequence] of cases) {
      const body = { model: "fake", max_tokens: 100, messages: ask(`[[[${script}]]]`), temperature: 0, ...more };
      const whole = await client.messages.create(body);
      assert.deepEqual(whole.content, content);
      assert.deepEqual([whole.stop_reason, whole.stop_sequence], [stop_reason, stop_sequence]);
      const streamed = await client.messages.stream(body).finalMessage();
      assert.deepEqual(streamed.content, content);
      assert.deepEqual([streamed.stop_reason, streamed.stop_sequence], [stop_reason, stop_sequence]);
      const n = (m: Anthropic.Message) => m.usage.input_tokens + m.usage.cache_read_input_tokens!;
      assert.deepEqual([n(streamed), streamed.usage.output_tokens], [n(whole), whole.usage.output_tokens]);
      const counted = await client.messages.countTokens({ model: "fake", messages: body.messages });
      assert.equal(counted.input_tokens, n(whole));
    }
  });
});

Deno.test("messages calls tools and takes their results back", async () => {
  await withClient({}, async (client) => {
    const body = { model: "fake", max_tokens: 200, tools: TOOLS, messages: ask(`[[[Let me see. ${CALL}]]]`) };
    for (const message of [await client.messages.create(body), await client.messages.stream(body).finalMessage()]) {
      assert.equal(message.stop_reason, "tool_use");
      const [text, call] = message.content;
      assert.ok(text.type === "text" && text.text.trim() === "Let me see.");
      assert.ok(call.type === "tool_use" && call.id.length > 0 && call.name === "get_weather");
      assert.deepEqual(call.input, { city: "Köln" });
      const next = await client.messages.create({
        ...body,
        system: [{ type: "text", text: "Be brief." }],
        messages: [
          ...ask("Weather?"),
          { role: "assistant", content: message.content },
          {
            role: "user",
            content: [
              { type: "tool_result", tool_use_id: call.id, content: [{ type: "text", text: "rain" }] },
              { type: "text", text: "[[[It rains.]]]" },
            ],
          },
        ],
      });
      assert.deepEqual(next.content, [{ type: "text", text: "It rains." }]);
    }
  });
});

Deno.test("messages ends thinking at its budget", async () => {
  await withClient({}, async (client) => {
    const { content } = await client.messages.create({
      model: "fake",
      max_tokens: 200,
      messages: ask(`[[[<think>${"x".repeat(100)}</think>Yes.]]]`),
      thinking: { type: "enabled", budget_tokens: 64 },
    });
    assert.deepEqual(content[0], { type: "thinking", thinking: "x".repeat(64), signature: "" });
  });
});

Deno.test("messages streams a call's input piece by piece", async () => {
  await withClient({}, async (client) => {
    const body = { model: "fake", max_tokens: 200, tools: TOOLS, messages: ask(`[[[${CALL}]]]`) };
    const pieces: string[] = [];
    const stream = client.messages.stream(body).on("inputJson", (part) => pieces.push(part));
    assert.equal((await stream.finalMessage()).stop_reason, "tool_use");
    assert.ok(pieces.length > 5);
    assert.deepEqual(JSON.parse(pieces.join("")), { city: "Köln" });
    const events = [];
    for await (const event of await client.messages.create({ ...body, max_tokens: 58, stream: true })) {
      events.push(event);
    }
    const delta = events.find((e) => e.type === "message_delta");
    assert.equal(delta?.type === "message_delta" && delta.delta.stop_reason, "max_tokens");
  });
});

Deno.test("messages tells of a call that went bad before the limit came that it was cut off", async () => {
  const template = "{# <|channel|> <|message|> #}{{ messages[0].content }}<|im_start|>assistant\n";
  await withClient({ template, n_ctx: 1024 }, async (client) => {
    const script = `<|channel|>commentary to=functions.get_weather<|message|>{"city": oops ${"x".repeat(99)}`;
    let reason: unknown;
    const body = { model: "fake", tools: TOOLS, messages: ask(`[[[${script}]]]`), ...{ temperature: 0 } };
    for await (const event of await client.messages.create({ ...body, max_tokens: 120, stream: true })) {
      if (event.type === "message_delta") reason = event.delta.stop_reason;
    }
    assert.equal(reason, "max_tokens");
  });
});

Deno.test("messages calls the tool that it is told to", async () => {
  await withClient({}, async (client) => {
    for (const tool_choice of [{ type: "any" as const }, { type: "tool" as const, name: "get_weather" }]) {
      const body = { model: "fake", max_tokens: 200, tools: TOOLS, tool_choice, messages: ask(`[[[${CALL}]]]`) };
      const { content, stop_reason } = await client.messages.create({ ...body, ...{ temperature: 0 } });
      assert.equal(stop_reason, "tool_use");
      assert.ok(content[0].type === "tool_use");
      assert.deepEqual(content[0].input, { city: "Köln" });
    }
  });
});

Deno.test("messages refuses in Anthropic's shape", async () => {
  await withClient({ apiKeys: ["key"] }, async (client, { server, post }) => {
    const headers = { "x-api-key": "key" };
    const good = { max_tokens: 5, messages: ask("x") };
    const image = { type: "image", source: { type: "base64", media_type: "image/png", data: "" } };
    for (
      const [body, words] of [
        [{ messages: ask("x") }, "max_tokens"],
        [{ ...good, max_tokens: 0 }, "max_tokens"],
        [{ ...good, messages: [] }, "messages"],
        [{ ...good, messages: [{ role: "tool", content: "x" }] }, "messages[0].role"],
        [{ ...good, messages: [{ role: "user", content: [image] }] }, "messages[0].content[0]"],
        [{ ...good, tool_choice: { type: "any" } }, "tool_choice"],
        [{ ...good, tools: TOOLS, tool_choice: { type: "tool", name: "other" } }, "tool_choice.function.name"],
        [{ ...good, tools: [{ type: "web_search_20250305", name: "web_search" }] }, "tools[0].type"],
        ["{", "JSON"],
      ] as const
    ) {
      const { status, body: answer } = await post("/v1/messages", body, headers);
      assert.deepEqual([status, answer.type, answer.error.type], [400, "error", "invalid_request_error"]);
      assert.ok(answer.error.message.includes(words), answer.error.message);
    }
    const wrong = new Anthropic({ baseURL: server.url, apiKey: "wrong", maxRetries: 0 });
    await assert.rejects(wrong.messages.create({ model: "fake", ...good }), Anthropic.AuthenticationError);
    await assert.rejects(
      client.messages.create({ model: "fake", max_tokens: 5, messages: ask("x".repeat(600)) }),
      Anthropic.BadRequestError,
    );
  });
});

Deno.test("an Anthropic client that leaves frees its slot within a second", async () => {
  await withClient({ n_slots: 1, stepMs: 10 }, async (client, { server }) => {
    const stream = await client.messages.create({
      model: "fake",
      max_tokens: 400,
      messages: ask("babble"),
      stream: true,
    });
    for await (const event of stream) if (event.type === "content_block_delta") break;
    await soon(() => server.scheduler.n_active === 0, "the slot is free");
  });
});
