/**
 * One cache of a model whose layers are on several devices: a part on each, and one numbering of pages. Its pages read out as those
 * of a cache on one device, so that what was saved with one placement is restored with another.
 * @module
 */
import { type CachePlan, partSpec } from "../plan/cache.ts";
import type { Backend, CacheHandle } from "../program/backend.ts";

/** A stream's bytes in a page of its part and in a page of the whole. */
interface Piece {
  readonly part: number;
  readonly inPart: number;
  readonly inWhole: number;
  readonly bytes: number;
}

export class SplitCache implements CacheHandle {
  readonly #pieces: readonly Piece[];
  readonly pageBytes: number;

  constructor(plan: CachePlan, readonly parts: readonly CacheHandle[]) {
    const home = new Map(plan.parts.flatMap((p, part) => p.streams.map((s, i) => [s, { part, i }])));
    const ends = parts.map(() => 0);
    let at = 0;
    this.#pieces = plan.streams.map((_, s) => {
      const { part, i } = home.get(s)!, bytes = parts[part].streamBytes[i];
      const piece = { part, inPart: ends[part], inWhole: at, bytes };
      ends[part] += bytes;
      at += bytes;
      return piece;
    });
    this.pageBytes = at;
  }

  get streamBytes(): number[] {
    return this.#pieces.map((p) => p.bytes);
  }

  copyPages(src: readonly number[], dst: readonly number[]): void {
    for (const part of this.parts) part.copyPages(src, dst);
  }

  readPages(pages: readonly number[]): Uint8Array {
    const data = new Uint8Array(pages.length * this.pageBytes);
    const parts = this.parts.map((p) => p.readPages(pages));
    this.#each(pages.length, (whole, part, inPart, bytes) => {
      data.set(parts[part].subarray(inPart, inPart + bytes), whole);
    });
    return data;
  }

  writePages(pages: readonly number[], data: Uint8Array): void {
    const parts = this.parts.map((p) => new Uint8Array(pages.length * p.pageBytes));
    this.#each(pages.length, (whole, part, inPart, bytes) => {
      parts[part].set(data.subarray(whole, whole + bytes), inPart);
    });
    this.parts.forEach((p, i) => p.writePages(pages, parts[i]));
  }

  [Symbol.dispose](): void {
    for (const p of this.parts) p[Symbol.dispose]();
  }

  #each(n_pages: number, move: (inWhole: number, part: number, inPart: number, bytes: number) => void): void {
    for (let i = 0; i < n_pages; i++) {
      for (const { part, inPart, inWhole, bytes } of this.#pieces) {
        move(i * this.pageBytes + inWhole, part, i * this.parts[part].pageBytes + inPart, bytes);
      }
    }
  }
}

/** The parts of a cache on their devices. */
export function createParts(backend: Backend, plan: CachePlan): CacheHandle[] {
  const made: CacheHandle[] = [];
  try {
    for (const part of plan.parts) made.push(backend.createCache(partSpec(plan, part)));
  } catch (error) {
    for (const m of made) m[Symbol.dispose]();
    throw error;
  }
  return made;
}
