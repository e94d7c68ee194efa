/**
 * Moves a growing file to the disk while it is being written, so that little is left to wait for when it is finished.
 * @module
 */

/** Bytes written between two rounds. */
const ROUND = 32 * 2 ** 20;

/** Watches one file by path, beside whoever writes it. Close it before the file is renamed. */
export class Flusher {
  readonly #file: Deno.FsFile | undefined;
  #since = 0;
  #running: Promise<void> | undefined;

  constructor(path: string) {
    try {
      this.#file = Deno.openSync(path, { write: true });
    } catch {
      // without it, the end takes longer; nothing else is lost
    }
  }

  /** To be told of every write. */
  wrote(bytes: number): void {
    this.#since += bytes;
    if (this.#since < ROUND || this.#running || !this.#file) return;
    this.#since = 0;
    // an error of the disk shows again, and is reported, where the file is finished
    this.#running = this.#file.syncData().catch(() => {}).finally(() => this.#running = undefined);
  }

  async close(): Promise<void> {
    await this.#running;
    this.#file?.close();
  }
}
