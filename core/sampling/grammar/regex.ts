/**
 * Regular expressions of JSON Schema's `pattern` (ECMA-262) to expressions: what describes a set of texts, without
 * look-around, back references and word boundaries.
 * @module
 */
import { TextError } from "../../errors.ts";
import {
  alt,
  classOf,
  complement,
  type Expr,
  LIMITS,
  MAX_CODE_POINT,
  normalize,
  type Ranges,
  refuse,
  repeat,
  seq,
} from "./expr.ts";

const DIGIT: Ranges = [[0x30, 0x39]];
const WORD: Ranges = [[0x30, 0x39], [0x41, 0x5a], [0x5f, 0x5f], [0x61, 0x7a]];
const SPACE: Ranges = [
  [9, 13],
  [0x20, 0x20],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
];
const LINE_ENDS: Ranges = [[10, 10], [13, 13], [0x2028, 0x2029]];
const ANY: Ranges = [[0, MAX_CODE_POINT]];

/**
 * Parses a pattern. A side without anchor may have any text before or behind.
 * @throws {TextError} `text.schema_pattern` naming the position, `text.grammar_too_large`.
 */
export function parseRegex(pattern: string): Expr {
  if (pattern.length > LIMITS.text) refuse("the length of a pattern", pattern.length, LIMITS.text);
  return new Parser(pattern).whole();
}

/** The same, undefined for a pattern that is beyond expressions, or none. */
export function patternOf(pattern: string): Expr | undefined {
  try {
    return parseRegex(pattern);
  } catch (error) {
    if (error instanceof TextError && error.code === "text.schema_pattern") return undefined;
    throw error;
  }
}

class Parser {
  #at = 0;
  #depth = 0;
  constructor(readonly source: string) {}

