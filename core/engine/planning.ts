/**
 * From an engine's options to its plan: which device, how long a context, how many rows a step.
 * @module
 */
import type { Model } from "../arch/model.ts";
import { EngineError, PlanError, UsageError } from "../errors.ts";
import { chooseContext } from "../plan/context.ts";
import type { CacheType } from "../plan/cache.ts";
import { type Attempt, nextPowerOfTwo, type Plan, planModel, tryPlan } from "../plan/plan.ts";
import { expertsOf, placementFor, type PlaceOptions, placesNear, spreadOver } from "../plan/places.ts";
import type { Placement } from "../program/place.ts";
import type { Backend, DeviceInfo } from "../program/backend.ts";

/** What a plan depends on. */
export interface PlanningOptions {
  /** Index of the backend's device that holds what `place` does not put elsewhere. */
  readonly device?: number;
  /** What lies on which device, or what says so when the devices and `device` are known. Default: everything on `device`. */
  readonly place?: PlaceOptions | ((devices: readonly DeviceInfo[], device: number) => PlaceOptions);
  /** The most tokens of one sequence. Default: what the model was trained for, or the largest that fits. */
  readonly n_ctx?: number;
  /** Tokens the cache holds over all sequences. Default: `contexts` times `n_ctx`. */
  readonly n_cache?: number;
  /** Whole contexts that the cache holds where `n_cache` does not say. Default: 1. */
  readonly contexts?: number;
  /** Sequences that run at once, each with its own windows and recurrent states. Default: `contexts`. */
  readonly n_seq?: number;
  /** The most token rows of one native step. */
  readonly n_ubatch?: number;
  /** The most output rows of one native step: whole rows of logits are large. Default: `n_ubatch`. */
  readonly n_out?: number;
  /** Element type of cached keys; f16 where left out. */
  readonly cacheTypeK?: CacheType;
  /** Element type of cached values; f16 where left out. */
  readonly cacheTypeV?: CacheType;
  /** Candidates per output row. */
  readonly topK?: number;
  /**
   * Sum up the squares of what goes into the matrices of these weights, for `Engine.collected`. Such an engine computes every row
   * to the end and keeps no points of sequences.
   */
  readonly collect?: (weight: string) => boolean;
  /** Bytes of host memory that the model may take. Default: what is free. */
  readonly hostRoom?: number;
  /** Bytes of each card's memory that the model may take. Default: what is free. */
  readonly cardRoom?: number;
  /**
   * Slots of experts in host memory, where the room is not to decide.
   * @internal
   */
  readonly slots?: number;
}

export interface PlannedEngine {
  readonly model: Model;
  readonly plan: Plan;
  readonly n_ctx: number;
  readonly n_ubatch: number;
  /** The most output rows of one native step. */
  readonly n_out: number;
  /** Candidates of an output row. */
  readonly topK: number;
  /** Why `n_ctx` is what it is, where nobody asked for it. */
  readonly contextReason: string | undefined;
}

/** Where experts do not all fit, a context that nobody asked for takes this share of the room at most, or is this short. */
const CONTEXT_SHARE = 1 / 8, SHORT_CONTEXT = 4096;

/** A card keeps this much, or this share where that is less, for what no plan counts: its context, graphs and buffers of kernels. */
const CARD_MARGIN = 2 ** 30, CARD_SHARE = 1 / 10;

function withoutMargin(card: DeviceInfo): number {
  return card.free_bytes - Math.min(CARD_MARGIN, card.free_bytes * CARD_SHARE);
}

/** Candidates of an output row where nobody says how many. */
const TOP_K = 64;

function wantCount(name: string, value: number): void {
  if (Number.isInteger(value) && value >= 1) return;
  throw new UsageError("usage.value", `Cannot use ${name} = ${value}: expected a whole number of at least 1`, {
    at: { name, got: value },
  });
}

/** The longest context that fits; experts are not pushed out of memory for its sake. */
function contextFor(model: Model, device: DeviceInfo, attempt: (n_ctx: number, device: DeviceInfo) => Attempt) {
  let resident: boolean | undefined;
  return chooseContext(model.spec.n_ctx_train, device, (n_ctx, device) => {
    const { plan, fits } = attempt(n_ctx, device);
    if (!fits) throw new PlanError("plan.does_not_fit", `Cannot keep ${n_ctx} tokens`);
    if (plan.total_bytes > plan.room_bytes && n_ctx > SHORT_CONTEXT) {
      throw new PlanError("plan.does_not_fit", `Cannot keep ${n_ctx} tokens beside the weights`);
    }
    if (plan.pools.length === 0 || n_ctx <= SHORT_CONTEXT) return;
    resident ??= attempt(SHORT_CONTEXT, device).plan.pools.length === 0;
    if (!resident && plan.cache_bytes <= CONTEXT_SHARE * plan.room_bytes) return;
    throw new PlanError("plan.does_not_fit", `Cannot keep ${n_ctx} tokens beside the experts`);
  });
}

