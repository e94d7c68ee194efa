/**
 * GBNF, llama.cpp's grammar notation, to rules.
 *
 *     root  ::= "yes" | "no" | number      # a comment
 *     number ::= [0-9]+ ("." [0-9]{1,4})?
 *
 * Literals and classes know \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH; `.` is any character but a line end;
 * `?`, `*`, `+`, `{n}`, `{n,}`, `{n,m}` repeat. A newline ends a rule unless a group is open or `|` follows or precedes.
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
  refuse,
  repeat,
  rule,
  type Rules,
  seq,
  text,
} from "./expr.ts";

/**
 * Parses GBNF.
 * @throws {TextError} `text.grammar_syntax` naming line and column, `text.grammar_too_large`.
 */
export function parseGbnf(source: string): Rules {
  if (source.length > LIMITS.text) refuse("the length of the text", source.length, LIMITS.text);
  return new Parser(source).grammar();
}

class Parser {
  #at = 0;
  #depth = 0;
  readonly #rules = new Map<string, Expr>();
  readonly #used = new Map<string, number>();

  constructor(readonly source: string) {}

  grammar(): Rules {
    this.#space(true);
    while (this.#at < this.source.length) {
      this.#rule();
      this.#space(true);
    }
    for (const [name, at] of this.#used) {
      if (!this.#rules.has(name)) this.#fail(`rule "${name}" is used but not defined`, at);
    }
    if (!this.#rules.has("root")) this.#fail('there is no rule "root"', 0);
    return { root: "root", rules: this.#rules };
  }

  #rule(): void {
    const at = this.#at;
    const name = this.#name();
    if (name === "") this.#fail("expected the name of a rule");
    this.#space(false);
    if (!this.source.startsWith("::=", this.#at)) this.#fail(`expected ::= after "${name}"`);
    this.#at += 3;
    this.#space(true);
    if (this.#rules.has(name)) this.#fail(`rule "${name}" is defined twice`, at);
    if (this.#rules.size >= LIMITS.rules) refuse("the number of rules", this.#rules.size + 1, LIMITS.rules);
    this.#rules.set(name, this.#alternatives(false));
    if (this.#at < this.source.length && !/[\r\n]/.test(this.source[this.#at])) {
      this.#fail(`expected a newline or the end, found ${JSON.stringify(this.source[this.#at])}`);
    }
  }

  #alternatives(nested: boolean): Expr {
    const items = [this.#sequence(nested)];
    while (this.source[this.#at] === "|") {
      this.#at++;
      this.#space(true);
      items.push(this.#sequence(nested));
      if (items.length > LIMITS.alternatives) {
        refuse("the number of alternatives", `over ${items.length - 1}`, LIMITS.alternatives);
      }
    }
    return alt(items);
  }

  #sequence(nested: boolean): Expr {
    const items: Expr[] = [];
    while (true) {
      const item = this.#item(nested);
      if (item === undefined) break;
      items.push(item);
    }
    return seq(...items);
  }

  /** One element with what repeats it; undefined where a sequence ends. */
  #item(nested: boolean): Expr | undefined {
    const c = this.source[this.#at];
    let item: Expr;
    if (c === '"') {
      item = text(this.#literal());
    } else if (c === "[") item = this.#class();
    else if (c === ".") {
      this.#at++;
      item = classOf(complement([[10, 10], [13, 13]]));
    } else if (c === "(") {
      if (++this.#depth > LIMITS.depth) refuse("the nesting of parentheses", `over ${LIMITS.depth}`, LIMITS.depth);
      this.#at++;
      this.#space(true);
      item = this.#alternatives(true);
      if (this.source[this.#at] !== ")") this.#fail('expected ")"');
      this.#at++;
      this.#depth--;
    } else {
      const at = this.#at;
      const name = this.#name();
      if (name === "") return undefined;
      if (!this.#used.has(name)) this.#used.set(name, at);
      item = rule(name);
    }
    this.#space(nested);
    let postfix = 0;
    for (let counted = this.#repetition(); counted; counted = this.#repetition()) {
      if (++postfix > 8) this.#fail("more than 8 repetitions follow one element");
      item = repeat(item, counted[0], counted[1]);
      this.#space(nested);
    }
    if (!nested) this.#joinLines();
    return item;
  }

  #repetition(): [number, number] | undefined {
    const c = this.source[this.#at];
    if (c === "?" || c === "*" || c === "+") {
      this.#at++;
      return c === "?" ? [0, 1] : [c === "*" ? 0 : 1, Infinity];
    }
    if (c !== "{") return undefined;
    const m = /^\{\s*(\d+)\s*(,\s*(\d+)?\s*)?\}/.exec(this.source.slice(this.#at, this.#at + 80));
    if (!m) return this.#fail("expected {n}, {n,} or {n,m}");
    this.#at += m[0].length;
    const min = Number(m[1]), max = m[2] === undefined ? min : m[3] === undefined ? Infinity : Number(m[3]);
    if (max < min) this.#fail(`repetition {${min},${max}} ends before it begins`);
    return [min, max];
  }

  #literal(): string {
    const begin = this.#at++;
    let out = "";
    while (this.source[this.#at] !== '"') {
      if (this.#at >= this.source.length) this.#fail("the literal does not end", begin);
      out += String.fromCodePoint(this.#char());
    }
    this.#at++;
    return out;
  }

  #class(): Expr {
    const begin = this.#at++;
    const negated = this.source[this.#at] === "^";
    if (negated) this.#at++;
    const ranges: [number, number][] = [];
    while (this.source[this.#at] !== "]") {
      if (this.#at >= this.source.length) this.#fail("the class does not end", begin);
      const lo = this.#char();
      let hi = lo;
      if (this.source[this.#at] === "-" && this.source[this.#at + 1] !== "]") {
        this.#at++;
        if (this.#at >= this.source.length) this.#fail("the class does not end", begin);
        hi = this.#char();
        if (hi < lo) this.#fail("the range ends before it begins");
      }
      ranges.push([lo, hi]);
    }
    this.#at++;
    return classOf(negated ? complement(ranges) : ranges);
  }

  /** One character, an escape decoded. */
  #char(): number {
    const c = this.source.codePointAt(this.#at)!;
    if (c !== 0x5c) {
      this.#at += c > 0xffff ? 2 : 1;
      return c;
    }
    const kind = this.source[this.#at + 1];
    const digits = { x: 2, u: 4, U: 8 }[kind];
    if (digits !== undefined) {
      const hex = this.source.slice(this.#at + 2, this.#at + 2 + digits);
      const code = hex.length === digits && /^[0-9a-fA-F]+$/.test(hex) ? parseInt(hex, 16) : NaN;
      if (!(code <= MAX_CODE_POINT)) this.#fail(`expected ${digits} hexadecimal digits of a character after \\${kind}`);
      this.#at += 2 + digits;
      return code;
    }
    const plain = { n: 10, r: 13, t: 9, "\\": 92, '"': 34, "[": 91, "]": 93, "-": 45, "^": 94 }[kind];
    if (plain === undefined) this.#fail(`unknown escape \\${kind ?? ""}`);
    this.#at += 2;
    return plain!;
  }

  #name(): string {
    const m = /[a-zA-Z0-9_-]*/y;
    m.lastIndex = this.#at;
    const name = m.exec(this.source)![0];
    this.#at += name.length;
    return name;
  }

  /** Skips blanks and comments, and newlines where asked. */
  #space(newlines: boolean): void {
    while (this.#at < this.source.length) {
      const c = this.source[this.#at];
      if (c === " " || c === "\t" || (newlines && (c === "\n" || c === "\r"))) this.#at++;
      else if (c === "#") { while (this.#at < this.source.length && !/[\r\n]/.test(this.source[this.#at])) this.#at++; }
      else break;
    }
  }

  /** Goes on to the next line where that begins with `|`. */
  #joinLines(): void {
    const here = this.#at;
    this.#space(true);
    if (this.source[this.#at] !== "|") this.#at = here;
  }

  #fail(why: string, at = this.#at): never {
    const before = this.source.slice(0, at).split("\n");
    const line = before.length, column = before[before.length - 1].length + 1;
    throw new TextError("text.grammar_syntax", `Cannot parse the grammar, line ${line}, column ${column}: ${why}`, {
      at: { line, column },
      hint: "GBNF is described in the documentation of grammars",
    });
  }
}
