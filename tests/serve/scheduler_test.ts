import assert from "node:assert/strict";
import { Scheduler } from "../../serve/scheduler.ts";
import type { Job, Outcome, Row } from "../../serve/slot.ts";
import { Drafter } from "../../core/draft/drafter.ts";
import { Oracle } from "../drafts.ts";
import { FakeEngine, type FakeOptions, fakeTokenizer } from "./fake.ts";

interface Recorded {
  job: Job;
  tokens: number[];
  slot: number;
  n_cached: number;
  ended: Promise<Outcome>;
}

/** A greedy job that records what happens to it. */
function record(prompt: number[], maxTokens: number, more: Partial<Job> = {}): Recorded {
  const { promise, resolve } = Promise.withResolvers<Outcome>();
  const out: Recorded = { job: undefined as never, tokens: [], slot: -1, n_cached: -1, ended: promise };
  out.job = {
    prompt: Int32Array.from(prompt),
    maxTokens,
    cachePrompt: true,
    promptRows: false,
    speculative: true,
    want: "candidates",
    onStart: (slot, n_cached) => [out.slot, out.n_cached] = [slot, n_cached],
    onPromptRow: () => {},
    onRow: (row) => {
      out.tokens.push(row.ids[0]);
      return { token: row.ids[0], stop: false };
    },
    onEnd: (outcome) => resolve(outcome),
    ...more,
  };
  return out;
}

const letters = (n: number, seed = 0) => Array.from({ length: n }, (_, i) => 97 + (i * 7 + seed) % 26);

async function withScheduler(
  options: FakeOptions & { n_slots: number; maxQueue?: number; drafter?: Drafter },
  test: (scheduler: Scheduler, engine: FakeEngine) => Promise<void>,
): Promise<void> {
  const engine = new FakeEngine(fakeTokenizer(), options);
  const scheduler = new Scheduler(engine, options);
  try {
    await test(scheduler, engine);
  } finally {
    await scheduler.stop();
  }
  assert.equal(engine.sequences.size, 0, "every sequence was given back");
}

async function alone(prompt: number[], maxTokens: number): Promise<number[]> {
  let tokens: number[] = [];
  await withScheduler({ n_slots: 1 }, async (scheduler) => {
    const r = record(prompt, maxTokens);
    scheduler.submit(r.job);
    await r.ended;
    tokens = r.tokens;
  });
  return tokens;
}

Deno.test("Scheduler answers together what it answers alone", async () => {
  const prompts = [letters(5), letters(150, 3), letters(1, 9), letters(40, 5), letters(64, 1), letters(33, 2)];
  const expected = await Promise.all(prompts.map((p) => alone(p, 30)));
  await withScheduler({ n_slots: 3, n_ubatch: 16 }, async (scheduler) => {
    const runs = prompts.map((p) => record(p, 30));
    for (const r of runs) scheduler.submit(r.job);
    assert.deepEqual((await Promise.all(runs.map((r) => r.ended))).map((o) => o.kind), prompts.map(() => "length"));
    assert.deepEqual(runs.map((r) => r.tokens), expected);
  });
});

Deno.test("Scheduler puts answers before prompts and fills a step to n_ubatch", async () => {
  await withScheduler({ n_slots: 3, n_ubatch: 8 }, async (scheduler, engine) => {
    const a = record(letters(2), 40), b = record(letters(2, 1), 40);
    scheduler.submit(a.job);
    scheduler.submit(b.job);
    while (a.tokens.length < 5) await new Promise((r) => setTimeout(r, 0));
    engine.log.length = 0;
    const before = [a.tokens.length, b.tokens.length];
    const long = record(letters(60, 2), 1);
    scheduler.submit(long.job);
    await long.ended;
    const mixed = engine.log.filter((rows) => rows.length === 3);
    assert.ok(mixed.length >= 8, "the long prompt shared steps with both answers");
    for (const rows of mixed.slice(0, 8)) assert.deepEqual(rows, [1, 1, 6]);
    assert.ok(a.tokens.length - before[0] >= 8 && b.tokens.length - before[1] >= 8, "neither answer stalled");
    await Promise.all([a.ended, b.ended]);
  });
});

