/**
 * A run of tokens with what the caches hold of it. It can be forked, cut back, snapshot and restored.
 *
 * Pages of a full cache can be cut anywhere. A windowed cache can be cut as long as the window before the cut is still held,
 * a recurrent state not at all: for these a sequence keeps points, forks of itself at earlier lengths, and goes back to one.
 *
 * Guessed tokens are computed like others, behind a mark; `rewind` takes back those that were wrong.
 * @module
 */
import type { PageList } from "./pages.ts";

/** What the engine gives its sequences. */
export interface SequenceOwner {
  /** One fresh list for each cache. */
  lists(): PageList[];
  /** A point was kept: the owner may drop it when pages run short. */
  kept(point: KeptPoint): void;
  dropped(point: KeptPoint): void;
}

/** A sequence as it was at an earlier length. */
export interface KeptPoint {
  readonly length: number;
  readonly lists: readonly PageList[];
  /** Forgets the point and gives its pages back. */
  drop(): void;
}

/** Where guessed tokens begin. */
interface Mark {
  readonly length: number;
  /** For each cache: the state at the mark; undefined where the cache can be cut. */
  readonly states: readonly (PageList | undefined)[];
}

/** Points that one sequence keeps at most. */
const MAX_KEPT = 4;

/** A run of tokens with what the caches hold of it. Dispose of it to give its pages back. */
export class Sequence implements Disposable {
  #lists: PageList[];
  #tokens: number[];
  #kept: KeptPoint[] = [];
  #mark: Mark | undefined;
  #disposed = false;

  /** @internal use `Engine.createSequence` */
  constructor(
    /** @internal */
    readonly owner: SequenceOwner,
    lists?: PageList[],
    tokens: number[] = [],
    /** How much of each of the model's adapters its tokens are computed with; none where left out. */
    readonly adapters: readonly number[] = [],
  ) {
    this.#lists = lists ?? owner.lists();
    this.#tokens = tokens;
  }

  /** Tokens the caches hold of it. */
  get length(): number {
    return this.#tokens.length;
  }

  /** Its token ids, in order. */
  get tokens(): readonly number[] {
    return this.#tokens;
  }

  /** Can be cut back to any length: no window has passed and there is no state. */
  get rewindable(): boolean {
    return this.#lists.every((l) => !l.kind.state && l.kind.window === 0);
  }

  /** @internal one for each cache */
  get lists(): readonly PageList[] {
    if (this.#disposed) throw new Error("a sequence was used after it was disposed");
    return this.#lists;
  }

  /** @internal records tokens whose pages were appended. */
  push(tokens: ArrayLike<number>, from: number, to: number): void {
    for (let i = from; i < to; i++) this.#tokens.push(tokens[i]);
  }

  /**
   * Forgets tokens behind the first `n`, and more where windows or states cannot stop there: then it goes back to the nearest
   * kept point before.
   * @returns the length it has now
   */
  truncate(n: number): number {
    const lists = this.lists;
    if (n < 0 || n > this.length) throw new Error(`truncate to ${n} of ${this.length} tokens`);
    this.#dropMark();
    let to = n;
    if (lists.every((l) => l.reaches(n))) { for (const l of lists) l.truncate(n); }
    else {
      const point = this.#kept.filter((k) => k.length <= n).at(-1);
      to = point?.length ?? 0;
      for (const l of lists) l.truncate(0);
      if (point) this.#lists = point.lists.map((l) => l.fork());
    }
    this.#forget(to);
    return to;
  }

  #forget(to: number): void {
    this.#tokens.length = to;
    for (const k of this.#kept.filter((k) => k.length > to)) k.drop();
  }

  /** Length at the mark, where guesses were computed and not yet judged. */
  get marked(): number | undefined {
    return this.#mark?.length;
  }

  /** @internal The tokens that follow are guesses: `rewind` can take them back. */
  mark(): void {
    this.#dropMark();
    this.#mark = { length: this.length, states: this.lists.map((l) => l.kind.state ? l.fork() : undefined) };
  }

  /**
   * Keeps the first `n` tokens, at least those before the mark, and takes the mark away. A recurrent state cannot stop between: it goes
   * back to the mark, and the tokens behind it are to be computed again.
   * @returns the length it has now: `n`, or the mark's
   */
  rewind(n: number): number {
    const mark = this.#mark, lists = this.lists;
    if (mark === undefined || n < mark.length || n > this.length) {
      throw new Error(`rewind to ${n} of ${this.length} tokens, marked at ${mark?.length}`);
    }
    if (n < this.length) {
      const to = mark.states.some((s) => s !== undefined) ? mark.length : n;
      lists.forEach((l) => l.truncate(l.kind.state ? 0 : to));
      this.#lists = lists.map((l, i) => mark.states[i]?.fork() ?? l);
      this.#forget(to);
    }
    this.#dropMark();
    for (const l of this.#lists) l.settle();
    return this.length;
  }

  #dropMark(): void {
    for (const s of this.#mark?.states ?? []) s?.truncate(0);
    this.#mark = undefined;
  }

  /** How far `truncate(n)` would go. */
  reach(n: number): number {
    if (this.lists.every((l) => l.reaches(n))) return n;
    return this.#kept.filter((k) => k.length <= n).at(-1)?.length ?? 0;
  }

  /** Keeps the present as a point to go back to. */
  keep(): void {
    if (this.#kept.some((k) => k.length === this.length)) return;
    this.#addPoint(this.length, this.lists);
    if (this.#kept.length > MAX_KEPT) this.#kept[0].drop();
  }

  /** A second sequence with the same tokens and kept points, sharing pages until either writes. */
  fork(): Sequence {
    const copy = new Sequence(this.owner, this.lists.map((l) => l.fork()), [...this.#tokens], this.adapters);
    for (const k of this.#kept) copy.#addPoint(k.length, k.lists);
    return copy;
  }

  #addPoint(length: number, from: readonly PageList[]): void {
    const lists = from.map((l) => l.fork());
    const point: KeptPoint = {
      length,
      lists,
      drop: () => {
        this.#kept = this.#kept.filter((k) => k !== point);
        for (const l of lists) l.truncate(0);
        this.owner.dropped(point);
      },
    };
    this.#kept.push(point);
    this.owner.kept(point);
  }

  /** Gives its pages back. Harmless to repeat. */
  dispose(): void {
    if (this.#disposed) return;
    this.#dropMark();
    for (const k of [...this.#kept]) k.drop();
    for (const l of this.#lists) l.truncate(0);
    this.#disposed = true;
  }

  /** The same as `dispose`. */
  [Symbol.dispose](): void {
    this.dispose();
  }
}
