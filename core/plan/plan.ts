/**
 * The plan: where each weight, cache and state lives, decided from headers and the devices' free bytes before anything is
 * loaded. It refuses by name with every term of the sum when it does not fit.
 * @module
 */
import { buildProgram, type Model } from "../arch/model.ts";
import { PlanError } from "../errors.ts";
import type { Backend, DeviceInfo } from "../program/backend.ts";
import { crossings, placedOn, type Placement } from "../program/place.ts";
import { type Bucket, KIND, type Program, type WeightDesc } from "../program/program.ts";
import { type CacheOptions, type CachePlan, PAGE_SIZE, partOf, partSpec, planCache } from "./cache.ts";
import { formatBytes } from "./bytes.ts";
import { fillRoom, type PoolPlan, smallestPools, withAll } from "./pools.ts";
import { isPackedWeight, packedPlace, planWeight, routedGroups, type WeightPlan } from "./weights.ts";

/** Placements that leave less and less to some device, with the flags that ask for them. */
export interface OtherPlacements {
  /** The last is `at(most)`; the first, nearest to what was asked for, `at(1)`. */
  readonly most: number;
  at(n: number): { readonly flag: string; readonly placement: Placement };
}

export interface PlanOptions extends CacheOptions {
  /** That the model is on where `placement` does not say. */
  readonly device: DeviceInfo;
  /** All that `placement` names. */
  readonly devices?: readonly DeviceInfo[] | undefined;
  /** Which device has which layers and weights. Default: `device` has all. */
  readonly placement?: Placement | undefined;
  /** The most tokens of one sequence. */
  readonly n_ctx: number;
  /** Bytes of host memory that the model may take; default: what is free, less a reserve for the system. */
  readonly hostRoom?: number | undefined;
  /** Bytes of each card's memory that the model may take; default: what is free. */
  readonly cardRoom?: number | undefined;
  /** Slots of experts, where the room is not to decide. */
  readonly slots?: number | undefined;
  /** The most output rows of one native step; default: `n_ubatch`. */
  readonly n_out?: number | undefined;
  /** Candidates of an output row. */
  readonly topK?: number | undefined;
  /** Placements that a refusal may propose, the nearest first. */
  readonly others?: readonly OtherPlacements[] | undefined;
  /** Says what a program needs; where it cannot, or is left out, scratch memory is estimated. */
  readonly backend?: Pick<Backend, "measureProgram"> | undefined;
}

/** What a model takes on one device. */
export interface DevicePlan {
  /** Which one. */
  readonly device: DeviceInfo;
  /** Weights that stay there: packed, or the file's own bytes. */
  readonly resident_bytes: number;
  /**
   * Of them, pages of files, where all matrices are such: the system drops those that memory does not hold and reads them again, so that
   * a plan fits where the rest does. 0 where some matrix is kept as a copy.
   */
  readonly file_bytes: number;
  /** Slots of its pools of experts. */
  readonly pool_bytes: number;
  /** Its parts of the caches. */
  readonly cache_bytes: number;
  /** What a step's values and the kernels' own buffers take at most. */
  readonly scratch_bytes: number;
  /** Of everything. */
  readonly total_bytes: number;
  /** What it has to fit into, beside what logical devices of the same memory take. */
  readonly room_bytes: number;
}

