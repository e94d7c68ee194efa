/**
 * Template source to a syntax tree, with `@huggingface/jinja`: the only module that imports it.
 *
 * The library's lexer and parser are used, its evaluator is not: JavaScript shows through it (`1 == "1"`, JSON where
 * Python prints a repr, ignored arguments of lstrip, one scope for all rounds of a loop), see evaluate.ts. Some
 * things are added here: tests with arguments (`x is divisibleby(3)`, `x is in [1]`), which the parser does not know,
 * line numbers, and the checks that every filter and test exists and that there are no comprehensions, which the parser
 * takes for lists without commas.
 * @module
 */
import { parse as libraryParse, tokenize as libraryTokenize } from "@huggingface/jinja";

/** A node of the tree; `type` names it, the other fields depend on it (see evaluate.ts, which knows them all). */
export interface Node {
  type: string;
  [field: string]: any;
}

/** A source that is no template; `line` counts from 1. */
export class TemplateSyntaxError extends Error {
  constructor(message: string, readonly line: number) {
    super(message);
  }
}

type Token = ReturnType<typeof libraryTokenize>[number];

const OPTIONS = { lstrip_blocks: true, trim_blocks: true };

/** Filters that stand for a test with arguments: the parser takes arguments after `|` but not after `is`. */
export const TEST_FILTER = "is ";
export const NOT_TEST_FILTER = "is not ";

/**
 * Parses a template.
 * @throws {TemplateSyntaxError} on bad syntax, and on filters and tests that `known` denies.
 */
export function parse(
  source: string,
  known: { filter(name: string): boolean; test(name: string): boolean },
): Node {
  const text = source.replace(/\r\n?/g, "\n");
  /** The line of the tag that a token stands in. */
  const tagLine = (list: readonly Token[], at: number) => {
    const tags = list.slice(0, at + 1).filter((t) => t.type === "OpenStatement" || t.type === "OpenExpression");
    return lineOf(text, tagStarts(text)[tags.length - 1] ?? 0);
  };
  let tokens: Token[];
  try {
    tokens = libraryTokenize(text, OPTIONS);
  } catch (e) {
    throw new TemplateSyntaxError((e as Error).message, lexerErrorLine(text));
  }
  const comprehension = comprehensionAt(tokens);
  if (comprehension >= 0) {
    throw new TemplateSyntaxError(
      "expected ',', found 'for': Jinja has no comprehensions",
      tagLine(tokens, comprehension),
    );
  }
  const list = withTestArguments(tokens);
  let tree: Node;
  try {
    tree = libraryParse(list) as unknown as Node;
  } catch (e) {
    throw new TemplateSyntaxError((e as Error).message, tagLine(list, furthestToken(list)));
  }
  checkNames(tree, text, known);
  return tree;
}

/** The first token that is a `for` within brackets; -1 if no token is. */
function comprehensionAt(tokens: readonly Token[]): number {
  let depth = 0;
  return tokens.findIndex(({ type, value }, i) => {
    if (type === "OpenStatement" || type === "OpenExpression") depth = 0;
    else if (/^Open(SquareBracket|Paren|CurlyBracket)$/.test(type)) depth++;
    else if (/^Close(SquareBracket|Paren|CurlyBracket)$/.test(type)) depth--;
    return depth > 0 && type === "Identifier" && value === "for" && tokens[i - 1].type !== "Dot";
  });
}

/** The parser names no place of an error, so it is run once more: the furthest token it looks at is the place. */
function furthestToken(tokens: Token[]): number {
  let furthest = 0;
  const watched = new Proxy(tokens, {
    get(target, key) {
      if (typeof key === "string" && /^\d+$/.test(key)) furthest = Math.max(furthest, Number(key));
      return Reflect.get(target, key);
    },
  });
  try {
    libraryParse(watched);
  } catch {
    // the same error again
  }
  return furthest;
}

