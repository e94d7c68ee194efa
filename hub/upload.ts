/**
 * Uploads files to a repository of the Hub in one commit. Large files go to its LFS storage first, in one piece or in parts as the
 * Hub says; what it has already is not sent again, so a stopped upload goes on with the files that are missing.
 * @module
 */
import { createHash } from "node:crypto";
import { z } from "zod";
import { HubError } from "../core/errors.ts";
import { bodyText, type HubAccess, hubAccess, reasonOf, Retryable, retrying } from "./endpoint.ts";
import { retryAfterMs } from "../core/retry.ts";
import { putPiece } from "./put_file.ts";

/** A file to upload. */
export interface UploadFile {
  /** On this machine. */
  readonly path: string;
  /** In the repository. */
  readonly name: string;
  /** Known already; else it is worked out. */
  readonly sha256?: string | undefined;
}

export interface UploadOptions extends HubAccess {
  readonly repo: string;
  readonly revision: string;
  /** For a repository that is made now. */
  readonly private: boolean;
  /** First line of the commit's message. */
  readonly summary: string;
  /** Bytes sent or found there, of all. */
  readonly onProgress?: (p: { done: number; total: number }) => void;
}

/** What an upload did. */
export interface Uploaded {
  /** Address of the commit. */
  readonly commit: string;
  /** Bytes that had to be sent to LFS. */
  readonly sent: number;
}

const LFS_JSON = "application/vnd.git-lfs+json";
/** Bytes at a file's start by which the Hub decides where it belongs. */
const SAMPLE = 512;

const preuploadSchema = z.object({
  files: z.array(
    z.object({ path: z.string(), uploadMode: z.enum(["lfs", "regular"]), shouldIgnore: z.boolean().optional() }),
  ),
});
const actionSchema = z.object({ href: z.string(), header: z.record(z.string(), z.string()).optional() });
const batchSchema = z.object({
  objects: z.array(z.object({
    oid: z.string(),
    size: z.number(),
    error: z.object({ code: z.number(), message: z.string() }).optional(),
    actions: z.object({ upload: actionSchema.optional(), verify: actionSchema.optional() }).optional(),
  })),
});
const commitSchema = z.object({ commitUrl: z.string() });

type Stored = z.infer<typeof batchSchema>["objects"][number];

interface Known extends UploadFile {
  readonly size: number;
  readonly sha256: string;
}

function answerError(what: string, found: string): HubError {
  return new HubError("hub.answer", `Cannot upload ${what}: the Hub answers with ${found}`, { at: { what } });
}

/** One request; the token goes to the Hub alone. @throws {Retryable}, {@link HubError} */
async function send(
  access: HubAccess,
  what: string,
  url: string,
  init: { method: string; headers?: Record<string, string>; body?: BodyInit },
  accepted: readonly number[] = [],
): Promise<Response> {
  const target = urlOf(url, what);
  const own = target.origin === new URL(access.endpoint).origin && access.token !== undefined;
  let response: Response;
  try {
    response = await fetch(target, {
      ...init,
      redirect: "manual",
      headers: { ...init.headers, ...(own ? { authorization: `Bearer ${access.token}` } : {}) },
      ...(access.signal ? { signal: access.signal } : {}),
    });
  } catch (cause) {
    access.signal?.throwIfAborted();
    throw new Retryable(`no answer from ${target.host} (${reasonOf(cause)})`);
  }
  if (response.ok || accepted.includes(response.status)) return response;
  const said = (await response.text().catch(() => "")).slice(0, 200);
  throw refused(access, what, target, response.status, said, response.headers.get("retry-after"));
}

/** What an answer that is none means. */
function refused(access: HubAccess, what: string, at: URL, status: number, said: string, retryAfter: string | null) {
  if (status === 408 || status === 429 || status >= 500) {
    return new Retryable(`${at.host} answers ${status}`, retryAfterMs(retryAfter));
  }
  const forbidden = status === 401 || status === 403;
  return new HubError(
    forbidden ? "hub.unauthorized" : status === 404 ? "hub.not_found" : "hub.refused",
    `Cannot upload ${what}: ${at.host} answers ${status}${said === "" ? "" : `, ${said}`}`,
    {
      at: { what, status, endpoint: access.endpoint },
      ...(forbidden ? { hint: "give a token with the right to write, in HF_TOKEN or --hf-token" } : {}),
    },
  );
}

