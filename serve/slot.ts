/**
 * A slot is one seat of the server, with the tokens that its sequence has computed. A run is one job in progress.
 *
 * A run is a growing list of tokens, of which its sequence has computed the first `sequence.length`. Prompt and answer
 * are the same thing here: what is pending is computed, and when nothing is pending the last row predicts the next token.
 * A run can therefore lose its seat and continue in another one.
 * @module
 */
import type { Draft } from "../core/draft/drafter.ts";
import type { TokenSequence } from "../core/engine/types.ts";
import { sameAdapters } from "../core/program/adapter.ts";

/** One output row: the candidates of the next token. Views into a step's output: read them before the next step. */
export interface Row {
  /** Best first. */
  ids: Int32Array;
  logits: Float32Array;
  lse: number;
  /** Log-probability of the prompt's next token, in rows of the prompt. */
  targetLogprob: number;
  /** All logits, when the job wanted them. */
  full?: Float32Array;
}

/** Why a job ended. */
export type Outcome =
  | { kind: "stopped" } // its own decision
  | { kind: "length" } // maxTokens reached
  | { kind: "context" } // the context or the cache is full
  | { kind: "cancelled" } // its client disconnected
  | { kind: "failed"; error: unknown };

/** When things happened, in milliseconds of `performance.now()`. */
export interface JobTimes {
  submitted: number;
  /** First step that worked on it; 0 until then. */
  started: number;
  /** The whole prompt was computed; 0 until then. */
  prompted: number;
  ended: number;
}

/** Guessed tokens of a job. */
export interface JobGuesses {
  n_guesses: number;
  n_right: number;
}

/** A generation as the scheduler sees it: tokens in, decisions out. Callbacks are synchronous and must not throw. */
export interface Job {
  readonly prompt: Int32Array;
  /** Most tokens to generate; `prompt.length + maxTokens <= n_ctx`. 0 computes the prompt only. */
  readonly maxTokens: number;
  /** May start from tokens that some slot has computed already. */
  readonly cachePrompt: boolean;
  /** Wants `onPromptRow` for every position of the prompt; implies a prompt computed from the start. */
  readonly promptRows: boolean;
  readonly want: "candidates" | "logits";
  /** Tokens may be guessed, where the server does that: the same tokens in fewer steps. */
  readonly speculative: boolean;
  /** Only this slot will do. */
  readonly slotId?: number;
  /** How much of each of the model's adapters; none where left out. */
  readonly adapters?: readonly number[] | undefined;
  /** Its answer has a new line by now. */
  readonly hasNewLine?: boolean;
  /** Settings to show whoever looks at the slot. */
  readonly settings?: Readonly<Record<string, unknown>> | undefined;
  /** Where the context is full, older tokens go and the answer continues; else it ends. */
  readonly shift?: ContextShift | undefined;
  /** An earlier job with the same prompt: this one waits for it and reuses the computed prompt. */
  readonly after?: Job | undefined;
  /** Got a seat; `n_cached` tokens of the prompt need not be computed. */
  onStart(slotId: number, n_cached: number): void;
  /** `n_processed` tokens of the prompt are computed, the cached ones among them. */
  onProgress?(n_processed: number): void;
  /** The row at `position` of the prompt, which predicts the token at `position + 1`. */
  onPromptRow(position: number, row: Row): void;
  /** Chooses the next token. `stop` ends the job with this token as its last. */
  onRow(row: Row): { token: number; stop: boolean };
  /** Tokens of its context went. */
  onShift?(): void;
  onEnd(outcome: Outcome, times: JobTimes, guesses: JobGuesses): void;
}

/** What goes where a context is full. */
export interface ContextShift {
  /** First tokens that stay. */
  n_keep: number;
  /** Tokens behind them that go; 0 = half of them. */
  n_discard: number;
}

/** A job between submission and end. */
export class Run {
  readonly id: number;
  readonly job: Job;
  /** Prompt and generated tokens. */
  readonly tokens: number[];
  readonly times: JobTimes;
  n_generated = 0;
  /** Prompt tokens found in a cache at the first start. */
  n_cached = 0;
  cancelled = false;
  /** Its context was shifted, so its tokens no longer begin with the prompt. */
  shifted = false;
  /** What guesses its tokens. */
  draft: Draft | undefined;
  /** Tokens that may come next. */
  guesses: readonly number[] = [];
  /** Tokens to be computed again, because guesses behind them were wrong. */
  n_owed = 0;
  /** Lost its seat because the cache was full; waits until another run ends. */
  parked = false;
  /** The run that computes a prompt for this one: that of `job.after`, or one that is scored and begins alike. */
  readonly leader: Run | undefined;
  /** Scored runs that wait for the beginning of this one's prompt. */
  readonly followers: Run[] = [];
  /** The rows of the prompt's beginning: copies for followers, and what a follower was given. */
  rows: Row[] = [];
  /** The beginning of the prompt, as the leader computed it. */
  beginning: TokenSequence | undefined;

