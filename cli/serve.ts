/**
 * `bloomery serve`: a model over HTTP, in OpenAI's, Anthropic's and llama-server's shapes.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import { parseJson } from "../core/json.ts";
import { type Command, EXIT, type Flags, MODEL_FLAGS } from "./command.ts";
import { openModelFromFlags } from "./open.ts";

const REASONING_FORMATS = ["none", "auto", "deepseek", "deepseek-legacy"] as const;

export const serve: Command = {
  name: "serve",
  summary: "Serve a model over HTTP, in OpenAI's, Anthropic's and llama-server's shapes",
  arguments: [],
  flags: [
    ...MODEL_FLAGS,
    { name: "host", type: "string", value: "ADDRESS", default: "127.0.0.1", help: "address to listen on" },
    {
      name: "port",
      type: "int",
      value: "N",
      default: 8080,
      min: 0,
      max: 65535,
      help: "port to listen on, 0 = a free one",
    },
    {
      name: "parallel",
      alias: ["np"],
      type: "int",
      value: "N",
      default: 4,
      min: 1,
      max: 256,
      help: "requests answered at the same time (slots), each with the whole context",
    },
    {
      name: "cache-size",
      type: "int",
      value: "N",
      min: 1,
      help:
        "tokens the cache holds over all slots; default: ctx-size x parallel; with less, requests give way to others",
    },
    {
      name: "alias",
      alias: ["a"],
      type: "string",
      value: "NAME",
      help: "name of the model in answers; default: the file's",
    },
    {
      name: "api-key",
      type: "strings",
      value: "KEY",
      help: "key that requests must carry; may be given more than once",
    },
    { name: "api-key-file", type: "string", value: "FILE", help: "file with such keys, one a line" },
    {
      name: "reasoning-format",
      type: "string",
      value: "FORMAT",
      default: "auto",
      choices: REASONING_FORMATS,
      help: "where reasoning goes: none leaves it in content, the others split it off",
    },
    {
      name: "reasoning-budget",
      type: "int",
      value: "N",
      default: -1,
      min: -1,
      help: "most tokens of reasoning where a request sets no limit: 0 = none, -1 = no limit",
    },
    {
      name: "chat-template-file",
      type: "string",
      value: "FILE",
      help: "Jinja template used instead of the model's own",
    },
    {
      name: "chat-template-kwargs",
      type: "string",
      value: "JSON",
      help: "template variables of every chat, as an object",
    },
    { name: "quiet", alias: ["q"], type: "bool", help: "no progress on stderr" },
  ],
  epilog: "Example:\n  bloomery serve -m qwen3-8b-Q4_K_M.gguf --port 8080 --parallel 8\n\n" +
    "Routes: /v1/chat/completions /v1/completions /v1/models /v1/messages /completion /tokenize /detokenize\n" +
    "        /apply-template /health /props /slots /metrics\n\n" +
    "The first Ctrl-C or SIGTERM finishes the running requests, the second ends at once.",

  async run({ flags, io }) {
    const kwargs = templateKwargs(flags);
    const templateFile = flags.str("chat-template-file");
    const chatTemplate = templateFile === undefined ? undefined : readText("chat-template-file", templateFile);
    const apiKeys = keysOf(flags);
    const n_slots = flags.num("parallel")!;
    const n_ctx = flags.num("ctx-size") ?? await defaultContext(flags.str("model")!);
    const { startServer } = await import("../serve/server.ts");
    const { lacksTemplate, servedModel } = await import("../serve/language_model.ts");
    const { VERSION } = await import("./version.ts");
    using opened = await openModelFromFlags(flags, io, {
      n_ctx,
      n_cache: Math.max(flags.num("cache-size") ?? n_ctx * n_slots, n_ctx),
    });
    if (chatTemplate === undefined && lacksTemplate(opened.model)) {
      io.warn("the model has no chat template; chats use ChatML, see --chat-template-file");
    }
    const alias = flags.str("alias");
    const model = servedModel(opened.model, {
      ...(alias === undefined ? {} : { id: alias }),
      ...(chatTemplate === undefined ? {} : { chatTemplate }),
    });
    const reasoningBudget = flags.num("reasoning-budget")!;
    if (reasoningBudget !== -1 && model.chat.reasoningTags === undefined) {
      io.warn("--reasoning-budget has no effect: this model's reasoning has no tag that could end it");
    }
    const server = await listen(flags, () =>
      startServer({
        model,
        host: flags.str("host")!,
        port: flags.num("port")!,
        n_slots,
        apiKeys,
        reasoningFormat: flags.str("reasoning-format") as typeof REASONING_FORMATS[number],
        reasoningBudget,
        templateKwargs: kwargs,
        build: `bloomery-${VERSION}`,
        onWarning: (text) => io.warn(text),
        onError: (error) => io.error(error instanceof Error ? error.stack ?? error.message : String(error)),
      }));
    io.note(`serving on ${server.url}: ${n_slots} slots of ${n_ctx} tokens`);
    const drain = () => {
      io.note("finishing the running requests; once more ends at once");
      server.drain();
    };
    if (io.signal.aborted) drain();
    else io.signal.addEventListener("abort", drain, { once: true });
    await server.drained;
    return EXIT.done;
  },
};

/** Context of a slot where no flag says it: what the model was trained for, at most 8192, as the engine has it. */
async function defaultContext(path: string): Promise<number> {
  const { openGguf } = await import("../core/gguf/mod.ts");
  using file = openGguf(path);
  const architecture = file.metadata.str("general.architecture");
  return Math.min(file.metadata.int(`${architecture}.context_length`, 8192), 8192);
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
  const lines = file === undefined ? [] : readText("api-key-file", file).split("\n");
  const keys = [...flags.strs("api-key"), ...lines].map((key) => key.trim()).filter((key) => key !== "");
  if (keys.length === 0 && (file !== undefined || flags.strs("api-key").length > 0)) {
    throw new UsageError("usage.value", "Cannot ask for API keys: found none in --api-key and --api-key-file", {
      hint: "give a key, or leave both flags out to serve everybody who can reach the address",
    });
  }
  return keys;
}

function readText(flag: string, path: string): string {
  try {
    return Deno.readTextFileSync(path);
  } catch (cause) {
    throw new UsageError("usage.file", `Cannot read ${path} of --${flag}: ${(cause as Error).message}`, {
      at: { flag: `--${flag}`, got: path },
      cause,
    });
  }
}

/** @throws UsageError `usage.address` when the address cannot be had. */
async function listen<T>(flags: Flags, start: () => Promise<T>): Promise<T> {
  try {
    return await start();
  } catch (cause) {
    if (!(cause instanceof Deno.errors.AddrInUse) && !(cause instanceof Deno.errors.AddrNotAvailable)) throw cause;
    const address = `${flags.str("host")}:${flags.num("port")}`;
    throw new UsageError("usage.address", `Cannot listen on ${address}: ${cause.message}`, {
      at: { host: flags.str("host"), port: flags.num("port") },
      hint: "another server may run there; choose another --port, 0 takes a free one",
      cause,
    });
  }
}
