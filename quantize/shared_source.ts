/**
 * One source for several runs that quantize it at the same time: what one run reads, the others take from memory. Runs keep
 * together: one waits while it is more than a window of bytes ahead of the slowest.
 * @module
 */
import type { SourceTensor } from "./plan.ts";
import { type QuantizeSource, rowCount } from "./quantize_source.ts";
import { rowBytes } from "../core/gguf/types.ts";

interface Held {
  readonly at: number;
  readonly end: number;
  readonly bytes: Promise<Uint8Array>;
}

interface Reader {
  /** Bytes of the source that it has passed. */
  at: number;
}

/** A source that several runs read together. */
export class SharedSource {
  readonly #source: QuantizeSource;
  readonly #window: number;
  readonly #starts = new Map<SourceTensor, number>();
  readonly #readers = new Set<Reader>();
  readonly #held = new Map<string, Held>();
  #waiting: (() => void)[] = [];

  /**
   * @param source Closed by the caller.
   * @param order Its tensors as the runs read them.
   * @param window Most bytes of rows that are held for slower runs.
   */
  constructor(source: QuantizeSource, order: readonly SourceTensor[], window: number) {
    this.#source = source;
    this.#window = window;
    let at = 0;
    for (const t of order) {
      this.#starts.set(t, at);
      at += rowCount(t) * rowBytes(t.type, t.ne[0]);
    }
  }

  /** The source for one of the runs; disposing of it ends that run's part. All are made before the first reads. */
  open(): QuantizeSource {
    const { name, paths, metadata, tensors, warnings } = this.#source;
    const reader: Reader = { at: 0 };
    this.#readers.add(reader);
    return {
      name,
      paths,
      metadata,
      tensors,
      warnings,
      read: (tensor, row, rows) => this.#read(reader, tensor, row, rows),
      [Symbol.dispose]: () => {
        this.#readers.delete(reader);
        this.#moved();
      },
    };
  }

  async #read(reader: Reader, tensor: SourceTensor, row: number, rows: number): Promise<Uint8Array> {
    const size = rowBytes(tensor.type, tensor.ne[0]);
    const start = this.#starts.get(tensor);
    if (start === undefined) throw new Error(`tensor ${tensor.name} is not among those that all runs read`);
    const at = start + row * size, end = at + rows * size;
    // What lies before is not asked for again but to word an error, which reads anew.
    reader.at = Math.max(reader.at, at);
    this.#moved();
    while (at - Math.min(...[...this.#readers].map((r) => r.at)) > this.#window) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    const key = `${at} ${end}`;
    const held = this.#held.get(key) ??
      { at, end, bytes: Promise.resolve(this.#source.read(tensor, row, rows)) };
    if (this.#readers.size > 1) this.#held.set(key, held);
    return await held.bytes;
  }

  /** Lets go what every run has passed, and lets go on whoever waited. */
  #moved(): void {
    const slowest = Math.min(...[...this.#readers].map((r) => r.at));
    for (const [key, { end }] of this.#held) if (end <= slowest) this.#held.delete(key);
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
