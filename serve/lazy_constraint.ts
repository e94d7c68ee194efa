/**
 * Enforces the form of calls in an answer that may call tools or not, once a call begins. In the answer a call begins with
 * its marker; within reasoning only once its name and first argument are there. A call that begins in another way than the
 * form's stays free: parsers read more than forms write.
 * @module
 */
import type { AnswerTracker } from "../core/chat/tracker.ts";
import type { GrammarMatcher } from "../core/sampling/grammar/mod.ts";
import type { AnswerConstraint } from "./answer_constraint.ts";

export interface LazyOptions {
  /** A matcher of the form, at its beginning. */
  begin: () => GrammarMatcher;
  /** Texts that a call begins with. */
  triggers: readonly string[];
  tracker: AnswerTracker;
  /** A token's bytes as the parser sees them. */
  bytesOf: (token: number) => Uint8Array;
  eogIds: ReadonlySet<number>;
}

export class LazyConstraint implements AnswerConstraint {
  readonly #options: LazyOptions;
  /** Follows the form while that is in force. */
  #matcher: GrammarMatcher | undefined;
  /** Where the call stands that the form could not follow. */
  #free: number | undefined;

  constructor(options: LazyOptions) {
    this.#options = options;
  }

  get active(): boolean {
    return this.#matcher !== undefined;
  }

  get finished(): boolean {
    return this.#matcher?.finished ?? false;
  }

  apply(logits: Float32Array): void {
    this.#matcher?.apply(logits, this.#options.eogIds);
  }

  accept(token: number): void {
    const { begin, bytesOf, triggers, tracker } = this.#options;
    if (this.#matcher !== undefined) {
      if (!this.#matcher.accept(bytesOf(token))) this.#leave();
      return;
    }
    const { place, callFrom: from } = tracker;
    if ((place !== "head" && place !== "call") || from === undefined || from === this.#free) return;
    const text = tracker.textSince(from);
    if (!triggers.some((trigger) => text.startsWith(trigger))) return;
    this.#matcher = begin();
    if (!this.#matcher.accept(tracker.bytesSince(from))) this.#leave();
  }

  #leave(): void {
    this.#matcher = undefined;
    this.#free = this.#options.tracker.callFrom;
  }
}
