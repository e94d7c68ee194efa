/**
 * Which experts stay in the slots of pools. The library reads what a step needs and lets go of what was not used for longest;
 * this decides between steps which experts are seated, so that others leave before them. No answer depends on it.
 *
 * The rule is deterministic in the history of steps: a decayed count of rows an expert, and from time to time the unseated with
 * the highest counts take the seats of those with the lowest, a few at once and only where the gain is clear. A seat costs
 * nothing until its expert is needed: it is then read as any other, and stays.
 * @module
 */
import type { ModelFile } from "../arch/mod.ts";
import { EngineError } from "../errors.ts";
import type { PoolPlan } from "../plan/pools.ts";
import type { Backend, PoolCounts, PoolHandle, TensorHandle } from "../program/backend.ts";

/** Rows that each expert computed, by the name of a routed weight of its layer. */
export type ExpertRank = ReadonlyMap<string, ArrayLike<number>>;

/** How often the experts of a layer were there when they were needed. */
export interface LayerHits {
  /** The first of its routed weights. */
  readonly name: string;
  readonly hits: number;
  readonly misses: number;
  /** Where they were guessed before the layer was computed: those that it needed, those that were guessed, and both. */
  readonly n_needed: number;
  readonly n_guessed: number;
  readonly n_right: number;
}

function notInFile(file: string, tensor: string): EngineError {
  return new EngineError(
    "engine.pool_source",
    `Cannot read experts of ${file} while it runs: no file has tensor "${tensor}" as it is needed`,
    { at: { file, tensor }, hint: "write a GGUF file with bloomery prepare or quantize --hf, and run that" },
  );
}

/** What the pools of an engine did since they were made or reset. */
export interface ResidencyStats {
  readonly layers: readonly LayerHits[];
  readonly hits: number;
  readonly misses: number;
  readonly read_bytes: number;
  /** Reads, those that failed and were tried on another drive included. */
  readonly n_reads: number;
  /** Of the bytes, those of experts that were read before their layer was computed; of them, those that left without being used. */
  readonly ahead_bytes: number;
  readonly unused_bytes: number;
  /** Of all layers: experts that were needed where they had been guessed, and how many of them the guess had named. */
  readonly n_needed: number;
  readonly n_right: number;
  /** Time that steps waited for reads. */
  readonly wait_ms: number;
  readonly n_slots: number;
  /** Slots that hold an expert. */
  readonly n_held: number;
  readonly n_seated: number;
  /** Reads pass the system's page cache by. */
  readonly direct: boolean;
}

/** Steps between changes of seats. */
const EVERY = 4;
/** What is left of a count at each change. */
const DECAY = 0.98;
/** Counts of an expert that may take a seat, and by how much they must be above those of the one that leaves. */
const LEAST = 2, MARGIN = 3;
/** Seats that change at once. */
const MOST = 24;
/** Share of the slots that is seated; the others hold what was used last. */
const SEATED = 0.75;
/** Rows of a step that is a pass over a prompt, and how many steps of one token it counts for. */
const PASS_ROWS = 32, PASS_WEIGHT = 8;

interface Place {
  readonly group: number;
  readonly expert: number;
}

/** Seats of one pool; a class of its own because it can be tested without a library. */
export class Seats {
  readonly scores: readonly Float64Array[];
  readonly seated: readonly Uint8Array[];
  readonly capacity: number;
  #n = 0;

  /** @param n_expert Experts of each layer. */
  constructor(n_expert: readonly number[], n_slots: number) {
    this.scores = n_expert.map((n) => new Float64Array(n));
    this.seated = n_expert.map((n) => new Uint8Array(n));
    this.capacity = Math.floor(n_slots * SEATED);
  }

  get n_seated(): number {
    return this.#n;
  }

