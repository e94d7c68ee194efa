import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { soon, withServer } from "./harness.ts";

Deno.test("/v1/completions answers the openai client", async () => {
  await withServer({}, async ({ client }) => {
    const answer = await client.completions.create({ model: "fake", prompt: "[[[Hello the world]]]", temperature: 0 });
    assert.equal(answer.choices[0].text, "Hello the world");
    assert.equal(answer.choices[0].finish_reason, "stop");
    assert.equal(answer.object, "text_completion");
    assert.deepEqual(
      [answer.usage!.prompt_tokens, answer.usage!.completion_tokens, answer.usage!.total_tokens],
      [19, 13, 32],
    );
    const cut = await client.completions.create({ model: "fake", prompt: "[[[Hello]]]", max_tokens: 2 });
    assert.deepEqual([cut.choices[0].text, cut.choices[0].finish_reason], ["He", "length"]);
  });
});

Deno.test("/v1/completions streams to the openai client, usage last", async () => {
  await withServer({}, async ({ client }) => {
    const stream = await client.completions.create({
      model: "fake",
      prompt: "[[[Hello the world]]]",
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = "", reason: string | null = null, usage;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.text ?? "";
      reason = chunk.choices[0]?.finish_reason ?? reason;
      usage = chunk.usage;
    }
    assert.deepEqual([text, reason, usage?.completion_tokens], ["Hello the world", "stop", 13]);
  });
});

Deno.test("/v1/completions takes ids, several prompts, and streams them side by side", async () => {
  await withServer({}, async ({ client, post, events }) => {
    const prompt = ["[[[one]]]", "[[[the two]]]", "[[[three]]]"];
    const answer = await client.completions.create({ model: "fake", prompt });
    assert.deepEqual(answer.choices.map((c) => [c.index, c.text]), [[0, "one"], [1, "the two"], [2, "three"]]);
    const tokens = await Promise.all(prompt.map(async (content) => (await post("/tokenize", { content })).body.tokens));
    const byIds = await client.completions.create({ model: "fake", prompt: tokens as never });
    assert.deepEqual(byIds.choices.map((c) => c.text), ["one", "the two", "three"]);
    const texts = ["", "", ""];
    for (const event of await events("/v1/completions", { prompt, stream: true })) {
      for (const choice of event.choices ?? []) texts[choice.index] += choice.text;
    }
    assert.deepEqual(texts, ["one", "the two", "three"]);
  });
});

Deno.test("/v1/completions echoes a prompt with its log-probabilities, for scorers", async () => {
  await withServer({ n_ubatch: 8 }, async ({ post, events }) => {
    const body = { prompt: "Ok [[[aé]]]", echo: true, logprobs: 2, max_tokens: 2 };
    const { body: answer } = await post("/v1/completions", body);
    const [choice] = answer.choices;
    assert.equal(choice.text, "Ok [[[aé]]]a\ufffd");
    const { tokens, token_logprobs, top_logprobs, text_offset } = choice.logprobs;
    assert.equal(tokens.length, 13 + 2);
    assert.equal(tokens.slice(1, 10).join(""), "Ok [[[abytes:\\xc3bytes:\\xa9");
    assert.deepEqual([token_logprobs[0], top_logprobs[0]], [null, null]);
    for (let i = 1; i < tokens.length; i++) {
      assert.ok(token_logprobs[i] < 0);
      assert.equal(top_logprobs[i][tokens[i]], token_logprobs[i]);
      assert.ok(Object.keys(top_logprobs[i]).length <= 3);
    }
    assert.deepEqual(text_offset, [0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10, 11, 12]);
    // The same numbers when nothing is generated, when the prompt is cached, and in a stream.
    const scored = await post("/v1/completions", { ...body, max_tokens: 0 });
    assert.deepEqual(scored.body.choices[0].logprobs.token_logprobs, token_logprobs.slice(0, 13));
    assert.equal(scored.body.choices[0].finish_reason, "length");
    const streamed = await events("/v1/completions", { ...body, stream: true });
    const parts = streamed.filter((e) => e.choices?.[0]?.logprobs).map((e) => e.choices[0]);
    assert.deepEqual(parts.flatMap((p) => p.logprobs.token_logprobs), token_logprobs);
    assert.deepEqual(parts.flatMap((p) => p.logprobs.text_offset), text_offset);
    const plain = await post("/v1/completions", { ...body, echo: true, logprobs: null });
    assert.deepEqual([plain.body.choices[0].text, plain.body.choices[0].logprobs], ["Ok [[[aé]]]a\ufffd", null]);
  });
});

Deno.test("stop strings are cut exactly, whatever they share with the text", async () => {
  await withServer({}, async ({ post, events }) => {
    const cases: [script: string, stop: string | string[], text: string, word: string][] = [
      [" Alice!", ["\n", "Alice:"], " Alice!", ""],
      ["ab!cd", ["\n", "ab:"], "ab!cd", ""],
      ["say the end", ["the en"], "say ", "the en"],
      ["aab!", "ab", "a", "ab"],
      ["one\n\ntwo", ["\n"], "one", "\n"],
      ["xyz", ["z"], "xy", "z"],
      ["abc", ["abcd"], "abc", ""],
      ["\\xf0\\x9f\\x98\\x80!", ["!"], "😀", "!"],
    ];
    for (const [script, stop, text, word] of cases) {
      const body = { prompt: `[[[${script}]]]`, stop, n_probs: 1 };
      const { body: whole } = await post("/completion", body);
      assert.deepEqual([whole.content, whole.stopping_word, whole.stop_type], [text, word, word ? "word" : "eos"]);
      const parts = await events("/completion", { ...body, stream: true });
      assert.equal(parts.map((e) => e.content).join(""), text);
      assert.equal(parts.at(-1).stopping_word, word);
      // The records are those of the text: what was cut has none.
      const bytes = whole.completion_probabilities.flatMap((p: { bytes: number[] }) => p.bytes);
      assert.ok(new TextDecoder().decode(Uint8Array.from(bytes)).startsWith(text));
      assert.deepEqual(parts.flatMap((e) => e.completion_probabilities ?? []), whole.completion_probabilities);
    }
  });
});

Deno.test("answers with invalid UTF-8 stay valid JSON, bytes are exact", async () => {
  await withServer({}, async ({ post, events, client }) => {
    const script = "\\xff\\xc3a\\xf0\\x9f\\x98\\x80\\xf0\\x9f";
    const bytes = [0xff, 0xc3, 0x61, 0xf0, 0x9f, 0x98, 0x80, 0xf0, 0x9f];
    const text = "\ufffd\ufffda😀\ufffd";
    const body = { prompt: `[[[${script}]]]`, n_probs: 1 };
    const { body: whole } = await post("/completion", body);
    assert.equal(whole.content, text);
    const exact = (all: { bytes: number[] }[]) => all.flatMap((p) => p.bytes);
    assert.deepEqual(exact(whole.completion_probabilities), bytes);
    const parts = await events("/completion", { ...body, stream: true });
    assert.equal(parts.map((e) => e.content).join(""), text);
    assert.deepEqual(exact(parts.flatMap((e) => e.completion_probabilities ?? [])), bytes);
    // Cut in the middle of a character.
    assert.equal((await post("/completion", { ...body, n_predict: 5 })).body.content, "\ufffd\ufffda\ufffd");
    const chat = await client.chat.completions.create({
      model: "fake",
      messages: [{ role: "user", content: `[[[${script}]]]` }],
      logprobs: true,
      top_logprobs: 2,
    });
    assert.equal(chat.choices[0].message.content, text);
    assert.deepEqual(exact(chat.choices[0].logprobs!.content as never), bytes);
    assert.equal(chat.choices[0].logprobs!.content![0].top_logprobs.length, 2);
    // Forced by biases, as somebody would to see the server fall.
    const forced = await post("/completion", { prompt: "x", n_predict: 4, logit_bias: [[0xff, 100]] });
    assert.equal(forced.body.content, "\ufffd".repeat(4));
  });
});

Deno.test("limits: huge is clamped to the context, 0 is none", async () => {
  await withServer({ n_ctx: 32 }, async ({ post }) => {
    for (const n_predict of [3e9, 1e300, -1, 24]) {
      const { status, body } = await post("/completion", { prompt: "babble", n_predict, ignore_eos: true });
      assert.deepEqual([status, body.tokens_predicted, body.stop_type], [200, n_predict === 24 ? 24 : 26, "limit"]);
    }
    const none = await post("/completion", { prompt: "babble", n_predict: 0 });
    assert.deepEqual([none.body.content, none.body.tokens_predicted], ["", 0]);
    const zero = await post("/v1/completions", { prompt: "babble", max_tokens: 0 });
    assert.deepEqual([zero.body.choices[0].text, zero.body.usage.completion_tokens], ["", 0]);
    for (const [prompt, n] of [["x".repeat(40), 41], ["x".repeat(31), 32]] as const) {
      const { status, body } = await post("/completion", { prompt });
      assert.equal(status, 400);
      assert.deepEqual([body.error.n_prompt_tokens, body.error.n_ctx], [n, 32]);
      assert.equal(body.error.code, "context_length_exceeded");
    }
  });
});

Deno.test("the same seed gives the same answer, alone and in company; other seeds differ", async () => {
  await withServer({ n_ubatch: 16, n_slots: 4 }, async ({ post }) => {
    const ask = async (prompt: string, seed: number) =>
      (await post("/completion", { prompt, seed, temperature: 1.2, n_predict: 40, cache_prompt: seed % 2 === 0 })).body;
    const jobs = ["a", "some words", "x".repeat(100), "the the the "].flatMap((p) =>
      [1, 2, 3].map((s) => [p, s] as const)
    );
    const alone = [];
    for (const [p, s] of jobs) alone.push((await ask(p, s)).content);
    const together = await Promise.all(jobs.map(([p, s]) => ask(p, s)));
    assert.deepEqual(together.map((b) => b.content), alone);
    assert.equal(new Set(alone).size, jobs.length);
    const first = await post("/completion", { prompt: "a", n_predict: 30 });
    const { seed } = first.body.generation_settings;
    assert.ok(seed >= 0);
    const again = await post("/completion", { prompt: "a", n_predict: 30, seed });
    assert.equal(again.body.content, first.body.content);
  });
});

Deno.test("/completion streams events without [DONE] and tells slot, cache and times", async () => {
  await withServer({ n_slots: 2 }, async ({ post, events }) => {
    const body = { prompt: "[[[Hello the world]]]", id_slot: 1 };
    const parts = await events("/completion", { ...body, stream: true });
    assert.equal(parts.slice(0, -1).map((e) => e.content).join(""), "Hello the world");
    assert.ok(parts.slice(0, -1).every((e) => e.stop === false && e.tokens.length > 0));
    const last = parts.at(-1);
    assert.deepEqual([last.stop, last.stop_type, last.id_slot, last.tokens_predicted], [true, "eos", 1, 13]);
    const again = await post("/completion", { ...body, return_tokens: true });
    assert.equal(again.body.timings.cache_n, 18);
    assert.equal(again.body.timings.prompt_n, 1);
    assert.equal(again.body.tokens.length, 12);
    const fresh = await post("/completion", { ...body, cache_prompt: false });
    assert.equal(fresh.body.timings.cache_n, 0);
    assert.deepEqual(fresh.body.tokens, []);
    const mixed = await post("/completion", { prompt: [91, "[[ab", "]]]"] });
    assert.equal(mixed.body.content, "ab");
    const both = await post("/completion", { prompt: ["[[[1]]]", "[[[2]]]"] });
    assert.deepEqual(both.body.map((b: { content: string }) => b.content), ["1", "2"]);
  });
});

Deno.test("/tokenize, /detokenize and /apply-template", async () => {
  await withServer({}, async ({ post }) => {
    assert.deepEqual((await post("/tokenize", { content: "ab<s>" })).body, { tokens: [263, 258] });
    const plain = { content: "<s>", parse_special: false, add_special: true };
    assert.deepEqual((await post("/tokenize", plain)).body, { tokens: [258, 60, 115, 62] });
    const pieces = await post("/tokenize", { content: "é", with_pieces: true });
    assert.deepEqual(pieces.body.tokens, [{ id: 195, piece: [195] }, { id: 169, piece: [169] }]);
    assert.deepEqual((await post("/detokenize", { tokens: [258, 195, 169, 195] })).body, { content: "<s>é\ufffd" });
    const { body } = await post("/apply-template", { messages: [{ role: "user", content: "Hi" }] });
    assert.deepEqual(body, { prompt: "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" });
    const text = fc.string({ unit: "grapheme", maxLength: 50 });
    await fc.assert(
      fc.asyncProperty(text, async (content) => {
        const { tokens } = (await post("/tokenize", { content })).body;
        assert.equal((await post("/detokenize", { tokens })).body.content, content);
      }),
      { numRuns: 50 },
    );
  });
});

Deno.test("a client that leaves frees its slot within a second: streaming, waiting, and not streaming", async () => {
  await withServer({ n_slots: 1, stepMs: 10 }, async ({ server, client, post }) => {
    const { scheduler } = server;
    const babble = { model: "fake", prompt: "babble", max_tokens: 400, logit_bias: { "257": -100 } };
    // Streaming, with another client waiting behind, who leaves too.
    const stream = await client.completions.create({ ...babble, stream: true });
    const waiting = new AbortController();
    const queued = client.completions.create(babble, { signal: waiting.signal });
    await soon(() => scheduler.n_active === 1 && scheduler.n_waiting === 1, "one works, one waits");
    waiting.abort();
    await assert.rejects(queued);
    await soon(() => scheduler.n_waiting === 0, "the queue is empty");
    for await (const _ of stream) break;
    stream.controller.abort();
    await soon(() => scheduler.n_active === 0, "the stream's slot is free");
    // Not streaming.
    const leaving = new AbortController();
    const whole = client.completions.create(babble, { signal: leaving.signal });
    await soon(() => scheduler.n_active === 1, "it works");
    leaving.abort();
    await assert.rejects(whole);
    await soon(() => scheduler.n_active === 0, "the slot is free");
    assert.equal((await post("/completion", { prompt: "[[[ok]]]" })).body.content, "ok");
    assert.equal(scheduler.views()[0].is_processing, false);
  });
});

Deno.test("many clients, some leaving at any time, leave nothing behind", async () => {
  await withServer(
    { n_slots: 3, n_ubatch: 16, n_cache: 400, n_ctx: 128, stepMs: 1 },
    async ({ server, engine, client }) => {
      let seed = 1;
      const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
      const visits = Array.from({ length: 60 }, async (_, i) => {
        await new Promise((resolve) => setTimeout(resolve, random() * 300));
        const leave = new AbortController();
        const body = { model: "fake", prompt: `${i % 7} ${"x".repeat(i)} [[[answer ${i}]]]` };
        if (random() < 0.5) setTimeout(() => leave.abort(), random() * 60);
        try {
          let text = "";
          if (i % 2 === 0) text = (await client.completions.create(body, { signal: leave.signal })).choices[0].text;
          else {
            const stream = await client.completions.create({ ...body, stream: true }, { signal: leave.signal });
            for await (const chunk of stream) text += chunk.choices[0].text;
          }
          if (!leave.signal.aborted) assert.equal(text, `answer ${i}`);
        } catch (error) {
          if (!leave.signal.aborted) throw error;
        }
      });
      await Promise.all(visits);
      await soon(() => server.scheduler.n_active + server.scheduler.n_waiting === 0, "all slots are free");
      assert.ok(engine.sequences.size <= 3);
    },
  );
});
