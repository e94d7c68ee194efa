/**
 * Ends answers by their lines, for editors that complete code: where a line is indented less than asked, and, once there is a
 * new line, after a time.
 * @module
 */
export interface LineLimitOptions {
  /** Blanks that each line after the first begins with at least; 0 = any. Lines of blanks alone are free. */
  n_indent: number;
  /** Milliseconds since the first token after which an answer with a new line ends; 0 = no limit. */
  t_max_predict_ms: number;
}

export class LineLimits {
  readonly #options: LineLimitOptions;
  readonly #now: () => number;
  #started: number | undefined;
  #newLine = false;
  /** Blanks at the beginning of the line; undefined behind them. The first line continues one of the prompt. */
  #indent: number | undefined;

  /** @param now The clock, in milliseconds. */
  constructor(options: LineLimitOptions, now: () => number = () => performance.now()) {
    this.#options = options;
    this.#now = now;
  }

  /** Takes the text of a token. Returns what of it belongs to the answer, and whether the answer ends there. */
  push(text: string): { text: string; ended: boolean } {
    this.#started ??= this.#now();
    const { n_indent, t_max_predict_ms } = this.#options;
    for (let i = 0; i < text.length; i++) {
      const c = text[i];
      if (c === "\n") {
        this.#newLine = true;
        this.#indent = 0;
      } else if (this.#indent !== undefined && (c === " " || c === "\t")) this.#indent++;
      else if (c !== "\r") {
        if (this.#indent !== undefined && this.#indent < n_indent) return { text: text.slice(0, i), ended: true };
        this.#indent = undefined;
      }
    }
    const late = t_max_predict_ms > 0 && this.#newLine && this.#now() - this.#started > t_max_predict_ms;
    return { text, ended: late };
  }
}
