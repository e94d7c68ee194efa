/**
 * Flags of `serve` that concern its address, its clients and its log.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import { osHint, osReason } from "../core/os_error.ts";
import type { Page } from "../serve/page.ts";
import type { LogFormat, RequestLogEntry } from "../serve/request_log.ts";
import type { Flag, Flags } from "./command.ts";
import type { Io } from "./io.ts";

export const HTTP_FLAGS: readonly Flag[] = [
  {
    name: "host",
    type: "string",
    value: "ADDRESS",
    default: "127.0.0.1",
    env: "LLAMA_ARG_HOST",
    help: "address to listen on",
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
    name: "api-prefix",
    type: "string",
    value: "PATH",
    env: "LLAMA_ARG_API_PREFIX",
    help: "path before every route, such as /llm",
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
    env: "LLAMA_LOG_FILE",
    help: "append the request log to a file instead; --quiet does not silence it",
  },
  {
    name: "log-prompts",
    type: "bool",
    help: "show prompts in the request log; without it no text of a request is in it",
  },
];

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
