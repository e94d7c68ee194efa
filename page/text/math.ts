/**
 * LaTeX formulas to MathML. What is not known here makes the whole formula appear as its source: a formula that is half right
 * would mislead.
 * @module
 */
import { element, type Node } from "./node.ts";
import {
  ACCENTS,
  ALPHABETS,
  FENCES,
  FUNCTIONS,
  inAlphabet,
  INTEGRALS,
  LARGE,
  LETTERS,
  LIMITS,
  OPERATORS,
  SPACES,
} from "./math_symbols.ts";

/** Not in the subset. */
class Unknown extends Error {}

/** Groups within each other end here. */
const MAX_DEPTH = 40;
/** Longer formulas are shown as their source. */
const MAX_LENGTH = 20_000;

/** A formula as MathML with its source beside it, or as its source. */
export function renderMath(source: string, { display }: { display: boolean }): Node {
  const kind = display ? { display: "block" } : {};
  try {
    if (source.length > MAX_LENGTH) throw new Unknown();
    const formula = new Reader(tokens(source), display).whole();
    return element(
      "math",
      kind,
      element("semantics", {}, formula, element("annotation", { encoding: "application/x-tex" }, source)),
    );
  } catch (error) {
    if (!(error instanceof Unknown)) throw error;
    return element("code", { class: display ? "tex block" : "tex" }, source);
  }
}

/** Commands, and single characters; white space is dropped except behind a backslash and within texts. */
function tokens(source: string): string[] {
  return source.match(/\\(?:[A-Za-z]+\*?|[\s\S])|%[^\n]*|[\s\S]/gu)?.filter((t) => !t.startsWith("%")) ?? [];
}

const row = (nodes: readonly Node[]): Node => nodes.length === 1 ? nodes[0] : element("mrow", {}, ...nodes);
const isSpace = (token: string | undefined) => token !== undefined && /^\s+$/.test(token);
const BIG = /^\\(?:[bB]ig{1,2})[lrm]?$/;
const DISPLAY_STYLES = new Map([["\\displaystyle", "true"], ["\\textstyle", "false"], ["\\scriptstyle", "false"]]);
/** Surrounding brackets of the environments that are matrices. */
const MATRICES: Readonly<Record<string, readonly [string, string]>> = {
  matrix: ["", ""],
  smallmatrix: ["", ""],
  pmatrix: ["(", ")"],
  bmatrix: ["[", "]"],
  Bmatrix: ["{", "}"],
  vmatrix: ["|", "|"],
  Vmatrix: ["‖", "‖"],
};
const ALIGNED = new Set(["aligned", "align", "split", "alignedat", "eqnarray"]);
const CENTERED = new Set(["gather", "gathered", "equation", "multline"]);

class Reader {
  readonly #tokens: readonly string[];
  readonly #display: boolean;
  #at = 0;
  #depth = 0;

  constructor(tokens: readonly string[], display: boolean) {
    this.#tokens = tokens;
    this.#display = display;
  }

  whole(): Node {
    const rows = this.#rows(() => this.#at >= this.#tokens.length);
    // Line breaks outside of an environment, as models write them.
    if (rows.length === 1 && rows[0].length === 1) return row(rows[0][0]);
    return grid(rows, "left");
  }

  #peek(): string | undefined {
    while (isSpace(this.#tokens[this.#at])) this.#at++;
    return this.#tokens[this.#at];
  }

  #next(): string {
    const token = this.#peek();
    if (token === undefined) throw new Unknown();
    this.#at++;
    return token;
  }

  #expect(token: string): void {
    if (this.#next() !== token) throw new Unknown();
  }

  #deeper<T>(read: () => T): T {
    if (++this.#depth > MAX_DEPTH) throw new Unknown();
    const result = read();
    this.#depth--;
    return result;
  }

