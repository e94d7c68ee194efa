/**
 * Which models run: each starts when it is asked for, at most so many at once; the one that was not used for longest leaves, and never one
 * at work.
 * @module
 */
import { ApiError, badRequest } from "../errors.ts";
import type { CatalogEntry } from "./catalog.ts";
import { Instance, type Launch } from "./instance.ts";

export interface FleetOptions extends Launch {
  /** Models that run at once at most; 0: any number. */
  readonly most: number;
}

export class Fleet {
  readonly instances: readonly Instance[];
  readonly #listeners = new Set<(instance: Instance) => void>();
  readonly #most: number;
  #clock = 0;
  /** Loads take turns: one looks for room at a time. */
  #turn: Promise<unknown> = Promise.resolve();
  #waiting: (() => void)[] = [];
  #stopped = false;

  constructor(entries: readonly CatalogEntry[], options: FleetOptions) {
    this.#most = options.most;
    const tell = (instance: Instance) => {
      this.#wake();
      for (const l of this.#listeners) l(instance);
    };
    this.instances = entries.map((e, i) => new Instance(e, options, i, tell));
  }

  /** Calls a function when a model's state changes. @returns a function that ends that */
  onChange(listener: (instance: Instance) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The model of a name, as it is listed or with what clients of ollama put behind it. */
  find(name: string): Instance | undefined {
    const by = (n: string) => this.instances.find(({ entry }) => entry.id === n || entry.aliases.includes(n));
    return by(name) ?? by(name.replace(/:latest$/, ""));
  }

  /**
   * The model of a name, running and at work until `release`.
   * @throws ApiError 400 for an unknown name, or one that does not run where it must not be started; 500 where it cannot start
   */
  async use(name: string, autoload: boolean): Promise<Instance> {
    const instance = this.find(name);
    if (!instance) throw unknown(name, this.instances);
    instance.n_active++;
    instance.lastUse = ++this.#clock;
    try {
      if (instance.state !== "loaded" && !autoload) {
        throw badRequest(`model '${name}' is not loaded`, "model", "model_not_loaded");
      }
      await this.load(instance);
      return instance;
    } catch (error) {
      this.release(instance);
      throw error;
    }
  }

  release(instance: Instance): void {
    instance.n_active--;
    this.#wake();
  }

  /** @throws ApiError 500 where it cannot start */
  async load(instance: Instance): Promise<void> {
    while (instance.state !== "loaded") {
      const turn = this.#turn.then(() => this.#start(instance));
      this.#turn = turn.catch(() => {});
      await turn;
    }
  }

  async #start(instance: Instance): Promise<void> {
    if (instance.state === "loaded") return;
    while (!this.#stopped && this.#most > 0 && this.#running(instance).length >= this.#most) {
      const idle = this.#running(instance).filter((i) => i.n_active === 0);
      if (idle.length > 0) await idle.reduce((a, b) => b.lastUse < a.lastUse ? b : a).stop();
      else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    if (this.#stopped) throw new ApiError(503, "unavailable_error", "shutting_down", "The server is shutting down");
    try {
      await instance.load();
    } catch (cause) {
      const text = `model '${instance.entry.id}' cannot be loaded: ${(cause as Error).message}`;
      throw new ApiError(500, "server_error", "model_failed", text, { cause });
    }
  }

  #running(but: Instance): Instance[] {
    return this.instances.filter((i) => i !== but && i.state !== "unloaded");
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  /** Ends all. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#wake();
    await Promise.all(this.instances.map((i) => i.stop()));
  }
}

function unknown(name: string, known: readonly Instance[]): ApiError {
  const names = known.map((i) => i.entry.id);
  return new ApiError(400, "invalid_request_error", "model_not_found", `model '${name}' not found`, {
    param: "model",
    hint: names.length === 0 ? "there are no models" : `there are ${names.slice(0, 20).join(", ")}`,
  });
}
