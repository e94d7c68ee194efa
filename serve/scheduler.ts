/**
 * Continuous batching: many jobs, a few slots, one engine. This module knows tokens and rows, but no text and no HTTP.
 *
 * Each turn of the loop seats waiting jobs, then builds one step of at most `n_ubatch` rows: first one row for every
 * answer under way, then chunks of prompts in what is left, shared evenly. So a long prompt slows the others and never
 * stalls them. Steps are short, so that a disconnected client frees its slot soon.
 *
 * Where all slots are busy, prompts that are only scored are guests: they share the steps of the others without a slot, as many as one
 * step has rows and the cache has pages for, and leave nothing behind.
 * @module
 */
import type { DraftCounts, Drafter } from "../core/draft/drafter.ts";
import type { Snapshot, StepOutput } from "../core/engine/mod.ts";
import type { TokenEngine, TokenRequest, TokenSequence } from "../core/engine/types.ts";
import { EngineError } from "../core/errors.ts";
import { unavailable } from "./errors.ts";
import { Guesses } from "./guesses.ts";
import { PromptCache } from "./prompt_cache.ts";
import { type Job, type Outcome, type Row, Run, Slot } from "./slot.ts";

export interface SchedulerOptions {
  n_slots: number;
  /** Jobs that may wait for a slot; more are refused. */
  maxQueue?: number;
  /** Bytes of host memory for prompts that slots give up. Default 0: they are not kept. */
  promptCacheBytes?: number;
  /** Share of a prompt that a slot must have computed for the prompt to take its place; below, the prompt copies it. Default 0.1. */
  similarity?: number;
  /** Milliseconds without a job after which weights and caches are given back; the next job loads them again. Default: never. */
  sleepAfterMs?: number;
  /** Guesses tokens, so that a step may give several of an answer. */
  drafter?: Drafter | undefined;
}

/** Lets the owner of a job cancel it. */
export interface Ticket {
  readonly id: number;
  /** Cancels the job: it leaves the queue at once, or its slot when the current step ends. */
  cancel(): void;
}

/** A slot as /slots shows it. */
export interface SlotView {
  id: number;
  is_processing: boolean;
  /** Tokens of the job at work, or of the last one, are guessed. */
  speculative: boolean;
  /** The job at work, or the last one; -1 for a slot that was never used. */
  id_task: number;
  /** Settings of that job. */
  settings: Readonly<Record<string, unknown>> | undefined;
  n_prompt_tokens: number;
  /** Of these, found in a cache. */
  n_prompt_cached: number;
  n_decoded: number;
  n_remain: number;
  /** The answer under way has a new line. */
  has_new_line: boolean;
  /** Tokens computed and kept, whether it works or not. */
  n_cached: number;
}

/** Counters since the start. */
export interface SchedulerCounters {
  n_jobs: number;
  n_prompt_tokens: number;
  n_generated_tokens: number;
  n_cached_tokens: number;
  n_steps: number;
  n_rows: number;
  /** Busy slots, summed over the steps. */
  n_busy: number;
  /** Tokens of the longest sequence. */
  n_longest: number;
  /** Prompt tokens that were not cached, of prompts that are done. */
  n_done_prompt_tokens: number;
  /** Milliseconds that prompts and answers took, of those that are done. */
  prompt_ms: number;
  answer_ms: number;
}

interface Work {
  slot: Slot;
  run: Run;
  /** First token of the request within `run.tokens`. */
  from: number;
  n: number;
  /** Behind them in the request. */
  guesses: readonly number[];
  request: TokenRequest;
}

/** Something to do with a slot between two steps. */
interface Chore {
  id: number;
  act: (slot: Slot) => void;
  fail: (error: unknown) => void;
}

/** What a step's rows told of a run. */
interface Told {
  n_right: number;
  end?: Outcome;
  /** The context is full, and older tokens are to go. */
  full?: boolean;
}