/** Rewrites `x is [not] name(args)` to the filter `x | "is name"(args)`, and so the form with a bare argument. */
function withTestArguments(tokens: Token[]): Token[] {
  const out: Token[] = [];
  const make = (value: string, type: string, like: Token): Token =>
    Object.assign(Object.create(Object.getPrototypeOf(like)), { value, type });
  const word = (t: Token | undefined, value?: string) =>
    t?.type === "Identifier" && (value === undefined || t.value === value);
  for (let i = 0; i < tokens.length; i++) {
    const at = word(tokens[i + 1], "not") ? i + 2 : i + 1;
    const inTag = word(tokens[i], "is") && word(tokens[at]);
    if (!inTag) {
      out.push(tokens[i]);
      continue;
    }
    const next = tokens[at + 1];
    const bare = next !== undefined &&
      (["StringLiteral", "NumericLiteral", "OpenSquareBracket"].includes(next.type) ||
        (tokens[at].value === "in" && word(next)));
    if (next?.type !== "OpenParen" && !bare) {
      out.push(tokens[i]);
      continue;
    }
    const name = (at === i + 2 ? NOT_TEST_FILTER : TEST_FILTER) + tokens[at].value;
    out.push(make("|", "Pipe", tokens[i]), make(name, "Identifier", tokens[at]));
    if (bare) {
      let end = at + 1;
      if (next.type === "OpenSquareBracket") {
        for (let depth = 0; end < tokens.length; end++) {
          if (tokens[end].type === "OpenSquareBracket") depth++;
          if (tokens[end].type === "CloseSquareBracket" && --depth === 0) break;
        }
      } else {
        while (tokens[end + 1]?.type === "Dot") end += 2;
      }
      out.push(make("(", "OpenParen", next), ...tokens.slice(at + 1, end + 1), make(")", "CloseParen", next));
      i = end;
    } else i = at;
  }
  return out;
}

/** Offsets of `{{` and `{%` tags, comments and strings left out. */
function tagStarts(text: string): number[] {
  const starts: number[] = [];
  for (let i = 0; i < text.length - 1; i++) {
    if (text[i] !== "{") continue;
    if (text[i + 1] === "#") {
      const end = text.indexOf("#}", i + 2);
      if (end < 0) break;
      i = end + 1;
    } else if (text[i + 1] === "{" || text[i + 1] === "%") {
      const close = text[i + 1] === "{" ? "}}" : "%}";
      if (!/^\{%-?\s*(end)?generation\s*-?%\}/.test(text.slice(i, i + 40))) starts.push(i);
      for (i += 2; i < text.length && !text.startsWith(close, i); i++) {
        const quote = text[i];
        if (quote !== "'" && quote !== '"') continue;
        for (i++; i < text.length && text[i] !== quote; i++) if (text[i] === "\\") i++;
      }
    }
  }
  return starts;
}

const lineOf = (text: string, offset: number): number => text.slice(0, offset).split("\n").length;

/** The line of the first tag up to whose end the source no longer tokenizes. */
function lexerErrorLine(text: string): number {
  const starts = tagStarts(text);
  for (let i = 0; i < starts.length; i++) {
    try {
      libraryTokenize(text.slice(0, starts[i + 1] ?? text.length), OPTIONS);
    } catch {
      return lineOf(text, starts[i]);
    }
  }
  return lineOf(text, text.indexOf("{#") < 0 ? 0 : text.lastIndexOf("{#"));
}

function checkNames(tree: Node, text: string, known: { filter(n: string): boolean; test(n: string): boolean }): void {
  const refuse = (kind: string, name: string, pattern: RegExp): never => {
    for (const start of tagStarts(text)) {
      // Strings are blanked, so that a name inside one is not taken for the place.
      const rest = text.slice(start).replace(/'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"/gs, (q) => " ".repeat(q.length));
      const inside = rest.split(/[%}]\}/, 1)[0].search(pattern);
      if (inside >= 0) throw new TemplateSyntaxError(`No ${kind} named '${name}'`, lineOf(text, start + inside));
    }
    throw new TemplateSyntaxError(`No ${kind} named '${name}'`, 1);
  };
  const filter = (node: Node) => {
    const name: string = node.type === "CallExpression" ? node.callee.value : node.value;
    const test = [NOT_TEST_FILTER, TEST_FILTER].find((prefix) => name.startsWith(prefix));
    if (test !== undefined) return testName(name.slice(test.length));
    if (!known.filter(name)) refuse("filter", name, new RegExp(`(\\|\\s*|filter\\s+)${name}\\b`));
  };
  const testName = (name: string) => {
    if (!known.test(name)) refuse("test", name, new RegExp(`\\bis\\s+(not\\s+)?${name}\\b`));
  };
  const visit = (value: unknown): void => {
    if (Array.isArray(value)) return value.forEach(visit);
    if (value instanceof Map) return value.forEach((v, k) => (visit(k), visit(v)));
    if (typeof value !== "object" || value === null) return;
    const node = value as Node;
    if (node.type === "FilterExpression" || node.type === "FilterStatement") filter(node.filter);
    if (node.type === "TestExpression") testName(node.test.value);
    Object.values(node).forEach(visit);
  };
  visit(tree);
}