Deno.test("Scheduler shares the rows of a step between prompts", async () => {
  await withScheduler({ n_slots: 2, n_ubatch: 8 }, async (scheduler, engine) => {
    const a = record(letters(100), 1), b = record(letters(6, 1), 1);
    scheduler.submit(a.job);
    scheduler.submit(b.job);
    await b.ended;
    assert.ok(engine.log.length <= 3, "a short prompt does not wait for a long one");
    await a.ended;
  });
});

Deno.test("Scheduler serves more answers than a step has rows", async () => {
  await withScheduler({ n_slots: 5, n_ubatch: 2 }, async (scheduler) => {
    const runs = [0, 1, 2, 3, 4].map((i) => record(letters(3, i), 10));
    for (const r of runs) scheduler.submit(r.job);
    await Promise.all(runs.map((r) => r.ended));
    for (const [i, r] of runs.entries()) assert.deepEqual(r.tokens, await alone(letters(3, i), 10));
  });
});

Deno.test("Scheduler reuses the longest common prefix and computes at least one token", async () => {
  await withScheduler({ n_slots: 2 }, async (scheduler) => {
    const run = async (prompt: number[], more: Partial<Job> = {}) => {
      const r = record(prompt, 4, more);
      scheduler.submit(r.job);
      await r.ended;
      return r;
    };
    const first = await run(letters(40));
    assert.equal(first.n_cached, 0);
    const other = await run(letters(30, 11));
    assert.notEqual(other.slot, first.slot);
    const again = await run(letters(40));
    assert.deepEqual([again.slot, again.n_cached, again.tokens], [first.slot, 39, first.tokens]);
    const longer = await run([...letters(40), ...first.tokens.slice(0, 3), 65, 66]);
    assert.deepEqual([longer.slot, longer.n_cached], [first.slot, 43]);
    assert.deepEqual(longer.tokens, await alone([...letters(40), ...first.tokens.slice(0, 3), 65, 66], 4));
    const fresh = await run(letters(40), { cachePrompt: false });
    assert.deepEqual([fresh.n_cached, fresh.tokens], [0, first.tokens]);
  });
});

Deno.test("Scheduler goes back as far as a sequence can, and computes the rest again", async () => {
  await withScheduler({ n_slots: 2, keepsEvery: 16 }, async (scheduler) => {
    const run = async (prompt: number[]) => {
      const r = record(prompt, 4);
      scheduler.submit(r.job);
      await r.ended;
      return r;
    };
    const first = await run(letters(40));
    const changed = [...letters(35), 65, 66, 67];
    const second = await run(changed);
    assert.deepEqual([second.n_cached, second.tokens], [32, await alone(changed, 4)]);
    const longer = await run([...letters(40), ...first.tokens.slice(0, 3), 65]);
    assert.deepEqual(longer.tokens, await alone([...letters(40), ...first.tokens.slice(0, 3), 65], 4));
  });
});

Deno.test("Scheduler forks a prefix out of a busy slot", async () => {
  await withScheduler({ n_slots: 2 }, async (scheduler) => {
    const a = record(letters(50), 200);
    scheduler.submit(a.job);
    while (a.tokens.length < 3) await new Promise((r) => setTimeout(r, 0));
    const b = record([...letters(50), 65], 4);
    scheduler.submit(b.job);
    await b.ended;
    assert.equal(b.n_cached, 50);
    assert.notEqual(a.slot, b.slot);
    assert.deepEqual(b.tokens, await alone([...letters(50), 65], 4));
    await a.ended;
    assert.deepEqual(a.tokens, await alone(letters(50), 200));
  });
});

Deno.test("Scheduler keeps a long cache when only its beginning is wanted", async () => {
  await withScheduler({ n_slots: 2 }, async (scheduler) => {
    const run = async (prompt: number[]) => {
      const r = record(prompt, 2);
      scheduler.submit(r.job);
      await r.ended;
      return r;
    };
    const long = await run(letters(100));
    const short = await run([...letters(10), 65]);
    assert.deepEqual([short.n_cached, short.slot === long.slot], [10, false]);
    assert.equal((await run(letters(100))).n_cached, 99);
  });
});

Deno.test("Scheduler gives the slot that a job insists on", async () => {
  await withScheduler({ n_slots: 3, stepMs: 2 }, async (scheduler) => {
    const first = record(letters(5), 20, { slotId: 1 }), second = record(letters(5, 1), 2, { slotId: 1 });
    const passing = record(letters(5, 2), 2);
    for (const r of [first, second, passing]) scheduler.submit(r.job);
    await passing.ended;
    assert.equal(second.slot, -1, "still waiting for its slot");
    await Promise.all([first.ended, second.ended]);
    assert.deepEqual([first.slot, second.slot], [1, 1]);
  });
});

