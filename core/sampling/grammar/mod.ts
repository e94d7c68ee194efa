/**
 * Grammars that constrain an answer: GBNF and JSON Schema to a mask over the vocabulary.
 *
 * @example
 * ```ts
 * import { compileGbnf, GrammarMatcher, VocabTrie } from "./mod.ts";
 * const pieces = ["y", "yes", "no", "maybe"].map((s) => new TextEncoder().encode(s));
 * const matcher = new GrammarMatcher(compileGbnf('root ::= "yes" | "no"'), new VocabTrie(4, (id) => pieces[id]));
 * matcher.allowed()[0]; // 0b0111
 * matcher.accept(pieces[2]); // true
 * matcher.done; // true
 * ```
 * @module
 */
import { parseGbnf } from "./gbnf.ts";
import { parseJsonSchema } from "./json_schema.ts";
import { Grammar } from "./matcher.ts";

export { Grammar, GrammarMatcher } from "./matcher.ts";
export { type GrammarTrigger, TriggerWatch } from "./triggers.ts";
export { VocabTrie } from "./vocab_trie.ts";

/** @throws {TextError} `text.grammar_syntax`, `text.grammar_left_recursion`, `text.grammar_too_large` */
export const compileGbnf = (source: string): Grammar => new Grammar(parseGbnf(source));

/** @throws {TextError} `text.schema`, `text.grammar_left_recursion`, `text.grammar_too_large` */
export const compileJsonSchema = (schema: unknown): Grammar => new Grammar(parseJsonSchema(schema));