/** What a model takes, and where. */
export interface Plan {
  /** The one that the model ends on. */
  readonly device: DeviceInfo;
  /** All that have something of it, the host first. */
  readonly devices: readonly DevicePlan[];
  /**
   * Which device has which layers and weights.
   * @internal
   */
  readonly placement: Placement;
  /** In the order that a step asks for them. */
  readonly weights: readonly WeightPlan[];
  /** Of all weights, as the file has them. */
  readonly weight_bytes: number;
  /** Weights that stay on their devices: packed, or the file's own bytes. */
  readonly resident_bytes: number;
  /** Tables of which rows are read as tokens name them: not part of the total. */
  readonly table_bytes: number;
  /** Slots that experts are read into while steps run; none where all are resident. */
  readonly pools: readonly PoolPlan[];
  /** Of all slots. */
  readonly pool_bytes: number;
  /** Pages of keys and values, windows and states. */
  readonly caches: readonly CachePlan[];
  /** Of all caches. */
  readonly cache_bytes: number;
  /** What a step's values and the kernels' own buffers take at most. */
  readonly scratch_bytes: number;
  /** That one token's values take between devices. */
  readonly moved_bytes: number;
  /** Of everything. */
  readonly total_bytes: number;
  /** What it had to fit into. */
  readonly room_bytes: number;
}

/** The most bytes of activations that live on a device at once. */
export function liveBytes(p: Program, device: number): number {
  const last = new Int32Array(p.tensors.length).fill(-1);
  const root = (id: number) => p.tensors[id].kind === KIND.VIEW ? p.tensors[id].ref : id;
  p.ops.forEach((op, i) => {
    for (const id of [...op.src, ...op.dst]) if (id < p.tensors.length) last[root(id)] = i;
  });
  for (const o of p.outputs) last[root(o.tensor)] = p.ops.length;
  const gone: number[][] = Array.from({ length: p.ops.length + 1 }, () => []);
  const bytes = (id: number) => 4 * p.tensors[id].ne.reduce((a, b) => a * b, 1);
  p.tensors.forEach((t, id) => {
    if (t.kind === KIND.SCRATCH && last[id] >= 0 && t.device === device) gone[last[id]].push(id);
  });
  let live = 0, most = 0;
  p.ops.forEach((op, i) => {
    for (const id of op.dst) if (p.tensors[id].device === device) live += bytes(id);
    most = Math.max(most, live);
    for (const id of gone[i]) live -= bytes(id);
  });
  return most;
}

/** Few sizes of outputs: one row, some slots, or every row. */
const OUT_SIZES = [1, 8, 64];

/** The shape bucket of a step; those of a model differ in rows and outputs only. */
export function bucketOf(n_tok: number, n_out: number, n_ctx: number): Bucket {
  const rows = nextPowerOfTwo(n_tok);
  const out = OUT_SIZES.find((n) => n_out <= n && n <= rows) ?? rows;
  return { n_tok: rows, n_out: out, n_seq: rows, n_page: Math.ceil(n_ctx / PAGE_SIZE) };
}

/** The least power of two that is not below `n`. */
export function nextPowerOfTwo(n: number): number {
  return n <= 1 ? 1 : 2 ** Math.ceil(Math.log2(n));
}

/** A plan and whether it fits. */
export interface Attempt {
  readonly plan: Plan;
  readonly fits: boolean;
  readonly fitsPacked: (plan: Plan) => boolean;
}

/** Free memory that a pool leaves to the system and to others, where nobody said how large it may be: this share. */
const SPARE = 0.1;

/** Whose memory a device has: logical devices may share it. */
function memoryOf(d: DeviceInfo): number {
  return d.like ?? d.index;
}

function roomOf(d: DeviceInfo, o: PlanOptions): number {
  return Math.min(d.free_bytes, (d.kind === "cuda" ? o.cardRoom : o.hostRoom) ?? Infinity);
}

/** What the system cannot take back. */
function heldBytes(d: DevicePlan): number {
  return d.total_bytes - d.file_bytes;
}

/** What the devices of one memory take together is at most its room. */
function isWithinRooms(devices: readonly DevicePlan[], bytes: (d: DevicePlan) => number = heldBytes): boolean {
  const taken = new Map<number, number>();
  for (const d of devices) taken.set(memoryOf(d.device), (taken.get(memoryOf(d.device)) ?? 0) + bytes(d));
  return devices.every((d) => taken.get(memoryOf(d.device))! <= d.room_bytes);
}

