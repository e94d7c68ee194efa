/** /v1/messages as coding agents and typed clients use it. */
import assert from "node:assert/strict";
import Anthropic from "npm:@anthropic-ai/sdk@1.14.0";
import { withServer } from "./harness.ts";

interface Case {
  requests: { path: string; body: any; right: { status: number; message_has?: string } }[];
}

function readCase(name: string): Case {
  return JSON.parse(Deno.readTextFileSync(new URL(`cases/${name}.json`, import.meta.url)));
}

const say = (role: string, content: unknown = role) => ({ role, content });
const clientOf = (url: string) => new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });

Deno.test("messages takes system messages within the conversation, and shows them at their place", async () => {
  await withServer({}, async ({ post, server }) => {
    for (const { path, body, right } of readCase("system-within-messages").requests) {
      assert.equal((await post(path, body)).status, right.status, path);
    }
    const n = async (messages: unknown[]) =>
      (await post("/v1/messages/count_tokens", { messages })).body.input_tokens as number;
    const plain = [say("user", "hi"), say("assistant", "Hello."), say("user", "[[[ok]]]")];
    const more = await n([...plain.slice(0, 2), say("system", "x".repeat(50)), plain[2]]);
    assert.ok(more > await n(plain) + 50, "the text is part of the prompt");
    const client = clientOf(server.url);
    const answer = await client.messages.create({
      model: "m",
      max_tokens: 50,
      messages: [say("user", "hi"), say("system", [{ type: "text", text: "[[[From the system.]]]" }])] as any,
    });
    assert.deepEqual(answer.content, [{ type: "text", text: "From the system." }]);
  });
});

Deno.test("a system message reaches the model where the template has no place for it", async () => {
  const one = (m: string) => `{{ "<" + ${m}.role + ":" }}{{ ${m}.content }}{{ ">" }}`;
  const templates = [
    // Drops what is not at the beginning.
    `{% for m in messages %}{% if m.role != "system" or loop.first %}${one("m")}{% endif %}{% endfor %}`,
    // Refuses it.
    `{% for m in messages %}{% if m.role == "system" and not loop.first %}{{ raise_exception("at the beginning") }}` +
    `{% endif %}${one("m")}{% endfor %}`,
  ];
  for (const template of templates) {
    await withServer({ template }, async ({ post }) => {
      const prompt = async (messages: unknown[]) => {
        const { status, body } = await post("/apply-template", { messages, add_generation_prompt: false });
        assert.equal(status, 200, JSON.stringify(body));
        return body.prompt;
      };
      assert.equal(await prompt([say("system", "A"), say("user", "B")]), "<system:A><user:B>");
      assert.equal(await prompt([say("user", "B"), say("system", "C")]), "<user:B\n\nC>");
      assert.equal(await prompt([say("system", "A"), say("system", "B"), say("user", "C")]), "<system:A\n\nB><user:C>");
      assert.equal(
        await prompt([say("user", "A"), say("assistant", "B"), say("system", "C"), say("user", "D")]),
        "<user:A><assistant:B><user:C\n\nD>",
      );
      assert.equal(
        await prompt([say("user", "A"), say("assistant", "B"), say("developer", [{ type: "text", text: "C" }])]),
        "<user:A><assistant:B><user:C>",
      );
      const parts = (text: string) => [{ type: "text", text }];
      assert.equal(await prompt([say("user", parts("A")), say("system", "B")]), "<user:A\nB>");
    });
  }
});

Deno.test("a role that the template has no place for is refused by its name", async () => {
  const template = `{% for m in messages %}{% if m.role in ["user", "assistant", "critic"] %}` +
    `{{ "<" + m.role + ":" + m.content + ">" }}{% endif %}{% endfor %}`;
  await withServer({ template }, async ({ post }) => {
    const good = await post("/apply-template", { messages: [say("user"), say("critic")] });
    assert.equal(good.body.prompt, "<user:user><critic:critic>");
    for (const path of ["/v1/chat/completions", "/apply-template"]) {
      const { status, body } = await post(path, { messages: [say("user"), say("judge")] });
      assert.deepEqual([status, body.error.param], [400, "messages[1].role"]);
      assert.ok(body.error.message.includes('"judge"'), body.error.message);
    }
  });
});

