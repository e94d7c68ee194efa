/**
 * One request: what routes read of it, and what the log shows when it has ended.
 * @module
 */
import { ApiError, badRequest } from "./errors.ts";
import type { Generation } from "./generation.ts";
import type { Incoming } from "./listener.ts";

export class Exchange {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: Headers;
  /** Fires when the client disconnects. */
  readonly signal: AbortSignal;
  /** For logs and the header `x-request-id`: the client's own, else a fresh one. */
  readonly id: string;
  /** Parts of the path that the route names. */
  params: Record<string, string> = {};
  /** The body's text; "" without one. */
  body = "";
  /** Milliseconds of `performance.now()`. */
  readonly started = performance.now();
  status = 0;
  /** `error.code` of a failed request. */
  failure: string | undefined;
  /** A stream that is silent for so many seconds sends a comment; 0 or less: never. */
  pingSeconds = 30;
  /** The answer goes on without its client, who may read it again. */
  detached = false;
  /** The answer is a stream, so it ends after the handler has returned. */
  streams = false;
  /** The answers that it started. */
  readonly generations: Generation[] = [];
  readonly #parts: Exchange[] = [];
  readonly #incoming: Incoming;
  readonly #onEnd: (exchange: Exchange) => void;
  #ended = false;

  constructor(incoming: Incoming, onEnd: (exchange: Exchange) => void) {
    const { method, url, headers, signal } = incoming;
    this.#incoming = incoming;
    this.#onEnd = onEnd;
    this.method = method;
    this.path = url.pathname;
    this.query = url.searchParams;
    this.headers = headers;
    this.signal = signal;
    const given = headers.get("x-request-id");
    this.id = given !== null && /^[\w.:-]{1,128}$/.test(given) ? given : crypto.randomUUID();
  }

  /** The conversation that the client names. */
  get conversation(): string | undefined {
    const id = this.headers.get("x-conversation-id");
    return id !== null && id !== "" && id.length <= 256 ? id : undefined;
  }

  /**
   * A request that came within this one; it has the same client.
   * @param cancel Ends its answers early.
   */
  part(body: string, cancel: AbortSignal): Exchange {
    const signal = AbortSignal.any([this.signal, cancel]);
    const part = new Exchange({ ...this.#incoming, signal }, () => {});
    part.body = body;
    this.#parts.push(part);
    return part;
  }

  /** Takes from a request's body how its answer is sent. */
  sends({ stream, sse_ping_interval }: { stream?: boolean | undefined; sse_ping_interval?: number | undefined }): void {
    this.pingSeconds = sse_ping_interval ?? this.pingSeconds;
    this.detached = (stream ?? false) && this.conversation !== undefined;
  }

  /**
   * Reads the body.
   * @throws ApiError 413 for a body above the limit, 400 for one that is not UTF-8.
   */
  async readBody(limit: number): Promise<void> {
    const tooLarge = () =>
      new ApiError(413, "invalid_request_error", "body_too_large", `The body is larger than ${limit} bytes`);
    if (Number(this.headers.get("content-length") ?? 0) > limit) throw tooLarge();
    const parts: Uint8Array[] = [];
    let size = 0;
    for await (const part of this.#incoming.body) {
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
      this.body = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch {
      throw badRequest("The body is not UTF-8 text", undefined, "invalid_json");
    }
  }

  /** Call it when the answer is complete or the client has disconnected; later calls do nothing. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.generations.push(...this.#parts.flatMap((part) => part.generations));
    this.#onEnd(this);
  }
}
