/// <reference lib="dom" />
/**
 * Requests to the server that the page came from, with its key where it wants one.
 * @module
 */

/** An answer that is no success. */
export class HttpError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** A model that the server offers. */
export interface Model {
  readonly id: string;
}

/** What /props says and the page uses. */
export interface Props {
  default_generation_settings?: { n_ctx?: number; params?: Record<string, unknown> };
  model_alias?: string;
}

const KEY = "bloomery.key";

export class Api {
  /** Asks the user for a key; gives undefined when the user declines. */
  askKey: (wasWrong: boolean) => Promise<{ key: string; keep: boolean } | undefined> = () => Promise.resolve(undefined);
  readonly #base: URL;
  #key: string | null;
  #asking: Promise<boolean> | undefined;

  constructor(base: string | URL) {
    this.#base = new URL(".", base);
    this.#key = sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
  }

  /** Whether a key is kept in this browser. */
  get hasKey(): boolean {
    return this.#key !== null;
  }

  forgetKey(): void {
    this.#key = null;
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(KEY);
  }

  /**
   * Sends a request; asks for a key as often as the server refuses the one there is.
   * @param path Without a slash at its beginning.
   * @throws {HttpError} for an answer that is no success, with the server's words
   */
  async fetch(path: string, init: RequestInit = {}): Promise<Response> {
    for (;;) {
      const key = this.#key;
      const headers = new Headers(init.headers);
      if (key !== null) headers.set("authorization", `Bearer ${key}`);
      const response = await fetch(new URL(path, this.#base), { ...init, headers, credentials: "omit" });
      if (response.ok) return response;
      if (response.status !== 401) throw await failure(response);
      const refused = await failure(response);
      // Another request may have got a key meanwhile.
      if (key === this.#key && !await this.#ask(key !== null)) throw refused;
    }
  }

  async json<T>(path: string, init?: RequestInit): Promise<T> {
    return await (await this.fetch(path, init)).json();
  }

  post(path: string, body: unknown, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    headers.set("content-type", "application/json");
    return this.fetch(path, { ...init, method: "POST", headers, body: JSON.stringify(body) });
  }

  #ask(wasWrong: boolean): Promise<boolean> {
    return this.#asking ??= this.askKey(wasWrong).then((given) => {
      if (given === undefined) return false;
      this.#key = given.key;
      (given.keep ? localStorage : sessionStorage).setItem(KEY, given.key);
      return true;
    }).finally(() => {
      this.#asking = undefined;
    });
  }
}

async function failure(response: Response): Promise<HttpError> {
  const text = await response.text().catch(() => "");
  let message = `The server answered ${response.status} ${response.statusText}`;
  try {
    const { error } = JSON.parse(text) as { error?: { message?: string; hint?: string } };
    if (error?.message) message = error.hint ? `${error.message} (${error.hint})` : error.message;
  } catch {
    // no JSON: the status says enough
  }
  return new HttpError(response.status, message);
}
