/**
 * Streams that outlive their connection: the bytes of an answer are kept under the conversation's id, so that a client can read
 * on where its connection ended.
 * @module
 */

/** Streams kept at once; the oldest that have ended go first. */
const MAX_STREAMS = 256;
/** Bytes of all streams that have ended. */
const MAX_BYTES = 64 << 20;
/** Bytes of one stream; a longer answer is ended. */
const MAX_STREAM_BYTES = 32 << 20;

/** What a lookup tells of a stream. */
export interface StreamFacts {
  conversation_id: string;
  is_done: boolean;
  total_bytes: number;
  /** Unix seconds. */
  started_at: number;
  /** 0 while it runs. */
  completed_at: number;
}

/** One answer's bytes, complete or still growing. */
export class KeptStream {
  readonly started_at = Math.floor(Date.now() / 1000);
  completed_at = 0;
  readonly #chunks: Uint8Array[] = [];
  #total = 0;
  #readers = 0;
  #waiting: (() => void)[] = [];

  /** @param cancel Ends what makes the stream. */
  constructor(readonly id: string, readonly cancel: () => void) {}

  get total(): number {
    return this.#total;
  }

  get done(): boolean {
    return this.completed_at > 0;
  }

  /** Nobody reads it now. */
  get unread(): boolean {
    return this.#readers === 0;
  }

  push(bytes: Uint8Array): void {
    this.#chunks.push(bytes);
    this.#total += bytes.length;
    this.#announce();
    if (this.#total > MAX_STREAM_BYTES) this.cancel();
  }

  end(): void {
    this.completed_at = Math.max(1, Math.floor(Date.now() / 1000));
    this.#announce();
  }

  /** The bytes from an offset on, as they come. A reader that leaves ends nothing. */
  read(from = 0): ReadableStream<Uint8Array> {
    let i = 0, skip = from;
    let open = true;
    this.#readers++;
    const close = () => {
      if (open) this.#readers--;
      open = false;
    };
    return new ReadableStream<Uint8Array>({
      pull: async (controller) => {
        while (open) {
          while (i < this.#chunks.length) {
            const chunk = this.#chunks[i++];
            if (skip >= chunk.length) {
              skip -= chunk.length;
              continue;
            }
            controller.enqueue(chunk.subarray(skip));
            skip = 0;
            return;
          }
          if (this.done) {
            close();
            return controller.close();
          }
          await new Promise<void>((resolve) => this.#waiting.push(resolve));
        }
      },
      cancel: () => {
        close();
        this.#announce();
      },
    }, { highWaterMark: 0 });
  }

  facts(): StreamFacts {
    const { id, done, total, started_at, completed_at } = this;
    return { conversation_id: id, is_done: done, total_bytes: total, started_at, completed_at };
  }

  #announce(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }
}

export class StreamStore {
  readonly #streams = new Map<string, KeptStream>();

  /** Begins a stream. An older one of the same conversation is forgotten, and ended unless somebody reads it. */
  open(id: string, cancel: () => void): KeptStream {
    const before = this.#streams.get(id);
    if (before !== undefined && !before.done && before.unread) before.cancel();
    const stream = new KeptStream(id, cancel);
    this.#streams.delete(id);
    this.#streams.set(id, stream);
    this.#tidy();
    return stream;
  }

  get(id: string): KeptStream | undefined {
    return this.#streams.get(id);
  }

  /** Ends a stream and forgets it. @returns whether there was one */
  delete(id: string): boolean {
    const stream = this.#streams.get(id);
    if (stream !== undefined && !stream.done) stream.cancel();
    return this.#streams.delete(id);
  }

  #tidy(): void {
    let bytes = 0;
    for (const stream of this.#streams.values()) if (stream.done) bytes += stream.total;
    for (const [id, stream] of this.#streams) {
      if (this.#streams.size <= MAX_STREAMS && bytes <= MAX_BYTES) return;
      if (!stream.done) continue;
      bytes -= stream.total;
      this.#streams.delete(id);
    }
  }
}
