/** The server on bloom-nano: real tokens, real logits, a real client. On the CPU library, or where that is not built a little of it on the reference backend. */
import assert from "node:assert/strict";
import OpenAI from "npm:openai@7.59.0";
import { libraryPath, openModel } from "../../ffi/mod.ts";
import { servedModel } from "../../serve/language_model.ts";
import { type RunningServer, startServer } from "../../serve/server.ts";
import { bloomNano, referencePrompts } from "../models.ts";
import { needing, repoDir } from "../shared.ts";

const native = libraryPath("cpu") !== undefined;

async function withNano(
  options: { n_slots: number; n_ctx: number; n_cache?: number; outtype?: "q8_0"; onWarning?: (text: string) => void },
  test: (server: RunningServer, client: OpenAI) => Promise<void>,
): Promise<void> {
  const { n_slots, n_ctx } = options;
  using opened = await openModel(await bloomNano(options.outtype ?? "bf16"), {
    device: native ? "cpu" : "reference",
    n_ctx,
    n_cache: options.n_cache ?? n_ctx * n_slots,
    n_ubatch: 64,
    // The reference numbers were made with float32 throughout.
    cacheTypeK: "f32",
    cacheTypeV: "f32",
  });
  const server = await startServer({
    model: servedModel(opened.model),
    port: 0,
    n_slots,
    ...(options.onWarning ? { onWarning: options.onWarning } : {}),
  });
  try {
    await test(server, new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 }));
  } finally {
    await server.stop();
  }
}

async function post(server: RunningServer, path: string, body: unknown): Promise<any> {
  const response = await fetch(server.url + path, { method: "POST", body: JSON.stringify(body) });
  const answer = await response.json();
  assert.equal(response.status, 200, JSON.stringify(answer));
  return answer;
}

Deno.test("bloom-nano chats, thinks and continues like the reference", async () => {
  await withNano({ n_slots: 1, n_ctx: 256 }, async (server, client) => {
    const { ids, greedy_ids } = referencePrompts().chat_plain;
    const n = native ? 12 : 3;
    const { tokens } = await post(server, "/completion", {
      prompt: ids,
      n_predict: n,
      temperature: 0,
      return_tokens: true,
      ignore_eos: true,
    });
    assert.deepEqual(tokens, greedy_ids.slice(0, n));
    if (!native) return;
    const answer = await client.chat.completions.create({
      model: "bloom-nano",
      messages: [{ role: "user", content: "What is 27 + 58?" }],
      temperature: 0,
    });
    const message = answer.choices[0].message as { content: string; reasoning_content?: string };
    assert.equal(message.content, "27 + 58 = 85.");
    assert.ok(message.reasoning_content!.includes("write 5 and carry 1"));
    assert.equal(answer.choices[0].finish_reason, "stop");
  });
});

Deno.test({
  ...needing("bloom-nano calls a tool, and streams the call", native, "the native library"),
  fn: () =>
    withNano({ n_slots: 1, n_ctx: 512 }, async (_server, client) => {
      const stream = await client.chat.completions.create({
        model: "bloom-nano",
        messages: [{ role: "user", content: "What is the weather in Berlin?" }],
        tools: [{
          type: "function",
          function: {
            name: "get_weather",
            description: "Get the weather in a city",
            parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
          },
        }],
        temperature: 0,
        stream: true,
      });
      let args = "", name = "", reason = "", n_pieces = 0;
      for await (const { choices: [choice] } of stream) {
        for (const part of choice.delta.tool_calls ?? []) {
          name = part.function?.name ?? name;
          args += part.function?.arguments ?? "";
          n_pieces++;
        }
        reason = choice.finish_reason ?? reason;
      }
      assert.deepEqual([name, JSON.parse(args), reason], ["get_weather", { city: "Berlin" }, "tool_calls"]);
      assert.ok(n_pieces > 4);
    }),
});

