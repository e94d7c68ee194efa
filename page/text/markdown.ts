/**
 * Markdown as language models write it, to a tree of elements: CommonMark's blocks with GitHub's tables and tasks, and math.
 * HTML is text, and nothing is loaded from elsewhere.
 * @module
 */
import { highlight } from "./highlight.ts";
import { parseInline } from "./inline.ts";
import { renderMath } from "./math.ts";
import { element, type Node } from "./node.ts";

/** A block of the outermost level. */
export interface Block {
  /** First line of the text that it covers. */
  readonly line: number;
  readonly node: Node;
}

/** Lists and quotes within each other end here. */
const MAX_DEPTH = 10;
const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^( {0,3})([-*+]|(\d{1,9})[.)])(?:( +)(.*)|)$/;
const QUOTE = /^ {0,3}> ?/;
const TABLE_LINE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

/** Reads a whole text. */
export function parseMarkdown(text: string): Block[] {
  return parseLines(linesOf(text));
}

/** Reads lines; `line` of the blocks counts from the first of them. */
export function parseLines(lines: readonly string[]): Block[] {
  return new BlockReader(lines, 0).read();
}

export function linesOf(text: string): string[] {
  return text.split(/\r\n|\r|\n/).map((line) =>
    line.replace(/^[ \t]*\t[ \t]*/, (indent) => indent.replaceAll("\t", "    "))
  );
}

function indentOf(line: string): number {
  let n = 0;
  while (line[n] === " ") n++;
  return n;
}

const isBlank = (line: string) => line.trim() === "";

class BlockReader {
  readonly #lines: readonly string[];
  readonly #depth: number;
  readonly #blocks: Block[] = [];
  #at = 0;

  constructor(lines: readonly string[], depth: number) {
    this.#lines = lines;
    this.#depth = depth;
  }

  read(): Block[] {
    while (this.#at < this.#lines.length) {
      if (isBlank(this.#lines[this.#at])) {
        this.#at++;
        continue;
      }
      const line = this.#at;
      const node = this.#block();
      this.#blocks.push({ line, node });
    }
    return this.#blocks;
  }

  #block(): Node {
    return this.#fence() ?? this.#heading() ?? this.#rule() ?? this.#math() ?? this.#quote() ?? this.#list() ??
      this.#table() ?? this.#indented() ?? this.#paragraph();
  }

  #fence(): Node | undefined {
    const lines = this.#lines, open = FENCE.exec(lines[this.#at]);
    if (open === null) return undefined;
    const [, indent, marks, info] = open;
    let end = this.#at + 1;
    const closes = (line: string) =>
      indentOf(line) < 4 && line.trim().length >= marks.length &&
      line.trim() === marks[0].repeat(line.trim().length);
    while (end < lines.length && !closes(lines[end])) end++;
    const body = lines.slice(this.#at + 1, end).map((line) => line.slice(Math.min(indent.length, indentOf(line))));
    this.#at = end + 1;
    return codeBlock(body.join("\n"), info.trim());
  }

  #heading(): Node | undefined {
    const found = HEADING.exec(this.#lines[this.#at]);
    if (found === null) return undefined;
    this.#at++;
    return element(`h${found[1].length as 1 | 2 | 3 | 4 | 5 | 6}`, {}, ...parseInline(found[2] ?? ""));
  }

