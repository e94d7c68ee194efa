/**
 * GET /bloomery/machine: what the page's machine view shows. Where the model lives byte by byte, the slots, the queue, and the
 * scheduler's counters. It holds no text of any request.
 * @module
 */
import type { Plan } from "../core/plan/plan.ts";
import { type App, json } from "./app.ts";

export function machine(app: App): Response {
  const { model, scheduler } = app;
  return json({
    build: app.settings.build,
    now_ms: Math.round(performance.now()),
    model: { id: model.id, path: model.path, ...model.meta },
    n_ctx: scheduler.n_ctx,
    n_ubatch: model.engine.n_ubatch,
    plan: model.machine === undefined ? null : describe(model.machine.plan),
    experts: expertsOf(app),
    n_slots: scheduler.slots.length,
    slots: app.settings.endpoints.slots ? slotsOf(app) : null,
    n_processing: scheduler.n_active,
    n_waiting: scheduler.n_waiting,
    counters: scheduler.counters,
  });
}

function slotsOf({ scheduler }: App): object[] {
  return scheduler.views().map(({ id, is_processing, n_prompt_tokens, n_prompt_cached, n_decoded, n_cached }) => ({
    id,
    is_processing,
    n_prompt_tokens,
    n_prompt_cached,
    n_decoded,
    n_cached,
  }));
}

/** Experts that were in memory when they were needed; null where all of them always are. */
function expertsOf({ model }: App): object | null {
  const stats = model.machine?.experts();
  if (stats === undefined) return null;
  const { hits, misses, read_bytes, wait_ms, n_slots, n_held } = stats;
  return { hits, misses, read_bytes, wait_ms, n_slots, n_held };
}

/** Parts of a model by the words in their tensors' names, in the order in which they are asked for. */
const GROUPS: readonly [name: string, has: RegExp][] = [
  ["experts", /_exps\b|_shexp\b|\bffn_gate_inp\b/],
  ["attention", /\battn_|\bssm_|\btime_mix_|\bindexer/],
  ["feed-forward", /\bffn_|\bchannel_mix_/],
  ["embedding", /^(?:token_embd|per_layer_token_embd|position_embd|token_types)\b/],
  ["output", /^output\b/],
];

function describe(plan: Plan): object {
  const groups = new Map<string, { bytes: number; n_tensors: number; types: Set<string> }>();
  for (const { name, type, form, device_bytes } of plan.weights) {
    if (form === "table" || form === "pool") continue; // not on the device for themselves
    const group = GROUPS.find(([, has]) => has.test(name))?.[0] ?? "other";
    const entry = groups.get(group) ?? { bytes: 0, n_tensors: 0, types: new Set() };
    groups.set(group, entry);
    entry.bytes += device_bytes;
    entry.n_tensors++;
    entry.types.add(type.name);
  }
  const { name, kind, memory_bytes, free_bytes } = plan.device;
  return {
    device: { name, kind, memory_bytes, free_bytes },
    devices: plan.devices.map(({ device, total_bytes }) => ({
      name: device.name,
      kind: device.kind,
      free_bytes: device.free_bytes,
      total_bytes,
    })),
    weights: [...groups].map(([name, g]) => ({
      name,
      bytes: g.bytes,
      n_tensors: g.n_tensors,
      types: [...g.types].sort(),
    })).sort((a, b) => b.bytes - a.bytes),
    caches: plan.caches.map(({ window, state, streams, page_size, n_pages, bytes }) => ({
      kind: state ? "state" : window > 0 ? "window" : "cache",
      window,
      types: [...new Set(streams.map((s) => s.type.name))].sort(),
      page_size,
      n_pages,
      bytes,
    })),
    pools: plan.pools.map(({ slot_bytes, n_slots, n_expert, bytes }) => ({ slot_bytes, n_slots, n_expert, bytes })),
    table_bytes: plan.table_bytes,
    scratch_bytes: plan.scratch_bytes,
    total_bytes: plan.total_bytes,
  };
}
