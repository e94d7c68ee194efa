/// <reference lib="dom" />
/**
 * What the page does, apart from how it looks: chats, the branch that is shown, and the answers that are asked for.
 * @module
 */
import { requestBody } from "./chat/request.ts";
import type { Prefill } from "./chat/token_places.ts";
import { MessageTree } from "./chat/tree.ts";
import type { Chat, Message, Settings, TextFile, TokenRecord } from "./chat/types.ts";
import { newId } from "./id.ts";
import type { Api, Model, Props } from "./net/api.ts";
import { Runs } from "./net/runs.ts";
import type { Store } from "./store/database.ts";
import { exportText, importText } from "./store/transfer.ts";

const DEFAULTS = "bloomery.defaults";
const MAX_TITLE = 60;
/** Chats that a search gives. */
const MAX_FOUND = 100;

/** What the page shows changed: `chats` the list, `chat` the open one, `message` a message of it, `server` what is known of the server. */
export type Change = { kind: "chats" | "chat" | "server" } | { kind: "message"; message: Message };

/** A chat that a search found. */
export interface Found {
  chat: Chat;
  /** Text around the first place. */
  excerpt: string;
}

interface Defaults {
  system: string;
  settings: Settings;
}

export class App {
  readonly api: Api;
  readonly store: Store;
  readonly runs: Runs;
  /** All chats, the latest first. */
  chats: Chat[] = [];
  /** The open one; undefined while a new one has no message yet. */
  chat: Chat | undefined;
  /** Its messages. */
  tree = new MessageTree();
  /** System prompt and settings of the next new chat. */
  draft: Defaults;
  models: Model[] = [];
  model: string | undefined;
  props: Props | undefined;
  readonly #listeners: ((change: Change) => void)[] = [];

  constructor(api: Api, store: Store) {
    this.api = api;
    this.store = store;
    this.runs = new Runs(api, store);
    this.runs.onChange = (message) => this.#messageChanged(message);
    this.draft = readDefaults();
  }

  listen(listener: (change: Change) => void): void {
    this.#listeners.push(listener);
  }

  #emit(change: Change): void {
    for (const listener of this.#listeners) listener(change);
  }

