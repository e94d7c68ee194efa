/** llama-server's own fields: what /completion takes and tells beyond an answer's text. */
import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { LineLimits } from "../../serve/line_limits.ts";
import { pickFields } from "../../serve/native_result.ts";
import { soon, withServer } from "./harness.ts";

Deno.test("generation_settings tells every setting in force, also in /slots", async () => {
  await withServer({ stop: ["END"], dryBreakers: ["x"] }, async ({ post, server }) => {
    const asked = {
      prompt: "[[[hello]]]",
      n_predict: 3,
      seed: 7,
      temperature: 0.5,
      logit_bias: [[65, false], [66, 2]],
      n_keep: 2,
      n_discard: 1,
      samplers: ["top_k", "temperature"],
      mirostat_tau: 4,
      n_probs: 1,
      min_keep: 2,
    };
    const { body } = await post("/completion", asked);
    const settings = body.generation_settings;
    const { prompt: _, logit_bias: __, ...plain } = asked;
    for (const [name, value] of Object.entries(plain)) assert.deepEqual(settings[name], value, name);
    assert.deepEqual(settings.logit_bias, [{ bias: null, token: 65 }, { bias: 2, token: 66 }]);
    assert.deepEqual([settings.stop, settings.dry_sequence_breakers], [["END"], ["x"]]);
    assert.deepEqual([settings.max_tokens, settings["speculative.types"], settings.lora], [3, "none", []]);
    const slots = await (await fetch(`${server.url}/slots`)).json();
    const used = slots.find((slot: any) => slot.params !== undefined);
    assert.deepEqual(used.params, settings);
    assert.deepEqual(used.next_token, [{ has_next_token: false, has_new_line: false, n_remain: -1, n_decoded: 0 }]);
    assert.equal(slots.find((slot: any) => slot.params === undefined).id_task, undefined);
    const props = await (await fetch(`${server.url}/props`)).json();
    assert.equal(props.default_generation_settings.params.seed, 2 ** 32 - 1);
  });
});

Deno.test("stop strings of the server hold where a request names none", async () => {
  await withServer({ stop: ["lo"] }, async ({ post }) => {
    const ask = async (more: object) => (await post("/completion", { prompt: "[[[hello]]]", ...more })).body.content;
    assert.deepEqual([await ask({}), await ask({ stop: [] }), await ask({ stop: ["o"] })], ["hel", "hel", "hell"]);
  });
});

Deno.test("an answer that the context cuts off is told from one that its own limit ends", async () => {
  await withServer({ n_ctx: 40, n_slots: 1 }, async ({ post }) => {
    const ask = async (n_predict: number) => {
      const { body } = await post("/completion", { prompt: "babble", n_predict, ignore_eos: true });
      return [body.tokens_evaluated + body.tokens_predicted, body.stop_type, body.truncated];
    };
    assert.deepEqual(await ask(-1), [40, "limit", true]);
    assert.deepEqual(await ask(1000), [40, "limit", true]);
    assert.deepEqual((await ask(5)).slice(1), ["limit", false]);
  });
});

Deno.test("prompt_progress begins at what was cached and ends at the whole prompt, in every stream that asks", async () => {
  await withServer({ n_ubatch: 64 }, async ({ events }) => {
    const prompt = "x".repeat(200) + "[[[yes]]]";
    for (const warm of [false, true]) {
      const all = await events("/completion", { prompt, stream: true, return_progress: true });
      const told = all.flatMap((e) => e.prompt_progress === undefined ? [] : [e.prompt_progress]);
      assert.equal(told[0].processed, told[0].cache);
      assert.equal(told[0].cache > 0, warm);
      assert.equal(told.at(-1).processed, told.at(-1).total);
      assert.ok(told.every((p, i) => i === 0 || p.processed > told[i - 1].processed), JSON.stringify(told));
      assert.equal(told.length > 3, !warm);
      assert.equal(all.map((e) => e.content).join(""), "yes");
    }
    const chat = { messages: [{ role: "user", content: prompt }], stream: true, return_progress: true };
    for (const [path, body] of [["/v1/chat/completions", chat], ["/v1/completions", { ...chat, prompt }]] as const) {
      const all = await events(path, { ...body, max_tokens: 20 });
      const told = all.filter((e) => e.prompt_progress !== undefined);
      assert.ok(told.length > 0 && told.at(-1).prompt_progress.processed === told[0].prompt_progress.total, path);
    }
  });
});

