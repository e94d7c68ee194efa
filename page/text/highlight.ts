/**
 * Colours code: comments, texts, numbers, keywords, names of functions and types. The pieces together are the code, character by
 * character.
 * @module
 */
import { type Language, languageOf } from "./languages.ts";
import { element, type Node } from "./node.ts";

export type Colour =
  | "comment"
  | "string"
  | "number"
  | "keyword"
  | "constant"
  | "function"
  | "type"
  | "key"
  | "tag"
  | "added"
  | "removed";

/** Longer code stays plain: nobody reads it for its colours. */
const MAX_LENGTH = 200_000;
const WORD = /[\p{L}_$@][\p{L}\p{N}_$-]*/uy;
const NAME = /[\p{L}_$@][\p{L}\p{N}_$]*/uy;
const NUMBER = /(?:0[xX][\da-fA-F_]+|0[bB][01_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)[a-zA-Z%]*/y;
const SPACE = /\s+/y;

/** @param name First word behind the fence. */
export function highlight(code: string, name: string): Node[] {
  const language = languageOf(name);
  if (code === "") return [];
  if (code.length > MAX_LENGTH) return [code];
  const pieces = new Pieces();
  if (language.diff) readDiff(code, pieces);
  else if (language.markup) readMarkup(code, language, pieces);
  else readCode(code, language, pieces);
  return pieces.nodes();
}

/** Neighbours of one colour become one. */
class Pieces {
  readonly #pieces: { colour: Colour | undefined; text: string }[] = [];

  add(text: string, colour?: Colour): void {
    if (text === "") return;
    const last = this.#pieces.at(-1);
    if (last !== undefined && last.colour === colour) last.text += text;
    else this.#pieces.push({ colour, text });
  }

  nodes(): Node[] {
    return this.#pieces.map(({ colour, text }) =>
      colour === undefined ? text : element("span", { class: `c-${colour}` }, text)
    );
  }
}

function match(pattern: RegExp, code: string, at: number): string | undefined {
  pattern.lastIndex = at;
  return pattern.exec(code)?.[0];
}

function readDiff(code: string, pieces: Pieces): void {
  code.split(/(?<=\n)/).forEach((line) => {
    const colour = /^(?:\+\+\+|---|diff |index )/.test(line)
      ? "comment"
      : line.startsWith("+")
      ? "added"
      : line.startsWith("-")
      ? "removed"
      : line.startsWith("@@")
      ? "keyword"
      : undefined;
    pieces.add(line, colour);
  });
}

function readMarkup(code: string, language: Language, pieces: Pieces): void {
  const tag = /<\/?[\p{L}!?][^\s<>/]*|\/?>/uy;
  const attribute = /[\p{L}_:@][\p{L}\p{N}_:.@-]*(?==)/uy;
  let at = 0, inTag = false;
  while (at < code.length) {
    const comment = blockComment(code, at, language);
    const found = comment ?? match(tag, code, at);
    if (found !== undefined && (comment !== undefined || inTag || found[0] === "<")) {
      if (comment === undefined) inTag = found[0] === "<";
      pieces.add(found, comment === undefined ? "tag" : "comment");
      at += found.length;
      continue;
    }
    const name = inTag ? match(attribute, code, at) : undefined;
    const text = inTag ? match(/"[^"]*"?|'[^']*'?/y, code, at) : undefined;
    const piece = name ?? text ?? code[at];
    pieces.add(piece, name !== undefined ? "key" : text !== undefined ? "string" : undefined);
    at += piece.length;
  }
}

function blockComment(code: string, at: number, language: Language): string | undefined {
  for (const [open, close] of language.block ?? []) {
    if (!code.startsWith(open, at)) continue;
    const end = code.indexOf(close, at + open.length);
    return code.slice(at, end < 0 ? code.length : end + close.length);
  }
  return undefined;
}

function lineComment(code: string, at: number, language: Language): string | undefined {
  const { line = [] } = language;
  const mark = line.find((m) => code.startsWith(m, at));
  if (mark === undefined) return undefined;
  // `a#b` and `$#` are no comments.
  if (mark === "#" && at > 0 && !/\s/.test(code[at - 1])) return undefined;
  const end = code.indexOf("\n", at);
  return code.slice(at, end < 0 ? code.length : end);
}

function quoted(code: string, at: number, language: Language): string | undefined {
  const mark = language.quotes?.find((q) => code.startsWith(q, at));
  if (mark === undefined) return undefined;
  const manyLines = mark.length === 3 || mark === "`";
  let end = at + mark.length;
  for (; end < code.length; end++) {
    if (code[end] === "\\") end++;
    else if (code[end] === "\n" && !manyLines) return code.slice(at, end);
    else if (code.startsWith(mark, end)) return code.slice(at, end + mark.length);
  }
  return code.slice(at);
}

function readCode(code: string, language: Language, pieces: Pieces): void {
  for (let at = 0; at < code.length;) {
    const take = (text: string, colour?: Colour) => {
      pieces.add(text, colour);
      at += text.length;
    };
    const space = match(SPACE, code, at);
    if (space !== undefined) {
      take(space);
      continue;
    }
    const comment = blockComment(code, at, language) ?? lineComment(code, at, language);
    if (comment !== undefined) {
      take(comment, "comment");
      continue;
    }
    const text = quoted(code, at, language);
    if (text !== undefined) {
      take(text, language.keys && isKey(code, at + text.length) ? "key" : "string");
      continue;
    }
    const number = match(NUMBER, code, at);
    if (number !== undefined) {
      take(number, "number");
      continue;
    }
    const word = match(language.keys ? WORD : NAME, code, at);
    if (word !== undefined) take(word, colourOf(word, code, at, language));
    else take(String.fromCodePoint(code.codePointAt(at)!));
  }
}

/** Whether what ends here is a key: a colon or an equals sign follows. */
function isKey(code: string, at: number): boolean {
  return /^[ \t]*[:=]/.test(code.slice(at, at + 40));
}

function colourOf(word: string, code: string, at: number, language: Language): Colour | undefined {
  const { keywords, constants, anyCase, keys, dollar } = language;
  if (constants?.has(word)) return "constant";
  if (keywords?.has(anyCase ? word.toLowerCase() : word)) return "keyword";
  if (keys && isKey(code, at + word.length)) return "key";
  if (dollar && word.startsWith("$")) return "constant";
  if (keywords === undefined || anyCase) return undefined;
  if (code[at + word.length] === "(") return "function";
  if (/^\p{Lu}/u.test(word) && /\p{Ll}/u.test(word)) return "type";
  return undefined;
}
