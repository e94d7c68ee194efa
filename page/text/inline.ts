/**
 * Markdown within a paragraph: emphasis, code, links, math. Whatever is not understood stays as text, HTML above all.
 * @module
 */
import { renderMath } from "./math.ts";
import { element, isSafeLink, type Node } from "./node.ts";

/** A run of `*`, `_` or `~~` that may open or close emphasis. */
interface Delimiter {
  readonly char: string;
  count: number;
  readonly canOpen: boolean;
  readonly canClose: boolean;
}

type Item = { node: Node; delimiter?: undefined } | { node?: undefined; delimiter: Delimiter };

/** Links within links end here. */
const MAX_DEPTH = 8;
/** Emphasis looks back over so many open runs, so that a text made of stars takes no time. */
const MAX_OPEN = 200;
/** Characters of a link's text: a text made of brackets takes no time either. */
const MAX_LABEL = 2000;
const ENTITIES: Readonly<Record<string, string>> = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
  nbsp: "\u00a0",
  copy: "©",
  hellip: "…",
  mdash: "—",
  ndash: "–",
  rarr: "→",
  times: "×",
};
const SPACE = /\s/u;
const PUNCTUATION = /[\p{P}\p{S}]/u;

/** Reads a paragraph's text. */
export function parseInline(text: string, depth = 0): Node[] {
  return new InlineReader(text, depth).read();
}

class InlineReader {
  readonly #text: string;
  readonly #depth: number;
  #at = 0;
  #plain = "";
  readonly #items: Item[] = [];
  /** What is not to be found from here on: it keeps the search for closing marks from being repeated. */
  readonly #missing = new Set<string>();

  constructor(text: string, depth: number) {
    this.#text = text;
    this.#depth = depth;
  }

  read(): Node[] {
    const text = this.#text;
    while (this.#at < text.length) {
      if (!this.#special(text[this.#at])) this.#plain += text[this.#at++];
    }
    this.#flush();
    return emphasis(this.#items);
  }

  /** Takes a construct that begins here; false where there is none. */
  #special(char: string): boolean {
    switch (char) {
      case "\\":
        return this.#backslash();
      case "`":
        return this.#code();
      case "$":
        return this.#dollar();
      case "!":
      case "[":
        return this.#link();
      case "<":
        return this.#angle();
      case "&":
        return this.#entity();
      case "*":
      case "_":
      case "~":
        return this.#run(char);
      case "\n":
        this.#plain = this.#plain.replace(/ +$/, "");
        return this.#push(element("br"), this.#at + 1);
      case "h":
        return this.#bareLink();
      default:
        return false;
    }
  }

  #flush(): void {
    if (this.#plain !== "") this.#items.push({ node: this.#plain });
    this.#plain = "";
  }

  #push(node: Node, next: number): true {
    this.#flush();
    this.#items.push({ node });
    this.#at = next;
    return true;
  }

  /** Where `mark` is found from `from` on, -1 where it is not. */
  #find(mark: string, from: number): number {
    if (this.#missing.has(mark)) return -1;
    const at = this.#text.indexOf(mark, from);
    if (at < 0) this.#missing.add(mark);
    return at;
  }

