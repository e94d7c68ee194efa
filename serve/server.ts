/**
 * The HTTP server: routes, keys, body limits, and the way it starts and ends. The one module that knows the router.
 * @module
 */
import { Hono } from "hono";
import { App, type AppSettings, type Handler } from "./app.ts";
import { prepareVocabulary } from "./constraint.ts";
import { anthropicErrorBody, ApiError, errorResponse, toApiError, unavailable } from "./errors.ts";
import { GenerationCancelled } from "./generation.ts";
import { metrics } from "./metrics.ts";
import type { ServedModel } from "./model.ts";
import { chatCompletions } from "./routes_chat.ts";
import { completions } from "./routes_completions.ts";
import { countTokens, messages } from "./routes_anthropic.ts";
import { health, models, props, slots } from "./routes_info.ts";
import { applyTemplate, completion, detokenize, tokenize } from "./routes_native.ts";
import { Scheduler } from "./scheduler.ts";

/** What a server serves, and how. */
export interface ServerOptions extends Partial<AppSettings> {
  /** From `servedModel`. */
  model: ServedModel;
  /** Default 127.0.0.1: nobody else's machine. */
  host?: string;
  /** Default 8080; 0 takes a free one. */
  port?: number;
  /** Requests worked on at the same time. Default 4. */
  n_slots?: number;
  /** Requests that may wait. Default 1024. */
  maxQueue?: number;
  /** Keys of which a request must carry one; none: everybody may ask. */
  apiKeys?: readonly string[];
  /** Whether GET /slots is answered. Default true. */
  slots?: boolean;
  /** Larger bodies are refused. Default 32 MiB. */
  maxBodyBytes?: number;
  /** Told of failures that are not the client's. */
  onError?: (error: unknown) => void;
  /** Told what a request asks for and does not get, where that is no error. */
  onWarning?: (text: string) => void;
}

/** A server that listens. */
export interface RunningServer {
  /** `http://host:port` */
  readonly url: string;
  /** The one it listens on. */
  readonly port: number;
  /** @internal */
  readonly scheduler: Scheduler;
  /** Takes no more requests and finishes the running ones; resolves when that is done. */
  drain(): Promise<void>;
  /** Ends at once; running requests fail. */
  stop(): Promise<void>;
  /** Resolves when the server has ended, by either way. */
  readonly drained: Promise<void>;
}

const MAX_BODY_BYTES = 32 << 20;

type ErrorShape = (error: ApiError) => object;

const ROUTES: readonly [method: "GET" | "POST", paths: string[], handler: Handler, errors?: ErrorShape][] = [
  ["GET", ["/health", "/v1/health"], health],
  ["GET", ["/models", "/v1/models"], models],
  ["GET", ["/props"], props],
  ["GET", ["/slots"], slots],
  ["GET", ["/metrics"], metrics],
  ["POST", ["/chat/completions", "/v1/chat/completions"], chatCompletions],
  ["POST", ["/v1/completions"], completions],
  ["POST", ["/completion", "/completions"], completion],
  ["POST", ["/v1/messages"], messages, anthropicErrorBody],
  ["POST", ["/v1/messages/count_tokens"], countTokens, anthropicErrorBody],
  ["POST", ["/tokenize"], tokenize],
  ["POST", ["/detokenize"], detokenize],
  ["POST", ["/apply-template"], applyTemplate],
];

/** Paths that need no key: a monitor has none. */
const OPEN_PATHS = ["/health", "/v1/health"];

/**
 * Starts serving a model.
 * @throws Deno.errors.AddrInUse and the like when the address cannot be had.
 */
