/**
 * The tokens that may still be chosen: at first the whole row of logits, later a short list, best first.
 *
 * Order is by logit, ties to the lower id. A row is never sorted whole unless a stage asks for all of it in order.
 * @module
 */

/** Largest vocabulary: a logit's 32 bits and an id's 21 share the 53 exact bits of a double. */
export const MAX_VOCAB = 1 << 21;

const f32 = new Float32Array(1), u32 = new Uint32Array(f32.buffer);

/** 32 bits whose ascending order is descending logits; NaN counts as -Infinity, -0 as 0. */
function descendingBits(logit: number): number {
  f32[0] = logit === logit ? logit : -Infinity;
  const bits = f32[0] === 0 ? 0 : u32[0];
  return (bits & 0x80000000 ? bits : ~bits & 0x7fffffff) >>> 0;
}

/** A double whose ascending order is: higher logit first, then lower id. */
const sortKey = (logit: number, id: number): number => descendingBits(logit) * MAX_VOCAB + id;

const idOf = (key: number): number => key % MAX_VOCAB;

/** Id of the largest logit, the lowest such id on ties; -1 where no logit is above -Infinity. */
export function argmax(row: Float32Array): number {
  let best = -Infinity, id = -1;
  for (let i = 0; i < row.length; i++) {
    if (row[i] > best) {
      best = row[i];
      id = i;
    }
  }
  return id;
}

/** Ids of the best `k` logits, best first. Cost: one pass over the row, and sorts of short buffers. */
export function bestIds(row: Float32Array, k: number): Int32Array {
  if (k >= row.length || k > 1024) return orderedIds(row, -Infinity).subarray(0, k);
  const size = Math.max(4 * k, 256);
  const buffer = new Float64Array(size);
  let n = 0, floor = -Infinity;
  const cut = () => {
    buffer.subarray(0, n).sort();
    n = Math.min(n, k);
    if (n === k) floor = row[idOf(buffer[n - 1])];
  };
  for (let i = 0; i < row.length; i++) {
    // Ids ascend, so one that only ties with the k-th best is behind it.
    if (!(row[i] > floor)) continue;
    buffer[n++] = sortKey(row[i], i);
    if (n === size) cut();
  }
  cut();
  return Int32Array.from(buffer.subarray(0, n), idOf);
}

/** Ids of all logits at or above `floor` (and above -Infinity), best first. Cost: linear, about 20 ns an id kept. */
export function orderedIds(row: Float32Array, floor: number): Int32Array {
  let ids = new Int32Array(row.length);
  let n = 0;
  for (let i = 0; i < row.length; i++) if (row[i] >= floor && row[i] > -Infinity) ids[n++] = i;
  if (n <= 512) {
    // The counters of a radix sort would cost more than a short list.
    const short = new Float64Array(n);
    for (let i = 0; i < n; i++) short[i] = sortKey(row[ids[i]], ids[i]);
    return Int32Array.from(short.sort(), idOf);
  }
  let keys = new Uint32Array(n);
  for (let i = 0; i < n; i++) keys[i] = descendingBits(row[ids[i]]);
  // Radix sort by 11, 11 and 10 bits: stable, so ties stay in order of id.
  let otherIds = new Int32Array(n), otherKeys = new Uint32Array(n);
  ids = ids.subarray(0, n);
  for (const [shift, mask] of [[0, 0x7ff], [11, 0x7ff], [22, 0x3ff]]) {
    const start = new Uint32Array(mask + 2);
    for (let i = 0; i < n; i++) start[((keys[i] >>> shift) & mask) + 1]++;
    for (let d = 1; d <= mask + 1; d++) start[d] += start[d - 1];
    for (let i = 0; i < n; i++) {
      const to = start[(keys[i] >>> shift) & mask]++;
      otherKeys[to] = keys[i];
      otherIds[to] = ids[i];
    }
    [ids, otherIds, keys, otherKeys] = [otherIds, ids, otherKeys, keys];
  }
  return ids;
}

/** `log(sum(exp(row)))` in double precision. */
export function logSumExp(row: ArrayLike<number>): number {
  let max = -Infinity;
  for (let i = 0; i < row.length; i++) if (row[i] > max) max = row[i];
  if (max === -Infinity) return -Infinity;
  let sum = 0;
  for (let i = 0; i < row.length; i++) {
    // Below e^-40 of the best a term cannot change the sum of a vocabulary within double precision's use here.
    const d = row[i] - max;
    if (d > -40) sum += Math.exp(d);
  }
  return max + Math.log(sum);
}

/** A short list of candidates, best first unless a stage says otherwise. */
export class Candidates {
  ids: Int32Array;
  logits: Float64Array;

  constructor(ids: Int32Array, logits: Float64Array) {
    this.ids = ids;
    this.logits = logits;
  }

  static of(row: Float32Array, ids: Int32Array): Candidates {
    const logits = new Float64Array(ids.length); // Float64Array.from with a callback costs ten times a loop
    for (let i = 0; i < ids.length; i++) logits[i] = row[ids[i]];
    return new Candidates(ids, logits);
  }

  get length(): number {
    return this.ids.length;
  }

  /** Keeps entries [from, to). */
  slice(from: number, to: number): void {
    this.ids = this.ids.subarray(from, to);
    this.logits = this.logits.subarray(from, to);
  }

  /** Softmax over the list. */
  probabilities(): Float64Array {
    const p = new Float64Array(this.length);
    let max = -Infinity, sum = 0;
    const logits = this.logits;
    for (let i = 0; i < p.length; i++) if (logits[i] > max) max = logits[i];
    for (let i = 0; i < p.length; i++) sum += p[i] = Math.exp(logits[i] - max);
    for (let i = 0; i < p.length; i++) p[i] /= sum;
    return p;
  }
}
