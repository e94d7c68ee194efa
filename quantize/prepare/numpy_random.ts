/**
 * Whole numbers as numpy's default generator draws them from a seed: released models compute constants with it.
 * Source: numpy `SeedSequence`, `PCG64` (O'Neill's PCG XSL-RR 128/64) and Lemire's bounded integers.
 * @module
 */
const U64 = (1n << 64n) - 1n;
const U128 = (1n << 128n) - 1n;

/** Four 64-bit words of state from a seed, as `SeedSequence(seed).generate_state(4, uint64)`. */
function seedWords(seed: bigint): bigint[] {
  const entropy: number[] = [];
  for (let rest = seed; rest > 0n || entropy.length === 0; rest >>= 32n) entropy.push(Number(rest & 0xffffffffn));
  let hash = 0x43b0d7e5;
  const hashed = (value: number) => {
    let v = (value ^ hash) >>> 0;
    hash = Math.imul(hash, 0x931e8875) >>> 0;
    v = Math.imul(v, hash) >>> 0;
    return (v ^ (v >>> 16)) >>> 0;
  };
  const mixed = (x: number, y: number) => {
    const v = (Math.imul(0xca01f9dd, x) - Math.imul(0x4973f715, y)) >>> 0;
    return (v ^ (v >>> 16)) >>> 0;
  };
  const pool = Array.from({ length: 4 }, (_, i) => hashed(entropy[i] ?? 0));
  for (let from = 0; from < 4; from++) {
    for (let to = 0; to < 4; to++) if (from !== to) pool[to] = mixed(pool[to], hashed(pool[from]));
  }
  for (const word of entropy.slice(4)) for (let to = 0; to < 4; to++) pool[to] = mixed(pool[to], hashed(word));
  let out = 0x8b51f9dd;
  const words = Array.from({ length: 8 }, (_, i) => {
    let v = (pool[i % 4] ^ out) >>> 0;
    out = Math.imul(out, 0x58f38ded) >>> 0;
    v = Math.imul(v, out) >>> 0;
    return BigInt((v ^ (v >>> 16)) >>> 0);
  });
  return [0, 2, 4, 6].map((i) => words[i] | (words[i + 1] << 32n));
}

/**
 * `numpy.random.default_rng(seed).integers(0, bound, n)`.
 *
 * @param bound Above 2^32 and below 2^63: smaller bounds take another path in numpy.
 */
export function numpyIntegers(seed: number, bound: bigint, n: number): bigint[] {
  if (bound <= 1n << 32n || bound >= 1n << 63n) throw new Error(`bound ${bound} is outside 2^32 to 2^63`);
  const [high, low, streamHigh, streamLow] = seedWords(BigInt(seed));
  const increment = (((streamHigh << 64n | streamLow) << 1n) | 1n) & U128;
  let state = 0n;
  const step = () => state = (state * 0x2360ed051fc65da44385df649fccf645n + increment) & U128;
  step();
  state = (state + (high << 64n | low)) & U128;
  step();
  const next = () => {
    step();
    const x = (state >> 64n) ^ (state & U64);
    const turn = state >> 122n;
    return ((x >> turn) | (x << (64n - turn))) & U64;
  };
  const threshold = ((1n << 64n) - bound) % bound;
  return Array.from({ length: n }, () => {
    let product = next() * bound;
    while ((product & U64) < threshold) product = next() * bound;
    return product >> 64n;
  });
}
