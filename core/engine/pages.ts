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
    if (page === undefined) {
      throw new EngineError(
        "engine.no_pages",
        `The cache is full: all ${this.n_pages} pages of ${this.page_size} tokens are in use`,
        {
          at: { n_pages: this.n_pages, page_size: this.page_size },
          hint: "raise --ctx-size, or run fewer sequences at once (--parallel)",
        },
      );
    }
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

/** The pages of one sequence. */
export class PageList {
  readonly ids: number[] = [];
  #length = 0;

  constructor(readonly pool: PagePool) {}

  /** Tokens. */
  get length(): number {
    return this.#length;
  }

  /** Pages that `append(n)` would take from the pool. */
  wanted(n: number): number {
    const size = this.pool.page_size;
    const fresh = Math.ceil((this.#length + n) / size) - this.ids.length;
    const copy = n > 0 && this.#length % size !== 0 && this.pool.isShared(this.ids[this.ids.length - 1]);
    return fresh + (copy ? 1 : 0);
  }

  /**
   * Makes room for `n` more tokens. @returns the page copies to make before they are written.
   * @throws {EngineError} `engine.no_pages`; nothing is taken then
   */
  append(n: number): { src: number; dst: number }[] {
    if (this.wanted(n) > this.pool.n_free) {
      throw new EngineError(
        "engine.no_pages",
        `The cache is full: ${n} more tokens need ${
          this.wanted(n)
        } pages of ${this.pool.page_size} tokens, ${this.pool.n_free} are free`,
        {
          at: { wanted: this.wanted(n), free: this.pool.n_free },
          hint: "raise --ctx-size, or run fewer sequences at once (--parallel)",
        },
      );
    }
    const copies: { src: number; dst: number }[] = [];
    const last = this.ids.length - 1;
    if (n > 0 && this.#length % this.pool.page_size !== 0 && this.pool.isShared(this.ids[last])) {
      const src = this.ids[last];
      const dst = this.pool.take();
      this.ids[last] = dst;
      this.pool.release(src);
      copies.push({ src, dst });
    }
    this.#length += n;
    while (this.ids.length * this.pool.page_size < this.#length) this.ids.push(this.pool.take());
    return copies;
  }

  /** Forgets all but the first `n` tokens. */
  truncate(n: number): void {
    if (n < 0 || n > this.#length) throw new Error(`truncate to ${n} of ${this.#length} tokens`);
    this.#length = n;
    while ((this.ids.length - 1) * this.pool.page_size >= n && this.ids.length > 0) this.pool.release(this.ids.pop()!);
  }

  fork(): PageList {
    const copy = new PageList(this.pool);
    for (const id of this.ids) {
      this.pool.share(id);
      copy.ids.push(id);
    }
    copy.#length = this.#length;
    return copy;
  }
}