Deno.test({
  ...needing("bloom-nano calls a tool that it is told to call", native, "the native library"),
  fn: () =>
    withNano({ n_slots: 1, n_ctx: 512 }, async (_server, client) => {
      const parameters = {
        type: "object",
        properties: { text: { type: "string", maxLength: 20 } },
        required: ["text"],
      };
      const { choices: [choice] } = await client.chat.completions.create({
        model: "bloom-nano",
        messages: [{ role: "user", content: "Hello!" }],
        tools: [{ type: "function", function: { name: "say", parameters } }],
        tool_choice: "required",
        temperature: 0,
        max_tokens: 300,
      });
      const [call] = choice.message.tool_calls!;
      assert.ok(call.type === "function" && call.function.name === "say");
      assert.ok(JSON.parse(call.function.arguments).text.length <= 20);
      assert.ok((choice.message as { reasoning_content?: string }).reasoning_content, "it thought first");
    }),
});

Deno.test({
  ...needing("bloom-nano answers together, bit for bit, what it answers alone", native, "the native library"),
  fn: () =>
    withNano({ n_slots: 3, n_ctx: 512 }, async (server) => {
      const long = "The quick brown fox jumps over the lazy dog. ".repeat(12);
      const jobs = ["The kernel is", long, "한국어", "def main():\n", long + "Then", "City (noun):"].flatMap((
        prompt,
        i,
      ) => [
        { prompt, temperature: 0, n_predict: 24, n_probs: 3, cache_prompt: false },
        { prompt, temperature: 1.1, top_k: 0, seed: 7 + i, n_predict: 24, n_probs: 3, cache_prompt: false },
      ]);
      const ask = async (job: object) => {
        const { content, completion_probabilities } = await post(server, "/completion", job);
        return { content, completion_probabilities };
      };
      const alone = [];
      for (const job of jobs) alone.push(await ask(job));
      assert.deepEqual(await Promise.all(jobs.map(ask)), alone);
      // With reused prefixes, in another order, still the same bits.
      const cached = [...jobs].reverse().map((job) => ({ ...job, cache_prompt: true }));
      assert.deepEqual(await Promise.all(cached.map(ask)), [...alone].reverse());
    }),
});

Deno.test({
  ...needing("bloom-nano scores an echoed prompt as the reference does", native, "the native library"),
  fn: () =>
    withNano({ n_slots: 1, n_ctx: 512 }, async (server) => {
      const { ids, next_logprob } = referencePrompts().english;
      const { choices } = await post(server, "/v1/completions", {
        prompt: ids,
        echo: true,
        logprobs: 1,
        max_tokens: 0,
      });
      const [first, ...rest] = choices[0].logprobs.token_logprobs;
      assert.equal(first, null);
      rest.forEach((lp: number, i: number) => assert.ok(Math.abs(lp - next_logprob[i]) < 2e-3, `position ${i}`));
      assert.equal(rest.length, ids.length - 1);
    }),
});

Deno.test({
  ...needing("bloom-nano answers the same when the cache is too small for all slots", native, "the native library"),
  fn: async () => {
    const jobs = ["The kernel is", "한국어", "def main():\n"].map((start, i) => (
      { prompt: start.repeat(20), temperature: 0.7, seed: i, n_predict: 90, ignore_eos: true }
    ));
    const ask = async (server: RunningServer, job: object) => (await post(server, "/completion", job)).content;
    const alone: string[] = [];
    await withNano({ n_slots: 1, n_ctx: 256 }, async (server) => {
      for (const job of jobs) alone.push(await ask(server, job));
    });
    await withNano({ n_slots: 3, n_ctx: 256, n_cache: 256 }, async (server) => {
      assert.deepEqual(await Promise.all(jobs.map((job) => ask(server, job))), alone);
    });
  },
});

Deno.test({
  ...needing("bloom-nano thinks before it answers in a form", native, "the native library"),
  fn: () =>
    withNano({ n_slots: 1, n_ctx: 512 }, async (_server, client) => {
      const schema = { type: "object", properties: { sum: { type: "integer" } }, required: ["sum"] };
      const answer = await client.chat.completions.create({
        model: "bloom-nano",
        messages: [{ role: "user", content: "What is 27 + 58?" }],
        response_format: { type: "json_schema", json_schema: { name: "sum", schema } },
        temperature: 0,
        max_tokens: 200,
      });
      const message = answer.choices[0].message as { content: string; reasoning_content?: string };
      assert.ok(message.reasoning_content!.includes("write 5 and carry 1"));
      assert.equal(typeof JSON.parse(message.content).sum, "number");
    }),
});

