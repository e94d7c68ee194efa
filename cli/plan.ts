/**
 * `bloomery plan`: what a model takes and where it would lie, from its headers alone.
 * @module
 */
import { type Command, EXIT, type Flag, type Flags } from "./command.ts";
import { COMMON, MODEL_FLAGS } from "./flags.ts";
import { LLAMA_MODEL_FLAGS } from "./llama_flags.ts";
import { describePrediction, MACHINE_FLAG, machineOf } from "./machine_file.ts";
import { modelPath } from "./model_file.ts";
import { deviceName, openConfigured, threadsOf } from "./open.ts";
import { placementOf } from "./place_flags.ts";
import { parseSize } from "./size.ts";
import { SLOT_FLAGS, slotsOf } from "./slots.ts";
import type { CacheType } from "../core/plan/cache.ts";
import type { Plan } from "../core/plan/plan.ts";
import type { Prediction } from "../core/plan/predict.ts";
import type { DeviceInfo } from "../core/program/backend.ts";

/** Cards that need not be here. */
function cards(rooms: string, first: number): DeviceInfo[] {
  return rooms.split(",").map((text, i) => {
    const room = parseSize(text.trim(), "card-room"), name = i === 0 ? "a card" : `card ${i + 1}`;
    return { index: first + i, kind: "cuda", name, memory_bytes: room, free_bytes: room, features: [] };
  });
}

function report(file: string, flags: Flags, plan: Plan, n_ctx: number, prediction: Prediction | undefined) {
  const { device, devices, placement, weights, pools, caches, ...bytes } = plan;
  const form = (name: string) => weights.filter((w) => w.form === name).reduce((n, w) => n + w.bytes, 0);
  return {
    schema: "bloomery.plan/1",
    model: file,
    device: device.name,
    device_kind: device.kind,
    free_bytes: device.free_bytes,
    n_ctx,
    n_ubatch: flags.num("ubatch-size"),
    ...bytes,
    devices: devices.map(({ device, ...bytes }) => ({
      index: device.index,
      name: device.name,
      kind: device.kind,
      free_bytes: device.free_bytes,
      n_layer: placement.layers.filter((d) => d === device.index).length,
      ...bytes,
    })),
    layers: placement.layers,
    expert_bytes: form("pool"),
    mapped_bytes: form("mapped"),
    packed_bytes: form("packed"),
    pools: pools.map(({ device, slot_bytes, n_slots, n_expert, groups, bytes }) => ({
      device,
      slot_bytes,
      n_slots,
      n_expert,
      n_layer: groups.length,
      bytes,
    })),
    caches: caches.map(({ window, state, page_size, n_pages, bytes }) => ({
      window,
      state,
      page_size,
      n_pages,
      bytes,
    })),
    weights: weights.filter((w) => w.bytes > 0).map((w) => ({
      name: w.name,
      type: w.type.name,
      bytes: w.bytes,
      form: w.form,
      device: w.device,
      device_bytes: w.device_bytes,
    })),
    ...(prediction === undefined ? {} : { prediction }),
  };
}

/** Flags that mean something else here. */
const OWN: readonly Flag[] = [
  SLOT_FLAGS.ctxSize,
  {
    name: "card-room",
    type: "string",
    value: "SIZE",
    help: "plan for a card with this much free memory, such as 24G, or for several: 24G,16G. They need not be here",
  },
];

export const plan: Command = {
  name: "plan",
  summary: "Show what a model takes and where it would lie, without loading it",
  arguments: [{ name: "file", help: "GGUF file, or the first of a split set", optional: true }],
  flags: [
    ...MODEL_FLAGS.map((flag) => OWN.find((own) => own.name === flag.name) ?? flag),
    { ...SLOT_FLAGS.parallel, default: 1 },
    SLOT_FLAGS.unified,
    SLOT_FLAGS.perSlot,
    SLOT_FLAGS.cacheSize,
    MACHINE_FLAG,
    COMMON.json,
    COMMON.quiet,
    ...LLAMA_MODEL_FLAGS,
  ],
  epilog:
    "No device is opened, and no card needs to be there. Exit code 1 and every term of the sum where it does not fit.\n\n" +
    "Examples:\n  bloomery plan qwen3-30b-a3b-Q4_K_M.gguf --host-room 8G\n" +
    "  bloomery plan -m qwen3-8b-Q4_K_M.gguf --ctx-size 32768 --card-room 12G",

  async run({ args, flags, io }) {
    const { openNativeBackend } = await import("../ffi/mod.ts");
    const { bindModel } = await import("../core/arch/model.ts");
    const { planEngine } = await import("../core/engine/planning.ts");
    const { describePlan } = await import("../core/plan/describe.ts");
    const path = args[0] ?? await modelPath(flags, io);
    using file = await openConfigured(path, flags, io);
    // The host's library measures programs; a card's would open the cards.
    using host = openNativeBackend("cpu", { threads: threadsOf(flags, io) });
    const { predict } = await import("../core/plan/predict.ts");
    const { workOf } = await import("../core/plan/work.ts");
    const rooms = flags.str("card-room"), named = deviceName(flags).split(",");
    for (const _ of named.filter((name) => name === "cpu").slice(1)) host.addDevice(0);
    const { devices } = host, isOnHost = devices.length === 1 && (rooms === undefined || named[0] === "cpu");
    const { cardRoom: _, ...places } = await placementOf(flags);
    const { n_slots, ...context } = slotsOf(flags);
    const planned = planEngine(bindModel(file), {
      devices: [...devices, ...rooms === undefined ? [] : cards(rooms, devices.length)],
      measureProgram: (program, device, caches) =>
        device < devices.length ? host.measureProgram(program, device, caches) : undefined,
    }, {
      device: isOnHost ? 0 : 1,
      ...context,
      n_seq: n_slots,
      n_out: Math.max(n_slots, 64),
      n_ubatch: flags.num("ubatch-size")!,
      cacheTypeK: flags.str("cache-type-k") as CacheType,
      cacheTypeV: flags.str("cache-type-v") as CacheType,
      ...places,
    });
    const machineName = flags.str("machine"), machine = machineName === undefined ? undefined : machineOf(machineName);
    const options = { n_ubatch: planned.n_ubatch, rank: places.rank };
    const prediction = machine && predict(workOf(planned.model, planned.plan), machine, options);
    if (flags.bool("json")) io.json(report(path, flags, planned.plan, planned.n_ctx, prediction));
    else {
      if (planned.contextReason !== undefined) io.note(`context of ${planned.n_ctx} tokens: ${planned.contextReason}`);
      io.out(describePlan(planned.plan) + "\n");
      if (prediction) io.out(describePrediction(prediction, options) + "\n");
    }
    return EXIT.done;
  },
};
