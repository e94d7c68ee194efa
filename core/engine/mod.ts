/**
 * The engine: plan + program + weights. Sequences in, logits or the best candidates out. Its users (serve, score, eval, the
 * library) decide what to sample; nothing of theirs is in here.
 * @module
 */
import { EngineError } from "../errors.ts";
import { bindModel, buildProgram, buildVectors, type Model, OUTPUTS, VECTORS } from "../arch/model.ts";
import type { ModelSource, Spec } from "../arch/mod.ts";
import { PAGE_SIZE, partOf } from "../plan/cache.ts";
import { bucketOf, type Plan } from "../plan/plan.ts";
import { packedPlace } from "../plan/weights.ts";
import type { Backend, CacheHandle, ProgramHandle, StepInput, TensorHandle, TensorSource } from "../program/backend.ts";
import type { Program, WeightDesc } from "../program/program.ts";
import { type CollectedSums, readCollected } from "./collected.ts";
import { planEngine, type PlannedEngine, type PlanningOptions } from "./planning.ts";
import { type ExpertRank, Residency } from "./residency.ts";
import { noPages, PageList, PagePool } from "./pages.ts";
import { Replaced, type Replacement } from "./replaced.ts";
import { type KeptPoint, Sequence, type SequenceOwner } from "./sequence.ts";
import { createParts, SplitCache } from "./split_cache.ts";
import { restoreSnapshot, type Snapshot, takeSnapshot } from "./snapshot.ts";

export type { CollectedSums } from "./collected.ts";
export { Sequence } from "./sequence.ts";
export type { PlanningOptions } from "./planning.ts";
export type { Snapshot } from "./snapshot.ts";

/** How an engine is set up. */
export interface EngineOptions extends PlanningOptions {
  /** Rows that each expert computed in earlier work: which ones stay in memory first, where not all do. */
  readonly rank?: ExpertRank;
  /** How much of each of the model's adapters a sequence has that does not say; none where left out. */
  readonly adapters?: readonly number[];
  /** Called while weights load. */
  readonly onProgress?: (doneBytes: number, totalBytes: number) => void;
  /** Called with what the file holds and the architecture does not use. */
  readonly onWarning?: (message: string) => void;
}

/** The tokens that one sequence gets in a step. */
export interface StepRequest {
  /** Of this engine. */
  readonly sequence: Sequence;
  /** Ids, appended to the sequence. */
  readonly tokens: ArrayLike<number>;
  /** Rows to give results of; a number: that many of the last. */
  readonly output: "none" | "first" | "last" | "all" | number;
  /**
   * So many of the last tokens are guesses: `Sequence.rewind` has to say how many of them stay before the sequence runs again.
   * Default: none.
   */
  readonly guesses?: number;
  /**
   * `logits`: whole rows besides the candidates. `hidden`: what the head would take, and nothing else; `rank`: what the head of a
   * reranker gives, and nothing else. The requests of a step all want one of these two, or none does. Default: `candidates`.
   */
  readonly want?: "candidates" | "logits" | "hidden" | "rank";
  /** Tokens to score at the output rows, -1 for none; as many as there are rows. */
  readonly targets?: ArrayLike<number>;
  /**
   * Keep points near and at the end of these tokens, to which `Sequence.truncate` can go back where windows or states stop it
   * elsewhere. Default: when there are several tokens and no guesses.
   */
  readonly keep?: boolean;
}

/** What a step gave for one request, row by row. */
export interface StepOutput {
  /** Rows: as many as were asked for, at most one a token. */
  readonly n_rows: number;
  /** `[n_rows, topK]`, best first. */
  readonly ids: Int32Array;
  /** `[n_rows, topK]` logits of those ids. */
  readonly logits: Float32Array;
  /** `[n_rows]` log-sum-exp over the vocabulary. */
  readonly lse: Float32Array;
  /** `[n_rows]` log-probability of each target; 0 where it is -1. */
  readonly targetLogprob: Float32Array;
  /** `[n_rows, n_vocab]` when `want` is `logits`. */
  readonly full?: Float32Array;
  /** `[n_rows, n_embd]` when `want` is `hidden`; the others are empty then. */
  readonly hidden?: Float32Array;
  /** `[n_rows, n_class]` when `want` is `rank`; the others are empty then. */
  readonly rank?: Float32Array;
}

