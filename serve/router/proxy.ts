/**
 * A request handed on to a server on a Unix socket, and its answer handed back as it comes. Who does not read is not read for: what
 * waits is the other server's.
 * @module
 */
import http from "node:http";
import { Readable } from "node:stream";

export interface ProxyRequest {
  readonly method: string;
  /** Path and query. */
  readonly path: string;
  readonly headers: Headers;
  readonly body: string;
  /** Fires when the client has left. */
  readonly signal: AbortSignal;
}

/** Of one connection: they are not handed on. */
const HOP = [
  "connection",
  "keep-alive",
  "transfer-encoding",
  "upgrade",
  "te",
  "trailer",
  "host",
  "content-length",
  "expect",
];

/**
 * @param secret Headers that the other server is not to see.
 * @param onEnd Called once, when the answer has been read, was given up or failed.
 * @throws What node:http throws where no answer begins.
 */
export function proxied(
  socket: string,
  { method, path, headers, body, signal }: ProxyRequest,
  { secret, onEnd }: { secret: readonly string[]; onEnd: () => void },
): Promise<Response> {
  const { promise, resolve, reject } = Promise.withResolvers<Response>();
  let ended = false;
  const end = () => {
    if (ended) return;
    ended = true;
    signal.removeEventListener("abort", leave);
    onEnd();
  };
  const sent: Record<string, string> = { "content-length": String(new TextEncoder().encode(body).length) };
  headers.forEach((value, name) => {
    if (!HOP.includes(name) && !secret.includes(name)) sent[name] = value;
  });
  const request = http.request({ socketPath: socket, method, path, headers: sent }, (answer) => {
    const kept = new Headers();
    for (const [name, value] of Object.entries(answer.headers)) {
      if (value !== undefined && !HOP.includes(name)) kept.set(name, Array.isArray(value) ? value.join(", ") : value);
    }
    answer.on("close", end);
    const status = answer.statusCode ?? 502, empty = status === 204 || status === 304 || method === "HEAD";
    if (empty) answer.resume();
    resolve(
      new Response(empty ? null : Readable.toWeb(answer) as ReadableStream<Uint8Array>, { status, headers: kept }),
    );
  });
  const leave = () => request.destroy(new Error("the client has left"));
  request.on("error", (error) => {
    end();
    reject(error);
  });
  if (signal.aborted) leave();
  else signal.addEventListener("abort", leave, { once: true });
  request.end(body);
  return promise;
}
