/**
 * What the readers of texts give: a tree of a few harmless elements. It is data, so that it can be checked without a browser;
 * `ui/mount.ts` makes elements of it and refuses everything that is not listed here.
 * @module
 */

/** Elements of text. */
export const HTML_TAGS = [
  "a",
  "blockquote",
  "br",
  "code",
  "del",
  "div",
  "em",
  "figure",
  "h1",
  "h2",
  "h3",
  "h4",
  "h5",
  "h6",
  "hr",
  "input",
  "li",
  "ol",
  "p",
  "pre",
  "span",
  "strong",
  "table",
  "tbody",
  "td",
  "th",
  "thead",
  "tr",
  "ul",
] as const;

/** Elements of MathML Core. */
export const MATH_TAGS = [
  "annotation",
  "math",
  "menclose",
  "mfrac",
  "mi",
  "mn",
  "mo",
  "mover",
  "mpadded",
  "mphantom",
  "mroot",
  "mrow",
  "mspace",
  "msqrt",
  "mstyle",
  "msub",
  "msubsup",
  "msup",
  "mtable",
  "mtd",
  "mtext",
  "mtr",
  "munder",
  "munderover",
  "semantics",
] as const;

/** Attributes that an element may have. None of them runs anything, and `href` is checked again where it is set. */
export const ATTRIBUTES = [
  "aria-label",
  "checked",
  "class",
  "columnalign",
  "data-lang",
  "disabled",
  "display",
  "displaystyle",
  "encoding",
  "fence",
  "href",
  "linethickness",
  "mathvariant",
  "maxsize",
  "minsize",
  "movablelimits",
  "notation",
  "start",
  "stretchy",
  "title",
  "type",
  "width",
] as const;

export type Tag = typeof HTML_TAGS[number] | typeof MATH_TAGS[number];
export type Attribute = typeof ATTRIBUTES[number];

/** An element, or a text. */
export type Node = Element | string;

export interface Element {
  readonly tag: Tag;
  readonly attributes: Readonly<Partial<Record<Attribute, string>>>;
  readonly children: readonly Node[];
}

export function element(tag: Tag, attributes: Element["attributes"] = {}, ...children: Node[]): Element {
  return { tag, attributes, children };
}

/** Whether a link may be followed: the web and mail, nothing that runs here. */
export function isSafeLink(href: string): boolean {
  // Browsers drop white space and control characters before they look at the scheme.
  return /^(?:https?:\/\/|mailto:)[^\s\p{Cc}]+$/iu.test(href);
}

/** The text that a reader of the page sees. */
export function textOf(nodes: readonly Node[]): string {
  return nodes.map((n) => typeof n === "string" ? n : n.tag === "br" ? "\n" : textOf(n.children)).join("");
}
