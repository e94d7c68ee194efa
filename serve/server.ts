/**
 * The HTTP server: routes, keys, origins, body limits, start and end. The one module that knows the router.
 * @module
 */
import { Hono } from "hono";
import type { z } from "zod";
import { App, type AppSettings, type Handler } from "./app.ts";
import { checkKey } from "./auth.ts";
import { prepareVocabulary } from "./constraint.ts";
import { type CorsOrigins, type CorsRules, preflight, setCors } from "./cors.ts";
import { anthropicErrorBody, ApiError, errorResponse, switchedOff, toApiError, unavailable } from "./errors.ts";
import { Exchange } from "./exchange.ts";
import { GenerationCancelled } from "./generation.ts";
import { UsageError } from "../core/errors.ts";
import type { ServedModel } from "./language_model.ts";
import { type Incoming, isSocket, listen, type Listener, type Tls } from "./listener.ts";
import { metrics } from "./metrics.ts";
import { residencyReset } from "./residency.ts";
import { logEntry, type RequestLogEntry } from "./request_log.ts";
import { chatCompletions, chatInputTokens } from "./routes_chat.ts";
import { completions } from "./routes_completions.ts";
import { countSchema, countTokens, messages, messagesSchema } from "./routes_anthropic.ts";
import { OwnPage, type Page } from "./page.ts";
import { machine } from "./routes_machine.ts";
import { health, model, models, props, slots } from "./routes_info.ts";
import { infill, infillSchema } from "./infill.ts";
import { control, controlSchema } from "./routes_control.ts";
import { embedding, embeddings, embeddingSchema, embeddingsSchema } from "./routes_embeddings.ts";
import { rerank, rerankSchema } from "./routes_rerank.ts";
import { ollamaChatSchema, ollamaGenerateSchema } from "./ollama.ts";
import {
  ollamaChat,
  ollamaEmbed,
  ollamaEmbedSchema,
  ollamaErrorBody,
  ollamaGenerate,
  ollamaPs,
  ollamaShow,
  ollamaTags,
  ollamaVersion,
} from "./routes_ollama.ts";
import { choosePooling, Embedder, type Pooling } from "./embedder.ts";
import { predict } from "./routes_predict.ts";
import { deleteStream, lookupSchema, lookupStreams, readStream } from "./routes_streams.ts";
import { loraAdapters, setLoraAdapters } from "./routes_adapters.ts";
import { disabled, setProps, systemone, transcriptions } from "./routes_off.ts";
import { applyTemplate, completion, detokenize, tokenize } from "./routes_native.ts";
import { responses, responsesInputTokens, responsesSchema } from "./routes_responses.ts";
import { slotAction, slotFileSchema } from "./routes_slots.ts";
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
  /**
   * Addresses, separated by commas; one that ends in `.sock` is the path of a Unix socket. Default 127.0.0.1: only this machine
   * can connect.
   */
  host?: string;
  /** Speaks HTTPS with this certificate. */
  tls?: Tls | undefined;
  /** Default 8080; 0 picks a free port. */
  port?: number;
  /** Requests worked on at the same time. Default 4. */
  n_slots?: number;
  /** Requests that may wait. Default 1024. */
  maxQueue?: number;
  /** Bytes of host memory for prompts that slots give up. Default 0: none. */
  promptCacheBytes?: number;
  /** Milliseconds without a request after which weights and caches are given back until the next one. Default: never. */
  sleepAfterMs?: number;
  /** Share of a prompt that a slot must have computed for the prompt to take its place. Default 0.1. */
  similarity?: number;
  /** A request must carry one of these keys; without keys everybody may send requests. */
  apiKeys?: readonly string[];
  /** Whether GET /slots is answered. Default true. */
  slots?: boolean;
  /** Gives vectors pooled so, or as the model's file says, and no answers. Default: answers. */
  embeddings?: Pooling | "file" | undefined;
  /** Norm of vectors where a request does not say. Default 2. */
  embdNormalize?: number;
  /** Whether GET /metrics is answered. Default true. */
  metrics?: boolean;
  /** Whether POST /props is answered. Default false. */
  props?: boolean;
  /** Path before every route, such as `/llm`. */
  apiPrefix?: string;
  /** Answers GET / and the addresses that no route has; null: there is no page. Default: the program's own. */
  page?: Page | null;
  /** Paths of Vertex AI, which know no prefix: of its predictions, and one more of /health. */
  vertex?: { predictRoute: string; healthRoute: string } | undefined;
  /** A stream that is silent for so many seconds sends a comment. Default 30; 0 or less: never. */
  pingSeconds?: number;
  /** Larger bodies are refused. Default 32 MiB. */
  maxBodyBytes?: number;
  /** Pages that may use the server. Default `["*"]`, every origin. */
  corsOrigins?: CorsOrigins;
  /** Methods that preflights allow. Default: all that the routes have. */
  corsMethods?: readonly string[];
  /** Headers that preflights allow. Default: all that the routes have. */
  corsHeaders?: readonly string[];
  /** Whether such pages may send credentials. Default true. */
  corsCredentials?: boolean;
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

