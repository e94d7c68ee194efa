/**
 * Vectors of texts: hidden rows of the model, pooled and normalised, or what a reranker's head says of a text. A server that gives them gives nothing else, so the engine is this
 * one's alone. Inputs that wait go through it together; a text's vector has the same bits alone and in company.
 * @module
 */
import type { TokenEngine } from "../core/engine/types.ts";
import { PAGE_SIZE } from "../core/plan/cache.ts";
import { UsageError } from "../core/errors.ts";
import { ApiError } from "./errors.ts";

/** How rows of tokens become one. `rank`: a reranker's head makes scores of one of them. */
export type Pooling = "none" | "mean" | "cls" | "last" | "rank";

/** All of them, as files number them in `{arch}.pooling_type`. */
export const POOLINGS: readonly Pooling[] = ["none", "mean", "cls", "last", "rank"];

/** The pooling that a file asks for; undefined where it asks for none that is known. */
export function poolingOf(number: number | undefined): Pooling | undefined {
  return number === undefined ? undefined : POOLINGS[number];
}

/**
 * How a model's rows are pooled.
 * @param wanted "file": as the file says, and not at all where it says nothing.
 * @throws UsageError `usage.pooling` for scores of a model that is no reranker
 */
export function choosePooling(
  model: {
    readonly path: string;
    readonly pooling?: Pooling | undefined;
    readonly engine: Pick<TokenEngine, "n_rank">;
  },
  wanted: Pooling | "file",
): Pooling {
  const pooling = wanted === "file" ? model.pooling ?? "none" : wanted;
  if (pooling !== "rank" || model.engine.n_rank > 0) return pooling;
  throw new UsageError(
    "usage.pooling",
    `Cannot rank with ${model.path}: pooling is "rank", and the file has no tensor "cls" or "cls.output"`,
    { at: { file: model.path }, hint: "use a reranker; --pooling mean, cls or last gives vectors" },
  );
}

export interface EmbedderOptions {
  readonly pooling: Pooling;
  /** Inputs of one step at most: sequences that the engine holds at once. */
  readonly n_seq: number;
}

interface Job {
  readonly ids: Int32Array;
  readonly done: (rows: Float32Array[]) => void;
  readonly failed: (error: unknown) => void;
}

export class Embedder {
  readonly pooling: Pooling;
  readonly #engine: TokenEngine;
  readonly #n_seq: number;
  readonly #waiting: Job[] = [];
  #running = false;

  constructor(engine: TokenEngine, { pooling, n_seq }: EmbedderOptions) {
    this.#engine = engine;
    this.pooling = pooling;
    this.#n_seq = n_seq;
  }

  /**
   * The vectors of texts, `[n_embd]` each; one a token where nothing is pooled, else one. Of a reranker: its scores.
   * @throws ApiError 500 `too large` for more tokens than the context holds, or, where a text is one step, than that has: as llama-server
   */
  async embed(inputs: readonly Int32Array[]): Promise<Float32Array[][]> {
    const { n_ctx, n_ubatch, oneStep } = this.#engine;
    for (const { length } of inputs) {
      if (length <= n_ctx && !(oneStep && length > n_ubatch)) continue;
      const [what, flag] = length > n_ctx
        ? [`the context holds ${n_ctx}`, "--ctx-size"]
        : [`a text is one step, increase the physical batch size (current batch size: ${n_ubatch})`, "--ubatch-size"];
      const message = `input (${length} tokens) is too large to process: ${what}`;
      throw new ApiError(500, "server_error", "input_too_large", message, { hint: `raise ${flag} or cut the text` });
    }
    const jobs = inputs.map((ids) =>
      new Promise<Float32Array[]>((done, failed) => this.#waiting.push({ ids, done, failed }))
    );
    if (!this.#running) this.#run();
    return await Promise.all(jobs);
  }

  async #run(): Promise<void> {
    this.#running = true;
    await null; // requests of the same moment go together
    while (this.#waiting.length > 0) {
      // Of one step's rows, and of the pages there are: what is longer alone goes through in several.
      const jobs: Job[] = [];
      let rows = 0, room = this.#engine.n_free;
      while (this.#waiting.length > 0 && jobs.length < this.#n_seq) {
        const next = this.#waiting[0].ids.length;
        room -= Math.ceil(next / PAGE_SIZE) * PAGE_SIZE;
        if (jobs.length > 0 && (rows + next > this.#engine.n_ubatch || room < 0)) break;
        rows += next;
        jobs.push(this.#waiting.shift()!);
      }
      const sequences = jobs.map(() => this.#engine.createSequence());
      try {
        const output = this.#rows(), want = this.pooling === "rank" ? "rank" : "hidden";
        const got = await this.#engine.step(
          jobs.map(({ ids }, i) => ({ sequence: sequences[i], tokens: ids, output, want, keep: false })),
        );
        jobs.forEach((job, i) => job.done(this.#pooled(got[i][want]!, got[i].n_rows)));
      } catch (error) {
        for (const job of jobs) job.failed(error);
      } finally {
        for (const s of sequences) s.dispose();
      }
    }
    this.#running = false;
  }

  /** The rows that pooling reads. */
  #rows(): "first" | "last" | "all" {
    switch (this.pooling) {
      case "cls":
        return "first";
      case "last":
        return "last";
      case "rank":
        // A decoder has read the whole text at its last token only.
        return this.#engine.oneStep ? "first" : "last";
      default:
        return "all";
    }
  }

  #pooled(hidden: Float32Array, n_rows: number): Float32Array[] {
    const n = hidden.length / n_rows;
    switch (this.pooling) {
      case "none":
        return Array.from({ length: n_rows }, (_, i) => hidden.slice(i * n, (i + 1) * n));
      case "cls":
      case "last":
      case "rank":
        return [hidden];
      case "mean": {
        const sum = new Float64Array(n);
        for (let i = 0; i < hidden.length; i++) sum[i % n] += hidden[i];
        return [Float32Array.from(sum, (x) => x / n_rows)];
      }
    }
  }
}

/**
 * A vector brought to a size.
 * @param norm -1: as it is; 0: the largest value becomes 32760; 1, 2, ...: the length by that norm becomes 1
 */
export function normalized(v: Float32Array, norm: number): Float32Array {
  if (norm < 0) return v;
  let size = 0;
  for (const x of v) size = norm === 0 ? Math.max(size, Math.abs(x)) : size + Math.abs(x) ** norm;
  if (norm === 0) size /= 32760;
  else size = size ** (1 / norm);
  return size > 0 ? v.map((x) => x / size) : v;
}
