/**
 * The plan: where each weight, cache and state lives, decided from headers and the devices' free bytes before anything is
 * loaded. It prints itself, and refuses by name with every term of the sum when it does not fit.
 * @module
 */
import { buildProgram, type Model } from "../arch/model.ts";
import { PlanError } from "../errors.ts";
import { type GgmlType, ggmlType, rowBytes } from "../gguf/types.ts";
import type { DeviceInfo } from "../program/backend.ts";
import { type CacheDesc, KIND, type Program } from "../program/program.ts";

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
  readonly cacheTypeK: CacheType;
  readonly cacheTypeV: CacheType;
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
  /** Bytes of each weight as the file has it. */
  readonly weights: readonly { readonly name: string; readonly type: GgmlType; readonly bytes: number }[];
  /** Of all weights. */
  readonly weight_bytes: number;
  /** Pages of keys and values, windows and states. */
  readonly caches: readonly CachePlan[];
  /** Of all caches. */
  readonly cache_bytes: number;
  /** Values that live at once in the widest place of a step; the library lays the arena out and says the real size. */
  readonly scratch_bytes: number;
  /** Of everything. */
  readonly total_bytes: number;
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

/** Earlier points that a sequence with windows or states keeps, on average. */
const KEPT_POINTS = 2;

/** Pages that the sequences of a plan need in a cache. */
function pagesOf(c: CacheDesc, o: PlanOptions): number {
  if (c.state) return o.n_seq * (1 + KEPT_POINTS) + 1;
  const all = Math.ceil(o.n_cache / PAGE_SIZE);
  if (c.window === 0) return all;
  const held = Math.ceil(c.window / PAGE_SIZE) + 1;
  // While a pass runs, the pages of its rows are held beside those of the windows.
  return Math.min(
    all + o.n_seq * (1 + KEPT_POINTS),
    o.n_seq * held * (1 + KEPT_POINTS) + Math.ceil(o.n_ubatch / PAGE_SIZE) + o.n_seq,
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

function nextPowerOfTwo(n: number): number {
  return n <= 1 ? 1 : 2 ** Math.ceil(Math.log2(n));
}

/**
 * Plans one model on one device.
 * @throws {PlanError} `plan.cache_type` when a row, or on a card a head, is not whole blocks of the cache's type; `plan.does_not_fit`
 */
export function planModel(model: Model, options: PlanOptions): Plan {
  const weights = model.weights.filter((w) => !w.constant).map((w) => ({
    name: w.name,
    type: w.type,
    bytes: w.ne.slice(1).reduce((n, d) => n * d, rowBytes(w.type, w.ne[0])),
  }));
  const weight_bytes = weights.reduce((sum, w) => sum + w.bytes, 0);
  const caches = model.caches.map((c) => planCache(c, options));
  const cache_bytes = caches.reduce((sum, c) => sum + c.bytes, 0);
  const rows = nextPowerOfTwo(options.n_ubatch);
  const widest = { n_tok: rows, n_out: rows, n_seq: 1, n_page: Math.ceil(options.n_ctx / PAGE_SIZE) };
  const scratch_bytes = liveBytes(buildProgram(model, widest, 1, options.device.index));

  const total_bytes = weight_bytes + cache_bytes + scratch_bytes;
  const plan: Plan = {
    device: options.device,
    weights,
    weight_bytes,
    caches,
    cache_bytes,
    scratch_bytes,
    total_bytes,
  };
  if (total_bytes > options.device.free_bytes) {
    throw new PlanError(
      "plan.does_not_fit",
      `Cannot place ${model.file.name} on ${options.device.name}: weights ${formatBytes(weight_bytes)} + cache ${
        formatBytes(cache_bytes)
      } (${options.n_cache} tokens) + scratch ${formatBytes(scratch_bytes)} = ${formatBytes(total_bytes)}, free are ${
        formatBytes(options.device.free_bytes)
      }`,
      {
        at: { weight_bytes, cache_bytes, scratch_bytes, total_bytes, free_bytes: options.device.free_bytes },
        hint: "use a smaller --ctx-size, a q8_0 cache, a smaller quantization, or another --device",
      },
    );
  }
  return plan;
}

function describeCache(c: CachePlan): string {
  const types = [...new Set(c.streams.map((s) => s.type.name))].join("/");
  if (c.state) return `states   ${formatBytes(c.bytes)}: ${c.n_pages} of ${formatBytes(c.bytes / c.n_pages)}`;
  const what = c.window === 0 ? "" : `, windows of ${c.window}`;
  return `cache    ${formatBytes(c.bytes)}: ${c.n_pages} pages of ${c.page_size} tokens, ${types}${what}`;
}

/** The plan as lines of text. */
export function describePlan(plan: Plan): string {
  const types = new Map<string, { n: number; bytes: number }>();
  for (const w of plan.weights) {
    const t = types.get(w.type.name) ?? { n: 0, bytes: 0 };
    types.set(w.type.name, { n: t.n + 1, bytes: t.bytes + w.bytes });
  }
  const lines = [
    `device   ${plan.device.name} (${plan.device.kind}), ${formatBytes(plan.device.free_bytes)} free`,
    `weights  ${formatBytes(plan.weight_bytes)}: ${
      [...types].map(([name, t]) => `${t.n} ${name} ${formatBytes(t.bytes)}`).join(", ")
    }`,
    ...plan.caches.map(describeCache),
    `scratch  ${formatBytes(plan.scratch_bytes)} at most`,
    `total    ${formatBytes(plan.total_bytes)}`,
  ];
  return lines.join("\n");
}
