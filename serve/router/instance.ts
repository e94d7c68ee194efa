/**
 * A model's own server: a process of this program that listens on a Unix socket and ends with its parent.
 * @module
 */
import type { CatalogEntry } from "./catalog.ts";
import { proxied } from "./proxy.ts";

/** A child reads its parent's number here: it ends when that is not its parent any more. */
export const CHILD_VARIABLE = "BLOOMERY_ENDS_WITH_PARENT";

export type InstanceState = "unloaded" | "loading" | "loaded";

/** How servers of models are started. */
export interface Launch {
  /** Program and arguments before those of `serve`. */
  readonly command: readonly string[];
  /** Words for every model. */
  readonly args: readonly string[];
  /** Folder for sockets. */
  readonly folder: string;
  /** Seconds that a server may take to finish its requests. Default 10. */
  readonly stopSeconds?: number;
}

/** What a process said of its end: its error, else its last line. */
function lastWords(text: string): string {
  const lines = text.trim().split("\n");
  return lines.findLast((l) => l.startsWith("error: "))?.slice("error: ".length) ?? lines.at(-1) ?? "";
}

/** Characters of a child's messages that are kept for the error it ends with. */
const KEPT = 4000;
const POLL_MS = 30;

export class Instance {
  state: InstanceState = "unloaded";
  /** Requests under way. */
  n_active = 0;
  /** Grows with each use over all instances; the smallest is the least recently used. */
  lastUse = 0;
  /** What the last start or run failed with. */
  failure: { readonly exit_code: number; readonly text: string } | undefined;
  #child: Deno.ChildProcess | undefined;
  #loading: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;
  #socket = "";
  #starts = 0;

  constructor(
    readonly entry: CatalogEntry,
    private readonly launch: Launch,
    private readonly number: number,
    private readonly changed: (instance: Instance) => void,
  ) {}

  get socket(): string {
    return this.#socket;
  }

  /** The words of its command line behind the program. */
  get args(): string[] {
    const { path, id, aliases, args } = this.entry;
    return ["serve", "-m", path, "--alias", [id, ...aliases].join(","), ...this.launch.args, ...args];
  }

  /**
   * Starts it, or waits until it has started.
   * @throws an Error with the child's last words where it ends instead
   */
  load(): Promise<void> {
    return this.#loading ??= this.#load().finally(() => this.#loading = undefined);
  }

  async #load(): Promise<void> {
    await this.#stopping;
    if (this.state === "loaded") return;
    this.failure = undefined;
    this.#socket = `${this.launch.folder}/${this.number}-${this.#starts++}.sock`;
    const [program, ...before] = this.launch.command;
    const child = this.#child = new Deno.Command(program, {
      args: [...before, ...this.args, "--host", this.#socket, "--no-ui"],
      env: { [CHILD_VARIABLE]: String(Deno.pid), LLAMA_API_KEY: "" },
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    }).spawn();
    let words = "";
    const heard = (async () => {
      for await (const text of child.stderr.pipeThrough(new TextDecoderStream())) words = (words + text).slice(-KEPT);
    })();
    const gone = child.status.then(async ({ code }) => {
      await heard.catch(() => {});
      if (this.#child !== child) return;
      this.#child = undefined;
      if (this.#stopping === undefined) this.failure = { exit_code: code, text: lastWords(words) };
      this.#become("unloaded");
    });
    this.#become("loading");
    while (this.#child === child) {
      if (await this.#answers()) {
        if (this.#child === child) this.#become("loaded");
        break;
      }
      await Promise.race([gone, new Promise((resolve) => setTimeout(resolve, POLL_MS))]);
    }
    if ((this.state as InstanceState) === "loaded") return;
    const { exit_code, text } = this.failure ?? { exit_code: 0, text: "it was unloaded" };
    throw new Error(`${text === "" ? "it said nothing" : text} (exit code ${exit_code})`);
  }

  async #answers(): Promise<boolean> {
    try {
      const response = await proxied(this.#socket, {
        method: "GET",
        path: "/health",
        headers: new Headers(),
        body: "",
        signal: AbortSignal.timeout(5000),
      }, { secret: [], onEnd() {} });
      await response.body?.cancel();
      return response.status === 200;
    } catch {
      return false; // it does not listen yet
    }
  }

  /** Has it read its template again. */
  hangUp(): void {
    if (this.state === "loaded") this.#child?.kill("SIGHUP");
  }

  /** Ends it: running requests may finish. */
  stop(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return Promise.resolve();
    return this.#stopping ??= (async () => {
      child.kill("SIGTERM");
      const timer = setTimeout(() => child.kill("SIGKILL"), (this.launch.stopSeconds ?? 10) * 1000);
      await child.status;
      clearTimeout(timer);
      while (this.#child === child) await new Promise((resolve) => setTimeout(resolve, 1));
    })().finally(() => this.#stopping = undefined);
  }

  #become(state: InstanceState): void {
    if (this.state === state) return;
    this.state = state;
    this.changed(this);
  }
}
