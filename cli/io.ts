/**
 * The terminal: results on stdout, everything else on stderr. The only module that writes to either.
 * @module
 */
import { osError } from "../core/os_error.ts";
import type { Hold, Interrupts } from "./interrupt.ts";
import { type Bar, createBar } from "./progress.ts";

export interface Io {
  /** A result, on stdout. */
  out(text: string): void;
  /** A line of progress, warning or timing, on stderr; silent when quiet. */
  note(line: string): void;
  /** A warning, on stderr, quiet or not; the same one is printed once. */
  warn(line: string): void;
  /** Why a command failed, on stderr. */
  error(line: string): void;
  /** A bar with rate and ETA on a terminal, a line per stage elsewhere, nothing when quiet. */
  bar(label: string, total: number, unit: "B" | "tok" | "it"): Bar;
  /** One JSON document, or one line of a stream of them, on stdout. */
  json(value: unknown): void;
  /**
   * From here on the command stops by itself: the first Ctrl-C or SIGTERM fires `signal`, or calls `onCtrlC` where it is given.
   * Without a hold a signal ends the process at once.
   */
  hold(onCtrlC?: () => void): Hold;
  /** What the user reads when the command is interrupted: how to go on. */
  ifInterrupted(text: string | undefined): void;
  /** Fired by the first Ctrl-C or SIGTERM while the command holds. */
  readonly signal: AbortSignal;
  /** stderr is a terminal. */
  readonly isTerminal: boolean;
}

/** An `Io` and its end. */
export interface OpenIo extends Io {
  /** Takes the bars away: they own timers and hide the cursor. */
  endBars(): void;
}

const encoder = new TextEncoder();

function writeAll(stream: { writeSync(p: Uint8Array): number }, text: string): void {
  let bytes = encoder.encode(text);
  while (bytes.length > 0) bytes = bytes.subarray(stream.writeSync(bytes));
}

/** Thrown out of a command when the reader of stdout went away; the exit code is 0 then. */
export class ClosedPipe extends Error {}

export function createIo(options: { quiet: boolean; interrupts: Interrupts }): OpenIo {
  const { interrupts, quiet } = options;
  const out = (text: string) => {
    try {
      writeAll(Deno.stdout, text);
    } catch (error) {
      if (error instanceof Deno.errors.BrokenPipe) throw new ClosedPipe();
      throw osError(error, "write to standard output") ?? error;
    }
  };
  const err = (text: string) => {
    try {
      writeAll(Deno.stderr, text);
    } catch {
      // What cannot be told cannot be told: the reader went away, or the disk of a log is full.
    }
  };
  const terminal = Deno.stderr.isTerminal();
  const bars = new Set<Bar>();
  const warned = new Set<string>();
  return {
    out,
    note: (line) => {
      if (!quiet) err(line + "\n");
    },
    warn: (line) => {
      if (warned.has(line)) return;
      warned.add(line);
      err(`warning: ${line}\n`);
    },
    error: (line) => err(line.startsWith("hint: ") ? `${line}\n` : `error: ${line}\n`),
    bar: (label, total, unit) => {
      const bar = createBar({ label, total, unit, terminal, quiet, write: err });
      bars.add(bar);
      return bar;
    },
    json: (value) => out(JSON.stringify(value) + "\n"),
    hold: (onCtrlC) => interrupts.hold(onCtrlC),
    ifInterrupted: (text) => void (interrupts.resume = text),
    signal: interrupts.signal,
    isTerminal: terminal,
    endBars: () => {
      for (const bar of bars) bar.cancel();
      bars.clear();
    },
  };
}
