/** What every answer has, whatever the route: origins, ids, the log; and clients that leave. */
import assert from "node:assert/strict";
import type { RequestLogEntry } from "../../serve/request_log.ts";
import { formatEntry } from "../../serve/request_log.ts";
import { isCorsOrigin } from "../../serve/cors.ts";
import { openServer } from "../../serve/server.ts";
import { fakeModel } from "./fake.ts";
import { soon, withServer } from "./harness.ts";

const PAGE = "http://localhost:5173";
const say = (content: string) => [{ role: "user", content }];

/** Sends bytes and reads what comes back until the server closes. */
async function raw(port: number, text: string): Promise<string> {
  using connection = await Deno.connect({ hostname: "127.0.0.1", port });
  await connection.write(new TextEncoder().encode(text));
  let out = "";
  for await (const part of connection.readable.pipeThrough(new TextDecoderStream())) out += part;
  return out;
}

Deno.test("a browser may ask from any page, and is told so before it sends anything", async () => {
  await withServer({ apiKeys: ["key"] }, async ({ server }) => {
    const request = Deno.readTextFileSync(new URL("cases/preflight.http", import.meta.url)).replace(/\r?\n/g, "\r\n");
    const answer = (await raw(server.port, request)).toLowerCase();
    assert.match(answer, /^http\/1\.1 200 /);
    assert.ok(answer.includes(`access-control-allow-origin: ${PAGE}\r\n`), answer);
    assert.match(answer, /access-control-allow-methods: .*post/);
    for (const name of ["authorization", "content-type", "x-api-key", "anthropic-version"]) {
      assert.match(answer, new RegExp(`access-control-allow-headers: .*${name}`));
    }
    const preflight = await fetch(`${server.url}/v1/messages`, {
      method: "OPTIONS",
      headers: {
        origin: PAGE,
        "access-control-request-headers": "X-Own",
        "access-control-request-private-network": "true",
      },
    });
    assert.match(preflight.headers.get("access-control-allow-headers")!, /x-own/);
    assert.equal(preflight.headers.get("access-control-allow-private-network"), "true");
    await preflight.body?.cancel();
  });
});

Deno.test("every answer says which pages may read it: whole ones, streams and errors", async () => {
  const ask = async (url: string, path: string, init: RequestInit, origin: string | undefined) => {
    const response = await fetch(url + path, { ...init, headers: origin === undefined ? {} : { origin } });
    await response.body?.cancel();
    return [response.status, response.headers.get("access-control-allow-origin")];
  };
  const chat = (more: object) => ({ method: "POST", body: JSON.stringify({ messages: say("[[[x]]]"), ...more }) });
  const requests: [path: string, init: RequestInit, status: number][] = [
    ["/health", {}, 200],
    ["/v1/chat/completions", chat({}), 200],
    ["/v1/chat/completions", chat({ stream: true }), 200],
    ["/v1/chat/completions", chat({ n: -1 }), 400],
    ["/v1/messages", { method: "POST", body: "{" }, 400],
    ["/nowhere", {}, 404],
    ["/v1/chat/completions", {}, 405],
  ];
  const cases: [origins: string[] | undefined, origin: string | undefined, allowed: string | null][] = [
    [undefined, PAGE, PAGE],
    [undefined, undefined, "*"],
    [["localhost"], PAGE, PAGE],
    [["localhost"], "http://127.0.0.1:3000", "http://127.0.0.1:3000"],
    [["localhost"], "http://[::1]", "http://[::1]"],
    [["localhost"], "https://example.org", null],
    [["localhost"], "http://localhost.example.org", null],
    [["localhost"], undefined, null],
    [["https://example.org", "https://other.org"], "https://other.org", "https://other.org"],
    [["https://example.org"], PAGE, null],
  ];
  for (const [corsOrigins, origin, allowed] of cases) {
    await withServer(corsOrigins === undefined ? {} : { corsOrigins }, async ({ server }) => {
      for (const [path, init, status] of requests) {
        assert.deepEqual(await ask(server.url, path, init, origin), [status, allowed], `${path} ${origin}`);
      }
      const refused = await fetch(server.url, { method: "OPTIONS", headers: { origin: origin ?? "" } });
      assert.equal(refused.headers.get("access-control-allow-methods") !== null, allowed !== null);
      await refused.body?.cancel();
    });
  }
  assert.deepEqual(
    ["*", "localhost", "https://a.org", "https://a.org:8/", "a.org", "https://a.org/path", ""].map(isCorsOrigin),
    [true, true, true, true, false, false, false],
  );
});

