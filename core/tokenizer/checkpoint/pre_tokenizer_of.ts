/**
 * Which `tokenizer.ggml.pre` a released `tokenizer.json` has. Its own definition says how text is cut; where several
 * names cut alike, the hash of what it makes of a probe text says which of them llama.cpp writes. A vocabulary that no
 * hash knows still gets a name by its definition, so a new model of an old kind needs no new row anywhere.
 * @module
 */

import { createHash } from "node:crypto";
import { isObject, type JsonObject } from "./files.ts";
import { KNOWN_PRE_TOKENIZERS, PROBE_TEXT } from "./known_pre_tokenizers.ts";

const CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const TAIL = "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const words = (number: string) =>
  `${CONTRACTION}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${number}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${TAIL}`;
const UPPER = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]";
const LOWER = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]";
const cased = (contraction: string, number: string) =>
  `[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+${contraction}|[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*${contraction}|` +
  `${number}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${TAIL}`;
const CJK = "[一-龥぀-ゟ゠-ヿ]+";
const ASCII_WORDS =
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|" +
  ` ?[\\p{P}\\p{S}]+[\\r\\n]*|${TAIL}`;

/** Steps of a definition, one a line, and the name that stands for it. */
export const DEFINITIONS: readonly (readonly [steps: readonly string[], name: string])[] = [
  [[words("\\p{N}")], "qwen2"],
  [[words("\\p{N}{1,3}")], "llama-bpe"],
  [[
    `${CONTRACTION}|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${TAIL}`,
  ], "qwen35"],
  [["bytelevel"], "gpt-2"],
  [["digits", "bytelevel"], "starcoder"],
  [["\\p{N}", "bytelevel"], "starcoder"],
  [["punctuation", "bytelevel", "digit-runs", "[0-9][0-9][0-9]"], "falcon"],
  [["punctuation", "bytelevel", "[0-9][0-9][0-9]"], "falcon"],
  [[cased(CONTRACTION + "?", "\\p{N}{1,3}")], "gpt-4o"],
  [[cased("", "\\p{N}")], "tekken"],
  [["\\p{N}{1,3}", CJK, ASCII_WORDS], "deepseek-v3"],
  [["[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "digits"], "deepseek-coder"],
  [["\\p{N}{1,3}", words("\\p{N}+")], "minicpm5"],
  [[` ?[^(\\s|[.,!?…。，、।۔،])]+`], "bloom"],
  [["[^\\n]+|[\\n]+", words("\\p{N}")], "laguna"],
];

/**
 * The form of a regex in which equal ones are equal strings: one spelling of the contractions and of line ends, no
 * possessive quantifiers (they only forbid backtracking that finds nothing).
 */
function canonical(regex: string): string {
  return regex
    .replaceAll("\r", "\\r").replaceAll("\n", "\\n")
    .replace(/([?*+]|\{\d+(?:,\d*)?\})\+/g, "$1")
    .replaceAll("'(?i:[sdmt]|ll|ve|re)", CONTRACTION)
    .replaceAll("(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])", CONTRACTION)
    .replaceAll("(?:'s|'S|'t|'T|'re|'RE|'ve|'VE|'m|'M|'ll|'LL|'d|'D)", CONTRACTION);
}

/** The cutting steps of a `pre_tokenizer` entry; undefined where one of them is of a kind that is not known. */
function stepsOf(entry: unknown): string[] | undefined {
  if (!isObject(entry)) return undefined;
  switch (entry.type) {
    case "Sequence": {
      const parts = Array.isArray(entry.pretokenizers) ? entry.pretokenizers.map(stepsOf) : [undefined];
      return parts.includes(undefined) ? undefined : parts.flatMap((part) => part!);
    }
    case "Split": {
      const pattern = isObject(entry.pattern) ? entry.pattern.Regex : undefined;
      const isolates = entry.behavior === "Isolated" || (entry.behavior === "Removed" && entry.invert === true);
      return typeof pattern === "string" && isolates ? [canonical(pattern)] : undefined;
    }
    case "ByteLevel":
      return entry.use_regex === false ? [] : ["bytelevel"];
    case "Digits":
      return [entry.individual_digits === true ? "digits" : "digit-runs"];
    case "Punctuation":
      return entry.behavior === "Contiguous" ? ["punctuation"] : undefined;
    default:
      return undefined;
  }
}

/** A name whose steps are those of the definition, or undefined where the definition is not known. */
export function preTokenizerByDefinition(tokenizer: JsonObject): string | undefined {
  const steps = stepsOf(tokenizer.pre_tokenizer);
  if (!steps) return undefined;
  const found = DEFINITIONS.find(([known]) => known.length === steps.length && known.every((s, i) => s === steps[i]));
  if (!found) return undefined;
  const ignoresMerges = isObject(tokenizer.model) && tokenizer.model.ignore_merges === true;
  // the same cuts, but merges count
  return found[1] === "llama-bpe" && !ignoresMerges ? "smaug-bpe" : found[1];
}

/** Name by the hash of the probe text's ids, special tokens of the post-processor included. */
export function preTokenizerByHash(ids: readonly number[]): string | undefined {
  const hash = createHash("sha256").update(`[${ids.join(", ")}]`).digest("hex");
  return KNOWN_PRE_TOKENIZERS.get(hash);
}

export { PROBE_TEXT };

/** Ids that the post-processor puts around one text. */
export function idsAround(tokenizer: JsonObject): { before: number[]; after: number[] } {
  const around = { before: [] as number[], after: [] as number[] };
  const visit = (processor: unknown): void => {
    if (!isObject(processor)) return;
    if (Array.isArray(processor.processors)) processor.processors.forEach(visit);
    if (processor.type === "RobertaProcessing" || processor.type === "BertProcessing") {
      if (Array.isArray(processor.cls)) around.before.push(Number(processor.cls[1]));
      if (Array.isArray(processor.sep)) around.after.push(Number(processor.sep[1]));
    }
    if (processor.type !== "TemplateProcessing" || !Array.isArray(processor.single)) return;
    const tokens = isObject(processor.special_tokens) ? processor.special_tokens : {};
    let side = around.before;
    for (const entry of processor.single) {
      if (isObject(entry) && isObject(entry.Sequence)) side = around.after;
      if (!isObject(entry) || !isObject(entry.SpecialToken)) continue;
      const token = tokens[String(entry.SpecialToken.id)];
      if (isObject(token) && Array.isArray(token.ids)) side.push(...token.ids.map(Number));
    }
  };
  visit(tokenizer.post_processor);
  return around;
}