  /** Atoms up to where `ends` says. */
  #list(ends: (token: string) => boolean): Node[] {
    return this.#deeper(() => {
      const nodes: Node[] = [];
      for (let token = this.#peek(); token !== undefined && !ends(token); token = this.#peek()) {
        const style = DISPLAY_STYLES.get(token);
        if (style !== undefined) {
          this.#at++;
          nodes.push(element("mstyle", { displaystyle: style }, ...this.#list(ends)));
        } else {
          const node = this.#scripted();
          if (node !== undefined) nodes.push(node);
        }
      }
      return nodes;
    });
  }

  /** Rows of cells, `\\` and `&` between them. */
  #rows(ends: () => boolean): Node[][][] {
    const rows: Node[][][] = [[]];
    while (true) {
      const cell = this.#list((t) => t === "&" || t === "\\\\" || t === "\\cr" || t === "\\end");
      rows.at(-1)!.push(cell);
      if (this.#peek() === undefined || this.#peek() === "\\end") {
        if (!ends()) throw new Unknown();
        break;
      }
      const divider = this.#next();
      if (divider === "&") continue;
      if (this.#peek() === "[") { // an extra distance
        while (this.#next() !== "]");
      }
      rows.push([]);
    }
    const last = rows.at(-1)!;
    if (rows.length > 1 && last.length === 1 && last[0].length === 0) rows.pop();
    return rows;
  }

  /** An atom with what stands above and below it; undefined for what is not shown. */
  #scripted(): Node | undefined {
    const first = this.#peek()!;
    let base: Node | undefined = first === "^" || first === "_" || first === "'" ? element("mrow") : this.#atom();
    if (base === undefined) return undefined;
    let limits = this.#hasLimits(first);
    if (this.#peek() === "\\limits" || this.#peek() === "\\nolimits") limits = this.#next() === "\\limits";
    let sub: Node | undefined, sup: Node | undefined;
    for (let token = this.#peek(); token === "^" || token === "_" || token === "'"; token = this.#peek()) {
      if (token === "'") {
        let primes = "";
        while (this.#peek() === "'") {
          this.#at++;
          primes += "′";
        }
        const mark = element("mo", {}, primes);
        sup = sup === undefined ? mark : element("mrow", {}, sup, mark);
        continue;
      }
      this.#at++;
      const script = this.#argument();
      if (token === "_") {
        if (sub !== undefined) throw new Unknown();
        sub = script;
      } else sup = sup === undefined ? script : element("mrow", {}, sup, script);
    }
    if (sub === undefined && sup === undefined) return base;
    if (limits) {
      base = sub !== undefined && sup !== undefined
        ? element("munderover", {}, base, sub, sup)
        : sub !== undefined
        ? element("munder", {}, base, sub)
        : element("mover", {}, base, sup!);
      return base;
    }
    return sub !== undefined && sup !== undefined
      ? element("msubsup", {}, base, sub, sup)
      : sub !== undefined
      ? element("msub", {}, base, sub)
      : element("msup", {}, base, sup!);
  }

  #hasLimits(token: string): boolean {
    const name = token.replace(/^\\|\*$/g, "");
    if (name === "underbrace" || name === "overbrace" || token === "\\operatorname*") return true;
    return this.#display && token.startsWith("\\") && (LARGE.has(name) || LIMITS.has(name));
  }

  /** What a command takes: a group, or a single atom. */
  #argument(): Node {
    const token = this.#peek();
    if (token === undefined || token === "}" || token === "&" || token === "^" || token === "_") throw new Unknown();
    if (/^[0-9]$/.test(token)) { // one digit, as in LaTeX: \frac12 is a half
      this.#at++;
      return element("mn", {}, token);
    }
    return this.#deeper(() => this.#atom()) ?? element("mrow");
  }

  #group(): Node {
    const nodes = this.#list((t) => t === "}");
    this.#expect("}");
    return row(nodes);
  }

  /** The characters of `{…}` as they are. */
  #raw(): string {
    this.#expect("{");
    let text = "", level = 1;
    for (;; this.#at++) {
      const token = this.#tokens[this.#at];
      if (token === undefined) throw new Unknown();
      if (token === "{") level++;
      else if (token === "}" && --level === 0) break;
      else if (token === "\\ " || token === "~") text += " ";
      else if (/^\\[{}$%&#_]$/.test(token)) text += token[1];
      else text += token;
    }
    this.#at++;
    return text;
  }

  #atom(): Node | undefined {
    const token = this.#next();
    if (token === "{") return this.#group();
    if (token === "}" || token === "&" || token === "$" || token === "#") throw new Unknown();
    if (token.startsWith("\\")) return this.#command(token.slice(1));
    if (/[0-9]/.test(token)) {
      let number = token;
      while (/^[0-9.]$/.test(this.#tokens[this.#at] ?? "")) number += this.#tokens[this.#at++];
      // A full stop ends the sentence, not the number.
      if (number.endsWith(".")) {
        number = number.slice(0, -1);
        this.#at--;
      }
      return element("mn", {}, number);
    }
    if (/\p{L}/u.test(token)) return element("mi", {}, token);
    if (token === "~") return element("mspace", { width: "0.333em" });
    const sign = { "-": "−", "*": "∗", "`": "‘" }[token] ?? token;
    const quiet = /[()[\]|/]/.test(token) ? { stretchy: "false" } : {};
    return element("mo", quiet, sign);
  }

  #command(name: string): Node | undefined {
    const symbol = symbolOf(name) ?? this.#structure(name);
    if (symbol !== undefined) return symbol;
    if (name === "label" || name === "tag" || name === "tag*") {
      const text = this.#raw();
      return name === "label" ? undefined : element("mtext", {}, `\u2003(${text})`);
    }
    if (name === "nonumber" || name === "notag" || name === "hline" || name === "limits" || name === "nolimits") {
      return undefined;
    }
    throw new Unknown();
  }

  #structure(name: string): Node | undefined {
    const alphabet = ALPHABETS.get(name);
    if (alphabet !== undefined) return mapText(this.#argument(), (text) => inAlphabet(text, alphabet));
    if (ACCENTS.has(name)) return this.#accent(name);
    if (BIG.test(`\\${name}`)) return this.#bigFence(name);
    switch (name) {
      case "frac":
      case "dfrac":
      case "tfrac":
      case "cfrac": {
        const fraction = element("mfrac", {}, this.#argument(), this.#argument());
        const style = name === "dfrac" || name === "cfrac" ? "true" : name === "tfrac" ? "false" : undefined;
        return style === undefined ? fraction : element("mstyle", { displaystyle: style }, fraction);
      }
      case "binom":
      case "dbinom":
      case "tbinom":
        return fenced("(", element("mfrac", { linethickness: "0" }, this.#argument(), this.#argument()), ")");
      case "sqrt": {
        if (this.#peek() !== "[") return element("msqrt", {}, this.#argument());
        this.#at++;
        const degree = row(this.#list((t) => t === "]"));
        this.#expect("]");
        return element("mroot", {}, this.#argument(), degree);
      }
      case "left":
        return this.#leftRight();
      case "middle":
        return element("mo", { fence: "true", stretchy: "true" }, this.#fence());
      case "text":
      case "textrm":
      case "mbox":
      case "textnormal":
      case "hbox":
        return element("mtext", {}, textual(this.#raw()));
      case "textbf":
        return element("mtext", { class: "bold" }, textual(this.#raw()));
      case "textit":
      case "emph":
        return element("mtext", { class: "italic" }, textual(this.#raw()));
      case "texttt":
        return element("mtext", { class: "mono" }, textual(this.#raw()));
      case "mathrm":
      case "operatorname":
      case "operatorname*":
      case "mathop":
        return upright(this.#argument());
      case "mathit":
      case "mathnormal":
      case "ensuremath":
      case "mathbin":
      case "mathrel":
      case "mathord":
        return this.#argument();
      case "overset":
      case "stackrel": {
        const above = this.#argument();
        return element("mover", {}, this.#argument(), above);
      }
      case "underset": {
        const below = this.#argument();
        return element("munder", {}, this.#argument(), below);
      }
      case "xrightarrow":
      case "xleftarrow":
        return element(
          "mover",
          {},
          element("mo", { stretchy: "true", minsize: "2em" }, name === "xrightarrow" ? "→" : "←"),
          this.#argument(),
        );
      case "boxed":
      case "fbox":
        return element("mpadded", { class: "boxed" }, this.#argument());
      case "cancel":
        return element("menclose", { notation: "updiagonalstrike" }, this.#argument());
      case "phantom":
      case "hphantom":
      case "vphantom":
        return element("mphantom", {}, this.#argument());
      case "pmod":
        return row([element("mspace", { width: "0.5em" }), fenced("(", row([word("mod"), this.#argument()]), ")")]);
      case "bmod":
      case "mod":
        return element("mrow", {}, element("mspace", { width: "0.3em" }), word("mod"));
      case "not": {
        const next = this.#argument();
        return mapText(next, (text) => `${text}\u0338`.normalize("NFC"));
      }
      case "color":
        this.#raw();
        return undefined;
      case "textcolor":
        this.#raw();
        return this.#argument();
      case "hspace":
      case "hspace*":
        this.#raw();
        return element("mspace", { width: "1em" });
      case "begin":
        return this.#environment();
    }
    return undefined;
  }

  #accent(name: string): Node {
    const mark = ACCENTS.get(name)!;
    const wide = /^(?:wide|over|under)/.test(name);
    const base = this.#argument(), sign = element("mo", { stretchy: String(wide) }, mark);
    return element(name.startsWith("under") ? "munder" : "mover", {}, base, sign);
  }

  #bigFence(name: string): Node {
    const size = { big: "1.2em", Big: "1.6em", bigg: "2.1em", Bigg: "2.6em" }[name.replace(/[lrm]$/, "")]!;
    return element("mo", { fence: "true", stretchy: "true", minsize: size, maxsize: size }, this.#fence());
  }

  /** The character of a bracket behind `\left` and its like; "" for the invisible one. */
  #fence(): string {
    const token = this.#next();
    if (token === ".") return "";
    if (/^[()[\]|/]$/.test(token)) return token;
    if (token === "<") return "⟨";
    if (token === ">") return "⟩";
    const name = token.slice(1);
    const char = token === "\\|"
      ? "‖"
      : name === "{" || name === "}"
      ? name
      : FENCES.get(name) ?? (/arrow$/.test(name) ? OPERATORS.get(name) : undefined);
    if (char === undefined) throw new Unknown();
    return char;
  }

  #leftRight(): Node {
    const open = this.#fence();
    const inner = this.#list((t) => t === "\\right" || t === "\\end" || t === "\\\\");
    this.#expect("\\right");
    return fenced(open, row(inner), this.#fence());
  }

  #environment(): Node {
    const name = this.#raw(), plain = name.replace(/\*$/, "");
    let columns = "";
    if (plain === "array" || plain === "alignedat" || plain === "tabular") columns = this.#raw();
    const rows = this.#deeper(() => this.#rows(() => this.#peek() === "\\end"));
    this.#expect("\\end");
    if (this.#raw() !== name) throw new Unknown();
    if (Object.hasOwn(MATRICES, plain)) return fenced(MATRICES[plain][0], grid(rows, "center"), MATRICES[plain][1]);
    if (plain === "cases" || plain === "dcases") return fenced("{", grid(rows, "left"), "");
    if (plain === "rcases") return fenced("", grid(rows, "left"), "}");
    if (ALIGNED.has(plain)) return element("mstyle", { displaystyle: "true" }, grid(rows, "right left"));
    if (CENTERED.has(plain)) return element("mstyle", { displaystyle: "true" }, grid(rows, "center"));
    if (plain === "array") {
      const align = (columns.match(/[lcr]/g) ?? []).map((c) => ({ l: "left", c: "center", r: "right" })[c]).join(" ");
      return grid(rows, align || "center");
    }
    throw new Unknown();
  }
}

/** A command that stands for a character or a name. */
function symbolOf(name: string): Node | undefined {
  const letter = LETTERS.get(name);
  if (letter !== undefined) return element("mi", /^[Α-Ω]$/u.test(letter) ? { mathvariant: "normal" } : {}, letter);
  const operator = OPERATORS.get(name);
  if (operator !== undefined) return element("mo", {}, operator);
  const large = LARGE.get(name);
  if (large !== undefined) return element("mo", { movablelimits: "false" }, large);
  const integral = INTEGRALS.get(name);
  if (integral !== undefined) return element("mo", {}, integral);
  const fence = FENCES.get(name);
  if (fence !== undefined) return element("mo", { stretchy: "false" }, fence);
  if (FUNCTIONS.has(name)) return word(name === "argmax" ? "arg max" : name === "argmin" ? "arg min" : name);
  const space = SPACES.get(name);
  if (space !== undefined) return element("mspace", { width: space });
  if (name === "|") return element("mo", { stretchy: "false" }, "‖");
  if (/^[{}$%&#_]$/.test(name)) return element("mo", { stretchy: "false" }, name);
  return undefined;
}

function word(text: string): Node {
  return element("mi", { mathvariant: "normal" }, text);
}

/** MathML drops white space at a text's ends. */
function textual(text: string): string {
  return text.replace(/^\s|\s$/g, "\u00a0");
}

function fenced(open: string, inner: Node, close: string): Node {
  const bracket = (char: string) => char === "" ? [] : [element("mo", { fence: "true", stretchy: "true" }, char)];
  return element("mrow", {}, ...bracket(open), inner, ...bracket(close));
}

/** @param align Of the columns, repeated where there are more. */
function grid(rows: readonly Node[][][], align: string): Node {
  const kinds = align.split(" ");
  return element(
    "mtable",
    { columnalign: align },
    ...rows.map((cells) =>
      element("mtr", {}, ...cells.map((cell, i) => element("mtd", { class: kinds[i % kinds.length] }, ...cell)))
    ),
  );
}

function mapText(node: Node, change: (text: string) => string): Node {
  if (typeof node === "string") return change(node);
  return { ...node, children: node.children.map((child) => mapText(child, change)) };
}

/** Letters of a name together, upright. */
function upright(node: Node): Node {
  if (typeof node === "string" || node.tag === "mn") return node;
  const text = letters(node);
  if (text !== undefined) return word(text);
  if (node.tag === "mi") return { ...node, attributes: { ...node.attributes, mathvariant: "normal" } };
  return { ...node, children: node.children.map(upright) };
}

function letters(node: Node): string | undefined {
  if (typeof node === "string") return node;
  if (!["mi", "mn", "mrow", "mo", "mtext"].includes(node.tag)) return undefined;
  const parts = node.children.map(letters);
  return parts.includes(undefined) ? undefined : parts.join("");
}
