/** OpenAI's Responses, with OpenAI's client. */
import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import type OpenAI from "npm:openai@7.59.0";
import { inputMessages } from "../../serve/response_input.ts";
import { ResponseStore } from "../../serve/response_store.ts";
import { responsesSchema } from "../../serve/routes_responses.ts";
import { soon, withServer } from "./harness.ts";

const TOOLS: OpenAI.Responses.FunctionTool[] = [{
  type: "function",
  name: "get_weather",
  description: "Weather of a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  strict: false,
}];
const CALL = '<tool_call>\\x0a{"name": "get_weather", "arguments": {"city": "Köln"}}\\x0a</tool_call>';

/** Ids are random, and the stream's events hold items that are not done. */
const plain = (items: OpenAI.Responses.ResponseOutputItem[]) =>
  items.map((item) =>
    JSON.parse(JSON.stringify(item, (key, value) => /^(call_)?id$|^parsed/.test(key) ? undefined : value))
  );

Deno.test("responses answers the openai client, whole and streamed alike", async () => {
  await withServer({ n_ctx: 2048 }, async ({ client }) => {
    const cases: [string, object, string[]][] = [
      ["Hello the world", {}, ["message"]],
      ["<think>\\x0aHm.\\x0a</think>\\x0a\\x0aYes.", {}, ["reasoning", "message"]],
      [`Let me see. ${CALL}`, { tools: TOOLS }, ["message", "function_call"]],
      [`${CALL}\\x0a${CALL}`, { tools: TOOLS }, ["function_call", "function_call"]],
      [`<think>\\x0aHm.\\x0a</think>\\x0a\\x0a${CALL}`, { tools: TOOLS }, ["reasoning", "function_call"]],
    ];
    for (const [script, more, types] of cases) {
      const body = { model: "m", input: `[[[${script}]]]`, temperature: 0, ...more };
      const whole = await client.responses.create(body);
      assert.deepEqual([whole.status, whole.object, whole.error], ["completed", "response", null]);
      const items = whole.output.filter((i) => i.type !== "message" || (i.content[0] as any).text.trim() !== "");
      assert.deepEqual(items.map((i) => i.type), types);
      const stream = client.responses.stream(body);
      const seen: OpenAI.Responses.ResponseStreamEvent[] = [];
      for await (const event of stream) seen.push(event);
      const streamed = await stream.finalResponse();
      assert.deepEqual(plain(streamed.output), plain(whole.output), script);
      assert.deepEqual(seen.map((e) => e.sequence_number), seen.map((_, i) => i));
      assert.deepEqual([seen[0].type, seen[1].type, seen.at(-1)!.type], [
        "response.created",
        "response.in_progress",
        "response.completed",
      ]);
      // What the pieces add up to is what the items say.
      for (const [index, item] of streamed.output.entries()) {
        const deltas = seen.filter((e) => e.type.endsWith(".delta") && (e as any).output_index === index) as any[];
        const text = deltas.map((e) => e.delta).join("");
        assert.equal(text, item.type === "function_call" ? item.arguments : (item as any).content[0].text);
        if (item.type === "function_call") assert.deepEqual(JSON.parse(text), { city: "Köln" });
      }
      const { input_tokens, output_tokens, total_tokens, output_tokens_details } = whole.usage!;
      assert.equal(input_tokens + output_tokens, total_tokens);
      assert.equal(output_tokens_details.reasoning_tokens > 0, types.includes("reasoning"));
      assert.ok(streamed.usage!.input_tokens_details.cached_tokens > 0);
      const counted = await client.responses.inputTokens.count({ input: body.input, ...more });
      assert.equal(counted.input_tokens, input_tokens);
    }
    const cut = await client.responses.create({ model: "m", input: "[[[Hello]]]", max_output_tokens: 3 });
    assert.deepEqual([cut.status, cut.incomplete_details, cut.output_text], [
      "incomplete",
      { reason: "max_output_tokens" },
      "Hel",
    ]);
    const called = await client.responses.create({
      model: "m",
      input: `[[[${CALL}]]]`,
      tools: TOOLS,
      tool_choice: { type: "function", name: "get_weather" },
    });
    assert.equal(called.output[0].type, "function_call");
    const form = await client.responses.create({
      model: "m",
      input: "x",
      text: {
        format: {
          type: "json_schema",
          name: "f",
          strict: true,
          schema: {
            type: "object",
            properties: { a: { type: "boolean" } },
            required: ["a"],
            additionalProperties: false,
          },
        },
      },
    });
    assert.equal(typeof JSON.parse(form.output_text).a, "boolean");
  });
});

