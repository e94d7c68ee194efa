/**
 * Calls on their way to the client, piece by piece.
 *
 * A call is opened once its head is certain: its name is a tool's and its arguments begin. Sent text cannot be taken back.
 * When an open call turns out malformed, the rest of it is sent as text of its arguments with the flag `malformed`; the
 * arguments are not complete JSON then. When the answer ends within a call, the flag is set and a marker cut at the end is
 * dropped, so the arguments are the beginning of JSON. In an answer that is not streamed, and within reasoning, a call is
 * held until it is complete; one that never is becomes content with the flag, or reasoning.
 * @module
 */
import type { Call } from "./call.ts";
import { cutOff, type Reading, type Source, until } from "./stream.ts";

/** Where a call's pieces go. */
export interface CallSink {
  /** The beginning of a call. */
  call(index: number, name: string, id: string | undefined): void;
  /** More of its arguments. */
  argumentsText(index: number, text: string, malformed: boolean): void;
}

export class CallWriter {
  #n = 0;
  #held: string | undefined; // arguments of a call that is not shown yet
  #head: { name: string; id: string | undefined } | undefined;
  /** The open call is the second one, and the request wants one at most. */
  #unwanted = false;
  #live: boolean;

  /**
   * @param live Pieces are sent at once; a call is sent whole otherwise.
   * @param parallel More than one call is wanted.
   */
  constructor(readonly s: Source, readonly sink: CallSink, readonly live: boolean, readonly parallel: boolean) {
    this.#live = live;
  }

  /** Number of calls sent, the open one included. */
  get count(): number {
    return this.#n;
  }

  /** Runs a reader of calls that sends nothing of a call before it is whole. */
  *cautiously(read: Reading<boolean>): Reading<boolean> {
    this.#live = false;
    const called = yield* read;
    this.#live = this.live;
    this.s.held = false;
    return called;
  }

  /** Opens a call. Its text is explained from here on. */
  begin(name: string, id?: string): void {
    this.#unwanted = !this.parallel && this.#n > 0;
    this.#head = { name, id };
    if (this.#live) this.#show();
    else this.#held = "";
    this.s.held = !this.#live;
    this.s.beginCall();
  }

  /** Adds to the arguments what was read up to the source's position. */
  write(text: string): void {
    if (this.#held !== undefined) this.#held += text;
    else if (!this.#unwanted && text !== "") this.sink.argumentsText(this.#n - 1, text, false);
    this.explained();
  }

  /** The text up to the source's position was sent or is markup, so it cannot become content. */
  explained(): void {
    if (!this.s.held) this.s.mark = this.s.pos;
  }

  /** The call is complete. */
  end(): void {
    const held = this.#held;
    if (held !== undefined) {
      this.#held = undefined;
      this.#show();
      if (!this.#unwanted && held !== "") this.sink.argumentsText(this.#n - 1, held, false);
    }
    this.s.held = false;
    this.s.place = "answer";
    this.explained();
  }

  /** A whole call at once. */
  add(call: Call): void {
    this.begin(call.name, call.id);
    this.write(call.arguments);
    this.end();
  }

  /**
   * Ends the open call as malformed. The text from the last explained character to the next of the markers is sent as text
   * of its arguments; the position is before the marker then. When the stream ended within one of the awaited markers, the
   * rest is dropped.
   * @param awaited Markers that the reader expected at the position.
   * @returns false when the call was held: its text is content then, or reasoning.
   */
  *broken(markers: readonly string[], awaited: readonly string[] = []): Reading<boolean> {
    const { s } = this;
    const cut = s.ended && (s.pos === s.text.length || cutOff(s, awaited));
    if (this.#held !== undefined) {
      this.#held = undefined;
      s.held = false;
      return false;
    }
    if (cut) s.mark = s.text.length;
    s.pos = s.mark;
    this.#flag("");
    const marker = yield* until(s, markers, (text) => this.#flag(text), false);
    s.pos -= marker?.length ?? 0;
    this.end();
    return true;
  }

  #flag(text: string): void {
    if (!this.#unwanted) this.sink.argumentsText(this.#n - 1, text, true);
  }

  #show(): void {
    if (!this.#unwanted) this.sink.call(this.#n++, this.#head!.name, this.#head!.id);
  }
}
