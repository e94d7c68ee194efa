/**
 * GET /metrics: the scheduler's counters for Prometheus.
 * @module
 */
import type { App } from "./app.ts";
import type { SchedulerCounters } from "./scheduler.ts";

const COUNTERS: readonly [keyof SchedulerCounters, name: string, help: string][] = [
  ["n_jobs", "requests_total", "Answers asked for"],
  ["n_prompt_tokens", "prompt_tokens_total", "Prompt tokens computed"],
  ["n_cached_tokens", "prompt_tokens_cached_total", "Prompt tokens taken over from a cache"],
  ["n_generated_tokens", "tokens_predicted_total", "Tokens generated"],
  ["n_steps", "steps_total", "Steps of the engine"],
  ["n_rows", "step_rows_total", "Token rows over all steps"],
];

/** The counters as they are now, in Prometheus' text format. */
export async function metrics(app: App): Promise<Response> {
  // Loaded at the first use: it takes a tenth of a server's start.
  const { Counter, Gauge, Registry } = await import("prom-client");
  const { scheduler } = app;
  // The scheduler counts; a registry of its own for each answer only writes the format.
  const registers = [new Registry()];
  for (const [key, name, help] of COUNTERS) {
    new Counter({ name: `bloomery_${name}`, help, registers }).inc(scheduler.counters[key]);
  }
  const gauge = (name: string, help: string, value: number) =>
    new Gauge({ name: `bloomery_${name}`, help, registers }).set(value);
  gauge("requests_processing", "Requests in a slot", scheduler.n_active);
  gauge("requests_deferred", "Requests waiting for a slot", scheduler.n_waiting);
  gauge("slots", "Slots", scheduler.slots.length);
  return new Response(await registers[0].metrics(), { headers: { "content-type": registers[0].contentType } });
}