Deno.test("an answer goes on behind the assistant's last message, on every chat route", async () => {
  await withServer({}, async ({ post, client, server }) => {
    const [{ body }] = readCase("last-message-is-the-assistants").requests;
    const { prompt } = (await post("/apply-template", { messages: body.messages })).body;
    assert.ok(prompt.endsWith("<|im_start|>assistant\nI am"), prompt);
    const messages = [say("user", "[[[Hello the world]]]"), say("assistant", "Hello")] as any[];
    const answer = await clientOf(server.url).messages.create({ model: "m", max_tokens: 50, messages });
    assert.deepEqual(answer.content, [{ type: "text", text: " the world" }]);
    const chat = await client.chat.completions.create({ model: "m", messages });
    assert.equal(chat.choices[0].message.content, " the world");
    const parts = [messages[0], say("assistant", [{ type: "text", text: "Hel" }, { type: "text", text: "lo" }])];
    assert.ok((await post("/apply-template", { messages: parts })).body.prompt.endsWith("assistant\nHello"));
    // Reasoning alone goes on as reasoning.
    const thinking = [messages[0], { role: "assistant", content: "", reasoning_content: "Hm" }];
    assert.ok((await post("/apply-template", { messages: thinking })).body.prompt.endsWith("<think>\nHm"));
    const thought = await clientOf(server.url).messages.create({
      model: "m",
      max_tokens: 50,
      messages: [
        say("user", "[[[<think>\\x0aHm, yes</think>Done]]]"),
        say("assistant", [{ type: "thinking", thinking: "Hm", signature: "" }]),
      ] as any,
    });
    assert.deepEqual(thought.content.map((b) => b.type), ["thinking", "text"]);
    // The request may say otherwise.
    for (const more of [{ continue_final_message: false }, { add_generation_prompt: true }]) {
      const { prompt } = (await post("/apply-template", { messages, ...more })).body;
      assert.ok(prompt.endsWith("Hello<|im_end|>\n<|im_start|>assistant\n"), prompt);
    }
    const call = { id: "1", type: "function", function: { name: "f", arguments: "{}" } };
    for (
      const [bad, param] of [
        [[messages[0], { role: "assistant", content: "", tool_calls: [call] }], "messages[1]"],
        [[messages[0], messages[1], messages[1]], "messages[2]"],
      ] as const
    ) {
      const { status, body } = await post("/v1/chat/completions", { messages: bad });
      assert.deepEqual([status, body.error.param], [400, param]);
    }
    const form = { response_format: { type: "json_object" } };
    const refused = await post("/v1/chat/completions", { messages, ...form });
    assert.deepEqual([refused.status, refused.body.error.param], [400, "response_format"]);
  });
  await withServer({ prefill: false }, async ({ post }) => {
    const messages = [say("user"), say("assistant", "I am")];
    const closed = await post("/apply-template", { messages });
    assert.ok(closed.body.prompt.endsWith("I am<|im_end|>\n<|im_start|>assistant\n"));
    const asked = await post("/apply-template", { messages, continue_final_message: true });
    assert.ok(asked.body.prompt.endsWith("I am"));
  });
  await withServer({ template: "{{ messages[0].content }}" }, async ({ post }) => {
    const { status, body } = await post("/v1/messages", {
      max_tokens: 5,
      messages: [say("user"), say("assistant", "I am")],
    });
    assert.equal(status, 400);
    assert.ok(body.error.message.startsWith("Cannot continue the last message"), body.error.message);
  });
});

Deno.test("messages gives answers in the form that output_config or output_format ask for", async () => {
  await withServer({}, async ({ post, server }) => {
    for (const { path, body } of readCase("anthropic-structured-output").requests) {
      for (const stream of [false, true]) {
        const message = stream
          ? await clientOf(server.url).messages.stream({ model: "fake", ...body }).finalMessage()
          : (await post(path, body)).body;
        const value = JSON.parse(message.content.at(-1).text);
        assert.ok(typeof value.a === "string" && value.a.length <= 5, JSON.stringify(value));
      }
    }
    const form = { type: "json_schema", schema: { type: "object", properties: { a: { type: "nonsense" } } } };
    const good = { max_tokens: 5, messages: [say("user")] };
    for (
      const [more, field] of [
        [{ output_config: { format: form } }, "output_config.format"],
        [{ output_format: form }, "output_format"],
        [{ output_format: { ...form, schema: 1 } }, "output_format.schema"],
        [{ output_config: { format: { type: "xml" } } }, "output_config.format.type"],
        [{ output_format: form, output_config: { format: form } }, "output_format"],
      ] as const
    ) {
      const { status, body } = await post("/v1/messages", { ...good, ...more });
      assert.deepEqual([status, body.error.param], [400, field], body.error.message);
      assert.ok(body.error.message.includes(field), body.error.message);
    }
  });
});

Deno.test("a prompt that is too long is refused in words that agents look for, on every route", async () => {
  await withServer({ n_ctx: 64 }, async ({ post }) => {
    for (const { path, body, right } of readCase("context-full").requests) {
      for (const stream of [false, true]) {
        const answer = await post(path, { ...body, stream });
        assert.equal(answer.status, right.status);
        const { message, code } = answer.body.error;
        assert.ok(message.includes(right.message_has!), message);
        assert.ok(message.includes("exceeds the available context size"), message);
        assert.equal(code, "context_length_exceeded");
        if (path === "/v1/messages") assert.match(message, /^prompt is too long: \d+ tokens > 64 maximum/);
      }
    }
    const native = await post("/completion", { prompt: "x".repeat(99) });
    assert.deepEqual([native.status, native.body.error.n_prompt_tokens, native.body.error.n_ctx], [400, 100, 64]);
  });
});

Deno.test("a prompt begins alike whatever checksum an agent's billing line carries", async () => {
  await withServer({ n_slots: 1 }, async ({ post }) => {
    const ask = async (cch: string) => {
      const system = [{ type: "text", text: `x-anthropic-billing-header: cc_version=2.1; cch=${cch};` }];
      const { body } = await post("/v1/messages", { max_tokens: 2, system, messages: [say("user", "x".repeat(60))] });
      return body.usage.input_tokens as number;
    };
    await ask("1a2b3");
    assert.equal(await ask("9f8e7"), 1);
  });
});
