/**
 * The `prompt` field of the completion routes: a text, ids, a mix of both, or several of them.
 * @module
 */
import { badRequest, unsupported } from "./errors.ts";
import type { Tokenizer } from "./tokenizer.ts";

type Piece = string | number;
/** A text in an object, beside which there could be pictures. */
interface Wrapped {
  prompt_string: string;
  multimodal_data?: unknown[] | undefined;
}
/** The field as the schema lets it through. */
export type PromptField = string | Wrapped | (Piece | Wrapped | Piece[])[];

/**
 * The prompts of a request as ids. Texts get the tokens that the vocabulary puts around a text; ids stay as they are.
 * An array of texts is several prompts, an array with ids in it is one.
 * @param name Of the field, for messages.
 * @throws ApiError 400 for empty prompts and ids outside the vocabulary.
 */
export function promptsOf(field: PromptField, tokenizer: Tokenizer, name = "prompt"): Int32Array[] {
  if (typeof field === "string" || !Array.isArray(field)) {
    return [encode([unwrap(field, name)], tokenizer, name)];
  }
  if (field.length === 0) {
    throw badRequest(`${name}: expected at least one token or text, found an empty array`, name);
  }
  if (field.some((p) => typeof p === "number") && field.every((p) => typeof p === "number" || typeof p === "string")) {
    return [encode(field, tokenizer, name)];
  }
  return field.map((prompt, i) => {
    const param = `${name}[${i}]`;
    if (typeof prompt === "number") {
      throw badRequest(`${param}: expected a prompt like the others of the array, found the token ${prompt}`, param);
    }
    return encode(Array.isArray(prompt) ? prompt : [unwrap(prompt, param)], tokenizer, param);
  });
}

function unwrap(prompt: string | Wrapped, param: string): string {
  if (typeof prompt === "string") return prompt;
  if (prompt.multimodal_data?.length) throw unsupported(`${param}.multimodal_data`, "this model reads text only");
  return prompt.prompt_string;
}

function encode(pieces: Piece[], tokenizer: Tokenizer, param: string): Int32Array {
  const ids: number[] = [];
  pieces.forEach((piece, i) => {
    if (typeof piece === "string") {
      for (const id of tokenizer.encode(piece, { addSpecial: i === 0, parseSpecial: true })) ids.push(id);
    } else {
      ids.push(piece);
    }
  });
  checkIds(ids, tokenizer, param);
  if (ids.length === 0) {
    throw badRequest(`${param}: expected at least one token, found none (this vocabulary adds no start token)`, param);
  }
  return Int32Array.from(ids);
}

/** @throws ApiError 400 for an id outside the vocabulary. */
export function checkIds(ids: readonly number[], tokenizer: Tokenizer, param: string): void {
  const wrong = ids.find((id) => id >= tokenizer.n_vocab);
  if (wrong === undefined) return;
  throw badRequest(`${param}: token ${wrong} is outside the vocabulary of ${tokenizer.n_vocab}`, param);
}
