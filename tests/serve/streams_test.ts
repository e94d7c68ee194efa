/** Streams that outlive their connection, reasoning that is ended from outside, and texts that are filled in. */
import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { infillPrompt } from "../../serve/infill.ts";
import { KeptStream, StreamStore } from "../../serve/stream_store.ts";
import { BOS, fakeModel, fakeTokenizer } from "./fake.ts";
import { readEvents, soon, withServer } from "./harness.ts";

const BABBLE = { messages: [{ role: "user", content: "babble" }], stream: true, max_tokens: 60, ignore_eos: true };

Deno.test("a stream with a conversation's id goes on without its client, and is read again from any byte", async () => {
  await withServer({ stepMs: 3, n_slots: 2 }, async ({ server, post }) => {
    const headers = { "x-conversation-id": "conv::model" };
    const leave = new AbortController();
    const body = JSON.stringify(BABBLE);
    const start = (more: object = {}) =>
      fetch(`${server.url}/v1/chat/completions`, { method: "POST", body, headers, ...more });
    const first = await start({ signal: leave.signal });
    const reader = first.body!.getReader();
    let seen = new TextDecoder().decode((await reader.read()).value);
    seen += new TextDecoder().decode((await reader.read()).value);
    leave.abort();
    await reader.read().catch(() => {});
    const lookup = async (ids: object) => (await post("/v1/streams/lookup", ids)).body;
    const [facts] = await lookup({ conversation_ids: ["conv::model", "other"] });
    assert.deepEqual([facts.conversation_id, facts.is_done, facts.completed_at], ["conv::model", false, 0]);
    assert.equal(server.scheduler.n_active, 1, "it still runs");
    const path = `${server.url}/v1/stream?conv_id=${encodeURIComponent("conv::model")}`;
    const [whole, rest, again] = await Promise.all([
      fetch(path).then((r) => r.text()),
      fetch(`${path}&from=${seen.length}`).then((r) => r.text()),
      fetch(`${server.url}/v1/stream`, { headers }).then((r) => r.text()),
    ]);
    assert.deepEqual([whole, seen + rest], [again, whole]);
    const events = readEvents(whole);
    assert.equal(events.at(-1), "[DONE]");
    assert.ok(events.some((e) => e.choices?.[0]?.finish_reason === "length"));
    const [done] = await lookup({ conv_ids: ["conv::model"] });
    assert.deepEqual([done.is_done, done.total_bytes], [true, new TextEncoder().encode(whole).length]);
    const bad = await fetch(`${path}&from=${done.total_bytes + 1}`);
    assert.deepEqual([bad.status, (await bad.json()).error.param], [400, "from"]);
    const status = async (url: string, method = "GET") => {
      const response = await fetch(url, { method });
      await response.body?.cancel();
      return response.status;
    };
    assert.deepEqual([await status(path, "DELETE"), await status(path, "DELETE"), await status(path)], [204, 404, 404]);
    assert.deepEqual(await lookup({ conv_ids: ["conv::model"] }), []);
    assert.equal(await status(`${server.url}/v1/stream`), 400);
  });
});

Deno.test("a stream that is deleted stops; without a conversation's id it stops with its client", async () => {
  await withServer({ stepMs: 3 }, async ({ server }) => {
    const url = `${server.url}/completion`,
      body = JSON.stringify({ ...BABBLE, prompt: "x", n_predict: 400, max_tokens: 400 });
    const running = await fetch(url, { method: "POST", body, headers: { "x-conversation-id": "c" } });
    await soon(() => server.scheduler.n_active === 1, "it runs");
    const gone = await fetch(`${server.url}/v1/stream?conv_id=c`, { method: "DELETE" });
    assert.equal(gone.status, 204);
    await soon(() => server.scheduler.n_active === 0, "its slot is free");
    await running.text();
    // A newer stream of the conversation takes the place of one that nobody reads.
    for (let i = 0; i < 2; i++) {
      const leave = new AbortController();
      const response = await fetch(url, {
        method: "POST",
        body,
        headers: { "x-conversation-id": "c" },
        signal: leave.signal,
      });
      await response.body!.getReader().read();
      leave.abort();
      await new Promise((resolve) => setTimeout(resolve, 30));
      await soon(() => server.scheduler.n_active === 1, "one runs");
    }
    await (await fetch(`${server.url}/v1/stream?conv_id=c`, { method: "DELETE" })).body?.cancel();
    const leave = new AbortController();
    await (await fetch(url, { method: "POST", body, signal: leave.signal })).body!.getReader().read();
    leave.abort();
    await soon(() => server.scheduler.n_active === 0, "no stream is left");
  });
});

Deno.test("a kept stream gives every reader the bytes from its offset, whatever the chunks", async () => {
  const chunks = fc.array(fc.uint8Array({ minLength: 1, maxLength: 5 }), { maxLength: 8 });
  await fc.assert(fc.asyncProperty(chunks, fc.nat(40), fc.nat(8), async (chunks, from, before) => {
    const stream = new KeptStream("x", () => {});
    for (const chunk of chunks.slice(0, before)) stream.push(chunk);
    const read = new Response(stream.read(from)).bytes();
    for (const chunk of chunks.slice(before)) stream.push(chunk);
    stream.end();
    assert.deepEqual([...await read], chunks.flatMap((c) => [...c]).slice(from));
  }));
  const store = new StreamStore();
  for (let i = 0; i < 400; i++) store.open(`${i}`, () => {}).end();
  assert.deepEqual([store.get("0"), store.get("399")?.done], [undefined, true]);
  let ended = 0;
  const large = store.open("large", () => ended++);
  for (let i = 0; i < 33; i++) large.push(new Uint8Array(1 << 20));
  assert.equal(ended, 1, "a stream without end is ended");
});

