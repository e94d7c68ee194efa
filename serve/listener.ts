/**
 * The socket side of the server: HTTP requests in, web responses out. The one module that knows node:http.
 *
 * node:http and not `Deno.serve`, because the latter does not notice that a client left when the request's body came in a
 * packet of its own, as most clients send it, and the answer has not begun: such requests would keep their slot.
 * @module
 */
import http from "node:http";

/** A request as it came in. */
export interface Incoming {
  method: string;
  url: URL;
  headers: Headers;
  body: AsyncIterable<Uint8Array>;
  /** Fires when the client leaves before it has the whole answer. */
  signal: AbortSignal;
}

export interface ListenOptions {
  host: string;
  /** 0 takes a free one. */
  port: number;
  handle: (request: Incoming) => Promise<Response>;
  /** Receives what goes wrong outside of `handle`. */
  onError: (error: unknown) => void;
}

export interface Listener {
  readonly port: number;
  /** Takes no more connections, lets the running requests finish; resolves when the last connection is closed. */
  close(): Promise<void>;
  /** Cuts every connection. */
  abort(): void;
  /** Resolves when the listener has ended, by either way. */
  readonly closed: Promise<void>;
}

/**
 * Starts to listen.
 * @throws The system's error, with its `code` (`EADDRINUSE`, `EACCES`, ...), when the address cannot be had.
 */
export async function listen({ host, port, handle, onError }: ListenOptions): Promise<Listener> {
  let closing = false;
  const server = http.createServer((request, response) => {
    // A connection that stays open would keep a closing server alive.
    if (closing) response.setHeader("connection", "close");
    answer(request, response, handle).catch((error) => {
      onError(error);
      response.destroy();
    });
  });
  server.requestTimeout = 0; // a long upload is the client's own affair; its headers must still come in time
  server.keepAliveTimeout = 75_000; // longer than the idle time of common proxies
  server.on("clientError", (_error, socket) => {
    if (socket.writable) socket.end("HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    else socket.destroy();
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => {
      server.off("error", reject);
      resolve();
    });
  });
  server.on("error", onError);
  const { promise: closed, resolve: setClosed } = Promise.withResolvers<void>();
  return {
    port: (server.address() as { port: number }).port,
    closed,
    close() {
      if (!closing) {
        closing = true;
        server.close(() => setClosed());
        server.closeIdleConnections();
      }
      return closed;
    },
    abort() {
      if (!closing) {
        closing = true;
        server.close(() => setClosed());
      }
      server.closeAllConnections();
    },
  };
}

async function answer(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  handle: ListenOptions["handle"],
): Promise<void> {
  const left = new AbortController();
  response.on("close", () => {
    if (!response.writableFinished) left.abort();
  });
  response.on("error", () => left.abort());
  request.on("error", () => left.abort());
  let incoming: Incoming;
  try {
    incoming = {
      method: request.method ?? "GET",
      url: new URL(request.url ?? "/", "http://localhost"),
      headers: headersOf(request),
      body: request,
      signal: left.signal,
    };
  } catch { // an address or a header that is none
    response.writeHead(400, { "content-length": 0, connection: "close" }).end();
    return;
  }
  const result = await handle(incoming);
  if (left.signal.aborted) {
    await result.body?.cancel();
    return;
  }
  // Nobody reads what is left of a body, so the connection cannot take another request.
  if (!request.complete) response.setHeader("connection", "close");
  for (const [name, value] of result.headers) response.setHeader(name, value);
  response.writeHead(result.status);
  if (result.body === null) response.end();
  else if (request.method === "HEAD") {
    await result.body.cancel();
    response.end();
  } else if (result.headers.get("content-type")?.startsWith("text/event-stream")) {
    await stream(result.body, response, left.signal);
  } else response.end(new Uint8Array(await result.arrayBuffer()));
}

function headersOf(request: http.IncomingMessage): Headers {
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers)) {
    if (value !== undefined) headers.set(name, Array.isArray(value) ? value.join(", ") : value);
  }
  return headers;
}

/** Writes a body as it comes, no faster than the client reads. */
async function stream(
  body: ReadableStream<Uint8Array>,
  response: http.ServerResponse,
  left: AbortSignal,
): Promise<void> {
  response.flushHeaders();
  const reader = body.getReader();
  const leave = () => {
    reader.cancel().catch(() => {});
  };
  left.addEventListener("abort", leave, { once: true });
  try {
    while (!left.aborted) {
      const { done, value } = await reader.read();
      if (done) break;
      if (!response.write(value)) await drained(response, left);
    }
  } finally {
    left.removeEventListener("abort", leave);
  }
  response.end();
}

/** Resolves when the response takes more, or its client has left. */
function drained(response: http.ServerResponse, left: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      response.off("drain", done);
      left.removeEventListener("abort", done);
      resolve();
    };
    response.on("drain", done);
    left.addEventListener("abort", done, { once: true });
    if (left.aborted) done();
  });
}
