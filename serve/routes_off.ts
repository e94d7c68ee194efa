/**
 * Routes of llama-server that this server answers with why it does not offer them, and settings that it has none of.
 * @module
 */
import { type App, json } from "./app.ts";
import { ApiError, badRequest, notSupported } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import { parseJsonBody } from "./schemas.ts";

/** GET and POST /tools, /cors-proxy: the server runs no tools and fetches nothing for others. */
export function disabled(_app: App, { path }: Exchange): Response {
  throw new ApiError(403, "feature_disabled", "feature_disabled", `This server does not offer ${path}`, {
    hint: "tools run in the client",
  });
}

/** POST /v1/audio/transcriptions */
export function transcriptions(): Response {
  throw notSupported("This model does not support audio");
}

/** POST /v1/systemone */
export function systemone(): Response {
  throw notSupported("This model is not a decision model");
}

/** POST /props: there is no property that could be set. 501 unless the server was started with --props. */
export function setProps(_app: App, { body }: Exchange): Response {
  const value = parseJsonBody(body);
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw badRequest("The body is not an object", undefined, "invalid_type");
  }
  return json({ success: true });
}
