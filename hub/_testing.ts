/**
 * A Hub for tests: a local server with the routes and answers of the real one, whose failures are scripted.
 * @module
 */
import { createHash } from "node:crypto";

/** What a request for a file's bytes meets; the next request meets the next. */
export type Failure =
  | { readonly kind: "cut"; readonly after: number }
  | { readonly kind: "status"; readonly status: number; readonly headers?: Record<string, string> }
  | { readonly kind: "bytes"; readonly bytes: Uint8Array }
  | { readonly kind: "ignore-range" };

export interface FakeHub extends AsyncDisposable {
  readonly endpoint: string;
  /** Requests so far: path, `Range` and `Authorization`. */
  readonly requests: { path: string; range: string | null; authorization: string | null; host: string }[];
  /** Met by the next requests for bytes, in order. */
  readonly failures: Failure[];
  /** The same for the list of files. */
  readonly listFailures: Failure[];
}

export interface FakeOptions {
  /** Files by path; `large` ones have a SHA-256 as files in LFS have. */
  readonly files: Readonly<Record<string, Uint8Array<ArrayBuffer>>>;
  readonly repo?: string;
  /** Needed for every request. */
  readonly token?: string;
  /** Kept in git itself: hashed as git does. */
  readonly small?: boolean;
  /** Bytes come from another host, as from a content network. */
  readonly redirect?: boolean;
  /** Entries of a page of the list. */
  readonly pageSize?: number;
  /** Changes the list before it is sent. */
  readonly edit?: (entries: any[]) => unknown;
}

export const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
const gitHash = (bytes: Uint8Array) => createHash("sha1").update(`blob ${bytes.length}\0`).update(bytes).digest("hex");

/** Bytes that no compression or repetition makes trivial. */
export function noise(n: number, seed = 1): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(n);
  let x = seed * 2654435761 >>> 0;
  for (let i = 0; i < n; i++) {
    x = Math.imul(x ^ (x >>> 15), 0x2c1b3c6d) + 0x9e3779b9 >>> 0;
    out[i] = x >>> 24;
  }
  return out;
}

/** Sends some bytes and breaks the connection. */
function cutBody(bytes: Uint8Array): ReadableStream<Uint8Array> {
  return new ReadableStream({
    async start(controller) {
      controller.enqueue(bytes);
      await new Promise((resolve) => setTimeout(resolve, 20)); // else the bytes would be dropped with the connection
      controller.error(new Error("cut on purpose"));
    },
  });
}

export function fakeHub(options: FakeOptions): FakeHub {
  const { files, repo = "owner/model-GGUF", token } = options;
  const requests: FakeHub["requests"] = [];
  const failures: Failure[] = [], listFailures: Failure[] = [];

  const list = (url: URL): Response => {
    const entries: unknown[] = Object.entries(files).map(([path, bytes]) => ({
      type: "file",
      path,
      size: bytes.length,
      oid: gitHash(bytes),
      ...(options.small ? {} : { lfs: { oid: sha256(bytes), size: bytes.length, pointerSize: 134 } }),
    }));
    entries.push({ type: "directory", path: "docs", oid: "0".repeat(40), size: 0 });
    const all = (options.edit?.(entries) ?? entries) as unknown[];
    if (!Array.isArray(all)) return Response.json(all);
    const from = Number(url.searchParams.get("cursor") ?? 0), to = from + (options.pageSize ?? 1000);
    const headers = new Headers();
    if (to < all.length) {
      const next = new URL(url);
      next.searchParams.set("cursor", String(to));
      headers.set("link", `<${next}>; rel="next"`);
    }
    return Response.json(all.slice(from, to), { headers });
  };

  const send = (bytes: Uint8Array<ArrayBuffer>, request: Request): Response => {
    const failure = failures.shift();
    if (failure?.kind === "status") {
      const init = { status: failure.status, ...(failure.headers ? { headers: failure.headers } : {}) };
      return new Response(null, init);
    }
    const whole = failure?.kind === "bytes" ? failure.bytes as Uint8Array<ArrayBuffer> : bytes;
    const range = failure?.kind === "ignore-range" ? null : /^bytes=(\d+)-$/.exec(request.headers.get("range") ?? "");
    const from = range ? Number(range[1]) : 0;
    if (from >= whole.length && range) {
      return new Response(null, { status: 416, headers: { "content-range": `bytes */${whole.length}` } });
    }
    const part = whole.subarray(from);
    const headers = new Headers({ "content-length": String(part.length), "accept-ranges": "bytes" });
    if (range) headers.set("content-range", `bytes ${from}-${whole.length - 1}/${whole.length}`);
    if (failure?.kind === "cut") {
      headers.delete("content-length"); // the server's own check would refuse a body that is too short
      return new Response(cutBody(part.subarray(0, failure.after)), { status: range ? 206 : 200, headers });
    }
    return new Response(part, { status: range ? 206 : 200, headers });
  };

  const answer = (request: Request): Response => {
    const url = new URL(request.url);
    const authorization = request.headers.get("authorization");
    requests.push({ path: url.pathname, range: request.headers.get("range"), authorization, host: url.hostname });
    const network = /^\/network\/(.*)$/.exec(url.pathname);
    if (network) return send(files[decodeURIComponent(network[1])], request);
    if (token !== undefined && authorization !== `Bearer ${token}`) {
      return new Response(null, { status: authorization === null ? 401 : 403 });
    }
    if (url.pathname === `/api/models/${repo}/tree/main`) {
      const failure = listFailures.shift();
      return failure?.kind === "status" ? new Response(null, { status: failure.status }) : list(url);
    }
    const name = new RegExp(`^/${repo}/resolve/main/(.*)$`).exec(url.pathname)?.[1];
    const path = name === undefined ? undefined : decodeURIComponent(name);
    if (path === undefined || !Object.hasOwn(files, path)) return new Response(null, { status: 404 });
    if (!options.redirect) return send(files[path], request);
    const location = `http://localhost:${url.port}/network/${encodeURIComponent(path)}`;
    return new Response(null, { status: 302, headers: { location } });
  };

  const server = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen() {}, onError: () => new Response(null) },
    answer,
  );
  const { port } = server.addr as Deno.NetAddr;
  return {
    endpoint: `http://127.0.0.1:${port}`,
    requests,
    failures,
    listFailures,
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}
