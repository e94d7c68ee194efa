/**
 * Text to token ids and back, identical to llama.cpp's; vocabularies from GGUF files and from released checkpoints.
 * @module
 */

export type { DecodeOptions, EncodeOptions, SpecialIds, Tokenizer, TokenStream } from "./types.ts";
export { TOKEN_TYPE } from "./types.ts";
export { hasVocabulary, tokenizerFromGguf, type TokenizerOptions } from "./tokenizer.ts";
export { tokenizerByIds } from "./by_ids.ts";
export { vocabularyFromCheckpoint } from "./checkpoint/mod.ts";
export type { CheckpointFiles, Vocabulary, VocabularyOptions } from "./checkpoint/mod.ts";
