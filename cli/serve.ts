/**
 * `bloomery serve`: a model over HTTP, in OpenAI's, Anthropic's and llama-server's shapes.
 * @module
 */
import type { Drafter } from "../core/draft/drafter.ts";
import { UsageError } from "../core/errors.ts";
import { parseJson } from "../core/json.ts";
import { osError, osReason } from "../core/os_error.ts";
import type { Pooling } from "../serve/embedder.ts";
import type { ServedModel } from "../serve/language_model.ts";
import type { ListenerSettings } from "../serve/server.ts";
import { type Command, EXIT, type Flags } from "./command.ts";
import { DRAFT_FLAGS, openDrafterFromFlags } from "./draft_flags.ts";
import { FORM_FLAGS, MODEL_FLAGS, PREDICT, REASONING_FLAGS, SAMPLING_FLAGS } from "./flags.ts";
import { LLAMA_MODEL_FLAGS, LLAMA_SERVER_FLAGS } from "./llama_flags.ts";
import { LLAMA_SPEC_FLAGS } from "./llama_spec_flags.ts";
import { modelPath } from "./model_file.ts";
import { openModelFromFlags } from "./open.ts";
import { dryBreakersOf, formOf, maxTokensOf, reasoningKwargs, samplingOf } from "./sampling.ts";
import {
  ANSWER_FLAGS,
  chatTemplateOf,
  corsOrigins,
  EMBEDDING_FLAGS,
  HTTP_FLAGS,
  LOG_FLAGS,
  openRequestLog,
  PAGE_FLAGS,
  pageOf,
  PING_FLAG,
  PREFILL_FLAG,
  ROUTE_FLAGS,
  TEMPLATE_FLAGS,
  TLS_FLAGS,
  tlsOf,
  vertexOf,
} from "./server_flags.ts";
import { onHangUp } from "./hang_up.ts";
import { ROUTER_FLAGS, serveSeveral, wantsRouter } from "./serve_router.ts";
import { SLOT_CACHE_FLAGS, SLOT_FLAGS, slotCacheOf, slotsOf } from "./slots.ts";
import { readText } from "./text_file.ts";

const REASONING_FORMATS = ["none", "auto", "deepseek", "deepseek-legacy"] as const;

