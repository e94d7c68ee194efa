/**
 * Multiple-choice tasks, scored as `llama-perplexity` scores them: the option whose tokens have the highest mean log-probability is
 * the answer. What options share is computed once and forked.
 * @module
 */
import type { Engine } from "../core/engine/mod.ts";
import { EvalError } from "../core/errors.ts";
import type { Tokenizer } from "../core/tokenizer/mod.ts";
import type { ChoiceKind, ChoiceTask } from "./choice_files.ts";
import { Mersenne } from "./mersenne.ts";
import { inGroups } from "./score.ts";
import type { Estimate } from "./stats.ts";

/** Tasks of HellaSwag that are run where nobody says how many. */
export const HELLASWAG_TASKS = 400;
/** Where both of winogrande's endings have more tokens than this, the choice itself is not scored. */
const MIN_TRAILING = 3;
/** The 97.5 % point of the normal distribution, in the peer's digits. */
const Z = 1.95996398454;

/** A log-probability that a score needs: of `token`, after position `at` of an option's sequence. */
interface Ask {
  readonly sequence: number;
  readonly at: number;
  readonly token: number;
}

/** A task in a model's tokens. */
export interface PlannedTask {
  /** In its file, from 0. */
  readonly index: number;
  readonly right: readonly boolean[];
  readonly options: readonly Int32Array[];
  /** Tokens at the start that all options share; at least one. */
  readonly n_common: number;
  /** Whose mean is the score, for each option. */
  readonly asks: readonly (readonly Ask[])[];
  /** All tokens of it that are run, one after the other. */
  readonly ids: { readonly length: number };
}

/** What a model said to a task. */
export interface ChoiceResult {
  readonly index: number;
  /** Mean log-probability of each option, nats a token; null where an option has no token of its own. */
  readonly scores: readonly (number | null)[];
  readonly chosen: number;
  readonly right: boolean;
}

/** What a model knows of a set. */
export interface ChoiceSummary {
  readonly n_tasks: number;
  readonly n_right: number;
  /** Share of right answers. */
  readonly accuracy: Estimate;
  /** Wilson's interval of 95 %. */
  readonly interval: readonly [number, number];
  /** What guessing would give. */
  readonly chance: number;
}

/** The tasks that are run, as the peer draws `n` of them; all of them, in their order, where the set has no more. */
export function drawTasks(tasks: readonly ChoiceTask[], kind: ChoiceKind, n: number): [number, ChoiceTask][] {
  const left = [...tasks.entries()];
  if (n >= left.length) return left;
  const rng = new Mersenne(1);
  return Array.from({ length: n }, () => {
    if (kind === "hellaswag") return left.splice(rng.below(left.length), 1)[0];
    const at = rng.shareOf(left.length), drawn = left[at], last = left.pop()!;
    if (at < left.length) left[at] = last;
    return drawn;
  });
}

function commonStart(options: readonly Int32Array[]): number {
  const most = Math.min(...options.map((o) => o.length));
  let n = 0;
  while (n < most && options.every((o) => o[n] === options[0][n])) n++;
  return n;
}

/** Winogrande scores what follows the choice, but for the last token, and the choice too where little follows. */
function winograndeAsks(
  task: ChoiceTask,
  options: readonly Int32Array[],
  n_common: number,
  encode: (text: string) => Int32Array,
): Ask[][] {
  const skipChoice = options.every((o) => o.length - n_common > MIN_TRAILING);
  return options.map((ids, sequence) => {
    const from = skipChoice ? Math.max(n_common, encode(task.before + task.options[sequence]).length) : n_common;
    const to = ids.length - (ids.length - from > 1 ? 1 : 0);
    return Array.from({ length: Math.max(0, to - from) }, (_, i): Ask => {
      const token = ids[from + i];
      // The peer takes the first token of a second choice from the row behind the first option's end. Published scores have it so.
      if (!skipChoice && sequence === 1 && i === 0) return { sequence: 0, at: options[0].length - 1, token };
      return { sequence, at: from + i - 1, token };
    });
  });
}

/**
 * A task in tokens.
 * @throws {EvalError} `eval.task` where it has no common start, `eval.prompt_too_long`
 */