/** A request with an answer in JSON, tried again where it fails for a while. */
async function ask<T>(
  access: HubAccess,
  what: string,
  url: string,
  body: BodyInit,
  type: string,
  schema: z.ZodType<T>,
): Promise<T> {
  const text = await retrying(what, access, async () => {
    const headers = { "content-type": type, ...(type === LFS_JSON ? { accept: LFS_JSON } : {}) };
    return await bodyText(await send(access, what, url, { method: "POST", headers, body }), what);
  });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw answerError(what, "no JSON");
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const [{ path, message }] = parsed.error.issues;
  throw answerError(what, `something else at "${path.join(".")}": ${message}`);
}

/** Parts of an upload in pieces: their addresses, in the order of their numbers. */
function partsOf(header: Readonly<Record<string, string>>): string[] {
  return Object.keys(header).filter((k) => /^\d+$/.test(k)).sort((a, b) => Number(a) - Number(b)).map((k) => header[k]);
}

/** Sends a piece of a file to the storage, which never sees the token. @returns its etag */
async function put(
  access: HubAccess,
  file: Known,
  href: string,
  from: number,
  to: number,
  headers: Readonly<Record<string, string>>,
): Promise<string | undefined> {
  const url = urlOf(href, file.name);
  return await retrying(file.name, access, async () => {
    const { status, etag, retryAfter, text } = await putPiece(
      url,
      { path: file.path, from, to },
      headers,
      access.signal,
    );
    if (status >= 200 && status < 300) return etag;
    throw refused(access, file.name, url, status, text, retryAfter);
  });
}

/** An address that the Hub gave. */
function urlOf(href: string, what: string): URL {
  const url = URL.canParse(href) ? new URL(href) : undefined;
  if (url !== undefined && /^https?:$/.test(url.protocol)) return url;
  throw answerError(what, `no address to send to: ${JSON.stringify(href.slice(0, 80))}`);
}

/** Sends one object to where the Hub said. */
async function store(access: HubAccess, file: Known, object: Stored, sent: (bytes: number) => void): Promise<void> {
  const upload = object.actions?.upload;
  if (upload === undefined) return;
  const { chunk_size, ...rest } = upload.header ?? {};
  if (chunk_size === undefined) {
    await put(access, file, upload.href, 0, file.size, rest);
    sent(file.size);
  } else {
    const size = Number(chunk_size), urls = partsOf(rest);
    if (!(Number.isInteger(size) && size > 0) || urls.length !== Math.ceil(file.size / size)) {
      throw answerError(file.name, `${urls.length} parts of ${chunk_size} bytes for a file of ${file.size}`);
    }
    const parts: { partNumber: number; etag: string }[] = [];
    for (const [i, url] of urls.entries()) {
      const to = Math.min(file.size, (i + 1) * size);
      const etag = await put(access, file, url, i * size, to, {});
      if (etag === undefined) throw answerError(file.name, `no etag of part ${i + 1}`);
      parts.push({ partNumber: i + 1, etag });
      sent(to - i * size);
    }
    await retrying(file.name, access, async () => {
      const response = await send(access, file.name, upload.href, {
        method: "POST",
        headers: { "content-type": LFS_JSON, accept: LFS_JSON },
        body: JSON.stringify({ oid: file.sha256, parts }),
      });
      await response.body?.cancel();
    });
  }
  const verify = object.actions?.verify;
  if (verify === undefined) return;
  await retrying(file.name, access, async () => {
    const response = await send(access, file.name, verify.href, {
      method: "POST",
      headers: { ...verify.header, "content-type": LFS_JSON, accept: LFS_JSON },
      body: JSON.stringify({ oid: file.sha256, size: file.size }),
    });
    await response.body?.cancel();
  });
}