Deno.test("keys are taken from three headers", async () => {
  await withServer({ apiKeys: ["other", "key"] }, async ({ server }) => {
    const status = async (headers: Record<string, string>) => {
      const response = await fetch(`${server.url}/v1/models`, { headers });
      await response.body?.cancel();
      return response.status;
    };
    assert.equal(await status({ authorization: "Bearer key" }), 200);
    assert.equal(await status({ authorization: "key" }), 200);
    assert.equal(await status({ "x-api-key": "key" }), 200);
    assert.equal(await status({ authorization: "Bearer sdk-default", "x-api-key": "key" }), 200);
    for (const bad of [{}, { authorization: "Bearer " }, { authorization: "Basic key" }, { "x-api-key": "ke" }]) {
      assert.equal(await status(bad as Record<string, string>), 401);
    }
  });
});

Deno.test("the model answers under each of its names, and under no other", async () => {
  await withServer({ aliases: ["gpt-4o", "org/name"] }, async ({ client, server }) => {
    const [first] = (await client.models.list()).data;
    for (const id of ["fake", "gpt-4o", "org/name"]) assert.deepEqual(await client.models.retrieve(id), first);
    assert.deepEqual([first.id, (first as unknown as { aliases: string[] }).aliases], ["fake", ["gpt-4o", "org/name"]]);
    const other = await fetch(`${server.url}/v1/models/other`);
    assert.deepEqual([other.status, (await other.json()).error.code], [404, "model_not_found"]);
    const wrong = await fetch(`${server.url}/v1/models/fake`, { method: "POST" });
    assert.deepEqual([wrong.status, (await wrong.json()).error.code], [405, "method_not_allowed"]);
  });
});

Deno.test("the log has one entry a request, written when it ends", async () => {
  const entries: RequestLogEntry[] = [];
  const secret = "a secret thing";
  await withServer({ onRequest: (entry) => entries.push(entry) }, async ({ client, post, server }) => {
    const messages = [{ role: "user" as const, content: `${secret} [[[Hello the world]]]` }];
    for (const stream of [false, true]) {
      const answer = await client.chat.completions.create({ model: "m", messages, stream: stream as any, n: 2 });
      if (stream) { for await (const _ of answer as unknown as AsyncIterable<unknown>); }
    }
    await soon(() => entries.length === 2, "both are logged");
    for (const [i, entry] of entries.entries()) {
      assert.deepEqual([entry.method, entry.route, entry.status], ["POST", "/v1/chat/completions", 200]);
      assert.ok(entry.tokens_in! > 20 && entry.tokens_out! > 20);
      assert.equal(entry.tokens_cached! > 0, i > 0);
      assert.ok(entry.first_token_ms! >= 0 && entry.tokens_per_second! > 0 && entry.ms >= entry.first_token_ms!);
    }
    entries.length = 0;
    const { body } = await post("/v1/chat/completions?key=secret", { messages, temperature: -1 }, {
      "x-request-id": "abc",
    });
    assert.equal(body.error.param, "temperature");
    await (await fetch(`${server.url}/nowhere`)).text();
    assert.deepEqual(
      entries.map((e) => [e.id.length > 0, e.status, e.error, e.tokens_in]),
      [[true, 400, "invalid_value", undefined], [true, 404, "not_found", undefined]],
    );
    assert.equal(entries[0].id, "abc");
    assert.ok(!JSON.stringify(entries).includes("secret"));
    for (const entry of entries) {
      assert.ok(!formatEntry(entry, "text").includes("\n"));
      assert.deepEqual(JSON.parse(formatEntry(entry, "json")), entry);
    }
  });
  entries.length = 0;
  await withServer({ onRequest: (entry) => entries.push(entry), logPrompts: true }, async ({ post }) => {
    await post("/v1/completions", { prompt: [secret, "b"], n: 2, max_tokens: 1 });
    assert.deepEqual(entries[0].prompts!.map((p) => p.replace("<s>", "")), [secret, "b"]);
    assert.ok(formatEntry(entries[0], "text").includes(secret));
  });
});

