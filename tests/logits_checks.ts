/**
 * What a backend must show on bloom-nano, shared by the CPU's, the card's and the reference's tests: logits and greedy
 * continuations of the float32 reference, row independence and determinism by bits.
 * @module
 */
import assert from "node:assert/strict";
import { Engine, type EngineOptions, type StepOutput } from "../core/engine/mod.ts";
import { openGguf } from "../core/gguf/read.ts";
import type { Backend } from "../core/program/backend.ts";
import type { ReferencePrompt } from "./models.ts";

/** Largest error of a logit with float weights and float activations. */
export const LOGIT_TOLERANCE = 2e-3;

export async function withEngine<R>(
  path: string,
  backend: Backend,
  options: EngineOptions,
  use: (engine: Engine) => Promise<R>,
): Promise<R> {
  using file = openGguf(path);
  using engine = await Engine.load(file, backend, { n_ctx: 1024, ...options });
  return await use(engine);
}

/** All rows of a prompt done in one call. */
export async function wholePrompt(engine: Engine, ids: ArrayLike<number>): Promise<StepOutput> {
  using sequence = engine.createSequence();
  const targets = Array.from(ids, (_, i) => ids[i + 1] ?? -1);
  const [out] = await engine.step([{ sequence, tokens: ids, output: "all", want: "logits", targets }]);
  return out;
}

export async function checkLogits(engine: Engine, p: ReferencePrompt, name: string): Promise<void> {
  const out = await wholePrompt(engine, p.ids);
  const last = out.full!.subarray((p.ids.length - 1) * engine.n_vocab);
  let worst = 0;
  p.logits_last.forEach((x, i) => worst = Math.max(worst, Math.abs(x - last[i])));
  assert.ok(worst < LOGIT_TOLERANCE, `${name}: a logit differs by ${worst}`);
  const lp = p.next_logprob.map((x, i) => Math.abs(x - out.targetLogprob[i]));
  assert.ok(Math.max(...lp) < LOGIT_TOLERANCE, `${name}: a log-probability differs by ${Math.max(...lp)}`);
  const best = p.logits_last.indexOf(Math.max(...p.logits_last));
  assert.equal(out.ids[(p.ids.length - 1) * engine.topK], best, `${name}: the best token`);
}

/** Greedy ids up to the first stop, or to a near tie that two right implementations may break differently. */
export async function checkGreedy(engine: Engine, p: ReferencePrompt, name: string, limit = 64): Promise<void> {
  const stop = p.greedy_first_stop >= 0 ? p.greedy_first_stop + 1 : p.greedy_ids.length;
  const tie = p.greedy_margins.findIndex((m) => m < 2 * LOGIT_TOLERANCE);
  const n = Math.min(limit, stop, tie < 0 ? Infinity : tie);
  using sequence = engine.createSequence();
  let next: ArrayLike<number> = p.ids;
  const got: number[] = [];
  for (let i = 0; i < n; i++) {
    const [out] = await engine.step([{ sequence, tokens: next, output: "last" }]);
    got.push(out.ids[0]);
    next = [out.ids[0]];
  }
  assert.deepEqual(got, p.greedy_ids.slice(0, n), `${name}: greedy ids`);
}

function sameBits(a: Float32Array, b: Float32Array, what: string): void {
  assert.equal(a.length, b.length, what);
  const x = new Uint32Array(a.buffer, a.byteOffset, a.length), y = new Uint32Array(b.buffer, b.byteOffset, b.length);
  for (let i = 0; i < x.length; i++) {
    if (x[i] !== y[i]) assert.fail(`${what}: number ${i} is ${a[i]} and ${b[i]}`);
  }
}

