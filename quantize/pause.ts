/**
 * Lets a signal interrupt long synchronous work: now and then, between pieces, the event loop gets a turn.
 * @module
 */

/** Longest time without a turn of the event loop, in ms. */
const INTERVAL_MS = 50;

/**
 * A function to call between pieces of work.
 * @throws the signal's reason once it is aborted.
 */
export function pauses(signal: AbortSignal | undefined): () => Promise<void> {
  let last = performance.now();
  return async () => {
    if (performance.now() - last >= INTERVAL_MS) {
      await new Promise((resolve) => setTimeout(resolve, 0));
      last = performance.now();
    }
    signal?.throwIfAborted();
  };
}
