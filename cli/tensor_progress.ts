/**
 * Progress of work that goes through a file's tensors: a bar with rate and ETA on a terminal, a line per tensor elsewhere,
 * one JSON object per tensor with `--json`.
 * @module
 */
import type { Flags } from "./command.ts";
import type { Io } from "./io.ts";

/** How far the work is. */
export interface TensorStep {
  readonly name: string;
  /** Its place among all tensors. */
  readonly index: number;
  readonly n_tensors: number;
  /** The tensor is done with this. */
  readonly whole: boolean;
  /** Bytes done, of all. */
  readonly done: number;
  /** Of them, those that an earlier run had done. */
  readonly resumed?: number;
  readonly total: number;
  /** What is done with it, for a reader. */
  readonly what: string;
  /** The same for programs. */
  readonly facts: Readonly<Record<string, unknown>>;
}

export interface TensorProgress {
  update(step: TensorStep): void;
  /** Ends the bar. */
  stop(): void;
}

export function tensorProgress(label: string, flags: Flags, io: Io): TensorProgress {
  const start = performance.now();
  const json = flags.bool("json");
  let bar: ReturnType<typeof io.bar> | undefined;
  return {
    update(step) {
      if (io.isTerminal) (bar ??= io.bar(label, step.total, "B")).update(step.done, step.resumed);
      if (!step.whole) return;
      const { index, n_tensors, name } = step;
      if (json) {
        io.json({
          event: "tensor",
          index,
          n_tensors,
          name,
          ...step.facts,
          done_bytes: step.done,
          total_bytes: step.total,
          seconds: (performance.now() - start) / 1000,
        });
      } else if (!io.isTerminal) io.note(`[${index + 1}/${n_tensors}] ${name}: ${step.what}`);
    },
    stop: () => bar?.stop(),
  };
}