/** What a step that wants no logits gives of them. */
const NOTHING = {
  ids: new Int32Array(0),
  logits: new Float32Array(0),
  lse: new Float32Array(0),
  targetLogprob: new Float32Array(0),
};

/** Most weights read at once while loading. */
const LOADS_AT_ONCE = 8;

/** A weight on a device. */
function weightKey({ device, name }: WeightDesc): string {
  return `${device} ${name}`;
}

/** Rows of one request in one native step. */
interface Part {
  readonly request: number;
  readonly from: number;
  readonly to: number;
  /** Keep a point of the sequence behind these rows. */
  readonly keep: boolean;
}

/** Rows that a request gets results of: how many, and the first of them. */
function outputRows({ output, tokens }: StepRequest): { n_rows: number; first: number } {
  const wanted = output === "all" ? tokens.length : output === "none" ? 0 : typeof output === "number" ? output : 1;
  const n_rows = Math.min(wanted, tokens.length);
  return { n_rows, first: output === "first" ? 0 : tokens.length - n_rows };
}

/** Whether a request wants vectors of its rows, and which. */
function vectorsOf({ want }: StepRequest): keyof typeof VECTORS | undefined {
  return want === "hidden" || want === "rank" ? want : undefined;
}

/** The forward pass over any number of sequences. Close it by holding it with `using`. */
export class Engine implements Disposable {
  /**
   * Hyper-parameters of the model.
   * @internal
   */
  readonly spec: Spec;
  /** Size of the vocabulary. */
  readonly n_vocab: number;
  /** @internal */
  readonly model: Model;
  /** What takes which bytes. */
  readonly plan: Plan;
  /** The most tokens of one sequence. */
  readonly n_ctx: number;
  /** The most token rows of one native step. */
  readonly n_ubatch: number;
  /** The most output rows of one native step. */
  readonly n_out: number;
  /** Candidates per output row. */
  readonly topK: number;
  /** The model is an encoder: each text is one step of at most `n_ubatch` tokens, and gives vectors only. */
  readonly oneStep: boolean;
  /** Numbers of a row that `want: "rank"` gives; 0: the model is no reranker. */
  readonly n_rank: number;
  /** Why `n_ctx` is what it is, where nobody asked for it. */
  readonly contextReason: string | undefined;
  /** @internal */
  readonly caches: CacheHandle[] = [];
  /** Of each cache, what the devices keep of it. */
  readonly #parts: CacheHandle[][] = [];
  readonly #weights = new Map<string, TensorHandle>();
  #residency: Residency | undefined;
  #rank: ExpertRank | undefined;
  readonly #replaced = new Replaced();
  /**
   * How much of each of the model's adapters a sequence has that does not say.
   * @internal
   */
  adapters: readonly number[] = [];
  readonly #programs = new Map<string, { program: Program; handle: ProgramHandle }>();
  readonly #pools: readonly PagePool[];
  /** Points that sequences keep, oldest first. */
  readonly #kept = new Set<KeptPoint>();
  readonly #owner: SequenceOwner;
  #busy = false;

