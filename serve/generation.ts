/**
 * One answer: the job that the scheduler runs, and the stream of text that a route reads.
 *
 * Tokens become bytes, bytes become text (never half a character), the answer's text passes the stop strings (never part
 * of one), and text that is certain becomes an event. A token's record travels with the event that shows the beginning of
 * its text.
 * @module
 */
import { StopMatcher } from "../core/chat/stop.ts";
import type { AnswerTracker } from "../core/chat/tracker.ts";
import { Utf8Stream } from "../core/chat/utf8_stream.ts";
import type { Sampler, TokenProb } from "../core/sampling/mod.ts";
import type { AnswerConstraint } from "./answer_constraint.ts";
import type { LineLimits } from "./line_limits.ts";
import { clamp, logprobOf, type TokenLogprob, type TokenRecord, topOf } from "./logprobs.ts";
import type { ServedModel } from "./language_model.ts";
import type { ReasoningBudget } from "./reasoning_budget.ts";
import type { ContextShift, Job, JobGuesses, JobTimes, Outcome, Row } from "./slot.ts";

export interface GenerationOptions {
  prompt: Int32Array;
  /** Most tokens of the answer, already fitted to the context. */
  maxTokens: number;
  /** The context sets that limit, not the request: an answer that reaches it is cut off. */
  fitted?: boolean | undefined;
  sampler: Sampler;
  stops: readonly string[];
  /** Rivals recorded per token; undefined records no log-probabilities. */
  n_probs?: number | undefined;
  /** Records also tell the probabilities behind all stages of the sampler. */
  postProbs?: boolean | undefined;
  /** Events tell how much of the prompt is computed. */
  progress?: boolean | undefined;
  /** What goes where the context is full; else the answer ends there. */
  shift?: ContextShift | undefined;
  /** Ends the answer by its lines. */
  lines?: LineLimits | undefined;
  /** Log-probabilities of the prompt's tokens too. */
  promptLogprobs?: boolean | undefined;
  cachePrompt?: boolean | undefined;
  /** How much of each of the model's adapters. */
  adapters?: readonly number[] | undefined;
  /** Tokens may be guessed; default: true. */
  speculative?: boolean | undefined;
  slotId?: number | undefined;
  /** The form that the answer must have. */
  constraint?: AnswerConstraint | undefined;
  /** Tells constraint, budget and stop strings the place in the answer. */
  tracker?: AnswerTracker | undefined;
  /** Ends the reasoning after so many tokens. */
  budget?: ReasoningBudget | undefined;
  /** Settings to show whoever looks at the slot. */
  settings?: Readonly<Record<string, unknown>> | undefined;
  /** Control tokens that show their text. */
  shown?: ReadonlySet<number> | undefined;
}

/** How an answer ended. */
export interface GenerationEnd {
  type: "end";
  stopType: "eos" | "word" | "limit";
  /** The stop string that was met, else "". */
  stoppingWord: string;
  /** Ended because the context was full, or was shifted. */
  truncated: boolean;
  /** Generated tokens, the one that ended the answer included. */
  n_generated: number;
}

/** How far the prompt is, in tokens; of `total`, `cache` needed no computing. */
export interface PromptProgress {
  type: "progress";
  total: number;
  cache: number;
  /** The cached ones among them. */
  processed: number;
  time_ms: number;
}

export type GenerationEvent =
  | { type: "text"; text: string; tokens: TokenRecord[] }
  | PromptProgress
  | GenerationEnd;

/** Thrown to the reader of a generation whose client disconnected. */
export class GenerationCancelled extends Error {}

export class Generation implements Job {
  readonly prompt: Int32Array;
  readonly maxTokens: number;
  readonly cachePrompt: boolean;
  readonly promptRows: boolean;
  readonly speculative: boolean;
  readonly slotId?: number;
  readonly adapters: readonly number[] | undefined;
  readonly shift: ContextShift | undefined;
  readonly settings: Readonly<Record<string, unknown>> | undefined;
  /** The seed in use, drawn where the request named none. */
  readonly seed: number;
  hasNewLine = false;
  /** The slot it got, -1 before. */
  slot = -1;
  /** Prompt tokens that were in the cache. */
  n_cached = 0;
  n_generated = 0;
  /** Of these, reasoning and its tags, where the request's tracker splits them off. */
  n_reasoning = 0;
  times: JobTimes = { submitted: 0, started: 0, prompted: 0, ended: 0 };
  guesses: JobGuesses = { n_guesses: 0, n_right: 0 };
  /** `[prompt.length]` when asked for; the first has no predecessor and stays empty. */
  readonly promptLogprobs: ({ logprob: number; top: TokenLogprob[] } | undefined)[] = [];

