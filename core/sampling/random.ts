/**
 * The sampler's random numbers: sfc32 (Chris Doty-Humphrey's Small Fast Counting generator), 128 bits of state,
 * seeded with (seed, 0x9E3779B9, 0x243F6A88, 1) and 12 warm-up rounds. The same seed gives the same draws everywhere.
 * @module
 */
export class Random {
  #a: number;
  #b = 0x9e3779b9 | 0;
  #c = 0x243f6a88 | 0;
  #counter = 1;

  constructor(seed: number) {
    this.#a = seed | 0;
    for (let i = 0; i < 12; i++) this.#u32();
  }

  #u32(): number {
    const t = (this.#a + this.#b + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + t) | 0;
    return t >>> 0;
  }

  /** A number in [0, 1) with 53 random bits. */
  next(): number {
    const high = this.#u32() >>> 5, low = this.#u32() >>> 6;
    return (high * 0x4000000 + low) / 0x20000000000000;
  }
}
