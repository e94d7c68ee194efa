import assert from "node:assert/strict";
import OpenAI from "npm:openai@7.59.0";
import { soon, withServer } from "./harness.ts";

Deno.test("bad requests are a 400 that names the field", async () => {
  await withServer({ n_slots: 2 }, async ({ post, client }) => {
    const user = { role: "user", content: "x" };
    const call = (args: unknown) => ({ role: "assistant", tool_calls: [{ function: { name: "f", arguments: args } }] });
    const cases: [path: string, body: unknown, param: string | null][] = [
      ["/completion", "{bad", null],
      ["/completion", "", null],
      ["/completion", "[]", null],
      ["/completion", new Uint8Array([0x22, 0xff, 0x22]), null],
      ["/completion", "[".repeat(100_000), null],
      ["/completion", { prompt: "x", extra: JSON.parse("[".repeat(5000) + "]".repeat(5000)) }, null],
      ["/completion", {}, "prompt"],
      ["/completion", { prompt: "" + "x", n_predict: 1.5 }, "n_predict"],
      ["/completion", { prompt: "x", n_predict: "5" }, "n_predict"],
      ["/completion", { prompt: "x", n_predict: -2 }, "n_predict"],
      ["/completion", { prompt: "x", temperature: "hot" }, "temperature"],
      ["/completion", { prompt: "x", temperature: -1 }, "temperature"],
      ["/completion", { prompt: "x", top_p: 2 }, "top_p"],
      ["/completion", { prompt: "x", stop: [1] }, "stop[0]"],
      ["/completion", { prompt: "x", stream: "yes" }, "stream"],
      ["/completion", { prompt: [1, 99999] }, "prompt"],
      ["/completion", { prompt: [] }, "prompt"],
      ["/completion", { prompt: [[]] }, "prompt[0]"],
      ["/completion", { prompt: [[1], [2.5]] }, "prompt[1][0]"],
      ["/completion", { prompt: "x", id_slot: 2 }, "id_slot"],
      ["/completion", { prompt: "x", samplers: ["top_k", "best"] }, "samplers[1]"],
      ["/completion", { prompt: "x", samplers: "kq" }, "samplers"],
      ["/completion", { prompt: "x", logit_bias: { "99999": 1 } }, "logit_bias"],
      ["/completion", { prompt: "x", grammar: "root ::= " + "(".repeat(60_000) }, "grammar"],
      ["/completion", { prompt: "x", grammar: 'root ::= "a"', json_schema: {} }, "json_schema"],
      ["/completion", { prompt: "x", grammar: "root ::= (" }, "grammar"],
      ["/completion", { prompt: "x", json_schema: { $ref: "#" } }, "json_schema"],
      ["/completion", { prompt: "x", json_schema: { type: "string", minLength: -1 } }, "json_schema"],
      ["/completion", { prompt: "x", json_schema: { type: "array", maxItems: 100_000 } }, "json_schema"],
      ["/completion", { prompt: "x", post_sampling_probs: 1 }, "post_sampling_probs"],
      ["/v1/completions", { prompt: "x", n: 0 }, "n"],
      ["/v1/completions", { prompt: "x", best_of: 0 }, "best_of"],
      ["/v1/completions", { prompt: "x", suffix: "y" }, "suffix"],
      ["/v1/completions", { prompt: "x", max_tokens: "many" }, "max_tokens"],
      ["/v1/chat/completions", { messages: [] }, "messages"],
      ["/v1/chat/completions", { messages: "hi" }, "messages"],
      ["/v1/chat/completions", { messages: [user, { content: "x" }] }, "messages[1].role"],
      ["/v1/chat/completions", { messages: [{ role: "user" }] }, "messages[0].content"],
      ["/v1/chat/completions", { messages: [{ role: "user", content: 5 }] }, "messages[0].content"],
      [
        "/v1/chat/completions",
        { messages: [{ role: "user", content: [{ type: "text", text: "x" }, { type: "image_url", image_url: {} }] }] },
        "messages[0].content[1]",
      ],
      ["/v1/chat/completions", { messages: [user, call("{"), user] }, "messages[1].tool_calls[0].function.arguments"],
      ["/v1/chat/completions", { messages: [user, call("[1]"), user] }, "messages[1].tool_calls[0].function.arguments"],
      ["/v1/chat/completions", { messages: [user], n: 200 }, "n"],
      ["/v1/chat/completions", { messages: [user], top_logprobs: 3 }, "top_logprobs"],
      ["/v1/chat/completions", { messages: [user], logprobs: true, top_logprobs: 21 }, "top_logprobs"],
      ["/v1/chat/completions", { messages: [user], response_format: { type: "xml" } }, "response_format.type"],
      ["/v1/chat/completions", { messages: [user], tool_choice: "required" }, "tool_choice"],
      ["/v1/chat/completions", { messages: [user], tools: [{ type: "function" }] }, "tools[0].function"],
      ["/v1/chat/completions", { messages: [user], functions: [] }, "functions"],
      [
        "/v1/chat/completions",
        { messages: [user], chat_template_kwargs: { enable_thinking: "yes" } },
        "chat_template_kwargs.enable_thinking",
      ],
      ["/v1/chat/completions", { messages: [user], continue_final_message: true }, "continue_final_message"],
      ["/tokenize", { content: 5 }, "content"],
      ["/detokenize", { tokens: "x" }, "tokens"],
      ["/detokenize", { tokens: [99999] }, "tokens"],
    ];
    for (const [path, body, param] of cases) {
      const { status, body: answer } = await post(path, body);
      const shown = `${path} ${JSON.stringify(body).slice(0, 100)} -> ${JSON.stringify(answer)}`;
      assert.equal(status, 400, shown);
      assert.deepEqual(Object.keys(answer.error).slice(0, 4), ["message", "type", "code", "param"], shown);
      assert.equal(answer.error.type, "invalid_request_error", shown);
      assert.equal(answer.error.param, param, shown);
      if (param !== null) assert.ok(answer.error.message.includes(param.split(".")[0]), shown);
    }
    const refused = await post("/v1/chat/completions", { messages: [{ role: "bad", content: "x" }] });
    assert.deepEqual([refused.status, refused.body.error.message.includes("No role bad here")], [400, true]);
    // The openai client understands them.
    await assert.rejects(
      client.completions.create({ model: "fake", prompt: "x", temperature: -1 }),
      (e) => e instanceof OpenAI.BadRequestError && e.param === "temperature",
    );
    assert.equal((await post("/completion", { prompt: "[[[ok]]]" })).body.content, "ok");
  });
});

