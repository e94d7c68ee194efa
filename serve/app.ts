/**
 * What every route uses: the model, the scheduler and the server's defaults. Routes start their answers here.
 * @module
 */
import { type BeforeForm, constraintOf, type FormRequest } from "./constraint.ts";
import { badRequest, contextTooSmall } from "./errors.ts";
import { Generation, type GenerationOptions } from "./generation.ts";
import type { ReasoningFormat } from "../core/chat/reasoning.ts";
import type { Exchange } from "./exchange.ts";
import type { ServedModel } from "./language_model.ts";
import { ResponseStore } from "./response_store.ts";
import { createSampler, describeSampling } from "./sampling.ts";
import type { Scheduler, Ticket } from "./scheduler.ts";
import type { SamplingRequest } from "./schemas.ts";

/** Defaults that a request can override, and facts shown to clients. */
export interface AppSettings {
  /** What becomes of reasoning in answers. */
  reasoningFormat: ReasoningFormat;
  /** Tokens of reasoning that a request gets which sets no limit itself; -1 without limit. */
  reasoningBudget: number;
  /** Most tokens of an answer to a request that sets no limit itself; -1 without limit. */
  n_predict: number;
  /** A last message of the assistant is continued where the request does not say. */
  prefill: boolean;
  /** Template variables of every chat; the request's own win. */
  templateKwargs: Record<string, unknown>;
  /** What `build_info` and `system_fingerprint` say. */
  build: string;
  /** Whether the routes of these names are answered. */
  endpoints: { slots: boolean; metrics: boolean };
  /** Receives what a request asks for and this server ignores. */
  warn: (text: string) => void;
}

/** An HTTP route: reads a request, gives a response, throws an ApiError or anything else that is one underneath. */
export type Handler = (app: App, exchange: Exchange) => Promise<Response> | Response;

/** How many tokens a request may generate, in the names that clients use for it. */
export interface Limits {
  n_predict?: number | undefined;
  max_tokens?: number | undefined;
  max_completion_tokens?: number | undefined;
}

/** What the bodies of all generating routes share. */
export interface AnswerRequest extends SamplingRequest, Limits, FormRequest {
  stop?: string[] | undefined;
  cache_prompt?: boolean | undefined;
  id_slot?: number | undefined;
}

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
  readonly model: ServedModel;
  readonly scheduler: Scheduler;
  readonly settings: AppSettings;
  readonly responses = new ResponseStore();
  readonly #told = new Set<string>();

  constructor(model: ServedModel, scheduler: Scheduler, settings: AppSettings) {
    this.model = model;
    this.scheduler = scheduler;
    this.settings = settings;
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
    const maxTokens = this.#room(prompt, request);
    return {
      prompt,
      maxTokens,
      settings: {
        ...describeSampling(this.model, request),
        n_predict: maxTokens,
        max_tokens: maxTokens,
        stop: request.stop ?? [],
        ignore_eos: request.ignore_eos ?? false,
      },
      sampler: createSampler(this.model, request, index),
      constraint: constraintOf(request, this.model, reasoning, this.settings.warn),
      stops: request.stop ?? [],
      cachePrompt: request.cache_prompt,
      slotId: slotId < 0 ? undefined : slotId,
    };
  }

  /**
   * Starts the answers of a request, all of them or none. They are cancelled when the client disconnects.
   * @throws ApiError 503 when no more requests are taken.
   */
  start(plans: AnswerPlan[], { signal, generations }: Exchange): StartedAnswers {
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
    if (signal.aborted) leave();
    else signal.addEventListener("abort", leave, { once: true });
    return { generations, leave };
  }

  /** The request's limit of tokens, at most what the context leaves. */
  #room(prompt: Int32Array, limits: Limits): number {
    const { n_ctx } = this.scheduler;
    const asked = limits.max_completion_tokens ?? limits.max_tokens ?? limits.n_predict ?? this.settings.n_predict;
    const left = n_ctx - prompt.length;
    if (left < 0 || (left === 0 && asked !== 0)) throw contextTooSmall(prompt.length, n_ctx);
    return asked < 0 ? left : Math.min(asked, left);
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
