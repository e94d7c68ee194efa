/**
 * Who has which cache page. Pages are shared by reference count: a fork shares all of its parent's pages, and whoever writes
 * to a shared, partly filled page first gets a copy of it.
 * @module
 */
import { EngineError } from "../errors.ts";

/** Hands out page numbers 0..n_pages-1. */
export class PagePool {
  readonly #free: number[];
  readonly #refs: Uint32Array;

  constructor(readonly n_pages: number, readonly page_size: number) {
    this.#free = Array.from({ length: n_pages }, (_, i) => n_pages - 1 - i);
    this.#refs = new Uint32Array(n_pages);
  }

  get n_free(): number {
    return this.#free.length;
  }

  /** @throws {EngineError} `engine.no_pages` */
  take(): number {
    const page = this.#free.pop();
    if (page === undefined) throw noPages(1, this);
    this.#refs[page] = 1;
    return page;
  }

  share(page: number): void {
    this.#refs[page]++;
  }

  isShared(page: number): boolean {
    return this.#refs[page] > 1;
  }

  release(page: number): void {
    if (this.#refs[page] === 0) throw new Error(`page ${page} was released twice`);
    if (--this.#refs[page] === 0) this.#free.push(page);
  }
}

/** The refusal when a pool has too few free pages. */
export function noPages(wanted: number, pool: PagePool): EngineError {
  return new EngineError(
    "engine.no_pages",
    pool.page_size === 1
      ? `The cache is full: ${wanted} more states are needed, ${pool.n_free} of ${pool.n_pages} are free`
      : `The cache is full: ${wanted} more pages of ${pool.page_size} tokens are needed, ${pool.n_free} of ${pool.n_pages} are free`,
    {
      at: { wanted, free: pool.n_free, n_pages: pool.n_pages, page_size: pool.page_size },
      hint: "raise --ctx-size, or run fewer sequences at once (--parallel)",
    },
  );
}

/** What a sequence keeps in one cache. */
export interface PageKind {
  /** Positions that stay readable behind the last; 0: all. */
  readonly window: number;
  /** One page holds a recurrent state, which cannot go back. */
  readonly state: boolean;
}

/** The pages of one sequence in one cache. */
export class PageList {
  /** Page of positions `i * page_size ..`; -1 where a window has passed. */
  readonly ids: number[] = [];
  #length = 0;
  /** The first page that is still held. */
  #first = 0;

  constructor(readonly pool: PagePool, readonly kind: PageKind = { window: 0, state: false }) {}

  /** Tokens. */
  get length(): number {
    return this.#length;
  }

  /** Pages that `append(n)` would take from the pool. */
  wanted(n: number): number {
    if (n === 0) return 0;
    const { ids, pool } = this, last = ids.length - 1;
    if (this.kind.state) return last < 0 || pool.isShared(ids[last]) ? 1 : 0;
    const fresh = Math.ceil((this.#length + n) / pool.page_size) - ids.length;
    const copy = this.#length % pool.page_size !== 0 && pool.isShared(ids[last]);
    return fresh + (copy ? 1 : 0);
  }

  /**
   * Makes room for `n` more tokens. @returns the page copies to make before they are written.
   * @throws {EngineError} `engine.no_pages`; nothing is taken then
   */
  append(n: number): { src: number; dst: number }[] {
    if (n === 0) return [];
    const { ids, pool } = this, last = ids.length - 1;
    if (this.wanted(n) > pool.n_free) throw noPages(this.wanted(n), pool);
    const copies: { src: number; dst: number }[] = [];
    const continues = last >= 0 && (this.kind.state || this.#length % pool.page_size !== 0);
    if (continues && pool.isShared(ids[last])) {
      const src = ids[last], dst = pool.take();
      ids[last] = dst;
      pool.release(src);
      copies.push({ src, dst });
    }
    this.#length += n;
    const n_page = this.kind.state ? 1 : Math.ceil(this.#length / pool.page_size);
    while (ids.length < n_page) ids.push(pool.take());
    return copies;
  }

  /** Gives back the pages that no position from `length` on can reach. */
  settle(length: number = this.#length): void {
    const { window } = this.kind;
    if (window === 0 || this.kind.state) return;
    const reach = Math.floor(Math.max(0, Math.min(length, this.#length) - window + 1) / this.pool.page_size);
    for (; this.#first < Math.min(reach, this.ids.length); this.#first++) {
      this.pool.release(this.ids[this.#first]);
      this.ids[this.#first] = -1;
    }
  }

  /** What the first `n` tokens left behind is still there, so that `truncate(n)` may be called. */
  reaches(n: number): boolean {
    if (n === 0 || n === this.#length) return true;
    if (this.kind.state) return false;
    const { window } = this.kind;
    return window === 0 || Math.max(0, n - window + 1) >= this.#first * this.pool.page_size;
  }

  /** Forgets all but the first `n` tokens. */
  truncate(n: number): void {
    if (n < 0 || n > this.#length || !this.reaches(n)) throw new Error(`truncate to ${n} of ${this.#length} tokens`);
    this.#length = n;
    const n_page = this.kind.state ? Math.min(n, 1) : Math.ceil(n / this.pool.page_size);
    while (this.ids.length > n_page) {
      const id = this.ids.pop()!;
      if (id >= 0) this.pool.release(id);
    }
    this.#first = Math.min(this.#first, this.ids.length);
  }

  fork(): PageList {
    const copy = new PageList(this.pool, this.kind);
    for (const id of this.ids) {
      if (id >= 0) this.pool.share(id);
      copy.ids.push(id);
    }
    copy.#length = this.#length;
    copy.#first = this.#first;
    return copy;
  }

  /** Positions `[from, length)` that are held, as pages. */
  held(): { at: number; page: number }[] {
    return this.ids.map((page, at) => ({ at, page })).filter((p) => p.page >= 0);
  }

  /** An empty list as another one was: pages at the same places, to be filled by the caller. @throws `engine.no_pages` */
  static like(pool: PagePool, kind: PageKind, length: number, places: readonly number[]): PageList {
    if (places.length > pool.n_free) throw noPages(places.length, pool);
    const list = new PageList(pool, kind);
    const n_page = kind.state ? Math.min(length, 1) : Math.ceil(length / pool.page_size);
    for (let i = 0; i < n_page; i++) list.ids.push(places.includes(i) ? pool.take() : -1);
    list.#length = length;
    list.#first = places.length > 0 ? places[0] : n_page;
    return list;
  }
}
