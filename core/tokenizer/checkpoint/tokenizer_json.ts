/**
 * Readers of the parts of a `tokenizer.json`: texts and ids, merges, and what its normalizers and decoders say.
 * @module
 */

import { isObject, type JsonObject, malformed, tokenText } from "./files.ts";
import type { TokenList } from "./token_list.ts";

/** Texts that the config names as special. */
export function specialTexts(config: JsonObject | undefined): string[] {
  const roles = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"].map((kind) => tokenText(config?.[`${kind}_token`]));
  const more = config?.additional_special_tokens ?? config?.extra_special_tokens;
  const extra = Array.isArray(more) ? more : isObject(more) ? Object.values(more) : [];
  return [...roles, ...extra].filter((text): text is string => typeof text === "string");
}

export function vocabOf(tokenizer: JsonObject): [string, number][] {
  const vocab = isObject(tokenizer.model) ? tokenizer.model.vocab : undefined;
  if (!isObject(vocab)) throw malformed("tokenizer.json", "model.vocab", vocab, "an object of texts and ids");
  const entries = Object.entries(vocab);
  for (const [text, id] of entries) {
    if (!Number.isSafeInteger(id)) throw malformed("tokenizer.json", `model.vocab[${text}]`, id, "an id");
  }
  return entries as [string, number][];
}

export function bpeModel(tokenizer: JsonObject): { vocab: [string, number][]; merges: string[] } {
  const list = isObject(tokenizer.model) ? tokenizer.model.merges : undefined;
  if (!Array.isArray(list)) throw malformed("tokenizer.json", "model.merges", list, "an array");
  const merges = list.map((merge, i) => {
    if (typeof merge === "string") return merge;
    if (Array.isArray(merge) && merge.length === 2 && merge.every((part) => typeof part === "string")) {
      // a space inside a part would read as the gap between the two
      return merge.map((part: string) => part.replaceAll(" ", "\u0120")).join(" ");
    }
    throw malformed("tokenizer.json", `model.merges[${i}]`, merge, "a string or a pair of strings");
  });
  return { vocab: vocabOf(tokenizer), merges };
}

export function tokenCount(vocab: readonly [string, number][], added: readonly { id: number }[]): number {
  let n = 0;
  for (const [, id] of vocab) if (id >= n) n = id + 1;
  for (const { id } of added) if (id >= n) n = id + 1;
  return n;
}

/** Whether text goes through the byte map. */
export function isByteLevel(tokenizer: JsonObject | undefined): boolean {
  const has = (entry: unknown): boolean =>
    isObject(entry) &&
    (entry.type === "ByteLevel" ||
      [entry.pretokenizers, entry.decoders].some((list) => Array.isArray(list) && list.some(has)));
  return has(tokenizer?.pre_tokenizer) || has(tokenizer?.decoder);
}

export function isSpacedBpe(tokenizer: JsonObject): boolean {
  return isObject(tokenizer.model) && tokenizer.model.byte_fallback === true && !isByteLevel(tokenizer);
}

/** Gives each token the score by which SentencePiece's order of merging is that of the list: the earlier, the higher. */
export function scoreByMerges(list: TokenList, merges: readonly string[]): void {
  const ids = new Map(list.texts.map((text, id) => [text, id]));
  const seen = new Set<number>();
  merges.forEach((merge, rank) => {
    const id = ids.get(merge.replace(" ", ""));
    if (id === undefined || seen.has(id)) return;
    seen.add(id);
    list.scores[id] = -rank;
  });
}

/** Whether a text gets a space of its own at the start. */
export function prependsSpace(tokenizer: JsonObject): boolean {
  const has = (entry: unknown): boolean =>
    isObject(entry) &&
    (entry.type === "Prepend" ||
      (entry.type === "Metaspace" && entry.prepend_scheme !== "never" && entry.add_prefix_space !== false) ||
      [entry.normalizers, entry.pretokenizers].some((list) => Array.isArray(list) && list.some(has)));
  return has(tokenizer.normalizer) || has(tokenizer.pre_tokenizer);
}

/** The SentencePiece settings that a unigram `tokenizer.json` spreads over its normalizer and pre-tokenizer. */
export function unigramNormalizer(
  tokenizer: JsonObject,
): { addPrefix: boolean; removeExtra: boolean; charsmap?: Uint8Array } {
  const found = { addPrefix: false, removeExtra: false } as ReturnType<typeof unigramNormalizer>;
  const visit = (entry: unknown): void => {
    if (!isObject(entry)) return;
    for (const list of [entry.normalizers, entry.pretokenizers]) if (Array.isArray(list)) list.forEach(visit);
    if (entry.type === "Precompiled" && typeof entry.precompiled_charsmap === "string") {
      found.charsmap = Uint8Array.from(atob(entry.precompiled_charsmap), (c) => c.charCodeAt(0));
    }
    if (entry.type === "Replace" && joinsSpaces(entry)) found.removeExtra = true;
    if (entry.type === "WhitespaceSplit") found.removeExtra = true;
    if (entry.type === "Metaspace") {
      found.addPrefix = entry.add_prefix_space !== false && entry.prepend_scheme !== "never";
    }
  };
  visit(tokenizer.normalizer);
  visit(tokenizer.pre_tokenizer);
  return found;
}

/** Normalizers that a GGUF vocabulary of each model can hold. */
const HELD_NORMALIZERS: Record<"gpt2" | "t5" | "bert", ReadonlySet<string>> = {
  gpt2: new Set(["NFC"]),
  t5: new Set(["Precompiled", "Replace", "Strip"]), // two spaces by one; the other replacements are checked apart
  bert: new Set(["BertNormalizer", "Lowercase", "StripAccents", "NFD"]),
};

/** Sentences on the normalizers that get lost: texts that they change have other ids than the release's. */
export function lostNormalizers(tokenizer: JsonObject, model: keyof typeof HELD_NORMALIZERS): string[] {
  const lost = new Set<string>();
  const visit = (entry: unknown): void => {
    if (!isObject(entry)) return;
    if (Array.isArray(entry.normalizers)) entry.normalizers.forEach(visit);
    else if (!HELD_NORMALIZERS[model].has(String(entry.type)) || (entry.type === "Replace" && !joinsSpaces(entry))) {
      lost.add(String(entry.type));
    }
  };
  visit(tokenizer.normalizer);
  return [...lost].map((type) =>
    `tokenizer.json normalizes text by ${type}, which a vocabulary of model ${model} cannot say in GGUF: texts that it ` +
    "changes will not have the release's ids"
  );
}

function joinsSpaces(entry: JsonObject): boolean {
  return isObject(entry.pattern) && entry.pattern.Regex === " {2,}";
}
