/**
 * Server-sent events: turns an async source of data into a response, and handles its end, failure and cancellation.
 * @module
 */
import { errorBody, toApiError } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import { GenerationCancelled } from "./generation.ts";
import type { StreamStore } from "./stream_store.ts";

const encoder = new TextEncoder();

function encode(item: SseItem): Uint8Array {
  return encoder.encode(
    typeof item === "string" ? `data: ${item}\n\n` : `event: ${item.event}\ndata: ${item.data}\n\n`,
  );
}

/** A comment, which clients ignore: it keeps proxies and clients from giving a silent stream up. */
const PING = encoder.encode(":\n\n");

/** What a promise gives within some seconds, else undefined. */
async function within<T>(promise: Promise<T>, seconds: number): Promise<T | undefined> {
  if (seconds <= 0) return await promise;
  const { promise: late, resolve } = Promise.withResolvers<undefined>();
  const timer = setTimeout(() => resolve(undefined), seconds * 1000);
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** An event's data, or with its name. */
export type SseItem = string | { event: string; data: string };

/**
 * A stream of events, one per item. The source is pulled as the client reads. An error of the source becomes an error event,
 * because the status is already sent. `onLeave` is called then, and when the client disconnects.
 */
export function sseResponse(
  { streams }: { streams: StreamStore },
  exchange: Exchange,
  source: AsyncGenerator<SseItem, void, void>,
  onLeave: () => void,
  onError: (error: unknown) => SseItem = (error) => JSON.stringify(errorBody(toApiError(error))),
): Response {
  exchange.streams = true;
  if (exchange.detached) return keptResponse(streams, exchange, { source, onLeave, onError });
  let next: ReturnType<typeof source.next> | undefined;
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        if (next === undefined) {
          next = source.next();
          next.catch(() => {}); // it may fail between two comments, when nobody waits for it
        }
        const result = await within(next, exchange.pingSeconds);
        if (result === undefined) return controller.enqueue(PING);
        next = undefined;
        if (!result.done) return controller.enqueue(encode(result.value));
      } catch (error) {
        onLeave(); // cancels what still runs for this response
        if (error instanceof GenerationCancelled) exchange.status = 499;
        else exchange.failure = toApiError(error).apiCode;
        controller.enqueue(encode(onError(error)));
      }
      controller.close();
      exchange.end();
    },
    async cancel() {
      onLeave();
      exchange.status = 499;
      await source.return();
      exchange.end();
    },
  }, { highWaterMark: 0 });
  return eventStream(body);
}

/** A response of events. */
export function eventStream(body: ReadableStream<Uint8Array>): Response {
  return new Response(body, {
    headers: {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache",
      "x-accel-buffering": "no", // reverse proxies must not buffer the answer
    },
  });
}

interface EventSource {
  source: AsyncGenerator<SseItem, void, void>;
  onLeave: () => void;
  onError: (error: unknown) => SseItem;
}

/** A stream that goes on without its client, who finds it under the conversation's id. Comments count as its bytes. */
function keptResponse(streams: StreamStore, exchange: Exchange, { source, onLeave, onError }: EventSource): Response {
  const kept = streams.open(exchange.conversation!, onLeave);
  const run = async () => {
    try {
      while (true) {
        const next = source.next();
        next.catch(() => {}); // it may fail between two comments
        let result = await within(next, exchange.pingSeconds);
        while (result === undefined) {
          kept.push(PING);
          result = await within(next, exchange.pingSeconds);
        }
        if (result.done) break;
        kept.push(encode(result.value));
      }
    } catch (error) {
      onLeave();
      if (error instanceof GenerationCancelled) exchange.status = 499;
      else exchange.failure = toApiError(error).apiCode;
      kept.push(encode(onError(error)));
    }
    kept.end();
    exchange.end();
  };
  run();
  return eventStream(kept.read());
}