Deno.test("reasoning is ended from outside where its request allows that", async () => {
  await withServer({ stepMs: 4 }, async ({ server, post }) => {
    const script = `<think>${"ab ".repeat(60)}</think>it`;
    const ask = async (more: object) => {
      const messages = [{ role: "user", content: `[[[${script}]]]` }];
      const body = JSON.stringify({ messages, stream: true, max_tokens: 200, temperature: 0, ...more });
      const response = await fetch(`${server.url}/v1/chat/completions`, { method: "POST", body });
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      let told: any;
      for (let next = await reader.read(); !next.done; next = await reader.read()) {
        text += next.value;
        if (told === undefined && text.includes("reasoning_content")) {
          const { id } = JSON.parse(text.slice(6, text.indexOf("\n")));
          told = (await post("/v1/chat/completions/control", { id, action: "reasoning_end" })).body;
        }
      }
      const events = readEvents(text).filter((e) => e !== "[DONE]");
      return [told.success, events.map((e) => e.choices[0]?.delta.reasoning_content ?? "").join("").length];
    };
    const [success, length] = await ask({ reasoning_control: true });
    assert.ok(success === true && length < 100, `${length}`);
    const [refused, whole] = await ask({});
    assert.ok(refused === false && whole > 150, `${whole}`);
    const late = await post("/v1/chat/completions/control", { id: "chatcmpl-x", action: "reasoning_end" });
    assert.deepEqual([late.status, late.body.success], [200, false]);
    assert.equal((await post("/v1/chat/completions/control", { id: "x", action: "stop" })).body.error.param, "action");
  });
});

const FIM = { prefix: 1, suffix: 2, middle: 3 };

Deno.test("infill asks for what is between two texts with the vocabulary's tokens", async () => {
  await withServer({}, async ({ post }) => {
    const { status, body } = await post("/infill", { input_prefix: "a", input_suffix: "b" });
    assert.deepEqual([status, body.error.type], [501, "not_supported_error"]);
    assert.match(body.error.message, /no prefix, no suffix, no middle token/);
  });
  const text = (s: string) => [...s].map((c) => c.charCodeAt(0));
  for (
    const [spmInfill, halves] of [[false, [1, ...text("xs>"), 2, ...text("ys")]], [true, [
      2,
      ...text("ys"),
      1,
      ...text("xs>"),
    ]]] as const
  ) {
    await withServer({ fim: FIM, spmInfill, n_slots: 1 }, async ({ post, engine }) => {
      const ask = { input_prefix: "xs", input_suffix: "ys", prompt: ">", n_predict: 2 };
      const { body } = await post("/infill", ask);
      assert.deepEqual([...engine.sequences][0].tokens.slice(0, -1), [BOS, ...halves, 3]);
      assert.deepEqual([body.tokens_predicted, body.stop, body.generation_settings.n_predict], [2, true, 2]);
      for (
        const [wrong, param] of [
          [{ input_prefix: undefined }, "input_prefix"],
          [{ input_suffix: 5 }, "input_suffix"],
          [{ prompt: 5 }, "prompt"],
          [{ input_extra: "x" }, "input_extra"],
          [{ input_extra: [{ filename: "a" }] }, "input_extra[0].text"],
          [{ input_extra: [5] }, "input_extra[0]"],
        ] as const
      ) assert.equal((await post("/infill", { ...ask, ...wrong })).body.error.param, param);
    });
  }
});

Deno.test("an infill prompt keeps what is near the gap, and whole other files that fit", () => {
  const tokenizer = fakeTokenizer();
  const fim = { ...fakeModel().fim, ...FIM, repository: 4, separator: 5 };
  const ofText = (ids: Int32Array) => tokenizer.decode([...ids].filter((id) => id > 5));
  const request = {
    input_prefix: "pqrs",
    input_suffix: "wxyz",
    prompt: undefined,
    input_extra: [{ text: "one", filename: "1.c" }, { text: "two", filename: undefined }],
  };
  const at = (room: number) => infillPrompt({ tokenizer, fim }, request, { room, suffixFirst: false });
  assert.equal(ofText(at(200)), "myproject\n1.c\nonetmp\ntwofilename\npqrswxyz");
  assert.equal(ofText(at(45)), "myproject\ntmp\ntwofilename\npqrswxyz");
  assert.equal(ofText(at(12)), "pqrswxyz");
  assert.equal(ofText(at(8)), "qrsw");
  fc.assert(
    fc.property(
      fc.string(),
      fc.string(),
      fc.array(fc.string()),
      fc.integer({ min: 4, max: 60 }),
      (before, behind, files, room) => {
        const input_extra = files.map((text) => ({ text, filename: undefined }));
        const request = { input_prefix: before, input_suffix: behind, prompt: undefined, input_extra };
        const ids = infillPrompt({ tokenizer, fim }, request, { room, suffixFirst: false });
        assert.ok(ids.length <= room && ids.at(-1) === 3 && ids[0] === BOS);
        const none = { ...fim, separator: null, repository: null };
        assert.ok(infillPrompt({ tokenizer, fim: none }, request, { room, suffixFirst: true }).length <= room);
      },
    ),
  );
});
