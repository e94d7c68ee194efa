/**
 * A sequence as bytes: its tokens and what each cache holds of it, to be kept anywhere and restored to the same bits.
 * @module
 */
import { EngineError } from "../errors.ts";
import type { CacheHandle } from "../program/backend.ts";
import { PageList, type PagePool } from "./pages.ts";
import type { Sequence } from "./sequence.ts";

/** A sequence outside the engine. */
export interface Snapshot {
  readonly tokens: readonly number[];
  /** How much of each of the model's adapters they were computed with. */
  readonly adapters: readonly number[];
  /** For each cache: which pages of the sequence, and their bytes. */
  readonly caches: readonly { readonly places: readonly number[]; readonly data: Uint8Array }[];
}

export function takeSnapshot(sequence: Sequence, caches: readonly CacheHandle[]): Snapshot {
  return {
    tokens: [...sequence.tokens],
    adapters: sequence.adapters,
    caches: sequence.lists.map((list, i) => {
      const held = list.held();
      return { places: held.map((h) => h.at), data: caches[i].readPages(held.map((h) => h.page)) };
    }),
  };
}

/** The places are those that a sequence of `length` tokens holds: all to its end from the last one that it may have given back. */
function placesFit(places: readonly number[], length: number, kind: PageList["kind"], page_size: number): boolean {
  if (kind.state) return places.length === Math.min(length, 1) && places.every((p) => p === 0);
  const n_page = Math.ceil(length / page_size), first = n_page - places.length;
  const reach = kind.window === 0 ? 0 : Math.floor(Math.max(0, length - kind.window + 1) / page_size);
  return first >= 0 && first <= Math.min(reach, n_page) && places.every((p, i) => p === first + i);
}

/**
 * Page lists with a snapshot's contents.
 * @throws {EngineError} `engine.no_pages`; `engine.snapshot` when it was taken from other caches
 */
export function restoreSnapshot(
  s: Snapshot,
  pools: readonly PagePool[],
  kinds: readonly PageList["kind"][],
  caches: readonly CacheHandle[],
): PageList[] {
  const fits = s.caches.length === caches.length &&
    s.caches.every((c, i) =>
      c.data.length === c.places.length * caches[i].pageBytes &&
      placesFit(c.places, s.tokens.length, kinds[i], pools[i].page_size)
    );
  if (!fits) {
    throw new EngineError("engine.snapshot", "Cannot restore a sequence: it was saved from a model with other caches", {
      hint: "use the model, cache types and version it was saved with",
    });
  }
  const lists: PageList[] = [];
  try {
    s.caches.forEach((c, i) => {
      const list = PageList.like(pools[i], kinds[i], s.tokens.length, c.places);
      lists.push(list);
      caches[i].writePages(list.held().map((h) => h.page), c.data);
    });
  } catch (error) {
    for (const l of lists) l.truncate(0);
    throw error;
  }
  return lists;
}
