/** Families with windows and states behind the server: prefixes, forks, company, clients that leave, and the end of the context. */
import assert from "node:assert/strict";
import { Drafter } from "../../core/draft/drafter.ts";
import { Lookup } from "../../core/draft/lookup.ts";
import { libraryPath, openModel } from "../../ffi/mod.ts";
import { servedModel } from "../../serve/language_model.ts";
import { type RunningServer, startServer } from "../../serve/server.ts";
import { FAMILY_MODELS, N_VOCAB, writeFamilyModel } from "../family_models.ts";
import { testFolder } from "../models.ts";
import { random } from "../ops/case.ts";
import { VOCABULARY } from "../peer_models.ts";
import { needing } from "../shared.ts";

const N_CTX = 192;

async function withFamily(
  name: string,
  drafter: Drafter | undefined,
  test: (server: RunningServer) => Promise<void>,
): Promise<void> {
  const path = `${testFolder()}served-${name}.gguf`;
  await writeFamilyModel(path, FAMILY_MODELS[name], { written: VOCABULARY });
  using opened = await openModel(path, { device: "cpu", n_ctx: N_CTX, n_cache: 3 * N_CTX, n_ubatch: 48, n_seq: 3 });
  const slotSavePath = await Deno.makeTempDir();
  const server = await startServer({
    model: servedModel(opened.model, { drafter }),
    port: 0,
    n_slots: 3,
    slotSavePath,
  });
  try {
    await test(server);
  } finally {
    await server.stop();
    await Deno.remove(slotSavePath, { recursive: true });
  }
}

interface Answer {
  readonly tokens: number[];
  readonly completion_probabilities: unknown;
  readonly stop_type: string;
  readonly error?: { readonly type: string };
}

async function ask(server: RunningServer, job: object): Promise<Answer> {
  const body = JSON.stringify({ n_probs: 2, return_tokens: true, ignore_eos: true, ...job });
  const response = await fetch(`${server.url}/completion`, { method: "POST", body });
  const { tokens, completion_probabilities, stop_type, error } = await response.json();
  return { tokens, completion_probabilities, stop_type, ...(error ? { error } : {}) };
}

/** Asks for a stream and leaves after the first event. */
async function leave(server: RunningServer, job: object): Promise<void> {
  const response = await fetch(`${server.url}/completion`, {
    method: "POST",
    body: JSON.stringify({ ignore_eos: true, stream: true, ...job }),
  });
  const reader = response.body!.getReader();
  await reader.read();
  await reader.cancel();
}

for (const name of ["gemma3", "qwen3next", "kimi-k3", "deepseek4"]) {
  for (const drafted of [false, true]) {
    Deno.test({
      ...needing(
        `${name} is served alone and together to the same bits${drafted ? ", with guesses" : ""}`,
        libraryPath("cpu") !== undefined,
        "the native library",
      ),
      fn: async () => {
        using drafter = new Drafter(new Lookup(), { max: 5, fixed: true });
        await withFamily(name, drafted ? drafter : undefined, async (server) => {
          const next = random(1, `${name} is served`);
          const ids = (n: number) => Array.from({ length: n }, () => Math.floor(next() * (N_VOCAB - 1)));
          const shared = ids(100);
          const prompts = [shared, [...shared, ...ids(20)], ids(3), [...shared.slice(0, 70), ...ids(30)], ids(130), [
            ...shared,
            ...ids(1),
          ]];
          const jobs = prompts.flatMap((prompt, i) => [
            { prompt, n_predict: 20, temperature: 0 },
            { prompt, n_predict: 20, temperature: 1.1, top_k: 0, seed: i },
          ]);
          const alone: Answer[] = [];
          for (const job of jobs) alone.push(await ask(server, { ...job, cache_prompt: false, speculative: false }));
          assert.ok(alone.every((a) => a.tokens.length === 20));
          assert.deepEqual(await Promise.all(jobs.map((job) => ask(server, { ...job, cache_prompt: false }))), alone);

          // Prefixes of others, while clients leave in the middle of theirs.
          const reversed = [...jobs].reverse();
          const left = [0, 3, 7].map((i) => leave(server, { ...jobs[i], n_predict: 60, cache_prompt: true }));
          const cached = await Promise.all(reversed.map((job) => ask(server, { ...job, cache_prompt: true })));
          await Promise.all(left);
          assert.deepEqual(cached.reverse(), alone);

          // An answer goes on to the end of the context, a prompt beyond it is refused, and neither disturbs who comes next.
          const [long, again] = await Promise.all([0, 1].map(() => ask(server, { ...jobs[0], n_predict: 400 })));
          assert.deepEqual([long.tokens.length, long.stop_type], [N_CTX - shared.length, "limit"]);
          assert.deepEqual(long, again);
          assert.deepEqual(long.tokens.slice(0, 20), alone[0].tokens);
          assert.equal((await ask(server, { prompt: ids(N_CTX + 1) })).error?.type, "exceed_context_size_error");
          assert.deepEqual(await ask(server, jobs[3]), alone[3]);
        });
        const { n_guesses, n_right } = drafter.counts;
        if (drafted) assert.ok(n_right > 100 && n_right < n_guesses, `${n_right} of ${n_guesses} guesses were right`);
      },
    });
  }
}

for (const name of ["gemma3", "qwen3next", "kimi-k3", "deepseek4"]) {
  Deno.test({
    ...needing(
      `${name}: a slot that was saved goes on to the same bits`,
      libraryPath("cpu") !== undefined,
      "the native library",
    ),
    fn: () =>
      withFamily(name, undefined, async (server) => {
        const next = random(2, `${name} is saved`);
        const ids = (n: number) => Array.from({ length: n }, () => Math.floor(next() * (N_VOCAB - 1)));
        const slot = async (id: number, action: string) => {
          const body = JSON.stringify({ filename: "saved" });
          const response = await fetch(`${server.url}/slots/${id}?action=${action}`, { method: "POST", body });
          assert.equal(response.status, 200);
          return await response.json();
        };
        const options = { temperature: 0, id_slot: 0 };
        const begun = ids(90);
        const { tokens } = await ask(server, { ...options, prompt: begun, n_predict: 10 });
        const { n_saved } = await slot(0, "save");
        const more = { ...options, prompt: [...begun, ...tokens, ...ids(5)], n_predict: 10 };
        const whole = await ask(server, { ...more, cache_prompt: false });
        for (const id of [0, 1, 2]) await slot(id, "erase");
        assert.equal((await slot(1, "restore")).n_restored, n_saved);
        const body = JSON.stringify({ ...more, id_slot: 1, n_probs: 2, return_tokens: true, ignore_eos: true });
        const restored = await (await fetch(`${server.url}/completion`, { method: "POST", body })).json();
        assert.equal(restored.timings.cache_n, n_saved, "what was saved is not computed again");
        assert.deepEqual(restored.completion_probabilities, whole.completion_probabilities);
      }),
  });
}
