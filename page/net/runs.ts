/// <reference lib="dom" />
/**
 * Answers that are being generated: as many at once as there are chats. They go on whatever the page shows, and an answer whose
 * connection was lost is taken up again where the server still has it.
 * @module
 */
import { addEvent, AnswerError, rewind } from "../chat/answer.ts";
import { EventReader } from "../chat/sse.ts";
import type { Message } from "../chat/types.ts";
import type { Store } from "../store/database.ts";
import { type Api, HttpError } from "./api.ts";

/** Between two writes of an answer that grows. */
const SAVE_MS = 700;
/** Waits before each attempt to take up a stream whose connection was lost. */
const RETRY_MS = [300, 1000, 3000];
/** Until a server that had not begun is told to stop for the second time. */
const STOP_AGAIN_MS = 2000;
const STREAM = "v1/stream";
const RESCUE = "bloomery.rescue.";

interface Run {
  readonly message: Message;
  readonly abort: AbortController;
  /** The user ended it. */
  stopped: boolean;
  /** It reads a stream that began before. */
  again: boolean;
  /** The server has begun to answer. */
  connected: boolean;
  saved: number;
}

export class Runs {
  /** Called whenever a message that runs has changed, and when it has ended. */
  onChange: (message: Message) => void = () => {};
  readonly #api: Api;
  readonly #store: Store;
  readonly #runs = new Map<string, Run>();

  constructor(api: Api, store: Store) {
    this.#api = api;
    this.#store = store;
    // What came since the last write outlives the page: a database may not get to write any more, this storage does at once.
    addEventListener("pagehide", () => {
      for (const { message } of this.#runs.values()) {
        try {
          localStorage.setItem(RESCUE + message.id, JSON.stringify(message));
        } catch {
          // it is full: what the database has must do
        }
      }
    });
  }

  /** The messages that run, by id. */
  get(id: string): Message | undefined {
    return this.#runs.get(id)?.message;
  }

