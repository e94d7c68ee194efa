/**
 * A router's answers: what it knows of its models, which of them run, and everything else handed on to the model that a request names.
 * @module
 */
import { parseJson } from "../../core/json.ts";
import { json } from "../app.ts";
import { ApiError, badRequest, errorResponse, toApiError } from "../errors.ts";
import type { Exchange } from "../exchange.ts";
import { CHILD_VARIABLE, type Instance } from "./instance.ts";
import type { Fleet } from "./fleet.ts";
import { proxied } from "./proxy.ts";

export interface RouterSettings {
  /** A request starts the model that it names, unless it says otherwise. */
  readonly autoload: boolean;
  /** Models that run at once at most; 0: any number. */
  readonly most: number;
  /** What `build_info` says. */
  readonly build: string;
  /** Largest body. */
  readonly maxBodyBytes: number;
}

/** How often a model's server looks for its router. */
const LOOK_MS = 500;

/** Headers that models' servers do not see: keys are the router's. */
const SECRET = ["authorization", "x-api-key"];

type Answer = Response | Promise<Response>;

export class RouterRoutes {
  readonly #created = Math.floor(Date.now() / 1000);

  constructor(readonly fleet: Fleet, readonly settings: RouterSettings) {}

  /** @throws ApiError */
  async answer(exchange: Exchange, path: string): Promise<Response | undefined> {
    const { method } = exchange;
    if (method === "POST") await exchange.readBody(this.settings.maxBodyBytes);
    const own = this.#own(method, path, exchange);
    if (own !== undefined) return await own;
    if (method === "GET" && path === "/" || method === "HEAD") return undefined;
    const named = this.#named(exchange, path);
    if (named === undefined) {
      if (method === "GET" && !/^\/(slots|metrics|props|lora-adapters|bloomery\/|v1\/stream)/.test(path)) {
        return undefined;
      }
      throw badRequest("model name is missing from the request", "model", "missing_model");
    }
    return await this.#forward(exchange, path, named);
  }

