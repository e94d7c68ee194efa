/**
 * Answers with guesses, row by row, for comparison with the plain answer; and a proposer whose guesses are right as often as wanted.
 * @module
 */
import { Drafter } from "../core/draft/drafter.ts";
import type { DraftAsk, DraftSeat, Proposer } from "../core/draft/proposer.ts";
import { DraftedSteps } from "../core/draft/steps.ts";
import type { Engine } from "../core/engine/mod.ts";
import { Sampler, type SamplingParams } from "../core/sampling/mod.ts";
import { random } from "./ops/case.ts";

/** Knows how answers go on. A guess is right with a probability; of a run of guesses there are any number up to what is asked. */
export class Oracle implements Proposer {
  readonly name = "oracle";
  readonly #next: () => number;

  constructor(
    readonly texts: readonly (readonly number[])[],
    readonly acceptance: number,
    readonly n_vocab: number,
    seed = 1,
  ) {
    this.#next = random(seed, "oracle");
  }

  open(): DraftSeat {
    return { dispose: () => {} };
  }

  propose(asks: readonly DraftAsk[]): Promise<number[][]> {
    const guess = (token: number) => this.#next() < this.acceptance ? token : (token + 1) % this.n_vocab;
    return Promise.resolve(asks.map(({ tokens, n }) => {
      const width = Math.floor(this.#next() * (n + 1));
      const text = this.texts.find((t) => tokens.every((id, i) => t[i] === id)) ?? [];
      return text.slice(tokens.length, tokens.length + width).map(guess);
    }));
  }

  [Symbol.dispose](): void {}
}

/** What an answer is made of, to the bit. */
export interface Told {
  readonly ids: number[];
  /** Logits of each row, and its log-sum-exp. */
  readonly rows: Float32Array[];
  readonly n_steps: number;
  /** Rows of `after`, which is run behind the answer. */
  readonly after: Float32Array;
}

/** Generates `n` tokens. */
export async function tell(
  engine: Engine,
  prompt: readonly number[],
  n: number,
  options: { sampling?: Partial<SamplingParams>; drafter?: Drafter; after?: readonly number[] } = {},
): Promise<Told> {
  using sequence = engine.createSequence();
  const sampler = new Sampler({ temperature: 0, ...options.sampling }, engine.n_vocab);
  for (const id of prompt) sampler.accept(id);
  using steps = new DraftedSteps(engine, sequence, prompt, options.drafter);
  const ids: number[] = [], rows: Float32Array[] = [];
  let n_steps = 0;
  while (ids.length < n) {
    const out = await steps.next("logits", n - ids.length - 1);
    n_steps++;
    while (true) {
      const row = out.full!.slice(steps.row * engine.n_vocab, (steps.row + 1) * engine.n_vocab);
      rows.push(Float32Array.of(...row, out.lse[steps.row]));
      const { token } = sampler.sample(row);
      sampler.accept(token);
      ids.push(token);
      if (!steps.accept(token) || ids.length === n) break;
      steps.take();
    }
    steps.judge();
  }
  await steps.settle();
  const after = options.after ?? [ids[ids.length - 1]];
  const [out] = await engine.step([{ sequence, tokens: after, output: "all", want: "logits" }]);
  return { ids, rows, n_steps, after: out.full! };
}

/** A drafter whose guesses are right with a probability, in runs of any length up to `max`. */
export function oracle(engine: Engine, text: readonly number[], acceptance: number, max = 6): Drafter {
  return new Drafter(new Oracle([text], acceptance, engine.n_vocab), { max, fixed: true });
}
