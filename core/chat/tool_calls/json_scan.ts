/**
 * JSON read a character at a time: how far a text is the beginning of a JSON value, and where that value ends.
 * @module
 */

const WHITE = " \n\r\t", DIGITS = "0123456789", HEX = "0123456789abcdefABCDEF", ESCAPED = '"\\/bfnrtu';
const WORDS: Record<string, string> = { t: "rue", f: "alse", n: "ull" };
/** What may follow within a number: the next state by character; those in `COMPLETE` may end it. */
const NUMBER: Record<string, [characters: string, next: string][]> = {
  "-": [["0", "0"], ["123456789", "int"]],
  "0": [[".", "."], ["eE", "e"]],
  int: [[DIGITS, "int"], [".", "."], ["eE", "e"]],
  ".": [[DIGITS, "fraction"]],
  fraction: [[DIGITS, "fraction"], ["eE", "e"]],
  e: [["+-", "sign"], [DIGITS, "exponent"]],
  sign: [[DIGITS, "exponent"]],
  exponent: [[DIGITS, "exponent"]],
};
const COMPLETE = ["0", "int", "fraction", "exponent"];

type State = "value" | "first value" | "key" | "first key" | "colon" | "after" | "string" | "word" | "number";

export class JsonScanner {
  /** The value is complete. Numbers end with what follows them, so none is complete at the top. */
  done = false;
  /** The text is no JSON from here on. */
  bad = false;
  #state: State = "value";
  readonly #open: string[] = []; // "}" and "]" to come
  #isKey = false;
  #escape = 0; // 1: an escape's letter is to come; 5 to 2: hexadecimal digits
  #word = ""; // rest of true, false, null
  #number = "";

  /** Reads on from a position and returns the position behind the characters that belong to the value. */
  scan(text: string, from: number): number {
    let at = from;
    for (; at < text.length && !this.done; at++) {
      if (!this.#step(text[at])) {
        this.bad = true;
        break;
      }
    }
    return at;
  }

  #step(c: string): boolean {
    switch (this.#state) {
      case "string":
        return this.#inString(c);
      case "word":
        if (c !== this.#word[0]) return false;
        this.#word = this.#word.slice(1);
        if (this.#word === "") this.#ended();
        return true;
      case "number": {
        const next = NUMBER[this.#number].find(([characters]) => characters.includes(c))?.[1];
        if (next !== undefined) {
          this.#number = next;
          return true;
        }
        if (!COMPLETE.includes(this.#number)) return false;
        this.#ended();
        return this.#step(c);
      }
    }
    if (WHITE.includes(c)) return true;
    switch (this.#state) {
      case "first key":
      case "key":
        if (c === "}" && this.#state === "first key") return this.#close(c);
        this.#isKey = true;
        this.#state = "string";
        return c === '"';
      case "colon":
        this.#state = "value";
        return c === ":";
      case "after":
        if (c === ",") {
          this.#state = this.#open.at(-1) === "}" ? "key" : "value";
          return true;
        }
        return this.#close(c);
      case "first value":
        if (c === "]") return this.#close(c);
        break;
    }
    return this.#begin(c);
  }

  #inString(c: string): boolean {
    if (this.#escape > 1) {
      this.#escape = this.#escape === 2 ? 0 : this.#escape - 1;
      return HEX.includes(c);
    }
    if (this.#escape === 1) {
      this.#escape = c === "u" ? 5 : 0;
      return ESCAPED.includes(c);
    }
    if (c === "\\") this.#escape = 1;
    else if (c === '"') {
      if (this.#isKey) this.#state = "colon";
      else this.#ended();
      this.#isKey = false;
    }
    return c >= " ";
  }

  #begin(c: string): boolean {
    if (c === "{" || c === "[") {
      this.#open.push(c === "{" ? "}" : "]");
      this.#state = c === "{" ? "first key" : "first value";
    } else if (c === '"') this.#state = "string";
    else if (Object.hasOwn(WORDS, c)) {
      this.#state = "word";
      this.#word = WORDS[c];
    } else if (c === "-" || DIGITS.includes(c)) {
      this.#state = "number";
      this.#number = c === "-" || c === "0" ? c : "int";
    } else return false;
    return true;
  }

  #close(c: string): boolean {
    if (this.#open.at(-1) !== c) return false;
    this.#open.pop();
    this.#ended();
    return true;
  }

  #ended(): void {
    this.#state = "after";
    this.done = this.#open.length === 0;
  }
}
