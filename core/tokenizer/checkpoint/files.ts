/**
 * A released checkpoint's tokenizer files, and the parts of them that are read, checked where they are used.
 * @module
 */

import { TextError } from "../../errors.ts";

/** The files of a checkpoint's folder, by name; undefined for a file that the folder lacks. */
export interface CheckpointFiles {
  /** Parsed JSON. */
  json(name: string): unknown | undefined;
  bytes(name: string): Uint8Array | undefined;
  /** Names of the files in a subfolder; only asked for `additional_chat_templates`. */
  list?(folder: string): readonly string[];
}

export type JsonObject = { readonly [key: string]: unknown };

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** An object file, or undefined where the file is missing. */
export function jsonObject(files: CheckpointFiles, name: string): JsonObject | undefined {
  const value = files.json(name);
  if (value === undefined) return undefined;
  if (!isObject(value)) throw malformed(name, "the file", value, "an object");
  return value;
}

export function malformed(file: string, field: string, got: unknown, expected: string): TextError {
  const shown = JSON.stringify(got)?.slice(0, 80) ?? String(got);
  return new TextError("text.checkpoint", `Cannot read ${file}: ${field} is ${shown}, expected ${expected}`, {
    at: { file, field, expected },
    hint: "the checkpoint's tokenizer files are damaged or of a form that is not supported: download them again",
  });
}

/** One entry of `added_tokens`. */
export interface AddedToken {
  readonly id: number;
  readonly content: string;
  readonly special: boolean;
}

/** Added tokens of `tokenizer.json` in its order. */
export function addedTokens(tokenizer: JsonObject): AddedToken[] {
  const list = tokenizer.added_tokens ?? [];
  if (!Array.isArray(list)) throw malformed("tokenizer.json", "added_tokens", list, "an array");
  return list.map((entry, i) => readAddedToken("tokenizer.json", `added_tokens[${i}]`, entry, entry?.id));
}

/** Added tokens of `tokenizer_config.json`, whose keys are the ids. */
export function addedTokensDecoder(config: JsonObject | undefined): AddedToken[] {
  const map = config?.added_tokens_decoder ?? {};
  if (!isObject(map)) throw malformed("tokenizer_config.json", "added_tokens_decoder", map, "an object");
  return Object.entries(map).map(([id, entry]) =>
    readAddedToken("tokenizer_config.json", `added_tokens_decoder[${id}]`, entry, Number(id))
  );
}

function readAddedToken(file: string, field: string, entry: unknown, id: unknown): AddedToken {
  if (!isObject(entry) || typeof entry.content !== "string" || !Number.isSafeInteger(id) || (id as number) < 0) {
    throw malformed(file, field, entry, "a token with an id and its content");
  }
  return { id: id as number, content: entry.content, special: entry.special === true };
}

/** Text of a `bos_token`-like entry: a string, or an added token as an object. */
export function tokenText(entry: unknown): string | undefined {
  if (typeof entry === "string") return entry;
  return isObject(entry) && typeof entry.content === "string" ? entry.content : undefined;
}

/** Added tokens that ought to be control tokens although nothing says so. */
export function looksSpecial(text: string): boolean {
  return ["<pad>", "<mask>", "<2mass>", "[@BOS@]"].includes(text) ||
    (text.startsWith("<|") && text.endsWith("|>")) || (text.startsWith("<｜") && text.endsWith("｜>")) ||
    (text.startsWith("<unused") && text.endsWith(">"));
}