export const serve: Command = {
  name: "serve",
  summary: "Serve a model over HTTP, in OpenAI's, Anthropic's and llama-server's shapes",
  arguments: [],
  flags: [
    ...MODEL_FLAGS.map((flag) => flag.name === "ctx-size" ? SLOT_FLAGS.ctxSize : flag),
    ...DRAFT_FLAGS,
    SLOT_FLAGS.parallel,
    SLOT_FLAGS.unified,
    SLOT_FLAGS.perSlot,
    SLOT_FLAGS.cacheSize,
    ...SLOT_CACHE_FLAGS,
    ...HTTP_FLAGS,
    ...TLS_FLAGS,
    ...ROUTE_FLAGS,
    ...PAGE_FLAGS,
    ...EMBEDDING_FLAGS,
    PING_FLAG,
    PREFILL_FLAG,
    {
      name: "api-key",
      type: "strings",
      value: "KEY",
      separator: ",",
      env: "LLAMA_API_KEY",
      help: "key that requests must carry; several are separated by commas",
    },
    {
      name: "api-key-file",
      type: "string",
      value: "FILE",
      env: "LLAMA_ARG_API_KEY_FILE",
      help: "file with such keys, one a line; # begins a comment",
    },
    {
      name: "slots",
      type: "bool",
      off: [],
      env: "LLAMA_ARG_ENDPOINT_SLOTS",
      help: "answer GET /slots, which shows what requests are doing; on unless --no-slots is given",
    },
    {
      name: "reasoning-format",
      type: "string",
      value: "FORMAT",
      default: "auto",
      choices: REASONING_FORMATS,
      env: "LLAMA_ARG_THINK",
      help: "where reasoning goes: none leaves it in content, the others split it off",
    },
    {
      name: "reasoning-budget",
      type: "int",
      value: "N",
      default: -1,
      min: -1,
      env: "LLAMA_ARG_THINK_BUDGET",
      help: "most tokens of reasoning where a request sets no limit: 0 = none, -1 = no limit",
    },
    ...ROUTER_FLAGS,
    ...TEMPLATE_FLAGS,
    {
      name: "chat-template-kwargs",
      type: "string",
      value: "JSON",
      env: "LLAMA_ARG_CHAT_TEMPLATE_KWARGS",
      help: "template variables of every chat, as an object",
    },
    ...LOG_FLAGS,
    { name: "quiet", alias: ["q"], type: "bool", help: "no progress and no request log on stderr" },
    { ...PREDICT, help: "most tokens of an answer where a request sets no limit, -1 = as many as the context holds" },
    ...REASONING_FLAGS,
    {
      name: "lora-init-without-apply",
      type: "bool",
      help: "load adapters and use none of them until a request, or POST /lora-adapters, says how much",
    },
    ...SAMPLING_FLAGS,
    ...FORM_FLAGS,
    ...ANSWER_FLAGS,
    ...LLAMA_MODEL_FLAGS,
    ...LLAMA_SPEC_FLAGS,
    ...LLAMA_SERVER_FLAGS,
  ],
  epilog: "Example:\n  bloomery serve -m qwen3-8b-Q4_K_M.gguf --port 8080 --parallel 8\n\n" +
    "Routes: /v1/chat/completions /v1/completions /v1/responses /v1/messages /v1/models /completion /tokenize\n" +
    "        /detokenize /apply-template /health /props /slots /metrics; docs/http.md has their fields\n\n" +
    "Settings of the sampler, --predict and --reasoning are what a request gets that does not set them itself.\n" +
    "The first Ctrl-C or SIGTERM finishes the running requests, the second ends at once. SIGHUP reads keys and the chat\n" +
    "template again, from --api-key-file and --chat-template-file.",

  async run({ flags, io }) {
    const kwargs = { ...reasoningKwargs(flags), ...templateKwargs(flags) };
    const chatTemplate = chatTemplateOf(flags);
    const form = formOf(flags);
    const apiKeys = keysOf(flags);
    const vertex = vertexOf((name) => Deno.env.get(name));
    // A container is reached from outside.
    const host = vertex !== undefined && !flags.given("host") ? "0.0.0.0" : flags.str("host")!;
    const port = vertex !== undefined && !flags.given("port") ? vertex.port : flags.num("port")!;
    if (apiKeys.length === 0 && !isLocal(host)) {
      io.warn(
        `listening on ${host} without a key: everybody who reaches it can use the model, see --api-key`,
      );
    }
    const origins = await corsOrigins(flags);
    const { n_slots, ...context } = slotsOf(flags);
    const slotCache = slotCacheOf(flags);
    const tls = await tlsOf(flags);
    const page = await pageOf(flags);
    const log = await openRequestLog(flags, io);
    const { openServer } = await import("../serve/server.ts");
    const { endWithParent } = await import("../serve/router/routes.ts");
    const { chatOf, lacksTemplate, servedModel } = await import("../serve/language_model.ts");
    const { VERSION } = await import("./version.ts");
    const reasoningBudget = flags.num("reasoning-budget")!;
    const settings: ListenerSettings = {
      host,
      port,
      vertex,
      tls,
      n_slots,
      ...slotCache,
      apiKeys,
      corsOrigins: origins,
      ...(flags.has("cors-methods") ? { corsMethods: flags.strs("cors-methods") } : {}),
      ...(flags.has("cors-headers") ? { corsHeaders: flags.strs("cors-headers") } : {}),
      corsCredentials: isOn(flags, "cors-credentials"),
      tags: flags.strs("tags"),
      props: flags.bool("props"),
      form: Object.keys(form).length === 0 ? undefined : form,
      stop: flags.strs("reverse-prompt"),
      dryBreakers: dryBreakersOf(flags),
      cachePrompt: isOn(flags, "cache-prompt"),
      spmInfill: flags.bool("spm-infill"),
      readsAnswers: !flags.bool("skip-chat-parsing"),
      reasoningBudgetMessage: flags.str("reasoning-budget-message") ?? "",
      verbose: flags.bool("verbose"),
      reasoningFormat: flags.str("reasoning-format") as typeof REASONING_FORMATS[number],
      reasoningBudget,
      templateKwargs: kwargs,
      n_predict: maxTokensOf(flags) ?? -1,
      slots: isOn(flags, "slots"),
      prefill: isOn(flags, "prefill-assistant"),
      metrics: flags.bool("metrics"),
      pingSeconds: flags.num("sse-ping-interval")!,
      embeddings: poolingOf(flags),
      embdNormalize: flags.num("embd-normalize")!,
      page,
      apiPrefix: flags.str("api-prefix") ?? "",
      build: `bloomery-${VERSION}`,
      onRequest: (entry) => log.write(entry),
      logPrompts: flags.bool("log-prompts"),
      onWarning: (text) => io.warn(text),
      onError: (error) => io.error(error instanceof Error ? error.stack ?? error.message : String(error)),
    };
    if (wantsRouter(flags)) {
      return await listen({ host, port }, () => serveSeveral(flags, io, settings, () => keysOf(flags)));
    }
    endWithParent(() => Deno.exit(EXIT.done));
    // Before the weights: an address that cannot be had is known at once, and monitors see that the model loads.
    const waiting = await listen({ host, port }, () => openServer(settings));
    let opened: Awaited<ReturnType<typeof openModelFromFlags>> | undefined, drafter: Drafter | undefined;
    try {
      const path = await modelPath(flags, io);
      let model: ServedModel | undefined;
      opened = await openModelFromFlags(flags, io, {
        // Scored prompts give many rows at once.
        n_out: Math.max(n_slots, 64),
        path,
        n_seq: n_slots,
        adaptersOff: flags.bool("lora-init-without-apply"),
        ...context,
        beforeWeights(loading) {
          if (chatTemplate === undefined && lacksTemplate(loading)) {
            io.warn("the model has no chat template; chats use ChatML, see --chat-template");
          }
          const [id, ...aliases] = flags.strs("alias");
          const served = servedModel(loading, {
            ...(id === undefined ? {} : { id, aliases }),
            ...(chatTemplate === undefined ? {} : { chatTemplate }),
          });
          model = { ...served, sampling: { ...served.sampling, ...samplingOf(flags, served.tokenizer) } };
          if (reasoningBudget !== -1 && served.chat.reasoningTags === undefined) {
            io.warn("--reasoning-budget has no effect: this model's reasoning has no tag that could end it");
          }
        },
      });
      const { engine } = opened.model;
      drafter = await openDrafterFromFlags(opened, flags, io, { n_seq: n_slots });
      const server = waiting.serve({ ...model!, drafter });
      using _ = io.hold();
      const { n_ctx, n_free } = engine;
      const shared = n_free < n_ctx * n_slots ? `, which share ${n_free}` : "";
      io.note(`serving on ${server.url}: ${n_slots} ${n_slots === 1 ? "slot" : "slots"} of ${n_ctx} tokens${shared}`);
      const drain = () => {
        io.note("finishing the running requests; once more ends at once");
        server.drain();
      };
      if (io.signal.aborted) drain();
      else io.signal.addEventListener("abort", drain, { once: true });
      const { model: loaded } = opened;
      using _hup = onHangUp(io, () => {
        const template = chatTemplateOf(flags);
        server.reload({
          apiKeys: keysOf(flags),
          ...(template === undefined ? {} : { chat: chatOf(loaded, template) }),
        });
      });
      await server.drained;
    } finally {
      await waiting.stop();
      drafter?.[Symbol.dispose]();
      opened?.[Symbol.dispose]();
      log.close();
    }
    return EXIT.done;
  },
};

