/**
 * Triggers of a lazy grammar: the grammar is in force from the first trigger on, which is its first text.
 * @module
 */

import { PatternTrigger } from "./pattern_trigger.ts";

/** A token by its id, a word anywhere in the text, or a pattern that matches in it; `whole`: that matches all of it. */
export type GrammarTrigger = { token: number } | { word: string } | { pattern: string; whole: boolean };

/** Watches an answer for triggers. */
export class TriggerWatch {
  readonly #tokens: ReadonlySet<number>;
  /** Words as UTF-8, so that tokens may split characters. */
  readonly #words: readonly Uint8Array[];
  readonly #longest: number;
  readonly #patterns: readonly PatternTrigger[];
  /** End of the text that a word may begin in; all of the text where there are patterns. */
  #tail = new Uint8Array();

  /** @throws {TextError} `text.schema_pattern` for a pattern that cannot be followed. */
  constructor(triggers: readonly GrammarTrigger[]) {
    const encoder = new TextEncoder();
    this.#tokens = new Set(triggers.flatMap((t) => "token" in t ? [t.token] : []));
    this.#words = triggers.flatMap((t) => "word" in t && t.word !== "" ? [encoder.encode(t.word)] : []);
    this.#patterns = triggers.flatMap((t) => "pattern" in t ? [new PatternTrigger(t.pattern, t.whole)] : []);
    this.#longest = Math.max(0, ...this.#words.map((w) => w.length));
  }

  /** Adds a token with its bytes. Returns what the grammar reads first once a trigger is there: the text from it on. */
  push(token: number, bytes: Uint8Array): Uint8Array | undefined {
    if (this.#tokens.has(token)) return bytes;
    const text = new Uint8Array(this.#tail.length + bytes.length);
    text.set(this.#tail);
    text.set(bytes, this.#tail.length);
    for (let at = 0; at < text.length; at++) {
      if (this.#words.some((w) => w.every((b, i) => text[at + i] === b))) return text.slice(at);
    }
    const begins = this.#patterns.flatMap((p) => p.push(bytes) ?? []);
    if (begins.length > 0) return text.slice(Math.min(...begins));
    this.#tail = this.#patterns.length > 0 ? text : text.slice(Math.max(0, text.length - this.#longest + 1));
    return undefined;
  }
}
