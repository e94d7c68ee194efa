/**
 * Where an answer under way has come to, token by token: what a form, a budget of reasoning and stop strings ask before
 * the next token is chosen. The text is read by the parser that takes answers apart for clients, so that what is in force
 * and what is shown are decided by one reader.
 * @module
 */
import type { OutputParser, Place, Where } from "./reasoning.ts";
import { Utf8Stream } from "./utf8_stream.ts";

export interface TrackerOptions {
  /** A parser of its own; what it says of the text is not used. */
  parser: OutputParser;
  /** The reasoning is taken out of the answer's text. */
  splitsReasoning: boolean;
}

export class AnswerTracker implements Where {
  readonly #options: TrackerOptions;
  readonly #utf8 = new Utf8Stream();
  readonly #encoder = new TextEncoder();
  /** The end of the text, from as far back as somebody may ask for. */
  #recent = "";
  /** Length of the text. */
  #length = 0;

  constructor(options: TrackerOptions) {
    this.#options = options;
  }

  get place(): Place {
    return this.#where.place;
  }

  get answerFrom(): number | undefined {
    return this.#where.answerFrom;
  }

  get shownFrom(): number | undefined {
    return this.#options.splitsReasoning ? this.#where.shownFrom : 0;
  }

  get callFrom(): number | undefined {
    return this.#where.callFrom;
  }

  /** The last token ended within a character. */
  get splitsCharacter(): boolean {
    return this.#utf8.pending.length > 0;
  }

  /** Goes on by a token's bytes; gives the text that they complete. */
  push(bytes: Uint8Array): string {
    const text = this.#utf8.push(bytes);
    // Of a call that was certain before nobody asks for the beginning.
    const from = this.place === "call" ? this.#length : this.callFrom ?? this.#where.readTo;
    this.#recent = this.textSince(from) + text;
    this.#length += text.length;
    this.#options.parser.push(text);
    return text;
  }

  /** No more comes. Gives what is left of the bytes as text: nothing where they would spoil a call's arguments. */
  finish(): string {
    const inCall = this.place === "call", text = this.#utf8.end();
    this.#options.parser.push(inCall ? "" : text);
    this.#options.parser.finish();
    return inCall ? "" : text;
  }

  /** The text since a position of `answerFrom` or `callFrom`, asked for at the token at which that became known. */
  textSince(from: number): string {
    return this.#recent.slice(Math.max(0, from - this.#length + this.#recent.length));
  }

  /** The same as bytes, with those of a character that is not complete. */
  bytesSince(from: number): Uint8Array {
    const text = this.#encoder.encode(this.textSince(from)), { pending } = this.#utf8;
    const bytes = new Uint8Array(text.length + pending.length);
    bytes.set(text);
    bytes.set(pending, text.length);
    return bytes;
  }

  get readTo(): number {
    return this.#where.readTo;
  }

  get #where(): Where {
    return this.#options.parser.where;
  }
}