  private constructor(
    /** Where weights come from. */
    private readonly file: ModelSource,
    readonly backend: Backend,
    planned: PlannedEngine,
  ) {
    const { model, plan } = planned;
    this.model = model;
    this.plan = plan;
    this.n_ctx = planned.n_ctx;
    this.n_ubatch = planned.n_ubatch;
    this.n_out = planned.n_out;
    this.topK = planned.topK;
    this.oneStep = model.arch.encoder === true;
    this.n_rank = model.widths.rank;
    this.contextReason = planned.contextReason;
    this.spec = model.spec;
    this.n_vocab = model.spec.n_vocab;
    this.#pools = plan.caches.map((c) => new PagePool(c.n_pages, c.page_size));
    this.#owner = {
      lists: () => plan.caches.map((c, i) => new PageList(this.#pools[i], c)),
      kept: (point) => this.#kept.add(point),
      dropped: (point) => this.#kept.delete(point),
    };
  }

  /**
   * Plans, loads and prepares a model.
   * @throws {ModelError} {@link PlanError} {@link NativeError}
   */
  static async load(file: ModelSource, backend: Backend, options: EngineOptions = {}): Promise<Engine> {
    const engine = Engine.plan(file, backend, options);
    try {
      await engine.loadWeights(options.onProgress);
      return engine;
    } catch (error) {
      engine[Symbol.dispose]();
      throw error;
    }
  }

  /**
   * Plans a model. The engine knows its context and its vocabulary then, and can run once `loadWeights` has ended.
   * @throws {ModelError} {@link PlanError}
   * @internal
   */
  static plan(file: ModelSource, backend: Backend, options: EngineOptions = {}): Engine {
    const planned = planEngine(bindModel(file, options.collect), backend, options);
    for (const warning of planned.model.warnings) options.onWarning?.(warning);
    const engine = new Engine(file, backend, planned);
    engine.#rank = options.rank;
    engine.adapters = options.adapters ?? [];
    return engine;
  }

  /**
   * A sequence without tokens. Dispose of it to give its pages back.
   * @param adapters How much of each of the model's adapters its tokens are computed with; what the engine was told where left out.
   */
  createSequence(adapters: readonly number[] = this.adapters): Sequence {
    return new Sequence(this.#owner, undefined, [], adapters);
  }

  /**
   * A sequence as bytes, to be restored later to the same bits.
   * @internal
   */
  snapshot(sequence: Sequence): Snapshot {
    return takeSnapshot(sequence, this.caches);
  }

  /**
   * The sequence of a snapshot.
   * @throws {EngineError} `engine.no_pages`, `engine.snapshot`
   * @internal
   */
  restore(snapshot: Snapshot): Sequence {
    const { tokens } = snapshot;
    if (tokens.length > this.n_ctx || tokens.some((t) => t < 0 || t >= this.n_vocab)) {
      const text = `Cannot restore a sequence of ${tokens.length} tokens: expected at most ${this.n_ctx}, ` +
        `each from 0 to ${this.n_vocab - 1}`;
      throw new EngineError("engine.snapshot", text, { at: { got: tokens.length, n_ctx: this.n_ctx } });
    }
    snapshot.caches.forEach(({ places }, i) => i < this.#pools.length && this.#makeRoom(i, () => places.length));
    const lists = restoreSnapshot(snapshot, this.#pools, this.plan.caches, this.caches);
    return new Sequence(this.#owner, lists, [...snapshot.tokens], snapshot.adapters);
  }

  /**
   * What was summed up over all tokens of a sequence, for each input of matrices; none where `collect` was not asked for.
   * @internal
   */
  collected(sequence: Sequence): CollectedSums[] {
    return readCollected(this.model.collected, sequence, this.caches, this.plan.caches);
  }

  /**
   * The pools of experts; undefined where all weights are resident, and before they are loaded.
   * @internal
   */
  get residency(): Residency | undefined {
    return this.#residency;
  }

  /** Tokens that could still be cached, over all sequences. */
  get n_free(): number {
    const full = this.#pools.filter((_, i) => this.plan.caches[i].window === 0 && !this.plan.caches[i].state);
    return full.length === 0 ? this.n_ctx : Math.min(...full.map((p) => p.n_free * p.page_size));
  }

  /**
   * Whether all caches have pages for these tokens of these sequences, without dropping anything.
   * @internal
   */
  hasRoom(wanted: readonly { readonly sequence: Sequence; readonly n: number }[]): boolean {
    return this.#pools.every((pool, i) =>
      wanted.reduce((pages, { sequence, n }) => pages + sequence.lists[i].wanted(n), 0) <= pool.n_free
    );
  }

  /**
   * Runs the requests' tokens, in as few native steps of `n_ubatch` rows as they fit in. One call at a time; a sequence may
   * appear once.
   *
   * @throws {EngineError} `engine.context_full`, `engine.no_pages`: nothing was run then; `engine.token_id`
   */
  async step(requests: readonly StepRequest[]): Promise<StepOutput[]> {
    if (this.#busy) throw new Error("Engine.step was called while a step runs");
    this.#busy = true;
    try {
      return await this.#step(requests);
    } finally {
      this.#busy = false;
    }
  }

  /**
   * Puts a tensor of another type in the place of a resident weight, or brings the file's own back. One weight is replaced at a time.
   * Not while a step runs.
   * @throws {NativeError}
   * @internal
   */
  async replaceWeight(name: string, by: Replacement | undefined): Promise<void> {
    this.#dropPrograms();
    this.#replaced.clear();
    if (by) await this.#replaced.put(name, by, this.model, this.backend, this.plan.placement);
  }

  #dropPrograms(): void {
    for (const p of this.#programs.values()) p.handle[Symbol.dispose]();
    this.#programs.clear();
  }

  /** Gives weights, programs and caches back. */
  [Symbol.dispose](): void {
    this.#dropPrograms();
    this.#replaced.clear();
    for (const c of this.caches) c[Symbol.dispose]();
    for (const w of this.#weights.values()) w[Symbol.dispose]();
    this.#residency?.[Symbol.dispose]();
    this.#residency = undefined;
    this.#weights.clear();
    this.caches.length = this.#parts.length = 0;
  }

  /**
   * Gives weights, programs and caches back until `wake`. Every sequence must have been disposed.
   * @internal
   */
  sleep(): void {
    this[Symbol.dispose]();
  }

  /**
   * Loads again what `sleep` gave back.
   * @throws {NativeError}
   * @internal
   */
  async wake(): Promise<void> {
    try {
      await this.loadWeights();
    } catch (error) {
      this[Symbol.dispose]();
      throw error;
    }
  }

  /** Whether the model has what a request wants. */
  #checkWant(want: Exclude<StepRequest["want"], undefined>): void {
    const { arch } = this.spec, { name } = this.file;
    if (this.oneStep && want !== "hidden" && want !== "rank") {
      throw new EngineError(
        "engine.no_logits",
        `Cannot continue text with ${name}: ${arch} gives vectors of texts only`,
        {
          at: { arch, want },
          hint: "use `bloomery embed`, or serve it with --embeddings",
        },
      );
    }
    if (want === "rank" && this.n_rank === 0) {
      throw new EngineError(
        "engine.no_classifier",
        `Cannot rank with ${name}: it has no "cls" or "cls.output" tensor`,
        {
          at: { arch, want },
          hint: "use a reranker, or another --pooling",
        },
      );
    }
  }

  #check(requests: readonly StepRequest[]): void {
    for (const { sequence, tokens, want } of requests) {
      this.#checkWant(want ?? "candidates");
      if (this.oneStep && (sequence.length > 0 || tokens.length > this.n_ubatch)) {
        const length = sequence.length + tokens.length, { arch } = this.spec;
        throw new EngineError(
          "engine.one_step",
          `Cannot run ${length} tokens: each token of ${arch} sees the whole text, which is one step of at most ${this.n_ubatch}`,
          { at: { got: length, n_ubatch: this.n_ubatch }, hint: "raise --ubatch-size or cut the text" },
        );
      }
      if (sequence.marked !== undefined) throw new Error("a sequence runs while its guesses are not judged");
      const length = sequence.length + tokens.length;
      if (length > this.n_ctx) {
        throw new EngineError(
          "engine.context_full",
          `The context is full: ${length} tokens, expected at most ${this.n_ctx}`,
          {
            at: { got: length, n_ctx: this.n_ctx },
            hint: "raise --ctx-size or shorten the prompt",
          },
        );
      }
      for (let i = 0; i < tokens.length; i++) {
        if (!(Number.isInteger(tokens[i]) && tokens[i] >= 0 && tokens[i] < this.n_vocab)) {
          throw new EngineError("engine.token_id", `Cannot run token ${tokens[i]}: expected 0 to ${this.n_vocab - 1}`, {
            at: { index: i, got: tokens[i], n_vocab: this.n_vocab },
          });
        }
      }
    }
    // A window's pages return while a long request runs, so only a pass of it must fit.
    this.plan.caches.forEach((c, i) => {
      const most = c.window > 0 ? this.n_ubatch : Infinity;
      this.#makeRoom(
        i,
        () => requests.reduce((n, r) => n + r.sequence.lists[i].wanted(Math.min(r.tokens.length, most)), 0),
      );
    });
  }

  /** Drops kept points, the oldest first, until a cache has the pages. @throws {EngineError} `engine.no_pages` */
  #makeRoom(cache: number, wanted: () => number): void {
    const pool = this.#pools[cache];
    while (wanted() > pool.n_free && this.#kept.size > 0) this.#kept.values().next().value!.drop();
    if (wanted() > pool.n_free) throw noPages(wanted(), pool);
  }

  async #step(requests: readonly StepRequest[]): Promise<StepOutput[]> {
    this.#check(requests);
    const starts = requests.map((r) => r.sequence.length);
    const outputs = requests.map((r) => {
      const { n_rows } = outputRows(r), vectors = vectorsOf(r);
      if (vectors) return { n_rows, ...NOTHING, [vectors]: new Float32Array(n_rows * this.model.widths[vectors]) };
      return {
        n_rows,
        ids: new Int32Array(n_rows * this.topK),
        logits: new Float32Array(n_rows * this.topK),
        lse: new Float32Array(n_rows),
        targetLogprob: new Float32Array(n_rows),
        ...(r.want === "logits" ? { full: new Float32Array(n_rows * this.n_vocab) } : {}),
      };
    });
    for (const r of requests) if (r.guesses) r.sequence.mark();
    try {
      for (const parts of this.#cut(requests)) await this.#run(requests, starts, outputs, parts);
    } catch (error) {
      requests.forEach(({ sequence }, i) => {
        if (sequence.marked === undefined) sequence.truncate(Math.min(starts[i], sequence.length));
        else sequence.rewind(starts[i]);
      });
      throw error;
    }
    return outputs;
  }

  /**
   * Requests in order, cut into steps of at most `n_ubatch` rows and `n_out` output rows. A prompt of a sequence that cannot be cut back everywhere is also cut at
   * the last page's start: the points kept there and at its end are where the next request of a conversation begins. A text of an
   * encoder is not cut.
   */
  #cut(requests: readonly StepRequest[]): Part[][] {
    const steps: Part[][] = [];
    let rows = this.n_ubatch, outputs = 0;
    requests.forEach((r, request) => {
      const n = r.tokens.length, { n_rows, first } = outputRows(r);
      const keeps = !this.oneStep && (r.keep ?? (n > 1 && !r.guesses)) && n > 0 && !r.sequence.rewindable;
      const start = r.sequence.length;
      const stop = keeps ? Math.floor((start + n - 1) / PAGE_SIZE) * PAGE_SIZE - start : 0;
      for (let from = 0; from < n;) {
        const fits = !this.oneStep || (rows + n <= this.n_ubatch && outputs + n_rows <= this.n_out);
        if (!fits || rows === this.n_ubatch || (outputs === this.n_out && n_rows > 0)) {
          steps.push([]);
          rows = outputs = 0;
        }
        let to = Math.min(n, from + this.n_ubatch - rows);
        if (from < first + n_rows) to = Math.min(to, Math.max(from, first) + this.n_out - outputs);
        if (from < stop && to > stop) to = stop;
        steps[steps.length - 1].push({ request, from, to, keep: keeps && (to === stop || to === n) });
        rows += to - from;
        outputs += Math.max(0, Math.min(to, first + n_rows) - Math.max(from, first));
        // A sequence has one run of rows in a step.
        if (to < n) rows = this.n_ubatch;
        from = to;
      }
    });
    return steps;
  }

  async #run(
    requests: readonly StepRequest[],
    starts: readonly number[],
    outputs: readonly StepOutput[],
    parts: readonly Part[],
  ): Promise<void> {
    const n_tok = parts.reduce((n, p) => n + p.to - p.from, 0);
    const tokens = new Int32Array(n_tok), positions = new Int32Array(n_tok), seqs = new Int32Array(n_tok);
    const outRows: number[] = [], targets: number[] = [];
    /** Where each output row goes: request and its row. */
    const homes: [request: number, row: number][] = [];
    const copies: { src: number; dst: number }[][] = this.caches.map(() => []);
    this.caches.forEach((_, c) =>
      this.#makeRoom(
        c,
        () => parts.reduce((n, p) => n + requests[p.request].sequence.lists[c].wanted(p.to - p.from), 0),
      )
    );
    let at = 0;
    parts.forEach(({ request, from, to }, seq) => {
      const r = requests[request], { first, n_rows } = outputRows(r);
      r.sequence.lists.forEach((list, c) => copies[c].push(...list.append(to - from)));
      r.sequence.push(r.tokens, from, to);
      for (let i = from; i < to; i++, at++) {
        tokens[at] = r.tokens[i];
        positions[at] = starts[request] + i;
        seqs[at] = seq;
        const row = i - first;
        if (row >= 0 && row < n_rows) {
          outRows.push(at);
          targets.push(r.targets?.[row] ?? -1);
          homes.push([request, row]);
        }
      }
    });
    this.caches.forEach((cache, c) => {
      if (copies[c].length > 0) cache.copyPages(copies[c].map((p) => p.src), copies[c].map((p) => p.dst));
    });

    const vectors = requests[0] ? vectorsOf(requests[0]) : undefined;
    const scales = parts.map((p) => requests[p.request].sequence.adapters);
    const { program, handle } = this.#program(n_tok, outRows.length, vectors !== undefined, scales);
    const tables = this.caches.map((_, c) => {
      const lists = parts.map((p) => requests[p.request].sequence.lists[c].ids);
      const n_page = Math.max(1, ...lists.map((ids) => ids.length));
      const pages = new Int32Array(parts.length * n_page).fill(-1);
      lists.forEach((ids, i) => pages.set(ids, i * n_page));
      return { n_page, pages };
    });
    const input: StepInput = {
      tokens,
      positions,
      seqs,
      outRows: Int32Array.from(outRows),
      targets: Int32Array.from(targets),
      pages: program.caches.map((c) => tables[c.of].pages),
      n_page: program.caches.map((c) => tables[c.of].n_page),
      n_seq: parts.length,
      derived: program.derived.map((d) => {
        const out = d.type === "i32" ? new Int32Array(n_tok * d.n) : new Float32Array(n_tok * d.n);
        for (let t = 0; t < n_tok; t++) {
          const known = requests[parts[seqs[t]].request].sequence.tokens;
          d.row(
            out,
            t * d.n,
            positions[t],
            (back) => known[positions[t] - back] ?? -1,
            (adapter) => scales[seqs[t]][adapter] ?? 0,
          );
        }
        return out;
      }),
    };

    const wantFull = homes.some(([request]) => requests[request].want === "logits");
    const names = homes.length === 0
      ? []
      : vectors
      ? [VECTORS[vectors]]
      : [OUTPUTS.ids, OUTPUTS.top, OUTPUTS.lse, OUTPUTS.target, ...(wantFull ? [OUTPUTS.logits] : [])];
    const got = await handle.step(input, names);
    this.#residency?.afterStep(n_tok);
    for (const p of parts) {
      const { sequence } = requests[p.request];
      // What guesses have passed may be needed again.
      for (const list of sequence.lists) list.settle(sequence.marked);
      if (p.keep) sequence.keep();
    }
    homes.forEach(([request, row], i) => {
      const out = outputs[request];
      if (vectors) {
        const n = this.model.widths[vectors];
        out[vectors]!.set(got[VECTORS[vectors]].subarray(i * n, (i + 1) * n) as Float32Array, row * n);
        return;
      }
      const slice = <A extends Int32Array | Float32Array>(name: string, n: number) =>
        got[name].subarray(i * n, (i + 1) * n) as A;
      out.ids.set(slice<Int32Array>(OUTPUTS.ids, this.topK), row * this.topK);
      out.logits.set(slice<Float32Array>(OUTPUTS.top, this.topK), row * this.topK);
      out.lse[row] = got[OUTPUTS.lse][i];
      out.targetLogprob[row] = got[OUTPUTS.target][i];
      out.full?.set(slice<Float32Array>(OUTPUTS.logits, this.n_vocab), row * this.n_vocab);
    });
  }