function isPage({ form }: WeightPlan): boolean {
  return form === "mapped" || form === "packed";
}

/** Where everything lies, whether it fits or not. @throws {PlanError} `plan.cache_type` */
export function tryPlan(model: Model, options: PlanOptions): Attempt {
  const placement = options.placement ?? placedOn(options.device.index, model.spec.n_layer);
  const all = new Map([options.device, ...options.devices ?? []].map((d) => [d.index, d]));
  const infoOf = (index: number) => all.get(index)!;
  const one = buildProgram(model, { n_tok: 1, n_out: 1, n_seq: 1, n_page: 1 }, 1, placement);
  const used = [...new Set(one.ops.map((op) => op.device))].sort((a, b) => a - b).map(infoOf);
  const weights = one.weights.map((w) => planWeight(w, model.file, infoOf(w.device)));
  const caches = model.caches.map((c, i) => planCache(c, one.caches.filter((p) => p.of === i), infoOf, options));
  const rows = nextPowerOfTwo(options.n_ubatch),
    n_out = model.arch.encoder ? rows : Math.min(rows, options.n_out ?? rows);
  const widest = buildProgram(model, bucketOf(rows, n_out, options.n_ctx), options.topK ?? 1, placement);
  const specs = widest.caches.map((c) => partOf(caches, c)).map(({ plan, part }) => partSpec(plan, plan.parts[part]));
  const scratch = new Map(used.map((d) => [
    d.index,
    options.backend?.measureProgram(widest, d.index, specs) ?? liveBytes(widest, d.index),
  ]));
  const moved_bytes = crossings(one).reduce((n, c) => n + c.bytes, 0);

  const matrices = new Set(one.weights.filter(isPackedWeight).map((w) => w.name));
  /** The host keeps a packed copy of it. */
  const isCopy = (w: WeightPlan) => w.form === "memory" && infoOf(w.device).kind === "cpu" && matrices.has(w.name);
  const sum = (list: readonly WeightPlan[], pools: readonly PoolPlan[]): Plan => {
    const devices = used.map((device): DevicePlan => {
      const here = <T extends { readonly device: number }>(items: readonly T[], bytes: (item: T) => number) =>
        items.reduce((n, item) => n + (item.device === device.index ? bytes(item) : 0), 0);
      const resident_bytes = here(list, (w) => w.device_bytes);
      const pool_bytes = here(pools, (p) => p.bytes);
      const cache_bytes = here(caches.flatMap((c) => c.parts), (p) => p.bytes);
      const scratch_bytes = scratch.get(device.index)!;
      return {
        device,
        resident_bytes,
        file_bytes: list.some((w) => w.device === device.index && isCopy(w))
          ? 0
          : here(list.filter(isPage), (w) => w.device_bytes),
        pool_bytes,
        cache_bytes,
        scratch_bytes,
        total_bytes: resident_bytes + pool_bytes + cache_bytes + scratch_bytes,
        room_bytes: roomOf(device, options),
      };
    });
    const total = (of: (d: DevicePlan) => number) => devices.reduce((n, d) => n + of(d), 0);
    const rooms = new Map(devices.map((d) => [memoryOf(d.device), d.room_bytes]));
    return {
      device: infoOf(placement.output),
      devices,
      placement,
      weights: list,
      weight_bytes: list.reduce((n, w) => n + w.bytes, 0),
      resident_bytes: total((d) => d.resident_bytes),
      table_bytes: list.reduce((n, w) => n + (w.form === "table" ? w.bytes : 0), 0),
      pools,
      pool_bytes: total((d) => d.pool_bytes),
      caches,
      cache_bytes: total((d) => d.cache_bytes),
      scratch_bytes: total((d) => d.scratch_bytes),
      moved_bytes,
      total_bytes: total((d) => d.total_bytes),
      room_bytes: [...rooms.values()].reduce((n, room) => n + room, 0),
    };
  };
  const whole = sum(weights, []);
  const isPoolable = (w: WeightDesc) =>
    infoOf(w.device).kind === "cpu" && model.file.place(model.file.tensor(w.name)) !== undefined;
  // With copies on other drives experts are read from all of them, and those have no packed form.
  const isFromPacked = (w: WeightDesc) =>
    packedPlace(w, model.file) !== undefined && (model.file.copies?.() ?? []).length === 0;
  const groups = routedGroups(one)
    .filter((g) => g.weights.every((w) => isPoolable(w) && w.device === g.weights[0].device))
    .map((g) => ({ ...g, packed: g.weights.every(isFromPacked) }));
  /** Whether it would fit if the host's weights were all pages of files. */
  const fitsPacked = (plan: Plan) => {
    if (model.file.packed === undefined) return false;
    const pages = (d: DevicePlan) =>
      plan.weights.reduce(
        (n, w) => n + (w.device === d.device.index && (isPage(w) || isCopy(w)) ? w.device_bytes : 0),
        0,
      );
    return isWithinRooms(plan.devices, (d) => d.total_bytes - pages(d));
  };
  const done = (plan: Plan): Attempt => ({ plan, fits: isWithinRooms(plan.devices), fitsPacked });
  const isHostShort = !isWithinRooms(whole.devices.filter((d) => d.device.kind === "cpu"), (d) => d.total_bytes);
  if (groups.length === 0 || (!isHostShort && options.slots === undefined)) return done(whole);
  const pooled = new Set(groups.flatMap((g) => g.weights.map((w) => w.name)));
  const rest = weights.map((w) => pooled.has(w.name) ? { ...w, form: "pool" as const, device_bytes: 0 } : w);
  const smallest = sum(rest, smallestPools(groups));
  // Pools are the host's: all of its logical devices share its memory.
  const hosts = smallest.devices.filter((d) => d.device.kind === "cpu"),
    host_bytes = Math.min(...hosts.map((d) => d.room_bytes));
  const reserve = options.hostRoom === undefined ? SPARE * host_bytes : 0;
  const left = host_bytes - reserve - hosts.reduce((n, d) => n + d.total_bytes - d.pool_bytes, 0);
  const { slots } = options;
  const plan = sum(rest, slots === undefined ? fillRoom(smallest.pools, left) : withAll(smallest.pools, slots));
  return done(plan);
}