Deno.test("a client that leaves is logged as such, in a stream too", async () => {
  const entries: RequestLogEntry[] = [];
  await withServer({ onRequest: (entry) => entries.push(entry), stepMs: 5 }, async ({ server }) => {
    for (const stream of [false, true]) {
      const body = JSON.stringify({ prompt: "babble", n_predict: 400, stream, ignore_eos: true });
      const leave = new AbortController();
      const answer = fetch(`${server.url}/completion`, { method: "POST", body, signal: leave.signal });
      await soon(() => server.scheduler.n_active === 1, "it runs");
      leave.abort();
      await assert.rejects(answer.then((r) => r.text()));
      await soon(() => entries.length === 1, "it is logged");
      assert.equal(entries.splice(0)[0].status, 499);
    }
  });
});

Deno.test("a client that leaves frees its slot, however its request came in", async () => {
  await withServer({ n_slots: 2, stepMs: 4 }, async ({ server }) => {
    const encoder = new TextEncoder();
    for (let i = 0; i < 30; i++) {
      const route = ["/completion", "/v1/completions", "/v1/chat/completions", "/v1/messages"][i % 4];
      const body = JSON.stringify({
        prompt: "babble",
        messages: say("babble"),
        max_tokens: 400,
        stream: i % 5 === 4,
      });
      const connection = await Deno.connect({ hostname: "127.0.0.1", port: server.port });
      const head = `POST ${route} HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n`;
      // In one packet, in two as most clients send it, or in two with a pause.
      if (i % 3 === 0) await connection.write(encoder.encode(head + body));
      else {
        await connection.write(encoder.encode(head));
        await new Promise((resolve) => setTimeout(resolve, i % 3 === 1 ? 0 : 10));
        await connection.write(encoder.encode(body));
      }
      await soon(() => server.scheduler.n_active === 1, `request ${i} runs`);
      connection.close();
      await soon(() => server.scheduler.n_active === 0, `the slot of request ${i} is free`);
    }
  });
});

Deno.test("a server without a model says so, and answers once it has one", async () => {
  const waiting = await openServer({ port: 0 });
  for (const path of ["/health", "/v1/models"]) {
    const response = await fetch(waiting.url + path, { headers: { origin: PAGE } });
    assert.deepEqual([response.status, response.headers.get("access-control-allow-origin")], [503, PAGE]);
    assert.deepEqual((await response.json()).error.type, "unavailable_error");
  }
  const server = waiting.serve(fakeModel());
  assert.equal((await (await fetch(`${waiting.url}/health`)).json()).status, "ok");
  await server.stop();
  const unused = await openServer({ port: 0 });
  await unused.stop();
  await assert.rejects(fetch(unused.url));
});

Deno.test("metrics counts under llama-server's names, and adds up with the timings", async () => {
  await withServer({}, async ({ post, server }) => {
    let computed = 0, cached = 0;
    for (const prompt of ["[[[one]]]", "[[[one]]] again", "[[[two]]]"]) {
      const { timings } = (await post("/completion", { prompt })).body;
      computed += timings.prompt_n;
      cached += timings.cache_n;
    }
    const scrape = async () => {
      const response = await fetch(`${server.url}/metrics`);
      assert.match(response.headers.get("process-start-time-unix")!, /^\d+$/);
      const text = await response.text();
      return (name: string) => Number(new RegExp(`^${name} (\\S+)$`, "m").exec(text)?.[1]);
    };
    const value = await scrape();
    assert.equal(value("llamacpp:prompt_tokens_total"), computed);
    assert.equal(value("llamacpp:prompt_tokens_cached_total"), cached);
    assert.equal(value("llamacpp:tokens_predicted_total"), value("bloomery_tokens_predicted_total"));
    assert.equal(value("llamacpp:n_decode_total"), value("bloomery_steps_total"));
    for (const name of ["prompt_seconds_total", "tokens_predicted_seconds_total", "n_tokens_max"]) {
      assert.ok(value(`llamacpp:${name}`) > 0, name);
    }
    for (const name of ["prompt_tokens_seconds", "predicted_tokens_seconds", "n_busy_slots_per_decode"]) {
      assert.ok(value(`llamacpp:${name}`) > 0, name);
    }
    const idle = await scrape();
    assert.equal(idle("llamacpp:predicted_tokens_seconds"), 0);
    assert.equal(idle("llamacpp:requests_processing"), 0);
  });
});