Deno.test("null counts as absent, unknown fields pass", async () => {
  await withServer({}, async ({ post }) => {
    const body = {
      prompt: "[[[ok]]]",
      temperature: null,
      stop: null,
      n: null,
      logit_bias: null,
      user: "me",
      nothing: 1,
    };
    assert.equal((await post("/v1/completions", body)).body.choices[0].text, "ok");
  });
});

Deno.test("paths and methods", async () => {
  await withServer({}, async ({ server, post }) => {
    assert.equal((await post("/v1/nothing", {})).body.error.type, "not_found_error");
    const response = await fetch(server.url + "/completion");
    assert.deepEqual([response.status, response.headers.get("allow")], [405, "POST"]);
    assert.equal((await response.json()).error.code, "method_not_allowed");
    assert.deepEqual(await (await fetch(server.url + "/health")).json(), { status: "ok" });
    const models = await (await fetch(server.url + "/v1/models")).json();
    assert.deepEqual([models.object, models.data[0].id, models.data[0].object], ["list", "fake", "model"]);
    const props = await (await fetch(server.url + "/props")).json();
    assert.deepEqual([props.total_slots, props.default_generation_settings.n_ctx, props.bos_token], [4, 512, "<s>"]);
    assert.equal((await (await fetch(server.url + "/slots")).json()).length, 4);
    assert.equal((await fetch(server.url + "/health", { method: "HEAD" })).status, 200);
    await post("/completion", { prompt: "[[[ok]]]" });
    const metrics = await fetch(server.url + "/metrics");
    assert.ok(metrics.headers.get("content-type")!.startsWith("text/plain"));
    assert.match(await metrics.text(), /^bloomery_tokens_predicted_total 3$/m);
  });
});

Deno.test("a body above the limit is a 413", async () => {
  await withServer({ maxBodyBytes: 1000 }, async ({ server, post }) => {
    assert.equal((await post("/completion", { prompt: "x".repeat(1000) })).body.error.code, "body_too_large");
    // Without a length in front.
    const body = new ReadableStream({
      start(controller) {
        for (let i = 0; i < 3; i++) controller.enqueue(new Uint8Array(500).fill(32));
        controller.close();
      },
    });
    const response = await fetch(server.url + "/completion", { method: "POST", body });
    assert.equal(response.status, 413);
    await response.body?.cancel();
    assert.equal((await post("/completion", { prompt: "[[[ok]]]" })).status, 200);
  });
});

