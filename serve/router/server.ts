/**
 * A server over several models: one address, a process for each model that runs.
 * @module
 */
import { checkKey } from "../auth.ts";
import { type ListenerSettings, openRouted } from "../server.ts";
import type { CatalogEntry } from "./catalog.ts";
import { Fleet, type FleetOptions } from "./fleet.ts";
import { routerFailure, RouterRoutes } from "./routes.ts";

export interface RouterOptions extends ListenerSettings, FleetOptions {
  readonly models: readonly CatalogEntry[];
  /** A request starts the model that it names. Default true. */
  readonly autoload?: boolean;
}

export interface RunningRouter {
  readonly url: string;
  readonly port: number;
  readonly fleet: Fleet;
  /** New keys for requests that come from now on; models' servers read their templates again. */
  reload(apiKeys: readonly string[]): void;
  /** Ends at once; models' servers end too. */
  stop(): Promise<void>;
  /** Accepts no more requests, lets those under way finish, and ends. */
  drain(): Promise<void>;
  readonly drained: Promise<void>;
}

/** @throws The system's error when it cannot listen. */
export async function startRouter(options: RouterOptions): Promise<RunningRouter> {
  const fleet = new Fleet(options.models, options);
  const routes = new RouterRoutes(fleet, {
    autoload: options.autoload ?? true,
    most: options.most,
    build: options.build ?? "bloomery",
    maxBodyBytes: options.maxBodyBytes ?? 32 << 20,
  });
  let keys = options.apiKeys ?? [];
  const onError = options.onError ?? (() => {});
  const listener = await openRouted(options, async (exchange, path, page) => {
    try {
      if (keys.length > 0 && path !== "/health" && path !== "/v1/health" && path !== "/") {
        checkKey(exchange.headers, keys);
      }
      return await routes.answer(exchange, path) ?? await page(exchange);
    } catch (error) {
      const { response, code } = routerFailure(error, onError);
      exchange.failure = code;
      exchange.streams = false;
      return response;
    }
  });
  for (const i of fleet.instances) if (i.entry.loadOnStartup) fleet.load(i).catch(onError);
  const drained = listener.closed.then(() => fleet.stop());
  return {
    url: listener.url,
    port: listener.port,
    fleet,
    drained,
    reload(apiKeys) {
      keys = apiKeys;
      for (const i of fleet.instances) i.hangUp();
    },
    async stop() {
      await fleet.stop();
      listener.abort();
      await drained;
    },
    async drain() {
      await listener.close();
      await drained;
    },
  };
}
