/**
 * Sends a piece of a file with PUT and its length said before: storages refuse bodies in chunks, which is what `fetch` makes of a
 * stream, and a piece may be larger than the memory.
 * @module
 */
import { createReadStream } from "node:fs";
import { type IncomingMessage, request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import { reasonOf, Retryable } from "./endpoint.ts";

/** Bytes `from` to `to` of a file. */
export interface Piece {
  readonly path: string;
  readonly from: number;
  readonly to: number;
}

/** What the storage said. */
export interface PutAnswer {
  readonly status: number;
  readonly etag: string | undefined;
  readonly retryAfter: string | null;
  /** The beginning of its text. */
  readonly text: string;
}

/** Text of an answer that is kept. */
const MAX_TEXT = 200;

async function answerOf(response: IncomingMessage): Promise<PutAnswer> {
  let text = "";
  for await (const part of response) if (text.length < MAX_TEXT) text += new TextDecoder().decode(part);
  const { etag, "retry-after": retryAfter } = response.headers;
  return { status: response.statusCode ?? 0, etag, retryAfter: retryAfter ?? null, text: text.slice(0, MAX_TEXT) };
}

/** @throws {Retryable} where the connection breaks */
export async function putPiece(
  url: URL,
  piece: Piece,
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal | undefined,
): Promise<PutAnswer> {
  const { path, from, to } = piece;
  const make = url.protocol === "https:" ? httpsRequest : httpRequest;
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const request = make(url, {
    method: "PUT",
    headers: { ...headers, "content-length": String(to - from) },
    ...(signal ? { signal } : {}),
  }, resolve);
  request.on("error", reject);
  if (to > from) {
    const file = createReadStream(path, { start: from, end: to - 1, highWaterMark: 1 << 18 });
    file.on("error", (error) => request.destroy(error));
    // An answer may come before the end of the body, and ends the request.
    promise.finally(() => file.destroy()).catch(() => {});
    file.pipe(request);
  } else request.end();
  try {
    return await answerOf(await promise);
  } catch (cause) {
    signal?.throwIfAborted();
    throw new Retryable(`the connection to ${url.host} was cut (${reasonOf(cause)})`);
  }
}