Deno.test("routes can be switched off and put under a prefix", async () => {
  await withServer({ metrics: false, slots: false, apiPrefix: "llm/", apiKeys: ["key"] }, async ({ server, post }) => {
    const headers = { authorization: "Bearer key" };
    for (const path of ["/llm/metrics", "/llm/slots"]) {
      const response = await fetch(server.url + path, { headers });
      assert.deepEqual([response.status, (await response.json()).error.type], [501, "not_supported_error"]);
    }
    assert.equal((await (await fetch(`${server.url}/llm/health`)).json()).status, "ok");
    assert.equal((await post("/llm/completion", { prompt: "[[[ok]]]" }, headers)).body.content, "ok");
    assert.equal((await post("/completion", { prompt: "[[[ok]]]" }, headers)).status, 404);
  });
});

Deno.test("a stream begins with a content of null, and its last event has the timings", async () => {
  await withServer({}, async ({ events }) => {
    for (const include_usage of [false, true]) {
      const body = { messages: say("[[[Hi]]]"), stream: true, stream_options: { include_usage } };
      const all = await events("/v1/chat/completions", body);
      assert.deepEqual(all[0].choices[0].delta, { role: "assistant", content: null });
      assert.deepEqual(all.map((e) => e.timings !== undefined), all.map((_, i) => i === all.length - 2));
    }
    const [one] = (await events("/completion", { prompt: "x", n_predict: 1, stream: true })).slice(-1);
    assert.deepEqual([one.timings.predicted_n, one.timings.predicted_per_second], [1, 0]);
  });
});

Deno.test("tokenize takes texts and ids together, and nothing", async () => {
  await withServer({}, async ({ post }) => {
    assert.deepEqual((await post("/tokenize", {})).body, { tokens: [] });
    assert.deepEqual((await post("/tokenize", { content: ["ab", 65, "c"], add_special: true })).body.tokens.slice(-2), [
      65,
      99,
    ]);
    const bad = await post("/tokenize", { content: [9999] });
    assert.deepEqual([bad.status, bad.body.error.param], [400, "content"]);
  });
});

Deno.test("slots shows a seat alone until it was used, then its latest request", async () => {
  await withServer({ n_slots: 1, stepMs: 3 }, async ({ server, post }) => {
    const get = async (query = "") => {
      const response = await fetch(`${server.url}/slots${query}`);
      return { status: response.status, body: await response.json() };
    };
    assert.deepEqual((await get()).body, [{ id: 0, n_ctx: 512, speculative: false, is_processing: false }]);
    await post("/completion", { prompt: "[[[ok]]]", seed: 7, temperature: 0.5 });
    const [{ params, next_token, is_processing, n_prompt_tokens }] = (await get("?fail_on_no_slot=1")).body;
    assert.deepEqual([params.seed, params.temperature, is_processing, n_prompt_tokens], [7, 0.5, false, 9]);
    assert.deepEqual(next_token, [{ has_next_token: false, has_new_line: false, n_remain: -1, n_decoded: 0 }]);
    const leave = new AbortController();
    const body = JSON.stringify({ prompt: "babble", ignore_eos: true });
    const running = fetch(`${server.url}/completion`, { method: "POST", body, signal: leave.signal });
    await soon(() => server.scheduler.n_active === 1, "it runs");
    assert.deepEqual([(await get()).status, (await get("?fail_on_no_slot=1")).status], [200, 503]);
    leave.abort();
    await assert.rejects(running);
    const props = await (await fetch(`${server.url}/props`)).json();
    assert.deepEqual([props.endpoint_slots, props.endpoint_metrics, props.is_sleeping], [true, true, false]);
  });
});

