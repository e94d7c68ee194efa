/**
 * Flags of `serve` that concern its address, its clients and its log.
 * @module
 */
import { NAMED_TEMPLATES } from "../core/chat/named_templates.ts";
import { UsageError } from "../core/errors.ts";
import { osHint, osReason } from "../core/os_error.ts";
import type { Tls } from "../serve/listener.ts";
import type { Page } from "../serve/page.ts";
import type { LogFormat, RequestLogEntry } from "../serve/request_log.ts";
import type { Flag, Flags } from "./command.ts";
import type { Io } from "./io.ts";
import { nearest } from "./nearest.ts";
import { readText } from "./text_file.ts";

export const HTTP_FLAGS: readonly Flag[] = [
  {
    name: "host",
    type: "string",
    value: "ADDRESS",
    default: "127.0.0.1",
    env: "LLAMA_ARG_HOST",
    help: "address to listen on; several are separated by commas, and the path of a Unix socket ends in .sock",
  },
  {
    name: "port",
    type: "int",
    value: "N",
    default: 8080,
    min: 0,
    max: 65535,
    env: "LLAMA_ARG_PORT",
    help: "port to listen on, 0 = a free one",
  },
  {
    name: "alias",
    alias: ["a"],
    type: "strings",
    value: "NAME",
    separator: ",",
    env: "LLAMA_ARG_ALIAS",
    help: "name of the model, may be given more than once: the first is shown; default: the file's name",
  },
  {
    name: "cors-origins",
    type: "strings",
    value: "ORIGIN",
    separator: ",",
    env: "LLAMA_ARG_CORS_ORIGINS",
    help: "pages that browsers let use the server: * = all (default), localhost = those of this machine, or " +
      "https://HOST[:PORT]",
  },
  {
    name: "cors-methods",
    type: "strings",
    value: "METHOD",
    separator: ",",
    env: "LLAMA_ARG_CORS_METHODS",
    help: "methods that such pages may use; default: those of the routes",
  },
  {
    name: "cors-headers",
    type: "strings",
    value: "NAME",
    separator: ",",
    env: "LLAMA_ARG_CORS_HEADERS",
    help: "headers that such pages may send, * = all (default)",
  },
  {
    name: "cors-credentials",
    type: "bool",
    off: [],
    env: "LLAMA_ARG_CORS_CREDENTIALS",
    help: "let such pages send credentials; on unless --no-cors-credentials is given",
  },
  {
    name: "tags",
    type: "strings",
    value: "WORD",
    separator: ",",
    env: "LLAMA_ARG_TAGS",
    help: "words about the model, which /v1/models shows",
  },
];

export const ROUTE_FLAGS: readonly Flag[] = [
  {
    name: "metrics",
    type: "bool",
    off: [],
    env: "LLAMA_ARG_ENDPOINT_METRICS",
    help: "answer GET /metrics, for Prometheus",
  },
  {
    name: "props",
    type: "bool",
    env: "LLAMA_ARG_ENDPOINT_PROPS",
    help: "answer POST /props, which has nothing to change",
  },
  {
    name: "api-prefix",
    type: "string",
    value: "PATH",
    env: "LLAMA_ARG_API_PREFIX",
    help: "path before every route, such as /llm",
  },
];

/** Vectors in place of answers. */
export const EMBEDDING_FLAGS: readonly Flag[] = [
  {
    name: "embeddings",
    alias: ["embedding"],
    type: "bool",
    env: "LLAMA_ARG_EMBEDDINGS",
    help: "give vectors of texts (/v1/embeddings, /embedding) and no answers",
  },
  {
    name: "pooling",
    type: "string",
    choices: ["none", "mean", "cls", "last", "rank"],
    env: "LLAMA_ARG_POOLING",
    help: "with --embeddings: how the vectors of a text's tokens become one; default: as the file says",
  },
  {
    name: "reranking",
    alias: ["rerank"],
    type: "bool",
    env: "LLAMA_ARG_RERANKING",
    help: "give scores of texts for a question (/v1/rerank) and no answers: --embeddings --pooling rank",
  },
  {
    name: "embd-normalize",
    type: "int",
    value: "N",
    default: 2,
    min: -1,
    env: "LLAMA_ARG_EMBD_NORMALIZE",
    help: "with --embeddings: norm that becomes 1; -1 none, 0 largest value 32760",
  },
];

export const PAGE_FLAGS: readonly Flag[] = [
  {
    name: "ui",
    alias: ["webui"],
    type: "bool",
    off: ["no-webui"],
    env: "LLAMA_ARG_UI",
    help: "answer / with the page; on unless --no-ui is given",
  },
  {
    name: "path",
    type: "string",
    value: "DIR",
    env: "LLAMA_ARG_STATIC_PATH",
    help: "answer / with the files of a folder instead of the page",
  },
];

