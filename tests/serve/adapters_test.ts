/** Adapters over HTTP: listed, set for all, chosen by a request, several in one batch, never mixed up in caches. */
import assert from "node:assert/strict";
import { fakeIo } from "../../cli/_testing.ts";
import { adapterPaths, scaledPath } from "../../cli/adapter_flags.ts";
import { Flags } from "../../cli/command.ts";
import { openModelFromFlags } from "../../cli/open.ts";
import { UsageError } from "../../core/errors.ts";
import { type ServedModel, servedModel } from "../../serve/language_model.ts";
import { type RunningServer, startServer } from "../../serve/server.ts";
import { writeAdapter, writeMerged } from "../adapter_models.ts";
import { bloomNano, testFolder } from "../models.ts";

const OF = { of: /(attn_(q|k|v|output)|ffn_(gate|up|down))\.weight$/ };
const ONE = { ...OF, seed: 1 }, TWO = { ...OF, seed: 2, rank: 2 };
const PROMPT = "What is 27 + 58?";

async function withModel<R>(
  flags: Record<string, string | string[]>,
  test: (model: ServedModel) => Promise<R>,
): Promise<R> {
  const given: [string, string | string[]][] = Object.entries({ device: "cpu", "ctx-size": "256", ...flags });
  using opened = await openModelFromFlags(new Flags(new Map(given)), fakeIo().io, {
    n_ctx: 256,
    contexts: 4,
    n_seq: 4,
  });
  return await test(servedModel(opened.model));
}

async function withServer<R>(
  model: ServedModel,
  test: (server: RunningServer) => Promise<R>,
  options: { promptCacheBytes?: number; slotSavePath?: string; n_slots?: number } = {},
): Promise<R> {
  const server = await startServer({ model, port: 0, n_slots: 4, ...options });
  try {
    return await test(server);
  } finally {
    await server.stop();
  }
}

async function post(server: RunningServer, path: string, body: unknown) {
  const response = await fetch(server.url + path, { method: "POST", body: JSON.stringify(body) });
  return { status: response.status, body: await response.json() };
}

interface Lora {
  id: number;
  scale: number;
}

async function answer(server: RunningServer, lora?: Lora[], more: object = {}) {
  const { status, body } = await post(server, "/completion", {
    prompt: PROMPT,
    n_predict: 12,
    temperature: 0,
    ignore_eos: true,
    return_tokens: true,
    n_probs: 1,
    ...(lora === undefined ? {} : { lora }),
    ...more,
  });
  assert.equal(status, 200, JSON.stringify(body));
  return {
    tokens: body.tokens as number[],
    logprobs: body.completion_probabilities.map((p: { logprob: number }) => p.logprob) as number[],
    n_cached: body.timings.cache_n as number,
    settings: body.generation_settings.lora as Lora[],
  };
}

