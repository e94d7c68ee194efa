/**
 * Texts in which the continuation of an n-gram is looked for: a ring of tokens, where each n-gram knows the last place that had it.
 * Memory is bounded by the ring's length, and a search by the places it looks at.
 * @module
 */

/** Tokens that must agree before a place counts. */
const N_GRAM = 3;
/** Tokens that are compared at a place; more say no more. */
const LONGEST = 32;
/** Places that one search compares. */
const PLACES = 16;
/** Between texts. */
const END = -1;

export interface Match {
  /** Tokens before the place that agree with the end of the text. */
  readonly length: number;
  /** What followed there. */
  readonly tokens: readonly number[];
}

function hash(a: number, b: number, c: number): number {
  const h = Math.imul(Math.imul(Math.imul(a, 0x9e3779b1) ^ b, 0x85ebca6b) ^ c, 0xc2b2ae35);
  return (h ^ (h >>> 15)) >>> 0;
}

export class NgramStore {
  /** Tokens by place, modulo the ring's length. */
  #tokens = new Int32Array(256);
  /** The place before with the same hash, by place. Places count from 1 on and never come again. */
  #before = new Float64Array(256);
  #heads = new Float64Array(256);
  #length = 0;

  /** @param capacity The most tokens that are kept; a power of two of at least 256. */
  constructor(readonly capacity: number) {
    if (!(capacity >= 256 && Number.isInteger(Math.log2(capacity)))) throw new Error(`n-gram store of ${capacity}`);
  }

  /** Tokens that were pushed. */
  get length(): number {
    return this.#length;
  }

  push(token: number): void {
    if (this.#length === this.#tokens.length && this.#length < this.capacity) this.#grow();
    this.#tokens[this.#length % this.#tokens.length] = token;
    this.#length++;
    this.#index(this.#length);
  }

  /** Ends a text: what follows does not continue it. */
  end(): void {
    this.push(END);
  }

  /**
   * The place whose tokens before it agree longest with the end of `text`, the latest of several.
   * @param n The most tokens to give.
   * @param own The store holds `text` itself: a repetition may go on beyond its end.
   */
  find(text: readonly number[], n: number, own = false): Match | undefined {
    const last = text.length - 1;
    if (last + 1 < N_GRAM || n < 1) return undefined;
    let best = 0, at = 0;
    let place = this.#heads[hash(text[last - 2], text[last - 1], text[last]) & (this.#heads.length - 1)];
    for (let i = 0; i < PLACES && place - N_GRAM >= this.#oldest; i++) {
      if (place < this.#length && this.#at(place) !== END) {
        const length = this.#common(text, place);
        if (length >= N_GRAM && length > best) [best, at] = [length, place];
      }
      place = this.#before[(place - 1) % this.#before.length];
    }
    if (best === 0) return undefined;
    const tokens: number[] = [];
    for (let p = at; tokens.length < n; p++) {
      if (p >= this.#length && !own) break;
      const token = p < this.#length ? this.#at(p) : tokens[p - this.#length];
      if (token === END) break;
      tokens.push(token);
    }
    return { length: best, tokens };
  }

  /** The first place that the ring still holds. */
  get #oldest(): number {
    return Math.max(0, this.#length - this.#tokens.length);
  }

  #at(place: number): number {
    return this.#tokens[place % this.#tokens.length];
  }

  #common(text: readonly number[], place: number): number {
    const most = Math.min(LONGEST, text.length, place - this.#oldest);
    let n = 0;
    while (n < most && this.#at(place - 1 - n) === text[text.length - 1 - n]) n++;
    return n;
  }

  /** Notes the n-gram that ends before `place`. */
  #index(place: number): void {
    this.#before[(place - 1) % this.#before.length] = 0;
    if (place - N_GRAM < this.#oldest) return;
    const [a, b, c] = [this.#at(place - 3), this.#at(place - 2), this.#at(place - 1)];
    if (a === END || b === END || c === END) return;
    const h = hash(a, b, c) & (this.#heads.length - 1);
    this.#before[(place - 1) % this.#before.length] = this.#heads[h];
    this.#heads[h] = place;
  }

  #grow(): void {
    const tokens = this.#tokens, size = 2 * tokens.length;
    this.#tokens = new Int32Array(size);
    this.#tokens.set(tokens);
    this.#before = new Float64Array(size);
    this.#heads = new Float64Array(size);
    for (let place = 1; place <= this.#length; place++) this.#index(place);
  }
}
