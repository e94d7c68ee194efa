/**
 * Computed prompts in the host's memory: what slots give up is kept as snapshots, and taken back by prompts that begin like them.
 * @module
 */
import type { Snapshot } from "../core/engine/mod.ts";
import { sameAdapters } from "../core/program/adapter.ts";

export class PromptCache {
  /** Oldest use first. */
  readonly #entries = new Set<Snapshot>();
  readonly #most: number;
  #bytes = 0;

  /** @param most Bytes of all snapshots together. */
  constructor(most: number) {
    this.#most = most;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Snapshots kept. */
  get size(): number {
    return this.#entries.size;
  }

  /**
   * Keeps a sequence that is about to go, unless one kept is as good.
   * @param reaches Whether the sequence can be cut back to a length: then it is as good as a shorter one.
   */
  keep(
    { tokens, adapters }: Pick<Snapshot, "tokens" | "adapters">,
    snapshot: () => Snapshot,
    reaches: (length: number) => boolean,
  ): void {
    if (tokens.length === 0) return;
    for (const entry of this.#entries) {
      if (!sameAdapters(entry.adapters, adapters)) continue;
      const common = commonPrefix(entry.tokens, tokens);
      if (common === tokens.length && entry.tokens.length === tokens.length) return this.#touch(entry);
      if (common === entry.tokens.length && reaches(common)) this.#drop(entry);
    }
    const entry = snapshot(), bytes = bytesOf(entry);
    if (bytes > this.#most) return;
    this.#entries.add(entry);
    this.#bytes += bytes;
    for (const oldest of this.#entries) {
      if (this.#bytes <= this.#most) break;
      this.#drop(oldest);
    }
  }

  /** The snapshot of the same adapters with the longest common beginning, longer than `least`; none is promised to be cut there. */
  find({ tokens, adapters }: Pick<Snapshot, "tokens" | "adapters">, least: number): Snapshot | undefined {
    let best: Snapshot | undefined;
    for (const entry of this.#entries) {
      if (!sameAdapters(entry.adapters, adapters)) continue;
      const common = commonPrefix(entry.tokens, tokens);
      if (common > least) [best, least] = [entry, common];
    }
    if (best !== undefined) this.#touch(best);
    return best;
  }

  clear(): void {
    this.#entries.clear();
    this.#bytes = 0;
  }

  #touch(entry: Snapshot): void {
    this.#entries.delete(entry);
    this.#entries.add(entry);
  }

  #drop(entry: Snapshot): void {
    if (this.#entries.delete(entry)) this.#bytes -= bytesOf(entry);
  }
}

function bytesOf({ tokens, caches }: Snapshot): number {
  return caches.reduce((n, c) => n + c.data.length, 8 * tokens.length);
}

function commonPrefix(a: readonly number[], b: readonly number[]): number {
  const n = Math.min(a.length, b.length);
  let i = 0;
  while (i < n && a[i] === b[i]) i++;
  return i;
}
