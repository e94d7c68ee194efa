/** Slots: files of them, prompts kept in the host's memory, contexts that are shifted, and which slot a prompt gets. */
import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import type { Snapshot } from "../../core/engine/mod.ts";
import { PromptCache } from "../../serve/prompt_cache.ts";
import { servedModel } from "../../serve/language_model.ts";
import { startServer } from "../../serve/server.ts";
import { openModel } from "../../ffi/mod.ts";
import { bloomNano } from "../models.ts";
import { BOS } from "./fake.ts";
import { soon, withServer } from "./harness.ts";

async function withFolder(test: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await test(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("a slot goes to a file, is erased, and comes back in another slot", async () => {
  await withFolder(async (slotSavePath) => {
    await withServer({ n_slots: 2, slotSavePath }, async ({ post, engine }) => {
      const prompt = "The capital of France is [[[Paris]]]";
      const ask = (more: object) => post("/completion", { prompt, id_slot: 1, temperature: 0, ...more });
      const first = (await ask({})).body;
      const saved = await post("/slots/1?action=save", { filename: "one.bin" });
      const n = first.tokens_cached;
      assert.deepEqual([saved.status, saved.body.id_slot, saved.body.filename, saved.body.n_saved], [
        200,
        1,
        "one.bin",
        n,
      ]);
      const { size } = await Deno.stat(`${slotSavePath}/one.bin`);
      assert.equal(saved.body.n_written, size);
      assert.deepEqual([...Deno.readDirSync(slotSavePath)].map((e) => e.name), ["one.bin"]);
      assert.deepEqual((await post("/slots/1?action=erase", {})).body, { id_slot: 1, n_erased: n });
      assert.equal(engine.sequences.size, 0);
      const restored = (await post("/slots/0?action=restore", { filename: "one.bin" })).body;
      assert.deepEqual([restored.id_slot, restored.n_restored, restored.n_read], [0, n, size]);
      const again = (await ask({ id_slot: 0 })).body;
      assert.deepEqual([again.content, again.timings.prompt_n], [first.content, 1]);
      // Over the old file, and of a slot that is empty.
      await post("/slots/0?action=erase", {});
      const empty = await post("/slots/0?action=save", { filename: "one.bin" });
      assert.deepEqual([empty.status, empty.body.n_saved], [200, 0]);
    });
  });
});

Deno.test("slot files are refused by name: paths, foreign files, other builds; and slots that are not there", async () => {
  await withServer({ n_slots: 2 }, async ({ post }) => {
    assert.equal((await post("/slots/0?action=save", { filename: "x" })).status, 501);
  });
  await withFolder(async (slotSavePath) => {
    const builds = ["bloomery-1", "bloomery-2"];
    for (const build of builds) {
      await withServer({ n_slots: 2, slotSavePath, build }, async ({ post, engine }) => {
        const cases: [path: string, body: unknown, param: string][] = [
          ["/slots/x?action=save", { filename: "a" }, "id"],
          ["/slots/2?action=save", { filename: "a" }, "id"],
          ["/slots/-1?action=erase", {}, "id"],
          ["/slots/0?action=load", { filename: "a" }, "action"],
          ["/slots/0", { filename: "a" }, "action"],
          ["/slots/0?action=restore", { filename: "missing" }, "filename"],
          ["/slots/0?action=restore", { filename: "foreign" }, "filename"],
          ["/slots/0?action=save", {}, "filename"],
          ["/slots/0?action=save", { filename: 5 }, "filename"],
        ];
        const names = [
          "../a",
          "a/b",
          "/etc/passwd",
          "..",
          ".",
          ".hidden",
          "a\\b",
          "a\0b",
          "C:x",
          "x".repeat(300),
          "",
          "a.",
        ];
        for (const filename of names) cases.push(["/slots/0?action=save", { filename }, "filename"]);
        await Deno.writeTextFile(`${slotSavePath}/foreign`, "not a slot");
        for (const [path, body, param] of cases) {
          const { status, body: answer } = await post(path, body);
          assert.deepEqual([status, answer.error.param], [400, param], `${path} ${JSON.stringify(body)}`);
        }
        await post("/completion", { prompt: "babble", n_predict: 4, id_slot: 0 });
        if (build === builds[0]) await post("/slots/0?action=save", { filename: "a" });
        else {
          const { status, body } = await post("/slots/0?action=restore", { filename: "a" });
          assert.equal(status, 400);
          assert.match(body.error.message, /a: it was saved by bloomery-1, expected bloomery-2/);
          assert.equal([...engine.sequences].length, 1, "the slot keeps what it had");
        }
      });
    }
    assert.deepEqual([...Deno.readDirSync(slotSavePath)].map((e) => e.name).sort(), ["a", "foreign"]);
  });
});

Deno.test("any filename stays within the folder", async () => {
  await withFolder(async (above) => {
    const slotSavePath = `${above}/slots`;
    await Deno.mkdir(slotSavePath);
    await withServer({ n_slots: 1, slotSavePath }, async ({ post }) => {
      const piece = fc.constantFrom("..", "/", "a", ".", "\\", "%2e", "\u0000", " ", "ä", "~", "..;/");
      await fc.assert(
        fc.asyncProperty(fc.array(piece, { maxLength: 6 }).map((p) => p.join("")), async (filename) => {
          const { status } = await post("/slots/0?action=save", { filename });
          assert.ok(status === 200 || status === 400, `${status} of ${JSON.stringify(filename)}`);
        }),
        { numRuns: 60 },
      );
    });
    assert.deepEqual([...Deno.readDirSync(above)].map((e) => e.name), ["slots"]);
    for (const entry of Deno.readDirSync(slotSavePath)) assert.ok(entry.isFile && !entry.name.endsWith(".part"));
  });
});

Deno.test("a slot of a real model restores to the same bits: its answer and probabilities are those without a break", async () => {
  using opened = await openModel(await bloomNano("bf16"), { device: "reference", n_ctx: 64, n_cache: 128, n_seq: 2 });
  await withFolder(async (slotSavePath) => {
    const server = await startServer({ model: servedModel(opened.model), port: 0, n_slots: 2, slotSavePath });
    const post = async (path: string, body: object) =>
      await (await fetch(server.url + path, { method: "POST", body: JSON.stringify(body) })).json();
    try {
      const ask = {
        prompt: "The quick brown fox jumps over the",
        n_predict: 8,
        temperature: 0,
        n_probs: 3,
        id_slot: 0,
      };
      const whole = await post("/completion", ask);
      const { n_saved } = await post("/slots/0?action=save", { filename: "nano" });
      await post("/completion", { prompt: "Something else entirely", n_predict: 8, id_slot: 0 });
      await post("/slots/0?action=erase", {});
      assert.equal((await post("/slots/1?action=restore", { filename: "nano" })).n_restored, n_saved);
      const again = await post("/completion", { ...ask, id_slot: 1 });
      assert.ok(again.timings.cache_n > 4, JSON.stringify(again.timings));
      assert.deepEqual(again.completion_probabilities, whole.completion_probabilities);
    } finally {
      await server.stop();
    }
  });
});

Deno.test("prompts that slots give up come back from the host's memory", async () => {
  const prompts = ["a", "b", "c"].map((letter) => letter.repeat(60) + "[[[yes]]]");
  for (const [promptCacheBytes, hits] of [[0, false], [1 << 20, true], [300, false]] as const) {
    await withServer({ n_slots: 1, promptCacheBytes }, async ({ post, server }) => {
      const ask = async (prompt: string) => (await post("/completion", { prompt, n_predict: 4 })).body.timings.cache_n;
      for (const prompt of prompts) assert.ok(await ask(prompt) <= 1);
      for (const prompt of prompts) assert.equal(await ask(prompt) > 60, hits, `${promptCacheBytes}`);
      // The conversation goes on where it was left.
      assert.equal(await ask(prompts[0] + " and more") > 60, hits);
      const { promptCache } = server.scheduler;
      assert.ok(promptCache === undefined || promptCache.bytes <= promptCacheBytes);
    });
  }
  // States go back to certain lengths only: what cannot be cut there is not taken.
  await withServer({ n_slots: 1, promptCacheBytes: 1 << 20, keepsEvery: 1000 }, async ({ post }) => {
    const ask = async (prompt: string) => (await post("/completion", { prompt, n_predict: 1 })).body;
    const first = await ask(prompts[0]);
    await ask(prompts[1]);
    const again = await ask(prompts[0]);
    assert.deepEqual([again.timings.cache_n, again.content], [0, first.content]);
    await ask(prompts[1]);
    assert.ok((await ask(prompts[0] + "more and more")).timings.cache_n > 60);
  });
  // A cache that is full gives idle slots up for what comes back.
  await withServer({ n_slots: 2, promptCacheBytes: 1 << 20, n_cache: 160 }, async ({ post }) => {
    const ask = async (prompt: string) => (await post("/completion", { prompt, n_predict: 2 })).body.timings.cache_n;
    for (const prompt of prompts) await ask(prompt);
    for (const prompt of prompts) assert.ok(await ask(prompt) > 60);
  });
});

Deno.test("PromptCache keeps within its bytes, and finds the longest beginning", () => {
  const tokens = fc.array(fc.nat(2), { maxLength: 6 });
  fc.assert(
    fc.property(
      fc.array(fc.tuple(tokens, fc.boolean()), { maxLength: 20 }),
      tokens,
      fc.nat(200),
      (kept, wanted, most) => {
        const cache = new PromptCache(most);
        const snapshot = (tokens: number[]): Snapshot => ({
          tokens,
          adapters: [],
          caches: [{ places: [], data: new Uint8Array(tokens.length) }],
        });
        for (const [tokens, reaches] of kept) {
          cache.keep({ tokens, adapters: [] }, () => snapshot(tokens), () => reaches);
        }
        assert.ok(cache.bytes <= most);
        const found = cache.find({ tokens: wanted, adapters: [] }, 0);
        const common = (t: readonly number[]) =>
          t.findIndex((x, i) => x !== wanted[i]) < 0 ? t.length : t.findIndex((x, i) => x !== wanted[i]);
        const unlimited = new PromptCache(Infinity);
        for (const [tokens] of kept) unlimited.keep({ tokens, adapters: [] }, () => snapshot(tokens), () => true);
        const best = Math.max(0, ...kept.map(([t]) => Math.min(common(t), wanted.length)));
        if (found !== undefined) assert.ok(common(found.tokens) > 0);
        const all = unlimited.find({ tokens: wanted, adapters: [] }, 0);
        assert.equal(all === undefined ? 0 : Math.min(common(all.tokens), wanted.length), best);
        cache.clear();
        assert.deepEqual([cache.bytes, cache.size], [0, 0]);
      },
    ),
  );
});

Deno.test("a full context is shifted where that is asked for, and what is kept is computed again", async () => {
  const ask = { prompt: "babble", n_predict: 100, ignore_eos: true, temperature: 0, cache_prompt: false };
  await withServer({ n_ctx: 40, n_slots: 1, contextShift: true }, async ({ post, engine, server }) => {
    const { body } = await post("/completion", { ...ask, n_keep: 3, n_discard: 10 });
    assert.deepEqual([body.tokens_predicted, body.truncated, body.stop_type], [100, true, "limit"]);
    const [{ tokens }] = engine.sequences;
    assert.ok(tokens.length <= 40);
    // What the context holds at the end gives, from scratch, what the answer went on with.
    const from = (await post("/completion", { ...ask, prompt: tokens, n_predict: 1 })).body;
    assert.ok(body.content.endsWith(from.content));
    assert.deepEqual(tokens.slice(0, 3), [BOS, 98, 263]);
    const slots = await (await fetch(`${server.url}/slots`)).json();
    assert.equal(slots[0].is_processing, false);
    const endless = (await post("/completion", { ...ask, n_predict: -1 })).body;
    assert.deepEqual([endless.truncated, endless.tokens_predicted], [true, 512 - endless.tokens_evaluated]);
    assert.equal((await post("/completion", { ...ask, prompt: "x".repeat(60) })).status, 400);
    for (const n_keep of [-1, 0, 1000]) {
      const { body } = await post("/completion", { ...ask, n_keep, n_discard: 1000 });
      assert.equal(body.tokens_predicted, 100, `${n_keep}`);
    }
  });
  await withServer({ n_ctx: 40, n_slots: 1 }, async ({ post }) => {
    const { body } = await post("/completion", ask);
    assert.deepEqual([body.tokens_evaluated + body.tokens_predicted, body.truncated], [40, true]);
  });
  // Sequences that cannot be cut back where one likes are computed from a kept point, or from the start.
  await withServer({ n_ctx: 40, n_slots: 1, contextShift: true, keepsEvery: 8 }, async ({ post }) => {
    assert.equal((await post("/completion", { ...ask, n_keep: 3 })).body.tokens_predicted, 100);
  });
});

Deno.test("a prompt that shares little with an idle slot leaves it alone", async () => {
  const second = "ab".repeat(5) + "x".repeat(80);
  for (const [similarity, slot] of [[0, 1], [0.9, 0]] as const) {
    await withServer({ n_slots: 2, similarity }, async ({ post }) => {
      await post("/completion", { prompt: "z", id_slot: 0, n_predict: 1 });
      await post("/completion", { prompt: "ab".repeat(5), id_slot: 1, n_predict: 1 });
      const { body } = await post("/completion", { prompt: second, n_predict: 0 });
      assert.deepEqual([body.id_slot, body.timings.cache_n > 5], [slot, true], "what they share is not computed again");
    });
  }
});

Deno.test("an idle server gives the model back, says so, and wakes at the next request", async () => {
  await withServer(
    { n_slots: 2, sleepAfterMs: 500, promptCacheBytes: 1 << 20, slotSavePath: "/nowhere" },
    async (h) => {
      const { post, engine, server } = h;
      const prompt = "x".repeat(50) + "[[[yes]]]";
      const ask = async () => (await post("/completion", { prompt })).body;
      const sleeping = async () => (await (await fetch(`${server.url}/props`)).json()).is_sleeping;
      assert.equal((await ask()).content, "yes");
      assert.equal(await sleeping(), false);
      await soon(() => engine.asleep, "it sleeps");
      assert.equal(engine.sequences.size, 0);
      assert.equal(await sleeping(), true);
      for (const path of ["/health", "/v1/models", "/metrics", "/slots"]) {
        assert.equal((await fetch(server.url + path).then((r) => (r.body?.cancel(), r))).status, 200);
      }
      assert.ok(engine.asleep, "looking does not wake it");
      const [first, second] = await Promise.all([ask(), ask()]);
      assert.deepEqual([first.content, second.content, engine.asleep], ["yes", "yes", false]);
      assert.ok(first.timings.cache_n > 40, "what it had computed is in the host's memory");
      await soon(() => engine.asleep, "it sleeps again");
      engine.failure = new Error("no memory");
      assert.equal((await post("/completion", { prompt })).status, 500);
      assert.equal((await ask()).content, "yes", "the next request tries again");
      await soon(() => engine.asleep, "and again");
      assert.deepEqual((await post("/slots/0?action=erase", {})).body, { id_slot: 0, n_erased: 0 });
    },
  );
});

Deno.test("a real model that slept answers with the same bits", async () => {
  using opened = await openModel(await bloomNano("bf16"), { device: "reference", n_ctx: 64 });
  const { engine } = opened.model;
  const row = async () => {
    using sequence = engine.createSequence();
    const [out] = await engine.step([{ sequence, tokens: [5, 6, 7, 8], output: "last", want: "logits" }]);
    return Array.from(out.full!);
  };
  const before = await row();
  engine.sleep();
  await engine.wake();
  assert.deepEqual(await row(), before);
});