  ofChat(chat: string): Message | undefined {
    return [...this.#runs.values()].find((run) => run.message.chat === chat)?.message;
  }

  /** Generates an answer, or the rest of one. */
  start(message: Message, body: Record<string, unknown>): Promise<void> {
    const { content, reasoning, tokens, id } = message;
    message.start = { content, reasoning, n_tokens: tokens?.length ?? 0 };
    // Each generation is a stream of its own: a message may be continued.
    message.stream = `${id}-${Date.now().toString(36)}`;
    const run = this.#begin(message, false);
    return onlyHere(id, () =>
      this.#run(run, () =>
        this.#api.post("v1/chat/completions", body, {
          signal: run.abort.signal,
          headers: { "x-conversation-id": message.stream! },
        })));
  }

  /** Takes up all that was running. */
  resumeAll(messages: readonly Message[]): void {
    const ids = new Set(messages.map((message) => RESCUE + message.id));
    for (const key of Object.keys(localStorage)) {
      if (key.startsWith(RESCUE) && !ids.has(key)) localStorage.removeItem(key); // of a chat that was deleted
    }
    for (const message of messages) this.resume(message);
  }

  /** The end of a message that was running when the page was left. */
  #rescue(message: Message): void {
    const text = localStorage.getItem(RESCUE + message.id);
    if (text === null) return;
    localStorage.removeItem(RESCUE + message.id);
    const rescued = JSON.parse(text) as Message;
    if (rescued.stream === message.stream) Object.assign(message, rescued);
  }

  /**
   * Takes up an answer that was running when the page was left. While another window reads it, this one waits, and shows in the end
   * what that one has written.
   */
  async resume(message: Message): Promise<void> {
    if (this.#runs.has(message.id)) return;
    await onlyHere(message.id, async () => {
      const now = await this.#store.message(message.id);
      if (now !== undefined && now.status !== "running") {
        Object.assign(message, now);
        return this.onChange(message);
      }
      this.#rescue(message);
      const run = this.#begin(message, true);
      await this.#run(run, async () => {
        const response = await this.#api.fetch(streamPath(message), { signal: run.abort.signal });
        rewind(message); // only now: what the page has is worth more than nothing
        return response;
      });
    });
  }

  /** Ends an answer and keeps what there is of it. */
  stop(id: string): void {
    const run = this.#runs.get(id);
    if (run === undefined) return;
    run.stopped = true;
    run.abort.abort();
    // A server that keeps streams goes on without a reader until it is told. One that has not read the request yet does not know the
    // stream, so it is told once more.
    const path = streamPath(run.message);
    const tell = () => this.#api.fetch(path, { method: "DELETE" }).catch(() => {});
    tell();
    if (!run.connected) setTimeout(tell, STOP_AGAIN_MS);
  }

  #begin(message: Message, again: boolean): Run {
    const run: Run = { message, abort: new AbortController(), stopped: false, again, connected: false, saved: 0 };
    this.#runs.set(message.id, run);
    message.status = "running";
    delete message.error;
    return run;
  }

  async #run(run: Run, connect: () => Promise<Response>): Promise<void> {
    const { message } = run;
    try {
      await this.#save(run);
      await this.#read(run, connect);
      message.status = "done";
    } catch (error) {
      this.#failed(run, error);
    }
    this.#runs.delete(message.id);
    delete message.stream;
    delete message.start;
    await this.#store.put({ messages: [message] });
    this.onChange(message);
  }

  async #read(run: Run, connect: () => Promise<Response>): Promise<void> {
    const { message, abort: { signal } } = run;
    for (let attempt = 0;; attempt++) {
      let connected = false;
      run.again ||= attempt > 0;
      try {
        const response = await (attempt === 0 ? connect() : this.#api.fetch(streamPath(message), { signal }));
        run.connected = connected = true;
        if (attempt > 0) rewind(message);
        if (await this.#events(run, response)) return;
        throw new TypeError("the stream broke off");
      } catch (error) {
        // A request that was never answered may not have arrived: sending it again is the user's choice.
        const lost = error instanceof TypeError && (connected || attempt > 0);
        if (!lost || run.stopped || attempt >= RETRY_MS.length) throw error;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS[attempt]));
      }
    }
  }

  /** Reads a stream; gives whether it came to its end. */
  async #events(run: Run, response: Response): Promise<boolean> {
    const { message } = run, events = new EventReader();
    const reader = response.body!.getReader();
    let ended = false;
    while (!ended) {
      const { done, value } = await reader.read();
      if (done) break;
      for (const data of events.push(value)) ended = addEvent(message, data) || ended;
      this.onChange(message);
      if (performance.now() - run.saved > SAVE_MS) await this.#save(run);
    }
    return ended;
  }

  async #save(run: Run): Promise<void> {
    run.saved = performance.now();
    await this.#store.put({ messages: [run.message] });
  }

  #failed(run: Run, error: unknown): void {
    const { message } = run;
    if (run.stopped) {
      message.status = "stopped";
    } else if (error instanceof AnswerError) {
      message.status = "failed";
      message.error = error.message;
    } else if (error instanceof HttpError) {
      // What the server does not give again has ended long ago, or it keeps no streams, or it was restarted.
      message.status = run.again ? "cut" : "failed";
      if (!run.again) message.error = error.message;
    } else {
      message.status = message.content === "" && message.reasoning === "" ? "failed" : "cut";
      message.error = "The connection to the server was lost";
    }
  }
}

function streamPath({ stream }: Message): string {
  return `${STREAM}?${new URLSearchParams({ conv_id: stream ?? "", from: "0" })}`;
}

/** Runs `work` while no other window does so for the same message. Where browsers have no locks, nothing is waited for. */
async function onlyHere(id: string, work: () => Promise<void>): Promise<void> {
  const locks: LockManager | undefined = navigator.locks;
  if (locks === undefined) return await work();
  await locks.request(`bloomery.message.${id}`, () => work());
}
