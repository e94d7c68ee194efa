/**
 * Tools that a model may call or not: its answer is free until a call begins, and from there on the form of calls is in
 * force. A call that begins in another way than the form's stays free: parsers take more than forms write.
 * @module
 */
import type { GrammarMatcher } from "../core/sampling/grammar/mod.ts";
import type { AnswerConstraint, ReasoningBlock } from "./constraint.ts";

export interface LazyOptions {
  matcher: GrammarMatcher;
  /** Texts that a call begins with. */
  triggers: readonly string[];
  /** A token's bytes as the parser sees them. */
  bytesOf: (token: number) => Uint8Array;
  eogIds: ReadonlySet<number>;
  reasoning: ReasoningBlock | undefined;
  /** A call may begin within the reasoning, and end it. */
  callEndsReasoning: boolean;
}

export class LazyConstraint implements AnswerConstraint {
  readonly #options: LazyOptions;
  readonly #longest: number;
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  readonly #encoder = new TextEncoder();
  #phase: "before" | "reasoning" | "free" | "calls" | "off";
  /** The end of the text, as far as a marker may reach back. */
  #text = "";

  constructor(options: LazyOptions) {
    this.#options = options;
    const { reasoning, triggers } = options;
    this.#longest = Math.max(...[reasoning?.start, reasoning?.end, ...triggers].map((m) => m?.length ?? 0));
    this.#phase = reasoning?.open ? "reasoning" : reasoning === undefined ? "free" : "before";
  }

  get active(): boolean {
    return this.#phase === "calls";
  }

  get finished(): boolean {
    return this.active && this.#options.matcher.finished;
  }

  apply(logits: Float32Array): void {
    if (this.active) this.#options.matcher.apply(logits, this.#options.eogIds);
  }

  accept(token: number): void {
    const { matcher, bytesOf, triggers, reasoning, callEndsReasoning } = this.#options;
    if (this.#phase === "off") return;
    const bytes = bytesOf(token);
    if (this.#phase === "calls") {
      if (!matcher.accept(bytes)) this.#phase = "off";
      return;
    }
    this.#text += this.#decoder.decode(bytes, { stream: true });
    if (this.#phase === "before") {
      const begun = this.#text.trimStart();
      if (begun.startsWith(reasoning!.start)) this.#phase = "reasoning";
      else if (!reasoning!.start.startsWith(begun)) this.#phase = "free";
    }
    if (this.#phase === "reasoning") {
      const end = this.#text.indexOf(reasoning!.end);
      if (end >= 0) {
        this.#phase = "free";
        this.#text = this.#text.slice(end + reasoning!.end.length);
      }
    }
    if (this.#phase === "free" || (this.#phase === "reasoning" && callEndsReasoning)) {
      const found = triggers.map((t) => this.#text.indexOf(t)).filter((at) => at >= 0);
      if (found.length > 0) {
        const begun = this.#encoder.encode(this.#text.slice(Math.min(...found)));
        this.#phase = matcher.accept(begun) ? "calls" : "off";
      }
    }
    if (this.#phase !== "before") this.#text = this.#text.slice(-this.#longest);
  }
}
