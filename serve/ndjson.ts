/**
 * Answers as lines of JSON, one object each.
 * @module
 */
import { toApiError } from "./errors.ts";
import type { Exchange } from "./exchange.ts";

const encoder = new TextEncoder();

/**
 * A stream of lines, one per item; the source is pulled as the client reads. An error of the source is a last line, because the status is
 * already sent. `onLeave` is called then, and when the client disconnects.
 */
export function ndjsonResponse(
  exchange: Exchange,
  source: AsyncGenerator<object, void, void>,
  onLeave: () => void,
): Response {
  exchange.streams = true;
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await source.next();
        if (done) controller.close();
        else controller.enqueue(encoder.encode(JSON.stringify(value) + "\n"));
      } catch (error) {
        onLeave();
        controller.enqueue(encoder.encode(JSON.stringify({ error: toApiError(error).message }) + "\n"));
        controller.close();
      }
    },
    async cancel() {
      onLeave();
      await source.return();
    },
  }, { highWaterMark: 0 });
  return new Response(body, { headers: { "content-type": "application/x-ndjson" } });
}
