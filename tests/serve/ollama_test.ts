/** ollama's API, with its own client. */
import assert from "node:assert/strict";
import { Ollama } from "npm:ollama@0.6.3";
import { openModel } from "../../ffi/mod.ts";
import { servedModel } from "../../serve/language_model.ts";
import { type RunningServer, startServer } from "../../serve/server.ts";
import { bloomNano } from "../models.ts";

async function withOllama(
  test: (client: Ollama, server: RunningServer) => Promise<void>,
  options: { embeddings?: "mean" } = {},
): Promise<void> {
  using opened = await openModel(await bloomNano("bf16"), { device: "cpu", n_ctx: 512, n_seq: 2 });
  const server = await startServer({ model: servedModel(opened.model), port: 0, n_slots: 2, ...options });
  try {
    await test(new Ollama({ host: server.url }), server);
  } finally {
    await server.stop();
  }
}

const MESSAGES = [{ role: "user", content: "What is 27 + 58?" }];
const GREEDY = { temperature: 0, num_predict: 24 };

Deno.test("ollama's client reads a chat, whole and as a stream, as /v1/chat/completions gives it", async () => {
  await withOllama(async (client, server) => {
    const whole = await client.chat({ model: "any", messages: MESSAGES, options: GREEDY });
    const response = await fetch(`${server.url}/v1/chat/completions`, {
      method: "POST",
      body: JSON.stringify({ messages: MESSAGES, temperature: 0, max_tokens: 24 }),
    });
    const { choices: [{ message, finish_reason }], usage } = await response.json();
    assert.equal(whole.message.content, message.content ?? "");
    assert.equal(whole.message.thinking, message.reasoning_content);
    assert.equal(whole.done_reason, finish_reason);
    assert.deepEqual([whole.prompt_eval_count, whole.eval_count], [usage.prompt_tokens, usage.completion_tokens]);
    assert.ok(whole.model.endsWith(":latest") && whole.total_duration > 0 && whole.done);

    let content = "", thinking = "", last;
    for await (const part of await client.chat({ model: "any", messages: MESSAGES, options: GREEDY, stream: true })) {
      content += part.message.content;
      thinking += part.message.thinking ?? "";
      last = part;
    }
    assert.deepEqual([content, thinking], [whole.message.content, whole.message.thinking ?? ""]);
    assert.deepEqual([last?.done, last?.done_reason, last?.eval_count], [true, whole.done_reason, whole.eval_count]);
  });
});

Deno.test("ollama's client reads prompts, raw ones, forms and what there is", async () => {
  await withOllama(async (client) => {
    const raw = await client.generate({ model: "any", prompt: "What is 27 + 58?", raw: true, options: GREEDY });
    assert.ok(raw.response.length > 0 && raw.done);
    const asked = await client.generate({ model: "any", prompt: "What is 27 + 58?", think: false, options: GREEDY });
    assert.equal(asked.thinking, undefined);
    const format = {
      type: "object",
      properties: { a: { enum: [1, 2] } },
      required: ["a"],
      additionalProperties: false,
    };
    const formed = await client.generate({
      model: "any",
      prompt: "1?",
      format,
      think: false,
      options: { temperature: 0 },
    });
    assert.ok([1, 2].includes(JSON.parse(formed.response).a), formed.response);
    assert.deepEqual((await client.generate({ model: "any", prompt: "" })).done_reason, "load");

    const { models: [model] } = await client.list();
    assert.deepEqual([model.details.family, model.details.quantization_level], ["qwen3", "BF16"]);
    const shown = await client.show({ model: model.name });
    assert.deepEqual(shown.capabilities, ["completion", "tools", "thinking"]);
    assert.ok(shown.template.includes("<|im_start|>"));
    assert.equal((await client.ps()).models[0].name, model.name);
    assert.match((await client.version()).version, /^\d/);
  });
});

Deno.test("a client that aborts leaves its slot, and errors are in ollama's form", async () => {
  await withOllama(async (client, server) => {
    const stream = await client.chat({ model: "any", messages: MESSAGES, options: { num_predict: 400 }, stream: true });
    try {
      for await (const _ of stream) stream.abort();
    } catch (error) {
      assert.equal((error as Error).name, "AbortError");
    }
    for (let i = 0; i < 100; i++) {
      const slots = await (await fetch(`${server.url}/slots`)).json();
      if (slots.every((s: { is_processing: boolean }) => !s.is_processing)) break;
      assert.ok(i < 99, "a slot is still busy");
      await new Promise((r) => setTimeout(r, 20));
    }
    await assert.rejects(
      client.chat({ model: "any", messages: [{ role: "user", content: "a", images: ["aGk="] }] }),
      /images/,
    );
    const bad = await fetch(`${server.url}/api/chat`, { method: "POST", body: '{"messages": 1}' });
    assert.equal(bad.status, 400);
    assert.equal(typeof (await bad.json()).error, "string");
    await assert.rejects(client.embed({ model: "any", input: "a" }), /does not support embeddings/);
  });
});

Deno.test("ollama's client reads vectors", async () => {
  await withOllama(async (client) => {
    const { embeddings, prompt_eval_count } = await client.embed({ model: "any", input: ["What is 27 + 58?", "b"] });
    assert.deepEqual([embeddings.length, prompt_eval_count], [2, 11]);
    assert.ok(Math.abs(Math.hypot(...embeddings[0]) - 1) < 1e-5);
  }, { embeddings: "mean" });
});
