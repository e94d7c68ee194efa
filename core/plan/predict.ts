/**
 * Rates of a plan on a machine, from bytes, bandwidths and rates alone: nothing is fitted to a model. A prediction that is far from what
 * is measured says that the model of the machine is wrong.
 *
 * A step's time is the sum of its terms: products (bytes at one row's rate, or multiply-adds at many rows', whichever takes longer), what
 * attention reads and computes, a constant for each op, and reads of experts that no slot holds, as far as they are not hidden.
 * @module
 */
import { PlanError } from "../errors.ts";
import { type Card, type Machine, type Processor, productRate } from "./machine.ts";
import type { Place, ProductWork, Work } from "./work.ts";

export interface PredictOptions {
  /** Tokens in the cache while decoding. Default: 0. */
  readonly depth?: number;
  /** Tokens of the prompt. Default: 512. */
  readonly n_prompt?: number;
  /** Rows of a pass. Default: 512. */
  readonly n_ubatch?: number;
  /** Exponent of Zipf's law for how often experts are used, where no rank says it; 0: evenly. Default: 1. */
  readonly skew?: number;
  /** Rows that each expert computed, by the name of a routed weight of its layer. */
  readonly rank?: ReadonlyMap<string, ArrayLike<number>> | undefined;
  /** Drives that hold copies of the file. Default: 1. */
  readonly n_drive?: number;
}

/** One term of a step's time. */
export interface PredictedTerm {
  readonly what: "products" | "attention" | "ops" | "crossings" | "drive";
  readonly place: Place | "drive";
  readonly bytes: number;
  readonly seconds: number;
}

export interface PredictedRate {
  readonly tokens_per_second: number;
  readonly terms: readonly PredictedTerm[];
}

export interface Prediction {
  readonly decode: PredictedRate;
  readonly prompt: PredictedRate;
  /** Share of the experts of decoded tokens that are in slots; 1 without pools. */
  readonly hit_rate: number;
}

/** Slots of a pool that are seats (`core/engine/residency.ts`). */
const SEATED = 0.75;
/** Experts that are guessed before their layer is computed: their reads are hidden behind what is computed. */
const GUESSED = 0.85;
/** Seconds until a card has what the host computed for it, or the other way round. */
const CROSSING = 15e-6;

