/**
 * Reads server-sent events from pieces of bytes, wherever they are cut.
 * @module
 */

/** Hands over the data of each event, in order. */
export class EventReader {
  readonly #decoder = new TextDecoder();
  #text = "";

  /** The events that are complete with these bytes. */
  push(bytes: Uint8Array): string[] {
    this.#text += this.#decoder.decode(bytes, { stream: true });
    const events: string[] = [];
    for (;;) {
      const end = /\r?\n\r?\n/.exec(this.#text);
      if (end === null) return events;
      const data = this.#text.slice(0, end.index).split(/\r?\n/).filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).replace(/^ /, ""));
      this.#text = this.#text.slice(end.index + end[0].length);
      if (data.length > 0) events.push(data.join("\n")); // comments have no data
    }
  }
}