/** What the logical devices of one memory take. */
function togetherOf(plan: Plan, of: DevicePlan): number {
  return plan.devices.reduce((n, d) => n + (memoryOf(d.device) === memoryOf(of.device) ? heldBytes(d) : 0), 0);
}

/** The devices whose room is too small. */
function shortOf(plan: Plan): DevicePlan[] {
  return plan.devices.filter((d) => togetherOf(plan, d) > d.room_bytes);
}

/** The sum of what a plan puts on a device, term by term. */
function termsOf(plan: Plan, on: DevicePlan, n_cache: number): string {
  const pools = plan.pools.filter((p) => p.device === on.device.index);
  const pool = pools.length === 0
    ? ""
    : ` + the smallest pool of experts ${formatBytes(on.pool_bytes)} (${
      pools.map((p) => `${p.n_slots} slots of ${formatBytes(p.slot_bytes)}`).join(", ")
    })`;
  return `weights ${formatBytes(on.resident_bytes)}${pool} + cache ${
    formatBytes(on.cache_bytes)
  } (${n_cache} tokens) + scratch ${formatBytes(on.scratch_bytes)} = ${formatBytes(on.total_bytes)}`;
}

/** Contexts that are proposed are multiples of this. */
const CTX_STEP = 256;

/** The setting nearest to what was asked for that fits. */
function nearest(model: Model, options: PlanOptions, tried: Attempt): string {
  const short = shortOf(tried.plan).map((d) => d.device.index);
  const at = (places: OtherPlacements, n: number) => {
    const { flag, placement } = places.at(n), other = tryPlan(model, { ...options, placement });
    return { flag, fits: other.fits, helps: !shortOf(other.plan).some((d) => short.includes(d.device.index)) };
  };
  for (const places of options.others ?? []) {
    if (places.most < 1 || !at(places, places.most).helps) continue;
    let low = 0, high = places.most;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (at(places, middle).helps) high = middle;
      else low = middle;
    }
    const { flag, fits } = at(places, high);
    if (fits) return `use ${flag}, which fits, or ${nearestElse(model, options, tried)}`;
  }
  return nearestElse(model, options, tried);
}

