/**
 * Vocabularies and goldens for the tests of this folder.
 * @module
 */

import { Metadata } from "../gguf/metadata.ts";
import { repoDir } from "../../tests/shared.ts";
import { type CheckpointFiles, vocabularyFromCheckpoint } from "./checkpoint/mod.ts";
import { tokenizerFromGguf } from "./tokenizer.ts";
import type { Tokenizer } from "./types.ts";

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

/** The vocabularies that the goldens are of. */
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