/** A prompt in one pass, in uneven pieces and one token a step: the same bits of logits. */
export async function checkPromptSplits(
  engine: Engine,
  ids: readonly number[],
  sizes: readonly number[],
): Promise<void> {
  const whole = await wholePrompt(engine, ids);
  for (const size of sizes) {
    using sequence = engine.createSequence();
    for (let at = 0; at < ids.length; at += size) {
      const tokens = ids.slice(at, at + size);
      const [out] = await engine.step([{ sequence, tokens, output: "all", want: "logits" }]);
      const expected = whole.full!.subarray(at * engine.n_vocab, (at + tokens.length) * engine.n_vocab);
      sameBits(out.full!, expected, `${size} tokens a step, from ${at}`);
    }
  }
}

/**
 * A sequence that leaves the engine as bytes and comes back, into pages that others have used since, goes on with the bits it would
 * have had. `places`: lengths at which it leaves.
 */
export async function checkSnapshots(engine: Engine, ids: readonly number[], places: readonly number[]): Promise<void> {
  const whole = await wholePrompt(engine, ids);
  for (const at of places) {
    const left = engine.createSequence();
    await engine.step([{ sequence: left, tokens: ids.slice(0, at), output: "last" }]);
    const snapshot = engine.snapshot(left);
    left.dispose();
    await wholePrompt(engine, [...ids].reverse());
    using sequence = engine.restore(snapshot);
    assert.deepEqual(sequence.tokens, ids.slice(0, at));
    const [out] = await engine.step([{ sequence, tokens: ids.slice(at), output: "all", want: "logits" }]);
    sameBits(out.full!, whole.full!.subarray(at * engine.n_vocab), `restored at ${at}`);
    const [first, ...rest] = snapshot.caches;
    const cut = { ...snapshot, caches: [{ ...first, data: first.data.subarray(1) }, ...rest] };
    assert.throws(() => engine.restore(cut), { code: "engine.snapshot" });
    assert.throws(() => engine.restore({ ...snapshot, caches: rest }), { code: "engine.snapshot" });
    const moved = { ...first, places: first.places.map((p) => p + 1) };
    assert.throws(() => engine.restore({ ...snapshot, caches: [moved, ...rest] }), { code: "engine.snapshot" });
    for (const tokens of [[...snapshot.tokens.slice(1), engine.n_vocab], Array(engine.n_ctx + 1).fill(0)]) {
      assert.throws(() => engine.restore({ ...snapshot, tokens }), { code: "engine.snapshot" });
    }
  }
}

/** Sequences stepped together give the bits each gives alone; a fork gives its parent's. */
export async function checkBatch(
  engine: Engine,
  prompts: readonly (readonly number[])[],
  n_decode: number,
): Promise<void> {
  const run = async (group: readonly (readonly number[])[]) => {
    const sequences = group.map(() => engine.createSequence());
    const rows: Float32Array[][] = group.map(() => []);
    let next: ArrayLike<number>[] = [...group];
    for (let i = 0; i <= n_decode; i++) {
      const out = await engine.step(
        sequences.map((sequence, s) => ({
          sequence,
          tokens: next[s],
          output: "last" as const,
          want: "logits" as const,
        })),
      );
      out.forEach((o, s) => rows[s].push(o.full!));
      next = out.map((o) => [o.ids[0]]);
    }
    for (const s of sequences) s.dispose();
    return rows;
  };
  const together = await run(prompts);
  for (const [i, prompt] of prompts.entries()) {
    const [alone] = await run([prompt]);
    alone.forEach((row, step) => sameBits(row, together[i][step], `sequence ${i}, step ${step}`));
  }

  using parent = engine.createSequence();
  await engine.step([{ sequence: parent, tokens: prompts[0], output: "none" }]);
  using child = parent.fork();
  const [a, b] = [
    await engine.step([{ sequence: parent, tokens: [1], output: "last", want: "logits" }]),
    await engine.step([
      { sequence: child, tokens: [1], output: "last", want: "logits" },
    ]),
  ];
  sameBits(a[0].full!, b[0].full!, "a fork");
}
