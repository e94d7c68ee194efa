/**
 * A question and a text as one input of a reranker.
 * @module
 */
import type { Tokenizer } from "./tokenizer.ts";

/**
 * The ids of a question and a text: by the file's template where it has one, else one after the other with the tokens between and
 * around them that the vocabulary wants, as llama-server puts them. Word pieces therefore end without a separator.
 * @param template Has `{query}` and `{document}`; the texts of control tokens are read as these in all of it.
 */
export function pairIds(
  tokenizer: Tokenizer,
  query: string,
  document: string,
  template: string | undefined,
): Int32Array {
  if (template !== undefined) {
    // In one pass: a text that names the other place is a text.
    const text = template.replaceAll(/\{(query|document)\}/g, (_, of) => of === "query" ? query : document);
    return tokenizer.encode(text, { parseSpecial: true });
  }
  const end = tokenizer.eos ?? tokenizer.sep;
  const one = (wanted: boolean, id: number | null) => wanted && id !== null ? [id] : [];
  return Int32Array.of(
    ...one(tokenizer.addBos, tokenizer.bos),
    ...tokenizer.encode(query),
    ...one(tokenizer.addEos, end),
    ...one(tokenizer.addSep, tokenizer.sep),
    ...tokenizer.encode(document),
    ...one(tokenizer.addEos, end),
  );
}