  /**
   * The program of the smallest bucket that holds a step, with the adapters that any of its sequences has; made at first use.
   * A sequence without one of them gets zeros of it, so its answer does not depend on who shares the step.
   */
  #program(
    n_tok: number,
    n_out: number,
    vectors: boolean,
    scales: readonly (readonly number[])[],
  ): { program: Program; handle: ProgramHandle } {
    const bucket = bucketOf(n_tok, n_out, this.n_ctx);
    const adapters = [...this.file.adapters?.keys() ?? []].filter((i) => scales.some((s) => (s[i] ?? 0) !== 0));
    const key = `${bucket.n_tok},${bucket.n_out},${vectors},${adapters}`;
    const known = this.#programs.get(key);
    if (known) return known;
    const { placement } = this.plan;
    const model = this.#replaced.model(this.model);
    const program = vectors
      ? buildVectors(model, bucket, placement, adapters)
      : buildProgram(model, bucket, this.topK, placement, adapters);
    const weights = program.weights.map((w) =>
      this.#replaced.handle(w) ?? this.#residency?.tensor(w.name) ?? this.#weights.get(weightKey(w))!
    );
    const caches = program.caches.map((c) => this.#parts[c.of][partOf(this.plan.caches, c).part]);
    const handle = this.backend.createProgram(program, weights, caches);
    const made = { program, handle };
    this.#programs.set(key, made);
    return made;
  }

  /**
   * Makes the caches and loads the weights; once, or again after `sleep`.
   * @throws {NativeError}
   * @internal
   */
  async loadWeights(onProgress?: (done: number, total: number) => void): Promise<void> {
    for (const c of this.plan.caches) {
      const parts = createParts(this.backend, c);
      this.#parts.push(parts);
      this.caches.push(parts.length === 1 ? parts[0] : new SplitCache(c, parts));
    }
    // Any bucket's program says what each weight is used for.
    const { pools, placement } = this.plan;
    const { weights } = buildProgram(this.model, { n_tok: 1, n_out: 1, n_seq: 1, n_page: 1 }, this.topK, placement);
    if (pools.length > 0) this.#residency = Residency.open(this.backend, pools, this.file, this.#rank);
    const queue = weights.filter((w) => this.#residency?.tensor(w.name) === undefined);
    const total = queue.reduce((n, w) => n + (w.constant ? 0 : this.file.tensor(w.name).bytes), 0);
    let done = 0;
    const worker = async () => {
      for (let w = queue.shift(); w !== undefined; w = queue.shift()) {
        const { type, ne, uses, device } = w;
        const isHost = this.plan.devices.find((d) => d.device.index === device)?.device.kind === "cpu";
        const packed = isHost ? packedPlace(w, this.file) : undefined;
        const handle = await this.backend.loadTensor({ device, type, ne, uses, packed, source: await this.#source(w) });
        this.#weights.set(weightKey(w), handle);
        done += w.constant ? 0 : this.file.tensor(w.name).bytes;
        onProgress?.(done, total);
      }
    };
    // A failure ends the queue. It is thrown after the loads under way have ended: what they load into must outlive them.
    const ended = await Promise.allSettled(
      Array.from({ length: LOADS_AT_ONCE }, () => worker().finally(() => queue.length = 0)),
    );
    const failed = ended.find((e) => e.status === "rejected");
    if (failed) throw failed.reason;
    await this.#residency?.fill();
  }

  async #source(w: WeightDesc): Promise<TensorSource> {
    if (w.constant) return { data: bytesOf(w.constant) };
    const t = this.file.tensor(w.name);
    if (!w.decode) return this.file.place(t) ?? { data: await this.file.make(t) };
    const n = w.ne.reduce((a, b) => a * b, 1);
    return { data: bytesOf(await this.backend.dequantize(t.type, this.file.readTensor(t), n)) };
  }
}

function bytesOf(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer as ArrayBuffer, values.byteOffset, values.byteLength);
}