/** What the flags make of `/`; null: nothing. @throws {UsageError} `usage.file` when the folder cannot be read */
export async function pageOf(flags: Flags): Promise<Page | null> {
  if (flags.has("ui") && !flags.bool("ui")) return null;
  const { FolderPage, OwnPage } = await import("../serve/page.ts");
  const path = flags.str("path");
  if (path === undefined) return new OwnPage();
  try {
    if (Deno.statSync(path).isDirectory) return new FolderPage(path);
  } catch (cause) {
    const hint = osHint(cause);
    throw new UsageError("usage.file", `Cannot serve ${path} of --path: ${osReason(cause)}`, {
      at: { flag: "--path", file: path },
      ...(hint === undefined ? {} : { hint }),
      cause,
    });
  }
  throw new UsageError("usage.file", `Cannot serve ${path} of --path: it is a file, expected a folder`, {
    at: { flag: "--path", file: path },
  });
}

export const PREFILL_FLAG: Flag = {
  name: "prefill-assistant",
  type: "bool",
  off: [],
  env: "LLAMA_ARG_PREFILL_ASSISTANT",
  help: "continue a last message of the assistant; on unless --no-prefill-assistant is given",
};

export const PING_FLAG: Flag = {
  name: "sse-ping-interval",
  type: "int",
  value: "N",
  default: 30,
  min: -1,
  max: 86_400,
  env: "LLAMA_ARG_SSE_PING_INTERVAL",
  help: "seconds after which a silent stream sends a comment, so that nobody takes it for dead; 0 or -1 = never",
};

export const LOG_FLAGS: readonly Flag[] = [
  {
    name: "log-format",
    type: "string",
    value: "FORMAT",
    default: "text",
    choices: ["text", "json"],
    help: "form of the request log: a line for each request, on stderr when it ends",
  },
  {
    name: "log-file",
    type: "string",
    value: "FILE",
    env: "LLAMA_ARG_LOG_FILE",
    help: "append the request log to a file instead; --quiet does not silence it",
  },
  {
    name: "log-prompts",
    type: "bool",
    help: "show prompts in the request log; without it no text of a request is in it",
  },
];

export const TLS_FLAGS: readonly Flag[] = [
  {
    name: "ssl-key-file",
    type: "string",
    value: "FILE",
    env: "LLAMA_ARG_SSL_KEY_FILE",
    help: "private key as PEM: the server speaks HTTPS; with --ssl-cert-file",
  },
  {
    name: "ssl-cert-file",
    type: "string",
    value: "FILE",
    env: "LLAMA_ARG_SSL_CERT_FILE",
    help: "certificate of that key, and those above it, as PEM",
  },
];

/** The certificate that the flags name. @throws {UsageError} `usage.value` for half of it, or what is none; `usage.file` */
export async function tlsOf(flags: Flags): Promise<Tls | undefined> {
  const keyFile = flags.str("ssl-key-file"), certFile = flags.str("ssl-cert-file");
  if (keyFile === undefined && certFile === undefined) return undefined;
  if (keyFile === undefined || certFile === undefined) {
    const missing = keyFile === undefined ? "--ssl-key-file" : "--ssl-cert-file";
    throw new UsageError("usage.value", `Cannot speak HTTPS: ${missing} is missing`, { at: { flag: missing } });
  }
  const tls = { key: readText(keyFile, "ssl-key-file"), cert: readText(certFile, "ssl-cert-file") };
  const { createPrivateKey, X509Certificate } = await import("node:crypto");
  const refuse = (why: string, cause?: unknown) => {
    throw new UsageError("usage.value", `Cannot speak HTTPS with ${certFile} and ${keyFile}: ${why}`, {
      at: { "ssl-cert-file": certFile, "ssl-key-file": keyFile },
      hint: "both are PEM texts, and the key is the certificate's",
      ...(cause === undefined ? {} : { cause }),
    });
  };
  let fits = false;
  try {
    fits = new X509Certificate(tls.cert).checkPrivateKey(createPrivateKey(tls.key));
  } catch (cause) {
    refuse((cause as Error).message, cause);
  }
  if (!fits) refuse("the key is another certificate's");
  return tls;
}

/**
 * What Google's Vertex AI asks of a container, by its environment variables.
 * @throws {UsageError} `usage.value` for a port that is none
 */
export function vertexOf(
  env: (name: string) => string | undefined,
): { port: number; predictRoute: string; healthRoute: string } | undefined {
  if (env("AIP_MODE") !== "PREDICTION") return undefined;
  const route = (name: string, standard: string) => `/${(env(name) || standard).replace(/^\/+/, "")}`;
  const port = env("AIP_HTTP_PORT") || "8080";
  if (!/^\d{1,5}$/.test(port) || Number(port) > 65535) {
    throw new UsageError("usage.value", `Cannot use AIP_HTTP_PORT ${port}: expected a port`, {
      at: { flag: "AIP_HTTP_PORT", got: port },
    });
  }
  const predictRoute = route("AIP_PREDICT_ROUTE", "predict"), healthRoute = route("AIP_HEALTH_ROUTE", "health");
  return { port: Number(port), predictRoute, healthRoute };
}

