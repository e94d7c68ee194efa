/**
 * A model file with everything that runs it: engine, tokenizer and chat template; and generation of one text at a time.
 * The server schedules many at once and does not use this.
 * @module
 */
import { ChatFormat, type ChatPrompt } from "./chat/format.ts";
import type { ChatMessage } from "./chat/messages.ts";
import type { Drafter } from "./draft/drafter.ts";
import { DraftedSteps } from "./draft/steps.ts";
import { Engine, type EngineOptions, type Sequence, type StepOutput } from "./engine/mod.ts";
import { EngineError, TextError } from "./errors.ts";
import type { ModelSource } from "./arch/mod.ts";
import { openGguf } from "./gguf/read.ts";
import type { Backend } from "./program/backend.ts";
import { defaultSampling, Sampler, type SamplingParams } from "./sampling/mod.ts";
import { type Grammar, GrammarMatcher, VocabTrie } from "./sampling/grammar/mod.ts";
import { hasVocabulary, type Tokenizer, tokenizerByIds, tokenizerFromGguf } from "./tokenizer/mod.ts";

/** How a model is set up. */
export interface LanguageModelOptions extends EngineOptions {
  /**
   * Called when the vocabulary, the template and the context are known and no weight is loaded yet: what it throws saves the
   * time of loading. The model cannot generate before `load` has ended.
   */
  readonly beforeWeights?: (model: LanguageModel) => void | Promise<void>;
}

/** How text is generated. */
export interface GenerateOptions {
  /** The most new tokens; default: as many as the context holds. */
  readonly maxTokens?: number;
  /** Differences from `defaultSampling`. */
  readonly sampling?: Partial<SamplingParams>;
  /**
   * The form that the text must have.
   * @internal
   */
  readonly grammar?: Grammar;
  /** Ends the generation. */
  readonly signal?: AbortSignal;
  /** Go on after the tokens this sequence holds, and leave it holding the new ones. */
  readonly sequence?: Sequence;
  /** Guesses tokens, so that a step may give several. The answer is the same. */
  readonly drafter?: Drafter | undefined;
}

/** How an answer is generated. */
export interface ChatOptions extends GenerateOptions {
  /** OpenAI tools that the model may call. */
  readonly tools?: unknown[];
  /** Template variables such as `enable_thinking`. */
  readonly kwargs?: Record<string, unknown>;
}

/** Why generation ended: an end token, `maxTokens`, a full context, or the signal. */
export type StopReason = "end" | "limit" | "context" | "aborted";

/** A generated token. */
export interface Piece {
  /** Token id. */
  readonly id: number;
  /** Text that became certain with it; may be empty. */
  readonly text: string;
}

/** A model with its vocabulary and templates: text in, text out. Hold it with `using`. */
export class LanguageModel implements Disposable {
  #trie: VocabTrie | undefined;

  private constructor(
    readonly file: ModelSource,
    readonly engine: Engine,
    readonly tokenizer: Tokenizer,
    /** The model's way of chatting; undefined when the file has no template. */
    readonly format: ChatFormat | undefined,
  ) {}

  /**
   * Plans and loads a model on a backend's device.
   * @param from A GGUF file's path, or a model that is open already; it is closed with the result, and on an error.
   */
  static async load(
    from: string | ModelSource,
    backend: Backend,
    options: LanguageModelOptions = {},
  ): Promise<LanguageModel> {
    const file = typeof from === "string" ? openGguf(from) : from;
    let engine: Engine | undefined;
    try {
      const { metadata } = file;
      const tokenizer = hasVocabulary(metadata)
        ? tokenizerFromGguf(metadata)
        : tokenizerByIds(metadata, file.tensor("token_embd.weight").ne[1] ?? 1);
      const format = readFormat(file, tokenizer);
      engine = Engine.plan(file, backend, options);
      const model = new LanguageModel(file, engine, tokenizer, format);
      await options.beforeWeights?.(model);
      await engine.loadWeights(options.onProgress);
      return model;
    } catch (error) {
      engine?.[Symbol.dispose]();
      file.close();
      throw error;
    }
  }

