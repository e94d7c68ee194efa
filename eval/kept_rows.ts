/**
 * Whole rows of logits of a model over windows, kept in a file, so that many variants of the model can be compared with it while it runs
 * no more. The rows are the model's own floats: a comparison gives the bits that one with the running model gives.
 * @module
 */
import type { Engine } from "../core/engine/mod.ts";
import type { Backend } from "../core/program/backend.ts";
import { scoredRows } from "./rows.ts";
import { inGroups } from "./score.ts";
import { meanOf } from "./stats.ts";
import { scoredPositions, type Window } from "./windows.ts";

/** How windows are run together. */
export interface GroupLimits {
  readonly n_seq: number;
  readonly n_ubatch: number;
}

/** A window's mean divergence. */
export interface WindowKl {
  /** KL(base || model), nats a token. */
  readonly kl: number;
  readonly n_tokens: number;
}

/** Rows of windows in a file that goes when it is closed. */
export class KeptRows implements Disposable {
  readonly #file: Deno.FsFile;
  /** First byte of each window. */
  readonly #starts: readonly number[];

  private constructor(
    readonly path: string,
    readonly windows: readonly Window[],
    readonly n_vocab: number,
    readonly limits: GroupLimits,
  ) {
    this.#file = Deno.openSync(path, { read: true, write: true, create: true, truncate: true });
    const rows = windows.map((w) => scoredPositions(w.ids.length, w.skip));
    let at = 0;
    this.#starts = rows.map((n) => (at += 4 * n * n_vocab) - 4 * n * n_vocab);
  }

  /** Bytes that the rows of windows take. */
  static bytesOf(windows: readonly Window[], n_vocab: number): number {
    return windows.reduce((n, w) => n + 4 * scoredPositions(w.ids.length, w.skip) * n_vocab, 0);
  }

  /** Runs the model over the windows. @param onWindows Called with the tokens that were run since the last call. */
  static async of(
    engine: Engine,
    windows: readonly Window[],
    path: string,
    limits: GroupLimits,
    onWindows: (n_tok: number) => void = () => {},
  ): Promise<KeptRows> {
    const kept = new KeptRows(path, windows, engine.n_vocab, limits);
    try {
      for (const group of inGroups(windows, limits)) {
        for await (const { out } of scoredRows(engine, group)) {
          const { buffer, byteOffset, byteLength } = out.full!;
          const bytes = new Uint8Array(buffer, byteOffset, byteLength);
          for (let at = 0; at < byteLength;) at += kept.#file.writeSync(bytes.subarray(at));
        }
        onWindows(group.reduce((n, w) => n + w.ids.length, 0));
      }
      return kept;
    } catch (error) {
      kept[Symbol.dispose]();
      throw error;
    }
  }

  #read(window: number, from: number, rows: number): Float32Array {
    const out = new Float32Array(rows * this.n_vocab), bytes = new Uint8Array(out.buffer);
    this.#file.seekSync(this.#starts[window] + 4 * from * this.n_vocab, Deno.SeekMode.Start);
    for (let at = 0; at < bytes.length;) {
      const n = this.#file.readSync(bytes.subarray(at));
      if (n === null) throw new Error(`${this.path} has become shorter`);
      at += n;
    }
    return out;
  }

  /** Compares a model with the rows, window by window in their order. */
  async compare(backend: Backend, model: Engine): Promise<WindowKl[]> {
    const results: WindowKl[] = [];
    for (const group of inGroups(this.windows, this.limits)) {
      const kls: number[][] = group.map(() => []);
      for await (const { window, out } of scoredRows(model, group)) {
        const base = this.#read(results.length + window, kls[window].length, out.n_rows);
        kls[window].push(...(await backend.compareLogits(base, out.full!, this.n_vocab)).kl);
      }
      results.push(...kls.map((of) => ({ kl: meanOf(of), n_tokens: of.length })));
    }
    return results;
  }

  [Symbol.dispose](): void {
    this.#file.close();
    Deno.removeSync(this.path);
  }
}
