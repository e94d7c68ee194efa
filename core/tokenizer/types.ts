/**
 * What a tokenizer offers, and what its parts agree on.
 * @module
 */

import type { IdBuffer } from "./id_buffer.ts";

/** How text becomes ids. */
export interface EncodeOptions {
  /** Put bos first and eos last where the vocabulary says so. Default false. */
  addSpecial?: boolean;
  /** Recognise the text of control tokens. Default false; user-defined tokens are always recognised. */
  parseSpecial?: boolean;
}

/** How ids become text. */
export interface DecodeOptions {
  /** Show the text of control tokens. Default false. */
  special?: boolean;
  /** Leave out one leading bos and one trailing eos where the vocabulary adds them. Default false. */
  removeSpecial?: boolean;
}

/** Bytes to text piece by piece, never half a character; see `Tokenizer.stream`. */
export interface TokenStream {
  /** The text that is certain after this token. */
  push(id: number): string;
  /** What is left: an unfinished character as U+FFFD. */
  flush(): string;
}

/** Ids of tokens with a role; null where the vocabulary has none. */
export interface SpecialIds {
  /** Begins a text. */
  readonly bos: number | null;
  /** Ends a text. */
  readonly eos: number | null;
  /** Ends a turn. */
  readonly eot: number | null;
  /** Ends a message that is not the turn's last. */
  readonly eom: number | null;
  /** Stands for what the vocabulary lacks. */
  readonly unk: number | null;
  /** Separates two texts. */
  readonly sep: number | null;
  /** Fills up a batch. */
  readonly pad: number | null;
  /** Hides a token. */
  readonly mask: number | null;
  /** Before the text in front of the gap. */
  readonly fim_pre: number | null;
  /** Before the text behind the gap. */
  readonly fim_suf: number | null;
  /** Where the gap is. */
  readonly fim_mid: number | null;
  /** Pads fill-in-the-middle prompts. */
  readonly fim_pad: number | null;
  /** Begins a repository's name. */
  readonly fim_rep: number | null;
  /** Begins a file's name. */
  readonly fim_sep: number | null;
}

/** Text to token ids and back. */
export interface Tokenizer extends SpecialIds {
  /** Number of ids. */
  readonly n_vocab: number;
  /** `tokenizer.ggml.model`. */
  readonly model: string;
  /** `tokenizer.ggml.pre`, "default" where it is missing. */
  readonly pre: string;
  /** Whether the vocabulary wants bos before a text. */
  readonly addBos: boolean;
  /** Whether the vocabulary wants eos after a text. */
  readonly addEos: boolean;
  /** Whether the vocabulary wants sep between two texts. */
  readonly addSep: boolean;
  /** Whether a space is put before a text. */
  readonly addSpacePrefix: boolean;
  /** Ids that end a generation. */
  readonly eogIds: ReadonlySet<number>;
  /** Whether there is no vocabulary: ids have no texts, and texts are refused. */
  readonly byIds: boolean;
  /** What is suspect about the vocabulary, in sentences for the user. */
  readonly warnings: readonly string[];

  /** Token ids of a text. Lone surrogates count as U+FFFD. */
  encode(text: string, options?: EncodeOptions): Int32Array;
  /**
   * The bytes that one token adds to a text.
   * @param special Show the text of control tokens, which otherwise give nothing.
   * @throws {TextError} `text.token_id` for an id outside the vocabulary.
   */
  pieceBytes(id: number, special?: boolean): Uint8Array;
  /** A token's text as the vocabulary writes it (mapped bytes, U+2581 for spaces). */
  tokenText(id: number): string;
  /** Id of a token by the text that the vocabulary writes, or null. */
  tokenId(text: string): number | null;
  /** Control, unknown or user-defined: matched as a whole in text. */
  isSpecial(id: number): boolean;
  /** Never part of a text by itself. */
  isControl(id: number): boolean;
  /** Put in by whoever made the vocabulary; recognised in any text. */
  isUserDefined(id: number): boolean;
  /** Unused slots of the vocabulary; they have no text. */
  isUnused(id: number): boolean;
  /** Text of a whole sequence; invalid UTF-8 becomes U+FFFD. */
  decode(ids: ArrayLike<number>, options?: DecodeOptions): string;
  /** Bytes of a whole sequence. */
  decodeBytes(ids: ArrayLike<number>, options?: DecodeOptions): Uint8Array;
  /** A decoder of one growing sequence. Pieces come as they are: no space is removed anywhere. */
  stream(options?: { special?: boolean }): TokenStream;
}

/** Token types as `tokenizer.ggml.token_type` has them. */
export const TOKEN_TYPE = {
  undefined: 0,
  normal: 1,
  unknown: 2,
  control: 3,
  userDefined: 4,
  unused: 5,
  byte: 6,
} as const;

/** One algorithm: turns text between special tokens into ids. */
export interface FragmentEncoder {
  /**
   * Appends the ids of `text`, which is not empty and has no lone surrogates.
   * @param isStart At the text's start or right after a special token.
   */
  encode(text: string, out: IdBuffer, isStart: boolean): void;
}