  /**
   * Generates after a prompt.
   * @param prompt Text (special tokens recognised, bos as the vocabulary says) or token ids, taken as they are.
   * @returns why it ended, as the generator's own result.
   * @throws {EngineError} `engine.context_full` when the prompt leaves no room for an answer
   */
  async *generate(
    prompt: string | ArrayLike<number>,
    options: GenerateOptions = {},
  ): AsyncGenerator<Piece, StopReason> {
    const { engine, tokenizer } = this;
    const own = options.sequence === undefined;
    const sequence = options.sequence ?? engine.createSequence();
    try {
      const ids = typeof prompt === "string"
        ? tokenizer.encode(prompt, { addSpecial: sequence.length === 0, parseSpecial: true })
        : prompt;
      if (ids.length === 0) {
        throw new TextError(
          "text.empty_prompt",
          "Cannot generate after an empty prompt: found 0 tokens, expected at least 1",
        );
      }
      const sampler = new Sampler({ ...this.samplingDefaults(), ...options.sampling }, engine.n_vocab);
      for (let i = 0; i < ids.length; i++) sampler.accept(ids[i]);
      const stream = tokenizer.stream();
      const form = options.grammar && new GrammarMatcher(options.grammar, this.#vocab());
      const few = sampler.candidatesEnough > 0 && sampler.candidatesEnough <= engine.topK;
      const want = few && form === undefined ? "candidates" : "logits";
      const room = this.roomAfter(sequence.length + ids.length, options);
      const wanted = options.maxTokens ?? Infinity;
      const limit = Math.min(wanted, room);
      const choose = (rows: StepOutput, i: number) => {
        const of = <A extends Int32Array | Float32Array>(all: A, n: number) => all.subarray(i * n, (i + 1) * n) as A;
        if (want === "candidates") {
          return sampler.sampleCandidates(of(rows.ids, engine.topK), of(rows.logits, engine.topK), rows.lse[i]).token;
        }
        const row = of(rows.full!, engine.n_vocab);
        form?.apply(row, tokenizer.eogIds);
        return sampler.sample(row).token;
      };
      let reason: StopReason = wanted <= room ? "limit" : "context";
      using steps = new DraftedSteps(engine, sequence, ids, options.drafter);
      try {
        for (let n = 0, going = true; going && n < limit;) {
          if (options.signal?.aborted) {
            reason = "aborted";
            break;
          }
          const rows = await steps.next(want, limit - n - 1);
          do {
            const token = choose(rows, steps.row);
            going = !tokenizer.eogIds.has(token);
            if (!going) {
              reason = "end";
              break;
            }
            sampler.accept(token);
            form?.accept(tokenizer.pieceBytes(token));
            n++;
            const guessed = steps.accept(token);
            yield { id: token, text: stream.push(token) };
            if (form?.finished) {
              reason = "end"; // an end token is all that could follow
              going = false;
              break;
            }
            // A right guess whose row nobody needs is taken back.
            if (!guessed || n === limit || options.signal?.aborted) break;
            steps.take();
          } while (true);
          steps.judge();
        }
      } finally {
        steps.judge();
        if (!own) await steps.settle();
      }
      const rest = stream.flush();
      if (rest !== "") yield { id: -1, text: rest };
      return reason;
    } finally {
      if (own) sequence.dispose();
    }
  }

  /** The vocabulary as grammars want it, made at the first use: that takes some tenths of a second. */
  #vocab(): VocabTrie {
    const { tokenizer } = this;
    return this.#trie ??= new VocabTrie(tokenizer.n_vocab, (id) => tokenizer.pieceBytes(id));
  }

