/**
 * Calls whose arguments are written one by one in markup: each becomes a member of the JSON object that clients get, a
 * string character by character, any other value once it is complete.
 * @module
 */
import type { ToolSet } from "./call.ts";
import { before, literal, type Reading, type Source, until } from "./stream.ts";
import type { CallWriter } from "./writer.ts";

/** Escapes text for a JSON string; pieces give the same as the whole. */
export const escaped = (text: string): string =>
  // deno-lint-ignore no-control-regex
  text.replace(/["\\\u0000-\u001f]/g, (c) => JSON.stringify(c).slice(1, -1));

/** Whether the value at the position is neither null nor in quotes, so that it is a string as written. */
function* isPlain(s: Source): Reading<boolean> {
  while (true) {
    const text = s.text.slice(s.pos).trimStart();
    if (text !== "" && !["null", "None"].some((word) => word.startsWith(text.slice(0, 4)))) return !/^["']/.test(text);
    if (s.ended || text.length >= 4) return false;
    yield;
  }
}

export class Members {
  #n = 0;

  /** Opens the call. */
  constructor(readonly w: CallWriter, readonly name: string, readonly tools: ToolSet) {
    w.begin(name);
    w.write("{");
  }

  /** The last member is written. */
  end(): void {
    this.w.write("}");
    this.w.end();
  }

  /**
   * Reads a value up to its closing marker.
   * @param literally Whether it is a string as written; by the tool's schema where the markup does not say.
   * @param padded A newline on each side belongs to the markup.
   * @returns false when the text ends before the marker.
   */
  *value(
    s: Source,
    key: string,
    close: string,
    { literally, padded = false }: { literally?: boolean | undefined; padded?: boolean } = {},
  ): Reading<boolean> {
    const type = this.tools.type(this.name, key);
    if (literally ?? (type.isString || (type.isOptionalString && (yield* isPlain(s))))) {
      if (padded) yield* literal(s, ["\n"]);
      this.#key(key);
      this.w.write('"');
      const ends = padded ? ["\n" + close, close] : [close];
      const end = yield* until(s, ends, (text) => this.w.write(escaped(text)), false, ends);
      if (end === undefined) return false;
      this.w.write('"');
      return true;
    }
    const value = yield* before(s, [close]);
    if (value === undefined) return false;
    const text = padded ? value.text.replace(/^\n/, "").replace(/\n$/, "") : value.text;
    this.#key(key);
    this.w.write(type.json(text));
    return true;
  }

  /** A member whose JSON text is known. */
  add(key: string, json: string): void {
    this.#key(key);
    this.w.write(json);
  }

  #key(key: string): void {
    this.w.write(`${this.#n++ > 0 ? ", " : ""}${JSON.stringify(key)}: `);
  }
}
