/**
 * What every route uses: the model, the scheduler and the server's defaults. Routes start their answers here.
 * @module
 */
import { Adapters } from "./adapters.ts";
import type { AnswerDefaults, AnswerRequest, Limits } from "./answer_request.ts";
import { type BeforeForm, constraintOf, type FormRequest } from "./constraint.ts";
import type { Embedder } from "./embedder.ts";
import { badRequest, contextTooSmall, noAnswers } from "./errors.ts";
import { Generation, type GenerationOptions } from "./generation.ts";
import type { Exchange } from "./exchange.ts";
import type { ServedModel } from "./language_model.ts";
import { ResponseStore } from "./response_store.ts";
import { generationSettings } from "./generation_settings.ts";
import { LineLimits } from "./line_limits.ts";
import { createSampler } from "./sampling.ts";
import type { Scheduler, Ticket } from "./scheduler.ts";
import { StreamStore } from "./stream_store.ts";

/** Defaults that a request can override, and facts shown to clients. */
export interface AppSettings extends AnswerDefaults {
  /** Tokens of reasoning that a request gets which sets no limit itself; -1 without limit. */
  reasoningBudget: number;
  /** A last message of the assistant is continued where the request does not say. */
  prefill: boolean;
  /** Template variables of every chat; the request's own win. */
  templateKwargs: Record<string, unknown>;
  /** The form of answers to requests that ask for none and have no tools. */
  form?: { grammar?: string; json_schema?: unknown } | undefined;
  /** Whether prompts may begin with what is computed where the request does not say. */
  cachePrompt: boolean;
  /** Whether reasoning and calls are read out of answers; else all of an answer is its content. */
  readsAnswers: boolean;
  /** Text before the tag that ends reasoning at its limit. */
  reasoningBudgetMessage: string;
  /** The text behind stands before the text before, in prompts of /infill: some models want that. */
  spmInfill: boolean;
  /** A full context is shifted instead of ending the answer. */
  contextShift: boolean;
  /** Folder of slots' files; undefined: slots are not saved. */
  slotSavePath?: string | undefined;
  /** Answers carry `__verbose` where the request does not say. */
  verbose: boolean;
  /** What `build_info` and `system_fingerprint` say. */
  build: string;
  /** Whether the routes of these names are answered. */
  endpoints: { slots: boolean; metrics: boolean; props: boolean };
  /** Norm of vectors where a request does not say (`embedder.ts`). */
  embdNormalize: number;
  /** Words that describe the model to clients. */
  tags: readonly string[];
  /** Receives what a request asks for and this server ignores. */
  warn: (text: string) => void;
}

/** An HTTP route: reads a request, gives a response, throws an ApiError or anything else that is one underneath. */
export type Handler = (app: App, exchange: Exchange) => Promise<Response> | Response;

/** An answer to start. */
export interface AnswerPlan extends GenerationOptions {
  /** Number of an earlier plan of the request with the same prompt: it is computed once. */
  sharesPromptOf?: number;
}

/** Running answers, and a function that cancels all of them. */
export interface StartedAnswers {
  generations: Generation[];
  leave: () => void;
}

/** Most different warnings that are shown; further ones are dropped. */
const MAX_TOLD = 100;

export class App {
  /** Its chat template may be replaced while the server runs. */
  model: ServedModel;
  readonly scheduler: Scheduler;
  readonly settings: AppSettings;
  readonly responses = new ResponseStore();
  readonly streams = new StreamStore();
  /** Of answers that run, by their id: functions that end their reasoning, and say whether they did. */
  readonly controlled = new Map<string, (() => boolean)[]>();
  /** How much of the model's adapters requests get. */
  readonly adapters: Adapters;
  /** Gives vectors; answers are refused then. */
  readonly embedder: Embedder | undefined;
  readonly #told = new Set<string>();

  constructor(model: ServedModel, scheduler: Scheduler, settings: AppSettings, embedder?: Embedder) {
    this.embedder = embedder;
    this.model = model;
    this.scheduler = scheduler;
    this.settings = settings;
    this.adapters = new Adapters(model.adapters, model.adapterScales);
  }

