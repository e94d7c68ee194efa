/**
 * One file of the Hub to the disk: goes on where an earlier attempt stopped, and takes nothing whose size or hash is wrong.
 *
 * Bytes go to `FILE.partial`; the file gets its name when its hash is right. A lock on the partial file keeps two processes
 * from writing it together.
 * @module
 */
import { createHash, type Hash } from "node:crypto";
import { HubError } from "../core/errors.ts";
import { get, type HubAccess, reasonOf, Retryable, retrying } from "./endpoint.ts";
import type { HubFile } from "./repository.ts";

export interface DownloadProgress {
  /** Bytes of the file that are on the disk. */
  readonly done: number;
  /** Of them, those that were there before this run. */
  readonly resumed: number;
}

export interface DownloadOptions {
  readonly url: string;
  readonly file: HubFile;
  /** Where the file goes; its folder exists. */
  readonly path: string;
  readonly access: HubAccess;
  readonly onProgress?: (p: DownloadProgress) => void;
}

function hashOf(file: HubFile): Hash {
  return file.hash.kind === "sha256" ? createHash("sha256") : createHash("sha1").update(`blob ${file.size}\0`);
}

/** Adds the first `length` bytes of an open file to a hash. */
async function hashStart(out: Deno.FsFile, length: number, hash: Hash, signal?: AbortSignal): Promise<void> {
  await out.seek(0, Deno.SeekMode.Start);
  const buffer = new Uint8Array(1 << 20);
  for (let done = 0; done < length;) {
    signal?.throwIfAborted();
    const n = await out.read(buffer.subarray(0, Math.min(buffer.length, length - done)));
    if (n === null) throw new Error("a partial file became shorter while it was read");
    hash.update(buffer.subarray(0, n));
    done += n;
  }
}

/** Whether a file on the disk is the one that the Hub has. */
export async function isWhole(path: string, file: HubFile, signal?: AbortSignal): Promise<boolean> {
  const stat = await Deno.stat(path);
  if (stat.size !== file.size) return false;
  using opened = await Deno.open(path, { read: true });
  const hash = hashOf(file);
  await hashStart(opened, stat.size, hash, signal);
  return hash.digest("hex") === file.hash.hex;
}

function wrongSize(options: DownloadOptions, found: number): HubError {
  const { file, url } = options;
  return new HubError(
    "hub.size",
    `Cannot take ${file.path}: the server has ${found} bytes, the Hub's list says ${file.size}`,
    {
      at: { file: file.path, got: found, expected: file.size, url },
      hint: "the repository may be changing at this moment, or a mirror is out of date: try again later",
    },
  );
}

/** Where the body of an answer begins in the file. @throws {HubError} `hub.size`, {@link Retryable} */
function startOf(response: Response, asked: number, options: DownloadOptions): number {
  const { file } = options;
  if (response.status === 206) {
    const m = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(response.headers.get("content-range") ?? "");
    if (m && m[3] !== "*" && Number(m[3]) !== file.size) throw wrongSize(options, Number(m[3]));
    if (!m || Number(m[1]) !== asked) throw new Retryable("the server answers with other bytes than were asked for");
    return asked;
  }
  if (response.status === 416) {
    const total = /^bytes \*\/(\d+)$/.exec(response.headers.get("content-range") ?? "")?.[1];
    if (total !== undefined && Number(total) !== file.size) throw wrongSize(options, Number(total));
    throw new Retryable("the server does not go on in the middle of the file");
  }
  // 200: the whole file, whatever was asked for. A length counts only where the body is as it is in the file.
  const length = response.headers.get("content-length");
  const encoded = response.headers.get("content-encoding");
  if (length !== null && (encoded === null || encoded === "identity") && Number(length) !== file.size) {
    throw wrongSize(options, Number(length));
  }
  return 0;
}

/** What is on the disk of the file under way. */
interface State {
  done: number;
  resumed: number;
  hash: Hash;
}

async function restart(out: Deno.FsFile, state: State, file: HubFile): Promise<void> {
  await out.truncate(0);
  await out.seek(0, Deno.SeekMode.Start);
  state.done = state.resumed = 0;
  state.hash = hashOf(file);
}