Deno.test("Scheduler makes room in a full cache without losing a token", async () => {
  const prompts = [letters(40), letters(40, 1), letters(40, 2)];
  await withScheduler({ n_slots: 3, n_ctx: 128, n_cache: 130 }, async (scheduler) => {
    const runs = prompts.map((p) => record(p, 60));
    for (const r of runs) scheduler.submit(r.job);
    for (const r of runs) assert.equal((await r.ended).kind, "length");
    for (const [i, r] of runs.entries()) assert.deepEqual(r.tokens, await alone(prompts[i], 60));
  });
});

Deno.test("Scheduler ends a job that fills the cache alone", async () => {
  await withScheduler({ n_slots: 1, n_ctx: 128, n_cache: 50 }, async (scheduler) => {
    const r = record(letters(40), 60);
    scheduler.submit(r.job);
    assert.equal((await r.ended).kind, "context");
    assert.equal(r.tokens.length, 11);
    const large = record(letters(60), 10);
    scheduler.submit(large.job);
    const outcome = await large.ended;
    assert.equal(outcome.kind === "failed" && (outcome.error as { code: string }).code, "engine.no_pages");
  });
});

Deno.test("Scheduler computes a prompt without an answer", async () => {
  await withScheduler({ n_slots: 1, n_ubatch: 16 }, async (scheduler) => {
    const r = record(letters(40), 0);
    scheduler.submit(r.job);
    assert.equal((await r.ended).kind, "length");
    assert.deepEqual(r.tokens, []);
    const next = record([...letters(40), 65], 1);
    scheduler.submit(next.job);
    await next.ended;
    assert.equal(next.n_cached, 40);
  });
});

Deno.test("Scheduler gives every row of a prompt, in chunks, with its target's log-probability", async () => {
  await withScheduler({ n_slots: 1, n_ubatch: 16 }, async (scheduler) => {
    const seen: number[] = [];
    const r = record(letters(40), 1, {
      promptRows: true,
      onPromptRow: (position, row) => {
        seen.push(position);
        if (position < 39) assert.ok(row.targetLogprob < 0);
      },
    });
    scheduler.submit(r.job);
    await r.ended;
    assert.deepEqual(seen, Array.from({ length: 40 }, (_, i) => i));
  });
});

/** Prompts of 10 tokens that are scored, each with the log-probabilities of its rows. */
function scores(n: number): { r: Recorded; rows: number[] }[] {
  return Array.from({ length: n }, (_, i) => {
    const rows: number[] = [];
    const onPromptRow = (position: number, row: Row) => void (rows[position] = row.targetLogprob);
    return { r: record(letters(10, i), i % 2, { promptRows: true, onPromptRow }), rows };
  });
}

async function scoresAlone(n: number): Promise<number[][]> {
  const all = scores(n);
  for (const { r } of all) {
    await withScheduler({ n_slots: 1 }, async (scheduler) => {
      scheduler.submit(r.job);
      await r.ended;
    });
  }
  return all.map(({ rows }) => rows);
}

Deno.test("Scheduler lets prompts that are only scored share steps beyond the slots", async () => {
  const want = await scoresAlone(9);
  await withScheduler({ n_slots: 1, n_ubatch: 64 }, async (scheduler, engine) => {
    const answer = record(letters(20), 100), next = record(letters(5, 1), 3), all = scores(9);
    for (const { job } of [answer, next, ...all.map(({ r }) => r)]) scheduler.submit(job);
    assert.deepEqual((await Promise.all(all.map(({ r }) => r.ended))).map((o) => o.kind), all.map(() => "length"));
    assert.ok(answer.tokens.length < 100 && next.slot === -1, "the answer is under way, and what wants a slot waits");
    assert.deepEqual(all.map(({ rows }) => rows), want);
    assert.deepEqual(all.map(({ r }) => r.slot), all.map(() => -1));
    assert.deepEqual(scheduler.views().map((v) => v.is_processing), [true]);
    // At least six of ten rows go together in a step of 64.
    assert.ok(Math.max(...engine.log.map((rows) => rows.length)) >= 7);
    await answer.ended;
    await next.ended;
    assert.deepEqual([answer.tokens, next.tokens], [await alone(letters(20), 100), await alone(letters(5, 1), 3)]);
    assert.deepEqual([answer.slot, next.slot], [0, 0]);
  });
});

