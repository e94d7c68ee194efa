/**
 * The Mersenne Twister with the seed that `llama-perplexity` draws its tasks with, and the two ways it draws.
 * Source: Matsumoto and Nishimura, MT19937; Lemire, "Fast Random Integer Generation in an Interval".
 * @module
 */
const N = 624, M = 397;

/** The generator `std::mt19937` of C++: whole numbers of 32 bits. */
export class Mersenne {
  readonly #state = new Uint32Array(N);
  #at = N;

  constructor(seed: number) {
    const s = this.#state;
    s[0] = seed;
    for (let i = 1; i < N; i++) s[i] = Math.imul(1812433253, s[i - 1] ^ (s[i - 1] >>> 30)) + i;
  }

  next(): number {
    if (this.#at === N) this.#turn();
    let y = this.#state[this.#at++];
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  }

  #turn(): void {
    const s = this.#state;
    for (let i = 0; i < N; i++) {
      const y = (s[i] & 0x80000000) | (s[(i + 1) % N] & 0x7fffffff);
      s[i] = s[(i + M) % N] ^ (y >>> 1) ^ ((y & 1) === 0 ? 0 : 0x9908b0df);
    }
    this.#at = 0;
  }

  /** A whole number below `n`, as `std::uniform_int_distribution` of GCC 11 and later gives it. */
  below(n: number): number {
    const range = BigInt(n), threshold = Number(((1n << 32n) - range) % range);
    for (;;) {
      const product = BigInt(this.next()) * range;
      if (Number(product & 0xffffffffn) >= threshold) return Number(product >> 32n);
    }
  }

  /** The same, as a share of `n` in floats of 32 bits. */
  shareOf(n: number): number {
    return Math.min(n - 1, Math.trunc(Math.fround(Math.fround(this.next()) * 2 ** -32 * n)));
  }
}