  #messageChanged(message: Message): void {
    if (message.chat === this.chat?.id) {
      const own = this.tree.get(message.id);
      // A resumed message comes from the database, the tree may have another copy of it.
      if (own !== undefined && own !== message) Object.assign(own, message);
      this.#emit({ kind: "message", message: own ?? message });
    }
    if (message.status !== "running") this.#emit({ kind: "chats" });
  }

  /** Reads the chats, and takes up what was being generated. */
  async load(): Promise<void> {
    this.chats = await this.store.chats();
    this.runs.resumeAll(await this.store.running());
    this.#emit({ kind: "chats" });
  }

  /** Asks the server for its models and settings. */
  async loadServer(): Promise<void> {
    const { data } = await this.api.json<{ data: Model[] }>("v1/models");
    this.models = data;
    this.model ??= data[0]?.id;
    this.props = await this.api.json<Props>("props");
    this.#emit({ kind: "server" });
  }

  /** System prompt and settings in force: the open chat's, or the next one's. */
  get options(): Pick<Chat, "system" | "settings"> {
    return this.chat ?? this.draft;
  }

  /** The messages of the branch that is shown. */
  get path(): Message[] {
    return this.tree.path(this.chat?.leaf ?? null);
  }

  /** The answer that the open chat waits for. */
  get running(): Message | undefined {
    return this.chat && this.runs.ofChat(this.chat.id);
  }

  async open(id: string | undefined): Promise<void> {
    const chat = id === undefined ? undefined : this.chats.find((c) => c.id === id);
    this.chat = chat;
    this.tree = new MessageTree();
    if (chat !== undefined) {
      const messages = await this.store.messages(chat.id);
      if (this.chat !== chat) return; // another one was opened meanwhile
      this.tree = new MessageTree(messages.map((message) => this.runs.get(message.id) ?? message));
      if (chat.leaf === null && messages.length > 0) {
        chat.leaf = this.tree.leafOf(this.tree.children(null)[0]).id;
      }
    } else this.draft = readDefaults();
    this.#emit({ kind: "chat" });
  }

  /** Saves a chat and puts it first in the list. */
  async #touch(chat: Chat): Promise<void> {
    chat.updated = Date.now();
    this.chats = [chat, ...this.chats.filter((c) => c !== chat)];
    await this.store.put({ chats: [chat] });
    this.#emit({ kind: "chats" });
  }

  /** Changes the system prompt or the settings of the open chat, or of the next one. */
  async setOptions(options: Partial<Defaults>): Promise<void> {
    Object.assign(this.chat ?? this.draft, options);
    if (this.chat !== undefined) await this.store.put({ chats: [this.chat] });
  }

  /** New chats begin with the settings in force. */
  keepAsDefault(): void {
    const { system, settings } = this.options;
    localStorage.setItem(DEFAULTS, JSON.stringify({ system, settings }));
  }

  async rename(chat: Chat, title: string): Promise<void> {
    chat.title = title;
    chat.named = true;
    await this.store.put({ chats: [chat] });
    this.#emit({ kind: "chats" });
  }

  async remove(chat: Chat): Promise<void> {
    const running = this.runs.ofChat(chat.id);
    if (running !== undefined) this.runs.stop(running.id);
    this.chats = this.chats.filter((c) => c !== chat);
    await this.store.remove(chat.id);
    this.#emit({ kind: "chats" });
  }

  /** Sends what the user wrote, and asks for the answer. */
  async send(content: string, files: TextFile[]): Promise<void> {
    await this.#ask({ role: "user", content, files }, this.chat?.leaf ?? null);
  }

  /** Asks again with a changed message: a branch beside the old one. */
  async editQuestion(message: Message, content: string): Promise<void> {
    await this.#ask({ role: "user", content, files: message.files }, message.parent);
  }

  /** A changed answer beside the old one; nothing is asked. */
  async editAnswer(message: Message, content: string): Promise<void> {
    const { reasoning, calls, model } = message;
    const copy = this.#message("assistant", message.parent, {
      content,
      reasoning,
      calls,
      ...(model === undefined ? {} : { model }),
    });
    await this.#show(copy);
  }

  /** Another answer beside this one. */
  async retry(message: Message): Promise<void> {
    await this.#answer(message.parent);
  }

  /** Goes on with an answer that ended early. */
  async goOn(message: Message): Promise<void> {
    const { content, reasoning } = message;
    await this.#generate(message, { content, reasoning });
  }

  /** Another answer beside this one, which begins as told. @param tokens Of what it begins with. */
  async goOnFrom(message: Message, prefill: Prefill, tokens: TokenRecord[]): Promise<void> {
    await this.#answer(message.parent, prefill, tokens);
  }

  /** Gives the model the results of its calls, and asks for the answer. */
  async answerCalls(message: Message, results: readonly string[]): Promise<void> {
    let parent = message.id;
    for (const [i, content] of results.entries()) {
      const result = this.#message("tool", parent, { content, call: message.calls[i].id });
      await this.#show(result);
      parent = result.id;
    }
    await this.#answer(parent);
  }

  /** Shows the branch through a message. */
  async show(message: Message): Promise<void> {
    await this.#setLeaf(this.tree.leafOf(message).id);
  }

  /** A new chat with the messages up to this one. */
  async copyBranch(message: Message): Promise<Chat> {
    const from = this.chat!, id = newId();
    let parent: string | null = null;
    const messages = this.tree.path(message.id).map((m): Message => {
      const copy: Message = { ...structuredClone(m), id: newId(), chat: id, parent };
      if (copy.status === "running") copy.status = "stopped";
      delete copy.stream;
      parent = copy.id;
      return copy;
    });
    const chat: Chat = { ...structuredClone(from), id, created: Date.now(), leaf: parent };
    await this.store.put({ messages });
    await this.#touch(chat);
    return chat;
  }

  async #setLeaf(id: string): Promise<void> {
    this.chat!.leaf = id;
    await this.store.put({ chats: [this.chat!] });
    this.#emit({ kind: "chat" });
  }

  #message(role: Message["role"], parent: string | null, fields: Partial<Message>): Message {
    return {
      id: newId(),
      chat: this.chat!.id,
      parent,
      role,
      created: Date.now(),
      content: "",
      reasoning: "",
      calls: [],
      files: [],
      status: "done",
      ...fields,
    };
  }

  async #show(message: Message): Promise<void> {
    this.tree.add(message);
    await this.store.put({ messages: [message] });
    await this.#setLeaf(message.id);
  }

  async #ask(fields: Partial<Message> & { role: "user" }, parent: string | null): Promise<void> {
    if (this.chat === undefined) {
      const now = Date.now();
      this.chat = { id: newId(), title: "", created: now, updated: now, leaf: null, ...structuredClone(this.draft) };
      this.tree = new MessageTree();
    }
    const { chat } = this;
    if (chat.title === "") chat.title = titleOf(fields.content ?? "", fields.files ?? []);
    await this.#touch(chat);
    const question = this.#message("user", parent, fields);
    await this.#show(question);
    await this.#answer(question.id);
  }

  async #answer(parent: string | null, prefill?: Prefill, tokens?: Message["tokens"]): Promise<void> {
    const { running } = this;
    if (running !== undefined) this.runs.stop(running.id); // a chat has one answer at a time
    const answer = this.#message("assistant", parent, {
      status: "running",
      ...(prefill ?? {}),
      ...(tokens === undefined ? {} : { tokens }),
    });
    await this.#show(answer);
    await this.#generate(answer, prefill);
  }

  async #generate(answer: Message, prefill: Prefill | undefined): Promise<void> {
    const { chat } = this;
    try {
      const path = this.tree.path(answer.parent);
      const model = this.models.length > 1 ? this.model : undefined;
      const run = this.runs.start(answer, requestBody(chat!, path, { model, prefill }));
      this.#emit({ kind: "message", message: answer });
      this.#emit({ kind: "chats" });
      await run;
    } catch (error) { // a setting that cannot be sent
      answer.status = "failed";
      answer.error = (error as Error).message;
      await this.store.put({ messages: [answer] });
      this.#messageChanged(answer);
    }
  }

  /** Chats whose title or messages hold a text. */
  async search(text: string): Promise<Found[]> {
    const wanted = text.toLowerCase();
    const excerpts = new Map<string, string>();
    for (const chat of this.chats) if (chat.title.toLowerCase().includes(wanted)) excerpts.set(chat.id, "");
    await this.store.scan(({ chat, content }) => {
      const at = content.toLowerCase().indexOf(wanted);
      if (at >= 0 && !excerpts.get(chat)) {
        excerpts.set(chat, content.slice(Math.max(0, at - 30), at + wanted.length + 60));
      }
      return true;
    });
    return this.chats.filter((chat) => excerpts.has(chat.id)).slice(0, MAX_FOUND)
      .map((chat) => ({ chat, excerpt: excerpts.get(chat.id)! }));
  }

  /** One chat, or all of them, as the text of a file. */
  async export(only?: Chat): Promise<string> {
    const chats = only === undefined ? this.chats : [only];
    const messages = (await Promise.all(chats.map((chat) => this.store.messages(chat.id)))).flat();
    return exportText({ chats, messages });
  }

  /**
   * Adds the chats of a file.
   * @returns how many
   * @throws {ImportError}
   */
  async import(text: string): Promise<number> {
    const known = new Set(this.chats.map((chat) => chat.id));
    const { chats, messages } = importText(text, (id) => known.has(id), newId);
    await this.store.put({ chats, messages });
    this.chats = await this.store.chats();
    this.#emit({ kind: "chats" });
    return chats.length;
  }
}

/** The beginning of the first message. */
function titleOf(content: string, files: readonly TextFile[]): string {
  const line = content.split("\n").map((l) => l.trim()).find((l) => l !== "") ?? files[0]?.name ?? "Chat";
  return line.length > MAX_TITLE ? `${line.slice(0, MAX_TITLE)}…` : line;
}

function readDefaults(): Defaults {
  try {
    const { system, settings } = JSON.parse(localStorage.getItem(DEFAULTS) ?? "{}") as Partial<Defaults>;
    return { system: system ?? "", settings: settings ?? {} };
  } catch {
    return { system: "", settings: {} };
  }
}
