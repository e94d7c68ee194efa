/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
/**
 * Chats and messages in the browser's IndexedDB. Where there is none, they live as long as the page.
 * @module
 */
import type { Chat, Message } from "../chat/types.ts";

/** Where chats are kept. */
export interface Store {
  /** False when nothing outlives the page. */
  readonly keeps: boolean;
  /** All chats, the latest first. */
  chats(): Promise<Chat[]>;
  messages(chat: string): Promise<Message[]>;
  message(id: string): Promise<Message | undefined>;
  /** Messages that were being generated when the page was closed. */
  running(): Promise<Message[]>;
  put(values: { chats?: readonly Chat[]; messages?: readonly Message[] }): Promise<void>;
  /** Removes a chat with its messages. */
  remove(chat: string): Promise<void>;
  /** Calls back with every message; ends when it returns false. */
  scan(visit: (message: Message) => boolean): Promise<void>;
}

const NAME = "bloomery";

/** Opens the database of this origin. */
export async function openStore(): Promise<Store> {
  try {
    return new DatabaseStore(await open());
  } catch {
    return new MemoryStore();
  }
}

function open(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => {
      const db = request.result;
      db.createObjectStore("chats", { keyPath: "id" });
      const messages = db.createObjectStore("messages", { keyPath: "id" });
      messages.createIndex("chat", "chat");
      messages.createIndex("status", "status");
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("another window holds an older database"));
  });
}

function result<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function done(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
}

class DatabaseStore implements Store {
  readonly keeps = true;
  readonly #db: IDBDatabase;

  constructor(db: IDBDatabase) {
    this.#db = db;
    db.onversionchange = () => db.close();
  }

  async chats(): Promise<Chat[]> {
    const all: Chat[] = await result(this.#db.transaction("chats").objectStore("chats").getAll());
    return all.sort((a, b) => b.updated - a.updated);
  }

  messages(chat: string): Promise<Message[]> {
    return result(this.#db.transaction("messages").objectStore("messages").index("chat").getAll(chat));
  }

  message(id: string): Promise<Message | undefined> {
    return result(this.#db.transaction("messages").objectStore("messages").get(id));
  }

  running(): Promise<Message[]> {
    return result(this.#db.transaction("messages").objectStore("messages").index("status").getAll("running"));
  }

  async put({ chats = [], messages = [] }: { chats?: readonly Chat[]; messages?: readonly Message[] }): Promise<void> {
    const transaction = this.#db.transaction(["chats", "messages"], "readwrite");
    const [chatStore, messageStore] = ["chats", "messages"].map((name) => transaction.objectStore(name));
    for (const chat of chats) chatStore.put(chat);
    for (const message of messages) messageStore.put(message);
    await done(transaction);
  }

  async remove(chat: string): Promise<void> {
    const transaction = this.#db.transaction(["chats", "messages"], "readwrite");
    transaction.objectStore("chats").delete(chat);
    const messages = transaction.objectStore("messages");
    const keys = messages.index("chat").getAllKeys(chat);
    keys.onsuccess = () => keys.result.forEach((key) => messages.delete(key));
    await done(transaction);
  }

  async scan(visit: (message: Message) => boolean): Promise<void> {
    // Several at a time: a cursor takes a turn of the event loop for each.
    let after: string | undefined;
    for (;;) {
      const range = after === undefined ? null : IDBKeyRange.lowerBound(after, true);
      const messages: Message[] = await result(
        this.#db.transaction("messages").objectStore("messages").getAll(range, 500),
      );
      for (const message of messages) if (!visit(message)) return;
      if (messages.length === 0) return;
      after = messages.at(-1)!.id;
    }
  }
}

class MemoryStore implements Store {
  readonly keeps = false;
  readonly #chats = new Map<string, Chat>();
  readonly #messages = new Map<string, Message>();

  async chats(): Promise<Chat[]> {
    return [...this.#chats.values()].sort((a, b) => b.updated - a.updated);
  }
  async messages(chat: string): Promise<Message[]> {
    return [...this.#messages.values()].filter((m) => m.chat === chat);
  }
  async message(id: string): Promise<Message | undefined> {
    return this.#messages.get(id);
  }
  async running(): Promise<Message[]> {
    return [];
  }
  async put({ chats = [], messages = [] }: { chats?: readonly Chat[]; messages?: readonly Message[] }): Promise<void> {
    for (const chat of chats) this.#chats.set(chat.id, chat);
    for (const message of messages) this.#messages.set(message.id, message);
  }
  async remove(chat: string): Promise<void> {
    this.#chats.delete(chat);
    for (const m of this.#messages.values()) if (m.chat === chat) this.#messages.delete(m.id);
  }
  async scan(visit: (message: Message) => boolean): Promise<void> {
    for (const message of this.#messages.values()) if (!visit(message)) return;
  }
}