Deno.test("Scheduler takes no guest that the cache has no room for, or that wants a slot, and frees one that is cancelled", async () => {
  const want = await scoresAlone(4);
  await withScheduler({ n_slots: 1, n_ctx: 64, n_cache: 64 }, async (scheduler, engine) => {
    const answer = record(letters(40), 20), all = scores(4);
    const own = record(letters(10), 1, { promptRows: true, slotId: 0 });
    for (const { job } of [answer, own, ...all.map(({ r }) => r)]) scheduler.submit(job);
    await Promise.all([answer.ended, own.ended, ...all.map(({ r }) => r.ended)]);
    assert.equal(answer.tokens.length, 20);
    assert.equal(own.slot, 0);
    assert.deepEqual(all.map(({ rows }) => rows), want);
    // Two of 10 tokens go beside the answer's 40 and its growth.
    assert.ok(Math.max(...engine.log.map((rows) => rows.length)) <= 3);
  });
  await withScheduler({ n_slots: 1, stepMs: 5 }, async (scheduler, engine) => {
    const answer = record(letters(5), 40), ended: string[] = [];
    const guest = record(letters(60), 0, { promptRows: true, onEnd: (o) => void ended.push(o.kind) });
    scheduler.submit(answer.job);
    const ticket = scheduler.submit(guest.job);
    while (guest.n_cached < 0) await new Promise((resolve) => setTimeout(resolve, 1));
    assert.equal(engine.sequences.size, 2);
    ticket.cancel();
    await answer.ended;
    assert.deepEqual([ended, engine.sequences.size], [["cancelled"], 1]);
  });
});

/** Two questions of 30 tokens with four answers each, to be scored. */
function choices(more: Partial<Job> = {}): { r: Recorded; rows: number[]; starts: number[] }[] {
  return Array.from({ length: 8 }, (_, i) => {
    const rows: number[] = [], starts: number[] = [];
    const onPromptRow = (position: number, row: Row) => {
      if (position === 0) starts.push(i);
      rows[position] = row.targetLogprob;
    };
    const prompt = [...letters(30, i >> 2), 65 + i, ...letters(3 + i, i)];
    return { r: record(prompt, 1, { promptRows: true, onPromptRow, ...more }), rows, starts };
  });
}

for (const keepsEvery of [1, 8]) {
  Deno.test(`Scheduler computes once what scored prompts begin with, with sequences kept every ${keepsEvery}`, async () => {
    const want = choices();
    for (const { r } of want) {
      await withScheduler({ n_slots: 1 }, async (scheduler) => {
        scheduler.submit(r.job);
        await r.ended;
      });
    }
    const total = want.reduce((n, { r }) => n + r.job.prompt.length, 0);
    for (
      const [n_slots, n_cache, most] of [[1, Infinity, 0.5], [3, Infinity, 0.5], [1, 90, 1], [2, 60, 2]] as const
    ) {
      await withScheduler({ n_slots, n_cache, keepsEvery }, async (scheduler, engine) => {
        const all = choices();
        for (const { r } of all) scheduler.submit(r.job);
        await Promise.all(all.map(({ r }) => r.ended));
        assert.deepEqual(all.map(({ rows }) => rows), want.map(({ rows }) => rows));
        assert.deepEqual(all.map(({ r }) => r.tokens), want.map(({ r }) => r.tokens));
        const rows = engine.log.flat().reduce((a, b) => a + b, 0), slack = keepsEvery > 1 ? 0.2 : 0;
        assert.ok(rows <= (most + slack) * total, `${rows} of ${total} rows with ${n_slots} slots`);
        if (n_cache === Infinity) assert.ok(all.every(({ starts }) => starts.length === 1), "each row once");
      });
    }
  });
}

