/**
 * Cross-origin requests: says which web pages may use the server.
 *
 * By default all may, as in llama-server: a page can do no more than any program, and sees nothing of the machine but the model.
 * A server that offers tools or files must have `localhost` as its default instead, because then a page could act here.
 * @module
 */

/** `*` is every origin, `localhost` every page of this machine, anything else an origin such as `https://example.org`. */
export type CorsOrigins = readonly string[];

/** Which pages may use the server, and how. */
export interface CorsRules {
  origins: CorsOrigins;
  /** Methods of preflights; default: those of the routes. */
  methods?: readonly string[] | undefined;
  /** Headers that pages may send; default: those that clients send, and those that a browser asks for. */
  headers?: readonly string[] | undefined;
  /** Pages may send cookies and credentials. Default true. */
  credentials?: boolean | undefined;
}

/** Headers that clients of the three APIs send. The headers that a browser asks for are allowed too. */
const REQUEST_HEADERS = [
  "authorization",
  "content-type",
  "x-api-key",
  "x-request-id",
  "anthropic-version",
  "anthropic-beta",
  "anthropic-dangerous-direct-browser-access",
];
const EXPOSED_HEADERS = "x-request-id, request-id, retry-after";
const METHODS = "GET, POST, DELETE, OPTIONS";
const LOCAL = /^https?:\/\/(localhost|127(\.\d+){3}|\[::1\])(:\d+)?$/;

/** The value of `access-control-allow-origin` for a page of `origin`; undefined when the page may not use the server. */
function allowed(origins: CorsOrigins, origin: string | null): string | undefined {
  if (origin === null) return origins.includes("*") ? "*" : undefined;
  const yes = origins.some((o) =>
    o === "*" || o === origin || o === `${origin}/` || (o === "localhost" && LOCAL.test(origin))
  );
  return yes ? origin : undefined;
}

/** Adds the headers that every answer carries. */
export function setCors(response: Response, rules: CorsRules, request: Headers): void {
  const { headers } = response;
  headers.append("vary", "origin");
  const origin = allowed(rules.origins, request.get("origin"));
  if (origin === undefined) return;
  headers.set("access-control-allow-origin", origin);
  headers.set("access-control-expose-headers", EXPOSED_HEADERS);
  if (origin !== "*" && (rules.credentials ?? true)) headers.set("access-control-allow-credentials", "true");
}

/** The answer to a browser that asks before it sends a request; `setCors` completes it. */
export function preflight(rules: CorsRules, request: Headers): Response {
  const response = new Response("", { headers: { "content-type": "text/html" } });
  const { headers } = response;
  if (allowed(rules.origins, request.get("origin")) === undefined) return response;
  const asked = (request.get("access-control-request-headers") ?? "").toLowerCase().split(",")
    .map((name) => name.trim()).filter((name) => /^[\w!#$%&'*+.^`|~-]+$/.test(name));
  const any = rules.headers === undefined || rules.headers.includes("*");
  // Browsers that send credentials do not take `*`; they name what they want to send.
  const known = !any ? rules.headers! : asked.length === 0 ? ["*"] : [...REQUEST_HEADERS, ...asked];
  headers.set("access-control-allow-methods", rules.methods?.join(", ") ?? METHODS);
  headers.set("access-control-allow-headers", [...new Set(known)].join(", "));
  headers.set("access-control-max-age", "600");
  if (request.get("access-control-request-private-network") === "true") {
    headers.set("access-control-allow-private-network", "true");
  }
  return response;
}

/** Whether a text is an origin, `*` or `localhost`. */
export function isCorsOrigin(text: string): boolean {
  if (text === "*" || text === "localhost") return true;
  try {
    const url = new URL(text);
    return url.origin === text || url.origin === text.replace(/\/$/, "");
  } catch {
    return false;
  }
}
