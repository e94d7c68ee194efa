/**
 * The terminal: results on stdout, everything else on stderr. The only module that writes to either.
 * @module
 */
import { type Bar, createBar } from "./progress.ts";

export interface Io {
  /** A result, on stdout. */
  out(text: string): void;
  /** A line of progress, warning or timing, on stderr; silent when quiet. */
  note(line: string): void;
  /** A warning, on stderr, quiet or not. */
  warn(line: string): void;
  /** Why a command failed, on stderr. */
  error(line: string): void;
  /** A bar with rate and ETA on a terminal, a line per stage elsewhere, nothing when quiet. */
  bar(label: string, total: number, unit: "B" | "tok" | "it"): Bar;
  /** One JSON document, or one line of a stream of them, on stdout. */
  json(value: unknown): void;
  /** Aborted by the first Ctrl-C or SIGTERM. */
  readonly signal: AbortSignal;
  readonly isTerminal: boolean;
}

const encoder = new TextEncoder();

function writeAll(stream: { writeSync(p: Uint8Array): number }, text: string): void {
  let bytes = encoder.encode(text);
  while (bytes.length > 0) bytes = bytes.subarray(stream.writeSync(bytes));
}

/** Thrown out of a command when the reader of stdout went away; the exit code is 0 then. */
export class ClosedPipe extends Error {}

export function createIo(options: { quiet: boolean; signal: AbortSignal }): Io {
  const out = (text: string) => {
    try {
      writeAll(Deno.stdout, text);
    } catch (error) {
      if (error instanceof Deno.errors.BrokenPipe) throw new ClosedPipe();
      throw error;
    }
  };
  const err = (text: string) => {
    try {
      writeAll(Deno.stderr, text);
    } catch (error) {
      if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
    }
  };
  const terminal = Deno.stderr.isTerminal();
  return {
    out,
    note: (line) => {
      if (!options.quiet) err(line + "\n");
    },
    warn: (line) => err(`warning: ${line}\n`),
    error: (line) => err(line.startsWith("hint: ") ? `${line}\n` : `error: ${line}\n`),
    bar: (label, total, unit) => createBar({ label, total, unit, terminal, quiet: options.quiet, write: err }),
    json: (value) => out(JSON.stringify(value) + "\n"),
    signal: options.signal,
    isTerminal: terminal,
  };
}
