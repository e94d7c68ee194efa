/**
 * The HTTP server: routes, keys, origins, body limits, start and end. The one module that knows the router.
 * @module
 */
import { Hono } from "hono";
import type { z } from "zod";
import { App, type AppSettings, type Handler } from "./app.ts";
import { checkKey } from "./auth.ts";
import { prepareVocabulary } from "./constraint.ts";
import { type CorsOrigins, preflight, setCors } from "./cors.ts";
import { anthropicErrorBody, ApiError, errorResponse, switchedOff, toApiError, unavailable } from "./errors.ts";
import { Exchange } from "./exchange.ts";
import { GenerationCancelled } from "./generation.ts";
import type { ServedModel } from "./language_model.ts";
import { type Incoming, listen, type Listener } from "./listener.ts";
import { metrics } from "./metrics.ts";
import { residencyReset } from "./residency.ts";
import { logEntry, type RequestLogEntry } from "./request_log.ts";
import { chatCompletions, chatInputTokens } from "./routes_chat.ts";
import { completions } from "./routes_completions.ts";
import { countSchema, countTokens, messages, messagesSchema } from "./routes_anthropic.ts";
import { health, model, models, props, slots } from "./routes_info.ts";
import { applyTemplate, completion, detokenize, tokenize } from "./routes_native.ts";
import { responses, responsesInputTokens, responsesSchema } from "./routes_responses.ts";
import { Scheduler } from "./scheduler.ts";
import {
  chatSchema,
  completionSchema,
  conversationSchema,
  detokenizeSchema,
  openaiCompletionSchema,
  tokenizeSchema,
} from "./schemas.ts";

/** Settings of a server that do not need a model. */
export interface ListenerSettings extends Partial<AppSettings> {
  /** Default 127.0.0.1: only this machine can connect. */
  host?: string;
  /** Default 8080; 0 picks a free port. */
  port?: number;
  /** Requests worked on at the same time. Default 4. */
  n_slots?: number;
  /** Requests that may wait. Default 1024. */
  maxQueue?: number;
  /** A request must carry one of these keys; without keys everybody may send requests. */
  apiKeys?: readonly string[];
  /** Whether GET /slots is answered. Default true. */
  slots?: boolean;
  /** Whether GET /metrics is answered. Default true. */
  metrics?: boolean;
  /** Path before every route, such as `/llm`. */
  apiPrefix?: string;
  /** A stream that is silent for so many seconds sends a comment. Default 30; 0 or less: never. */
  pingSeconds?: number;
  /** Larger bodies are refused. Default 32 MiB. */
  maxBodyBytes?: number;
  /** Pages that may use the server. Default `["*"]`, every origin. */
  corsOrigins?: CorsOrigins;
  /** Receives an entry for each request when it has ended. */
  onRequest?: (entry: RequestLogEntry) => void;
  /** Entries hold the prompts too. */
  logPrompts?: boolean;
  /** Receives failures that are not the client's. */
  onError?: (error: unknown) => void;
  /** Receives what a request asks for and this server ignores. */
  onWarning?: (text: string) => void;
}

/** What a server serves, and how. */
export interface ServerOptions extends ListenerSettings {
  /** From `servedModel`. */
  model: ServedModel;
}

/** A server that listens. */
export interface RunningServer {
  /** `http://host:port` */
  readonly url: string;
  /** The one it listens on. */
  readonly port: number;
  /** @internal */
  readonly scheduler: Scheduler;
  /** Accepts no more requests and finishes the running ones; resolves when that is done. */
  drain(): Promise<void>;
  /** Ends at once; running requests fail. */
  stop(): Promise<void>;
  /** Resolves when the server has ended, after `drain` or `stop`. */
  readonly drained: Promise<void>;
}

/** A server that listens and has no model yet: it answers 503 "Loading model". */
export interface WaitingServer {
  /** `http://host:port` */
  readonly url: string;
  /** The port it listens on. */
  readonly port: number;
  /** Begins to answer requests. Call it once. */
  serve(model: ServedModel): RunningServer;
  /** Ends the server, whether it has a model or not. */
  stop(): Promise<void>;
}

const MAX_BODY_BYTES = 32 << 20;

type ErrorShape = (error: ApiError) => object;

interface Route {
  method: "GET" | "POST";
  paths: readonly string[];
  handler: Handler;
  /** The schema that the handler checks the body against; docs/http.md is made from it. */
  body?: z.ZodObject;
  /** Errors in another shape than OpenAI's. */
  errors?: ErrorShape;
}