Deno.test("timings_per_token puts timings into every event", async () => {
  await withServer({}, async ({ events }) => {
    const messages = [{ role: "user", content: "[[[Alice]]]" }];
    for (const path of ["/completion", "/v1/completions", "/v1/chat/completions"]) {
      const ask = { prompt: "[[[Hallo]]]", messages, stream: true };
      const counts = async (more: object) => {
        const all = await events(path, { ...ask, ...more });
        return all.filter((e) => e !== "[DONE]" && e.timings !== undefined).map((e) => e.timings.predicted_n);
      };
      assert.equal((await counts({})).length, 1, path);
      const each = await counts({ timings_per_token: true });
      assert.ok(each.length > 1 && each[0] === 1, `${path} ${each}`);
    }
  });
});

Deno.test("post_sampling_probs tells what the sampler drew from: no more candidates than it left, and 1 where it had no choice", async () => {
  await withServer({}, async ({ post, events }) => {
    const ask = { prompt: "babble", n_predict: 4, n_probs: 10, post_sampling_probs: true, seed: 3 };
    const { body } = await post("/completion", { ...ask, top_k: 3, top_p: 1, min_p: 0, temperature: 1 });
    for (const entry of body.completion_probabilities) {
      assert.equal(entry.top_probs.length, 3);
      const sum = entry.top_probs.reduce((n: number, p: any) => n + p.prob, 0);
      assert.ok(Math.abs(sum - 1) < 1e-9 && entry.logprob === undefined);
      assert.equal(entry.top_probs.find((p: any) => p.id === entry.id).prob, entry.prob);
    }
    const greedy = await post("/completion", { ...ask, temperature: 0 });
    for (const { prob, top_probs } of greedy.body.completion_probabilities) {
      assert.deepEqual([prob, top_probs.length, top_probs[0].prob], [1, 1, 1]);
    }
    const whole = await post("/completion", { ...ask, top_k: 0, top_p: 1, min_p: 0, n_predict: 1 });
    assert.equal(whole.body.completion_probabilities[0].top_probs.length, 10);
    const streamed = await events("/completion", { ...ask, stream: true });
    assert.ok(streamed[0].completion_probabilities[0].prob > 0);
  });
});

Deno.test("response_fields keeps what it names, and verbose adds the native answer", async () => {
  await withServer({}, async ({ post, events }) => {
    const fields = { response_fields: ["content", "generation_settings/n_predict", "nothing/here"] };
    const { body } = await post("/completion", { prompt: "[[[hi]]]", n_predict: 5, ...fields });
    assert.deepEqual(body, { content: "hi", "generation_settings/n_predict": 5 });
    const messages = [{ role: "user", content: "[[[hi\\x0athere]]]" }];
    for (const path of ["/v1/chat/completions", "/v1/completions"]) {
      const ask = { messages, prompt: "[[[hi\\x0athere]]]", verbose: true };
      const { __verbose } = (await post(path, ask)).body;
      assert.deepEqual([__verbose.content, __verbose.has_new_line, __verbose.stop], ["hi\nthere", true, true]);
      assert.ok(__verbose.prompt.includes("hi\\x0athere") && __verbose.tokens.length > 0);
      const streamed = (await events(path, { ...ask, stream: true })).filter((e) => e.__verbose !== undefined);
      assert.deepEqual(streamed.map((e) => [e.__verbose.content, e.__verbose.has_new_line]), [["", true]]);
      assert.equal((await post(path, { ...ask, verbose: false })).body.__verbose, undefined);
    }
  });
  await withServer({ verbose: true }, async ({ post }) => {
    const { body } = await post("/v1/completions", { prompt: "[[[hi]]]" });
    assert.equal(body.__verbose.content, "hi");
  });
  fc.assert(fc.property(fc.object(), fc.array(fc.string()), (from, names) => {
    const picked = pickFields(from, ["a", ...names]);
    for (const name of Object.keys(picked)) assert.ok(name === "a" || names.includes(name));
  }));
});

