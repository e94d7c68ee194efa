/**
 * Ctrl-C and SIGTERM. A command ends at once, unless it holds: then the first signal asks it to stop, and the second ends it.
 * @module
 */

export interface Hold extends Disposable {}

export class Interrupts {
  readonly #stop = new AbortController();
  readonly #holds: ({ readonly onCtrlC: (() => void) | undefined })[] = [];
  /** Ends the process; only a test's comes back. */
  readonly #end: () => void;
  #interrupted = false;
  #resume: string | undefined;

  /** @param end Ends the process with the exit code of an interruption. */
  constructor(end: () => void) {
    this.#end = end;
  }

  /** Fires when a command that holds has to stop. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  get interrupted(): boolean {
    return this.#interrupted;
  }

  /** What an interrupted command tells the user: how to go on. */
  get resume(): string | undefined {
    return this.#resume;
  }

  set resume(text: string | undefined) {
    this.#resume = text;
  }

  /**
   * Keeps the process alive after a first signal, until the result is disposed.
   * @param onCtrlC Called at every Ctrl-C, in place of the abort signal: what was interrupted is a part of the work.
   */
  hold(onCtrlC?: () => void): Hold {
    const hold = { onCtrlC };
    this.#holds.push(hold);
    return {
      [Symbol.dispose]: () => {
        const at = this.#holds.indexOf(hold);
        if (at >= 0) this.#holds.splice(at, 1);
      },
    };
  }

  receive(signal: "SIGINT" | "SIGTERM"): void {
    const hold = this.#holds.at(-1);
    if (signal === "SIGINT" && hold?.onCtrlC) return hold.onCtrlC();
    if (hold === undefined || this.#interrupted) {
      this.#interrupted = true;
      return this.#end();
    }
    this.#interrupted = true;
    this.#stop.abort();
  }
}
