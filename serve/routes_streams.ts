/**
 * Streams that are read again: GET and DELETE /v1/stream, POST /v1/streams/lookup. A request with the header
 * `X-Conversation-Id` makes one of its stream.
 * @module
 */
import { z } from "zod";
import { type App, json } from "./app.ts";
import { ApiError, badRequest } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import { opt, parseBody } from "./schemas.ts";
import { eventStream } from "./sse.ts";

/** Conversations that one lookup may ask about. */
const MAX_ASKED = 1000;

const ids = opt(z.array(z.string()).max(MAX_ASKED));
export const lookupSchema = z.object({ conversation_ids: ids, conv_ids: ids });

/** A stream from a byte on, as it comes. */
export function readStream(app: App, exchange: Exchange): Response {
  const id = conversationOf(exchange);
  const stream = app.streams.get(id);
  if (stream === undefined) throw unknown(id);
  const from = exchange.query.get("from") ?? "0";
  if (!/^\d{1,15}$/.test(from) || Number(from) > stream.total) {
    throw badRequest(`from: expected a byte from 0 to ${stream.total}, found ${JSON.stringify(from)}`, "from");
  }
  exchange.signal.addEventListener("abort", () => exchange.end(), { once: true });
  return eventStream(stream.read(Number(from)));
}

/** Ends an answer and forgets its stream. */
export function deleteStream(app: App, exchange: Exchange): Response {
  const id = conversationOf(exchange);
  if (!app.streams.delete(id)) throw unknown(id);
  return new Response(null, { status: 204 });
}

/** What there is of the conversations that a client names; others stay untold. */
export function lookupStreams(app: App, { body }: Exchange): Response {
  const { conversation_ids, conv_ids } = parseBody(lookupSchema, body);
  const asked = [...new Set([...conversation_ids ?? [], ...conv_ids ?? []])];
  return json(asked.flatMap((id) => app.streams.get(id)?.facts() ?? []));
}

function conversationOf({ query, conversation }: Exchange): string {
  const id = query.get("conv_id") ?? conversation;
  if (!id) throw badRequest("conv_id: required, and missing", "conv_id", "missing_required_parameter");
  return id;
}

function unknown(id: string): ApiError {
  return new ApiError(
    404,
    "not_found_error",
    "no_stream",
    `There is no stream of the conversation ${JSON.stringify(id)}`,
  );
}
