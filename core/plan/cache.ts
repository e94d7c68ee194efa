/**
 * What the caches of a model take, and on which devices their parts lie.
 * @module
 */
import { PlanError } from "../errors.ts";
import { type GgmlType, ggmlType, rowBytes } from "../gguf/types.ts";
import type { CacheSpec, DeviceInfo } from "../program/backend.ts";
import type { CacheDesc } from "../program/program.ts";

/** Types a cache stream can have. */
export type CacheType = "f32" | "f16" | "q8_0";

/** Tokens per cache page. */
export const PAGE_SIZE = 64;

/** What the size of caches depends on. */
export interface CacheOptions {
  /** Tokens the cache holds over all sequences. */
  readonly n_cache: number;
  /** Sequences that run at once: each has its own windows and states. */
  readonly n_seq: number;
  /** The most token rows of one native step. */
  readonly n_ubatch: number;
  /** Earlier points that a sequence with windows or states keeps, on average. Default: 2. */
  readonly n_kept?: number;
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
  /** One for each device that keeps some of its streams: page 5 of the cache is page 5 of every part. */
  readonly parts: readonly CachePart[];
}

/** What one device keeps of a cache. */
export interface CachePart {
  /** Index of the device. */
  readonly device: number;
  /** Indices of the cache's streams. */
  readonly streams: readonly number[];
  /** Of all its pages. */
  readonly bytes: number;
}

const KEPT_POINTS = 2;

/** Pages that the sequences of a plan need in a cache. */
function pagesOf(c: CacheDesc, o: CacheOptions): number {
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

/**
 * @param of What the cache is a part of it on each device.
 * @throws {PlanError} `plan.cache_type`
 */
export function planCache(
  c: CacheDesc,
  of: readonly CacheDesc[],
  devices: (index: number) => DeviceInfo,
  o: CacheOptions,
): CachePlan {
  const page_size = c.state ? 1 : PAGE_SIZE, n_pages = pagesOf(c, o);
  const home = new Map(of.flatMap((p) => p.streams.map((s) => [s.name, devices(p.device)])));
  const streams = c.streams.map((s) => {
    const type = ggmlType(s.role === "f32" ? "f32" : s.role === "k" ? o.cacheTypeK : o.cacheTypeV);
    // The host takes heads apart that share a block; cards do not.
    const isWhole = home.get(s.name)?.kind === "cuda" && s.head !== undefined;
    const [of, n] = isWhole ? ["a head", s.head!] : ["a row", s.ne];
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
  const bytesOf = (list: readonly number[]) =>
    list.reduce((n, i) => n + Math.ceil(page_size / streams[i].ratio) * rowBytes(streams[i].type, streams[i].ne), 0);
  const parts = of.map((p) => {
    const list = p.streams.map((s) => c.streams.findIndex((all) => all.name === s.name));
    return { device: p.device, streams: list, bytes: n_pages * bytesOf(list) };
  });
  const bytes = parts.reduce((n, p) => n + p.bytes, 0);
  return { window: c.window, state: c.state, streams, page_size, n_pages, bytes, parts };
}

/** A part as the library makes it. */
export function partSpec(plan: CachePlan, part: CachePart): CacheSpec {
  const { page_size, n_pages } = plan;
  return { device: part.device, page_size, n_pages, streams: part.streams.map((s) => plan.streams[s]) };
}

/** The part that a cache of a program is. */
export function partOf(plans: readonly CachePlan[], c: CacheDesc): { plan: CachePlan; part: number } {
  const plan = plans[c.of];
  return { plan, part: plan.parts.findIndex((p) => p.device === c.device) };
}
