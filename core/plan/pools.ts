/**
 * Pools of experts: how many slots there are where not all experts fit.
 * @module
 */
import { rowBytes } from "../gguf/types.ts";
import { packedBytes, type RoutedGroup } from "./weights.ts";

/** Slots of one size, for the layers whose experts have it. */
export interface PoolPlan {
  /** Which device has it. */
  readonly device: number;
  /** What the largest expert of its layers takes. */
  readonly slot_bytes: number;
  /** Experts that it holds at once. */
  readonly n_slots: number;
  /**
   * Layers, in the order of the program.
   * @internal
   */
  readonly groups: readonly RoutedGroup[];
  /** Experts of all its layers. */
  readonly n_expert: number;
  /** The fewest slots: what one token needs of a layer. */
  readonly least: number;
  /** Of the slots, and of what the pool's threads read into. */
  readonly bytes: number;
}

/** `csrc/cpu/expert_pool.h`: threads of a pool that read, each into memory of its own. */
const READERS = 8;
/** Matrices in a slot begin on a cache line; those that are read as they are, on a page. */
const ALIGN = 64;
const PAGE = 4096;

function aligned(n: number, to: number): number {
  return Math.ceil(n / to) * to;
}

/** Bytes of one expert of a layer. */
export function slotBytes(group: RoutedGroup): number {
  const align = group.packed ? PAGE : ALIGN;
  return group.weights.reduce((sum, w) => aligned(sum + packedBytes(w.type, w.ne[0], w.ne[1]), align), 0);
}

/** What a pool's threads read into: whole pages around the largest matrix. What is packed is read into its slot. */
function readerBytes(groups: readonly RoutedGroup[]): number {
  const sizes = groups.filter((g) => !g.packed).flatMap((g) =>
    g.weights.map((w) => rowBytes(w.type, w.ne[0]) * w.ne[1])
  );
  if (sizes.length === 0) return 0;
  const most = Math.max(...sizes);
  return READERS * Math.floor((most + 2 * PAGE - 1) / PAGE) * PAGE;
}

/** Pools with the fewest slots. */
export function smallestPools(groups: readonly RoutedGroup[]): PoolPlan[] {
  const alike = new Map<string, RoutedGroup[]>();
  for (const g of groups) {
    const key = `${g.weights[0].device},${slotBytes(g)}`;
    alike.set(key, [...alike.get(key) ?? [], g]);
  }
  return [...alike.values()].map((own) => {
    const { device } = own[0].weights[0], slot_bytes = slotBytes(own[0]);
    const least = Math.max(...own.map((g) => g.n_used));
    const n_expert = own.reduce((n, g) => n + g.n_expert, 0);
    return withSlots({ device, slot_bytes, groups: own, n_expert, least, n_slots: 0, bytes: 0 }, least);
  });
}

function withSlots(pool: PoolPlan, n_slots: number): PoolPlan {
  const bytes = aligned(n_slots * pool.slot_bytes, PAGE) + readerBytes(pool.groups);
  return { ...pool, n_slots, bytes };
}

/** The same pools with as many slots as `room` bytes hold, shared out by the experts they are for. */
export function fillRoom(pools: readonly PoolPlan[], room: number): PoolPlan[] {
  const spare = room - pools.reduce((n, p) => n + p.bytes + PAGE, 0);
  const wanted = pools.reduce((n, p) => n + (p.n_expert - p.least) * p.slot_bytes, 0);
  const share = wanted === 0 ? 0 : Math.min(1, Math.max(0, spare) / wanted);
  return pools.map((p) => withSlots(p, p.least + Math.floor((p.n_expert - p.least) * share)));
}

/** The same pools with so many slots in all, and at least the fewest they can have. */
export function withAll(pools: readonly PoolPlan[], n_slots: number): PoolPlan[] {
  const n_expert = pools.reduce((n, p) => n + p.n_expert, 0);
  return pools.map((p) =>
    withSlots(p, Math.min(p.n_expert, Math.max(p.least, Math.floor(n_slots * p.n_expert / n_expert))))
  );
}