const MAX_QUEUE = 1024;
const SIMILARITY = 0.1;
/** The number of prompt rows in a step is limited so that the step takes about this long. */
const STEP_TARGET_MS = 400;
/** The limit is never below this: smaller chunks would read the weights too often. It is also the first guess. */
const MIN_CHUNK = 32;
/** Floats of whole rows of logits that one step may bring back. */
const MAX_LOGITS = 1 << 24;

/** Prompts that are scored share what they begin with from so many tokens on; fewer are computed faster than waited for. */
const MIN_SHARED = 8;
/** The id of a seat that is no slot. */
const GUEST = -1;

export class Scheduler {
  readonly slots: readonly Slot[];
  /** Seats beyond the slots. */
  #guests: Slot[] = [];
  readonly counters: SchedulerCounters = {
    n_jobs: 0,
    n_prompt_tokens: 0,
    n_generated_tokens: 0,
    n_cached_tokens: 0,
    n_steps: 0,
    n_rows: 0,
    n_busy: 0,
    n_longest: 0,
    n_done_prompt_tokens: 0,
    prompt_ms: 0,
    answer_ms: 0,
  };
  readonly #engine: TokenEngine;
  readonly #maxQueue: number;
  readonly #guesses: Guesses | undefined;
  readonly #similarity: number;
  /** Prompts that slots gave up. */
  readonly promptCache: PromptCache | undefined;
  readonly #sleepAfterMs: number;
  #asleep = false;
  #chores: Chore[] = [];
  #queue: Run[] = [];
  readonly #runs = new WeakMap<Job, Run>();
  #nextId = 0;
  #clock = 0;
  #draining = false;
  #stopped = false;
  #msPerRow = 0;
  #wake: () => void = () => {};
  #idle: (() => void)[] = [];
  readonly #loop: Promise<void>;

  constructor(engine: TokenEngine, options: SchedulerOptions) {
    this.#engine = engine;
    this.#maxQueue = options.maxQueue ?? MAX_QUEUE;
    this.#similarity = options.similarity ?? SIMILARITY;
    this.#sleepAfterMs = options.sleepAfterMs ?? 0;
    if (options.promptCacheBytes) this.promptCache = new PromptCache(options.promptCacheBytes);
    this.#guesses = options.drafter && new Guesses(engine, options.drafter);
    this.slots = Array.from({ length: options.n_slots }, (_, id) => new Slot(id));
    this.#loop = this.#run();
  }

  get n_ctx(): number {
    return this.#engine.n_ctx;
  }

  /** What came of guessed tokens; undefined where none are guessed. */
  get drafts(): DraftCounts | undefined {
    return this.#guesses?.drafter.counts;
  }

  /** Jobs waiting for a slot. */
  get n_waiting(): number {
    return this.#queue.length;
  }

  /** Weights and caches were given back; the next job loads them. */
  get asleep(): boolean {
    return this.#asleep;
  }

  /** Jobs that are seated. */
  get n_active(): number {
    return this.#active().length;
  }

  #active(): Slot[] {
    return [...this.slots, ...this.#guests].filter((slot) => slot.run !== undefined);
  }