export async function startServer(options: ServerOptions): Promise<RunningServer> {
  const { model } = options;
  prepareVocabulary(model);
  const scheduler = new Scheduler(model.engine, {
    n_slots: options.n_slots ?? 4,
    ...(options.maxQueue === undefined ? {} : { maxQueue: options.maxQueue }),
  });
  const app = new App(model, scheduler, {
    reasoningFormat: options.reasoningFormat ?? "auto",
    reasoningBudget: options.reasoningBudget ?? -1,
    n_predict: options.n_predict ?? -1,
    templateKwargs: options.templateKwargs ?? {},
    build: options.build ?? "bloomery",
    warn: options.onWarning ?? (() => {}),
  });
  const life = { draining: false };
  const router = makeRouter(app, options, life);
  const abort = new AbortController();
  const { promise: drained, resolve: setDrained } = Promise.withResolvers<void>();
  const host = options.host ?? "127.0.0.1";
  let server: Deno.HttpServer<Deno.NetAddr>;
  try {
    server = Deno.serve({
      hostname: host,
      port: options.port ?? 8080,
      signal: abort.signal,
      onListen: () => {},
    }, (request) => router.fetch(request));
  } catch (error) {
    await scheduler.stop();
    throw error;
  }
  const { port } = server.addr;
  let over = false;
  server.finished.catch((error) => options.onError?.(error)).then(() => scheduler.stop()).then(() => {
    over = true;
    setDrained();
  });
  return {
    url: `http://${host.includes(":") ? `[${host}]` : host}:${port}`,
    port,
    scheduler,
    drained,
    async drain() {
      life.draining = true;
      await Promise.all([server.shutdown(), scheduler.drain()]);
      await drained;
    },
    async stop() {
      const closing = life.draining;
      life.draining = true;
      await scheduler.stop(); // running requests get their error, then the connections go
      if (!closing && !over) abort.abort();
      await drained;
    },
  };
}

function makeRouter(app: App, options: ServerOptions, life: { draining: boolean }): Hono {
  const keys = options.apiKeys ?? [];
  const maxBodyBytes = options.maxBodyBytes ?? MAX_BODY_BYTES;
  const router = new Hono();
  const answer = async (handler: Handler, request: Request, errors?: ErrorShape): Promise<Response> => {
    try {
      if (life.draining) throw unavailable("shutting_down", "The server is shutting down and takes no new requests");
      if (keys.length > 0 && !OPEN_PATHS.includes(new URL(request.url).pathname)) checkKey(request, keys);
      const body = request.method === "POST" ? await readBody(request, maxBodyBytes) : "";
      return await handler(app, { body, signal: request.signal });
    } catch (error) {
      if (error instanceof GenerationCancelled) return new Response(null, { status: 499 }); // nobody reads it
      const api = toApiError(error);
      if (api.status >= 500 && api.status !== 503) options.onError?.(error);
      return errorResponse(api, errors);
    }
  };
  const methods = new Map<string, string>();
  for (const [method, paths, handler, errors] of ROUTES) {
    if (handler === slots && options.slots === false) continue;
    for (const path of paths) {
      methods.set(path, method);
      router.on(method, path, (c) => answer(handler, c.req.raw, errors));
    }
  }
  router.notFound((c) => {
    const allowed = methods.get(c.req.path);
    const { method, path } = c.req;
    if (allowed === undefined) {
      return errorResponse(new ApiError(404, "not_found_error", "not_found", `There is no ${method} ${path} here`));
    }
    const response = errorResponse(
      new ApiError(405, "invalid_request_error", "method_not_allowed", `${path} takes ${allowed}, found ${method}`),
    );
    response.headers.set("allow", allowed);
    return response;
  });
  return router;
}

/** @throws ApiError 401 without a right `Authorization: Bearer KEY` or `X-Api-Key: KEY`. */
function checkKey(request: Request, keys: readonly string[]): void {
  const bearer = /^Bearer\s+(.+)$/i.exec(request.headers.get("authorization") ?? "")?.[1];
  const given = bearer ?? request.headers.get("x-api-key") ?? "";
  let ok = false;
  for (const key of keys) if (sameText(key, given)) ok = true;
  if (!ok) {
    throw new ApiError(401, "authentication_error", "invalid_api_key", "The request carries no valid API key");
  }
}

/** Compares in a time that does not tell how much of a key was right. */
function sameText(a: string, b: string): boolean {
  const x = new TextEncoder().encode(a), y = new TextEncoder().encode(b);
  let differ = x.length ^ y.length;
  for (let i = 0; i < x.length; i++) differ |= x[i] ^ (y[i] ?? 0);
  return differ === 0;
}

/** @throws ApiError 413 for a body above the limit, 400 for one that is not UTF-8. */
async function readBody(request: Request, limit: number): Promise<string> {
  const tooLarge = () =>
    new ApiError(413, "invalid_request_error", "body_too_large", `The body is larger than ${limit} bytes`);
  if (Number(request.headers.get("content-length") ?? 0) > limit) throw tooLarge();
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of request.body ?? []) {
    size += part.length;
    if (size > limit) throw tooLarge();
    parts.push(part);
  }
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new ApiError(400, "invalid_request_error", "invalid_json", "The body is not UTF-8 text", { cause });
  }
}
