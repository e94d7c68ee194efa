/**
 * What a served model is to the server: an engine, a tokenizer, a chat format and a sampler maker. Structural types only,
 * so that the server runs on any engine that keeps these promises, a test's included.
 * @module
 */
import type { AnswerTracker } from "../core/chat/tracker.ts";
import type { Rules } from "../core/sampling/grammar/expr.ts";
import type { ReasoningFormat } from "../core/chat/mod.ts";
import type { SamplingParams } from "../core/sampling/mod.ts";
import type { Tokenizer as CoreTokenizer } from "../core/tokenizer/types.ts";

/** One conversation's tokens in the cache. Owned by whoever created it. */
export interface Sequence {
  /** Tokens computed so far. */
  readonly length: number;
  /** Forgets everything from token `n` on. */
  truncate(n: number): void;
  /** A second sequence with the same tokens; pages are shared. */
  fork(): Sequence;
  /** Gives the pages back. */
  dispose(): void;
}

/** The tokens one sequence gets in a step. */
export interface StepRequest<S extends Sequence = Sequence> {
  sequence: S;
  tokens: ArrayLike<number>;
  /** Which of the tokens give an output row. */
  output: "none" | "last" | "all";
  /** Whether the whole row of logits comes back too. */
  want?: "candidates" | "logits";
  /** Tokens to score, one per output row, -1 for none. */
  targets?: ArrayLike<number>;
}

/** What one request of a step gave, row by row. */
export interface StepOutput {
  n_rows: number;
  /** `[n_rows, topK]`, best first. */
  ids: Int32Array;
  /** `[n_rows, topK]`, the logits of `ids`. */
  logits: Float32Array;
  /** `[n_rows]`, log-sum-exp over the whole row. */
  lse: Float32Array;
  /** `[n_rows]`, log-probability of each row's target. */
  targetLogprob: Float32Array;
  /** `[n_rows, n_vocab]` when `want` was "logits". */
  full?: Float32Array;
}

/** The forward pass over many sequences. One `step` at a time. */
export interface Engine<S extends Sequence = Sequence> {
  readonly n_vocab: number;
  /** Most tokens of one sequence. */
  readonly n_ctx: number;
  /** Most tokens of one step. */
  readonly n_ubatch: number;
  /** Candidates of an output row. */
  readonly topK: number;
  createSequence(): S;
  /** @throws EngineError `engine.no_pages` when the cache is full: then no sequence has changed. */
  step(requests: readonly StepRequest<S>[]): Promise<StepOutput[]>;
}

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

/** Text to ids and back: the part of a tokenizer that a server needs. */
export type Tokenizer = Pick<
  CoreTokenizer,
  "n_vocab" | "model" | "bos" | "eos" | "eogIds" | "encode" | "pieceBytes" | "decode" | "isControl"
>;

/** A conversation as the template sees it. */
export interface ChatInput {
  messages: Record<string, unknown>[];
  tools?: unknown[];
  addGenerationPrompt: boolean;
  /** Goes on with the last message instead of opening a new one. */
  continueFinal: boolean;
  kwargs: Record<string, unknown>;
}

/** How one answer is read back. */
export interface ParserInput {
  reasoningFormat: ReasoningFormat;
  /** `deepseek-legacy` differs in streams. */
  stream: boolean;
  /** The tools of the request; none: nothing is read as a call. */
  tools?: unknown[];
  parallelToolCalls: boolean;
  /** The prompt's end opened a reasoning block, as `render` said. */
  inReasoning: boolean;
}

export const REASONING_FORMATS = ["none", "auto", "deepseek", "deepseek-legacy"] as const;

/** A piece of an answer as it streams. */
export interface ChatDelta {
  content?: string;
  reasoning_content?: string;
  /** `id` and `name` come once, first; `arguments` grows. */
  tool_call?: { index: number; id?: string; name?: string; arguments: string };
  /** The content looks like a call that could not be read, or the call's arguments are no JSON. */
  malformed?: boolean;
}

/** Splits model text into content, reasoning and tool calls, whatever the chunk boundaries. */
export interface OutputParser {
  push(text: string): ChatDelta[];
  finish(): ChatDelta[];
}

/** A prompt, and what its end says of reasoning. */
export interface RenderedChat {
  prompt: string;
  /** The prompt's end opened a reasoning block. */
  inReasoning: boolean;
  /** The answer may open one: the family has such, its template speaks of it, and the prompt has not closed it. */
  mayReason: boolean;
}

/** The model's chat template and the reading of its answers. */
export interface ChatFormat {
  /** The template's source. */
  readonly source: string;
  /** @throws TextError `text.template_refused` with the template's own words. */
  render(input: ChatInput): RenderedChat;
  createParser(input: ParserInput): OutputParser;
  /** Follows an answer while it is generated. */
  createTracker(input: ParserInput): AnswerTracker;
  /**
   * The grammar of an answer that is a call of one of the tools, or several where `many`; undefined where calls of this
   * family cannot be put in one.
   * @throws TextError for parameters of a tool that cannot be compiled.
   */
  callRules(tools: readonly unknown[], many: boolean): Rules | undefined;
  /** Texts that a call begins with; none where calls have no form. */
  readonly callTriggers: readonly string[];
  /** Tags around the reasoning of this family, where it has such. */
  readonly reasoningTags: { start: string; end: string } | undefined;
  /** Control tokens whose text the parser needs. */
  readonly preservedTokens: ReadonlySet<number>;
  /** Strings that end an answer besides the end-of-generation ids. */
  readonly stops: readonly string[];
}

/** Everything the server needs to know of a model. */
export interface ServedModel {
  /** The name clients see. */
  readonly id: string;
  /** Where it came from, as /props shows it. */
  readonly path: string;
  /** Unix seconds, for /v1/models. */
  readonly created: number;
  /** Facts for clients. */
  readonly meta: {
    architecture: string;
    n_ctx_train: number;
    n_embd: number;
    n_params: number;
    /** Bytes of the weights. */
    size: number;
    /** `tokenizer.ggml.model`. */
    vocab_type: string;
    /** Quantization name, e.g. `Q4_K_M`. */
    ftype?: string;
  };
  /** @internal */
  readonly engine: Engine;
  /** @internal */
  readonly tokenizer: Tokenizer;
  /** @internal */
  readonly chat: ChatFormat;
  /** What the model recommends; requests override it. */
  readonly sampling: Partial<SamplingParams>;
}