  /**
   * Queues a job. The loop calls its callbacks later.
   * @throws ApiError 503 when draining or when too many wait.
   */
  submit(job: Job): Ticket {
    if (this.#draining) throw unavailable("shutting_down", "The server is shutting down and takes no new requests");
    if (this.#queue.length >= this.#maxQueue) {
      throw unavailable("queue_full", `${this.#queue.length} requests are waiting for a slot, no more are taken`);
    }
    const run = new Run(this.#nextId++, job, job.after ? this.#runs.get(job.after) : this.#scoredLike(job));
    this.#runs.set(job, run);
    this.counters.n_jobs++;
    this.#queue.push(run);
    this.#wake();
    return { id: run.id, cancel: () => this.#cancel(run) };
  }

  /** A run that waits too and whose prompt begins like that of a job, where both are only scored: the one that shares most. */
  #scoredLike(job: Job): Run | undefined {
    let most = MIN_SHARED - 1, leader: Run | undefined;
    for (const run of this.#queue) {
      const n = run.times.started === 0 ? run.sharedRows(job) : 0;
      if (n > most) [most, leader] = [n, run];
    }
    return leader;
  }

  /** Takes no more jobs; resolves when those taken have ended. */
  async drain(): Promise<void> {
    this.#draining = true;
    if (!this.#busy()) return;
    await new Promise<void>((resolve) => this.#idle.push(resolve));
  }

  /** Ends every job as failed, frees the caches and ends the loop. */
  async stop(): Promise<void> {
    this.#draining = true;
    this.#stopped = true;
    this.#wake();
    await this.#loop;
  }

  /**
   * Does something with a slot as soon as that is idle, while no step runs.
   * @throws what `act` throws; ApiError 503 when the server stops
   */
  withIdleSlot<T>(id: number, act: (slot: Slot) => T): Promise<T> {
    if (this.#stopped) return Promise.reject(unavailable("shutting_down", "The server is shutting down"));
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    this.#chores.push({
      id,
      fail: reject,
      act(slot) {
        try {
          resolve(act(slot));
        } catch (error) {
          reject(error);
        }
      },
    });
    this.#wake();
    return promise;
  }

  /** What a slot has computed, as data. */
  saveSlot(id: number): Promise<Snapshot> {
    return this.withIdleSlot(id, (slot) => this.#engine.snapshot(slot.sequence ??= this.#engine.createSequence()));
  }

  /**
   * Gives a slot what another one had computed.
   * @throws EngineError `engine.no_pages` where the cache has no room even without the other idle slots
   */
  restoreSlot(id: number, snapshot: Snapshot): Promise<void> {
    return this.withIdleSlot(id, (slot) => {
      this.#giveUp(slot);
      slot.sequence = this.#restored(snapshot, slot);
      slot.tokens = [...snapshot.tokens];
      slot.lastUse = ++this.#clock;
    });
  }

  /** Forgets what a slot has computed. @returns tokens */
  eraseSlot(id: number): Promise<number> {
    return this.withIdleSlot(id, (slot) => {
      const n = slot.n_computed;
      slot.forget();
      return n;
    });
  }

  /** The sequence of a snapshot; idle slots make room for it, but for the one in `spared`. */
  #restored(snapshot: Snapshot, spared: Slot | undefined): TokenSequence {
    while (true) {
      try {
        return this.#engine.restore(snapshot);
      } catch (error) {
        const known = error instanceof EngineError && error.code === "engine.no_pages";
        const idle = this.slots.filter((s) => s !== spared && s.run === undefined && s.n_computed > 0);
        if (!known || idle.length === 0) throw error;
        this.#giveUp(idle.reduce((a, b) => (b.lastUse < a.lastUse ? b : a)));
      }
    }
  }

  /** Frees a slot's cache, and keeps it in the host's memory where there is room. */
  #giveUp(slot: Slot): void {
    this.#keep(slot);
    slot.forget();
  }

  #keep({ sequence, tokens }: Slot): void {
    if (this.promptCache === undefined || sequence === undefined) return;
    const computed = { tokens: tokens.slice(0, sequence.length), adapters: sequence.adapters };
    this.promptCache.keep(computed, () => this.#engine.snapshot(sequence), (n) => sequence.reach(n) === n);
  }

  /** The slots as they are now. */
  views(): SlotView[] {
    return this.slots.map((slot) => ({
      id: slot.id,
      is_processing: slot.run !== undefined,
      speculative: slot.latest?.draft !== undefined,
      id_task: slot.latest?.id ?? -1,
      settings: slot.latest?.job.settings,
      n_prompt_tokens: slot.latest?.job.prompt.length ?? 0,
      n_prompt_cached: slot.latest?.n_cached ?? 0,
      n_decoded: slot.run?.n_generated ?? 0,
      n_remain: slot.run === undefined ? -1 : slot.run.job.maxTokens - slot.run.n_generated,
      has_new_line: slot.run?.job.hasNewLine ?? false,
      n_cached: slot.n_computed,
    }));
  }

  #busy(): boolean {
    return this.#queue.length > 0 || this.#chores.length > 0 || this.n_active > 0;
  }

  #cancel(run: Run): void {
    if (run.cancelled || run.times.ended !== 0) return;
    run.cancelled = true;
    const i = this.#queue.indexOf(run);
    if (i >= 0) {
      this.#queue.splice(i, 1);
      run.end({ kind: "cancelled" });
      this.#announceIdle();
    }
    this.#wake();
  }

