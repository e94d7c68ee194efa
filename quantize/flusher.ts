/**
 * Moves a growing file to the disk while it is being written, so that finishing it takes little time.
 * @module
 */

/** Bytes written between two rounds. */
const ROUND = 32 * 2 ** 20;

/** Flushes one file by path while another handle writes it. Close it before the file is renamed. */
export class Flusher {
  readonly #file: Deno.FsFile | undefined;
  #since = 0;
  #running: Promise<void> | undefined;

  constructor(path: string) {
    try {
      this.#file = Deno.openSync(path, { write: true });
    } catch {
      // without it the end takes longer, nothing more
    }
  }

  /** Call this after every write. */
  wrote(bytes: number): void {
    this.#since += bytes;
    if (this.#since < ROUND || this.#running || !this.#file) return;
    this.#since = 0;
    // a disk error appears again, and is reported, where the file is finished
    this.#running = this.#file.syncData().catch(() => {}).finally(() => this.#running = undefined);
  }

  async close(): Promise<void> {
    await this.#running;
    this.#file?.close();
  }
}