Deno.test("a silent stream sends comments, which clients pass over", async () => {
  await withServer({ stepMs: 60, pingSeconds: 0.02 }, async ({ server, client }) => {
    const ask = async (more: object) => {
      const body = JSON.stringify({ prompt: "[[[Hi]]]", stream: true, ...more });
      return await (await fetch(`${server.url}/completion`, { method: "POST", body })).text();
    };
    const text = await ask({});
    assert.ok(text.split("\n\n").filter((part) => part === ":").length >= 2, text);
    assert.ok(!(await ask({ sse_ping_interval: 0 })).includes("\n:\n"));
    const leave = new AbortController();
    const body = JSON.stringify({ prompt: "babble", stream: true });
    const left = await fetch(`${server.url}/completion`, { method: "POST", body, signal: leave.signal });
    await left.body!.getReader().read();
    leave.abort(); // between two comments
    await soon(() => server.scheduler.n_active === 0, "the slot is free");
    const stream = await client.chat.completions.create({ model: "m", messages: say("[[[Hi]]]") as any, stream: true });
    let content = "";
    for await (const { choices } of stream) content += choices[0].delta.content ?? "";
    assert.equal(content, "Hi");
  });
});

Deno.test("routes that this server does not offer say why, by llama-server's statuses", async () => {
  await withServer({}, async ({ post, server }) => {
    const get = async (path: string) => {
      const response = await fetch(server.url + path);
      return [response.status, (await response.json()).error?.type];
    };
    for (const path of ["/tools", "/cors-proxy"]) {
      assert.deepEqual(await get(path), [403, "feature_disabled"]);
      const { status, body } = await post(path, {});
      assert.deepEqual([status, body.error.type], [403, "feature_disabled"]);
    }
    for (const path of ["/v1/audio/transcriptions", "/audio/transcriptions", "/v1/systemone", "/props"]) {
      const { status, body } = await post(path, {});
      assert.deepEqual([status, body.error.type], [501, "not_supported_error"], path);
    }
    assert.deepEqual(await (await fetch(`${server.url}/lora-adapters`)).json(), []);
    assert.deepEqual((await post("/lora-adapters", [])).body, { success: true });
    for (const body of [{}, 5, [{ id: 0, scale: 1 }], [1], "{"]) {
      assert.equal((await post("/lora-adapters", body)).status, 400);
    }
    const wrong = await fetch(`${server.url}/props`, { method: "DELETE" });
    assert.deepEqual([wrong.status, wrong.headers.get("allow")], [405, "GET, POST"]);
    await wrong.body?.cancel();
  });
  await withServer({ props: true, tags: ["small", "fast"], aliases: ["other"] }, async ({ post, server }) => {
    assert.deepEqual((await post("/props", { n_ctx: 1 })).body, { success: true });
    assert.equal((await post("/props", [])).status, 400);
    assert.equal((await (await fetch(`${server.url}/props`)).json()).endpoint_props, true);
    const { data, models } = await (await fetch(`${server.url}/v1/models`)).json();
    assert.deepEqual([data[0].tags, data[0].aliases], [["small", "fast"], ["other"]]);
    assert.deepEqual(models.map((m: any) => [m.name, m.tags]), [["fake", ["small", "fast"]], ["other", [
      "small",
      "fast",
    ]]]);
  });
});

Deno.test("a preflight that names no headers gets all methods and any header", async () => {
  await withServer({ apiKeys: ["key"] }, async ({ server }) => {
    const response = await fetch(`${server.url}/completions`, { method: "OPTIONS", headers: { origin: PAGE } });
    assert.deepEqual([response.status, await response.text()], [200, ""]);
    const named = ["origin", "methods", "headers", "credentials"].map((n) =>
      response.headers.get(`access-control-allow-${n}`)
    );
    assert.deepEqual(named, [PAGE, "GET, POST, DELETE, OPTIONS", "*", "true"]);
  });
});