/** What a running server can be given anew. */
export interface Reload {
  /** A request must carry one of these keys; without keys everybody may send requests. */
  apiKeys?: readonly string[] | undefined;
  /** @internal from `chatOf` */
  chat?: ServedModel["chat"] | undefined;
}

/** A server that listens. */
export interface RunningServer {
  /** `http://host:port`, `https://…`, or `unix:PATH` */
  readonly url: string;
  /** The one it listens on. */
  readonly port: number;
  /** @internal */
  readonly scheduler: Scheduler;
  /**
   * New keys, or another chat template, for requests that come from now on; what is left out stays.
   * @internal
   */
  reload(changes: Reload): void;
  /** Accepts no more requests and finishes the running ones; resolves when that is done. */
  drain(): Promise<void>;
  /** Ends at once; running requests fail. */
  stop(): Promise<void>;
  /** Resolves when the server has ended, after `drain` or `stop`. */
  readonly drained: Promise<void>;
}

/** A server that listens and has no model yet: it answers 503 "Loading model". */
export interface WaitingServer {
  /** `http://host:port`, `https://…`, or `unix:PATH` */
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
  method: "GET" | "POST" | "DELETE";
  paths: readonly string[];
  handler: Handler;
  /** The schema that the handler checks the body against; docs/http.md is made from it. */
  body?: z.ZodObject;
  /** Errors in another shape than OpenAI's. */
  errors?: ErrorShape;
}