/** What answers get where a request does not say. */
export const ANSWER_FLAGS: readonly Flag[] = [
  {
    name: "cache-prompt",
    type: "bool",
    off: [],
    env: "LLAMA_ARG_CACHE_PROMPT",
    help: "begin prompts with what is computed, where a request does not say; on unless --no-cache-prompt is given",
  },
  {
    name: "reverse-prompt",
    alias: ["r"],
    type: "strings",
    value: "TEXT",
    help: "text that ends an answer where a request names none; may be given several times",
  },
  {
    name: "reasoning-budget-message",
    type: "string",
    value: "TEXT",
    env: "LLAMA_ARG_THINK_BUDGET_MESSAGE",
    help: "text before the tag that ends reasoning at its limit",
  },
  {
    name: "spm-infill",
    type: "bool",
    help: "prompts of /infill have the text behind the gap before the one in front of it",
  },
  {
    name: "skip-chat-parsing",
    type: "bool",
    off: [],
    env: "LLAMA_ARG_SKIP_CHAT_PARSING",
    help: "read neither reasoning nor calls out of answers: all of an answer is its content",
  },
];

/** Which chat template a model gets. */
export const TEMPLATE_FLAGS: readonly Flag[] = [
  {
    name: "chat-template",
    type: "string",
    value: "NAME",
    env: "LLAMA_ARG_CHAT_TEMPLATE",
    help: `template used instead of the model's own: ${Object.keys(NAMED_TEMPLATES).join(", ")}, or Jinja text`,
  },
  {
    name: "chat-template-file",
    type: "string",
    value: "FILE",
    env: "LLAMA_ARG_CHAT_TEMPLATE_FILE",
    help: "file with such a Jinja text",
  },
];

/** The template that the flags name. @throws {UsageError} `usage.value`, `usage.file` */
export function chatTemplateOf(flags: Flags): string | undefined {
  const file = flags.str("chat-template-file");
  if (file !== undefined) return readText(file, "chat-template-file");
  const given = flags.str("chat-template");
  if (given === undefined || given.includes("{")) return given;
  if (Object.hasOwn(NAMED_TEMPLATES, given)) return NAMED_TEMPLATES[given];
  const names = Object.keys(NAMED_TEMPLATES), meant = nearest(given, names);
  throw new UsageError("usage.value", `Cannot use --chat-template ${given}: there is no template of this name`, {
    at: { flag: "--chat-template", got: given },
    hint: meant === undefined ? `the names are ${names.join(", ")}` : `did you mean ${meant}?`,
  });
}

/** Origins that may use the server. @throws {UsageError} `usage.value` */
export async function corsOrigins(flags: Flags): Promise<string[]> {
  const origins = flags.strs("cors-origins").map((o) => o.trim()).filter((o) => o !== "");
  if (origins.length === 0) return ["*"];
  const { isCorsOrigin } = await import("../serve/cors.ts");
  const wrong = origins.find((o) => !isCorsOrigin(o));
  if (wrong === undefined) return origins;
  throw new UsageError("usage.value", `Cannot use --cors-origins ${wrong}: expected *, localhost or an origin`, {
    at: { flag: "--cors-origins", got: wrong },
    hint: "an origin is a scheme and a host without a path, for example https://example.org",
  });
}

export interface RequestLog {
  write(entry: RequestLogEntry): void;
  close(): void;
}

/** Opens the request log. @throws {UsageError} `usage.file` when its file cannot be written */
export async function openRequestLog(flags: Flags, io: Io): Promise<RequestLog> {
  const { formatEntry } = await import("../serve/request_log.ts");
  const format = flags.str("log-format") as LogFormat;
  const path = flags.str("log-file");
  if (path === undefined) return { write: (entry) => io.note(formatEntry(entry, format)), close: () => {} };
  let file: Deno.FsFile;
  try {
    file = Deno.openSync(path, { append: true, create: true });
  } catch (cause) {
    const hint = osHint(cause);
    throw new UsageError("usage.file", `Cannot write ${path} of --log-file: ${osReason(cause)}`, {
      at: { flag: "--log-file", file: path },
      ...(hint === undefined ? {} : { hint }),
      cause,
    });
  }
  const encoder = new TextEncoder();
  let failed = false;
  return {
    write(entry) {
      try {
        file.writeSync(encoder.encode(formatEntry(entry, format) + "\n"));
        failed = false;
      } catch (error) { // a full disk must not end the server
        if (!failed) io.warn(`the request log cannot be written to ${path}: ${osReason(error)}`);
        failed = true;
      }
    },
    close: () => file.close(),
  };
}
