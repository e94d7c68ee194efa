/**
 * GET /metrics: the scheduler's counters for Prometheus, under our names and llama-server's.
 * @module
 */
import type { DraftCounts } from "../core/draft/drafter.ts";
import type { LayerHits } from "../core/engine/residency.ts";
import type { App } from "./app.ts";
import type { Scheduler, SchedulerCounters } from "./scheduler.ts";

const COUNTERS: readonly [keyof SchedulerCounters, name: string, help: string][] = [
  ["n_jobs", "requests_total", "Answers asked for"],
  ["n_prompt_tokens", "prompt_tokens_total", "Prompt tokens computed"],
  ["n_cached_tokens", "prompt_tokens_cached_total", "Prompt tokens taken over from a cache"],
  ["n_generated_tokens", "tokens_predicted_total", "Tokens generated"],
  ["n_steps", "steps_total", "Steps of the engine"],
  ["n_rows", "step_rows_total", "Token rows over all steps"],
];

/** llama-server's names for what both count. */
const LLAMA_COUNTERS: readonly [name: string, help: string, value: (c: SchedulerCounters) => number][] = [
  ["prompt_tokens_total", "Prompt tokens computed", (c) => c.n_done_prompt_tokens],
  ["prompt_tokens_cached_total", "Prompt tokens taken over from a cache", (c) => c.n_cached_tokens],
  ["prompt_seconds_total", "Time that prompts took", (c) => c.prompt_ms / 1000],
  ["tokens_predicted_total", "Tokens generated", (c) => c.n_generated_tokens],
  ["tokens_predicted_seconds_total", "Time that answers took", (c) => c.answer_ms / 1000],
  ["n_decode_total", "Steps of the engine", (c) => c.n_steps],
  ["n_tokens_max", "Tokens of the longest sequence", (c) => c.n_longest],
];

/** What came of guessed tokens, under our names and llama-server's; absent where none were guessed. */
const DRAFT_COUNTERS: readonly [ours: string, llama: string, help: string, value: (d: DraftCounts) => number][] = [
  ["drafts_total", "spec_decode_num_drafts_total", "Runs of guessed tokens", (d) => d.n_runs],
  ["draft_tokens_total", "spec_decode_num_draft_tokens_total", "Guessed tokens", (d) => d.n_guesses],
  [
    "draft_tokens_accepted_total",
    "spec_decode_num_accepted_tokens_total",
    "Guessed tokens that were right",
    (d) => d.n_right,
  ],
];

/** Counters at the last scrape: rates cover the time since then. */
const lastScrape = new WeakMap<Scheduler, SchedulerCounters>();

/** The counters as they are now, in Prometheus' text format. */
export async function metrics(app: App): Promise<Response> {
  // Loaded at the first use: it takes a tenth of a server's start.
  const { Counter, Gauge, Registry } = await import("prom-client");
  const { scheduler } = app;
  // The scheduler counts; a registry of its own for each answer only writes the format.
  const registers = [new Registry()];
  const now = { ...scheduler.counters };
  for (const [key, name, help] of COUNTERS) new Counter({ name: `bloomery_${name}`, help, registers }).inc(now[key]);
  for (const [name, help, value] of LLAMA_COUNTERS) {
    new Counter({ name: `llamacpp:${name}`, help, registers }).inc(value(now));
  }
  const { drafts } = scheduler;
  if (drafts !== undefined && drafts.n_runs > 0) {
    for (const [ours, llama, help, value] of DRAFT_COUNTERS) {
      new Counter({ name: `bloomery_${ours}`, help, registers }).inc(value(drafts));
      new Counter({ name: `llamacpp:${llama}`, help, registers }).inc(value(drafts));
    }
    const name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total";
    const byPlace = new Counter({ name, help: "Right guesses by place", labelNames: ["position"], registers });
    drafts.rightAt.forEach((n, i) => byPlace.inc({ position: String(i) }, n));
  }
  const gauge = (name: string, help: string, value: number) => new Gauge({ name, help, registers }).set(value);
  const before = lastScrape.get(scheduler);
  lastScrape.set(scheduler, now);
  const since = (of: (c: SchedulerCounters) => number) => of(now) - (before === undefined ? 0 : of(before));
  const rate = (n: (c: SchedulerCounters) => number, ms: (c: SchedulerCounters) => number) =>
    since(ms) > 0 ? since(n) * 1000 / since(ms) : 0;
  const perPrompt = rate((c) => c.n_done_prompt_tokens, (c) => c.prompt_ms);
  gauge("llamacpp:prompt_tokens_seconds", "Prompt tokens a second, since the last scrape", perPrompt);
  const perAnswer = rate((c) => c.n_generated_tokens, (c) => c.answer_ms);
  gauge("llamacpp:predicted_tokens_seconds", "Tokens a second of an answer, since the last scrape", perAnswer);
  const busy = since((c) => c.n_steps) > 0 ? since((c) => c.n_busy) / since((c) => c.n_steps) : 0;
  gauge("llamacpp:n_busy_slots_per_decode", "Slots in a step, since the last scrape", busy);
  for (const prefix of ["bloomery_", "llamacpp:"]) {
    gauge(`${prefix}requests_processing`, "Requests in a slot", scheduler.n_active);
    gauge(`${prefix}requests_deferred`, "Requests waiting for a slot", scheduler.n_waiting);
  }
  gauge("bloomery_slots", "Slots", scheduler.slots.length);
  const experts = app.model.engine.residency?.stats;
  if (experts !== undefined) {
    const count = (name: string, help: string, of: (layer: LayerHits) => number) => {
      const counter = new Counter({ name: `bloomery_${name}`, help, labelNames: ["layer"], registers });
      for (const layer of experts.layers) counter.inc({ layer: layer.name }, of(layer));
    };
    count("expert_hits_total", "Experts that were in memory when they were needed", (l) => l.hits);
    count("expert_misses_total", "Experts that were read when they were needed", (l) => l.misses);
    count("expert_needed_total", "Experts needed by layers for which they had been guessed", (l) => l.n_needed);
    count("expert_guessed_total", "Experts guessed before their layer was computed", (l) => l.n_guessed);
    count("expert_guessed_right_total", "Of them, those that the layer needed", (l) => l.n_right);
    const bytes = (name: string, help: string, n: number) =>
      new Counter({ name: `bloomery_expert_${name}_bytes_total`, help, registers }).inc(n);
    bytes("read", "Bytes of experts read", experts.read_bytes);
    bytes("ahead", "Bytes of experts read before their layer was computed", experts.ahead_bytes);
    bytes("unused", "Of them, bytes of experts that left without being used", experts.unused_bytes);
    new Counter({ name: "bloomery_expert_wait_seconds_total", help: "Time that steps waited for experts", registers })
      .inc(experts.wait_ms / 1000);
  }
  return new Response(await registers[0].metrics(), {
    headers: {
      "content-type": registers[0].contentType,
      "process-start-time-unix": String(Math.floor(performance.timeOrigin / 1000)),
    },
  });
}
