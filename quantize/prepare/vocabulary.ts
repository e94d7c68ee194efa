/**
 * The vocabulary keys of a checkpoint.
 * @module
 */
import { ggufValue, type Metadata } from "../../core/gguf/metadata.ts";
import type { Checkpoint } from "../../core/safetensors/read.ts";
import { vocabularyFromCheckpoint } from "../../core/tokenizer/mod.ts";

/** A file of the folder, or undefined. */
function fileBytes(path: string): Uint8Array | undefined {
  try {
    return Deno.readFileSync(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/** The text of a file, or undefined where there is none. */
export function textOf(path: string): string | undefined {
  const bytes = fileBytes(path);
  return bytes && new TextDecoder().decode(bytes);
}

function fileNames(path: string): string[] {
  try {
    return [...Deno.readDirSync(path)].filter((e) => e.isFile).map((e) => e.name).sort();
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return [];
    throw error;
  }
}

/**
 * Writes `tokenizer.*`.
 *
 * @param architecture Class name whose habits the vocabulary follows.
 * @param chatTemplate Takes the place of the checkpoint's template.
 * @returns warnings, each a sentence for the user.
 */
export function writeVocabulary(
  metadata: Metadata,
  checkpoint: Checkpoint,
  architecture: string,
  chatTemplate: string | undefined,
): readonly string[] {
  const { dir } = checkpoint;
  const vocabulary = vocabularyFromCheckpoint({
    json: (name) => checkpoint.json(name),
    bytes: (name) => fileBytes(dir + name),
    list: (folder) => fileNames(dir + folder),
  }, { architecture });
  for (const [key, value] of vocabulary.entries) metadata.set(key, value);
  if (chatTemplate !== undefined) metadata.set("tokenizer.chat_template", ggufValue.str(chatTemplate));
  return vocabulary.warnings;
}