interface CaseRequest {
  path: string;
  body: any;
  right: {
    status: number;
    message?: object;
    finish_reason?: string;
    stop_reason?: string;
    last_block?: string;
    warning?: string;
  };
}

Deno.test({
  name: "bloom-nano in Q8_0 answers requests about forms, stop strings and tools as it should",
  ignore: !native,
  async fn() {
    const { source: _, ...cases } = JSON.parse(Deno.readTextFileSync(repoDir + "tests/goldens/serve/forms.json"));
    const told: string[] = [];
    await withNano({ n_slots: 1, n_ctx: 1024, outtype: "q8_0", onWarning: (t) => told.push(t) }, async (server) => {
      for (const { path, body, right } of Object.values<CaseRequest[]>(cases).flat()) {
        const answer = await post(server, path, body), what = JSON.stringify([path, body.messages, answer]);
        if (path === "/v1/messages") {
          assert.deepEqual(
            [answer.stop_reason, answer.content.at(-1).type],
            [right.stop_reason, right.last_block],
            what,
          );
          continue;
        }
        const { message, finish_reason } = answer.choices[0];
        if ("reasoning_content" in right) assert.equal(message.reasoning_content, undefined, what);
        if (body.grammar) {
          assert.match(message.content, /^(yes|no)$/);
          const { chat_template_kwargs: _, grammar: __, ...plain } = { ...body, reasoning_effort: "none" };
          const schema = { enum: ["yes", "no"] };
          const response_format = { type: "json_schema", json_schema: { name: "x", schema } };
          for (const form of [{ grammar: body.grammar }, { response_format }]) {
            const { choices: [choice] } = await post(server, path, { ...plain, ...form });
            assert.match(choice.message.content, /^"?(yes|no)"?$/);
            assert.equal(choice.message.reasoning_content, undefined, what);
          }
        }
        if (right.message) assert.deepEqual(message, { role: "assistant", ...right.message }, what);
        if (right.finish_reason) assert.ok(right.finish_reason.split(" or ").includes(finish_reason), what);
      }
    });
    assert.deepEqual(told, [
      "tool_choice: the server does not enforce send: #/properties/to/pattern",
      "tool_choice: the server does not enforce send: #/properties/to/pattern",
      "tools: the server does not enforce send: #/properties/to/pattern",
    ]);
  },
});

Deno.test({
  name: "bloom-nano answers Anthropic's clients in a form, and goes on with what the assistant began",
  ignore: !native,
  fn: () =>
    withNano({ n_slots: 2, n_ctx: 512 }, async (server, client) => {
      const requests = (name: string) =>
        JSON.parse(Deno.readTextFileSync(new URL(`cases/${name}.json`, import.meta.url))).requests;
      for (const { path, body } of requests("anthropic-structured-output")) {
        const { content, stop_reason } = await post(server, path, body);
        assert.ok(JSON.parse(content.at(-1).text).a.length <= 5);
        assert.equal(stop_reason, "end_turn");
      }
      const [{ path, body }] = requests("last-message-is-the-assistants");
      const begun = await post(server, path, { ...body, max_tokens: 40 });
      assert.match(`I am${begun.content[0].text}`, /^I am Bloom/);
      for (const { path, body } of requests("system-within-messages")) await post(server, path, body);
      const two = await client.chat.completions.create({
        model: "bloom-nano",
        messages: [{ role: "user", content: "What is 27 + 58?" }],
        temperature: 0,
        n: 2,
      });
      assert.deepEqual(two.choices.map((c) => c.message.content), ["27 + 58 = 85.", "27 + 58 = 85."]);
      const { reasoning_tokens } = two.usage!.completion_tokens_details!;
      assert.ok(reasoning_tokens! > 20 && reasoning_tokens! < two.usage!.completion_tokens);
    }),
});