/** Every route; docs/http.md describes each. */
export const ROUTES: readonly Route[] = [
  { method: "GET", paths: ["/health", "/v1/health"], handler: health },
  { method: "GET", paths: ["/models", "/v1/models"], handler: models },
  { method: "GET", paths: ["/models/:id{.+}", "/v1/models/:id{.+}"], handler: model },
  { method: "GET", paths: ["/props"], handler: props },
  { method: "POST", paths: ["/props"], handler: setProps },
  { method: "GET", paths: ["/slots"], handler: slots },
  { method: "POST", paths: ["/slots/:id{.+}"], handler: slotAction, body: slotFileSchema },
  { method: "GET", paths: ["/metrics"], handler: metrics },
  { method: "GET", paths: ["/bloomery/machine"], handler: machine },
  { method: "POST", paths: ["/residency/reset"], handler: residencyReset },
  { method: "POST", paths: ["/chat/completions", "/v1/chat/completions"], handler: chatCompletions, body: chatSchema },
  { method: "POST", paths: ["/v1/completions"], handler: completions, body: openaiCompletionSchema },
  { method: "POST", paths: ["/completion", "/completions"], handler: completion, body: completionSchema },
  { method: "POST", paths: ["/infill"], handler: infill, body: infillSchema },
  { method: "POST", paths: ["/v1/chat/completions/control"], handler: control, body: controlSchema },
  { method: "GET", paths: ["/v1/stream"], handler: readStream },
  { method: "DELETE", paths: ["/v1/stream"], handler: deleteStream },
  { method: "POST", paths: ["/v1/streams/lookup"], handler: lookupStreams, body: lookupSchema },
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
  { method: "POST", paths: ["/v1/embeddings"], handler: embeddings, body: embeddingsSchema },
  { method: "POST", paths: ["/embedding", "/embeddings"], handler: embedding, body: embeddingSchema },
  {
    method: "POST",
    paths: ["/rerank", "/reranking", "/v1/rerank", "/v1/reranking"],
    handler: rerank,
    body: rerankSchema,
  },
  { method: "GET", paths: ["/api/version"], handler: ollamaVersion, errors: ollamaErrorBody },
  { method: "GET", paths: ["/api/tags"], handler: ollamaTags, errors: ollamaErrorBody },
  { method: "GET", paths: ["/api/ps"], handler: ollamaPs, errors: ollamaErrorBody },
  { method: "POST", paths: ["/api/show"], handler: ollamaShow, errors: ollamaErrorBody },
  { method: "POST", paths: ["/api/chat"], handler: ollamaChat, body: ollamaChatSchema, errors: ollamaErrorBody },
  {
    method: "POST",
    paths: ["/api/generate"],
    handler: ollamaGenerate,
    body: ollamaGenerateSchema,
    errors: ollamaErrorBody,
  },
  { method: "POST", paths: ["/api/embed"], handler: ollamaEmbed, body: ollamaEmbedSchema, errors: ollamaErrorBody },
  { method: "POST", paths: ["/tokenize"], handler: tokenize, body: tokenizeSchema },
  { method: "POST", paths: ["/detokenize"], handler: detokenize, body: detokenizeSchema },
  { method: "POST", paths: ["/apply-template"], handler: applyTemplate, body: conversationSchema },
  { method: "GET", paths: ["/lora-adapters"], handler: loraAdapters },
  { method: "POST", paths: ["/lora-adapters"], handler: setLoraAdapters },
  { method: "POST", paths: ["/audio/transcriptions", "/v1/audio/transcriptions"], handler: transcriptions },
  { method: "POST", paths: ["/v1/systemone"], handler: systemone },
  { method: "GET", paths: ["/tools", "/cors-proxy"], handler: disabled },
  { method: "POST", paths: ["/tools", "/cors-proxy"], handler: disabled },
];

/** Monitors, and clients that look for a server, have no key: these paths need none. */
const OPEN_PATHS = ["/health", "/v1/health"];

/**
 * Listens before there is a model: a bad address fails early, and monitors see that the model loads.
 * @throws The system's error when it cannot listen.
 */