Deno.test("requests choose adapters, and get what the merged model answers", async () => {
  const dir = `${testFolder()}/served-lora`, model = await bloomNano("f32");
  Deno.mkdirSync(dir);
  const lora = [ONE, TWO].map((o, i) => writeAdapter(`${dir}/${i}.gguf`, model, o));
  const cases: Lora[][] = [[{ id: 0, scale: 0.5 }], [{ id: 1, scale: -0.75 }], [{ id: 1, scale: 1 }, {
    id: 0,
    scale: 0.25,
  }], []];
  const merged: Awaited<ReturnType<typeof answer>>[] = [];
  for (const [i, scales] of cases.entries()) {
    const path = writeMerged(
      `${dir}/merged-${i}.gguf`,
      model,
      scales.map(({ id, scale }) => ({ ...[ONE, TWO][id], scale })),
    );
    merged.push(await withModel({ model: path }, (m) => withServer(m, (server) => answer(server))));
  }
  await withModel({ model, lora }, async (served) => {
    const alone = await withServer(served, async (server) => {
      const list = await (await fetch(`${server.url}/lora-adapters`)).json();
      assert.deepEqual(list, lora.map((path, id) => ({ id, path, task_name: "", prompt_prefix: "", scale: 1 })));
      const answers = [];
      for (const [i, scales] of cases.entries()) {
        const got = await answer(server, scales);
        assert.deepEqual(got.tokens, merged[i].tokens, `case ${i}`);
        got.logprobs.forEach((x, j) => assert.ok(Math.abs(x - merged[i].logprobs[j]) < 2e-3, `case ${i}, token ${j}`));
        assert.deepEqual(got.n_cached, 0, "a prompt that was computed with other scales");
        assert.deepEqual(
          got.settings,
          [0, 1].map((id) => ({ id, scale: scales.find((s) => s.id === id)?.scale ?? 0 })),
        );
        answers.push(got);
      }
      assert.notDeepEqual(answers[0].tokens, answers[3].tokens);
      const again = await answer(server, cases[1]);
      assert.ok(again.n_cached > 0);
      assert.deepEqual([again.tokens, again.logprobs], [answers[1].tokens, answers[1].logprobs]);

      // What holds for all, and what a request still decides for itself.
      assert.deepEqual((await post(server, "/lora-adapters", cases[0])).body, { success: true });
      assert.deepEqual((await answer(server)).logprobs, answers[0].logprobs);
      assert.deepEqual((await answer(server, [])).logprobs, answers[3].logprobs);
      const [first, second] = await (await fetch(`${server.url}/lora-adapters`)).json();
      assert.deepEqual([first.scale, second.scale], [0.5, 0]);

      for (const lora of [[{ id: 2, scale: 1 }], [{ id: -1, scale: 1 }], [{ id: 0.5, scale: 1 }], {}, [{ id: 0 }]]) {
        const { status, body } = await post(server, "/completion", { prompt: PROMPT, lora });
        assert.deepEqual([status, /lora/.test(body.error.message)], [400, true], JSON.stringify(lora));
        assert.equal((await post(server, "/lora-adapters", lora)).status, 400, JSON.stringify(lora));
      }
      return answers;
    });
    // Together in one batch: the same bits.
    await withServer(served, async (server) => {
      const together = await Promise.all(cases.map((scales) => answer(server, scales)));
      assert.deepEqual(together.map((a) => a.logprobs), alone.map((a) => a.logprobs));
    });
    // Two prompts take turns in one slot: each comes back from the host's memory with its own adapters.
    await withServer(served, async (server) => {
      const other = { prompt: "Name a colour.", n_predict: 2 };
      for (let round = 0; round < 2; round++) {
        for (const i of [0, 1]) {
          const got = await answer(server, cases[i]);
          assert.deepEqual(got.logprobs, alone[i].logprobs);
          assert.equal(got.n_cached > 0, round > 0);
          await answer(server, cases[i], other);
        }
      }
    }, { n_slots: 1, promptCacheBytes: 1 << 26 });
    // A slot's file remembers them, and is not another model's.
    const file = await withServer(served, async (server) => {
      await answer(server, cases[2]);
      const { status } = await post(server, "/slots/0?action=save", { filename: "slot.bin" });
      assert.equal(status, 200);
      await post(server, "/slots/0?action=erase", {});
      assert.equal((await post(server, "/slots/0?action=restore", { filename: "slot.bin" })).status, 200);
      assert.equal((await answer(server, cases[1])).n_cached, 0);
      assert.equal((await post(server, "/slots/0?action=restore", { filename: "slot.bin" })).status, 200);
      const got = await answer(server, cases[2]);
      assert.ok(got.n_cached > 0);
      assert.deepEqual(got.logprobs, alone[2].logprobs);
      return "slot.bin";
    }, { n_slots: 1, slotSavePath: dir });
    await withModel({ model, lora: [lora[1], lora[0]] }, (m) =>
      withServer(m, async (server) => {
        const { status, body } = await post(server, "/slots/0?action=restore", { filename: file });
        assert.deepEqual([status, /another model/.test(body.error.message)], [400, true]);
      }, { slotSavePath: dir }));
  });
  // The scales of the command line are where all requests begin.
  const scaled = [`${lora[0]}:0.5`];
  const got = await withModel({ model, "lora-scaled": scaled }, (m) => withServer(m, (server) => answer(server)));
  assert.deepEqual(got.tokens, merged[0].tokens);
});

Deno.test("a path and its scale", () => {
  assert.deepEqual(scaledPath("lora-scaled", "C:/a.gguf:-0.5"), { path: "C:/a.gguf", scale: -0.5 });
  const flags = new Flags(new Map([["lora", ["a"]], ["lora-scaled", ["b:2"]]]));
  assert.deepEqual(adapterPaths(flags), [{ path: "a", scale: 1 }, { path: "b", scale: 2 }]);
  for (const text of ["a.gguf", "a.gguf:", ":1", "a.gguf:x", "a:1e999"]) {
    assert.throws(
      () => scaledPath("lora-scaled", text),
      (e) => e instanceof UsageError && e.code === "usage.value",
      text,
    );
  }
});