Deno.test("keys are asked for everywhere but at /health and /", async () => {
  await withServer({ apiKeys: ["secret", "other"] }, async ({ server, client, post }) => {
    const refused = await post("/completion", { prompt: "x" });
    assert.deepEqual([refused.status, refused.body.error.type], [401, "authentication_error"]);
    for (const key of ["secre", "secret2", "SECRET", ""]) {
      assert.equal((await post("/completion", { prompt: "x" }, { authorization: `Bearer ${key}` })).status, 401);
    }
    assert.equal((await post("/completion", { prompt: "[[[a]]]" }, { "x-api-key": "other" })).status, 200);
    assert.equal((await client.models.list()).data[0].id, "fake");
    assert.equal((await fetch(server.url + "/health")).status, 200);
    const root = await fetch(server.url + "/", { method: "HEAD" });
    assert.deepEqual([root.status, await root.text()], [200, ""]);
    const wrong = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "wrong", maxRetries: 0 });
    await assert.rejects(wrong.models.list(), (e) => e instanceof OpenAI.AuthenticationError);
  });
});

Deno.test("a full queue is a 503 and the failure of a step a 500, in a stream an error event", async () => {
  const seen: unknown[] = [];
  await withServer({ n_slots: 1, maxQueue: 1, stepMs: 5, onError: (e) => seen.push(e) }, async (h) => {
    const busy = h.post("/completion", { prompt: "[[[abcdefghijklmn]]]" });
    await soon(() => h.server.scheduler.n_active === 1, "it works");
    const waits = h.post("/completion", { prompt: "[[[ab]]]" });
    await soon(() => h.server.scheduler.n_waiting === 1, "it waits");
    const refused = await h.post("/completion", { prompt: "[[[ab]]]" });
    assert.deepEqual([refused.status, refused.body.error.type], [503, "unavailable_error"]);
    assert.equal((await busy).status, 200);
    assert.equal((await waits).status, 200);

    h.engine.failure = new Error("secret path /home/someone");
    const failed = await h.post("/completion", { prompt: "[[[ab]]]" });
    assert.deepEqual([failed.status, failed.body.error.type], [500, "server_error"]);
    assert.ok(!failed.body.error.message.includes("someone"));
    assert.equal(seen.length, 1);
    h.engine.failure = new Error("again");
    const stream = await h.client.completions.create({ model: "fake", prompt: "[[[ab]]]", stream: true });
    await assert.rejects(async () => {
      for await (const _ of stream) { /* until it fails */ }
    }, OpenAI.APIError);
    assert.equal((await h.post("/completion", { prompt: "[[[ok]]]" })).body.content, "ok");
  });
});

Deno.test("drain() finishes what runs and what waits, takes nothing new, and ends", async () => {
  await withServer({ n_slots: 1, stepMs: 5 }, async ({ server, post, events }) => {
    const running = events("/completion", { prompt: "[[[abcdefghij]]]", stream: true });
    const waiting = post("/completion", { prompt: "[[[later]]]" });
    await soon(() => server.scheduler.n_active === 1 && server.scheduler.n_waiting === 1, "one works, one waits");
    const draining = server.drain();
    await assert.rejects(async () => {
      const late = await post("/completion", { prompt: "x" });
      if (late.status === 503) throw new Error("refused"); // on a connection that was open already
    });
    assert.equal((await running).map((e) => e.content).join(""), "abcdefghij");
    assert.equal((await waiting).body.content, "later");
    await draining;
    await server.drained;
    await assert.rejects(fetch(server.url + "/health"));
  });
});

Deno.test("stop() ends at once", async () => {
  await withServer({ n_slots: 1, stepMs: 5 }, async ({ server, post, events }) => {
    const body = { prompt: "babble", n_predict: 400, ignore_eos: true };
    const running = events("/completion", { ...body, stream: true }).catch(() => "gone");
    const waiting = post("/completion", body).catch(() => "gone");
    await soon(() => server.scheduler.n_active === 1 && server.scheduler.n_waiting === 1, "one works, one waits");
    const start = performance.now();
    await server.stop();
    assert.ok(performance.now() - start < 1000);
    await Promise.all([running, waiting]);
  });
});
