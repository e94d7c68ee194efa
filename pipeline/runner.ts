/**
 * Runs what has to be run: a step whose key is that of its last run, and whose outputs are there, is passed over.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import { bytesOf, type PipelineState } from "./state.ts";
import type { Step, StepKind } from "./steps.ts";

/** Bytes of inputs and outputs a second, before anything was measured here: guesses, on the low side. */
const GUESSED: Readonly<Record<StepKind, number>> = {
  prepare: 300e6,
  imatrix: 5e6,
  measure: 20e3,
  quantize: 30e6,
  splice: 300e6,
  eval: 1e6,
  manifest: 500e6,
  upload: 20e6,
};

/** A step as a dry run shows it. */
export interface PlannedStep {
  readonly step: Step;
  /** `later`: an input has to be made first, so nobody can tell. */
  readonly state: "done" | "run" | "later";
  /** Bytes it reads and writes. */
  readonly read: number;
  readonly written: number;
  readonly seconds: number;
  /** The rate is of runs on this machine. */
  readonly measured: boolean;
}

/**
 * What would be done.
 * @param sizes Predicted sizes of files that are not there, by path.
 */
export function planRun(
  steps: readonly Step[],
  state: PipelineState,
  version: string,
  sizes: ReadonlyMap<string, number>,
): PlannedStep[] {
  const remade = new Set<string>();
  const size = (path: string) => remade.has(path) ? sizes.get(path) ?? 0 : bytesOf([path]) || (sizes.get(path) ?? 0);
  return steps.map((step) => {
    const depends = step.inputs.some((path) => remade.has(path));
    const key = depends ? undefined : state.keyOf(step, version);
    const done = key !== undefined && state.isDone(step, key);
    if (!done) { for (const path of step.outputs) remade.add(path); }
    const read = step.inputs.reduce((n, path) => n + size(path), 0);
    const written = step.outputs.reduce((n, path) => n + size(path), 0);
    const rate = state.rateOf(step.kind);
    return {
      step,
      state: done ? "done" : key === undefined ? "later" : "run",
      read,
      written,
      seconds: (read + written) / (rate ?? GUESSED[step.kind]),
      measured: rate !== undefined,
    };
  });
}

/** What runs steps; quantizations that can run together come together. */
export type RunSteps = (steps: readonly Step[]) => Promise<void>;

/**
 * Runs the steps that are not done. What a run that was killed has finished stays done.
 * @returns the steps that were run
 * @throws {UsageError} `usage.pipeline_input` for an input that is not there
 */
export async function runPipeline(
  steps: readonly Step[],
  state: PipelineState,
  version: string,
  run: RunSteps,
  onDone: (step: Step, ran: boolean) => void,
): Promise<Step[]> {
  const ran: Step[] = [];
  for (let i = 0; i < steps.length;) {
    // Quantizations read one source, so those that have to run do it together.
    let to = i + 1;
    while (steps[i].kind === "quantize" && to < steps.length && steps[to].kind === "quantize") to++;
    const due: { step: Step; key: string }[] = [];
    for (const step of steps.slice(i, to)) {
      const key = state.keyOf(step, version);
      if (key === undefined) throw missing(step, state);
      if (state.isDone(step, key)) onDone(step, false);
      else due.push({ step, key });
    }
    if (due.length > 0) {
      const start = performance.now();
      await run(due.map((d) => d.step));
      const seconds = (performance.now() - start) / 1000;
      for (const { step, key } of due) {
        const made = step.arriving ? state.keyOf(step, version)! : key;
        state.record(step, made, seconds / due.length, bytesOf(step.inputs) + bytesOf(step.outputs));
        ran.push(step);
        onDone(step, true);
      }
    }
    i = to;
  }
  return ran;
}

function missing(step: Step, state: PipelineState): UsageError {
  const path = step.inputs.find((input) => state.contentOf(input) === undefined)!;
  return new UsageError("usage.pipeline_input", `Cannot run step ${step.id}: ${path} is not there`, {
    at: { step: step.id, file: path },
    hint: "correct the recipe's path",
  });
}