  #announceIdle(): void {
    if (this.#busy()) return;
    for (const resolve of this.#idle.splice(0)) resolve();
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      await this.#guess();
      for (const slot of this.#active()) if (slot.run!.cancelled) this.#finish(slot, { kind: "cancelled" });
      if (this.#asleep && this.#busy()) {
        await this.#awaken();
        continue;
      }
      this.#doChores();
      this.#seat();
      const work = this.#compose();
      if (work.length === 0) {
        this.#announceIdle();
        const { promise, resolve } = Promise.withResolvers<"job" | "nothing">();
        this.#wake = () => resolve("job");
        const sleeps = this.#sleepAfterMs > 0 && !this.#asleep;
        const timer = sleeps ? setTimeout(() => resolve("nothing"), this.#sleepAfterMs) : undefined;
        // A submission between the checks above and here would have found the old wake: nothing awaits in between.
        const what = await promise;
        clearTimeout(timer);
        this.#wake = () => {};
        if (what === "nothing" && !this.#busy()) this.#fallAsleep();
        continue;
      }
      await this.#step(work);
      // An engine that never leaves the event loop must not starve the sockets.
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
    const error = unavailable("shutting_down", "The server stopped before the request was finished");
    this.#failWaiting(error);
    this.promptCache?.clear();
    for (const slot of this.#active()) this.#finish(slot, { kind: "failed", error });
    for (const slot of this.slots) slot.forget();
    this.#announceIdle();
  }

  async #guess(): Promise<void> {
    try {
      await this.#guesses?.make(this.slots);
    } catch (error) { // of the engine that guesses: what asked for guesses fails, the loop continues
      for (const slot of this.slots) if (slot.run?.draft) this.#finish(slot, { kind: "failed", error });
    }
  }

  #failWaiting(error: unknown): void {
    for (const run of this.#queue.splice(0)) run.end({ kind: "failed", error });
    for (const chore of this.#chores.splice(0)) chore.fail(error);
  }

  #fallAsleep(): void {
    for (const slot of this.slots) this.#giveUp(slot);
    this.#engine.sleep();
    this.#asleep = true;
  }

  async #awaken(): Promise<void> {
    try {
      await this.#engine.wake();
      this.#asleep = false;
    } catch (error) { // the next job tries again
      this.#failWaiting(error);
    }
  }

  #doChores(): void {
    const due = this.#chores.filter(({ id }) => this.slots[id].run === undefined);
    this.#chores = this.#chores.filter((chore) => !due.includes(chore));
    for (const { id, act } of due) act(this.slots[id]);
  }

  /**
   * Gives free slots to waiting jobs, first come first served. One that insists on a busy slot, or takes over a prompt that
   * is not computed yet, lets others pass. So does one that no slot is free for, to those that can be guests.
   */
  #seat(): void {
    if (this.#queue.some((run) => run.parked)) return; // the cache has no room for one more
    for (let i = 0; i < this.#queue.length && (this.#hasFreeSlot() || this.#engine.hasRoom !== undefined);) {
      const run = this.#queue[i];
      if (run.follows) {
        i++;
        continue;
      }
      let slot: Slot | undefined;
      try {
        slot = this.#hasFreeSlot() ? this.#chooseSlot(run) : this.#guestSeat(run);
      } catch (error) { // an error of the engine, such as in a fork: this job fails, the loop continues
        this.#queue.splice(i, 1);
        this.#end(run, { kind: "failed", error });
        continue;
      }
      if (slot === undefined) {
        i++;
        continue;
      }
      this.#queue.splice(i, 1);
      slot.run = run;
      slot.latest = run;
      slot.lastUse = ++this.#clock;
      slot.tokens = run.tokens;
      if (run.times.started === 0) {
        run.times.started = performance.now();
        run.n_cached = slot.n_computed;
        this.counters.n_cached_tokens += run.n_cached;
        if (run.job.speculative && slot.id !== GUEST) run.draft = this.#guesses?.drafter.open(run.n_cached);
        run.job.onStart(slot.id, run.n_cached);
        for (const [i, row] of run.rows.entries()) run.job.onPromptRow(i, row);
        if (run.followers.length === 0) run.rows = [];
      }
    }
  }

  #hasFreeSlot(): boolean {
    return this.slots.some((slot) => slot.run === undefined);
  }

  /**
   * A seat beyond the slots for a run that is done when its prompt is computed. All guests together have no more rows than a step, and
   * nobody who is seated lacks a page for them.
   */
  #guestSeat(run: Run): Slot | undefined {
    const { job } = run;
    if (!job.promptRows || job.maxTokens > 1 || job.slotId !== undefined) return undefined;
    const n = run.tokens.length - (run.beginning?.length ?? 0);
    if (this.#guests.reduce((rows, guest) => rows + guest.n_pending, n) > this.#engine.n_ubatch) return undefined;
    const sequence = run.beginning ?? this.#engine.createSequence(job.adapters);
    const seated = this.#active().map((slot) => ({ sequence: slot.sequence!, n: slot.n_pending }));
    if (!this.#engine.hasRoom?.([...seated, { sequence, n }])) {
      if (run.beginning === undefined) sequence.dispose();
      return undefined;
    }
    const guest = new Slot(GUEST);
    guest.sequence = sequence;
    run.beginning = undefined;
    this.#guests.push(guest);
    return guest;
  }

  /** A guest's seat goes with it. */
  #leave(slot: Slot): void {
    if (slot.id !== GUEST) return;
    slot.forget();
    this.#guests = this.#guests.filter((guest) => guest !== slot);
  }

