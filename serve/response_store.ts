/**
 * Conversations of earlier responses, by the response's id. They are kept in memory, the oldest go first.
 * @module
 */
type Messages = Record<string, unknown>[];

/** Conversations kept, and characters of their JSON text. */
const MAX_RESPONSES = 1000;
const MAX_CHARACTERS = 64 << 20;

export class ResponseStore {
  readonly #kept = new Map<string, { messages: Messages; size: number }>();
  #size = 0;

  add(id: string, messages: Messages): void {
    const size = JSON.stringify(messages).length;
    this.#kept.set(id, { messages, size });
    this.#size += size;
    while (this.#kept.size > MAX_RESPONSES || (this.#size > MAX_CHARACTERS && this.#kept.size > 1)) {
      const [oldest, { size }] = this.#kept.entries().next().value!;
      this.#kept.delete(oldest);
      this.#size -= size;
    }
  }

  get(id: string): Messages | undefined {
    return this.#kept.get(id)?.messages;
  }
}