  #rule(): Node | undefined {
    if (!RULE.test(this.#lines[this.#at])) return undefined;
    this.#at++;
    return element("hr");
  }

  /** `$$ … $$` and `\[ … \]` that begin a line, without an empty line inside. */
  #math(): Node | undefined {
    const lines = this.#lines, first = lines[this.#at].trim();
    const close = first.startsWith("$$") ? "$$" : first.startsWith("\\[") ? "\\]" : undefined;
    if (close === undefined || indentOf(lines[this.#at]) > 3) return undefined;
    const body: string[] = [];
    for (let at = this.#at; at < lines.length && !isBlank(lines[at]); at++) {
      const line = at === this.#at ? first.slice(2) : lines[at].trimEnd();
      const end = line.indexOf(close);
      if (end < 0) {
        body.push(line);
        continue;
      }
      if (line.slice(end + 2).trim() !== "") return undefined; // text goes on: the paragraph's reader takes it
      body.push(line.slice(0, end));
      const source = body.join("\n");
      if (source.trim() === "") return undefined;
      this.#at = at + 1;
      return element("div", { class: "math" }, renderMath(source, { display: true }));
    }
    return undefined;
  }

  #quote(): Node | undefined {
    const lines = this.#lines;
    if (!QUOTE.test(lines[this.#at]) || this.#depth >= MAX_DEPTH) return undefined;
    const inner: string[] = [];
    for (; this.#at < lines.length; this.#at++) {
      const line = lines[this.#at];
      if (QUOTE.test(line)) inner.push(line.replace(QUOTE, ""));
      // A paragraph may go on without its mark.
      else if (!isBlank(line) && inner.length > 0 && isParagraph(inner.at(-1)!) && !this.#interrupts(this.#at)) {
        inner.push(line);
      } else break;
    }
    return element("blockquote", {}, ...this.#inner(inner));
  }

  #inner(lines: readonly string[]): Node[] {
    return new BlockReader(lines, this.#depth + 1).read().map((block) => block.node);
  }

  #list(): Node | undefined {
    const lines = this.#lines, first = ITEM.exec(lines[this.#at]);
    if (first === null || this.#depth >= MAX_DEPTH) return undefined;
    const ordered = first[3] !== undefined, mark = first[2].at(-1)!;
    const items: { lines: string[]; spaced: boolean }[] = [];
    let spaced = false;
    while (this.#at < lines.length) {
      const item = ITEM.exec(lines[this.#at]);
      if (item === null || item[2].at(-1) !== mark || RULE.test(lines[this.#at])) break;
      const taken = this.#item(item);
      spaced ||= taken.spaced;
      items.push(taken);
      let next = this.#at;
      while (next < lines.length && isBlank(lines[next])) next++;
      const follows = next < lines.length ? ITEM.exec(lines[next]) : null;
      if (follows === null || follows[2].at(-1) !== mark) break;
      if (next > this.#at) spaced = true;
      this.#at = next;
    }
    const children = items.map((item) => {
      const { task, rest } = taskOf(item.lines);
      const inner = this.#inner(rest);
      // Paragraphs of a tight list are its text.
      const nodes = spaced ? inner : inner.flatMap((node) => isElement(node, "p") ? node.children : [node]);
      if (task === undefined) return element("li", {}, ...nodes);
      const box = element("input", {
        type: "checkbox",
        disabled: "",
        "aria-label": task ? "done" : "to do",
        ...(task ? { checked: "" } : {}),
      });
      return element("li", { class: "task" }, box, ...nodes);
    });
    const start = ordered && first[3] !== "1" ? { start: String(Number(first[3])) } : {};
    return element(ordered ? "ol" : "ul", start, ...children);
  }

  /** The lines of one item, without its mark and indent. */
  #item(item: RegExpExecArray): { lines: string[]; spaced: boolean } {
    const lines = this.#lines, [, indent, mark, , gap, text] = item;
    const base = indent.length, width = base + mark.length + (gap === undefined || gap.length > 4 ? 1 : gap.length);
    const inner = [gap !== undefined && gap.length > 4 ? gap.slice(1) + text : text ?? ""];
    this.#at++;
    let spaced = false, blanks = 0;
    for (; this.#at < lines.length; this.#at++) {
      const line = lines[this.#at];
      if (isBlank(line)) {
        blanks++;
        continue;
      }
      const deep = indentOf(line);
      // Models indent by two where the mark's width is three: a list that is deeper belongs to the item.
      const belongs = deep >= width || (deep >= base + 2 && ITEM.test(line.slice(deep)));
      const lazy = blanks === 0 && isParagraph(inner.at(-1)!) && !this.#interrupts(this.#at) && !ITEM.test(line);
      if (!belongs && !lazy) break;
      if (blanks > 0 && deep >= width && !ITEM.test(line.slice(deep))) spaced = true;
      for (; blanks > 0; blanks--) inner.push("");
      inner.push(belongs ? line.slice(Math.min(deep, width)) : line.trimStart());
    }
    this.#at -= blanks;
    return { lines: inner, spaced };
  }

  #table(): Node | undefined {
    const lines = this.#lines;
    if (!this.#isTable(this.#at)) return undefined;
    const head = cellsOf(lines[this.#at]);
    const align = cellsOf(lines[this.#at + 1]).map((cell) =>
      cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left"
    );
    const rows: string[][] = [];
    this.#at += 2;
    for (; this.#at < lines.length && lines[this.#at].includes("|") && !isBlank(lines[this.#at]); this.#at++) {
      rows.push(cellsOf(lines[this.#at]));
    }
    const row = (cells: readonly string[], tag: "th" | "td") =>
      element("tr", {}, ...cells.map((cell, i) => element(tag, { class: align[i] ?? "left" }, ...parseInline(cell))));
    const body = rows.map((cells) => row([...cells, ...Array(Math.max(0, head.length - cells.length)).fill("")], "td"));
    return element(
      "div",
      { class: "table" },
      element("table", {}, element("thead", {}, row(head, "th")), element("tbody", {}, ...body)),
    );
  }

  #isTable(at: number): boolean {
    const head = this.#lines[at], line = this.#lines[at + 1];
    return line !== undefined && head.includes("|") && line.includes("-") && TABLE_LINE.test(line) &&
      cellsOf(head).length === cellsOf(line).length;
  }

  #indented(): Node | undefined {
    const lines = this.#lines;
    if (indentOf(lines[this.#at]) < 4) return undefined;
    const body: string[] = [];
    let end = this.#at;
    for (let at = this.#at; at < lines.length && (isBlank(lines[at]) || indentOf(lines[at]) >= 4); at++) {
      body.push(lines[at].slice(4));
      if (!isBlank(lines[at])) end = at + 1;
    }
    const taken = body.slice(0, end - this.#at);
    this.#at = end;
    return codeBlock(taken.join("\n"), "");
  }

  #paragraph(): Node {
    const lines = this.#lines, from = this.#at;
    this.#at++;
    while (this.#at < lines.length && !isBlank(lines[this.#at]) && !this.#interrupts(this.#at)) {
      const under = /^ {0,3}(=+|-+)[ \t]*$/.exec(lines[this.#at]);
      if (under !== null) {
        const text = lines.slice(from, this.#at).map((l) => l.trim()).join("\n");
        this.#at++;
        return element(under[1][0] === "=" ? "h1" : "h2", {}, ...parseInline(text));
      }
      this.#at++;
    }
    const text = lines.slice(from, this.#at).map((l) => l.trimStart()).join("\n").trimEnd();
    return element("p", {}, ...parseInline(text));
  }

  /** Whether a line ends the paragraph before it. */
  #interrupts(at: number): boolean {
    const line = this.#lines[at];
    if (/^ {0,3}-+[ \t]*$/.test(line)) return false; // makes a heading of the paragraph
    const item = ITEM.exec(line);
    return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) ||
      (item !== null && item[5] !== undefined && item[5] !== "" && (item[3] === undefined || item[3] === "1")) ||
      this.#isTable(at) || /^ {0,3}(?:\$\$|\\\[)/.test(line);
  }
}

function isElement(node: Node, tag: string): node is Exclude<Node, string> {
  return typeof node !== "string" && node.tag === tag;
}

/** Whether a line can be the text of a paragraph that goes on in the next. */
function isParagraph(line: string): boolean {
  return !isBlank(line) && !FENCE.test(line) && !HEADING.test(line) && !RULE.test(line) && indentOf(line) < 4;
}

/** `[ ]` and `[x]` at an item's beginning. */
function taskOf(lines: readonly string[]): { task: boolean | undefined; rest: readonly string[] } {
  const found = /^\[([ xX])\][ \t]+/.exec(lines[0]);
  if (found === null) return { task: undefined, rest: lines };
  return { task: found[1] !== " ", rest: [lines[0].slice(found[0].length), ...lines.slice(1)] };
}

/** The cells of a table's row; a bar behind a backslash or in code divides nothing. */
function cellsOf(line: string): string[] {
  const text = line.trim().replace(/^\|/, "");
  const cells: string[] = [];
  let cell = "", code = false;
  for (let i = 0; i < text.length; i++) {
    const char = text[i];
    if (char === "\\" && text[i + 1] === "|") {
      cell += "|";
      i++;
    } else if (char === "|" && !code) {
      cells.push(cell.trim());
      cell = "";
    } else {
      if (char === "`") code = !code && text.indexOf("`", i + 1) > 0;
      cell += char;
    }
  }
  if (cell.trim() !== "" || cells.length === 0) cells.push(cell.trim());
  return cells;
}

function codeBlock(text: string, info: string): Node {
  const lang = info.split(/[\s{]/)[0];
  return element(
    "figure",
    { class: "code", "data-lang": info },
    element("pre", {}, element("code", {}, ...highlight(text, lang))),
  );
}