  /**
   * The idle slot for a run, its sequence cut to the common prefix. Where the longest prefix lies in a busy slot, or in
   * an idle one that would lose more than half of what it keeps, the least recently used idle slot gets a fork of it.
   */
  #chooseSlot(run: Run): Slot | undefined {
    const wanted = run.job.slotId;
    const idle = this.slots.filter((s) => s.run === undefined && (wanted === undefined || s.id === wanted));
    if (idle.length === 0) return undefined;
    const lru = idle.reduce((a, b) => (b.lastUse < a.lastUse ? b : a));
    if (run.beginning !== undefined) {
      this.#giveUp(lru);
      lru.sequence = run.beginning;
      run.beginning = undefined;
      return lru;
    }
    // The last token is computed in any case: its row says the next one.
    const mayReuse = (run.job.cachePrompt || run.leader !== undefined) && !run.job.promptRows;
    const reusable = mayReuse ? run.tokens.length - 1 : 0;
    let source: Slot | undefined;
    let n_common = 0;
    for (const slot of this.slots) {
      // Windows and states go back to certain lengths only.
      const n = slot.sequence?.reach(Math.min(slot.commonPrefix(run.tokens, run.job.adapters), reusable)) ?? 0;
      const better = n > n_common ||
        (n === n_common && n > 0 && source?.run !== undefined && slot.run === undefined);
      if (better) [source, n_common] = [slot, n];
    }
    if (this.#takeKept(lru, run, { n_common, reusable, source })) return lru;
    if (source === undefined) {
      this.#giveUp(lru);
      lru.sequence = this.#engine.createSequence(run.job.adapters);
      return lru;
    }
    const keepsHalf = n_common * 2 >= source.n_computed, similar = n_common >= this.#similarity * run.tokens.length;
    if (idle.includes(source) && (keepsHalf && similar || lru === source)) {
      if (!keepsHalf) this.#keep(source);
      if (source.n_computed > n_common) source.sequence!.truncate(n_common);
      return source;
    }
    const sequence: TokenSequence = source.sequence!.fork();
    if (sequence.length > n_common) sequence.truncate(n_common);
    this.#giveUp(lru);
    lru.sequence = sequence;
    return lru;
  }

