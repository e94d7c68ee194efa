/**
 * The engine: plan + program + weights. Sequences in, logits or the best candidates out. Its users (serve, score, eval, the
 * library) decide what to sample; nothing of theirs is in here.
 * @module
 */
import { EngineError, UsageError } from "../errors.ts";
import type { Backend, CacheHandle, DeviceInfo, ProgramHandle, StepInput, TensorHandle } from "../program/backend.ts";
import type { ModelFile, Spec } from "../arch/mod.ts";
import { chooseContext } from "../plan/context.ts";
import { type CacheType, type Plan, planModel } from "../plan/plan.ts";
import { bindModel, buildProgram, type Model, OUTPUTS } from "./model.ts";
import { PageList, PagePool } from "./pages.ts";

/** How an engine is set up. */
export interface EngineOptions {
  /** Index of the backend's device that holds everything. */
  readonly device?: number;
  /** The most tokens of one sequence. Default: what the model was trained for, or the largest that fits. */
  readonly n_ctx?: number;
  /** Tokens the cache holds over all sequences. Default: `contexts` times `n_ctx`. */
  readonly n_cache?: number;
  /** Whole contexts that the cache holds where `n_cache` does not say. Default: 1. */
  readonly contexts?: number;
  /** The most token rows of one native step. */
  readonly n_ubatch?: number;
  /** Element type of cached keys; f16 where left out. */
  readonly cacheTypeK?: CacheType;
  /** Element type of cached values; f16 where left out. */
  readonly cacheTypeV?: CacheType;
  /** Candidates per output row. */
  readonly topK?: number;
  /** Told while weights load. */
  readonly onProgress?: (doneBytes: number, totalBytes: number) => void;
}

/** The tokens that one sequence gets in a step. */
export interface StepRequest {
  /** Of this engine. */
  readonly sequence: Sequence;
  /** Ids, appended to the sequence. */
  readonly tokens: ArrayLike<number>;
  /** Rows to give results of. */
  readonly output: "none" | "last" | "all";
  /** `logits`: whole rows besides the candidates. Default: `candidates`. */
  readonly want?: "candidates" | "logits";
  /** Tokens to score at the output rows, -1 for none; as many as there are rows. */
  readonly targets?: ArrayLike<number>;
}

/** What a step gave for one request, row by row. */
export interface StepOutput {
  /** Rows: none, one, or as many as tokens. */
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
}

/** Tokens per cache page. */
const PAGE_SIZE = 64;
/** Most weights read at once while loading. */
const LOADS_AT_ONCE = 8;

/** A run of tokens with its cached keys and values. */
export class Sequence implements Disposable {
  #pages: PageList;
  #disposed = false;

  /** @internal use `Engine.createSequence` */
  constructor(readonly engine: Engine, pages: PageList) {
    this.#pages = pages;
  }

  /** Tokens the cache holds of it. */
  get length(): number {
    return this.#pages.length;
  }