/** The value of `x` in [low, high] at which a rising `f` is `value`. */
function solve(f: (x: number) => number, value: number, low: number, high: number): number {
  for (let i = 0; i < 80; i++) {
    const middle = (low + high) / 2;
    if (f(middle) < value) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/** With what probability a row uses each expert of a layer. Their sum is `n_used`; none is above 1. */
export function usage(n_expert: number, n_used: number, weights: (expert: number) => number): Float64Array {
  const w = Float64Array.from({ length: n_expert }, (_, e) => Math.max(0, weights(e)));
  const positive = w.filter((v) => v > 0);
  // Fewer experts than a row uses were ever used: nothing is known.
  if (positive.length < n_used) return w.fill(n_used / n_expert);
  const sum = (c: number) => w.reduce((n, v) => n + Math.min(1, c * v), 0);
  const c = solve(sum, n_used, 0, n_used / positive.reduce((a, b) => Math.min(a, b)));
  return w.map((v) => Math.min(1, c * v));
}

/**
 * With what probability each of some experts is in a slot: the most used have seats, the others come and go by what was used last (a
 * cache that keeps an item for a time T after its last use holds it with probability 1 - e^(-p T)).
 */
export function heldShare(p: Float64Array, n_slots: number): Float64Array {
  const order = [...p.keys()].sort((a, b) => p[b] - p[a] || a - b);
  const n_seat = Math.min(p.length, Math.floor(n_slots * SEATED)), held = new Float64Array(p.length);
  for (const e of order.slice(0, n_seat)) held[e] = 1;
  const others = order.slice(n_seat), room = n_slots - n_seat;
  if (others.length <= room) return held.fill(1);
  const most = others.filter((e) => p[e] > 0).length;
  if (most <= room) {
    for (const e of others) held[e] = p[e] > 0 ? 1 : 0;
    return held;
  }
  const count = (t: number) => others.reduce((n, e) => n + 1 - Math.exp(-p[e] * t), 0);
  let high = 1;
  while (count(high) < room) high *= 2;
  const t = solve(count, room, 0, high);
  for (const e of others) held[e] = 1 - Math.exp(-p[e] * t);
  return held;
}

function missing(what: string): PlanError {
  return new PlanError("plan.machine", `Cannot predict a plan that needs a ${what}: the machine has none`, {
    at: { missing: what },
    hint: `measure a machine that has one with bloomery machine`,
  });
}

interface Step {
  /** Token rows, and output rows. */
  readonly n: number;
  readonly n_out: number;
  /** Positions before the first row. */
  readonly from: number;
}

class Predictor {
  /** By layer and expert. */
  readonly usage: readonly Float64Array[];
  readonly held: readonly Float64Array[];

  constructor(readonly work: Work, readonly machine: Machine, readonly options: PredictOptions) {
    const { skew = 1, rank } = options;
    this.usage = work.layers.map((names) => {
      const { n_expert, n_used } = work.products.find((p) => p.name === names[0])!.routed!;
      const counts = names.map((name) => rank?.get(name)).find((c) => c?.length === n_expert);
      return usage(n_expert, n_used, (e) => counts === undefined ? (e + 1) ** -skew : counts[e]);
    });
    const held = this.usage.map((u) => new Float64Array(u.length).fill(1));
    for (const { n_slots, layers } of work.pools) {
      const all = heldShare(Float64Array.from(layers.flatMap((l) => [...this.usage[l]])), n_slots);
      let at = 0;
      for (const l of layers) held[l] = all.slice(at, at += this.usage[l].length);
    }
    this.held = held;
  }

  processor(place: Place): Processor {
    const { host, cards } = this.machine;
    if (place === "host") return host;
    if (cards.length === 0) throw missing("card");
    return cards[0];
  }

  /** Seconds of one matrix or of one expert. */
  #product(w: ProductWork, bytes: number, macs: number): number {
    const { one, many } = productRate(this.processor(w.place), w.type);
    return Math.max(bytes / one, macs / many);
  }

  terms({ n, n_out, from }: Step): PredictedTerm[] {
    const { work, options } = this;
    const terms: PredictedTerm[] = [];
    for (const place of ["host", "card"] as const) {
      if (work.n_op[place] === 0) continue;
      let bytes = 0, seconds = 0;
      for (const w of work.products.filter((p) => p.place === place)) {
        const rows = w.outputs ? n_out : n;
        if (w.routed === undefined) {
          if (rows === 0) continue;
          bytes += w.bytes;
          seconds += this.#product(w, w.bytes, rows * w.macs);
          continue;
        }
        const { layer, n_expert, n_used } = w.routed, each = w.bytes / n_expert;
        for (const p of this.usage[layer]) {
          const touched = 1 - (1 - p) ** rows;
          if (touched === 0) continue;
          bytes += each * touched;
          seconds += touched * this.#product(w, each, rows * p / touched * w.macs / n_used);
        }
      }
      terms.push({ what: "products", place, bytes, seconds });
      const processor = this.processor(place), attention = work.attention.filter((a) => a.place === place);
      if (attention.length > 0) {
        const { many } = productRate(processor, "f16");
        let read = 0, time = 0;
        for (const a of attention) {
          // Rows see what is before them: from + 1 .. from + n positions.
          const seen = Math.min(a.most, from + (n + 1) / 2), all = Math.min(from + n, a.most + n) * a.bytes;
          read += all;
          time += Math.max(all / processor.bandwidth, n * seen * a.macs / many);
        }
        terms.push({ what: "attention", place, bytes: read, seconds: time });
      }
      terms.push({ what: "ops", place, bytes: 0, seconds: work.n_op[place] * processor.op });
    }
    if (work.n_crossing > 0) {
      const { to_card, to_host } = this.processor("card") as Card, bytes = n * work.crossing_bytes;
      // Which way each value goes matters little: the slower rate stands for both.
      const seconds = work.n_crossing * CROSSING + bytes / Math.min(to_card, to_host);
      terms.push({ what: "crossings", place: "card", bytes, seconds });
    }
    if (work.pools.length > 0) {
      terms.push(this.#drive(n, terms.reduce((s, t) => s + t.seconds, 0), options.n_drive ?? 1));
    }
    return terms;
  }

  /** Reads of what no slot holds, less what they take while something else is computed. */
  #drive(n: number, computing: number, n_drive: number): PredictedTerm {
    const { work, machine } = this;
    if (machine.drives.length === 0) throw missing("drive");
    let bytes = 0;
    for (const w of work.products) {
      if (w.routed === undefined || !work.pools.some((p) => p.layers.includes(w.routed!.layer))) continue;
      const each = w.bytes / w.routed.n_expert, { layer } = w.routed;
      this.usage[layer].forEach((p, e) => bytes += each * (1 - (1 - p) ** n) * (1 - this.held[layer][e]));
    }
    const drives = [...machine.drives, ...Array.from({ length: n_drive }, () => machine.drives[0])].slice(0, n_drive);
    const seconds = bytes / drives.reduce((r, d) => r + d.random, 0);
    return { what: "drive", place: "drive", bytes, seconds: seconds - GUESSED * Math.min(seconds, computing) };
  }

  /** Share of a row's experts that are there. */
  get hitRate(): number {
    const all = this.usage.reduce((n, u) => n + u.reduce((a, b) => a + b, 0), 0);
    const hits = this.usage.reduce((n, u, l) => n + u.reduce((a, p, e) => a + p * this.held[l][e], 0), 0);
    return all === 0 ? 1 : hits / all;
  }
}

function rate(n: number, terms: readonly PredictedTerm[]): PredictedRate {
  return { tokens_per_second: n / terms.reduce((s, t) => s + t.seconds, 0), terms };
}

/** Sums of terms with the same what and place. */
function summed(passes: readonly PredictedTerm[][]): PredictedTerm[] {
  const all = new Map<string, PredictedTerm>();
  for (const t of passes.flat()) {
    const key = `${t.what} ${t.place}`, known = all.get(key);
    all.set(key, known ? { ...t, bytes: known.bytes + t.bytes, seconds: known.seconds + t.seconds } : t);
  }
  return [...all.values()];
}

/**
 * Rates of decoding one sequence, and of a prompt in passes.
 * @throws {PlanError} `plan.machine` where the plan needs a card or a drive that the machine lacks
 */
export function predict(work: Work, machine: Machine, options: PredictOptions = {}): Prediction {
  const { depth = 0, n_prompt = 512, n_ubatch = 512 } = options;
  const predictor = new Predictor(work, machine, options);
  const passes: PredictedTerm[][] = [];
  for (let from = 0; from < n_prompt; from += n_ubatch) {
    const n = Math.min(n_ubatch, n_prompt - from);
    passes.push(predictor.terms({ n, n_out: from + n === n_prompt ? 1 : 0, from }));
  }
  return {
    decode: rate(1, predictor.terms({ n: 1, n_out: 1, from: depth })),
    prompt: rate(n_prompt, summed(passes)),
    hit_rate: predictor.hitRate,
  };
}