Deno.test("Scheduler computes a scored prompt itself when the one that it waits for goes, wants whole rows or has adapters", async () => {
  const rowsOf = async (more: Partial<Job>, during?: (cancel: () => void) => void) => {
    let rows = 0;
    await withScheduler({ n_slots: 1 }, async (scheduler, engine) => {
      const all = choices(more);
      const tickets = all.map(({ r }) => scheduler.submit(r.job));
      during?.(() => tickets[0].cancel());
      await Promise.all(all.map(({ r }) => r.ended));
      if (!during) assert.ok(all.every((c) => c.rows.length === c.r.job.prompt.length));
      else assert.ok(all.slice(1).every((c) => c.rows.length === c.r.job.prompt.length));
      rows = engine.log.flat().reduce((a, b) => a + b, 0);
    });
    return rows;
  };
  const shared = await rowsOf({}), own = choices().reduce((n, { r }) => n + r.job.prompt.length, 0);
  assert.equal(await rowsOf({ want: "logits" }), own);
  const lonely = await rowsOf({}, (cancel) => cancel());
  // 29 of the 30 tokens of a question are taken over by three of its four prompts; the row of the last one predicts another token.
  assert.equal(shared, own - 6 * 29);
  assert.equal(lonely, own - choices()[0].r.job.prompt.length - 3 * 29);
});

Deno.test("Scheduler drops a cancelled job from queue and slot", async () => {
  await withScheduler({ n_slots: 1, stepMs: 5 }, async (scheduler) => {
    const a = record(letters(5), 400), b = record(letters(5, 1), 400), c = record(letters(5, 2), 2);
    const tickets = [a, b, c].map((r) => scheduler.submit(r.job));
    while (a.tokens.length < 2) await new Promise((r) => setTimeout(r, 1));
    tickets[1].cancel();
    assert.equal((await b.ended).kind, "cancelled");
    assert.equal(b.slot, -1);
    tickets[0].cancel();
    tickets[0].cancel();
    assert.equal((await a.ended).kind, "cancelled");
    assert.equal((await c.ended).kind, "length");
    tickets[2].cancel();
  });
});

Deno.test("Scheduler fails the jobs of a failed step and goes on", async () => {
  await withScheduler({ n_slots: 2 }, async (scheduler, engine) => {
    engine.failure = new Error("device lost");
    const a = record(letters(5), 5);
    scheduler.submit(a.job);
    const outcome = await a.ended;
    assert.equal(outcome.kind === "failed" && (outcome.error as Error).message, "device lost");
    const broken = record(letters(5), 5, {
      onRow: () => {
        throw new Error("no candidate");
      },
    });
    scheduler.submit(broken.job);
    assert.equal((await broken.ended).kind, "failed");
    const { createSequence } = engine;
    engine.createSequence = () => {
      throw new Error("no memory");
    };
    const unseated = record(letters(5, 3), 5);
    scheduler.submit(unseated.job);
    assert.equal((await unseated.ended).kind, "failed");
    engine.createSequence = createSequence;
    const b = record(letters(5), 5);
    scheduler.submit(b.job);
    assert.equal((await b.ended).kind, "length");
    assert.deepEqual(b.tokens, await alone(letters(5), 5));
  });
});

Deno.test("Scheduler refuses when too many wait and when it drains", async () => {
  await withScheduler({ n_slots: 1, maxQueue: 1, stepMs: 2 }, async (scheduler) => {
    const runs = [record(letters(5), 10), record(letters(5, 1), 3)];
    scheduler.submit(runs[0].job);
    while (runs[0].slot < 0) await new Promise((r) => setTimeout(r, 1));
    scheduler.submit(runs[1].job);
    assert.throws(() => scheduler.submit(record(letters(3), 1).job), { code: "serve.queue_full" });
    const drained = scheduler.drain();
    assert.throws(() => scheduler.submit(record(letters(3), 1).job), { code: "serve.shutting_down" });
    await drained;
    for (const r of runs) assert.equal((await r.ended).kind, "length");
  });
});

/** Answers with guesses that are right with a probability. */
async function withGuesses(
  options: FakeOptions & { n_slots: number },
  acceptance: number,
  prompts: readonly number[][],
  n: number,
  test: (scheduler: Scheduler, expected: number[][], engine: FakeEngine) => Promise<void>,
): Promise<Drafter> {
  const expected = await Promise.all(prompts.map((p) => alone(p, n)));
  const texts = prompts.map((p, i) => [...p, ...expected[i]]);
  const drafter = new Drafter(new Oracle(texts, acceptance, 256), { max: 6, fixed: true });
  await withScheduler({ ...options, drafter }, (scheduler, engine) => test(scheduler, expected, engine));
  return drafter;
}