Deno.test("n_cmpl gives several answers to each prompt, which is computed once", async () => {
  await withServer({ n_slots: 3 }, async ({ post, server }) => {
    const { body } = await post("/completion", { prompt: ["[[[one]]]", "[[[two]]]"], n_cmpl: 3, n_predict: 9 });
    assert.deepEqual(body.map((a: any) => [a.index, a.content]), [
      ...[0, 1, 2].map((i) => [i, "one"]),
      ...[3, 4, 5].map((i) => [i, "two"]),
    ]);
    assert.ok(server.scheduler.counters.n_cached_tokens > 0);
    assert.equal((await post("/completion", { prompt: "x", n: 2, n_cmpl: 3 })).body.error.param, "n");
  });
});

Deno.test("a prompt may come in an object, alone or among others; pictures beside it are refused", async () => {
  await withServer({}, async ({ post }) => {
    const one = { prompt_string: "[[[one]]]" };
    const contents = async (prompt: unknown) => {
      const { body } = await post("/completion", { prompt });
      return Array.isArray(body) ? body.map((a) => a.content) : body.content ?? body.error.param;
    };
    assert.equal(await contents(one), "one");
    assert.deepEqual(await contents([one, "[[[two]]]", [..."[[[3]]]"].map((c) => c.charCodeAt(0))]), [
      "one",
      "two",
      "3",
    ]);
    assert.equal(await contents({ ...one, multimodal_data: [] }), "one");
    assert.equal(await contents({ ...one, multimodal_data: ["AAAA"] }), "prompt.multimodal_data");
    assert.equal(await contents([one, { ...one, multimodal_data: ["AAAA"] }]), "prompt[1].multimodal_data");
    assert.equal(await contents([one, 5]), "prompt[1]");
    assert.equal(await contents({ text: "x" }), "prompt.prompt_string");
  });
});

Deno.test("n_indent ends an answer at the first line that is indented less", async () => {
  await withServer({}, async ({ post, events }) => {
    const script = "if x:\\x0a    a = 1\\x0a\\x0a\\x09    b = 2\\x0a  c = 3\\x0a    d";
    const ask = { prompt: `[[[${script}]]]`, n_predict: 60 };
    const kept = "if x:\n    a = 1\n\n\t    b = 2\n  ";
    const { body } = await post("/completion", { ...ask, n_indent: 4 });
    assert.deepEqual([body.content, body.stop_type], [kept, "limit"]);
    const streamed = await events("/completion", { ...ask, n_indent: 4, stream: true });
    assert.equal(streamed.map((e) => e.content).join(""), kept);
    assert.equal((await post("/completion", { ...ask, n_indent: 2 })).body.stop_type, "eos");
    assert.equal((await post("/completion", { ...ask, n_indent: -1 })).body.error.param, "n_indent");
  });
});

Deno.test("LineLimits ends by time only once there is a new line", () => {
  let now = 0;
  const lines = new LineLimits({ n_indent: 0, t_max_predict_ms: 100 }, () => now);
  assert.deepEqual(lines.push("a"), { text: "a", ended: false });
  now = 500;
  assert.deepEqual(lines.push("b"), { text: "b", ended: false });
  assert.deepEqual(lines.push("c\nd"), { text: "c\nd", ended: true });
});

