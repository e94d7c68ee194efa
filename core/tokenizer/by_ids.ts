/**
 * The tokenizer of a file without a vocabulary: ids are all there is. Texts are refused by name, and every id is an empty text.
 * @module
 */
import { TextError } from "../errors.ts";
import type { Metadata } from "../gguf/metadata.ts";
import type { SpecialIds, Tokenizer } from "./types.ts";

const NO_BYTES = new Uint8Array(0);

/**
 * @param n_vocab Rows of the model's table of tokens.
 * @internal
 */
export function tokenizerByIds(metadata: Metadata, n_vocab: number): Tokenizer {
  const file = metadata.file, model = metadata.str("tokenizer.ggml.model", "none");
  const found = metadata.has("tokenizer.ggml.model")
    ? `tokenizer.ggml.model is ${JSON.stringify(model)}, which is not known`
    : "tokenizer.ggml.model is missing";
  const special = (name: string): number | null => {
    const id = metadata.int(`tokenizer.ggml.${name}_token_id`, -1);
    return id >= 0 && id < n_vocab ? id : null;
  };
  const checked = (id: number) => {
    if (Number.isInteger(id) && id >= 0 && id < n_vocab) return id;
    throw new TextError("text.token_id", `Cannot decode token ${id}: the model has ids 0 to ${n_vocab - 1}`, {
      at: { got: id, n_vocab },
    });
  };
  const ids: SpecialIds = {
    bos: special("bos"),
    eos: special("eos"),
    eot: special("eot"),
    eom: special("eom"),
    unk: special("unknown"),
    sep: special("seperator"), // as the keys spell it
    pad: special("padding"),
    mask: special("mask"),
    fim_pre: special("fim_pre"),
    fim_suf: special("fim_suf"),
    fim_mid: special("fim_mid"),
    fim_pad: special("fim_pad"),
    fim_rep: special("fim_rep"),
    fim_sep: special("fim_sep"),
  };
  return {
    ...ids,
    n_vocab,
    byIds: true,
    model,
    pre: "default",
    addBos: false,
    addEos: false,
    addSep: false,
    addSpacePrefix: false,
    eogIds: new Set([ids.eos, ids.eot, ids.eom].filter((id) => id !== null)),
    warnings: [`${file} has no vocabulary (${found}): it takes and gives token ids only`],
    encode(text) {
      if (text === "") return new Int32Array(0);
      throw new TextError("text.no_vocabulary", `Cannot tokenize a text for ${file}: ${found}`, {
        at: { file, key: "tokenizer.ggml.model" },
        hint: "give token ids in place of texts, or a file with a vocabulary",
      });
    },
    pieceBytes: (id) => (checked(id), NO_BYTES),
    tokenText: (id) => (checked(id), ""),
    tokenId: () => null,
    isSpecial: (id) => Object.values(ids).includes(id),
    isControl: (id) => Object.values(ids).includes(id),
    isUserDefined: () => false,
    isUnused: () => false,
    decode: (list) => (Array.from(list, checked), ""),
    decodeBytes: (list) => (Array.from(list, checked), NO_BYTES),
    stream: () => ({ push: (id) => (checked(id), ""), flush: () => "" }),
  };
}