/** One request and as much of its body as arrives. */
async function fetchRest(
  out: Deno.FsFile,
  state: State,
  options: DownloadOptions,
  progressed: () => void,
): Promise<void> {
  const { file, access } = options;
  const headers: Record<string, string> = { "accept-encoding": "identity" };
  if (state.done > 0) headers.range = `bytes=${state.done}-`;
  const response = await get(options.url, file.path, access, headers);
  let start: number;
  try {
    start = startOf(response, state.done, options);
  } catch (error) {
    await response.body?.cancel();
    if (error instanceof Retryable && state.done > 0) await restart(out, state, file);
    throw error;
  }
  if (start !== state.done) await restart(out, state, file);
  const body = response.body?.getReader();
  if (!body) throw new Retryable("the answer has no body");
  try {
    for (;;) {
      let part: Awaited<ReturnType<typeof body.read>>;
      try {
        part = await body.read();
      } catch (cause) {
        access.signal?.throwIfAborted();
        throw new Retryable(`the connection was cut after ${state.done} of ${file.size} bytes (${reasonOf(cause)})`);
      }
      if (part.done) break;
      if (state.done + part.value.length > file.size) throw wrongSize(options, state.done + part.value.length);
      for (let at = 0; at < part.value.length;) at += await out.write(part.value.subarray(at));
      state.hash.update(part.value);
      state.done += part.value.length;
      progressed();
      options.onProgress?.(state);
    }
  } finally {
    await body.cancel().catch(() => {});
  }
  if (state.done < file.size) throw new Retryable(`the connection was cut after ${state.done} of ${file.size} bytes`);
}

/**
 * Fetches a file, or what is missing of it.
 * @throws {HubError} `hub.checksum`, `hub.size`, `hub.unreachable`, `hub.unauthorized`, `hub.gated`, `hub.not_found`
 */
export async function downloadFile(options: DownloadOptions): Promise<void> {
  const { file, path, access } = options;
  const partial = `${path}.partial`;
  using out = await Deno.open(partial, { read: true, write: true, create: true });
  if (!await out.tryLock(true)) {
    access.onRetry?.(`${file.path}: another process is downloading it; waiting for that`);
    await out.lock(true);
  }
  const opened = await out.stat();
  // Whoever held the lock before may have finished the file and renamed it, so that the open one is another now.
  const named = await Deno.stat(partial).catch(() => undefined);
  if (named?.ino !== opened.ino) return await downloadFile(options);
  const found = opened.size;
  if (
    await Deno.stat(path).then((s) => s.size === file.size, () => false) && await isWhole(path, file, access.signal)
  ) {
    await Deno.remove(partial);
    return;
  }
  const state: State = { done: 0, resumed: 0, hash: hashOf(file) };
  if (found > file.size) await restart(out, state, file);
  else if (found > 0) {
    await hashStart(out, found, state.hash, access.signal);
    state.done = state.resumed = found;
  }
  options.onProgress?.(state);
  // Bytes of an earlier run may be bad: one attempt from the start decides whether the server's are.
  for (let fresh = state.resumed === 0;; fresh = true) {
    if (state.done < file.size || file.size === 0) {
      await retrying(file.path, access, async (progressed) => {
        if (state.done < file.size) await fetchRest(out, state, options, progressed);
      });
    }
    const got = state.hash.digest("hex");
    if (got === file.hash.hex) break;
    const wasFresh = fresh;
    await restart(out, state, file);
    if (!wasFresh) {
      access.onRetry?.(`${file.path}: what an earlier run had fetched is damaged; fetching it again`);
      continue;
    }
    throw new HubError(
      "hub.checksum",
      `Cannot take ${file.path}: its ${file.hash.kind} is ${got}, expected ${file.hash.hex}`,
      {
        at: { file: file.path, got, expected: file.hash.hex },
        hint: "the download was damaged on its way and is removed: try again, or use another --hf-endpoint",
      },
    );
  }
  await out.sync();
  await Deno.rename(partial, path);
}