  /**
   * Gives a slot the beginning of a run's prompt from the host's memory, where more of it is there than in `source`, which has
   * `n_common` tokens of it.
   */
  #takeKept(
    slot: Slot,
    run: Run,
    { n_common, reusable, source }: { n_common: number; reusable: number; source: Slot | undefined },
  ): boolean {
    const beginning = { tokens: run.tokens.slice(0, reusable), adapters: run.job.adapters ?? [] };
    const kept = this.promptCache?.find(beginning, n_common);
    if (kept === undefined) return false;
    let sequence: TokenSequence;
    try {
      sequence = this.#restored(kept, source);
    } catch (error) {
      if (!(error instanceof EngineError && error.code === "engine.no_pages")) throw error;
      return false;
    }
    let n = 0;
    while (n < reusable && kept.tokens[n] === run.tokens[n]) n++;
    // Windows and states go back to certain lengths only.
    if (sequence.reach(n) <= n_common) {
      sequence.dispose();
      return false;
    }
    if (sequence.length > n) sequence.truncate(n);
    this.#giveUp(slot);
    slot.sequence = sequence;
    return true;
  }

  /** The next step: answers first, then prompts in the rows left. */
  #compose(): Work[] {
    const active = this.#active();
    // The longest unserved first, which matters only when there are more answers than rows.
    active.sort((a, b) => a.lastUse - b.lastUse);
    const work: Work[] = [];
    let room = this.#engine.n_ubatch;
    for (const slot of active) {
      const n = slot.n_pending;
      if (!slot.isAnswering || n > room) continue;
      const guesses = slot.run!.guesses.slice(0, room - n);
      work.push(this.#request(slot, n, guesses));
      slot.lastUse = ++this.#clock;
      room -= n + guesses.length;
    }
    const n_answers = work.length;
    room = Math.min(room, Math.max(MIN_CHUNK, this.#rowsInTime() - n_answers));
    const answered = new Set(work.map((w) => w.slot));
    const prompts = active.filter((slot) => slot.n_pending > 1 && !answered.has(slot)).sort((a, b) =>
      a.n_pending - b.n_pending
    );
    for (let i = 0; i < prompts.length && room > 0; i++) {
      const share = Math.max(1, Math.floor(room / (prompts.length - i)));
      const n = Math.min(prompts[i].n_pending, share, this.#mostRows(prompts[i].run!));
      work.push(this.#request(prompts[i], n));
      room -= n;
    }
    return work;
  }

  /** Rows of a step that takes about STEP_TARGET_MS: a power of two, so that steps have few sizes to prepare. */
  #rowsInTime(): number {
    if (this.#msPerRow === 0) return MIN_CHUNK;
    return 2 ** Math.floor(Math.log2(Math.max(1, STEP_TARGET_MS / this.#msPerRow)));
  }

  /** Rows of a prompt in one step; whole rows of logits for all positions are large. */
  #mostRows(run: Run): number {
    if (!run.job.promptRows || run.job.want === "candidates") return this.#engine.n_ubatch;
    return Math.max(1, Math.floor(MAX_LOGITS / this.#engine.n_vocab));
  }

  #request(slot: Slot, n: number, guesses: readonly number[] = []): Work {
    const run = slot.run!;
    const from = slot.n_computed;
    const inPrompt = from < run.job.prompt.length && !run.shifted;
    const reachesEnd = from + n === run.tokens.length;
    const output = run.job.promptRows && inPrompt
      ? "all"
      : reachesEnd && run.job.maxTokens > 0
      ? 1 + guesses.length
      : "none";
    const request: TokenRequest = {
      sequence: slot.sequence!,
      tokens: [...run.tokens.slice(from, from + n), ...guesses],
      output,
      guesses: guesses.length,
      // What is computed again is no place to come back to.
      ...(run.n_owed > 0 ? { keep: false } : {}),
      want: run.job.want,
      ...(output === "all" ? { targets: Array.from({ length: n }, (_, i) => run.tokens[from + i + 1] ?? -1) } : {}),
    };
    return { slot, run, from, n, guesses, request };
  }

  async #step(work: Work[]): Promise<void> {
    const before = performance.now();
    let outputs: StepOutput[];
    try {
      outputs = await this.#engine.step(work.map((w) => w.request));
    } catch (error) {
      if (error instanceof EngineError && error.code === "engine.no_pages") {
        if (work.some((w) => w.guesses.length > 0)) this.#guesses!.tight = true;
        else this.#makeRoom(work, error);
      } else for (const w of work) this.#drop(w.slot, { kind: "failed", error });
      return;
    }
    const n_rows = work.reduce((sum, w) => sum + w.n + w.guesses.length, 0);
    const answersOnly = work.every((w) => w.run.times.prompted > 0), took = performance.now() - before;
    let n_right = 0;
    this.counters.n_steps++;
    this.counters.n_rows += n_rows;
    this.counters.n_busy += work.length;
    if (!answersOnly) {
      const ms = took / n_rows;
      // The first step of a size also prepares its program, so it is slow: a faster step counts at once, a slower one gradually.
      this.#msPerRow = this.#msPerRow === 0 || ms < this.#msPerRow ? ms : 0.9 * this.#msPerRow + 0.1 * ms;
    }
    for (let i = 0; i < work.length; i++) {
      const w = work[i];
      let told: Told = { n_right: 0 };
      try {
        // A cancelled run is released at the top of the loop.
        if (!w.run.cancelled) told = this.#deliver(w, outputs[i]);
      } catch (error) {
        told = { n_right: 0, end: { kind: "failed", error } };
      }
      n_right += told.n_right;
      this.#guesses?.judge(w.slot, w.from + w.n, w.guesses.length, told.n_right);
      if (told.end) this.#finish(w.slot, told.end);
      else if (told.full) this.#shift(w);
    }
    if (!answersOnly) return;
    const rows = work.reduce((sum, w) => sum + w.n, 0), n_guesses = n_rows - rows;
    this.#guesses?.drafter.stepped({ rows, n_guesses, n_right, n_sequences: work.length, ms: took });
  }

  /** Gives a step's rows to their job and decides how the job continues. */
  #deliver(w: Work, output: StepOutput): Told {
    const { run, request, guesses } = w;
    const n_prompt = run.job.prompt.length;
    if (w.from < n_prompt && !run.shifted) this.counters.n_prompt_tokens += Math.min(w.n, n_prompt - w.from);
    if (request.output === "all") {
      for (let i = 0; i < output.n_rows && w.from + i < n_prompt; i++) {
        const row = this.#row(output, i);
        run.job.onPromptRow(w.from + i, row);
        if (run.followers.length > 0) {
          run.rows[w.from + i] = { ...row, ids: row.ids.slice(), logits: row.logits.slice() };
        }
      }
    }
    if (run.times.prompted === 0) run.job.onProgress?.(Math.min(w.from + w.n, n_prompt));
    if (w.from + w.n < run.tokens.length) return { n_right: 0 };
    run.n_owed = 0;
    this.counters.n_longest = Math.max(this.counters.n_longest, run.tokens.length);
    if (run.times.prompted === 0) {
      run.times.prompted = performance.now();
      run.handOver(w.slot.sequence!);
      this.counters.n_done_prompt_tokens += n_prompt - run.n_cached;
      this.counters.prompt_ms += run.times.prompted - run.times.started;
    }
    if (run.job.maxTokens === 0) return { n_right: 0, end: { kind: "length" } };
    for (let n_right = 0;; n_right++) {
      const { token, stop } = run.job.onRow(this.#row(output, output.n_rows - 1 - guesses.length + n_right));
      run.tokens.push(token);
      run.n_generated++;
      this.counters.n_generated_tokens++;
      if (stop) return { n_right, end: { kind: "stopped" } };
      if (run.n_generated >= run.job.maxTokens) return { n_right, end: { kind: "length" } };
      if (run.tokens.length > this.#engine.n_ctx) {
        return run.job.shift === undefined ? { n_right, end: { kind: "context" } } : { n_right, full: true };
      }
      // A form that has begun wants whole rows, which this step did not ask for.
      if (token !== guesses[n_right] || run.job.want !== request.want) return { n_right };
    }
  }

  #shift({ run, slot }: Work): void {
    slot.sequence!.truncate(Math.min(run.shift(run.job.shift!), slot.n_computed));
    run.n_owed = 0;
  }

  #row(output: StepOutput, i: number): Row {
    const { topK, n_vocab } = this.#engine;
    const row: Row = {
      ids: output.ids.subarray(i * topK, (i + 1) * topK),
      logits: output.logits.subarray(i * topK, (i + 1) * topK),
      lse: output.lse[i],
      targetLogprob: output.targetLogprob[i],
    };
    if (output.full !== undefined) row.full = output.full.subarray(i * n_vocab, (i + 1) * n_vocab);
    return row;
  }

  /**
   * Makes room in a full cache. What waiting jobs were given of their prompts goes first, and the least recently used idle cache next.
   * Then the youngest run loses its seat and waits at the head of the queue, with all its tokens, until another one ends. A single
   * run has reached the end of its context.
   */
  #makeRoom(work: Work[], error: EngineError): void {
    const begun = this.#queue.filter((run) => run.beginning !== undefined);
    for (const run of begun) run.dropBeginning();
    if (begun.length > 0) return;
    const idle = this.slots.filter((slot) => slot.run === undefined && slot.n_computed > 0);
    if (idle.length > 0) {
      this.#giveUp(idle.reduce((a, b) => (b.lastUse < a.lastUse ? b : a)));
      return;
    }
    const active = this.#active();
    const youngest = active.reduce((a, b) => (b.run!.id > a.run!.id ? b : a));
    const run = youngest.run!;
    if (active.length === 1) {
      const outcome: Outcome = run.n_generated > 0 ? { kind: "context" } : { kind: "failed", error };
      this.#drop(work[0].slot, outcome);
      return;
    }
    youngest.release();
    youngest.forget();
    this.#leave(youngest);
    run.parked = true;
    run.n_owed = 0;
    this.#queue.unshift(run);
  }

  #finish(slot: Slot, outcome: Outcome): void {
    const run = slot.run;
    if (run === undefined) return;
    slot.release();
    slot.lastUse = ++this.#clock;
    this.#leave(slot);
    this.#end(run, outcome);
  }

  /** Ends a run whose sequence may be damaged. */
  #drop(slot: Slot, outcome: Outcome): void {
    const run = slot.run;
    if (run === undefined) return;
    slot.release();
    slot.forget();
    this.#leave(slot);
    this.#end(run, outcome);
  }

  #end(run: Run, outcome: Outcome): void {
    for (const waiting of this.#queue) waiting.parked = false;
    if (run.times.prompted > 0) this.counters.answer_ms += performance.now() - run.times.prompted;
    run.end(outcome);
  }
}