  whole(): Expr {
    const items = this.#alternatives(true);
    if (this.#at < this.source.length) this.#fail(`unexpected ${JSON.stringify(this.source[this.#at])}`);
    return items;
  }

  #alternatives(top: boolean): Expr {
    const items = [this.#sequence(top)];
    while (this.source[this.#at] === "|") {
      this.#at++;
      items.push(this.#sequence(top));
      if (items.length > LIMITS.alternatives) refuse("the number of alternatives", items.length, LIMITS.alternatives);
    }
    return alt(items);
  }

  /** A sequence; at the top each alternative has its own anchors. */
  #sequence(top: boolean): Expr {
    const any = repeat(classOf(ANY), 0, Infinity);
    const items: Expr[] = [];
    let open = top;
    if (top && this.source[this.#at] === "^") {
      this.#at++;
    } else if (top) items.push(any);
    while (this.#at < this.source.length) {
      const c = this.source[this.#at];
      if (c === "|" || c === ")") break;
      if (top && c === "$" && (this.#at + 1 === this.source.length || this.source[this.#at + 1] === "|")) {
        this.#at++;
        open = false;
        break;
      }
      if (c === "^" || c === "$") this.#fail(`an anchor ${c} is understood only at the pattern's ends`);
      items.push(this.#quantified(this.#atom()));
    }
    if (open) items.push(any);
    return seq(...items);
  }

  #quantified(item: Expr): Expr {
    const c = this.source[this.#at];
    let range: [number, number];
    if (c === "?" || c === "*" || c === "+") {
      this.#at++;
      range = c === "?" ? [0, 1] : [c === "*" ? 0 : 1, Infinity];
    } else {
      const m = c === "{" ? /^\{(\d+)(,(\d+)?)?\}/.exec(this.source.slice(this.#at, this.#at + 80)) : null;
      if (!m) return item;
      this.#at += m[0].length;
      const min = Number(m[1]);
      range = [min, m[2] === undefined ? min : m[3] === undefined ? Infinity : Number(m[3])];
      if (range[1] < min) this.#fail("a repetition ends before it begins");
    }
    if (this.source[this.#at] === "?") this.#at++; // lazy or not, the texts are the same
    if (/[?*+]/.test(this.source[this.#at] ?? "")) this.#fail("nothing to repeat");
    return repeat(item, ...range);
  }

  #atom(): Expr {
    const c = this.source[this.#at];
    if (c === "(") {
      if (++this.#depth > LIMITS.depth) refuse("the nesting of groups", `over ${LIMITS.depth}`, LIMITS.depth);
      this.#at++;
      const m = /^\?(?::|<[A-Za-z_]\w*>)/.exec(this.source.slice(this.#at, this.#at + 80));
      if (m) this.#at += m[0].length;
      else if (this.source[this.#at] === "?") this.#fail("look-around is not supported");
      const item = this.#alternatives(false);
      if (this.source[this.#at] !== ")") this.#fail('expected ")"');
      this.#at++;
      this.#depth--;
      return item;
    }
    if (c === "[") return this.#class();
    if (c === ".") {
      this.#at++;
      return classOf(complement(LINE_ENDS));
    }
    if (c === "*" || c === "+" || c === "?") this.#fail("nothing to repeat");
    if (c === "\\") {
      const ranges = this.#escape();
      return classOf(ranges);
    }
    const code = this.source.codePointAt(this.#at)!;
    this.#at += code > 0xffff ? 2 : 1;
    return classOf([[code, code]]);
  }

  #class(): Expr {
    const begin = this.#at++;
    const negated = this.source[this.#at] === "^";
    if (negated) this.#at++;
    let ranges: (readonly [number, number])[] = [];
    while (this.source[this.#at] !== "]") {
      if (this.#at >= this.source.length) this.#fail("a class does not end", begin);
      const lo = this.#classPart();
      if (
        this.source[this.#at] === "-" && this.source[this.#at + 1] !== "]" && lo.length === 1 && lo[0][0] === lo[0][1]
      ) {
        this.#at++;
        if (this.#at >= this.source.length) this.#fail("a class does not end", begin);
        const hi = this.#classPart();
        if (hi.length !== 1 || hi[0][0] !== hi[0][1] || hi[0][0] < lo[0][0]) {
          this.#fail("a range ends before it begins");
        }
        ranges = [...ranges, [lo[0][0], hi[0][0]]];
      } else ranges = [...ranges, ...lo];
    }
    this.#at++;
    if (!negated && ranges.length === 0) this.#fail("an empty class fits nothing", begin);
    return classOf(negated ? complement(normalize(ranges)) : ranges);
  }

  #classPart(): Ranges {
    if (this.source[this.#at] === "\\") return this.#escape(true);
    const code = this.source.codePointAt(this.#at)!;
    this.#at += code > 0xffff ? 2 : 1;
    return [[code, code]];
  }

  #escape(inClass = false): Ranges {
    const c = this.source[this.#at + 1];
    const sets: Record<string, Ranges> = {
      d: DIGIT,
      w: WORD,
      s: SPACE,
      D: complement(DIGIT),
      W: complement(WORD),
      S: complement(SPACE),
    };
    if (c !== undefined && Object.hasOwn(sets, c)) {
      this.#at += 2;
      return sets[c];
    }
    const one = (code: number, length: number): Ranges => {
      this.#at += length;
      return [[code, code]];
    };
    const plain: Record<string, number> = { n: 10, r: 13, t: 9, f: 12, v: 11, "0": 0 };
    if (c !== undefined && Object.hasOwn(plain, c)) return one(plain[c], 2);
    if (inClass && c === "b") return one(8, 2);
    const hex = /^\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\})/.exec(
      this.source.slice(this.#at, this.#at + 10),
    );
    if (hex) {
      const code = parseInt(hex[1] ?? hex[2] ?? hex[3], 16);
      if (code <= MAX_CODE_POINT) return one(code, hex[0].length);
    }
    if (c === undefined || /[a-zA-Z0-9]/.test(c)) return this.#fail(`the escape \\${c ?? ""} is not supported`);
    return one(
      this.source.codePointAt(this.#at + 1)!,
      1 + String.fromCodePoint(this.source.codePointAt(this.#at + 1)!).length,
    );
  }

  #fail(why: string, at = this.#at): never {
    throw new TextError(
      "text.schema_pattern",
      `Cannot compile the pattern ${JSON.stringify(this.source.slice(0, 60))}, position ${at}: ${why}`,
      {
        at: { pattern: this.source.slice(0, 200), position: at },
        hint: "patterns may use literals, classes, groups, alternatives, repetitions, and anchors at their ends",
      },
    );
  }
}
