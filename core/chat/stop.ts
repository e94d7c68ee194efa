/**
 * Stop strings in a stream: text passes, except an end that may still become a stop string.
 * @module
 */

/**
 * Finds the stop string that is completed first. The returned texts concatenate to the text before it, or to all text
 * when none comes, whatever the chunks. When one character completes several stop strings, the longest counts.
 *
 * @example
 * ```ts
 * import { StopMatcher } from "./stop.ts";
 * const stop = new StopMatcher(["\n", "Alice:"]);
 * stop.push(" Ali"); // { text: " " }: "Ali" may become "Alice:"
 * stop.push("en"); //   { text: "Alien" }
 * stop.push("!\nx"); // { text: "!", stopped: "\n" }
 * ```
 */
export class StopMatcher {
  readonly #stops: { text: string; failure: Int32Array; matched: number }[];
  #held = "";
  #stopped = false;

  /** Empty strings among `stops` are ignored. */
  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((s) => s !== "").map((text) => ({ text, failure: failures(text), matched: 0 }));
  }

  /** Returns the text that is certain, and the stop string once it is found; the text from there on is dropped. */
  push(text: string): { text: string; stopped?: string } {
    if (this.#stopped) return { text: "" };
    if (this.#stops.length === 0) return { text };
    const all = this.#held + text;
    for (let i = this.#held.length; i < all.length; i++) {
      let met = "";
      for (const s of this.#stops) {
        while (s.matched > 0 && s.text[s.matched] !== all[i]) s.matched = s.failure[s.matched - 1];
        if (s.text[s.matched] === all[i]) s.matched++;
        if (s.matched !== s.text.length) continue;
        if (s.text.length > met.length) met = s.text;
        s.matched = s.failure[s.matched - 1];
      }
      if (met !== "") {
        this.#stopped = true;
        this.#held = "";
        return { text: all.slice(0, i + 1 - met.length), stopped: met };
      }
    }
    const hold = this.#stops.reduce((most, s) => Math.max(most, s.matched), 0);
    this.#held = all.slice(all.length - hold);
    return { text: all.slice(0, all.length - hold) };
  }

  /** The text held back, at the end of the stream. */
  flush(): string {
    const held = this.#held;
    this.#held = "";
    for (const s of this.#stops) s.matched = 0;
    return held;
  }
}

/** Knuth, Morris, Pratt: length of the longest proper border of every prefix. */
function failures(text: string): Int32Array {
  const f = new Int32Array(text.length);
  for (let i = 1, k = 0; i < text.length; i++) {
    while (k > 0 && text[i] !== text[k]) k = f[k - 1];
    if (text[i] === text[k]) k++;
    f[i] = k;
  }
  return f;
}
