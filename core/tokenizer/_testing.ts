/**
 * Vocabularies and goldens for the tests of this folder.
 * @module
 */

import { Metadata } from "../gguf/metadata.ts";
import { repoDir } from "../../tests/shared.ts";
import { type CheckpointFiles, vocabularyFromCheckpoint } from "./checkpoint/mod.ts";
import { readSentencePiece, type SentencePieceModel } from "./checkpoint/sentencepiece.ts";
import { tokenizerFromGguf } from "./tokenizer.ts";
import { TOKEN_TYPE, type Tokenizer } from "./types.ts";

export const goldenDir = `${repoDir}tests/goldens/tokenizer/`;

export const readJson = (path: string) => JSON.parse(Deno.readTextFileSync(path));

/** A checkpoint's folder on disk. */
export function folder(path: string): CheckpointFiles {
  const read = (name: string) => {
    try {
      return Deno.readFileSync(`${path}/${name}`);
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return undefined;
      throw error;
    }
  };
  return {
    json: (name) => {
      const bytes = read(name);
      return bytes && JSON.parse(new TextDecoder().decode(bytes));
    },
    bytes: read,
  };
}

/** A checkpoint of files given here: bytes or parsed JSON. */
export function filesOf(files: Record<string, unknown>): CheckpointFiles {
  return {
    json: (name) => files[name] instanceof Uint8Array ? undefined : files[name],
    bytes: (name) => files[name] instanceof Uint8Array ? files[name] : undefined,
  };
}

export function metadataFromCheckpoint(files: CheckpointFiles, name: string = "test"): Metadata {
  return new Metadata(name, vocabularyFromCheckpoint(files).entries);
}

/** The `tokenizer.json` that a release of the SentencePiece unigram model would have. */
function unigramJson(model: SentencePieceModel): Record<string, unknown> {
  const metaspace = { type: "Metaspace", replacement: "\u2581", prepend_scheme: "always", split: true };
  const isSpecial = (type: number) => type === TOKEN_TYPE.control || type === TOKEN_TYPE.unknown;
  const added = model.pieces.flatMap(({ text, type }, id) => isSpecial(type) ? [{ id, content: text }] : []);
  return {
    version: "1.0",
    added_tokens: added.map((token) => ({
      ...token,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: {
      type: "Sequence",
      normalizers: [
        { type: "Precompiled", precompiled_charsmap: btoa(String.fromCharCode(...model.precompiledCharsmap)) },
        { type: "Replace", pattern: { Regex: " {2,}" }, content: " " },
      ],
    },
    pre_tokenizer: metaspace,
    decoder: metaspace,
    model: {
      type: "Unigram",
      unk_id: model.pieces.findIndex(({ type }) => type === TOKEN_TYPE.unknown),
      vocab: model.pieces.map(({ text, score }) => [text, score]),
      byte_fallback: false,
    },
  };
}

/** bloom-nano's tokens as a `tiktoken.model`: their bytes in base64, and their ids. */
function tiktokenModel(): Uint8Array {
  const nano = tokenizerFromGguf(metadataFromCheckpoint(folder(`${repoDir}models/bloom-nano`)));
  const ids = Object.values(
    readJson(`${repoDir}models/bloom-nano/tokenizer.json`).model.vocab as Record<string, number>,
  )
    .sort((a, b) => a - b);
  return new TextEncoder().encode(
    ids.map((id) => `${btoa(String.fromCharCode(...nano.pieceBytes(id)))} ${id}\n`).join(""),
  );
}

/** Small vocabularies, one of each kind; the first four are those that the goldens are of. */
export const SMALL: Record<string, () => CheckpointFiles> = {
  bloom_nano: () => folder(`${repoDir}models/bloom-nano`),
  spm: () =>
    filesOf({
      "config.json": { architectures: ["LlamaForCausalLM"] },
      "tokenizer.model": Deno.readFileSync(`${goldenDir}spm.model`),
    }),
  unigram: () =>
    filesOf({
      "config.json": { architectures: ["T5ForConditionalGeneration"], eos_token_id: 1, pad_token_id: 0 },
      "tokenizer.model": Deno.readFileSync(`${goldenDir}unigram.model`),
    }),
  wordpiece: () =>
    filesOf({
      "config.json": { architectures: ["BertModel"] },
      "tokenizer.json": readJson(`${goldenDir}wordpiece.json`),
      "tokenizer_config.json": {
        cls_token: "[CLS]",
        sep_token: "[SEP]",
        pad_token: "[PAD]",
        unk_token: "[UNK]",
        mask_token: "[MASK]",
      },
    }),
  unigram_json: () =>
    filesOf({
      "config.json": { architectures: ["T5ForConditionalGeneration"], eos_token_id: 1, pad_token_id: 0 },
      "tokenizer.json": unigramJson(readSentencePiece(Deno.readFileSync(`${goldenDir}unigram.model`), "unigram.model")),
    }),
  tiktoken: () =>
    filesOf({
      "tiktoken.model": tiktokenModel(),
      "config.json": { architectures: ["DeepseekV3ForCausalLM"], vocab_size: 8440 },
      "tokenizer_config.json": {
        added_tokens_decoder: { 8181: { content: "[EOS]", special: true } },
        eos_token: "[EOS]",
      },
    }),
};

const opened = new Map<string, Tokenizer>();

/** One of `SMALL`, opened once. */
export function small(name: string): Tokenizer {
  let tokenizer = opened.get(name);
  if (!tokenizer) opened.set(name, tokenizer = tokenizerFromGguf(metadataFromCheckpoint(SMALL[name](), name)));
  return tokenizer;
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