/**
 * Plans an engine; nothing is loaded or opened.
 * @throws {PlanError} {@link UsageError} `usage.device`, `usage.value` · {@link EngineError} `engine.collect`
 */
export function planEngine(
  model: Model,
  backend: Pick<Backend, "devices" | "measureProgram">,
  options: PlanningOptions,
): PlannedEngine {
  const n_ubatch = options.n_ubatch ?? 512, index = options.device ?? 0;
  const { devices } = backend;
  wantCount("n_ubatch", n_ubatch);
  if (options.n_ctx !== undefined) wantCount("n_ctx", options.n_ctx);
  const infoOf = (index: number): DeviceInfo => {
    const device = devices.find((d) => d.index === index);
    if (device) return device;
    const known = devices.map((d) => `${d.index} ${d.name}`);
    throw new UsageError("usage.device", `Cannot use device ${index}: there are ${known.join(", ")}`, {
      at: { got: index, devices: known },
      hint:
        "name the devices with --device, such as cpu,cuda:0; bloomery plan takes cards that are not there as --card-room 24G",
    });
  };
  const contexts = options.contexts ?? 1, topK = Math.min(options.topK ?? TOP_K, model.spec.n_vocab);
  const planOptions = (n_ctx: number, placement: Placement, share: number) => ({
    device: infoOf(placement.output),
    devices: devices.map((d) => ({ ...d, free_bytes: Math.floor(d.free_bytes * share) })),
    placement,
    n_ctx,
    n_cache: Math.max(options.n_cache ?? n_ctx * contexts, n_ctx),
    n_seq: options.n_seq ?? contexts,
    n_ubatch,
    ...(options.collect ? { n_kept: 0 } : {}),
    n_out: options.n_out,
    topK,
    cacheTypeK: options.cacheTypeK ?? "f16",
    cacheTypeV: options.cacheTypeV ?? "f16",
    hostRoom: options.hostRoom,
    cardRoom: options.cardRoom,
    slots: options.slots,
    backend,
  });
  let place = typeof options.place === "function" ? options.place(devices, index) : options.place ?? {};
  const { n_layer } = model.spec, experts = expertsOf(n_layer);
  const hasExperts = model.weights.some((w) => experts.test(w.name));
  if (place.spread && infoOf(index).kind === "cuda") {
    const n_ctx = options.n_ctx ?? Math.min(model.spec.n_ctx_train, SHORT_CONTEXT);
    const cardRoom = options.cardRoom ?? withoutMargin(infoOf(index));
    const fits = (tried: PlaceOptions) => {
      const placement = placementFor({ ...place, ...tried }, n_layer, index);
      return tryPlan(model, { ...planOptions(n_ctx, placement, 1), cardRoom }).fits;
    };
    place = { ...place, ...spreadOver(index, n_layer, hasExperts, fits) };
  }
  const placement = placementFor(place, n_layer, index);
  const used = [...placement.layers, placement.output, ...placement.overrides.map((o) => o.device)].map(infoOf);
  const card = used.find((d) => d.kind === "cuda");
  if (options.collect && card) {
    const text = `Cannot sum up the inputs of matrices on ${card.name}: only the host can`;
    throw new EngineError("engine.collect", text, { at: { device: card.name }, hint: "use --device cpu" });
  }
  const device = infoOf(placement.output);
  const others = placesNear(place, n_layer, hasExperts, index).map(({ most, at }) => ({
    most,
    at(n: number) {
      const { flag, place } = at(n);
      return { flag, placement: placementFor(place, n_layer, index) };
    },
  }));
  // A context that nobody asked for is tried with a part of the free memory, of every device alike.
  const chosen = options.n_ctx === undefined
    ? contextFor(
      model,
      device,
      (n_ctx, d) => tryPlan(model, planOptions(n_ctx, placement, d.free_bytes / device.free_bytes)),
    )
    : undefined;
  const asked = options.n_ctx ?? chosen!.n_ctx, n_ctx = Math.min(asked, model.spec.n_position ?? asked);
  const plan = planModel(model, { ...planOptions(n_ctx, placement, 1), others }), rows = nextPowerOfTwo(n_ubatch);
  // A row of an encoder is as small as what goes in.
  const n_out = model.arch.encoder ? rows : Math.min(rows, options.n_out ?? rows);
  return {
    model,
    plan,
    n_ctx,
    n_ubatch: rows,
    n_out,
    topK,
    contextReason: n_ctx < asked ? `${model.spec.arch} takes no more than ${n_ctx} here` : chosen?.reason,
  };
}