Deno.test("responses go on from kept ones, and from what clients send back", async () => {
  await withServer({ n_ctx: 1024 }, async ({ client, post }) => {
    const first = await client.responses.create({
      model: "m",
      instructions: "Be brief.",
      input: `[[[<think>\\x0aHm.\\x0a</think>\\x0a\\x0a${CALL}]]]`,
      tools: TOOLS,
    });
    const call = first.output.find((item) => item.type === "function_call")!;
    const output = { type: "function_call_output" as const, call_id: call.call_id, output: "rain" };
    const ask = { role: "user" as const, content: [{ type: "input_text" as const, text: "[[[It rains.]]]" }] };
    const second = await client.responses.create({
      model: "m",
      previous_response_id: first.id,
      input: [output, ask],
    });
    assert.deepEqual([second.output_text, second.previous_response_id], ["It rains.", first.id]);
    // The same by hand, but for the instructions, has the same prompt.
    const same = await client.responses.create({
      model: "m",
      store: false,
      input: [
        { role: "user", content: `[[[<think>\\x0aHm.\\x0a</think>\\x0a\\x0a${CALL}]]]` },
        ...first.output as any,
        output,
        ask,
      ],
    });
    assert.equal(same.usage!.input_tokens, second.usage!.input_tokens);
    for (const id of [same.id, "resp_none"]) {
      const { status, body } = await post("/v1/responses", { input: "x", previous_response_id: id });
      assert.deepEqual([status, body.error.code], [400, "previous_response_not_found"]);
    }
  });
  const store = new ResponseStore();
  for (let i = 0; i < 1500; i++) store.add(`r${i}`, [{ role: "user", content: "x" }]);
  assert.deepEqual([store.get("r0"), store.get("r1499")?.length], [undefined, 1]);
  for (let i = 0; i < 3; i++) store.add(`large${i}`, [{ content: "x".repeat(40 << 20) }]);
  assert.deepEqual([store.get("r1499"), store.get("large0"), store.get("large2")?.length], [undefined, undefined, 1]);
});

Deno.test("the items of one turn of the assistant are one message", () => {
  const call = (id: string) => ({ type: "function_call", call_id: id, name: "f", arguments: "{}" });
  const called = (id: string) => ({ id, type: "function", function: { name: "f", arguments: "{}" } });
  assert.deepEqual(
    inputMessages([
      { role: "developer", content: "d" },
      { type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: "r" }] },
      { type: "message", role: "assistant", content: [{ type: "output_text", text: "a" }] },
      call("1"),
      call("2"),
      { type: "function_call_output", call_id: "1", output: [{ type: "input_text", text: "o" }] },
      { type: "reasoning", summary: [{ type: "summary_text", text: "s" }] },
      call("3"),
    ]),
    [
      { role: "developer", content: "d" },
      { role: "assistant", content: "a", reasoning_content: "r", tool_calls: [called("1"), called("2")] },
      { role: "tool", tool_call_id: "1", content: "o" },
      { role: "assistant", content: "", reasoning_content: "s", tool_calls: [called("3")] },
    ],
  );
});

