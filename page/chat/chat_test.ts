/** What goes to the server and what comes back: requests, event streams, answers, token places. */
import assert from "node:assert/strict";
import * as fc from "npm:fast-check@4.11.0";
import { addEvent, AnswerError, rewind } from "./answer.ts";
import { requestBody, SettingError, withFiles } from "./request.ts";
import { EventReader } from "./sse.ts";
import { TokenPlaces, tokenText } from "./token_places.ts";
import type { Message, TokenRecord } from "./types.ts";

const message = (fields: Partial<Message> = {}): Message => ({
  id: "m",
  chat: "c",
  parent: null,
  role: "assistant",
  created: 0,
  content: "",
  reasoning: "",
  calls: [],
  files: [],
  status: "running",
  ...fields,
});
const encode = (text: string) => new TextEncoder().encode(text);

Deno.test("requestBody() sends the branch, the settings that are set, and what the answer goes on from", () => {
  const path = [
    message({ role: "user", content: "hi", files: [{ name: "a.txt", text: "x" }] }),
    message({ content: "", reasoning: "r", calls: [{ id: "1", name: "f", arguments: "{}" }] }),
    message({ role: "tool", content: "42", call: "1" }),
  ];
  const settings = { temperature: 0, n_probs: 4, reasoning: "off" as const, tools: "[]", extra: '{"seed": 7}' };
  assert.deepEqual(
    requestBody({ system: "be brief", settings }, path, { prefill: { content: "Yes", reasoning: "" } }),
    {
      messages: [
        { role: "system", content: "be brief" },
        { role: "user", content: "a.txt\n```\nx\n```\n\nhi" },
        {
          role: "assistant",
          content: "",
          reasoning_content: "r",
          tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: "{}" } }],
        },
        { role: "tool", tool_call_id: "1", content: "42" },
        { role: "assistant", content: "Yes" },
      ],
      stream: true,
      stream_options: { include_usage: true },
      temperature: 0,
      chat_template_kwargs: { enable_thinking: false },
      logprobs: true,
      top_logprobs: 4,
      tools: [],
      seed: 7,
    },
  );
  assert.deepEqual(Object.keys(requestBody({ system: " ", settings: {} }, [])), [
    "messages",
    "stream",
    "stream_options",
  ]);
});

Deno.test("requestBody() says which setting is no JSON of its kind", () => {
  for (const settings of [{ tools: "{" }, { tools: "{}" }, { extra: "[1]" }, { extra: "null" }]) {
    assert.throws(() => requestBody({ system: "", settings }, []), SettingError);
  }
});

Deno.test("withFiles() fences a file in more backticks than it has", () => {
  const text = withFiles({ content: "q", files: [{ name: "n", text: "a ```` b" }] });
  assert.equal(text, "n\n`````\na ```` b\n`````\n\nq");
});

Deno.test("EventReader gives the same events wherever the bytes are cut", () => {
  const events = ['{"a":"é😀"}', "[DONE]", "x"];
  const bytes = encode(
    `:\n\ndata: ${events[0]}\n\ndata: ${events[1]}\r\n\r\nevent: e\ndata:${events[2]}\n\ndata: unfinished`,
  );
  fc.assert(
    fc.property(fc.array(fc.nat(bytes.length)), (cuts) => {
      const places = [0, ...cuts.sort((a, b) => a - b), bytes.length];
      const reader = new EventReader();
      const read = places.slice(1).flatMap((to, i) => reader.push(bytes.subarray(places[i], to)));
      assert.deepEqual(read, events);
    }),
  );
});

Deno.test("addEvent() joins content, reasoning, calls and tokens; rewind() takes them back", () => {
  const m = message({ content: "pre", reasoning: "", start: { content: "pre", reasoning: "", n_tokens: 0 } });
  const event = (delta: object, more: object = {}) =>
    assert.equal(addEvent(m, JSON.stringify({ model: "q", choices: [{ delta, ...more }] })), false);
  event({ role: "assistant", content: null });
  event({ reasoning_content: "th" });
  event({ content: "fix" }, {
    logprobs: { content: [{ id: 1, bytes: [102], logprob: -1, top_logprobs: [{ id: 2, bytes: [103], logprob: -2 }] }] },
  });
  event({ tool_calls: [{ index: 0, id: "i", function: { name: "f", arguments: '{"a"' } }] });
  event({ tool_calls: [{ index: 0, function: { arguments: ":1}" } }] });
  event({}, { finish_reason: "length" });
  addEvent(
    m,
    JSON.stringify({ choices: [], timings: { prompt_n: 2, cache_n: 3, predicted_n: 4, predicted_per_second: 5 } }),
  );
  assert.equal(addEvent(m, "[DONE]"), true);
  assert.deepEqual([m.content, m.reasoning, m.finish, m.model], ["prefix", "th", "length", "q"]);
  assert.deepEqual(m.calls, [{ id: "i", name: "f", arguments: '{"a":1}' }]);
  assert.deepEqual(m.tokens, [{ id: 1, bytes: [102], logprob: -1, top: [{ id: 2, bytes: [103], logprob: -2 }] }]);
  assert.deepEqual(m.stats, { n_prompt: 5, n_cached: 3, n_predicted: 4, prompt_rate: 0, predicted_rate: 5 });
  rewind(m);
  assert.deepEqual([m.content, m.reasoning, m.calls, m.tokens, m.finish], ["pre", "", [], [], undefined]);
  assert.throws(
    () => addEvent(m, '{"error":{"message":"no room"}}'),
    (e) => e instanceof AnswerError && e.message === "no room",
  );
});

const token = (bytes: number[]): TokenRecord => ({ id: 1, bytes, logprob: 0, top: [] });
const texts = (...parts: string[]) => parts.map((part) => token([...encode(part)]));

Deno.test("TokenPlaces finds the answer before a token, in content and in reasoning, and no place in tags", () => {
  const tokens = texts("<think>", "\n", "I ", "see", "\n</think>\n\n", "Y", "es", "<|im_end|>");
  const places = new TokenPlaces({ content: "Yes", reasoning: "I see", tokens });
  const rival = token([...encode("X")]);
  assert.deepEqual(places.prefill(6, rival), { content: "YX", reasoning: "I see" });
  assert.deepEqual(places.prefill(5, rival), { content: "X", reasoning: "I see" });
  assert.deepEqual(places.prefill(3, rival), { content: "", reasoning: "I X" });
  assert.equal(places.prefill(0, rival), undefined);
  assert.equal(places.prefill(4, rival), undefined);
  assert.equal(places.prefill(6, token([...encode("<|im_end|>")])), undefined);
  assert.equal(places.prefill(99, rival), undefined);
});

Deno.test("TokenPlaces goes on within a character only where it becomes whole", () => {
  const [a, b, c, d] = encode("😀");
  const tokens = [token([a, b]), token([c, d])];
  const places = new TokenPlaces({ content: "😀", reasoning: "", tokens });
  assert.equal(places.prefill(0, token([a])), undefined);
  assert.deepEqual(places.prefill(1, token([c, 0x81])), {
    content: new TextDecoder().decode(Uint8Array.of(a, b, c, 0x81)),
    reasoning: "",
  });
  assert.equal(tokenText(tokens[0]), "\ufffd");
});
