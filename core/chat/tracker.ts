/**
 * The place that an answer has reached, token by token. Forms, the reasoning budget and stop strings ask for it before the
 * next token is chosen. The tracker reads the text with the parser that splits answers for clients, so all four agree.
 * @module
 */
import type { OutputParser, Place, Where } from "./reasoning.ts";
import { Utf8Stream } from "./utf8_stream.ts";

export interface TrackerOptions {
  /** A parser that only this tracker uses; its deltas are dropped. */
  parser: OutputParser;
  /** Clients get the reasoning apart from the content. */
  splitsReasoning: boolean;
}

export class AnswerTracker implements Where {
  readonly #options: TrackerOptions;
  readonly #utf8 = new Utf8Stream();
  readonly #encoder = new TextEncoder();
  /** The end of the text, from the first position that callers may ask for. */
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

  /** Adds a token's bytes and returns the text that they complete. */
  push(bytes: Uint8Array): string {
    const text = this.#utf8.push(bytes);
    // Callers ask for a call's beginning at the token that makes the call certain, not later.
    const from = this.place === "call" ? this.#length : this.callFrom ?? this.#where.readTo;
    this.#recent = this.textSince(from) + text;
    this.#length += text.length;
    this.#options.parser.push(text);
    return text;
  }

  /** Ends the text and returns U+FFFD for bytes left over, or "" within a call, whose arguments they would spoil. */
  finish(): string {
    const inCall = this.place === "call", text = this.#utf8.end();
    this.#options.parser.push(inCall ? "" : text);
    this.#options.parser.finish();
    return inCall ? "" : text;
  }

  /** The text from `answerFrom` or `callFrom` on. Ask at the token at which that position became known. */
  textSince(from: number): string {
    return this.#recent.slice(Math.max(0, from - this.#length + this.#recent.length));
  }

  /** The same as bytes, with the bytes of an incomplete character. */
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