  /** Seats the experts with the highest counts, as many as there are seats. */
  start(counts: readonly (ArrayLike<number> | undefined)[]): void {
    for (const s of this.seated) s.fill(0);
    this.scores.forEach((s, g) => s.forEach((_, e) => s[e] = counts[g]?.[e] ?? 0));
    const chosen = this.#places(false).filter((p) => this.#score(p) > 0).slice(0, this.capacity);
    for (const { group, expert } of chosen) this.seated[group][expert] = 1;
    this.#n = chosen.length;
    // Ranks say who is first, not by how many rows of this session.
    const most = Math.max(1, ...this.scores.map((s) => Math.max(...s)));
    for (const s of this.scores) for (let e = 0; e < s.length; e++) s[e] *= LEAST * MARGIN / most;
  }

  /** Adds rows that experts computed. */
  count(group: number, rows: ArrayLike<number>, weight: number): void {
    for (let e = 0; e < rows.length; e++) this.scores[group][e] += rows[e] * weight;
  }

  /** Changes seats by the counts, which decay. @returns Layers whose seats changed. */
  adapt(): Set<number> {
    const changed = new Set<number>();
    const others = this.#places(false).filter((p) => this.#score(p) >= LEAST).slice(0, MOST);
    const leaving = this.#places(true).reverse();
    const seat = ({ group, expert }: Place, value: number) => {
      this.seated[group][expert] = value;
      changed.add(group);
    };
    let out = 0;
    for (const p of others) {
      if (this.#n < this.capacity) this.#n++;
      else {
        const victim = leaving[out++];
        if (victim === undefined || this.#score(p) < this.#score(victim) + MARGIN) break;
        seat(victim, 0);
      }
      seat(p, 1);
    }
    for (const s of this.scores) for (let e = 0; e < s.length; e++) s[e] *= DECAY;
    return changed;
  }

  #score(p: Place): number {
    return this.scores[p.group][p.expert];
  }

  /** Seated or other experts, the highest counts first, then by layer and number. */
  #places(seated: boolean): Place[] {
    const list: Place[] = [];
    this.seated.forEach((s, group) => s.forEach((v, expert) => (v === 1) === seated && list.push({ group, expert })));
    return list.sort((a, b) => this.#score(b) - this.#score(a) || a.group - b.group || a.expert - b.expert);
  }
}

interface Pool {
  readonly plan: PoolPlan;
  readonly handle: PoolHandle;
  readonly seats: Seats;
  /** What was counted when seats last changed, and when the counts were reset. */
  last: PoolCounts;
  base: PoolCounts;
}

/** The pools of an engine. */
export class Residency implements Disposable {
  readonly #pools: Pool[];
  readonly #tensors: ReadonlyMap<string, TensorHandle>;
  readonly #rank: ExpertRank;
  #n_steps = 0;

  private constructor(pools: Pool[], tensors: ReadonlyMap<string, TensorHandle>, rank: ExpertRank) {
    this.#pools = pools;
    this.#tensors = tensors;
    this.#rank = rank;
    this.#start();
  }

  /**
   * Makes the pools of a plan; experts are read when they are needed.
   * @throws {NativeError} `native.memory`, `native.io`, ...
   */
  static open(
    backend: Backend,
    plans: readonly PoolPlan[],
    file: ModelFile,
    rank: ExpertRank = new Map(),
  ): Residency {
    const pools: Pool[] = [], tensors = new Map<string, TensorHandle>();
    const copies = file.copies?.() ?? [];
    try {
      for (const plan of plans) {
        const handle = backend.createPool({ device: plan.device, slot_bytes: plan.slot_bytes, n_slots: plan.n_slots });
        const seats = new Seats(plan.groups.map((g) => g.n_expert), plan.n_slots);
        const none = handle.counts();
        pools.push({ plan, handle, seats, last: none, base: none });
        const paths = new Set<string>();
        plan.groups.forEach(({ weights, packed }, group) => {
          for (const { name, type, ne } of weights) {
            const place = packed ? file.packed?.(name) : file.place(file.tensor(name));
            if (!place) throw notInFile(file.name, name);
            tensors.set(name, handle.addTensor({ group, type, ne }, place));
            paths.add(place.path);
          }
        });
        for (const { of, copy } of copies) if (paths.has(of)) handle.addCopy(of, copy);
        pools[pools.length - 1].last = pools[pools.length - 1].base = handle.counts();
      }
      return new Residency(pools, tensors, rank);
    } catch (error) {
      for (const t of tensors.values()) t[Symbol.dispose]();
      for (const p of pools) p.handle[Symbol.dispose]();
      throw error;
    }
  }

