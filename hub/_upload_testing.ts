/**
 * A Hub for tests that takes uploads: a local server with the routes of the real one's commits and LFS storage, whose failures
 * are scripted.
 * @module
 */
import { sha256 } from "./_testing.ts";

export interface FakeStore extends AsyncDisposable {
  readonly endpoint: string;
  /** Files of the repository after the last commit. */
  readonly files: Map<string, Uint8Array>;
  /** Objects in LFS by hash. */
  readonly objects: Map<string, Uint8Array>;
  /** `METHOD path`, with the authorization where there is one. */
  readonly requests: { what: string; authorization: string | null }[];
  /** Statuses that the next requests get whose `METHOD path` matches. */
  readonly failures: { on: RegExp; status: number; headers?: Record<string, string> }[];
  /** Changes an answer before it is sent. */
  edit?: (route: string, answer: any) => unknown;
  summary: string;
  created: Record<string, unknown> | undefined;
}

/** @param options `partSize`: objects that are larger come in parts; `token`: needed for all but the storage. */
export function fakeStore(options: { repo: string; token: string; partSize: number }): FakeStore {
  const { repo, token, partSize } = options;
  const parts = new Map<string, Uint8Array[]>();
  const store = {
    files: new Map<string, Uint8Array>(),
    objects: new Map<string, Uint8Array>(),
    requests: [] as FakeStore["requests"],
    failures: [] as FakeStore["failures"],
    edit: undefined as FakeStore["edit"],
    summary: "",
    created: undefined as Record<string, unknown> | undefined,
  };
  let exists = false;
  const json = (route: string, answer: unknown) => Response.json(store.edit?.(route, answer) ?? answer);

  const answer = async (request: Request): Promise<Response> => {
    const url = new URL(request.url), authorization = request.headers.get("authorization");
    const what = `${request.method} ${url.pathname}`;
    store.requests.push({ what, authorization });
    const failure = store.failures.findIndex((f) => f.on.test(what));
    if (failure >= 0) {
      const [{ status, headers }] = store.failures.splice(failure, 1);
      await request.body?.cancel();
      return new Response("failed on purpose", { status, ...(headers ? { headers } : {}) });
    }
    // The storage is another host: localhost, where the Hub is 127.0.0.1.
    const storage = `http://localhost:${url.port}/storage`;
    const put = /^\/storage\/([0-9a-f]{64})(?:\/(\d+))?$/.exec(url.pathname);
    if (put && request.method === "PUT") {
      const bytes = await request.bytes();
      if (Number(request.headers.get("content-length")) !== bytes.length) {
        return new Response("length", { status: 400 });
      }
      if (put[2] === undefined) {
        if (request.headers.get("x-signed") !== "yes") return new Response("headers", { status: 400 });
        store.objects.set(put[1], bytes);
        return new Response(null);
      }
      const of = parts.get(put[1]) ?? [];
      of[Number(put[2]) - 1] = bytes;
      parts.set(put[1], of);
      return new Response(null, { headers: { etag: `"${sha256(bytes)}"` } });
    }
    if (url.pathname.startsWith("/storage/complete/")) {
      const { oid, parts: named } = await request.json();
      const of = parts.get(oid) ?? [];
      const right = named.every((p: any, i: number) => p.partNumber === i + 1 && p.etag === `"${sha256(of[i])}"`);
      if (!right || named.length !== of.length) return new Response("parts", { status: 400 });
      store.objects.set(oid, Uint8Array.from(of.flatMap((b) => [...b])));
      return new Response(null);
    }
    if (authorization !== `Bearer ${token}`) return new Response("no", { status: 401 });
    if (what === "POST /api/repos/create") {
      if (exists) return new Response("exists", { status: 409 });
      exists = true;
      store.created = await request.json();
      return Response.json({ url: `http://x/${repo}` });
    }
    if (what === `POST /api/models/${repo}/preupload/main`) {
      const { files } = await request.json();
      return json("preupload", {
        files: files.map(({ path }: any) => ({
          path,
          uploadMode: path.endsWith(".gguf") ? "lfs" : "regular",
          shouldIgnore: false,
        })),
      });
    }
    if (what === `POST /${repo}.git/info/lfs/objects/batch`) {
      if (request.headers.get("content-type") !== "application/vnd.git-lfs+json") {
        return new Response("type", { status: 406 });
      }
      const { objects } = await request.json();
      const verify = { href: `http://127.0.0.1:${url.port}/verify`, header: {} };
      return json("batch", {
        transfer: "multipart",
        objects: objects.map(({ oid, size }: any) => {
          if (store.objects.has(oid)) return { oid, size };
          if (size <= partSize) {
            return {
              oid,
              size,
              actions: { upload: { href: `${storage}/${oid}`, header: { "x-signed": "yes" } }, verify },
            };
          }
          const n = Math.ceil(size / partSize);
          // In an order that is not that of the numbers.
          const urls = Array.from(
            { length: n },
            (_, i) => [String(n - i).padStart(5, "0"), `${storage}/${oid}/${n - i}`],
          );
          const header = { chunk_size: String(partSize), ...Object.fromEntries(urls) };
          return { oid, size, actions: { upload: { href: `${storage}/complete/${oid}`, header }, verify } };
        }),
      });
    }
    if (what === "POST /verify") {
      const { oid, size } = await request.json();
      const right = store.objects.get(oid)?.length === size && sha256(store.objects.get(oid)!) === oid;
      return new Response(null, { status: right ? 200 : 422 });
    }
    if (what === `POST /api/models/${repo}/commit/main`) {
      const lines = (await request.text()).trimEnd().split("\n").map((line) => JSON.parse(line));
      for (const { key, value } of lines) {
        if (key === "header") store.summary = value.summary;
        else if (key === "file") store.files.set(value.path, Uint8Array.fromBase64(value.content));
        else if (!store.objects.has(value.oid)) return new Response("no such object", { status: 400 });
        else store.files.set(value.path, store.objects.get(value.oid)!);
      }
      return json("commit", { commitUrl: `http://x/${repo}/commit/1`, commitOid: "1" });
    }
    return new Response("no such route", { status: 404 });
  };
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen() {} }, answer);
  const other = server.addr as Deno.NetAddr;
  return Object.assign(store, {
    endpoint: `http://127.0.0.1:${other.port}`,
    [Symbol.asyncDispose]: () => server.shutdown(),
  }) as FakeStore;
}
