/**
 * What those who ask over a network share: failures that may pass, and the wait before the next attempt. The asking is theirs.
 * @module
 */

/** Something failed that may work the next time. */
export class Retryable extends Error {
  /** @param retryAfterMs How long the other side wants to be left alone, where it says so. */
  constructor(message: string, readonly retryAfterMs?: number) {
    super(message);
  }
}

/** Waits; a signal ends it. @throws the signal's reason */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, ms);
  const stop = () => resolve();
  signal?.addEventListener("abort", stop, { once: true });
  await promise;
  clearTimeout(timer);
  signal?.removeEventListener("abort", stop);
  signal?.throwIfAborted();
}

/** Milliseconds of a `Retry-After` header: seconds, or a date. Undefined where it says neither. */
export function retryAfterMs(header: string | null, now: number = Date.now()): number | undefined {
  if (header === null || header.trim() === "") return undefined;
  const seconds = Number(header);
  if (Number.isFinite(seconds)) return seconds >= 0 ? seconds * 1000 : undefined;
  const ms = Date.parse(header) - now;
  return Number.isFinite(ms) ? Math.max(0, ms) : undefined;
}

/** Why a request got no answer, from the innermost cause. */
export function reasonOf(error: unknown): string {
  let at = error;
  while (at instanceof Error && at.cause instanceof Error) at = at.cause;
  return at instanceof Error ? at.message : String(at);
}