/** Every route; docs/http.md describes each. */
export const ROUTES: readonly Route[] = [
  // Coding agents send `HEAD /` to see whether there is a server.
  { method: "GET", paths: ["/", "/health", "/v1/health"], handler: health },
  { method: "GET", paths: ["/models", "/v1/models"], handler: models },
  { method: "GET", paths: ["/models/:id{.+}", "/v1/models/:id{.+}"], handler: model },
  { method: "GET", paths: ["/props"], handler: props },
  { method: "GET", paths: ["/slots"], handler: slots },
  { method: "GET", paths: ["/metrics"], handler: metrics },
  { method: "POST", paths: ["/residency/reset"], handler: residencyReset },
  { method: "POST", paths: ["/chat/completions", "/v1/chat/completions"], handler: chatCompletions, body: chatSchema },
  { method: "POST", paths: ["/v1/completions"], handler: completions, body: openaiCompletionSchema },
  { method: "POST", paths: ["/completion", "/completions"], handler: completion, body: completionSchema },
  {
    method: "POST",
    paths: ["/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"],
    handler: chatInputTokens,
    body: conversationSchema,
  },
  { method: "POST", paths: ["/responses", "/v1/responses"], handler: responses, body: responsesSchema },
  {
    method: "POST",
    paths: ["/responses/input_tokens", "/v1/responses/input_tokens"],
    handler: responsesInputTokens,
    body: responsesSchema,
  },
  { method: "POST", paths: ["/v1/messages"], handler: messages, body: messagesSchema, errors: anthropicErrorBody },
  {
    method: "POST",
    paths: ["/v1/messages/count_tokens"],
    handler: countTokens,
    body: countSchema,
    errors: anthropicErrorBody,
  },
  { method: "POST", paths: ["/tokenize"], handler: tokenize, body: tokenizeSchema },
  { method: "POST", paths: ["/detokenize"], handler: detokenize, body: detokenizeSchema },
  { method: "POST", paths: ["/apply-template"], handler: applyTemplate, body: conversationSchema },
];

/** Monitors, and clients that look for a server, have no key: these paths need none. */
const OPEN_PATHS = ["/", "/health", "/v1/health"];

/**
 * Listens before there is a model: a bad address fails early, and monitors see that the model loads.
 * @throws The system's error when it cannot listen.
 */
export async function openServer(options: ListenerSettings): Promise<WaitingServer> {
  const host = options.host ?? "127.0.0.1";
  const onError = options.onError ?? (() => {});
  const loading = (exchange: Exchange) => failed(exchange, unavailable("loading_model", "Loading model"));
  let answer: (exchange: Exchange, incoming: Incoming) => Response | Promise<Response> = loading;
  let tokenizer: ServedModel["tokenizer"] | undefined;
  const log = (exchange: Exchange) =>
    options.onRequest?.(logEntry(exchange, options.logPrompts ? tokenizer : undefined));
  const listener = await listen({
    host,
    port: options.port ?? 8080,
    onError,
    async handle(incoming) {
      const exchange = new Exchange(incoming, log);
      exchange.pingSeconds = options.pingSeconds ?? exchange.pingSeconds;
      const origins = options.corsOrigins ?? ["*"];
      const response = exchange.method === "OPTIONS"
        ? preflight(origins, exchange.headers)
        : await answer(exchange, incoming);
      exchange.status = response.status;
      setCors(response, origins, exchange.headers);
      response.headers.set("x-request-id", exchange.id);
      response.headers.set("request-id", exchange.id); // Anthropic's name for it
      if (!exchange.streams) exchange.end();
      return response;
    },
  });
  const url = `http://${host.includes(":") ? `[${host}]` : host}:${listener.port}`;
  return {
    url,
    port: listener.port,
    serve(model) {
      prepareVocabulary(model);
      const running = run(listener, url, { ...options, model });
      tokenizer = model.tokenizer;
      answer = running.answer;
      return running.server;
    },
    async stop() {
      listener.abort();
      await listener.closed;
    },
  };
}

/**
 * Starts serving a model.
 * @throws The system's error when it cannot listen.
 */
export async function startServer(options: ServerOptions): Promise<RunningServer> {
  const waiting = await openServer(options);
  try {
    return waiting.serve(options.model);
  } catch (error) {
    await waiting.stop();
    throw error;
  }
}