  /**
   * Tokens of context that a prompt leaves to its answer.
   * @param n_tokens Of the prompt.
   * @throws {EngineError} `engine.context_full` when there are none, and an answer is wanted
   */
  roomAfter(n_tokens: number, { maxTokens = Infinity }: Pick<GenerateOptions, "maxTokens"> = {}): number {
    const { n_ctx } = this.engine;
    const room = n_ctx - n_tokens;
    if (room >= Math.min(maxTokens, 1)) return room;
    throw new EngineError(
      "engine.context_full",
      `The prompt has ${n_tokens} tokens, the context holds ${n_ctx}: there is no room for an answer`,
      { at: { got: n_tokens, n_ctx }, hint: "raise --ctx-size or shorten the prompt" },
    );
  }

  /**
   * Answers a conversation; the pieces are the raw answer, reasoning and markup included (`splitAnswer` takes them apart).
   * @throws {TextError} `text.no_template` when the file has no chat template
   */
  chat(messages: ChatMessage[], options: ChatOptions = {}): AsyncGenerator<Piece, StopReason> {
    return this.generate(this.encodeChat(this.renderChat(messages, options).prompt), options);
  }

  /** The prompt of a conversation as text. */
  renderChat(messages: ChatMessage[], options: Pick<ChatOptions, "tools" | "kwargs"> = {}): ChatPrompt {
    return this.#format().render({
      messages,
      addGenerationPrompt: true,
      ...(options.tools ? { tools: options.tools } : {}),
      ...(options.kwargs ? { kwargs: options.kwargs } : {}),
    });
  }

  /** Token ids of a rendered prompt: bos once, whether the template or the vocabulary asks for it. */
  encodeChat(prompt: string): Int32Array {
    const { bos } = this.tokenizer;
    const ids = this.tokenizer.encode(prompt, { addSpecial: true, parseSpecial: true });
    return bos !== null && ids[0] === bos && ids[1] === bos ? ids.subarray(1) : ids;
  }

  /** A raw answer's content and reasoning. */
  splitAnswer(text: string, generationPrompt: string): { content: string; reasoning: string } {
    const parser = this.#format().createParser({ reasoningFormat: "auto", generationPrompt });
    let content = "", reasoning = "";
    for (const delta of [...parser.push(text), ...parser.finish()]) {
      content += delta.content ?? "";
      reasoning += delta.reasoning_content ?? "";
    }
    return { content, reasoning };
  }

  #format(): ChatFormat {
    if (this.format) return this.format;
    throw new TextError("text.no_template", `Cannot chat with ${this.file.name}: it has no tokenizer.chat_template`, {
      at: { file: this.file.name },
      hint: "use --raw, or give a template when preparing the file",
    });
  }

  /** The sampler chain's defaults with what the file recommends (`general.sampling.*`). */
  samplingDefaults(): SamplingParams {
    const m = this.file.metadata;
    const d = defaultSampling;
    return {
      ...d,
      temperature: m.f32("general.sampling.temp", d.temperature),
      top_k: m.int("general.sampling.top_k", d.top_k),
      top_p: m.f32("general.sampling.top_p", d.top_p),
      min_p: m.f32("general.sampling.min_p", d.min_p),
    };
  }

  /** Gives back what it holds. */
  [Symbol.dispose](): void {
    this.engine[Symbol.dispose]();
    this.file.close();
  }
}

/** The file's chat template as a format; undefined when it has none. */
function readFormat(file: ModelSource, tokenizer: Tokenizer): ChatFormat | undefined {
  const source = file.metadata.str("tokenizer.chat_template", undefined);
  if (source === undefined) return undefined;
  const textOf = (id: number | null) => id === null ? "" : tokenizer.decode([id], { special: true });
  return new ChatFormat(source, {
    bosToken: textOf(tokenizer.bos),
    eosToken: textOf(tokenizer.eos),
    name: `the chat template of ${file.name}`,
  });
}
