/**
 * What every route works with: the model, the scheduler, the server's defaults, and how an answer is started.
 * @module
 */
import { badRequest, contextTooSmall } from "./errors.ts";
import { Generation, type GenerationOptions } from "./generation.ts";
import type { ReasoningFormat, ServedModel } from "./model.ts";
import type { Scheduler } from "./scheduler.ts";

/** Defaults that a request can override, and facts shown to clients. */
export interface AppSettings {
  reasoningFormat: ReasoningFormat;
  /** Template variables of every chat; the request's own win. */
  templateKwargs: Record<string, unknown>;
  /** What `build_info` and `system_fingerprint` say. */
  build: string;
}

/** An HTTP route: reads a request, gives a response, throws an ApiError or anything else that is one underneath. */
export type Handler = (app: App, request: ClientRequest) => Promise<Response> | Response;

/** A request as the routes see it. */
export interface ClientRequest {
  /** The body's text; "" without one. */
  body: string;
  /** Fires when the client left. */
  signal: AbortSignal;
}

/** How many tokens a request may generate, in the names that clients use for it. */
export interface Limits {
  n_predict?: number | undefined;
  max_tokens?: number | undefined;
  max_completion_tokens?: number | undefined;
}

export class App {
  readonly model: ServedModel;
  readonly scheduler: Scheduler;
  readonly settings: AppSettings;

  constructor(model: ServedModel, scheduler: Scheduler, settings: AppSettings) {
    this.model = model;
    this.scheduler = scheduler;
    this.settings = settings;
  }

  /**
   * Tokens that an answer to a prompt may have: the request's limit, at most what the context leaves.
   * @throws ApiError 400 when the context leaves nothing.
   */
  room(prompt: Int32Array, limits: Limits): number {
    const { n_ctx } = this.scheduler;
    const asked = limits.max_completion_tokens ?? limits.max_tokens ?? limits.n_predict ?? -1;
    const left = n_ctx - prompt.length;
    if (left < 0 || (left === 0 && asked !== 0)) throw contextTooSmall(prompt.length, n_ctx);
    return asked < 0 ? left : Math.min(asked, left);
  }

  /**
   * Starts one answer; it is given up when the signal fires.
   * @throws ApiError 400 for a slot that is not there, 503 when no more requests are taken.
   */
  start(options: GenerationOptions, signal: AbortSignal): Generation {
    const n_slots = this.scheduler.slots.length;
    if (options.slotId !== undefined && options.slotId >= n_slots) {
      throw badRequest(`id_slot: expected less than ${n_slots}, found ${options.slotId}`, "id_slot");
    }
    const generation = new Generation(this.model, options);
    const ticket = this.scheduler.submit(generation);
    if (signal.aborted) ticket.cancel();
    else signal.addEventListener("abort", () => ticket.cancel(), { once: true });
    return generation;
  }
}

/** A JSON response. */
export function json(value: unknown, status = 200): Response {
  return new Response(JSON.stringify(value), {
    status,
    headers: { "content-type": "application/json; charset=utf-8" },
  });
}

/** A slot number as requests give it: -1 is any. */
export function slotOf(id_slot: number | undefined): number | undefined {
  return id_slot === undefined || id_slot < 0 ? undefined : id_slot;
}

const ID_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/** A random id of 32 letters and digits behind a prefix. */
export function randomId(prefix: string): string {
  let id = prefix;
  for (const byte of crypto.getRandomValues(new Uint8Array(32))) id += ID_LETTERS[byte % ID_LETTERS.length];
  return id;
}