  #backslash(): boolean {
    const next = this.#text[this.#at + 1];
    if (next === "(" || next === "[") {
      const end = this.#find(next === "(" ? "\\)" : "\\]", this.#at + 2);
      if (end < 0) return false;
      return this.#push(renderMath(this.#text.slice(this.#at + 2, end), { display: next === "[" }), end + 2);
    }
    if (next === "\n") return this.#push(element("br"), this.#at + 2);
    if (next === undefined || !/[!-/:-@[-`{-~]/.test(next)) return false;
    this.#plain += next;
    this.#at += 2;
    return true;
  }

  #code(): boolean {
    const marks = /^`+/.exec(this.#text.slice(this.#at, this.#at + 64))![0];
    let end = this.#at + marks.length;
    for (;;) {
      end = this.#find(marks, end);
      if (end < 0) {
        this.#plain += marks;
        this.#at += marks.length;
        return true;
      }
      let after = end + marks.length;
      if (this.#text[after] !== "`") break;
      while (this.#text[after] === "`") after++;
      end = after;
    }
    const inner = this.#text.slice(this.#at + marks.length, end).replaceAll("\n", " ");
    const padded = /^ .*[^ ].* $|^ [^ ] $/.test(inner);
    return this.#push(element("code", {}, padded ? inner.slice(1, -1) : inner), end + marks.length);
  }

  #dollar(): boolean {
    const text = this.#text, double = text[this.#at + 1] === "$";
    const mark = double ? "$$" : "$", from = this.#at + mark.length;
    // Prices are no math: what opens touches its text, what closes does too, and no digit follows.
    if (text[from] === undefined || (!double && SPACE.test(text[from]))) return false;
    const end = this.#find(mark, from);
    if (end <= from) return false;
    if (!double && (SPACE.test(text[end - 1]) || /\d/.test(text[end + 1] ?? ""))) return false;
    return this.#push(renderMath(text.slice(from, end), { display: double }), end + mark.length);
  }

  /** `[text](address "title")`; an image becomes a link too, because nothing is loaded from elsewhere. */
  #link(): boolean {
    const text = this.#text, image = text[this.#at] === "!";
    const open = this.#at + (image ? 1 : 0);
    if (text[open] !== "[" || this.#depth >= MAX_DEPTH || this.#missing.has("](")) return false;
    if (this.#find("](", open) < 0) return false;
    const limit = Math.min(text.length, open + MAX_LABEL);
    let level = 0, close = open;
    for (; close < limit; close++) {
      if (text[close] === "\\") close++;
      else if (text[close] === "[") level++;
      else if (text[close] === "]" && --level === 0) break;
    }
    if (text[close] !== "]" || text[close + 1] !== "(") return false;
    const target = /^\(\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\([^\s()]*\))*))(?:\s+(?:"([^"]*)"|'([^']*)'))?\s*\)/.exec(
      text.slice(close + 1, close + 4096),
    );
    if (target === null) return false;
    const href = (target[1] ?? target[2] ?? "").replace(/\\([!-/:-@[-`{-~])/g, "$1");
    const title = target[3] ?? target[4];
    if (!isSafeLink(href)) return false;
    const shown = parseInline(text.slice(open + 1, close), this.#depth + 1);
    const label = shown.length > 0 ? shown : [href];
    return this.#push(
      element("a", { href, ...(title === undefined ? {} : { title }), ...(image ? { class: "image" } : {}) }, ...label),
      close + 1 + target[0].length,
    );
  }

  /** `<https://…>` and `<br>`; other tags are text. */
  #angle(): boolean {
    const rest = this.#text.slice(this.#at, this.#at + 2048);
    const line = /^<br\s*\/?>/i.exec(rest);
    if (line !== null) return this.#push(element("br"), this.#at + line[0].length);
    const link = /^<([^\s<>]+)>/.exec(rest);
    if (link === null || !isSafeLink(link[1])) return false;
    return this.#push(element("a", { href: link[1] }, link[1]), this.#at + link[0].length);
  }

  #bareLink(): boolean {
    if (/[\p{L}\p{N}]/u.test(this.#text[this.#at - 1] ?? "")) return false;
    const found = /^https?:\/\/[^\s<>"`\\^{|}\p{Cc}]+/u.exec(this.#text.slice(this.#at, this.#at + 2048));
    if (found === null) return false;
    let href = found[0].replace(/[?!.,:;*_~'"\]]+$/, "");
    // A bracket that the address did not open belongs to the sentence around it.
    while (href.endsWith(")") && href.split(")").length > href.split("(").length) {
      href = href.slice(0, -1).replace(/[?!.,:;*_~'"\]]+$/, "");
    }
    if (!/^https?:\/\/[^/]/.test(href)) return false;
    return this.#push(element("a", { href }, href), this.#at + href.length);
  }

  #entity(): boolean {
    const found = /^&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|([A-Za-z]{2,8}));/.exec(
      this.#text.slice(this.#at, this.#at + 12),
    );
    if (found === null) return false;
    const [all, decimal, hex, name] = found;
    const code = decimal === undefined ? parseInt(hex, 16) : Number(decimal);
    const char = name !== undefined
      ? (Object.hasOwn(ENTITIES, name) ? ENTITIES[name] : undefined)
      : code > 31 && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff)
      ? String.fromCodePoint(code)
      : undefined;
    if (char === undefined) return false;
    this.#plain += char;
    this.#at += all.length;
    return true;
  }

  #run(char: string): boolean {
    const text = this.#text, from = this.#at;
    let to = from;
    while (text[to] === char) to++;
    if (char === "~" && to - from !== 2) {
      this.#plain += text.slice(from, to);
      this.#at = to;
      return true;
    }
    const before = text[from - 1] ?? " ", after = text[to] ?? " ";
    const spaceBefore = SPACE.test(before), spaceAfter = SPACE.test(after);
    const markBefore = PUNCTUATION.test(before), markAfter = PUNCTUATION.test(after);
    const left = !spaceAfter && (!markAfter || spaceBefore || markBefore);
    const right = !spaceBefore && (!markBefore || spaceAfter || markAfter);
    this.#flush();
    this.#items.push({
      delimiter: {
        char,
        count: to - from,
        canOpen: left && (char !== "_" || !right || markBefore),
        canClose: right && (char !== "_" || !left || markAfter),
      },
    });
    this.#at = to;
    return true;
  }
}

/** Joins runs that open with runs that close; a run without a partner is text. */
function emphasis(items: readonly Item[]): Node[] {
  const out: Item[] = [];
  /** Places in `out` of runs that may open. */
  const open: number[] = [];
  for (const item of items) {
    const closer = item.delimiter;
    if (closer === undefined) {
      out.push(item);
      continue;
    }
    while (closer.canClose && closer.count > 0) {
      const k = findOpener(out, open, closer);
      if (k < 0) break;
      const place = open[k], opener = out[place].delimiter!;
      open.length = k + 1;
      const n = closer.char === "~" || (opener.count >= 2 && closer.count >= 2) ? 2 : 1;
      const inner = nodesOf(out.splice(place + 1));
      const tag = closer.char === "~" ? "del" : n === 2 ? "strong" : "em";
      opener.count -= n;
      closer.count -= n;
      if (opener.count === 0) {
        out.pop();
        open.pop();
      }
      out.push({ node: element(tag, {}, ...inner) });
    }
    if (closer.count === 0) continue;
    if (closer.canOpen) open.push(out.length);
    out.push({ delimiter: closer });
  }
  return nodesOf(out);
}

function findOpener(out: readonly Item[], open: readonly number[], closer: Delimiter): number {
  for (let k = open.length - 1; k >= Math.max(0, open.length - MAX_OPEN); k--) {
    const opener = out[open[k]].delimiter!;
    if (opener.char !== closer.char) continue;
    // The rule of three: runs that do both are not joined into a sum that is a multiple of three.
    const both = opener.canClose || closer.canOpen;
    if (both && (opener.count + closer.count) % 3 === 0 && opener.count % 3 !== 0) continue;
    return k;
  }
  return -1;
}

/** Neighbouring texts become one. */
function nodesOf(items: readonly Item[]): Node[] {
  const nodes: Node[] = [];
  for (const { node, delimiter } of items) {
    const next = node ?? delimiter!.char.repeat(delimiter!.count);
    const last = nodes.at(-1);
    if (typeof next === "string" && typeof last === "string") nodes[nodes.length - 1] = last + next;
    else nodes.push(next);
  }
  return nodes;
}
