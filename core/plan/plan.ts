/**
 * The plan: where each weight, cache and state lives, decided from headers and the devices' free bytes before anything is
 * loaded. It prints itself, and refuses by name with every term of the sum when it does not fit.
 * @module
 */
import { buildProgram, type Model } from "../arch/model.ts";
import { PlanError } from "../errors.ts";
import { type GgmlType, ggmlType, rowBytes } from "../gguf/types.ts";
import type { Backend, DeviceInfo } from "../program/backend.ts";
import { type Bucket, type CacheDesc, KIND, type Program, type WeightDesc } from "../program/program.ts";
import { fillRoom, type PoolPlan, smallestPools, withAll } from "./pools.ts";
import { type Form, planWeight, routedGroups, type WeightPlan } from "./weights.ts";

/** Types a cache stream can have. */
export type CacheType = "f32" | "f16" | "q8_0";

/** Tokens per cache page. */
export const PAGE_SIZE = 64;

export interface PlanOptions {
  readonly device: DeviceInfo;
  /** The most tokens of one sequence. */
  readonly n_ctx: number;
  /** Tokens the cache holds over all sequences. */
  readonly n_cache: number;
  /** Sequences that run at once: each has its own windows and states. */
  readonly n_seq: number;
  readonly n_ubatch: number;
  /** Earlier points that a sequence with windows or states keeps, on average. Default: 2. */
  readonly n_kept?: number;
  readonly cacheTypeK: CacheType;
  readonly cacheTypeV: CacheType;
  /** Bytes of host memory that the model may take; default: what is free, less a reserve for the system. */
  readonly hostRoom?: number | undefined;
  /** Slots of experts, where the room is not to decide. */
  readonly slots?: number | undefined;
  /** The most output rows of one native step; default: `n_ubatch`. */
  readonly n_out?: number | undefined;
  /** Candidates of an output row. */
  readonly topK?: number | undefined;
  /** Says what a program needs; where it cannot, or is left out, scratch memory is estimated. */
  readonly backend?: Pick<Backend, "measureProgram"> | undefined;
}

/** One cache as the library makes it. */
export interface CachePlan {
  /** Tokens back that it is read; 0 for all. */
  readonly window: number;
  /** Holds the state of a recurrence, which does not grow. */
  readonly state: boolean;
  /** What it keeps of a token: element type, elements, and tokens that share one entry. */
  readonly streams: readonly { readonly type: GgmlType; readonly ne: number; readonly ratio: number }[];
  /** Tokens of a page. */
  readonly page_size: number;
  /** Pages there are. */
  readonly n_pages: number;
  /** Of all pages. */
  readonly bytes: number;
}

/** What a model takes on a device. */
export interface Plan {
  /** Which one. */
  readonly device: DeviceInfo;
  /** In the order that a step asks for them. */
  readonly weights: readonly WeightPlan[];
  /** Of all weights, as the file has them. */
  readonly weight_bytes: number;
  /** Weights that stay on the device: packed, or the file's own bytes. */
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
  /** Of everything. */
  readonly total_bytes: number;
  /** What it had to fit into. */
  readonly room_bytes: number;
}

