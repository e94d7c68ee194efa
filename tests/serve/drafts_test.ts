/** Guessed tokens behind the server: the same answers, in forms, with tools, stop strings, budgets and log-probabilities. */
import assert from "node:assert/strict";
import { Drafter } from "../../core/draft/drafter.ts";
import { Lookup } from "../../core/draft/lookup.ts";
import { libraryPath, openModel } from "../../ffi/mod.ts";
import { servedModel } from "../../serve/language_model.ts";
import { type RunningServer, startServer } from "../../serve/server.ts";
import { bloomNano } from "../models.ts";
import { needing } from "../shared.ts";

const native = libraryPath("cpu") !== undefined;

async function withNano(n_slots: number, drafter: Drafter, test: (server: RunningServer) => Promise<void>) {
  using opened = await openModel(await bloomNano("bf16"), {
    device: "cpu",
    n_ctx: 512,
    contexts: n_slots,
    n_ubatch: 64,
  });
  const server = await startServer({ model: servedModel(opened.model, { drafter }), port: 0, n_slots });
  try {
    await test(server);
  } finally {
    await server.stop();
  }
}

async function post(server: RunningServer, path: string, body: unknown): Promise<any> {
  const response = await fetch(server.url + path, { method: "POST", body: JSON.stringify(body) });
  assert.equal(response.status, 200);
  return await response.json();
}

/** Keys of what depends on time, on numbers drawn for names, and on what other answers left in the cache. */
const CHANGING = [
  "id",
  "created",
  "timings",
  "id_slot",
  "tokens_cached",
  "tokens_evaluated",
  "cached_tokens",
  "generation_settings",
];

/** What an answer says. */
function said(answer: unknown): unknown {
  return JSON.parse(JSON.stringify(answer, (key, value) => CHANGING.includes(key) ? undefined : value));
}

const PARAMETERS = { type: "object", properties: { text: { type: "string", maxLength: 20 } }, required: ["text"] };
const SCHEMA = { type: "object", properties: { sum: { type: "integer" } }, required: ["sum"] };
const ASK = [{ role: "user", content: "What is 27 + 58?" }];
const TOOLS = [{ type: "function", function: { name: "say", parameters: PARAMETERS } }];

const JOBS: [path: string, body: object][] = [
  ["/completion", { prompt: "The kernel is", temperature: 0, n_predict: 40, n_probs: 3 }],
  ["/completion", { prompt: "def main():\n", temperature: 1, seed: 5, n_predict: 40, n_probs: 3 }],
  ["/completion", { prompt: "a b a b a b a b", temperature: 1.3, top_k: 0, seed: 6, n_predict: 40, n_probs: 2 }],
  ["/completion", { prompt: "1, 2, 3,", n_predict: 60, seed: 1, repeat_penalty: 1.3, dry_multiplier: 0.8 }],
  ["/completion", { prompt: "1, 2, 3,", n_predict: 60, seed: 2, mirostat: 2 }],
  ["/completion", { prompt: "City:", n_predict: 40, seed: 3, logit_bias: [[10, false], ["the", 3]] }],
  ["/completion", { prompt: "yes no", n_predict: 40, seed: 4, grammar: 'root ::= ("yes" | "no" | " ")+' }],
  ["/v1/chat/completions", { messages: ASK, temperature: 0, logprobs: true, top_logprobs: 2 }],
  ["/v1/chat/completions", { messages: ASK, seed: 8, temperature: 1, stop: ["8", "carry"], max_tokens: 100 }],
  ["/v1/chat/completions", { messages: ASK, temperature: 0, reasoning_budget: 5, max_tokens: 80 }],
  ["/v1/chat/completions", {
    messages: ASK,
    temperature: 0.8,
    seed: 9,
    max_tokens: 150,
    response_format: { type: "json_schema", json_schema: { name: "sum", schema: SCHEMA } },
  }],
  ["/v1/chat/completions", { messages: ASK, tools: TOOLS, tool_choice: "required", seed: 3, max_tokens: 200 }],
  ["/v1/chat/completions", { messages: ASK, tools: TOOLS, seed: 4, n: 2, max_tokens: 60 }],
];

for (const n_slots of [1, 4]) {
  Deno.test({
    ...needing(`bloom-nano in ${n_slots} slots answers the same with guesses`, native, "the native library"),
    fn: async () => {
      using drafter = new Drafter(new Lookup(), { max: 8, fixed: true });
      await withNano(n_slots, drafter, async (server) => {
        const ask = ([path, body]: [string, object]) => post(server, path, body).then((a) => said(a));
        const plain: unknown[] = [];
        for (const [path, body] of JOBS) plain.push(await ask([path, { ...body, speculative: false }]));
        assert.equal(drafter.counts.n_guesses, 0);
        // What was said without guesses is not kept for others; what was said with them is.
        for (let round = 0; round < 3; round++) {
          const got = await Promise.all(JOBS.map(ask));
          got.forEach((answer, i) => assert.deepEqual(answer, plain[i], JSON.stringify(JOBS[i])));
        }
        assert.ok(drafter.counts.n_right > 500, `${drafter.counts.n_right} right guesses`);
      });
    },
  });
}

Deno.test({
  ...needing("guesses are seen in timings, /metrics and /slots", native, "the native library"),
  fn: async () => {
    using drafter = new Drafter(new Lookup(), { max: 8, fixed: true });
    await withNano(1, drafter, async (server) => {
      const body = { prompt: "a b a b a b a b a b", temperature: 0, n_predict: 40, ignore_eos: true };
      const { timings: without } = await post(server, "/completion", { ...body, speculative: false });
      assert.equal("draft_n" in without, false);
      assert.doesNotMatch(await (await fetch(`${server.url}/metrics`)).text(), /draft/);
      await post(server, "/completion", body);
      const { timings } = await post(server, "/completion", body);
      assert.ok(timings.draft_n_accepted > 20 && timings.draft_n >= timings.draft_n_accepted);
      const { n_guesses, n_right, n_runs } = drafter.counts;
      const metrics = await (await fetch(`${server.url}/metrics`)).text();
      for (
        const line of [
          `bloomery_draft_tokens_total ${n_guesses}`,
          `bloomery_draft_tokens_accepted_total ${n_right}`,
          `llamacpp:spec_decode_num_drafts_total ${n_runs}`,
          `llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} ${drafter.counts.rightAt[0]}`,
        ]
      ) assert.ok(metrics.includes(line), line);
      const [slot] = await (await fetch(`${server.url}/slots`)).json();
      assert.equal(slot.speculative, true);
    });
  },
});
