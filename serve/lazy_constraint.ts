/**
 * A form that comes into force in the middle of an answer: where a call begins, or where a lazy grammar's trigger stands.
 * @module
 */
import type { AnswerTracker } from "../core/chat/tracker.ts";
import type { GrammarMatcher } from "../core/sampling/grammar/mod.ts";
import type { AnswerConstraint } from "./answer_constraint.ts";

/** Finds where the form begins. */
export interface Opening {
  /** The bytes of the form up to and with this token; undefined while none has begun. */
  bytes(token: number): Uint8Array | undefined;
  /** The form could not follow the text, which stays free. */
  left(): void;
}

export interface LazyOptions {
  /** A matcher of the form, at its beginning. */
  begin: () => GrammarMatcher;
  opening: Opening;
  /** A token's bytes as the parser sees them. */
  bytesOf: (token: number) => Uint8Array;
  eogIds: ReadonlySet<number>;
}

export class LazyConstraint implements AnswerConstraint {
  readonly #options: LazyOptions;
  /** Follows the form while that is in force. */
  #matcher: GrammarMatcher | undefined;

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
    const { begin, opening, bytesOf } = this.#options;
    const bytes = this.#matcher === undefined ? opening.bytes(token) : bytesOf(token);
    if (bytes === undefined) return;
    this.#matcher ??= begin();
    if (this.#matcher.accept(bytes)) return;
    this.#matcher = undefined;
    opening.left();
  }
}

/**
 * The beginning of a call: its marker in the answer, or, within reasoning, its name and first argument. A call that
 * begins in another way than the form's stays free: parsers read more than forms write.
 */
export class CallOpening implements Opening {
  /** Position of the call that the form could not follow. */
  #free: number | undefined;

  /** @param triggers Texts that the form's calls begin with. */
  constructor(readonly tracker: AnswerTracker, readonly triggers: readonly string[]) {}

  bytes(): Uint8Array | undefined {
    const { place, callFrom: from } = this.tracker;
    if ((place !== "head" && place !== "call") || from === undefined || from === this.#free) return undefined;
    const text = this.tracker.textSince(from);
    return this.triggers.some((trigger) => text.startsWith(trigger)) ? this.tracker.bytesSince(from) : undefined;
  }

  left(): void {
    this.#free = this.tracker.callFrom;
  }
}
