/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
/**
 * Makes elements of the trees that the readers of texts give. Whatever is not on their lists is refused here too, so that a
 * mistake in a reader cannot become a script.
 * @module
 */
import { type Block, linesOf, parseLines } from "../text/markdown.ts";
import { ATTRIBUTES, HTML_TAGS, isSafeLink, MATH_TAGS, type Node as TextNode } from "../text/node.ts";
import { copyButton, h } from "./h.ts";

const MATH = "http://www.w3.org/1998/Math/MathML";
const HTML = new Set<string>(HTML_TAGS), MATHML = new Set<string>(MATH_TAGS), KNOWN = new Set<string>(ATTRIBUTES);

export function mount(node: TextNode): Node {
  if (typeof node === "string") return document.createTextNode(node);
  const { tag, attributes, children } = node;
  if (!HTML.has(tag) && !MATHML.has(tag)) return document.createTextNode(`<${tag}>`);
  const made = MATHML.has(tag) ? document.createElementNS(MATH, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (!KNOWN.has(name) || (name === "href" && !isSafeLink(value))) continue;
    made.setAttribute(name, value);
  }
  if (made instanceof HTMLAnchorElement) {
    made.rel = "noopener noreferrer";
    made.target = "_blank";
    if (made.title === "") made.title = made.href;
  }
  made.append(...children.map(mount));
  if (tag === "figure") addHead(made as HTMLElement);
  // Wide ones scroll by themselves; the keyboard must reach them for that.
  if (tag === "pre" || attributes.class === "table") (made as HTMLElement).tabIndex = 0;
  return made;
}

/** The line above a code block: its language, and a button that copies it. */
function addHead(figure: HTMLElement): void {
  const code = figure.querySelector("code")!;
  const head = h("div", { class: "code-head" }, h("span", {}, figure.dataset.lang || "text"));
  head.append(copyButton("Copy code", () => code.textContent ?? ""));
  figure.prepend(head);
}

/** A text of Markdown that grows. Only its end is read and made again. */
export class MarkdownView {
  readonly element = h("div", { class: "markdown" });
  #text = "";
  #blocks: (Block & { key: string })[] = [];

  /** @param whole The text is complete: it is read from its beginning. */
  update(text: string, whole: boolean): void {
    if (text === this.#text && !whole) return;
    // A line that comes changes the block it is in and where the one before ends, never those before.
    const keep = !whole && text.startsWith(this.#text) ? Math.max(0, this.#blocks.length - 2) : 0;
    const from = keep === 0 ? 0 : this.#blocks[keep].line;
    const read = parseLines(linesOf(text).slice(from)).map(({ line, node }) => ({
      line: line + from,
      node,
      key: JSON.stringify(node),
    }));
    const { children } = this.element;
    read.forEach((block, i) => {
      const at = keep + i;
      if (this.#blocks[at]?.key === block.key) return;
      const made = mount(block.node);
      if (at < children.length) children[at].replaceWith(made);
      else this.element.append(made);
    });
    while (children.length > keep + read.length) this.element.lastElementChild!.remove();
    this.#blocks = [...this.#blocks.slice(0, keep), ...read];
    this.#text = text;
  }
}
