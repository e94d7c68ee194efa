/**
 * Rates of an engine: prompts and decoding apart, per context depth.
 * @module
 */
import type { Drafter } from "../draft/drafter.ts";
import { DraftedSteps } from "../draft/steps.ts";
import { buildProgram } from "../arch/model.ts";
import type { Engine, Sequence } from "./mod.ts";

export interface BenchCase {
  /** `pp512`, `tg128`, `tg128@4096` */
  readonly name: string;
  readonly n_prompt: number;
  readonly n_decode: number;
  /** Tokens in the cache before it starts. */
  readonly depth: number;
  /** Sequences decoded together. */
  readonly n_seq: number;
}

export interface BenchResult extends BenchCase {
  /** Tokens a second of each repetition, in order. */
  readonly rates: readonly number[];
  readonly median: number;
  /** Guessed tokens of all repetitions, and those that were right; absent where none are guessed. */
  readonly n_draft?: number;
  readonly n_draft_accepted?: number;
}

/** Names a case as the field does. */
export function benchCase(kind: "pp" | "tg", n: number, depth = 0, n_seq = 1): BenchCase {
  const name = `${kind}${n}${depth > 0 ? `@${depth}` : ""}${n_seq > 1 ? ` x${n_seq}` : ""}`;
  return { name, n_prompt: kind === "pp" ? n : 0, n_decode: kind === "tg" ? n : 0, depth, n_seq };
}

function randomTokens(n: number, n_vocab: number): Int32Array {
  return Int32Array.from({ length: n }, () => Math.floor(Math.random() * n_vocab));
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/** Runs a case `repeats` times after one warm-up. */
export async function runBench(
  engine: Engine,
  c: BenchCase,
  repeats: number,
  options: { signal?: AbortSignal; drafter?: Drafter | undefined } = {},
): Promise<BenchResult> {
  const { signal, drafter } = options, rates: number[] = [];
  const before = drafter && { ...drafter.counts };
  for (let r = -1; r < repeats && !signal?.aborted; r++) {
    const sequences = Array.from({ length: c.n_seq }, () => engine.createSequence());
    try {
      if (c.depth > 0) {
        for (const sequence of sequences) {
          await engine.step([{ sequence, tokens: randomTokens(c.depth, engine.n_vocab), output: "none" }]);
        }
      }
      // A warm-up of a few tokens compiles what the case needs.
      const n = r < 0 ? Math.min(c.n_decode, 4) : c.n_decode;
      let done = 0;
      const start = performance.now();
      if (c.n_prompt > 0) {
        await engine.step(sequences.map((sequence) => ({
          sequence,
          tokens: randomTokens(c.n_prompt, engine.n_vocab),
          output: "last" as const,
        })));
        done += c.n_prompt * c.n_seq;
      }
      let last = sequences.map(() => randomTokens(1, engine.n_vocab));
      if (drafter) done += await decodeDrafted(engine, drafter, sequences, last.map(([id]) => id), n);
      for (let i = 0; i < n && !drafter; i++) {
        const out = await engine.step(
          sequences.map((sequence, s) => ({ sequence, tokens: last[s], output: "last" as const })),
        );
        last = out.map((o) => o.ids.subarray(0, 1) as Int32Array<ArrayBuffer>);
        done += c.n_seq;
      }
      if (r >= 0) rates.push(done / (performance.now() - start) * 1000);
    } finally {
      for (const s of sequences) s.dispose();
    }
  }
  const drafts = drafter && before && {
    n_draft: drafter.counts.n_guesses - before.n_guesses,
    n_draft_accepted: drafter.counts.n_right - before.n_right,
  };
  return { ...c, rates, median: median(rates), ...drafts };
}

/** Greedy answers of `n` tokens each, with guesses. @returns tokens */
async function decodeDrafted(
  engine: Engine,
  drafter: Drafter,
  sequences: readonly Sequence[],
  first: readonly number[],
  n: number,
): Promise<number> {
  // One after the other: a step of several sequences with guesses is the server's.
  for (const [s, sequence] of sequences.entries()) {
    using steps = new DraftedSteps(engine, sequence, [first[s]], drafter);
    for (let left = n; left > 0;) {
      const out = await steps.next("candidates", left - 1);
      for (left--; steps.accept(out.ids[steps.row * engine.topK]) && left > 0; left--) steps.take();
      steps.judge();
    }
  }
  return n * sequences.length;
}

/** Weight bytes one token reads: matrices whole, and of routed experts those that are used. */
export function bytesPerToken(engine: Engine): number {
  const p = buildProgram(engine.model, { n_tok: 1, n_out: 1, n_seq: 1, n_page: 1 }, 1, 0);
  const bytes = new Map(engine.plan.weights.map((w) => [w.name, w.bytes]));
  let sum = 0;
  for (const op of p.ops) {
    if (op.op !== "MUL_MAT" && op.op !== "MUL_MAT_ID") continue;
    const w = p.tensors[op.src[0]];
    const part = op.op === "MUL_MAT_ID" ? p.tensors[op.src[2]].ne[0] / w.ne[2] : 1;
    sum += (bytes.get(p.weights[w.ref].name) ?? 0) * part;
  }
  return sum;
}
