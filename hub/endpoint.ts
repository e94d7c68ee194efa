/**
 * Requests to the Hub: the token goes to the Hub alone, never to where it redirects; an error says in words what was refused.
 * @module
 */
import { HubError } from "../core/errors.ts";
import { pause, reasonOf, Retryable, retryAfterMs } from "../core/retry.ts";

export { reasonOf, Retryable };

export interface HubAccess {
  /** Address of the Hub, without a slash at the end. */
  readonly endpoint: string;
  readonly token?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Waits between attempts; a test's returns at once. */
  readonly sleep?: (ms: number, signal?: AbortSignal) => Promise<void>;
  /** What goes wrong and is tried again. */
  readonly onRetry?: (text: string) => void;
}

/** Requests without progress after which it is given up. */
export const ATTEMPTS = 5;

/** Bytes of an answer that is read whole. */
const MAX_ANSWER = 32 << 20;

/** Redirects followed. */
const MAX_HOPS = 8;

/** @throws {HubError} `hub.endpoint` for an address that is none. */
export function hubAccess(options: HubAccess): HubAccess {
  let url: URL | undefined;
  try {
    url = new URL(options.endpoint);
  } catch {
    // told below
  }
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    throw new HubError(
      "hub.endpoint",
      `Cannot use the Hub at "${options.endpoint}": expected an http or https address`,
      {
        at: { endpoint: options.endpoint },
        hint: "correct --hf-endpoint or HF_ENDPOINT, for example https://huggingface.co",
      },
    );
  }
  return { ...options, endpoint: options.endpoint.replace(/\/+$/, "") };
}

/**
 * Does some work again where it fails for a while: a cut connection, an overloaded server.
 * @param work Calls `progressed` where it got on, which sets the count of attempts back.
 * @throws {HubError} `hub.unreachable` after {@link ATTEMPTS} attempts without progress.
 */
export async function retrying<T>(
  what: string,
  access: HubAccess,
  work: (progressed: () => void) => Promise<T>,
): Promise<T> {
  let failures = 0;
  for (;;) {
    try {
      return await work(() => void (failures = 0));
    } catch (error) {
      access.signal?.throwIfAborted();
      if (!(error instanceof Retryable)) throw error;
      if (++failures >= ATTEMPTS) {
        throw new HubError("hub.unreachable", `Cannot fetch ${what}: ${error.message}, ${ATTEMPTS} times in a row`, {
          at: { what, endpoint: access.endpoint },
          hint: "check the network, or the state of the Hub; run the same command again to continue",
          cause: error,
        });
      }
      const ms = Math.min(error.retryAfterMs ?? 500 * 2 ** failures, 60_000);
      access.onRetry?.(`${what}: ${error.message}; trying again`);
      await (access.sleep ?? pause)(ms, access.signal);
    }
  }
}

function refused(status: number, what: string, access: HubAccess): HubError {
  const at = { what, status, endpoint: access.endpoint };
  if (status === 401 || status === 403) {
    return new HubError(
      status === 401 ? "hub.unauthorized" : "hub.gated",
      `Cannot fetch ${what}: the Hub answers ${status}, ` +
        (access.token === undefined ? "and no access token was given" : "and does not accept the access token for it"),
      {
        at,
        hint: access.token === undefined
          ? "check the name; for a private or gated repository accept its terms on its page and give HF_TOKEN or --hf-token"
          : "check the name and the token's rights; a gated repository's terms have to be accepted on its page first",
      },
    );
  }
  if (status === 404) {
    return new HubError("hub.not_found", `Cannot fetch ${what}: the Hub has no such repository or file`, {
      at,
      hint: "check the name OWNER/REPO and the file's",
    });
  }
  return new HubError("hub.refused", `Cannot fetch ${what}: the Hub answers ${status}`, { at });
}

/**
 * One GET, redirects followed by hand.
 * @throws {Retryable} for what may pass; {@link HubError} for what will not
 */
export async function get(
  url: string,
  what: string,
  access: HubAccess,
  headers: Record<string, string> = {},
): Promise<Response> {
  const home = new URL(access.endpoint).origin;
  let at = url;
  for (let hop = 0; hop < MAX_HOPS; hop++) {
    const target = new URL(at);
    const own = target.origin === home && access.token !== undefined;
    let response: Response;
    try {
      response = await fetch(target, {
        redirect: "manual",
        headers: { ...headers, ...(own ? { authorization: `Bearer ${access.token}` } : {}) },
        ...(access.signal ? { signal: access.signal } : {}),
      });
    } catch (cause) {
      access.signal?.throwIfAborted();
      throw new Retryable(`no answer from ${target.host} (${reasonOf(cause)})`);
    }
    const { status } = response;
    if (status >= 200 && status < 300 || status === 416) return response;
    await response.body?.cancel();
    const location = response.headers.get("location");
    if (status >= 300 && status < 400 && location !== null && URL.canParse(location, at)) {
      const next = new URL(location, at);
      if (!/^https?:$/.test(next.protocol) || (target.protocol === "https:" && next.protocol === "http:")) {
        throw new HubError("hub.refused", `Cannot fetch ${what}: the Hub redirects to ${next.protocol}//${next.host}`, {
          at: { what, endpoint: access.endpoint },
        });
      }
      at = next.href;
      continue;
    }
    if (status === 408 || status === 429 || status >= 500) {
      throw new Retryable(`${target.host} answers ${status}`, retryAfterMs(response.headers.get("retry-after")));
    }
    throw refused(status, what, access);
  }
  throw new HubError("hub.refused", `Cannot fetch ${what}: more than ${MAX_HOPS} redirects`, {
    at: { what, endpoint: access.endpoint },
  });
}

/** The text of an answer, which must not be endless. @throws {Retryable} when it is cut */
export async function bodyText(response: Response, what: string): Promise<string> {
  const parts: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const part of response.body ?? []) {
      size += part.length;
      if (size > MAX_ANSWER) {
        throw new HubError("hub.answer", `Cannot read the answer for ${what}: it is larger than ${MAX_ANSWER} bytes`);
      }
      parts.push(part);
    }
  } catch (error) {
    if (error instanceof HubError) throw error;
    throw new Retryable(`the answer was cut (${reasonOf(error)})`);
  }
  return await new Blob(parts as BlobPart[]).text();
}