Deno.test("Scheduler answers with guesses what it answers without, wherever sequences can go back to", async () => {
  const prompts = [letters(5), letters(150, 3), letters(1, 9), letters(40, 5), letters(64, 1), letters(33, 2)];
  for (const keepsEvery of [1, 16]) {
    for (const acceptance of [0, 0.6, 1]) {
      const options = { n_slots: 3, n_ubatch: 16, keepsEvery };
      const { counts } = await withGuesses(options, acceptance, prompts, 30, async (scheduler, expected) => {
        const runs = prompts.map((p) => record(p, 30));
        for (const r of runs) scheduler.submit(r.job);
        await Promise.all(runs.map((r) => r.ended));
        assert.deepEqual(runs.map((r) => r.tokens), expected);
        // What is kept of an answer serves the next one.
        const again = prompts.map((p, i) => record([...p, ...expected[i].slice(0, 20)], 10));
        for (const r of again) scheduler.submit(r.job);
        await Promise.all(again.map((r) => r.ended));
        assert.deepEqual(again.map((r) => r.tokens), expected.map((tokens) => tokens.slice(20)));
        const { n_generated_tokens, n_rows, n_prompt_tokens } = scheduler.counters;
        assert.equal(n_generated_tokens, 6 * 40);
        if (acceptance === 1) assert.ok(n_rows <= n_prompt_tokens + 6 * 40);
      });
      assert.ok(counts.n_guesses > 100);
      if (acceptance < 1) assert.ok(counts.n_right < counts.n_guesses);
      assert.equal(counts.n_right, counts.rightAt.reduce((a, b) => a + b, 0));
    }
  }
});

Deno.test("Scheduler guesses for those that want it, and takes guesses back when a client leaves or the answer ends", async () => {
  const prompts = [letters(30), letters(20, 7)];
  const { counts } = await withGuesses({ n_slots: 2 }, 1, prompts, 60, async (scheduler, expected, engine) => {
    const plain = record(prompts[0], 60, { speculative: false });
    scheduler.submit(plain.job);
    await plain.ended;
    assert.deepEqual(engine.log.slice(-59), new Array(59).fill([1]));
    assert.deepEqual(plain.tokens, expected[0]);

    // It ends itself in the middle of right guesses.
    const stopped = record(prompts[1], 60);
    const job = {
      ...stopped.job,
      onRow: (row: Row) => ({ ...stopped.job.onRow(row), stop: stopped.tokens.length === 17 }),
    };
    scheduler.submit(job);
    assert.deepEqual(await stopped.ended, { kind: "stopped" });
    assert.deepEqual(stopped.tokens, expected[1].slice(0, 17));

    const left = record(prompts[0], 60);
    const ticket = scheduler.submit({
      ...left.job,
      onRow: (row) => {
        if (left.tokens.length === 10) ticket.cancel();
        return left.job.onRow(row);
      },
    });
    assert.deepEqual(await left.ended, { kind: "cancelled" });
    const last = record(prompts[0], 60);
    scheduler.submit(last.job);
    await last.ended;
    assert.deepEqual(last.tokens, expected[0]);
  });
  assert.ok(counts.n_right > 20);
});

Deno.test("Scheduler answers with guesses in a cache that is too small for all", async () => {
  const prompts = [letters(40), letters(40, 9), letters(40, 4)];
  for (const n_cache of [80, 100, 140]) {
    await withGuesses({ n_slots: 3, n_ctx: 80, n_cache }, 0.7, prompts, 38, async (scheduler, expected) => {
      const runs = prompts.map((p) => record(p, 38));
      for (const r of runs) scheduler.submit(r.job);
      assert.deepEqual((await Promise.all(runs.map((r) => r.ended))).map((o) => o.kind), runs.map(() => "length"));
      assert.deepEqual(runs.map((r) => r.tokens), expected);
    });
  }
});

Deno.test("Scheduler ends the jobs that asked for guesses when what guesses fails, and goes on", async () => {
  const proposer = new Oracle([], 1, 256);
  proposer.propose = () => Promise.reject(new Error("no device"));
  await withScheduler({ n_slots: 2, drafter: new Drafter(proposer) }, async (scheduler) => {
    const failing = record(letters(9), 20), fine = record(letters(9), 20, { speculative: false });
    scheduler.submit(failing.job);
    scheduler.submit(fine.job);
    assert.equal((await failing.ended).kind, "failed");
    assert.equal((await fine.ended).kind, "length");
  });
});