export async function openServer(options: ListenerSettings): Promise<WaitingServer> {
  const page = pageReader(options);
  const loading = async (exchange: Exchange) =>
    await page(exchange) ?? failed(exchange, unavailable("loading_model", "Loading model"));
  let answer: (exchange: Exchange, incoming: Incoming) => Response | Promise<Response> = loading;
  let tokenizer: ServedModel["tokenizer"] | undefined;
  const { listener, url } = await openListener(
    options,
    (exchange, incoming) => answer(exchange, incoming),
    () => tokenizer,
  );
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
 * Listens for a server whose answers another module gives; undefined: there is nothing at that address.
 * @throws The system's error when it cannot listen.
 */
export async function openRouted(
  options: ListenerSettings,
  answer: (
    exchange: Exchange,
    path: string,
    page: (exchange: Exchange) => Promise<Response | undefined>,
  ) => Promise<Response | undefined>,
): Promise<Listener & { readonly url: string }> {
  const page = pageReader(options), prefix = prefixOf(options);
  const { listener, url } = await openListener(options, async (exchange) => {
    const { method, path } = exchange;
    const own = path.startsWith(`${prefix}/`)
      ? await answer(exchange, path.slice(prefix.length), page)
      : await page(exchange);
    return own ??
      failed(exchange, new ApiError(404, "not_found_error", "not_found", `There is no ${method} ${path} here`));
  }, () => undefined);
  return { ...listener, url };
}

/** Listens; every answer gets its headers, and every request its entry in the log. */
async function openListener(
  options: ListenerSettings,
  answer: (exchange: Exchange, incoming: Incoming) => Response | Promise<Response>,
  tokenizer: () => ServedModel["tokenizer"] | undefined,
): Promise<{ listener: Listener; url: string }> {
  const host = options.host ?? "127.0.0.1";
  const onError = options.onError ?? (() => {});
  const rules: CorsRules = {
    origins: options.corsOrigins ?? ["*"],
    methods: options.corsMethods,
    headers: options.corsHeaders,
    credentials: options.corsCredentials,
  };
  const log = (exchange: Exchange) =>
    options.onRequest?.(logEntry(exchange, options.logPrompts ? tokenizer() : undefined));
  const listener = await listen({
    host,
    port: options.port ?? 8080,
    tls: options.tls,
    onError,
    async handle(incoming) {
      const exchange = new Exchange(incoming, log);
      exchange.pingSeconds = options.pingSeconds ?? exchange.pingSeconds;
      const response = exchange.method === "OPTIONS"
        ? preflight(rules, exchange.headers)
        : await answer(exchange, incoming);
      exchange.status = response.status;
      setCors(response, rules, exchange.headers);
      response.headers.set("x-request-id", exchange.id);
      response.headers.set("request-id", exchange.id); // Anthropic's name for it
      if (!exchange.streams) exchange.end();
      return response;
    },
  });
  return { listener, url: urlOf(host, listener.port, options.tls !== undefined) };
}

/** The first address that is a host's, else the path of a Unix socket. */
function urlOf(hosts: string, port: number, secure: boolean): string {
  const all = hosts.split(",").map((host) => host.trim());
  const host = all.find((h) => !isSocket(h));
  if (host === undefined) return `unix:${all[0]}`;
  return `${secure ? "https" : "http"}://${host.includes(":") ? `[${host}]` : host}:${port}`;
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
    drafter: options.model.drafter,
    ...(options.maxQueue === undefined ? {} : { maxQueue: options.maxQueue }),
    ...(options.promptCacheBytes === undefined ? {} : { promptCacheBytes: options.promptCacheBytes }),
    ...(options.sleepAfterMs === undefined ? {} : { sleepAfterMs: options.sleepAfterMs }),
    ...(options.similarity === undefined ? {} : { similarity: options.similarity }),
  });
  const embedder = embedderOf(options.model, scheduler.slots.length, options.embeddings);
  const app = new App(options.model, scheduler, {
    reasoningFormat: options.reasoningFormat ?? "auto",
    reasoningBudget: options.reasoningBudget ?? -1,
    n_predict: options.n_predict ?? -1,
    prefill: options.prefill ?? true,
    stop: options.stop ?? [],
    dryBreakers: options.dryBreakers,
    verbose: options.verbose ?? false,
    form: options.form,
    cachePrompt: options.cachePrompt ?? true,
    spmInfill: options.spmInfill ?? false,
    contextShift: options.contextShift ?? false,
    n_keep: options.n_keep ?? 0,
    slotSavePath: options.slotSavePath,
    readsAnswers: options.readsAnswers ?? true,
    reasoningBudgetMessage: options.reasoningBudgetMessage ?? "",
    templateKwargs: options.templateKwargs ?? {},
    build: options.build ?? "bloomery",
    endpoints: {
      slots: options.slots ?? true,
      metrics: options.metrics ?? true,
      props: options.props ?? false,
    },
    embdNormalize: options.embdNormalize ?? 2,
    tags: options.tags ?? [],
    warn: options.onWarning ?? (() => {}),
  }, embedder);
  const life: Life = { draining: false, keys: options.apiKeys ?? [] };
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
      reload({ apiKeys, chat }) {
        life.keys = apiKeys ?? life.keys;
        if (chat !== undefined) app.model = { ...app.model, chat };
      },
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

/** What may change while a server runs. */
interface Life {
  draining: boolean;
  keys: readonly string[];
}

type Env = { Bindings: { exchange: Exchange } };

