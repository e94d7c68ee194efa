/**
 * What tests of commands share.
 * @module
 */
import { repoDir } from "../tests/shared.ts";
import type { Io } from "./io.ts";

/** Runs the command line in a process of its own, with `input` as its standard input. */
export async function bloomery(args: string[], input = ""): Promise<{ code: number; out: string; err: string }> {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", repoDir + "cli/main.ts", ...args],
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(input)).catch(() => {}); // it may end before it reads
  await writer.close().catch(() => {});
  const { code, stdout, stderr } = await child.output();
  return { code, out: new TextDecoder().decode(stdout), err: new TextDecoder().decode(stderr) };
}

/** What a command printed through a {@link fakeIo}. */
export interface Printed {
  out: string;
  notes: string[];
  warnings: string[];
  errors: string[];
  /** Documents of `--json`, as a reader has them. */
  documents: any[];
  /** What an interrupted user would read. */
  resume: string | undefined;
  /** The newest hold's answer to Ctrl-C. */
  onCtrlC: (() => void) | undefined;
}

/** A terminal that keeps what is printed. */
export function fakeIo(stop: AbortController = new AbortController()): { io: Io; printed: Printed } {
  const printed: Printed = {
    out: "",
    notes: [],
    warnings: [],
    errors: [],
    documents: [],
    resume: undefined,
    onCtrlC: undefined,
  };
  const io: Io = {
    out: (text) => void (printed.out += text),
    note: (line) => void printed.notes.push(line),
    warn: (line) => void printed.warnings.push(line),
    error: (line) => void printed.errors.push(line),
    bar: () => ({ update() {}, stop() {}, cancel() {} }),
    json: (value) => void printed.documents.push(JSON.parse(JSON.stringify(value))),
    hold: (onCtrlC) => {
      printed.onCtrlC = onCtrlC;
      return { [Symbol.dispose]: () => void (printed.onCtrlC = undefined) };
    },
    ifInterrupted: (text) => void (printed.resume = text),
    signal: stop.signal,
    isTerminal: false,
  };
  return { io, printed };
}