  #own(method: string, path: string, exchange: Exchange): Answer | undefined {
    const { query } = exchange, of = query.get("model");
    const get = method === "GET", post = method === "POST";
    if (get && (path === "/health" || path === "/v1/health")) return json({ status: "ok" });
    if (get && (path === "/models" || path === "/v1/models")) return json(this.#models());
    if (get && path === "/models/sse") return this.#events(exchange);
    if (post && path === "/models/load") return this.#load(exchange);
    if (post && path === "/models/unload") return this.#unload(exchange);
    if ((post || method === "DELETE") && path === "/models") {
      throw new ApiError(
        501,
        "not_supported_error",
        "not_supported",
        "Models are files: this server neither fetches nor deletes any",
      );
    }
    const model = /^(?:\/v1)?\/models\/(.+)$/.exec(path)?.[1];
    if (get && model !== undefined) return json(this.#entry(this.#known(decodeURIComponent(model), 404)));
    if (get && path === "/props" && of === null) return json(this.#props());
    if (get && path === "/api/tags") return json({ models: this.fleet.instances.map((i) => this.#tag(i)) });
    if (get && path === "/api/ps") {
      return json({ models: this.fleet.instances.filter((i) => i.state === "loaded").map((i) => this.#tag(i)) });
    }
    if (get && path === "/api/version") return json({ version: this.settings.build.replace(/^bloomery-/, "") });
    return undefined;
  }

  /** The name of the model that a request is for. */
  #named({ query, body, method }: Exchange, path: string): string | undefined {
    const asked = query.get("model");
    if (asked !== null) return asked;
    if (method !== "POST" || body === "") return undefined;
    let value: unknown;
    try {
      value = parseJson(body);
    } catch {
      throw badRequest("The body is not JSON", undefined, "invalid_json");
    }
    const { model, name } = (value ?? {}) as { model?: unknown; name?: unknown };
    if (typeof model === "string" && model !== "") return model;
    return path.startsWith("/api/") && typeof name === "string" && name !== "" ? name : undefined;
  }

  #known(name: string, status: number): Instance {
    const instance = this.fleet.find(name);
    if (instance) return instance;
    throw new ApiError(status, "not_found_error", "model_not_found", `model '${name}' not found`, { param: "model" });
  }

  #nameIn(exchange: Exchange): string {
    const name = this.#named(exchange, "/models");
    if (name === undefined) throw badRequest("model name is missing from the request", "model", "missing_model");
    return name;
  }

  async #load(exchange: Exchange): Promise<Response> {
    const instance = this.#known(this.#nameIn(exchange), 404);
    if (instance.state !== "unloaded") throw badRequest("model is already running", "model", "model_running");
    // The answer says that it begins; /models says how it goes on.
    this.fleet.load(instance).catch(() => {});
    return await Promise.resolve(json({ success: true }));
  }

  async #unload(exchange: Exchange): Promise<Response> {
    const instance = this.#known(this.#nameIn(exchange), 400);
    await instance.stop();
    return json({ success: true });
  }

  async #forward(exchange: Exchange, path: string, name: string): Promise<Response> {
    const { query } = exchange, asked = query.get("autoload");
    const autoload = asked === null ? this.settings.autoload : asked === "true" || asked === "1";
    const instance = await this.fleet.use(name, autoload);
    query.delete("autoload"), query.delete("model");
    const words = query.toString();
    exchange.streams = true;
    try {
      return await proxied(instance.socket, {
        method: exchange.method,
        path: words === "" ? path : `${path}?${words}`,
        headers: exchange.headers,
        body: exchange.body,
        signal: exchange.signal,
      }, {
        secret: SECRET,
        onEnd: () => {
          this.fleet.release(instance);
          exchange.end();
        },
      });
    } catch (cause) {
      if (exchange.signal.aborted) return new Response(null, { status: 499 });
      const text = `the server of model '${instance.entry.id}' ended: ${(cause as Error).message}`;
      throw new ApiError(502, "server_error", "model_ended", text, { cause });
    }
  }

  #models(): object {
    const data = this.fleet.instances.map((i) => this.#entry(i));
    return { object: "list", data, models: this.fleet.instances.map((i) => this.#tag(i)) };
  }

  #entry({ entry, state, failure, args }: Instance): object {
    return {
      id: entry.id,
      aliases: entry.aliases,
      tags: [],
      object: "model",
      type: "model",
      display_name: entry.id,
      owned_by: "bloomery",
      created: this.#created,
      created_at: new Date(this.#created * 1000).toISOString(),
      path: entry.path,
      source: "file",
      can_remove: false,
      architecture: { input_modalities: ["text"], output_modalities: ["text"] },
      status: {
        value: state,
        args,
        ...(failure === undefined ? {} : { failed: true, exit_code: failure.exit_code, error: failure.text }),
      },
    };
  }

  #tag({ entry }: Instance): object {
    const name = entry.id.includes(":") ? entry.id : `${entry.id}:latest`;
    let size = 0;
    try {
      size = Deno.statSync(entry.path).size;
    } catch {
      // A file that went is listed still: a request for it says what is wrong.
    }
    const details = {
      parent_model: "",
      format: "gguf",
      family: "",
      families: [],
      parameter_size: "",
      quantization_level: "",
    };
    return { name, model: name, modified_at: new Date(this.#created * 1000).toISOString(), size, digest: "", details };
  }

  #props(): object {
    return {
      role: "router",
      max_instances: this.settings.most,
      models_autoload: this.settings.autoload,
      model_alias: "bloomery",
      model_path: "none",
      default_generation_settings: { params: null, n_ctx: 0 },
      ui_settings: {},
      build_info: this.settings.build,
      cors_proxy_enabled: false,
    };
  }

  /** States as they change. */
  #events(exchange: Exchange): Response {
    exchange.streams = true;
    const encoder = new TextEncoder();
    let off = () => {};
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        const say = (i: Instance) => {
          const data = JSON.stringify({ event: "model_status", model: i.entry.id, status: i.state });
          controller.enqueue(encoder.encode(`event: model_status\ndata: ${data}\n\n`));
        };
        off = this.fleet.onChange(say);
        for (const i of this.fleet.instances) say(i);
        exchange.signal.addEventListener("abort", () => {
          off();
          exchange.end();
        }, { once: true });
      },
      cancel: () => {
        off();
        exchange.end();
      },
    });
    return new Response(body, { headers: { "content-type": "text/event-stream", "cache-control": "no-cache" } });
  }
}

/** Calls a function when the router that started this process has ended, however that was; it keeps no process alive. */
export function endWithParent(end: () => void): void {
  const parent = Number(Deno.env.get(CHILD_VARIABLE) ?? 0);
  if (parent === 0) return;
  const timer = setInterval(() => {
    if (Deno.ppid === parent) return;
    clearInterval(timer);
    end();
  }, LOOK_MS);
  Deno.unrefTimer(timer);
}

/** An error of a router, as an answer. */
export function routerFailure(error: unknown, onError: (error: unknown) => void): { response: Response; code: string } {
  const api = toApiError(error);
  if (api.status === 500 && !(error instanceof ApiError)) onError(error);
  return { response: errorResponse(api), code: api.apiCode };
}