  /** Warns once about something that a client may send with every request. */
  warnOnce(text: string): void {
    if (this.#told.has(text) || this.#told.size >= MAX_TOLD) return;
    this.#told.add(text);
    this.settings.warn(text);
  }

  /**
   * Checks what a request asks for one of its prompts: sampler, limits and stop strings.
   * @param index Number of the prompt within the request.
   * @param reasoning What an answer may do before it takes the form that the request asks for.
   * @throws ApiError 400 with the name of the wrong field, or when the prompt exceeds the context.
   */
  plan(request: AnswerRequest, prompt: Int32Array, index = 0, reasoning?: BeforeForm): GenerationOptions {
    const n_slots = this.scheduler.slots.length;
    const slotId = request.id_slot ?? -1;
    if (slotId >= n_slots) throw badRequest(`id_slot: expected less than ${n_slots}, found ${slotId}`, "id_slot");
    const { maxTokens, fitted } = this.#room(prompt, request);
    const sampler = createSampler(this.model, request, index);
    const given = request.stop ?? [];
    const lines = { n_indent: request.n_indent ?? 0, t_max_predict_ms: Math.max(0, request.t_max_predict_ms ?? 0) };
    const n_keep = request.n_keep ?? this.settings.n_keep;
    const shift = { n_keep: n_keep < 0 ? prompt.length : n_keep, n_discard: request.n_discard ?? 0 };
    return {
      prompt,
      maxTokens,
      fitted,
      shift: this.settings.contextShift ? shift : undefined,
      settings: generationSettings(this, request, sampler, sampler.seed),
      sampler,
      constraint: constraintOf(this.#formOf(request), this.model, reasoning, this.settings.warn),
      stops: given.length > 0 ? given : this.settings.stop,
      cachePrompt: request.cache_prompt ?? this.settings.cachePrompt,
      speculative: request.speculative,
      adapters: this.adapters.of(request.lora),
      slotId: slotId < 0 ? undefined : slotId,
      postProbs: request.post_sampling_probs,
      progress: request.return_progress && request.stream,
      lines: lines.n_indent > 0 || lines.t_max_predict_ms > 0 ? new LineLimits(lines) : undefined,
    };
  }

  /**
   * Starts the answers of a request, all of them or none. They are cancelled when the client disconnects, unless
   * it may read them again.
   * @throws ApiError 503 when no more requests are taken.
   */
  start(plans: AnswerPlan[], { signal, generations, detached }: Exchange): StartedAnswers {
    if (this.embedder) throw noAnswers();
    for (const { sharesPromptOf, ...plan } of plans) {
      const after = sharesPromptOf === undefined ? undefined : generations[sharesPromptOf];
      generations.push(new Generation(this.model, plan, after));
    }
    const tickets: Ticket[] = [];
    const leave = () => tickets.forEach((ticket) => ticket.cancel());
    try {
      for (const generation of generations) tickets.push(this.scheduler.submit(generation));
    } catch (error) {
      leave();
      throw error;
    }
    if (detached) return { generations, leave };
    if (signal.aborted) leave();
    else signal.addEventListener("abort", leave, { once: true });
    return { generations, leave };
  }

  /** The form that a request asks for, else the server's. */
  #formOf(request: AnswerRequest): FormRequest {
    const { grammar, json_schema, response_format, call, tools } = request;
    const asks = grammar || json_schema !== undefined || response_format !== undefined || call || tools?.length;
    return asks ? request : { ...request, ...this.settings.form };
  }

  /** The request's limit of tokens, at most what the context leaves; `fitted` where that is less. */
  #room(prompt: Int32Array, limits: Limits): { maxTokens: number; fitted: boolean } {
    const { n_ctx } = this.scheduler;
    const asked = limits.max_completion_tokens ?? limits.max_tokens ?? limits.n_predict ?? this.settings.n_predict;
    const left = n_ctx - prompt.length;
    if (left < 0 || (left === 0 && asked !== 0)) throw contextTooSmall(prompt.length, n_ctx);
    const { contextShift } = this.settings;
    const fitted = asked < 0 || (asked > left && !contextShift);
    // A shifted context has no end; an answer without a limit ends where the model's training did.
    const most = contextShift ? Math.max(left, this.model.meta.n_ctx_train - prompt.length) : left;
    return { maxTokens: fitted ? most : asked, fitted };
  }
}

/** A JSON response. */
export function json(value: unknown, status = 200): Response {
  return new Response(JSON.stringify(value), {
    status,
    headers: { "content-type": "application/json; charset=utf-8" },
  });
}

const ID_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/** A random id of 32 letters and digits behind a prefix. */
export function randomId(prefix: string): string {
  let id = prefix;
  for (const byte of crypto.getRandomValues(new Uint8Array(32))) id += ID_LETTERS[byte % ID_LETTERS.length];
  return id;
}