Deno.test("a client that leaves before its whole answer never keeps its slot", async () => {
  await withServer({ n_slots: 1, stepMs: 2 }, async ({ server }) => {
    for (let i = 0; i < 20; i++) {
      const body = JSON.stringify({ prompt: "babble", n_predict: 400, ignore_eos: true });
      const leave = new AbortController();
      const answer = fetch(`${server.url}/completion`, { method: "POST", body, signal: leave.signal });
      await soon(() => server.scheduler.n_active === 1, `request ${i} runs`);
      leave.abort();
      await assert.rejects(answer);
      await soon(() => server.scheduler.n_active === 0, `the slot of request ${i} is free`);
    }
  });
});

Deno.test("the server's own form, reasoning message and reading of answers hold where a request does not say", async () => {
  const messages = [{ role: "user", content: "[[[maybe]]]" }];
  const tools = [{ type: "function", function: { name: "tool", parameters: {} } }];
  await withServer({ form: { grammar: 'root ::= "yes" | "no"' }, n_ctx: 2048 }, async ({ post }) => {
    const ask = async (more: object) =>
      (await post("/v1/chat/completions", { messages, max_tokens: 20, temperature: 0, ...more })).body.choices[0]
        .message;
    assert.match((await ask({})).content, /^(yes|no)$/);
    assert.match((await post("/completion", { prompt: "x" })).body.content, /^(yes|no)$/);
    assert.equal((await ask({ grammar: 'root ::= "own"' })).content, "own");
    assert.equal((await ask({ json_schema: { const: 5 } })).content, "5");
    assert.equal((await ask({ response_format: { type: "text" } })).content, "maybe");
    assert.equal((await ask({ tools })).content, "maybe");
  });
  const script = "<think>a b c d e f</think>it";
  await withServer({ reasoningBudgetMessage: " enough" }, async ({ post }) => {
    const ask = async (more: object) =>
      (await post("/v1/chat/completions", {
        messages: [{ role: "user", content: `[[[${script}]]]` }],
        reasoning_budget_tokens: 3,
        max_tokens: 60,
        ...more,
      })).body.choices[0].message.reasoning_content;
    assert.equal(await ask({}), "a b enough");
    assert.equal(await ask({ reasoning_budget_message: " now" }), "a b now");
  });
  await withServer({ readsAnswers: false }, async ({ post }) => {
    const { body } = await post("/v1/chat/completions", { messages: [{ role: "user", content: `[[[${script}]]]` }] });
    assert.deepEqual(body.choices[0].message, { role: "assistant", content: script });
  });
  await withServer({ cachePrompt: false }, async ({ post }) => {
    const cached = async (more: object) =>
      (await post("/completion", { prompt: "[[[hello]]]", ...more })).body.timings.cache_n;
    assert.deepEqual([await cached({}), await cached({}), await cached({ cache_prompt: true })].map((n) => n > 0), [
      false,
      false,
      true,
    ]);
  });
});

Deno.test("an answer of one token has numbers for all of its timings, and its usage", async () => {
  await withServer({}, async ({ post, events }) => {
    const messages = [{ role: "user", content: "[[[yes]]]" }];
    for (const path of ["/completion", "/v1/completions", "/v1/chat/completions"]) {
      const { body } = await post(path, { prompt: "[[[yes]]]", messages, max_tokens: 1 });
      const { timings } = body;
      assert.ok(Object.values(timings).every((n) => typeof n === "number"), path);
      assert.deepEqual([timings.predicted_n, timings.predicted_per_second, timings.predicted_per_token_ms], [1, 0, 0]);
      if (path !== "/completion") assert.equal(body.usage.completion_tokens, 1);
    }
    const chat = { messages, max_tokens: 1, stream: true, stream_options: { include_usage: true } };
    const all = await events("/v1/chat/completions", chat);
    assert.deepEqual(all[0].choices[0].delta, { role: "assistant", content: null });
    const last = all.at(-2);
    assert.deepEqual([last.choices, last.usage.completion_tokens, last.timings.predicted_n], [[], 1, 1]);
  });
});
