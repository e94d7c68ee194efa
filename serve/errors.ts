/**
 * Errors as clients see them: OpenAI's error object and an HTTP status.
 *
 * `code` and `type` follow OpenAI where OpenAI has a name for the case, because clients branch on them; the error's own
 * stable code is `serve.*` like everywhere else.
 * @module
 */
import { BloomeryError, type ErrorFacts, ServeError } from "../core/errors.ts";

/** OpenAI's `error.type` values, with the ones llama-server adds. */
export type ApiErrorType =
  | "invalid_request_error"
  | "authentication_error"
  | "feature_disabled"
  | "not_found_error"
  | "exceed_context_size_error"
  | "not_supported_error"
  | "unavailable_error"
  | "server_error";

export interface ApiErrorOptions {
  /** The request field at fault, e.g. `messages[2].content`. */
  param?: string;
  /** OpenAI's `error.code` where it differs from the stable code after its dot. */
  apiCode?: string;
  /** Members added to the error object, e.g. `n_ctx`. */
  extra?: ErrorFacts;
  hint?: string;
  cause?: unknown;
}

/** A refused request: the HTTP status and the members of the error object. */
export class ApiError extends ServeError {
  readonly status: number;
  readonly type: ApiErrorType;
  readonly param: string | null;
  readonly apiCode: string;
  readonly extra: ErrorFacts;

  constructor(status: number, type: ApiErrorType, code: string, message: string, options: ApiErrorOptions = {}) {
    super(`serve.${code}`, message, {
      at: { ...options.extra, ...(options.param === undefined ? {} : { param: options.param }) },
      ...(options.hint === undefined ? {} : { hint: options.hint }),
      ...(options.cause === undefined ? {} : { cause: options.cause }),
    });
    this.status = status;
    this.type = type;
    this.param = options.param ?? null;
    this.apiCode = options.apiCode ?? code;
    this.extra = options.extra ?? {};
  }
}

/** 400: the request's own fault; `param` names the field. */
export function badRequest(message: string, param?: string, code = "invalid_value"): ApiError {
  return new ApiError(400, "invalid_request_error", code, message, param === undefined ? {} : { param });
}

/** 400 for a field that this server knows and does not support: ignoring it would change the answer. */
export function unsupported(param: string, why: string): ApiError {
  return badRequest(`${param}: ${why}`, param, "unsupported_parameter");
}

/** 400: the prompt leaves no room in the context. */
export function contextTooSmall(n_prompt_tokens: number, n_ctx: number): ApiError {
  return new ApiError(
    400,
    "exceed_context_size_error",
    "context_length",
    // Agents shorten the conversation when they find one of these phrases: do not reword them.
    `The prompt of ${n_prompt_tokens} tokens exceeds the available context size: the maximum context length is ${n_ctx} tokens`,
    {
      apiCode: "context_length_exceeded",
      extra: { n_prompt_tokens, n_ctx },
      hint: "shorten the prompt, or start the server with a larger --ctx-size",
    },
  );
}

/** 501: the route exists and is switched off. */
export function switchedOff(path: string, flag: string): ApiError {
  return new ApiError(501, "not_supported_error", "switched_off", `This server does not answer ${path}`, {
    hint: `start it with ${flag}`,
  });
}

/** 501: this model, or this server, cannot do what the route does. */
export function notSupported(message: string, hint?: string): ApiError {
  return new ApiError(501, "not_supported_error", "not_supported", message, hint === undefined ? {} : { hint });
}

/** 501: what routes of answers say in a server for vectors. */
export function noAnswers(): ApiError {
  return notSupported("This server does not support completions. Start it without `--embeddings`");
}

/** 503: the server cannot take the request now. */
export function unavailable(code: string, message: string): ApiError {
  return new ApiError(503, "unavailable_error", code, message);
}

/**
 * Starts an answer for an API that names the answer's form `field`. Errors about OpenAI's `response_format`, to which the
 * request was translated, get that name.
 */
export function inWordsOf<T>(field: string, start: () => T): T {
  try {
    return start();
  } catch (error) {
    if (!(error instanceof ApiError) || !error.message.includes("response_format")) throw error;
    const message = error.message.replaceAll(/response_format(\.json_schema)?/g, field);
    throw new ApiError(error.status, error.type, "invalid_value", message, {
      param: field,
      apiCode: error.apiCode,
      cause: error,
    });
  }
}

/** Turns any thrown value into the error that a client gets. Unforeseen errors become a 500 without internals. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof BloomeryError) {
    const area = error.code.split(".")[0];
    if (area === "text" || area === "usage") {
      return new ApiError(400, "invalid_request_error", "invalid_value", error.message, {
        apiCode: error.code,
        cause: error,
        ...(error.code.startsWith("text.template") ? { param: "messages" } : {}),
      });
    }
    if (error.code === "engine.no_pages") {
      return new ApiError(503, "unavailable_error", "cache_full", error.message, { cause: error });
    }
    return new ApiError(500, "server_error", "internal", error.message, { apiCode: error.code, cause: error });
  }
  return new ApiError(500, "server_error", "internal", "The server failed while it processed the request", {
    apiCode: "internal_error",
    cause: error,
  });
}

/** The body of an error response and of an error event in a stream. */
export function errorBody(error: ApiError): { error: Record<string, unknown> } {
  const message = error.hint === undefined ? error.message : `${error.message} (${error.hint})`;
  return { error: { message, type: error.type, code: error.apiCode, param: error.param, ...error.extra } };
}

/** The same in Anthropic's shape, for its routes. */
export function anthropicErrorBody(error: ApiError): { type: "error"; error: Record<string, unknown> } {
  const types: Record<number, string> = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    503: "overloaded_error",
  };
  const { n_prompt_tokens, n_ctx } = error.extra;
  // Anthropic's own API says this, and its agents search for it.
  const tooLong = error.type === "exceed_context_size_error"
    ? `prompt is too long: ${n_prompt_tokens} tokens > ${n_ctx} maximum. `
    : "";
  const { message, code, param, ...more } = errorBody(error).error;
  return {
    type: "error",
    error: { ...more, type: types[error.status] ?? "api_error", message: tooLong + message, code, param },
  };
}

/** An error response. */
export function errorResponse(error: ApiError, body: (error: ApiError) => object = errorBody): Response {
  const headers = new Headers({ "content-type": "application/json; charset=utf-8" });
  if (error.status === 401) headers.set("www-authenticate", "Bearer");
  if (error.status === 503) headers.set("retry-after", "1");
  return new Response(JSON.stringify(body(error)), { status: error.status, headers });
}