export function planTask(
  [index, task]: readonly [number, ChoiceTask],
  kind: ChoiceKind,
  tokenizer: Tokenizer,
  n_ctx: number,
): PlannedTask {
  const encode = (text: string) => tokenizer.encode(text, { addSpecial: true });
  const options = task.options.map((o) => encode(task.before + o + task.after));
  const shared = commonStart(options), shortest = Math.min(...options.map((o) => o.length));
  if (shared === 0) {
    throw new EvalError("eval.task", `Cannot score task ${index + 1}: its options have no common first token`, {
      at: { task: index + 1 },
      hint: "the first token of a text is context and predicted by nothing: put words before the options",
    });
  }
  const longest = Math.max(...options.map((o) => o.length));
  if (longest > n_ctx) {
    throw new EvalError(
      "eval.prompt_too_long",
      `Cannot score task ${index + 1}: it has ${longest} tokens, expected at most ${n_ctx}`,
      { at: { task: index + 1, got: longest, expected: n_ctx }, hint: `give --ctx-size ${longest} or more` },
    );
  }
  // An option that is the beginning of all others keeps a token to be scored.
  const n_common = kind === "winogrande" ? shared : Math.max(1, Math.min(shared, shortest - 1));
  const asks = kind === "winogrande"
    ? winograndeAsks(task, options, n_common, encode)
    : options.map((ids, sequence) =>
      Array.from(ids.subarray(n_common), (token, i): Ask => ({ sequence, at: n_common - 1 + i, token }))
    );
  const length = n_common - 1 + options.reduce((n, o) => n + o.length - n_common + 1, 0);
  return { index, right: task.right, options, n_common, asks, ids: { length } };
}

/** Runs tasks together. @returns mean log-probabilities, task by task and option by option */
async function scoreOptions(engine: Engine, tasks: readonly PlannedTask[]): Promise<number[][]> {
  using disposables = new DisposableStack();
  const starts = tasks.map(() => disposables.use(engine.createSequence()));
  const before = tasks.flatMap(({ options, n_common }, t) =>
    n_common === 1
      ? []
      : [{ sequence: starts[t], tokens: options[0].subarray(0, n_common - 1), output: "none" as const, keep: false }]
  );
  if (before.length > 0) await engine.step(before);
  const requests = tasks.flatMap(({ options, n_common, asks }, t) =>
    options.map((ids, o) => {
      const tokens = ids.subarray(n_common - 1);
      const targets = new Int32Array(tokens.length).fill(-1);
      for (const ask of asks.flat()) if (ask.sequence === o) targets[ask.at - n_common + 1] = ask.token;
      // The last option goes on with the common start itself.
      const sequence = o === options.length - 1 ? starts[t] : disposables.use(starts[t].fork());
      return { sequence, tokens, targets, output: "all" as const, keep: false };
    })
  );
  const outputs = await engine.step(requests);
  let first = 0;
  return tasks.map(({ options, n_common, asks }) => {
    const own = outputs.slice(first, first += options.length);
    return asks.map((of) =>
      of.reduce((s, { sequence, at }) => s + own[sequence].targetLogprob[at - n_common + 1], 0) / of.length
    );
  });
}

/** The first of the highest scores; one that is not a number is never higher, as in the peer's comparison. */
function bestOf(scores: readonly number[], kind: ChoiceKind): number {
  if (kind === "winogrande") return scores[0] > scores[1] ? 0 : 1;
  return scores.reduce((best, x, i) => x > scores[best] ? i : best, 0);
}

/**
 * Runs tasks in their order, several at once, and gives each one's result as it is done.
 * @param limits `n_seq`: sequences that the engine has room for, at least the options of a task
 * @throws {EvalError} `eval.non_finite` where the model has no probability to give
 */
export async function* runChoices(
  engine: Engine,
  tasks: readonly PlannedTask[],
  kind: ChoiceKind,
  limits: { readonly n_seq: number },
): AsyncGenerator<ChoiceResult, void> {
  const most = Math.max(1, ...tasks.map((t) => t.options.length));
  const n_seq = Math.max(1, Math.floor(limits.n_seq / most));
  for (const group of inGroups(tasks, { n_seq, n_ubatch: engine.n_ubatch })) {
    const scored = await scoreOptions(engine, group);
    for (const [i, task] of group.entries()) {
      const scores = scored[i];
      const bad = scores.findIndex((x, o) => task.asks[o].length > 0 && !Number.isFinite(x));
      if (bad >= 0) {
        throw new EvalError(
          "eval.non_finite",
          `Cannot score task ${task.index + 1}: option ${bad + 1} has the log-probability ${scores[bad]}`,
          { at: { task: task.index + 1, option: bad + 1, got: String(scores[bad]) }, hint: "the model is damaged" },
        );
      }
      const chosen = bestOf(scores, kind);
      yield {
        index: task.index,
        scores: scores.map((x) => Number.isNaN(x) ? null : x),
        chosen,
        right: task.right[chosen],
      };
    }
  }
}

/** Figures of a set. */
export function summarizeChoices(results: readonly ChoiceResult[]): ChoiceSummary {
  const n = results.length, n_right = results.filter((r) => r.right).length, p = n_right / n;
  const z = Z * Z / n, half = z * Math.sqrt(n * (4 * p * (1 - p) + z)) / (2 * Z);
  return {
    n_tasks: n,
    n_right,
    accuracy: { mean: p, se: n < 2 ? null : Math.sqrt(p * (1 - p) / (n - 1)) },
    interval: [(p + z / 2 - half) / (1 + z), (p + z / 2 + half) / (1 + z)],
    chance: n / results.reduce((s, r) => s + r.scores.length, 0),
  };
}
