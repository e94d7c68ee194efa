/**
 * The socket side of the server: HTTP requests in, web responses out. The one module that knows node:http.
 *
 * `Deno.serve` does not notice a disconnected client when the body arrived in its own packet, as most clients send it, and the
 * answer has not begun. Such a request would keep its slot. node:http notices.
 * @module
 */
import http from "node:http";
import https from "node:https";
import type { Socket } from "node:net";

/** A request as it came in. */
export interface Incoming {
  method: string;
  url: URL;
  headers: Headers;
  body: AsyncIterable<Uint8Array>;
  /** Fires when the client disconnects before it has the whole answer. */
  signal: AbortSignal;
}

/** A certificate and its key, as PEM text. */
export interface Tls {
  /** The certificate, and those that vouch for it. */
  cert: string;
  /** The private key. */
  key: string;
}

export interface ListenOptions {
  /** Addresses, separated by commas; one that ends in `.sock` is the path of a Unix socket. */
  host: string;
  /** Of all addresses; 0 takes a free one. */
  port: number;
  /** Speaks HTTPS. */
  tls?: Tls | undefined;
  handle: (request: Incoming) => Promise<Response>;
  /** Receives what goes wrong outside of `handle`. */
  onError: (error: unknown) => void;
}

export interface Listener {
  /** 0 where there are Unix sockets alone. */
  readonly port: number;
  /** Accepts no more connections and lets running requests finish; resolves when the last connection is closed. */
  close(): Promise<void>;
  /** Closes every connection at once. */
  abort(): void;
  /** Resolves when the listener has ended, after `close` or `abort`. */
  readonly closed: Promise<void>;
}

/**
 * Starts to listen on every address.
 * @throws The system's error when it cannot listen on one of them; then it listens on none.
 */
export async function listen(options: ListenOptions): Promise<Listener> {
  const hosts = options.host.split(",").map((host) => host.trim()).filter((host) => host !== "");
  const opened: Listener[] = [];
  let port = options.port;
  try {
    for (const host of hosts) {
      const listener = isSocket(host) ? await listenOnSocket(host, options) : await listenOnPort(host, port, options);
      opened.push(listener);
      if (!isSocket(host)) port = listener.port; // the free one that the first address took
    }
  } catch (error) {
    for (const listener of opened) listener.abort();
    await Promise.all(opened.map((l) => l.closed));
    throw error;
  }
  const closed = Promise.all(opened.map((l) => l.closed)).then(() => {});
  return {
    port: hosts.every(isSocket) ? 0 : port,
    closed,
    close() {
      for (const listener of opened) listener.close();
      return closed;
    },
    abort() {
      for (const listener of opened) listener.abort();
    },
  };
}

/** Whether an address is the path of a Unix socket. */
export function isSocket(host: string): boolean {
  return host.endsWith(".sock");
}

async function listenOnPort(host: string, port: number, options: ListenOptions): Promise<Listener> {
  const { server, listener } = create(options);
  try {
    await started(server, () => server.listen(port, host));
  } catch (error) {
    Deno.listen({ hostname: host, port }).close(); // fails too, and names the reason more exactly
    throw error;
  }
  server.on("error", options.onError);
  return { ...listener, port: (server.address() as { port: number }).port };
}

async function listenOnSocket(path: string, options: ListenOptions): Promise<Listener> {
  const { server, listener } = create(options);
  try {
    await started(server, () => server.listen(path));
  } catch (error) {
    if (!await isLeftBehind(path)) throw error;
    // A server that was killed could not take its socket away.
    await Deno.remove(path);
    await started(server, () => server.listen(path));
  }
  server.on("error", options.onError);
  return { ...listener, port: 0 };
}

/** Whether a path is a socket on which nobody listens. */
async function isLeftBehind(path: string): Promise<boolean> {
  const known = await Deno.lstat(path).catch(() => undefined);
  if (known?.isSocket !== true) return false;
  try {
    (await Deno.connect({ transport: "unix", path })).close();
    return false;
  } catch {
    return true;
  }
}

function started(server: http.Server, listen: () => void): Promise<void> {
  return new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.once("listening", () => {
      server.off("error", reject);
      resolve();
    });
    listen();
  });
}

/** A server that does not listen yet. */
function create({ tls, handle, onError }: ListenOptions): { server: http.Server; listener: Omit<Listener, "port"> } {
  let closing = false;
  /** Open connections, and how many requests each has under way: those without any would keep a closing server alive. */
  const connections = new Map<Socket, number>();
  const requests = (socket: Socket, more: number) => {
    const n = connections.get(socket);
    if (n !== undefined) connections.set(socket, n + more);
  };
  const onRequest = (request: http.IncomingMessage, response: http.ServerResponse) => {
    if (closing) response.setHeader("connection", "close");
    const { socket } = request;
    requests(socket, 1);
    response.on("close", () => requests(socket, -1));
    answer(request, response, handle).catch((error) => {
      onError(error);
      response.destroy();
    });
  };
  const server = tls === undefined ? http.createServer(onRequest) : https.createServer(tls, onRequest);
  server.on(tls === undefined ? "connection" : "secureConnection", (socket: Socket) => {
    connections.set(socket, 0);
    socket.on("close", () => connections.delete(socket));
  });
  server.requestTimeout = 0; // uploads may take long; headers have a time limit of their own
  server.keepAliveTimeout = 75_000; // longer than the idle time of common proxies
  server.on("clientError", (_error, socket) => {
    if (socket.writable) socket.end("HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    else socket.destroy();
  });
  const { promise: closed, resolve: setClosed } = Promise.withResolvers<void>();
  const listener = {
    closed,
    close() {
      if (!closing) {
        closing = true;
        server.close(() => setClosed());
        for (const [socket, n] of connections) if (n === 0) socket.destroy();
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
  return { server, listener };
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
  } catch { // a malformed address or header
    response.writeHead(400, { "content-length": 0, connection: "close" }).end();
    return;
  }
  const result = await handle(incoming);
  if (left.signal.aborted) {
    await result.body?.cancel();
    return;
  }
  // The rest of the body stays unread, so the connection cannot carry another request.
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

/** Writes a body as it arrives, no faster than the client reads. */
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

/** Resolves when the response accepts more data, or the client has disconnected. */
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
