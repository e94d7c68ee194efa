/**
 * A trigger of a lazy grammar that is a regular expression. It runs as an automaton: a pattern of a client cannot stall a server,
 * as it could with an engine that goes back.
 * @module
 */
import type { Rules } from "./expr.ts";
import { Grammar, GrammarMatcher } from "./matcher.ts";
import { parseRegex } from "./regex.ts";
import { VocabTrie } from "./vocab_trie.ts";

/** Places at which a match may have begun, kept at once: the first ones. */
const MAX_OPEN = 256;

/** Only bytes are followed here, so the matchers need no tokens. */
const NO_TOKENS = new VocabTrie(0, () => new Uint8Array());

export class PatternTrigger {
  /** Follows what stands before the place where the grammar begins. */
  readonly #before: GrammarMatcher;
  #beforeLives = true;
  /** The rest of the pattern, from that place on. */
  readonly #rest: Grammar;
  /** The match ends where the text ends, behind a token. */
  readonly #toEnd: boolean;
  #open: { from: number; matcher: GrammarMatcher }[] = [];
  #length = 0;

  /**
   * The grammar begins at the pattern's first group, or where the match does if it has none.
   * @param whole The pattern must match the whole text, not a part of it.
   * @throws {TextError} `text.schema_pattern` for what no automaton can follow, such as a reference back.
   */
  constructor(pattern: string, whole: boolean) {
    const fromStart = pattern.startsWith("^"), toEnd = /(^|[^\\])(\\\\)*\$$/.test(pattern);
    const inner = pattern.slice(fromStart ? 1 : 0, toEnd ? -1 : undefined);
    const at = groupAt(inner) ?? 0;
    const before = compiled(`${whole || fromStart ? "^" : ""}${grouped(inner.slice(0, at))}$`);
    this.#rest = compiled(`^${grouped(inner.slice(at))}$`);
    this.#before = new GrammarMatcher(before, NO_TOKENS);
    this.#toEnd = whole || toEnd;
    this.#begin();
  }

  /** Adds a token's bytes. Returns where in the whole text the grammar begins, once the pattern has matched. */
  push(bytes: Uint8Array): number | undefined {
    for (const byte of bytes) {
      const next = Uint8Array.of(byte);
      this.#beforeLives &&= this.#before.accept(next);
      this.#length++;
      this.#open = this.#open.filter(({ matcher }) => matcher.accept(next));
      this.#begin();
      if (!this.#toEnd && this.#matched !== undefined) return this.#matched;
    }
    return this.#matched;
  }

  /** The first beginning whose rest is complete. */
  get #matched(): number | undefined {
    return this.#open.find(({ matcher }) => matcher.done)?.from;
  }

  #begin(): void {
    if (!this.#beforeLives || !this.#before.done || this.#open.length >= MAX_OPEN) return;
    this.#open.push({ from: this.#length, matcher: new GrammarMatcher(this.#rest, NO_TOKENS) });
  }
}

const compiled = (pattern: string): Grammar => {
  const rules: Rules = { root: "root", rules: new Map([["root", parseRegex(pattern)]]) };
  return new Grammar(rules);
};

const grouped = (pattern: string): string => pattern === "" ? "" : `(?:${pattern})`;

/** Where the first group of a pattern begins; undefined where none does, or where the pattern cannot be parted there. */
function groupAt(pattern: string): number | undefined {
  let depth = 0, inClass = false;
  let first: number | undefined;
  for (let i = 0; i < pattern.length; i++) {
    const c = pattern[i];
    if (c === "\\") i++;
    else if (inClass) inClass = c !== "]";
    else if (c === "[") inClass = true;
    else if (c === "(") {
      if (pattern[i + 1] !== "?" && first === undefined) {
        if (depth > 0) return undefined;
        first = i;
      }
      depth++;
    } else if (c === ")") depth--;
    else if (c === "|" && depth === 0) return undefined;
  }
  return first;
}
