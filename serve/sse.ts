/**
 * Server-sent events: an async source of data to a response that ends, fails and is given up properly.
 * @module
 */
import { errorBody, toApiError } from "./errors.ts";

const encoder = new TextEncoder();

/**
 * A stream of `data:` events, one per item. The source is pulled as the client reads. An error of the source becomes an
 * error event, since the status is long gone. `onLeave` is called then, and when the client leaves.
 */
export function sseResponse(source: AsyncGenerator<string, void, void>, onLeave: () => void): Response {
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await source.next();
        if (done) controller.close();
        else controller.enqueue(encoder.encode(`data: ${value}\n\n`));
      } catch (error) {
        onLeave(); // what else runs for this response is of no use any more
        controller.enqueue(encoder.encode(`data: ${JSON.stringify(errorBody(toApiError(error)))}\n\n`));
        controller.close();
      }
    },
    async cancel() {
      onLeave();
      await source.return();
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
