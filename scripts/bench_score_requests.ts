/**
 * Scoring over HTTP as lm-eval's local-completions does it: 64 prompts in one request against one request each, for several
 * numbers of slots, with one size of cache.
 *
 *   deno run -A scripts/bench_score_requests.ts MODEL.gguf [DEVICE]
 *
 * Prints prompts a second, the median of three runs, the processor time that a prompt took, which other work on the machine does not
 * change much, and the rows and steps of a request. The answers are compared: they must be equal by bits.
 * @module
 */
import assert from "node:assert/strict";
import process from "node:process";
import { openModel } from "../ffi/mod.ts";
import { servedModel, startServer } from "../serve/mod.ts";

const [path, device = "cpu"] = Deno.args;
if (path === undefined) throw new Error("give a model: scripts/bench_score_requests.ts MODEL.gguf [DEVICE]");
const N_PROMPTS = 64, N_CTX = 256, N_CACHE = 16384;

/** A question of some length and four answers, as token ids; deterministic. */
function prompts(n_vocab: number): number[][] {
  let x = 1;
  const next = (below: number) => {
    x = (Math.imul(x, 1103515245) + 12345) >>> 0;
    return (x >>> 8) % below;
  };
  return Array.from({ length: N_PROMPTS / 4 }, () => {
    const question = Array.from({ length: 20 + next(30) }, () => next(n_vocab));
    return Array.from({ length: 4 }, () => [...question, ...Array.from({ length: 3 + next(8) }, () => next(n_vocab))]);
  }).flat();
}

for (const n_slots of [1, 4, 16, 64]) {
  using opened = await openModel(path, { device, n_ctx: N_CTX, n_cache: N_CACHE, n_seq: n_slots });
  const server = await startServer({ model: servedModel(opened.model), port: 0, n_slots });
  const post = async (prompt: unknown) => {
    const body = { model: "m", prompt, temperature: 0, max_tokens: 1, logprobs: 1, seed: 1234, echo: true };
    const response = await fetch(`${server.url}/v1/completions`, { method: "POST", body: JSON.stringify(body) });
    const { choices } = await response.json() as {
      choices: { index: number; logprobs: { token_logprobs: number[] } }[];
    };
    return choices.sort((a, b) => a.index - b.index).map((c) => c.logprobs.token_logprobs);
  };
  const all = prompts(opened.model.engine.n_vocab);
  const together = () => post(all);
  const alone = async () => {
    const answers = [];
    for (const prompt of all) answers.push(...await post([prompt]));
    return answers;
  };
  assert.deepEqual(await together(), await alone()); // and programs are prepared
  const rate = async (run: () => Promise<unknown>) => {
    const runs: { ms: number; cpu: number }[] = [], { n_rows, n_steps } = server.scheduler.counters;
    for (let i = 0; i < 3; i++) {
      const start = performance.now(), used = process.cpuUsage();
      await run();
      const { user, system } = process.cpuUsage(used);
      runs.push({ ms: performance.now() - start, cpu: (user + system) / 1000 });
    }
    const median = (of: (run: { ms: number; cpu: number }) => number) => runs.map(of).sort((a, b) => a - b)[1];
    const { counters } = server.scheduler;
    return {
      rate: N_PROMPTS / (median((r) => r.ms) / 1000),
      cpu: median((r) => r.cpu) / N_PROMPTS,
      rows: (counters.n_rows - n_rows) / 3,
      steps: (counters.n_steps - n_steps) / 3,
    };
  };
  const one = await rate(alone), many = await rate(together);
  const told = ({ rate, cpu, rows, steps }: typeof one) =>
    `${rate.toFixed(0)} prompts/s, ${cpu.toFixed(1)} ms of processor, ${rows.toFixed(0)} rows in ${
      steps.toFixed(0)
    } steps`;
  console.log(
    `${n_slots} slots: one by one ${told(one)}; together ${told(many)}; ${(many.rate / one.rate).toFixed(2)} x`,
  );
  await server.stop();
}