  /** @internal */
  get pages(): PageList {
    if (this.#disposed) throw new Error("a sequence was used after it was disposed");
    return this.#pages;
  }

  /** Forgets all but the first `n` tokens. */
  truncate(n: number): void {
    this.pages.truncate(n);
  }

  /** A second sequence with the same tokens, sharing pages until either writes. */
  fork(): Sequence {
    return new Sequence(this.engine, this.pages.fork());
  }

  /** Gives its pages back. Harmless to repeat. */
  dispose(): void {
    if (this.#disposed) return;
    this.#pages.truncate(0);
    this.#disposed = true;
  }

  /** The same as `dispose`. */
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Rows of one request in one native step. */
interface Part {
  readonly request: number;
  readonly from: number;
  readonly to: number;
}

function nextPowerOfTwo(n: number): number {
  return n <= 1 ? 1 : 2 ** Math.ceil(Math.log2(n));
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
  /** Why `n_ctx` is what it is, where nobody asked for it. */
  contextReason: string | undefined;
  readonly #weights = new Map<string, TensorHandle>();
  readonly #programs = new Map<string, ProgramHandle>();
  readonly #pool: PagePool;
  #busy = false;

  private constructor(
    readonly backend: Backend,
    /** @internal */
    readonly model: Model,
    readonly plan: Plan,
    readonly n_ctx: number,
    readonly n_ubatch: number,
    readonly topK: number,
    /** @internal */
    readonly cache: CacheHandle,
  ) {
    this.spec = model.spec;
    this.n_vocab = model.spec.n_vocab;
    this.#pool = new PagePool(plan.cache.n_pages, plan.cache.page_size);
  }

  /**
   * Plans, loads and prepares a model.
   * @throws {ModelError} {@link PlanError} {@link NativeError}
   */
  static async load(file: ModelFile, backend: Backend, options: EngineOptions = {}): Promise<Engine> {
    const model = bindModel(file);
    const n_ubatch = options.n_ubatch ?? 512;
    const index = options.device ?? 0;
    const device = backend.devices.find((d) => d.index === index);
    if (!device) {
      throw new UsageError("usage.device", `Cannot use device ${index}: expected 0 to ${backend.devices.length - 1}`, {
        at: { got: index, devices: backend.devices.map((d) => d.name) },
      });
    }
    const planFor = (n_ctx: number, device: DeviceInfo) =>
      planModel(model, {
        device,
        n_ctx,
        n_cache: Math.max(options.n_cache ?? n_ctx * (options.contexts ?? 1), n_ctx),
        n_ubatch,
        page_size: PAGE_SIZE,
        cacheTypeK: options.cacheTypeK ?? "f16",
        cacheTypeV: options.cacheTypeV ?? "f16",
      });
    const chosen = options.n_ctx === undefined ? chooseContext(model.spec.n_ctx_train, device, planFor) : undefined;
    const n_ctx = options.n_ctx ?? chosen!.n_ctx;
    for (const [name, value] of [["n_ctx", n_ctx], ["n_ubatch", n_ubatch]] as const) {
      if (!Number.isInteger(value) || value < 1) {
        throw new UsageError("usage.value", `Cannot use ${name} = ${value}: expected a whole number of at least 1`, {
          at: { name, got: value },
        });
      }
    }
    const plan = planFor(n_ctx, device);
    const cache = backend.createCache({ device: index, ...plan.cache });
    const topK = Math.min(options.topK ?? 64, model.spec.n_vocab);
    const engine = new Engine(backend, model, plan, n_ctx, nextPowerOfTwo(n_ubatch), topK, cache);
    engine.contextReason = chosen?.reason;
    try {
      await engine.#loadWeights(options.onProgress);
    } catch (error) {
      engine[Symbol.dispose]();
      throw error;
    }
    return engine;
  }

  /** A sequence without tokens. Dispose of it to give its pages back. */
  createSequence(): Sequence {
    return new Sequence(this, new PageList(this.#pool));
  }

  /** Tokens that could still be cached, over all sequences. */
  get n_free(): number {
    return this.#pool.n_free * this.#pool.page_size;
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

  /** Gives weights, programs and cache back. */
  [Symbol.dispose](): void {
    for (const p of this.#programs.values()) p[Symbol.dispose]();
    this.cache[Symbol.dispose]();
    for (const w of this.#weights.values()) w[Symbol.dispose]();
    this.#programs.clear();
    this.#weights.clear();
  }

  #check(requests: readonly StepRequest[]): void {
    let wanted = 0;
    for (const { sequence, tokens } of requests) {
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
      wanted += sequence.pages.wanted(tokens.length);
    }
    if (wanted > this.#pool.n_free) {
      throw new EngineError(
        "engine.no_pages",
        `The cache is full: the step needs ${wanted} pages of ${this.#pool.page_size} tokens, ${this.#pool.n_free} are free`,
        {
          at: { wanted, free: this.#pool.n_free },
          hint: "raise --ctx-size, or run fewer sequences at once (--parallel)",
        },
      );
    }
  }

  async #step(requests: readonly StepRequest[]): Promise<StepOutput[]> {
    this.#check(requests);
    const starts = requests.map((r) => r.sequence.length);
    const outputs = requests.map((r) => {
      const n_rows = r.output === "all" ? r.tokens.length : r.output === "last" ? Math.min(1, r.tokens.length) : 0;
      return {
        n_rows,
        ids: new Int32Array(n_rows * this.topK),
        logits: new Float32Array(n_rows * this.topK),
        lse: new Float32Array(n_rows),
        targetLogprob: new Float32Array(n_rows),
        ...(r.want === "logits" ? { full: new Float32Array(n_rows * this.n_vocab) } : {}),
      };
    });
    const before = requests.map((r) => r.sequence.length);
    try {
      for (const parts of this.#cut(requests)) await this.#run(requests, starts, outputs, parts);
    } catch (error) {
      requests.forEach((r, i) => r.sequence.truncate(before[i]));
      throw error;
    }
    return outputs;
  }

  /** Requests in order, cut into steps of at most `n_ubatch` rows. */
  #cut(requests: readonly StepRequest[]): Part[][] {
    const steps: Part[][] = [];
    let rows = this.n_ubatch;
    requests.forEach((r, request) => {
      for (let from = 0; from < r.tokens.length;) {
        if (rows === this.n_ubatch) {
          steps.push([]);
          rows = 0;
        }
        const to = Math.min(r.tokens.length, from + this.n_ubatch - rows);
        steps[steps.length - 1].push({ request, from, to });
        rows += to - from;
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
    const copies: { src: number; dst: number }[] = [];
    let at = 0;
    parts.forEach(({ request, from, to }, seq) => {
      const r = requests[request];
      copies.push(...r.sequence.pages.append(to - from));
      for (let i = from; i < to; i++, at++) {
        tokens[at] = r.tokens[i];
        positions[at] = starts[request] + i;
        seqs[at] = seq;
        if (r.output === "all" || (r.output === "last" && i === r.tokens.length - 1)) {
          const row = r.output === "all" ? i : 0;
          outRows.push(at);
          targets.push(r.targets?.[row] ?? -1);
          homes.push([request, row]);
        }
      }
    });
    if (copies.length > 0) this.cache.copyPages(copies.map((c) => c.src), copies.map((c) => c.dst));

    const lists = parts.map((p) => requests[p.request].sequence.pages.ids);
    const n_page = Math.max(1, ...lists.map((ids) => ids.length));
    const pages = new Int32Array(parts.length * n_page).fill(-1);
    lists.forEach((ids, i) => pages.set(ids, i * n_page));
    const input: StepInput = {
      tokens,
      positions,
      seqs,
      outRows: Int32Array.from(outRows),
      targets: Int32Array.from(targets),
      pages,
      n_seq: parts.length,
      n_page,
    };

    const wantFull = homes.some(([request]) => requests[request].want === "logits");
    const names = homes.length === 0
      ? []
      : [OUTPUTS.ids, OUTPUTS.top, OUTPUTS.lse, OUTPUTS.target, ...(wantFull ? [OUTPUTS.logits] : [])];
    const got = await this.#program(n_tok, outRows.length).step(input, names);
    homes.forEach(([request, row], i) => {
      const out = outputs[request];
      const slice = <A extends Int32Array | Float32Array>(name: string, n: number) =>
        got[name].subarray(i * n, (i + 1) * n) as A;
      out.ids.set(slice<Int32Array>(OUTPUTS.ids, this.topK), row * this.topK);
      out.logits.set(slice<Float32Array>(OUTPUTS.top, this.topK), row * this.topK);
      out.lse[row] = got[OUTPUTS.lse][i];
      out.targetLogprob[row] = got[OUTPUTS.target][i];
      out.full?.set(slice<Float32Array>(OUTPUTS.logits, this.n_vocab), row * this.n_vocab);
    });
  }

  /** The program of the smallest bucket that holds a step; made at first use. */
  #program(n_tok: number, n_out: number): ProgramHandle {
    const rows = nextPowerOfTwo(n_tok);
    // Few sizes of outputs: one row, some slots, or every row.
    const out = [1, 8, 64].find((n) => n_out <= n && n <= rows) ?? rows;
    const key = `${rows},${out}`;
    const known = this.#programs.get(key);
    if (known) return known;
    const bucket = { n_tok: rows, n_out: out, n_seq: rows, n_page: Math.ceil(this.n_ctx / PAGE_SIZE) };
    const program = buildProgram(this.model, bucket, this.topK, this.plan.device.index);
    const weights = program.weights.map((w) => this.#weights.get(w.name)!);
    const handle = this.backend.createProgram(program, weights, [this.cache]);
    this.#programs.set(key, handle);
    return handle;
  }

  async #loadWeights(onProgress?: (done: number, total: number) => void): Promise<void> {
    // Any bucket's program says what each weight is used for.
    const { weights } = buildProgram(this.model, { n_tok: 1, n_out: 1, n_seq: 1, n_page: 1 }, this.topK, 0);
    const device = this.plan.device.index;
    let done = 0;
    const queue = [...weights];
    const worker = async () => {
      for (let w = queue.shift(); w !== undefined; w = queue.shift()) {
        const t = w.constant ? undefined : this.model.file.tensor(w.name);
        const source = t
          ? { path: t.path, offset: t.offset, bytes: t.bytes }
          : { data: new Uint8Array(w.constant!.buffer as ArrayBuffer, w.constant!.byteOffset, w.constant!.byteLength) };
        const handle = await this.backend.loadTensor({ device, type: w.type, ne: w.ne, uses: w.uses, source });
        this.#weights.set(w.name, handle);
        done += t?.bytes ?? 0;
        onProgress?.(done, this.plan.weight_bytes);
      }
    };
    await Promise.all(Array.from({ length: LOADS_AT_ONCE }, worker));
  }
}