/** @throws UsageError `usage.pooling` for scores of a model that is no reranker, `usage.encoder` for answers of one that gives none */
function embedderOf(model: ServedModel, n_seq: number, wanted: Pooling | "file" | undefined): Embedder | undefined {
  if (wanted === undefined) {
    if (!model.engine.oneStep) return undefined;
    throw new UsageError(
      "usage.encoder",
      `Cannot answer with ${model.path}: ${model.meta.architecture} gives vectors of texts only`,
      { at: { file: model.path }, hint: "start it with --embeddings, or a reranker with --reranking" },
    );
  }
  return new Embedder(model.engine, { pooling: choosePooling(model, wanted), n_seq });
}

function makeRouter(app: App, options: ServerOptions, life: Life): Hono<Env> {
  const maxBodyBytes = options.maxBodyBytes ?? MAX_BODY_BYTES;
  const prefix = prefixOf(options);
  const router = new Hono<Env>();
  const { vertex } = options;
  const answer = async (handler: Handler, exchange: Exchange, errors?: ErrorShape): Promise<Response> => {
    try {
      if (life.draining) throw unavailable("shutting_down", "The server is shutting down and takes no new requests");
      const open = OPEN_PATHS.includes(exchange.path.slice(prefix.length)) || exchange.path === vertex?.healthRoute;
      if (life.keys.length > 0 && !open) checkKey(exchange.headers, life.keys);
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
  const routes = [
    ...ROUTES.map((route) => ({ ...route, paths: route.paths.map((path) => prefix + path) })),
    ...(vertex === undefined ? [] : [
      { method: "GET" as const, paths: [vertex.healthRoute], handler: health },
      { method: "POST" as const, paths: [vertex.predictRoute], handler: predict },
    ]),
  ];
  for (const { method, paths, handler, errors } of routes as Route[]) {
    const off = whenOff(handler, options);
    for (const path of paths) {
      methods.push([new RegExp(`^${path.split(":id{.+}").map(RegExp.escape).join(".+")}$`), method]);
      router.on(method, path, (c) => {
        const { exchange } = c.env;
        exchange.params = c.req.param() as Record<string, string>;
        return answer(off ?? handler, exchange, errors);
      });
    }
  }
  const page = pageReader(options);
  router.notFound(async (c) => {
    const { exchange } = c.env;
    const shown = await page(exchange);
    if (shown !== undefined) return shown;
    const { method, path } = exchange;
    const allowed = [...new Set(methods.filter(([matches]) => matches.test(path)).map(([, m]) => m))].join(", ");
    if (allowed === "") {
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

/** Path before every route: empty, or with a slash before it and none behind. */
function prefixOf({ apiPrefix = "" }: ListenerSettings): string {
  const trimmed = apiPrefix.replace(/^\/+|\/+$/g, "");
  return trimmed === "" ? "" : `/${trimmed}`;
}

/** Gives the page's answer to a request, undefined where it has none. */
function pageReader(options: ListenerSettings): (exchange: Exchange) => Promise<Response | undefined> {
  const page = options.page === undefined ? new OwnPage() : options.page, prefix = prefixOf(options);
  return async (exchange) => {
    const { method, path } = exchange;
    if (page === null || (method !== "GET" && method !== "HEAD")) return undefined;
    // The page's addresses are relative to its own, which must end with the slash.
    if (prefix !== "" && path === prefix) {
      return new Response(null, { status: 308, headers: { location: `${prefix}/` } });
    }
    if (!path.startsWith(`${prefix}/`)) return undefined;
    try {
      return await page.answer(exchange, path.slice(prefix.length));
    } catch (error) {
      const api = toApiError(error);
      if (api.status === 500) options.onError?.(error);
      return failed(exchange, api);
    }
  };
}

/** The handler of a route that is switched off; undefined when it is on. */
function whenOff(handler: Handler, options: ListenerSettings): Handler | undefined {
  const off = handler === slots && options.slots === false
    ? switchedOff("/slots", "--slots")
    : handler === metrics && options.metrics === false
    ? switchedOff("/metrics", "--metrics")
    : handler === setProps && !options.props
    ? switchedOff("POST /props", "--props")
    : undefined;
  return off && (() => {
    throw off;
  });
}

function failed(exchange: Exchange, error: ApiError, shape?: ErrorShape): Response {
  exchange.failure = error.apiCode;
  return errorResponse(error, shape);
}
