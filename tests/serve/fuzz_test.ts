/** Any body at all: the answer is a 200 or a 4xx in OpenAI's shape, and the next request is served. */
import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { infillSchema } from "../../serve/infill.ts";
import { controlSchema } from "../../serve/routes_control.ts";
import { slotFileSchema } from "../../serve/routes_slots.ts";
import { lookupSchema } from "../../serve/routes_streams.ts";
import { countSchema, messagesSchema } from "../../serve/routes_anthropic.ts";
import { chatSchema, completionSchema, conversationSchema, openaiCompletionSchema } from "../../serve/schemas.ts";
import { withServer } from "./harness.ts";

const value = fc.oneof(
  fc.jsonValue({ maxDepth: 2 }),
  fc.constantFrom(null, true, -1, 0, 1, 2.5, 1e300, 3e9, -1e300, 2 ** 53, "", "\0", "\ud800", [], {}, [[]], [[1]], [
    "",
  ]),
  fc.array(fc.integer({ min: -5, max: 300 }), { maxLength: 5 }),
  fc.array(
    fc.record({
      role: fc.constantFrom("user", "assistant", "tool", "system", "developer", "bad", "own"),
      content: fc.oneof(fc.jsonValue({ maxDepth: 1 }), fc.string(), fc.constant([{ type: "text", text: "x" }])),
    }),
  ),
  fc.record({ type: fc.constantFrom("json_schema", "text", "enabled"), schema: fc.jsonValue({ maxDepth: 2 }) }),
  fc.record({
    format: fc.record({ type: fc.constant("json_schema"), schema: fc.constantFrom({}, { type: "null" }, 1) }),
  }),
  fc.integer({ min: 1, max: 5 }),
);

/** A body with a good base and some of the known fields spoilt. */
function bodies(base: Record<string, unknown>, fields: string[]): fc.Arbitrary<Record<string, unknown>> {
  return fc.dictionary(fc.constantFrom(...fields), value, { maxKeys: 4 }).map((spoilt) => ({
    ...base,
    max_tokens: 3,
    n_predict: 3,
    ...spoilt,
  }));
}

for (
  const [path, base, schema] of [
    ["/completion", { prompt: "x" }, completionSchema],
    ["/v1/completions", { prompt: "x" }, openaiCompletionSchema],
    ["/v1/chat/completions", { messages: [{ role: "user", content: "x" }] }, chatSchema],
    ["/v1/messages", { messages: [{ role: "user", content: "x" }] }, messagesSchema],
    ["/v1/messages/count_tokens", { messages: [{ role: "user", content: "x" }] }, countSchema],
    ["/infill", { input_prefix: "x", input_suffix: "y" }, infillSchema],
    ["/v1/streams/lookup", { conversation_ids: ["a"] }, lookupSchema],
    ["/v1/chat/completions/control", { id: "a", action: "reasoning_end" }, controlSchema],
    ["/slots/0?action=restore", { filename: "a" }, slotFileSchema],
    ["/apply-template", { messages: [{ role: "user", content: "x" }] }, conversationSchema],
  ] as const
) {
  Deno.test(`${path} takes any body`, async () => {
    const failures: unknown[] = [];
    const settings = { fim: { prefix: 1, suffix: 2, middle: 3 }, slotSavePath: "/nowhere" };
    await withServer({ ...settings, n_ctx: 64, onError: (e) => failures.push(e) }, async ({ server, post }) => {
      await fc.assert(
        fc.asyncProperty(bodies(base, Object.keys(schema.shape)), async (body) => {
          const response = await fetch(server.url + path, { method: "POST", body: JSON.stringify(body) });
          const text = await response.text();
          assert.deepEqual(failures, [], JSON.stringify(body));
          assert.ok(response.status === 200 || response.status === 400, `${response.status} ${text}`);
          assert.ok(!text.includes('"server_error"'), JSON.stringify(body) + text);
          if (response.status === 400) assert.equal(typeof JSON.parse(text).error.message, "string");
        }),
        { numRuns: 400 },
      );
      assert.equal((await post("/completion", { prompt: "[[[ok]]]" })).body.content, "ok");
      assert.equal(server.scheduler.n_active + server.scheduler.n_waiting, 0);
    });
  });
}