/** The setting nearest to what was asked for that fits, with everything where it is. */
function nearestElse(model: Model, options: PlanOptions, { plan, fitsPacked }: Attempt): string {
  const fits = (n_ctx: number) => {
    const n_cache = Math.max(n_ctx, Math.floor(options.n_cache / options.n_ctx * n_ctx));
    return tryPlan(model, { ...options, n_ctx, n_cache }).fits;
  };
  let low = 0, high = Math.ceil(options.n_ctx / CTX_STEP); // `high` does not fit
  if (high > 1 && fits(CTX_STEP)) {
    low = 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (fits(middle * CTX_STEP)) low = middle;
      else high = middle;
    }
  }
  if (low > 0) return `use --ctx-size ${low * CTX_STEP}, the largest that fits here, a q8_0 cache, or another --device`;
  const half = Math.max(1, options.n_ubatch >> 2);
  if (tryPlan(model, { ...options, n_ubatch: half }).fits) return `use --ubatch-size ${half}, which fits`;
  if (fitsPacked(plan)) {
    return `run bloomery pack ${model.file.name}: its weights are pages of a file then, of which memory holds what it can`;
  }
  const [short] = shortOf(plan), taken = togetherOf(plan, short);
  const isLimit = short.room_bytes < short.device.free_bytes && taken <= short.device.free_bytes;
  if (isLimit) return `use --${short.device.kind === "cuda" ? "card" : "host"}-room ${taken} (bytes) or more`;
  return plan.devices.length === 1
    ? "use a smaller quantization, or another --device"
    : `use a smaller quantization, or leave less to ${short.device.name}: see --place, --n-cpu-moe`;
}

/**
 * Plans a model on a device, or on those of a placement. On the host, routed experts that do not fit with everything else go into
 * pools.
 * @throws {PlanError} `plan.cache_type` when a row, or on a card a head, is not whole blocks of the cache's type; `plan.does_not_fit`
 */
export function planModel(model: Model, options: PlanOptions): Plan {
  const tried = tryPlan(model, options), { plan } = tried;
  if (tried.fits) return plan;
  const short = shortOf(plan),
    terms = short.map((d) => {
      const free_bytes = d.device.free_bytes, limit = d.device.kind === "cuda" ? "--card-room" : "--host-room";
      const room = d.room_bytes < free_bytes
        ? `${limit} leaves ${formatBytes(d.room_bytes)}`
        : `free are ${formatBytes(free_bytes)}`;
      const which = plan.devices.length === 1 ? "" : ` (device ${d.device.index})`;
      return `on ${d.device.name}${which}: ${termsOf(plan, d, options.n_cache)}, ${room}`;
    });
  const { resident_bytes, pool_bytes, cache_bytes, scratch_bytes, total_bytes, room_bytes, device } = short[0];
  throw new PlanError("plan.does_not_fit", `Cannot place ${model.file.name} ${terms.join("; ")}`, {
    at: {
      device: device.name,
      weight_bytes: resident_bytes,
      pool_bytes,
      cache_bytes,
      scratch_bytes,
      total_bytes,
      free_bytes: device.free_bytes,
      room_bytes,
    },
    hint: nearest(model, options, tried),
  });
}
