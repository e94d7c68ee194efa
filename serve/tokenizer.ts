/**
 * The part of a tokenizer that a server needs.
 * @module
 */
import type { Tokenizer as CoreTokenizer } from "../core/tokenizer/types.ts";

/** Text to ids and back: the part of a tokenizer that a server needs. */
export type Tokenizer = Pick<
  CoreTokenizer,
  | "n_vocab"
  | "byIds"
  | "model"
  | "bos"
  | "eos"
  | "sep"
  | "addBos"
  | "addEos"
  | "addSep"
  | "eogIds"
  | "encode"
  | "pieceBytes"
  | "decode"
  | "isControl"
>;