function run(
  listener: Listener,
  url: string,
  options: ServerOptions,
): { server: RunningServer; answer: (exchange: Exchange, incoming: Incoming) => Promise<Response> } {
  const scheduler = new Scheduler(options.model.engine, {
    n_slots: options.n_slots ?? 4,
    ...(options.maxQueue === undefined ? {} : { maxQueue: options.maxQueue }),
  });
  const app = new App(options.model, scheduler, {
    reasoningFormat: options.reasoningFormat ?? "auto",
    reasoningBudget: options.reasoningBudget ?? -1,
    n_predict: options.n_predict ?? -1,
    prefill: options.prefill ?? true,
    templateKwargs: options.templateKwargs ?? {},
    build: options.build ?? "bloomery",
    endpoints: { slots: options.slots ?? true, metrics: options.metrics ?? true },
    warn: options.onWarning ?? (() => {}),
  });
  const life = { draining: false };
  const router = makeRouter(app, options, life);
  const drained = listener.closed.then(() => scheduler.stop());
  return {
    async answer(exchange, { url }) {
      // The router sees only the address; handlers get the rest of the request from `exchange`.
      return await router.fetch(new Request(url, { method: exchange.method }), { exchange });
    },
    server: {
      url,
      port: listener.port,
      scheduler,
      drained,
      async drain() {
        life.draining = true;
        await Promise.all([listener.close(), scheduler.drain()]);
        await drained;
      },
      async stop() {
        life.draining = true;
        await scheduler.stop(); // running requests get their error, then the connections go
        await new Promise<void>((resolve) => setTimeout(resolve));
        listener.abort();
        await drained;
      },
    },
  };
}

type Env = { Bindings: { exchange: Exchange } };

function makeRouter(app: App, options: ServerOptions, life: { draining: boolean }): Hono<Env> {
  const keys = options.apiKeys ?? [];
  const maxBodyBytes = options.maxBodyBytes ?? MAX_BODY_BYTES;
  const trimmed = (options.apiPrefix ?? "").replace(/^\/+|\/+$/g, "");
  const prefix = trimmed === "" ? "" : `/${trimmed}`;
  const router = new Hono<Env>();
  const answer = async (handler: Handler, exchange: Exchange, errors?: ErrorShape): Promise<Response> => {
    try {
      if (life.draining) throw unavailable("shutting_down", "The server is shutting down and takes no new requests");
      if (keys.length > 0 && !OPEN_PATHS.includes(exchange.path.slice(prefix.length))) checkKey(exchange.headers, keys);
      if (exchange.method === "POST") await exchange.readBody(maxBodyBytes);
      return await handler(app, exchange);
    } catch (error) {
      if (error instanceof GenerationCancelled) return new Response(null, { status: 499 }); // nobody reads it
      const api = toApiError(error);
      if (api.status === 500) options.onError?.(error);
      return failed(exchange, api, errors);
    }
  };
  const methods: [matches: RegExp, method: string][] = [];
  for (const { method, paths, handler, errors } of ROUTES) {
    const off = whenOff(handler, options);
    for (const path of paths.map((path) => prefix + path)) {
      methods.push([new RegExp(`^${path.split(":id{.+}").map(RegExp.escape).join(".+")}$`), method]);
      router.on(method, path, (c) => {
        const { exchange } = c.env;
        exchange.params = c.req.param() as Record<string, string>;
        return answer(off ?? handler, exchange, errors);
      });
    }
  }
  router.notFound((c) => {
    const { exchange } = c.env;
    const { method, path } = exchange;
    const allowed = methods.find(([matches]) => matches.test(path))?.[1];
    if (allowed === undefined) {
      const error = new ApiError(404, "not_found_error", "not_found", `There is no ${method} ${path} here`);
      return failed(exchange, error);
    }
    const response = failed(
      exchange,
      new ApiError(405, "invalid_request_error", "method_not_allowed", `${path} takes ${allowed}, found ${method}`),
    );
    response.headers.set("allow", allowed);
    return response;
  });
  return router;
}

/** The handler of a route that is switched off; undefined when it is on. */
function whenOff(handler: Handler, options: ListenerSettings): Handler | undefined {
  const off = handler === slots && options.slots === false
    ? switchedOff("/slots", "--slots")
    : handler === metrics && options.metrics === false
    ? switchedOff("/metrics", "--metrics")
    : undefined;
  return off && (() => {
    throw off;
  });
}

function failed(exchange: Exchange, error: ApiError, shape?: ErrorShape): Response {
  exchange.failure = error.apiCode;
  return errorResponse(error, shape);
}