/** `1.5 GiB` */
export function formatBytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${i === 0 ? n : n.toFixed(1)} ${units[i]}`;
}

const KEPT_POINTS = 2;

/** Pages that the sequences of a plan need in a cache. */
function pagesOf(c: CacheDesc, o: PlanOptions): number {
  const n_kept = o.n_kept ?? KEPT_POINTS;
  if (c.state) return o.n_seq * (1 + n_kept) + 1;
  const all = Math.ceil(o.n_cache / PAGE_SIZE);
  if (c.window === 0) return all;
  const held = Math.ceil(c.window / PAGE_SIZE) + 1;
  // While a pass runs, the pages of its rows are held beside those of the windows.
  return Math.min(
    all + o.n_seq * (1 + n_kept),
    o.n_seq * held * (1 + n_kept) + Math.ceil(o.n_ubatch / PAGE_SIZE) + o.n_seq,
  );
}

function planCache(c: CacheDesc, o: PlanOptions): CachePlan {
  const streams = c.streams.map((s) => {
    const type = ggmlType(s.role === "f32" ? "f32" : s.role === "k" ? o.cacheTypeK : o.cacheTypeV);
    // The host takes heads apart that share a block; other devices do not.
    const [of, n] = o.device.index !== 0 && s.head !== undefined ? ["a head", s.head] : ["a row", s.ne];
    if (n % type.block !== 0) {
      throw new PlanError(
        "plan.cache_type",
        `Cannot keep the cache in ${type.name}: ${of} of ${s.name} has ${n} elements, expected a multiple of ${type.block}`,
        {
          at: { type: type.name, stream: s.name, got: n, expected: type.block },
          hint: "use --cache-type-k f16 --cache-type-v f16",
        },
      );
    }
    return { type, ne: s.ne, ratio: s.ratio };
  });
  const page_size = c.state ? 1 : PAGE_SIZE, n_pages = pagesOf(c, o);
  const page_bytes = streams.reduce((sum, s) => sum + Math.ceil(page_size / s.ratio) * rowBytes(s.type, s.ne), 0);
  return { window: c.window, state: c.state, streams, page_size, n_pages, bytes: n_pages * page_bytes };
}

/** The most bytes of activations that live at once. */
export function liveBytes(p: Program): number {
  const last = new Int32Array(p.tensors.length).fill(-1);
  const root = (id: number) => p.tensors[id].kind === KIND.VIEW ? p.tensors[id].ref : id;
  p.ops.forEach((op, i) => {
    for (const id of [...op.src, ...op.dst]) if (id < p.tensors.length) last[root(id)] = i;
  });
  for (const o of p.outputs) last[root(o.tensor)] = p.ops.length;
  const gone: number[][] = Array.from({ length: p.ops.length + 1 }, () => []);
  const bytes = (id: number) => 4 * p.tensors[id].ne.reduce((a, b) => a * b, 1);
  p.tensors.forEach((t, id) => {
    if (t.kind === KIND.SCRATCH && last[id] >= 0) gone[last[id]].push(id);
  });
  let live = 0, most = 0;
  p.ops.forEach((op, i) => {
    for (const id of op.dst) live += bytes(id);
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
interface Attempt {
  readonly plan: Plan;
  readonly fits: boolean;
}

/** Free memory that a pool leaves to the system and to others, where nobody said how large it may be: this share. */
const SPARE = 0.1;

/** Where everything lies, whether it fits or not. */
function attempt(model: Model, options: PlanOptions): Attempt {
  const { device } = options, isHost = device.kind !== "cuda";
  const one = buildProgram(model, { n_tok: 1, n_out: 1, n_seq: 1, n_page: 1 }, 1, device.index);
  const weights = one.weights.map((w) => planWeight(w, model.file, device));
  const caches = model.caches.map((c) => planCache(c, options));
  const cache_bytes = caches.reduce((sum, c) => sum + c.bytes, 0);
  const rows = nextPowerOfTwo(options.n_ubatch), n_out = Math.min(rows, options.n_out ?? rows);
  const widest = buildProgram(model, bucketOf(rows, n_out, options.n_ctx), options.topK ?? 1, device.index);
  const scratch_bytes = options.backend?.measureProgram(widest, device.index, caches) ?? liveBytes(widest);
  const room_bytes = isHost ? Math.min(device.free_bytes, options.hostRoom ?? Infinity) : device.free_bytes;

  const sum = (list: readonly WeightPlan[], pools: readonly PoolPlan[]): Plan => {
    const resident_bytes = list.reduce((n, w) => n + w.device_bytes, 0);
    const pool_bytes = pools.reduce((n, p) => n + p.bytes, 0);
    return {
      device,
      weights: list,
      weight_bytes: list.reduce((n, w) => n + w.bytes, 0),
      resident_bytes,
      table_bytes: list.reduce((n, w) => n + (w.form === "table" ? w.bytes : 0), 0),
      pools,
      pool_bytes,
      caches,
      cache_bytes,
      scratch_bytes,
      total_bytes: resident_bytes + pool_bytes + cache_bytes + scratch_bytes,
      room_bytes,
    };
  };
  const whole = sum(weights, []);
  const isInFile = (w: WeightDesc) => model.file.place(model.file.tensor(w.name)) !== undefined;
  const groups = device.kind === "cpu" ? routedGroups(one).filter((g) => g.weights.every(isInFile)) : [];
  if (groups.length === 0 || (whole.total_bytes <= room_bytes && options.slots === undefined)) {
    return { plan: whole, fits: whole.total_bytes <= room_bytes };
  }
  const pooled = new Set(groups.flatMap((g) => g.weights.map((w) => w.name)));
  const rest = weights.map((w) => pooled.has(w.name) ? { ...w, form: "pool" as const, device_bytes: 0 } : w);
  const smallest = sum(rest, smallestPools(groups));
  const reserve = options.hostRoom === undefined ? SPARE * room_bytes : 0;
  const left = room_bytes - reserve - (smallest.total_bytes - smallest.pool_bytes);
  const { slots } = options;
  const plan = sum(rest, slots === undefined ? fillRoom(smallest.pools, left) : withAll(smallest.pools, slots));
  return { plan, fits: plan.total_bytes <= room_bytes };
}

/** The sum of a plan, term by term. */
function termsOf(plan: Plan, n_cache: number): string {
  const pool = plan.pools.length === 0
    ? ""
    : ` + the smallest pool of experts ${formatBytes(plan.pool_bytes)} (${
      plan.pools.map((p) => `${p.n_slots} slots of ${formatBytes(p.slot_bytes)}`).join(", ")
    })`;
  return `weights ${formatBytes(plan.resident_bytes)}${pool} + cache ${
    formatBytes(plan.cache_bytes)
  } (${n_cache} tokens) + scratch ${formatBytes(plan.scratch_bytes)} = ${formatBytes(plan.total_bytes)}`;
}

/** Contexts that are proposed are multiples of this. */
const CTX_STEP = 256;

/** The setting nearest to what was asked for that fits. */
function nearest(model: Model, options: PlanOptions, plan: Plan): string {
  const fits = (n_ctx: number) => {
    const n_cache = Math.max(n_ctx, Math.floor(options.n_cache / options.n_ctx * n_ctx));
    return attempt(model, { ...options, n_ctx, n_cache }).fits;
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
  if (attempt(model, { ...options, n_ubatch: half }).fits) return `use --ubatch-size ${half}, which fits`;
  const isLimit = options.hostRoom !== undefined && plan.total_bytes <= options.device.free_bytes;
  if (isLimit) return `use --host-room ${plan.total_bytes} (bytes) or more`;
  return "use a smaller quantization, or another --device";
}

/**
 * Plans one model on one device. On the host, routed experts that do not fit with everything else go into pools.
 * @throws {PlanError} `plan.cache_type` when a row, or on a card a head, is not whole blocks of the cache's type; `plan.does_not_fit`
 */
export function planModel(model: Model, options: PlanOptions): Plan {
  const { plan, fits } = attempt(model, options);
  if (fits) return plan;
  const { resident_bytes, pool_bytes, cache_bytes, scratch_bytes, total_bytes, room_bytes } = plan;
  const free_bytes = options.device.free_bytes;
  const room = room_bytes < free_bytes
    ? `--host-room leaves ${formatBytes(room_bytes)}`
    : `free are ${formatBytes(free_bytes)}`;
  throw new PlanError(
    "plan.does_not_fit",
    `Cannot place ${model.file.name} on ${options.device.name}: ${termsOf(plan, options.n_cache)}, ${room}`,
    {
      at: {
        weight_bytes: resident_bytes,
        pool_bytes,
        cache_bytes,
        scratch_bytes,
        total_bytes,
        free_bytes,
        room_bytes,
      },
      hint: nearest(model, options, plan),
    },
  );
}

function describeCache(c: CachePlan): string {
  const types = [...new Set(c.streams.map((s) => s.type.name))].join("/");
  if (c.state) return `states   ${formatBytes(c.bytes)}: ${c.n_pages} of ${formatBytes(c.bytes / c.n_pages)}`;
  const what = c.window === 0 ? "" : `, windows of ${c.window}`;
  return `cache    ${formatBytes(c.bytes)}: ${c.n_pages} pages of ${c.page_size} tokens, ${types}${what}`;
}

function describeTypes(weights: readonly WeightPlan[], forms: readonly Form[]): string {
  const types = new Map<string, { n: number; bytes: number }>();
  for (const w of weights) {
    if (!forms.includes(w.form) || w.bytes === 0) continue;
    const t = types.get(w.type.name) ?? { n: 0, bytes: 0 };
    types.set(w.type.name, { n: t.n + 1, bytes: t.bytes + w.bytes });
  }
  return [...types].map(([name, t]) => `${t.n} ${name} ${formatBytes(t.bytes)}`).join(", ");
}

/** The plan as lines of text. */
export function describePlan(plan: Plan): string {
  const experts = plan.weights.filter((w) => w.form === "pool").reduce((n, w) => n + w.bytes, 0);
  const lines = [
    `device   ${plan.device.name} (${plan.device.kind}), ${formatBytes(plan.device.free_bytes)} free`,
    `weights  ${formatBytes(plan.resident_bytes)} resident: ${describeTypes(plan.weights, ["memory", "mapped"])}`,
    ...plan.table_bytes === 0 ? [] : [
      `tables   ${formatBytes(plan.table_bytes)} of which tokens name rows, not counted: ${
        describeTypes(plan.weights, ["table"])
      }`,
    ],
    ...plan.pools.map((p) =>
      `pool     ${formatBytes(p.bytes)}: ${p.n_slots} slots of ${
        formatBytes(p.slot_bytes)
      } for ${p.n_expert} experts of ${p.groups.length} layers (${Math.round(100 * p.n_slots / p.n_expert)} %)`
    ),
    ...plan.pools.length === 0 ? [] : [`         the others are read from the drive: ${formatBytes(experts)} in all`],
    ...plan.caches.map(describeCache),
    `scratch  ${formatBytes(plan.scratch_bytes)} at most`,
    `total    ${formatBytes(plan.total_bytes)}`,
  ];
  return lines.join("\n");
}

/** The plan in one line. */
export function shortPlan(plan: Plan): string {
  const pool = plan.pools.reduce((a, p) => ({ n: a.n + p.n_slots, of: a.of + p.n_expert }), { n: 0, of: 0 });
  const parts = [
    `weights ${formatBytes(plan.resident_bytes)}`,
    ...plan.pools.length === 0 ? [] : [`pool ${formatBytes(plan.pool_bytes)} for ${pool.n} of ${pool.of} experts`],
    `cache ${formatBytes(plan.cache_bytes)}`,
    `scratch ${formatBytes(plan.scratch_bytes)}`,
  ];
  return `plan: ${parts.join(" + ")} = ${formatBytes(plan.total_bytes)} of ${
    formatBytes(plan.room_bytes)
  } on ${plan.device.name}`;
}
