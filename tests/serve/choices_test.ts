/** Several answers to one prompt. */
import assert from "node:assert/strict";
import { withServer } from "./harness.ts";

const ask = [{ role: "user" as const, content: "Tell me something, at length, about the sea." }];

Deno.test("n gives so many answers, each what it would be alone, from one computed prompt", async () => {
  for (const n_slots of [1, 2, 4]) {
    await withServer({ n_slots, n_ubatch: 16 }, async ({ client, engine }) => {
      const body = { model: "m", messages: ask, seed: 5, temperature: 1, max_tokens: 20 };
      const alone: string[] = [];
      for (let i = 0; i < 3; i++) {
        const { choices } = await client.chat.completions.create({ ...body, seed: 5 + i });
        alone.push(choices[0].message.content!);
      }
      assert.ok(new Set(alone).size > 1, "the seeds differ");
      for (const cache_prompt of [true, false]) {
        engine.log.length = 0;
        const answer = await client.chat.completions.create({ ...body, n: 3, ...{ cache_prompt } });
        assert.deepEqual(answer.choices.map((c) => [c.index, c.message.content]), alone.map((text, i) => [i, text]));
        const { prompt_tokens, completion_tokens } = answer.usage!;
        assert.equal(completion_tokens, 60);
        const rows = engine.log.flat().reduce((sum, n) => sum + n, 0);
        // Every token of the answers but the last is a row, and each follower computes the prompt's last token again.
        if (!cache_prompt) assert.equal(rows, prompt_tokens + 2 + 3 * 19);
        const streamed = ["", "", ""];
        const reasons: (string | null)[] = [];
        const stream = await client.chat.completions.create({
          ...body,
          n: 3,
          stream: true,
          stream_options: { include_usage: true },
          ...{ cache_prompt },
        });
        for await (const { choices, usage } of stream) {
          for (const { index, delta, finish_reason } of choices) {
            streamed[index] += delta.content ?? "";
            if (finish_reason) reasons[index] = finish_reason;
          }
          if (usage) assert.deepEqual([usage.prompt_tokens, usage.completion_tokens], [prompt_tokens, 60]);
        }
        assert.deepEqual([streamed, reasons], [alone, ["length", "length", "length"]]);
      }
    });
  }
});

Deno.test("completions gives n answers to each of its prompts, echoed and scored", async () => {
  await withServer({ n_slots: 3 }, async ({ client }) => {
    const body = {
      model: "m",
      prompt: ["one", "two"],
      seed: 1,
      temperature: 1,
      max_tokens: 8,
      echo: true,
      logprobs: 1,
    };
    const { choices, usage } = await client.completions.create({ ...body, n: 2 });
    assert.deepEqual(choices.map((c) => [c.index, c.text.slice(0, 3)]), [[0, "one"], [1, "one"], [2, "two"], [
      3,
      "two",
    ]]);
    assert.notEqual(choices[0].text, choices[1].text);
    for (const { logprobs, text } of choices) {
      assert.equal(logprobs!.tokens!.join(""), `<s>${text}`);
      assert.ok(logprobs!.token_logprobs!.slice(1).every((lp) => lp < 0));
    }
    assert.deepEqual([usage!.prompt_tokens, usage!.completion_tokens], [8, 32]);
    const texts = ["", "", "", ""];
    for await (const { choices: [choice] } of await client.completions.create({ ...body, n: 2, stream: true })) {
      texts[choice.index] += choice.text;
    }
    assert.deepEqual(texts, choices.map((c) => c.text));
  });
});

Deno.test("best_of gives the answers whose tokens are likeliest", async () => {
  await withServer({}, async ({ client, post }) => {
    const body = { model: "m", prompt: "babble", seed: 3, temperature: 2, top_k: 0, max_tokens: 6, logprobs: 0 };
    const all = await client.completions.create({ ...body, n: 5 });
    const mean = (c: typeof all.choices[number]) => c.logprobs!.token_logprobs!.reduce((a, b) => a + b) / 6;
    const best = all.choices.toSorted((a, b) => mean(b) - mean(a)).map((c) => c.text);
    assert.ok(new Set(best).size > 1);
    const two = await client.completions.create({ ...body, n: 2, best_of: 5 });
    assert.deepEqual(two.choices.map((c) => c.text), best.slice(0, 2));
    assert.equal(two.usage!.completion_tokens, 30);
    const { logprobs: _, ...plain } = body;
    const one = await client.completions.create({ ...plain, best_of: 5 });
    assert.deepEqual(one.choices.map((c) => [c.text, c.logprobs]), [[best[0], null]]);
    const chat = { messages: ask, seed: 3, temperature: 2, top_k: 0, max_tokens: 6, best_of: 3 };
    assert.equal((await post("/v1/chat/completions", chat)).body.choices.length, 1);
    for (
      const [bad, param] of [
        [{ n: 3, best_of: 2 }, "best_of"],
        [{ best_of: 2, stream: true }, "best_of"],
        [{ n: 0 }, "n"],
        [{ n: 129 }, "n"],
        [{ n: 1.5 }, "n"],
      ] as const
    ) {
      for (const path of ["/v1/completions", "/v1/chat/completions"]) {
        const { status, body } = await post(path, { prompt: "x", messages: ask, ...bad });
        assert.deepEqual([status, body.error.param], [400, param]);
      }
    }
  });
});

Deno.test("usage tells the tokens of reasoning", async () => {
  await withServer({}, async ({ client }) => {
    const messages = [{ role: "user" as const, content: "[[[<think>\\x0aHm.\\x0a</think>\\x0a\\x0aYes.]]]" }];
    const { usage, choices: [{ message }] } = await client.chat.completions.create({ model: "m", messages });
    assert.equal(message.content, "Yes.");
    const { reasoning_tokens } = usage!.completion_tokens_details!;
    assert.ok(reasoning_tokens! >= 4 && reasoning_tokens! <= usage!.completion_tokens - 4, String(reasoning_tokens));
    const plain = await client.chat.completions.create({
      model: "m",
      messages: [{ role: "user", content: "[[[Yes.]]]" }],
    });
    assert.equal(plain.usage!.completion_tokens_details!.reasoning_tokens, 0);
  });
});
