/**
 * The messages of a chat as a tree, and the branch that is shown.
 * @module
 */
import type { Message } from "./types.ts";

/** All messages of one chat. */
export class MessageTree {
  readonly #byId = new Map<string, Message>();
  readonly #children = new Map<string | null, Message[]>();

  constructor(messages: Iterable<Message> = []) {
    for (const message of [...messages].sort((a, b) => a.created - b.created)) this.add(message);
  }

  get size(): number {
    return this.#byId.size;
  }

  get(id: string): Message | undefined {
    return this.#byId.get(id);
  }

  /** Adds a message, the newest of its siblings. */
  add(message: Message): void {
    if (this.#byId.has(message.id)) return;
    this.#byId.set(message.id, message);
    const siblings = this.#children.get(message.parent);
    if (siblings === undefined) this.#children.set(message.parent, [message]);
    else siblings.push(message);
  }

  /** The messages of the same place, itself included, oldest first. */
  siblings(message: Message): readonly Message[] {
    return this.#children.get(message.parent) ?? [message];
  }

  children(id: string | null): readonly Message[] {
    return this.#children.get(id) ?? [];
  }

  /** From the first message to this one. A message whose parent is missing, as in a damaged import, begins the branch. */
  path(leaf: string | null): Message[] {
    const path: Message[] = [];
    const seen = new Set<string>();
    for (let id = leaf; id !== null && !seen.has(id);) {
      const message = this.#byId.get(id);
      if (message === undefined) break;
      seen.add(id);
      path.push(message);
      id = message.parent;
    }
    return path.reverse();
  }

  /** The end of the branch that goes on newest from a message. */
  leafOf(message: Message): Message {
    let last = message;
    const seen = new Set<string>();
    while (!seen.has(last.id)) {
      seen.add(last.id);
      const next = this.children(last.id).at(-1);
      if (next === undefined) break;
      last = next;
    }
    return last;
  }
}
