/**
 * Server-sent events: an async source of data to a response that ends, fails and is given up properly.
 * @module
 */
import { errorBody, toApiError } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import { GenerationCancelled } from "./generation.ts";

const encoder = new TextEncoder();

function encode(item: SseItem): Uint8Array {
  return encoder.encode(
    typeof item === "string" ? `data: ${item}\n\n` : `event: ${item.event}\ndata: ${item.data}\n\n`,
  );
}

/** An event's data, or with its name. */
export type SseItem = string | { event: string; data: string };

/**
 * A stream of `data:` events, one per item. The source is pulled as the client reads. An error of the source becomes an
 * error event, since the status is long gone. `onLeave` is called then, and when the client leaves.
 */
export function sseResponse(
  exchange: Exchange,
  source: AsyncGenerator<SseItem, void, void>,
  onLeave: () => void,
  onError: (error: unknown) => SseItem = (error) => JSON.stringify(errorBody(toApiError(error))),
): Response {
  exchange.streams = true;
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await source.next();
        if (!done) return controller.enqueue(encode(value));
      } catch (error) {
        onLeave(); // what else runs for this response is of no use any more
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
  return new Response(body, {
    headers: {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache",
      "x-accel-buffering": "no", // reverse proxies must not collect the answer
    },
  });
}