  constructor(id: number, job: Job, leader?: Run) {
    this.id = id;
    this.job = job;
    this.leader = leader;
    if (job.promptRows) leader?.followers.push(this);
    this.tokens = Array.from(job.prompt);
    this.times = { submitted: performance.now(), started: 0, prompted: 0, ended: 0 };
  }

  /** Tokens of the prompt that another one shares from the start, where its rows can be taken over; else 0. */
  sharedRows({ promptRows, want, prompt, adapters }: Job): number {
    const { job } = this;
    if (!promptRows || !job.promptRows || want !== "candidates" || job.want !== "candidates") return 0;
    if (!sameAdapters(adapters ?? [], job.adapters ?? [])) return 0;
    let n = 0;
    while (n < prompt.length && n < job.prompt.length && prompt[n] === job.prompt[n]) n++;
    return n;
  }

  /** Gives followers what they share, when the prompt is computed. The last shared token is theirs: its row predicts another one. */
  handOver(sequence: TokenSequence): void {
    for (const run of this.followers.splice(0)) {
      if (run.times.ended > 0) continue;
      const n = sequence.reach(this.sharedRows(run.job) - 1);
      if (n === 0) continue;
      run.beginning = sequence.fork();
      run.beginning.truncate(n);
      run.rows = this.rows.slice(0, n);
    }
    this.rows = [];
  }

  /** Drops what a leader gave: the prompt is computed from its start. */
  dropBeginning(): void {
    this.beginning?.dispose();
    this.beginning = undefined;
    this.rows = [];
  }

  /** Its leader has not computed their common prompt yet. */
  get follows(): boolean {
    return this.leader !== undefined && this.leader.times.prompted === 0 && this.leader.times.ended === 0;
  }

  /**
   * Drops tokens of a full context. The rest moves to other positions, so all of it has to be computed again from there: keys
   * are turned by their position, and rows saw what is gone.
   * @returns tokens that stay where they are
   */
  shift({ n_keep, n_discard }: ContextShift): number {
    const keep = Math.min(n_keep, this.tokens.length - 2);
    const left = this.tokens.length - keep;
    const discard = Math.min(n_discard > 0 ? n_discard : Math.floor(left / 2), left - 1);
    this.tokens.splice(keep, discard);
    this.shifted = true;
    this.job.onShift?.();
    return keep;
  }

  end(outcome: Outcome): void {
    this.times.ended = performance.now();
    this.dropBeginning();
    this.job.onEnd(outcome, this.times, { n_guesses: this.draft?.n_guesses ?? 0, n_right: this.draft?.n_right ?? 0 });
    this.draft?.[Symbol.dispose]();
  }
}

/** A seat. Idle when `run` is undefined; its sequence then is a cache for the next prompt. */
export class Slot {
  readonly id: number;
  sequence: TokenSequence | undefined;
  run: Run | undefined;
  /** The computed tokens, at least `sequence.length` of them. Shared with the run while there is one. */
  tokens: number[] = [];
  /** Grows with each use; the smallest is the least recently used. */
  lastUse = 0;
  /** The run at work, or the last one. */
  latest: Run | undefined;

  constructor(id: number) {
    this.id = id;
  }

  /** Tokens computed and kept. */
  get n_computed(): number {
    return this.sequence?.length ?? 0;
  }

  /** Tokens of the run still to be computed. */
  get n_pending(): number {
    return this.run === undefined ? 0 : this.run.tokens.length - this.n_computed;
  }

  /** The prompt is computed, and what is pending gives the next token at once. */
  get isAnswering(): boolean {
    return this.run !== undefined && this.n_pending === 1 + this.run.n_owed;
  }

  /** Length of the prefix that the computed tokens share with `tokens`, if they were computed with the same adapters. */
  commonPrefix(tokens: ArrayLike<number>, adapters: readonly number[] = []): number {
    if (!sameAdapters(this.sequence?.adapters ?? [], adapters)) return 0;
    const n = Math.min(this.n_computed, tokens.length);
    let i = 0;
    while (i < n && this.tokens[i] === tokens[i]) i++;
    return i;
  }

  /** Frees the seat and keeps the computed tokens as a cache. */
  release(): void {
    this.run = undefined;
    this.tokens = this.tokens.slice(0, this.n_computed);
  }

  /** Frees the cache. */
  forget(): void {
    this.sequence?.dispose();
    this.sequence = undefined;
    this.tokens = [];
  }
}