  /** A routed weight that is in a pool. */
  tensor(name: string): TensorHandle | undefined {
    return this.#tensors.get(name);
  }

  /** Reads the seated experts. @throws {NativeError} `native.io` */
  async fill(): Promise<void> {
    for (const p of this.#pools) await p.handle.fill();
  }

  /** To be called after each native step. */
  afterStep(n_tok: number): void {
    if (++this.#n_steps % EVERY !== 0 && n_tok < PASS_ROWS) return;
    for (const p of this.#pools) {
      const now = p.handle.counts();
      const weight = n_tok < PASS_ROWS ? 1 : PASS_WEIGHT / n_tok;
      now.groups.forEach(({ rows }, g) => p.seats.count(g, rows.map((n, e) => n - p.last.groups[g].rows[e]), weight));
      p.last = now;
      for (const g of p.seats.adapt()) p.handle.seat(g, p.seats.seated[g]);
    }
  }

  /** Takes the seats of the start again, and counts from now on. */
  reset(): void {
    this.#n_steps = 0;
    for (const p of this.#pools) p.last = p.base = p.handle.counts();
    this.#start();
  }

  get stats(): ResidencyStats {
    const all = this.#pools.map((p) => ({ ...p, now: p.handle.counts() }));
    const total = (of: (p: typeof all[number]) => number) => all.reduce((n, p) => n + of(p), 0);
    const layers = all.flatMap(({ plan, now, base }) =>
      now.groups.map((g, i) => ({
        name: plan.groups[i].weights[0].name,
        hits: g.hits - base.groups[i].hits,
        misses: g.misses - base.groups[i].misses,
        n_needed: g.n_needed - base.groups[i].n_needed,
        n_guessed: g.n_guessed - base.groups[i].n_guessed,
        n_right: g.n_right - base.groups[i].n_right,
      }))
    );
    return {
      layers: layers.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true })),
      hits: layers.reduce((n, l) => n + l.hits, 0),
      misses: layers.reduce((n, l) => n + l.misses, 0),
      read_bytes: total((p) => p.now.read_bytes - p.base.read_bytes),
      n_reads: total((p) => p.now.n_reads - p.base.n_reads),
      ahead_bytes: total((p) => p.now.ahead_bytes - p.base.ahead_bytes),
      unused_bytes: total((p) => p.now.unused_bytes - p.base.unused_bytes),
      n_needed: layers.reduce((n, l) => n + l.n_needed, 0),
      n_right: layers.reduce((n, l) => n + l.n_right, 0),
      wait_ms: total((p) => p.now.wait_ms - p.base.wait_ms),
      n_slots: total((p) => p.plan.n_slots),
      n_held: total((p) => p.now.n_held),
      n_seated: total((p) => p.seats.n_seated),
      direct: all.every((p) => p.now.direct),
    };
  }

  /** Rows that each expert computed since the pools were made. */
  get counts(): ExpertRank {
    const all = new Map<string, ArrayLike<number>>();
    for (const { plan, handle } of this.#pools) {
      handle.counts().groups.forEach(({ rows }, g) => all.set(plan.groups[g].weights[0].name, rows));
    }
    return all;
  }

  [Symbol.dispose](): void {
    for (const t of this.#tensors.values()) t[Symbol.dispose]();
    for (const p of this.#pools) p.handle[Symbol.dispose]();
    this.#pools.length = 0;
  }

  #start(): void {
    for (const { plan, handle, seats } of this.#pools) {
      seats.start(plan.groups.map((g) => {
        const known = g.weights.map((w) => this.#rank.get(w.name)).find((c) => c !== undefined);
        return known?.length === g.n_expert ? known : undefined;
      }));
      plan.groups.forEach((_, g) => handle.seat(g, seats.seated[g]));
    }
  }
}
