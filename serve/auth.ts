/**
 * API keys.
 * @module
 */
import { ApiError } from "./errors.ts";

/** @throws ApiError 401 without a right `Authorization: Bearer KEY`, `Authorization: KEY` or `X-Api-Key: KEY`. */
export function checkKey(headers: Headers, keys: readonly string[]): void {
  const authorization = headers.get("authorization");
  const given = [authorization?.replace(/^Bearer\s+/i, ""), headers.get("x-api-key")];
  let ok = false;
  for (const key of keys) for (const text of given) if (sameText(key, text?.trim() ?? "")) ok = true;
  if (!ok) {
    throw new ApiError(
      401,
      "authentication_error",
      "invalid_api_key",
      "Invalid API Key: the request carries no valid key",
    );
  }
}

/** Compares in a time that does not tell how much of a key was right. */
function sameText(a: string, b: string): boolean {
  const x = new TextEncoder().encode(a), y = new TextEncoder().encode(b);
  let differ = x.length ^ y.length;
  for (let i = 0; i < x.length; i++) differ |= x[i] ^ (y[i] ?? 0);
  return differ === 0;
}