/** A switch that is on unless it was turned off. */
/** How vectors are pooled; undefined for a server of answers. @throws UsageError `usage.value` for a reranker with another pooling */
function poolingOf(flags: Flags): Pooling | "file" | undefined {
  const pooling = flags.str("pooling") as Pooling | undefined;
  if (!flags.bool("reranking")) return flags.bool("embeddings") ? pooling ?? "file" : undefined;
  if (pooling === undefined || pooling === "rank") return "rank";
  throw new UsageError("usage.value", `Cannot use --pooling ${pooling} with --reranking: expected rank`, {
    at: { flag: "pooling", got: pooling },
  });
}

function isOn(flags: Flags, name: string): boolean {
  return !flags.has(name) || flags.bool(name);
}

function templateKwargs(flags: Flags): Record<string, unknown> {
  const text = flags.str("chat-template-kwargs");
  if (text === undefined) return {};
  let value: unknown;
  try {
    value = parseJson(text);
  } catch {
    value = undefined;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new UsageError("usage.value", `Cannot use --chat-template-kwargs: expected a JSON object, found ${text}`, {
      at: { flag: "--chat-template-kwargs", got: text },
      hint: `for example --chat-template-kwargs '{"enable_thinking": false}'`,
    });
  }
  return value as Record<string, unknown>;
}

/** Keys of both flags. */
function keysOf(flags: Flags): string[] {
  const file = flags.str("api-key-file");
  const lines = file === undefined ? [] : readText(file, "api-key-file").split("\n").filter((l) => !l.startsWith("#"));
  const keys = [...flags.strs("api-key"), ...lines].map((key) => key.trim()).filter((key) => key !== "");
  if (keys.length === 0 && (file !== undefined || flags.strs("api-key").length > 0)) {
    throw new UsageError("usage.value", "Cannot ask for API keys: found none in --api-key and --api-key-file", {
      hint: "give a key, or leave both flags out to serve everybody who can reach the address",
    });
  }
  return keys;
}

/** Only programs of this machine reach the addresses. */
function isLocal(hosts: string): boolean {
  return hosts.split(",").every((host) => /^(localhost|::1|127\..*|.*\.sock)$/.test(host.trim()));
}

/** @throws UsageError `usage.address` when the address cannot be had. */
async function listen<T>({ host, port }: { host: string; port: number }, start: () => Promise<T>): Promise<T> {
  try {
    return await start();
  } catch (cause) {
    const known = osError(cause);
    if (known === undefined) throw cause;
    // Ports of services belong to the system's own programs.
    const reserved = known.code === "os.permission" && port < 1024;
    throw new UsageError("usage.address", `Cannot listen on ${host}:${port}: ${osReason(cause)}`, {
      at: { host, port },
      hint: reserved
        ? "ports below 1024 are the system's; choose another --port"
        : known.hint ?? "choose another --port",
      cause,
    });
  }
}