  readonly #model: ServedModel;
  readonly #options: GenerationOptions;
  readonly #stop: StopMatcher;
  readonly #utf8 = new Utf8Stream();
  /** Text that may turn out to be reasoning, where stop strings are not looked for. */
  #waiting = "";
  /** Length of the text before it; undefined once all further text is answer. */
  #n_passed: number | undefined;
  /** Tokens whose text has not begun to show. */
  #records: TokenRecord[] = [];
  #n_decoded = 0; // code points decoded so far
  #n_shown = 0; //   code points handed out so far
  readonly #wholeRow: boolean;
  #scratch: Float32Array | undefined;
  #eog = false;
  #shifted = false;
  #stopWord: string | undefined;
  /** A limit of its lines ended it. */
  #lineEnded = false;
  #events: GenerationEvent[] = [];
  #failure: unknown;
  #over = false;
  #notify: () => void = () => {};
  readonly #ended = Promise.withResolvers<void>();

  /** @param after An answer to the same prompt, which is computed once for both. */
  constructor(model: ServedModel, options: GenerationOptions, readonly after?: Generation) {
    this.#model = model;
    this.#options = options;
    this.prompt = options.prompt;
    this.maxTokens = options.maxTokens;
    this.seed = options.sampler.seed;
    this.settings = options.settings && { ...options.settings, seed: this.seed };
    this.shift = options.shift;
    this.adapters = options.adapters;
    this.cachePrompt = options.cachePrompt ?? true;
    this.speculative = options.speculative ?? true;
    this.promptRows = options.promptLogprobs ?? false;
    if (options.slotId !== undefined) this.slotId = options.slotId;
    const { topK } = model.engine;
    const enough = options.sampler.candidatesEnough; // 0: nothing less than the whole row
    // A token that a budget says for the model may be none of the candidates, and its log-probability is wanted too.
    const said = options.n_probs !== undefined && options.budget !== undefined;
    this.#wholeRow = enough === 0 || enough > topK || (options.n_probs ?? 0) > topK || said;
    this.#stop = new StopMatcher(options.stops);
    if (options.tracker !== undefined && options.stops.length > 0) this.#n_passed = 0;
  }