Deno.test("methods, headers and credentials of pages are as the server was started", async () => {
  const rules = { corsMethods: ["GET"], corsHeaders: ["x-own"], corsCredentials: false };
  await withServer(rules, async ({ server }) => {
    const headers = { origin: PAGE, "access-control-request-headers": "x-other" };
    const response = await fetch(`${server.url}/health`, { method: "OPTIONS", headers });
    assert.equal(response.headers.get("access-control-allow-methods"), "GET");
    assert.equal(response.headers.get("access-control-allow-headers"), "x-own");
    assert.equal(response.headers.get("access-control-allow-origin"), PAGE);
    assert.equal(response.headers.get("access-control-allow-credentials"), null);
  });
  await withServer({ corsHeaders: ["*"] }, async ({ server }) => {
    const headers = { origin: PAGE, "access-control-request-headers": "x-other" };
    const response = await fetch(`${server.url}/health`, { method: "OPTIONS", headers });
    assert.match(response.headers.get("access-control-allow-headers")!, /x-other/);
    assert.equal(response.headers.get("access-control-allow-credentials"), "true");
  });
});

Deno.test("predictions of Vertex AI are several requests in one, each answered in its format", async () => {
  const vertex = { predictRoute: "/v1/endpoints/1:predict", healthRoute: "/ping" };
  await withServer({ vertex, apiKeys: ["key"], apiPrefix: "/llm", stepMs: 2 }, async ({ post, server }) => {
    const key = { authorization: "Bearer key" };
    const ask = (instances: unknown) => post(vertex.predictRoute, { instances }, key);
    const chat = { "@requestFormat": "chatCompletions", messages: say("[[[one]]]") };
    const { status, body } = await ask([
      chat,
      { "@requestFormat": "completions", prompt: "[[[two]]]" },
      { ...chat, messages: say("[[[three]]]"), n: 2 },
    ]);
    assert.equal(status, 200);
    const [first, second, third] = body.predictions;
    assert.deepEqual([first.choices[0].message.content, second.choices[0].text], ["one", "two"]);
    assert.deepEqual(third.choices.map((c: any) => c.message.content), ["three", "three"]);
    assert.equal((await post(vertex.predictRoute, { instances: [chat] })).status, 401);
    const health = await fetch(`${server.url}/ping`);
    assert.deepEqual([health.status, await health.json()], [200, { status: "ok" }]);
    for (
      const [instances, param] of [
        [[{ ...chat, stream: true }], "instances[0]"],
        [[chat, { ...chat, "@requestFormat": "toString" }], "instances[1]"],
        [Array(129).fill(chat), "instances"],
        [[{ messages: [] }], "instances[0].@requestFormat"],
        [[{ ...chat, messages: say("babble"), ignore_eos: true }, { ...chat, temperature: -1 }], "temperature"],
      ] as const
    ) {
      const { status, body } = await ask(instances);
      assert.deepEqual([status, body.error.param], [400, param]);
    }
    await soon(() => server.scheduler.n_active === 0, "the others of a refused body are ended");
  });
});

Deno.test("props tell what the template can show", async () => {
  const caps = async (template?: string) => {
    let found: Record<string, boolean> = {};
    await withServer(template === undefined ? {} : { template }, async ({ server }) => {
      found = (await (await fetch(`${server.url}/props`)).json()).chat_template_caps;
    });
    return Object.keys(found).filter((name) => found[name]).map((name) => name.replace("supports_", "")).sort();
  };
  const all = ["object_arguments", "parallel_tool_calls", "preserve_reasoning", "string_content", "system_role"];
  assert.deepEqual(await caps(), [...all, "tool_calls", "tools", "typed_content"]);
  const plain =
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor %}";
  // The server joins a system message to the next one where the template has no place for it.
  assert.deepEqual(await caps(plain), ["string_content", "system_role", "typed_content"]);
  const effort = "{% for m in messages %}{{ m.content }}{% endfor %}{{ reasoning_effort }}";
  assert.deepEqual(await caps(effort), ["reasoning_effort", "string_content", "system_role", "typed_content"]);
});