Deno.test("responses refuses by name what it cannot take", async () => {
  const warnings: string[] = [];
  await withServer({ onWarning: (text) => warnings.push(text) }, async ({ post }) => {
    for (
      const [body, param] of [
        [{}, "input"],
        [{ input: [] }, "input"],
        [{ input: [{ type: "item_reference", id: "x" }] }, "input[0].type"],
        [{ input: [{ role: "user", content: [{ type: "input_image" }] }] }, "input[0].content[0]"],
        [{ input: [{ role: 5, content: "x" }] }, "input[0].role"],
        [{ input: [{ type: "function_call_output", output: "x" }] }, "input[0].call_id"],
        [{ input: "x", max_output_tokens: 0 }, "max_output_tokens"],
        [{ input: "x", text: { format: { type: "json_schema", schema: { type: "nonsense" } } } }, "text.format"],
        [{ input: "x", tool_choice: "required" }, "tool_choice"],
        [{ input: "x", tools: [{ type: "function" }] }, "tools[0].name"],
      ] as const
    ) {
      const { status, body: answer } = await post("/v1/responses", body);
      assert.deepEqual([status, answer.error.param], [400, param], answer.error.message);
    }
    for (let i = 0; i < 2; i++) {
      const { status } = await post("/v1/responses", { input: "[[[x]]]", tools: [{ type: "web_search" }, ...TOOLS] });
      assert.equal(status, 200);
    }
    assert.deepEqual(warnings.filter((w) => w.includes("web_search")).length, 1);
    const long = await post("/v1/responses", { input: "x".repeat(600) });
    assert.deepEqual([long.status, long.body.error.code], [400, "context_length_exceeded"]);
  });
});

Deno.test("a failed step ends a stream of responses with an error event", async () => {
  await withServer({ stepMs: 2 }, async ({ client, server, engine }) => {
    const stream = await client.responses.create({ model: "m", input: "babble", stream: true });
    await assert.rejects(async () => {
      for await (const event of stream) {
        if (event.type === "response.output_text.delta") engine.failure ??= new Error("lost");
      }
    }, /failed/);
    const left = await client.responses.create({ model: "m", input: "babble", stream: true });
    for await (const event of left) if (event.type === "response.output_text.delta") break;
    await soon(() => server.scheduler.n_active === 0, "the slot is free");
  });
});

Deno.test("/v1/responses takes any body", async () => {
  const item = fc.record({
    type: fc.constantFrom(undefined, "message", "reasoning", "function_call", "function_call_output", "other"),
    role: fc.constantFrom("user", "assistant", "developer", undefined, 5),
    content: fc.jsonValue({ maxDepth: 2 }),
    call_id: fc.constantFrom("1", undefined, null),
    name: fc.constantFrom("f", undefined),
    arguments: fc.constantFrom("{}", "[", undefined),
    output: fc.constantFrom("x", [], [{ type: "input_text", text: "x" }], null),
  });
  const value = fc.oneof(
    fc.jsonValue({ maxDepth: 2 }),
    fc.array(item, { maxLength: 4 }),
    fc.constantFrom("x", "resp_1"),
  );
  const failures: unknown[] = [];
  await withServer({ n_ctx: 64, onError: (e) => failures.push(e) }, async ({ server }) => {
    const fields = fc.constantFrom(...Object.keys(responsesSchema.shape));
    await fc.assert(
      fc.asyncProperty(fc.dictionary(fields, value, { maxKeys: 4 }), fc.boolean(), async (spoilt, stream) => {
        const body = JSON.stringify({ input: "x", max_output_tokens: 3, stream, ...spoilt });
        const response = await fetch(`${server.url}/v1/responses`, { method: "POST", body });
        const text = await response.text();
        assert.deepEqual(failures, [], body);
        assert.ok(response.status === 200 || response.status === 400, `${response.status} ${text}`);
        assert.ok(!text.includes('"server_error"'), body + text);
      }),
      { numRuns: 300 },
    );
  });
});