  /** Resolves when it has ended, however. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  get want(): "candidates" | "logits" {
    return this.#wholeRow || this.#options.constraint?.active ? "logits" : "candidates";
  }

  onStart(slotId: number, n_cached: number): void {
    this.slot = slotId;
    this.n_cached = n_cached;
    this.times = { ...this.times, started: performance.now() };
    this.onProgress(n_cached);
    for (const token of this.prompt) this.#options.sampler.accept(token);
  }

  onProgress(n_processed: number): void {
    if (!this.#options.progress) return;
    const time_ms = performance.now() - this.times.started;
    const { length: total } = this.prompt;
    this.#events.push({ type: "progress", total, cache: this.n_cached, processed: n_processed, time_ms });
    this.#notify();
  }

  onPromptRow(position: number, row: Row): void {
    if (position + 1 >= this.prompt.length) return;
    const top = topOf(row, this.#options.n_probs ?? 0);
    this.promptLogprobs[position + 1] = { logprob: clamp(row.targetLogprob), top };
  }

  onRow(row: Row): { token: number; stop: boolean } {
    const { constraint, budget, tracker, shown, n_probs, postProbs } = this.#options;
    if (this.times.prompted === 0) this.times = { ...this.times, prompted: performance.now() };
    const { token, drawn } = this.#choose(row);
    this.n_generated++;
    if (this.#model.tokenizer.eogIds.has(token)) {
      this.#eog = true;
      // A scorer counts one generated token behind the prompt's, whichever it is.
      if (this.promptRows) {
        this.#records.push({
          id: token,
          offset: this.#n_decoded,
          logprob: logprobOf(row, token),
          top: topOf(row, n_probs ?? 0),
        });
      }
      return { token, stop: true };
    }
    this.#records.push({
      id: token,
      offset: this.#n_decoded,
      logprob: n_probs === undefined ? 0 : logprobOf(row, token),
      top: n_probs === undefined ? [] : topOf(row, n_probs),
      ...(postProbs && n_probs !== undefined ? { post: this.#post(token, drawn, n_probs) } : {}),
    });
    const bytes = this.#model.tokenizer.pieceBytes(token, shown?.has(token) ?? false);
    const inReasoning = () => tracker?.place === "reasoning";
    const reasoned = inReasoning();
    const text = tracker === undefined ? this.#utf8.push(bytes) : tracker.push(bytes);
    if (reasoned || inReasoning()) this.n_reasoning++;
    constraint?.accept(token);
    budget?.accept(token);
    const stop = this.#show(text);
    if (constraint?.finished) this.#eog = true; // an end token is all that could follow
    return { token, stop: stop || this.#eog };
  }

  #post(token: number, drawn: boolean, n: number): { prob: number; top: TokenProb[] } {
    if (drawn) return this.#options.sampler.lastDraw(token, n);
    return { prob: 1, top: n > 0 ? [{ id: token, prob: 1 }] : [] };
  }

  /** The next token, and whether the sampler drew it. */
  #choose(row: Row): { token: number; drawn: boolean } {
    const { sampler, constraint, budget } = this.#options;
    // A form is never in force within reasoning, so the budget has nothing to end.
    let token = constraint?.active ? undefined : budget?.next();
    const drawn = token === undefined;
    if (token !== undefined) {
      // Said for the model.
    } else if (constraint?.active) {
      const masked = this.#scratch ??= new Float32Array(row.full!.length);
      masked.set(row.full!);
      constraint.apply(masked);
      token = sampler.sample(masked).token;
    } else {
      ({ token } = row.full === undefined
        ? sampler.sampleCandidates(row.ids, row.logits, row.lse)
        : sampler.sample(row.full));
    }
    sampler.accept(token);
    return { token, drawn };
  }

  onShift(): void {
    this.#shifted = true;
  }

  onEnd(outcome: Outcome, times: JobTimes, guesses: JobGuesses): void {
    this.times = times;
    this.guesses = guesses;
    this.#over = true;
    this.#ended.resolve();
    if (outcome.kind === "failed") this.#failure = outcome.error;
    else if (outcome.kind === "cancelled") this.#failure = new GenerationCancelled("the client left");
    else this.#close(outcome.kind === "context" || (outcome.kind === "length" && (this.#options.fitted ?? false)));
    this.#notify();
  }

  /** The answer as it comes; ends after the `end` event, throws what went wrong. For one reader. */
  async *[Symbol.asyncIterator](): AsyncGenerator<GenerationEvent, void, void> {
    while (true) {
      const batch = this.#events.splice(0);
      if (batch.length > 0) yield* batch;
      else if (this.#failure !== undefined) throw this.#failure;
      else if (this.#over) return;
      else await new Promise<void>((resolve) => this.#notify = resolve);
    }
  }

  /** Passes decoded text on. True when a stop string was met. */
  #show(decoded: string): boolean {
    this.#n_decoded += codePoints(decoded);
    const { text, stopped } = this.#stop.push(this.#answerOf(decoded));
    const kept = this.#options.lines?.push(text) ?? { text, ended: false };
    this.#lineEnded = kept.ended;
    if (!kept.ended) this.#stopWord = stopped;
    this.#emit(kept.text);
    return kept.ended || stopped !== undefined;
  }

  /** Emits the reasoning and returns the rest, in which stop strings are looked for. */
  #answerOf(decoded: string): string {
    if (this.#n_passed === undefined) return decoded;
    this.#waiting += decoded;
    const { place, shownFrom } = this.#options.tracker!;
    if (place === "start" && shownFrom === undefined) return "";
    const n = shownFrom === undefined ? this.#waiting.length : Math.max(0, shownFrom - this.#n_passed);
    this.#emit(this.#waiting.slice(0, n));
    const rest = this.#waiting.slice(n);
    this.#waiting = "";
    this.#n_passed = shownFrom === undefined ? this.#n_passed + n : undefined;
    return rest;
  }

  #emit(text: string): void {
    if (text === "") return;
    this.#n_shown += codePoints(text);
    this.hasNewLine ||= text.includes("\n");
    const begun = this.#records.findIndex((record) => record.offset >= this.#n_shown);
    const tokens = this.#records.splice(0, begun < 0 ? this.#records.length : begun);
    this.#events.push({ type: "text", text, tokens });
    this.#notify();
  }

  /** Everything held back comes out, unless a stop string cut it off; then the end. */
  #close(truncated: boolean): void {
    const { tracker } = this.#options;
    // Half a character is U+FFFD.
    const cut = this.#stopWord !== undefined || this.#lineEnded || this.#show(tracker?.finish() ?? this.#utf8.end());
    if (!cut) {
      this.#emit(this.#waiting);
      this.#emit(this.#stop.flush());
      // Tokens without text of their own, e.g. hidden control tokens, come last.
      if (this.#records.length > 0) this.#events.push({ type: "text", text: "", tokens: this.#records.splice(0) });
    }
    this.#events.push({
      type: "end",
      stopType: this.#stopWord !== undefined ? "word" : this.#eog ? "eos" : "limit",
      stoppingWord: this.#stopWord ?? "",
      truncated: truncated || this.#shifted,
      n_generated: this.n_generated,
    });
  }
}

/** Length in code points, which is what clients in other languages count. */
export function codePoints(text: string): number {
  let n = text.length;
  for (let i = 0; i < text.length - 1; i++) {
    const c = text.charCodeAt(i);
    if (c >= 0xd800 && c <= 0xdbff) n--;
  }
  return n;
}