async function knownOf(file: UploadFile): Promise<Known> {
  const { size } = await Deno.stat(file.path);
  if (file.sha256 !== undefined) return { ...file, size, sha256: file.sha256 };
  const hash = createHash("sha256");
  using opened = await Deno.open(file.path);
  const buffer = new Uint8Array(1 << 20);
  for (let n = await opened.read(buffer); n !== null; n = await opened.read(buffer)) hash.update(buffer.subarray(0, n));
  return { ...file, size, sha256: hash.digest("hex") };
}

async function sampleOf(path: string): Promise<string> {
  using file = await Deno.open(path);
  const buffer = new Uint8Array(SAMPLE), n = await file.read(buffer) ?? 0;
  return buffer.subarray(0, n).toBase64();
}

/** Makes the repository where it is not there. */
async function create(access: HubAccess, options: UploadOptions): Promise<void> {
  const [organization, name] = options.repo.split("/");
  await retrying(options.repo, access, async () => {
    const response = await send(access, options.repo, `${access.endpoint}/api/repos/create`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ type: "model", name, organization, private: options.private }),
    }, [409]); // it is there
    await response.body?.cancel();
  });
}

/**
 * Uploads files to a repository, which is made where it is not there, as one commit.
 * @throws {HubError} `hub.unauthorized`, `hub.not_found`, `hub.refused`, `hub.answer`, `hub.unreachable`
 */
export async function uploadFiles(files: readonly UploadFile[], options: UploadOptions): Promise<Uploaded> {
  const access = hubAccess(options), { repo, revision } = options;
  const all: Known[] = [];
  for (const file of files) all.push(await knownOf(file));
  await create(access, options);
  const api = `${access.endpoint}/api/models/${repo}`, at = encodeURIComponent(revision);
  const samples = await Promise.all(
    all.map(async (f) => ({ path: f.name, size: f.size, sample: await sampleOf(f.path) })),
  );
  const { files: modes } = await ask(
    access,
    repo,
    `${api}/preupload/${at}`,
    JSON.stringify({ files: samples }),
    "application/json",
    preuploadSchema,
  );
  const modeOf = new Map(modes.map((m) => [m.path, m]));
  const missing = all.find((f) => !modeOf.has(f.name));
  if (missing !== undefined) throw answerError(missing.name, "nothing of how it is to be sent");
  const kept = all.filter((f) => modeOf.get(f.name)!.shouldIgnore !== true);
  const large = kept.filter((f) => modeOf.get(f.name)!.uploadMode === "lfs");
  const total = large.reduce((n, f) => n + f.size, 0);
  let sent = 0, done = 0;
  if (large.length > 0) {
    const { objects } = await ask(
      access,
      repo,
      `${access.endpoint}/${repo}.git/info/lfs/objects/batch`,
      JSON.stringify({
        operation: "upload",
        transfers: ["basic", "multipart"],
        hash_algo: "sha256",
        ref: { name: revision },
        objects: large.map((f) => ({ oid: f.sha256, size: f.size })),
      }),
      LFS_JSON,
      batchSchema,
    );
    for (const file of large) {
      const object = objects.find((o) => o.oid === file.sha256);
      if (object === undefined) throw answerError(file.name, "no place to send it to");
      if (object.error !== undefined) throw answerError(file.name, `${object.error.code}, ${object.error.message}`);
      const before = done;
      await store(access, file, object, (bytes) => {
        sent += bytes;
        options.onProgress?.({ done: done += bytes, total });
      });
      options.onProgress?.({ done: done = before + file.size, total });
    }
  }
  const lines: unknown[] = [{ key: "header", value: { summary: options.summary, description: "" } }];
  for (const file of kept) {
    lines.push(
      large.includes(file)
        ? { key: "lfsFile", value: { path: file.name, algo: "sha256", oid: file.sha256, size: file.size } }
        : {
          key: "file",
          value: { path: file.name, encoding: "base64", content: (await Deno.readFile(file.path)).toBase64() },
        },
    );
  }
  const body = lines.map((line) => JSON.stringify(line) + "\n").join("");
  const { commitUrl } = await ask(access, repo, `${api}/commit/${at}`, body, "application/x-ndjson", commitSchema);
  return { commit: commitUrl, sent };
}
