/**
 * The pre-tokenizers a GGUF vocabulary can name: which steps cut text into words, and what else the name decides.
 * Facts: the table of names, sets and flags is that of llama.cpp 0.7.0, verified against its binaries.
 *
 * Some regexes are written here in an equal form without captures and nested repeats, so that they run in linear time:
 * on collapsed text `\p{Lu}` and its sisters are all "any letter", and `(?=[\p{L}])[^a-z]` is "a letter, not a-z".
 * @module
 */

import {
  cutThousands,
  cutTrailingSpace,
  exaoneStep,
  groupDigitsFromRight,
  halveSpaces,
  horizonStep,
  kimiStep,
  releasedCasedStep,
} from "./splitters.ts";
import { coveringRegexStep, regexStep, type Step } from "./split.ts";

export interface PreTokenizer {
  readonly name: string;
  /** Names with equal `cuts` cut alike. */
  readonly cuts: string;
  readonly steps: readonly Step[];
  /** A word that is a token is that token, whatever the merges say. */
  readonly ignoreMerges: boolean;
  /** Whole-sequence detokenization drops spaces before punctuation. */
  readonly cleanSpaces: boolean;
  /** Default of add_bos_token. */
  readonly addBos: boolean;
  /** add_bos_token is true whatever the file says. */
  readonly forceBos: boolean;
  /** There is no bos id unless the file names one. */
  readonly noBosId: boolean;
  /** Tokens hold UTF-8, not mapped bytes. */
  readonly isRaw: boolean;
  /** A space is written as U+2581. */
  readonly escapesSpaces: boolean;
  /** Whitespace between words is left out. */
  readonly dropsSpaces: boolean;
  /** A word of line feeds only that is a token is that token. */
  readonly wholeNewlines: boolean;
  /** Each line gets a leading U+2581 where it has none. */
  readonly prefixesLines: boolean;
}

const CONTRACTION = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
const TAIL = "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/** The llama 3 form: contractions, words with one leading character, numbers, punctuation, whitespace. */
const wordsAndNumbers = (number: string) =>
  `${CONTRACTION}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${number}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${TAIL}`;

/** The GPT-4o form: words cut where upper case follows lower case; `letter` is what a word is made of. */
const casedWords = (upper: string, lower: string, contraction: string, number: string) =>
  `[^\\r\\n\\p{L}\\p{N}]?${upper}*${lower}+${contraction}|[^\\r\\n\\p{L}\\p{N}]?${upper}+${lower}*${contraction}|` +
  `${number}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${TAIL}`;

/** GPT-4o's form where case cannot be told apart. */
const uncasedWords = (number: string) =>
  `[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+${CONTRACTION}?|${number}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${TAIL}`;

const ASCII_PUNCTUATION = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]";

const CASED_LETTERS = // the letters of scripts with case, as deepseek-llm lists them; \ufffe stands for those beyond the BMP
  "A-Za-z\\u00B5\\u00C0-\\u00D6\\u00D8-\\u00F6\\u00F8-\\u01BA\\u01BC-\\u01BF\\u01C4-\\u0293\\u0295-\\u02AF" +
  "\\u0370-\\u0373\\u0376\\u0377\\u037B-\\u037D\\u037F\\u0386\\u0388-\\u038A\\u038C\\u038E-\\u03A1\\u03A3-\\u03F5" +
  "\\u03F7-\\u0481\\u048A-\\u052F\\u0531-\\u0556\\u10A0-\\u10C5\\u13A0-\\u13F5\\u13F8-\\u13FD\\u1C90-\\u1CBA" +
  "\\u1CBD-\\u1CBF\\u1D00-\\u1D2B\\u1D6B-\\u1D77\\u1D79-\\u1D9A\\u1E00-\\u1F15\\u1F18-\\u1F1D\\u1F20-\\u1F45" +
  "\\u1F48-\\u1F4D\\u1F50-\\u1F57\\u1F59\\u1F5B\\u1F5D\\u1F5F-\\u1F7D\\u1F80-\\u1FB4\\u1FB6-\\u1FBC\\u1FBE" +
  "\\u1FC2-\\u1FC4\\u1FC6-\\u1FCC\\u1FD0-\\u1FD3\\u1FD6-\\u1FDB\\u1FE0-\\u1FEC\\u1FF2-\\u1FF4\\u1FF6-\\u1FFC" +
  "\\u2102\\u2107\\u210A-\\u2113\\u2115\\u2119-\\u211D\\u2124\\u2126\\u2128\\u212A-\\u212D\\u212F-\\u2134\\u2139" +
  "\\u213C-\\u213F\\u2145-\\u2149\\u214E\\u2183\\u2184\\u2C00-\\u2C7B\\u2C7E-\\u2CE4\\u2CEB-\\u2CEE\\u2CF2\\u2CF3" +
  "\\uA640-\\uA66D\\uA680-\\uA69B\\uA722-\\uA76F\\uA771-\\uA787\\uA78B-\\uA78E\\uAB70-\\uABBF\\uFB00-\\uFB06" +
  "\\uFB13-\\uFB17\\uFF21-\\uFF3A\\uFF41-\\uFF5A\\ufffe";

// Sets of steps are made when a tokenizer first needs them: compiling every regex at import would cost time for nothing.
const cover = (source: string) => () => coveringRegexStep(source);
const cut = (source: string) => () => regexStep(source);
const use = (step: Step) => () => step;

const gpt2 = cover(
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
);
const eachNumber = cut("\\p{N}");
const threeAsciiDigits = cut("[0-9][0-9][0-9]");
const threeNumbers = cut("\\p{N}{1,3}");
const numberRuns = cut("\\p{N}+");
const qwen2 = cover(wordsAndNumbers("\\p{N}"));
const lines = cut("[^\\n]+|[\\n]+");
const cjkDeepseek = cut("[\\u4E00-\\u9FA5\\u0800-\\u4E00\\uAC00-\\uD7FF]+");
const cjkAndKana = cut("[\\u4E00-\\u9FA5\\u3040-\\u309F\\u30A0-\\u30FF]+");
const lineEnds = cut("[\\r\\n]");
const poro = cut(" ?[^(\\s|.,!?\\u2026\\u3002\\uFF0C\\u3001\\u0964\\u06D4\\u060C)]+");
const deepseekWords = cut(
  `${ASCII_PUNCTUATION}[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|${TAIL}`,
);

const SETS: Record<string, readonly (() => Step)[]> = {
  GPT2: [gpt2],
  STARCODER: [eachNumber, gpt2],
  FALCON: [cut("[\\p{P}\\$\\+<=>\\^~\\|`]+"), gpt2, threeAsciiDigits],
  DEFAULT: [cut("[\\p{P}\\$\\+<=>\\^~\\|]+"), gpt2, numberRuns, threeAsciiDigits],
  LLAMA3: [cover(wordsAndNumbers("\\p{N}{1,3}"))],
  QWEN2: [qwen2],
  UFAKZEKA: [cover(`[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${TAIL}`)],
  QWEN35: [cover(
    `${CONTRACTION}|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${TAIL}`,
  )],
  JAIS2: [cover(wordsAndNumbers("\\p{N}{1,3}")), use(halveSpaces)],
  MINICPM5: [threeNumbers, cover(wordsAndNumbers("\\p{N}+"))],
  SEED_CODER: [cover(
    `${CONTRACTION}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|${TAIL}`,
  )],
  BAILINGMOE: [cover(
    `${CONTRACTION}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+`,
  )],
  EXAONE_MOE: [use(exaoneStep)],
  TEKKEN: [cover(casedWords("[A-Z\\xd2]", "[a-z\\xd2]", "", "\\p{N}"))],
  GPT4O: [cover(casedWords("[A-Z\\xd2]", "[a-z\\xd2]", CONTRACTION + "?", "\\p{N}{1,3}"))],
  GRANITE_EMB_MULTI: [cover(casedWords("[A-Z\\xd2\\xd4]", "[a-z\\xd2\\xd4]", CONTRACTION + "?", "\\p{N}{1,3}"))],
  TINY_AYA: [use(groupDigitsFromRight), cover(uncasedWords("\\p{N}{1,3}"))],
  YOUTU: [
    cut(
      "[\\uAC00-\\uD7A3\\u3131-\\u318E]+|" +
        "[\\uFF01\\u2026\\u201C\\u201D\\u2018\\u2019\\u2014\\uFF1A\\uFF1B\\uFF0C\\u3001-\\u303F\\uFE30-\\uFE4F]+|" +
        "[\\u3105-\\u312F]+|[\\u4E00-\\u9FA5\\u3040-\\u309F\\u30A0-\\u30FF]+",
    ),
    cover(uncasedWords("\\p{N}")),
  ],
  DEEPSEEK_LLM: [
    lineEnds,
    cut(`\\s?[${CASED_LETTERS}]+`),
    cut("\\s?[!-\\/:-~\\uFF01-\\uFF0F\\uFF1A-\\uFF5E\\u2018-\\u201F\\u3000-\\u3002]+"),
    use(cutTrailingSpace),
    cjkDeepseek,
    numberRuns,
  ],
  DEEPSEEK_CODER: [lineEnds, cut("\\s?\\p{L}+"), cut("\\s?\\p{P}+"), cjkDeepseek, eachNumber],
  DEEPSEEK3_LLM: [threeNumbers, cjkAndKana, deepseekWords],
  SPARK2_5: [
    eachNumber,
    cjkAndKana,
    cut(
      `${ASCII_PUNCTUATION}[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\\r\\n]|` +
        "\\s+(?!\\S)|\\s+",
    ),
  ],
  AFMOE: [
    use(groupDigitsFromRight),
    cut(
      "[\\u4E00-\\u9FFF\\u3400-\\u4DBF\\u8C48-\\uFAFF\\u3040-\\u309F\\u30A0-\\u30FF\\uFF65-\\uFF9F\\u2F00-\\u2FDF" +
        "\\u0E40-\\u0E7F\\u0E80-\\u0EFF\\u1780-\\u17FF\\u1000-\\u109F\\uAA60-\\uAA7F\\uA9E0-\\uA9FF\\uAC00-\\uD7AF" +
        "\\u1100-\\u11FF]+",
    ),
    deepseekWords,
  ],
  KIMI_K2: [use(kimiStep)],
  K2_HORIZON: [use(horizonStep)],
  LAGUNA: [lines, qwen2],
  SUPERBPE: [numberRuns, use(cutThousands)],
  PORO: [poro],
  VIKING: [poro, eachNumber],
  CHAMELEON: [
    cut("<sentinel:[0-9]+>"),
    cut("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
    cut("([\\t\\n]|    |  )"),
    eachNumber,
    cut("[\\p{P}!-\\/:-@\\[-`{-~]"),
    gpt2,
  ],
  GEMMA4: [lines],
  WHITESPACE: [cover("[\\t-\\r ]+|[^\\t-\\r ]+")],
  MMBERT: [cover("\\n+|\\u2581[^\\u2581\\n]*|[^\\u2581\\n]+")],
};

/** Sets that llama.cpp reads otherwise than the releases define them: it cannot tell the case of letters beyond ASCII. */
const RELEASED_SETS: Record<string, readonly (() => Step)[]> = {
  GPT4O: [() => releasedCasedStep({ contractions: true, number: "\\p{N}{1,3}", slash: true, han: false })],
  TEKKEN: [() => releasedCasedStep({ contractions: false, number: "\\p{N}", slash: true, han: false })],
  KIMI_K2: [() => releasedCasedStep({ contractions: true, number: "\\p{N}{1,3}", slash: false, han: true })],
};

/** Flags after a set's name: IM ignore_merges, CS clean_spaces, BOS, BOS!, nobos, ESC (see `PreTokenizer`). */
const NAMES: readonly (readonly [names: string, set: string, flags: string])[] = [
  [
    "mpt gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert olmo jais exaone4 " +
    "jina-v1-en jina-v2-code roberta-bpe",
    "GPT2",
    "CS",
  ],
  ["trillion granite-docling", "GPT2", ""],
  ["starcoder refact codeshell exaone minerva-7b mellum2", "STARCODER", "CS"],
  ["command-r smollm", "STARCODER", ""],
  ["falcon", "FALCON", "CS"],
  ["default", "DEFAULT", "CS"],
  ["dbrx smaug-bpe", "LLAMA3", "CS"],
  ["chatglm-bpe", "LLAMA3", "CS nobos"],
  ["llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", "LLAMA3", "IM CS BOS"],
  ["glm4 glm5", "LLAMA3", "IM CS nobos"],
  ["stablelm2 megrez", "QWEN2", "CS"],
  ["qwen2 deepseek-r1-qwen kormo f2llmv2 hunyuan grok-2 solar-open", "QWEN2", ""],
  ["ufakzeka", "UFAKZEKA", ""],
  ["qwen35", "QWEN35", ""],
  ["jais-2", "JAIS2", "CS"],
  ["minicpm5", "MINICPM5", "IM CS"],
  ["seed-coder", "SEED_CODER", ""],
  ["bailingmoe bailingmoe2 llada-moe", "BAILINGMOE", ""],
  ["exaone-moe", "EXAONE_MOE", "CS"],
  ["tekken", "TEKKEN", "IM BOS"],
  ["gpt-4o llama4 kanana2 talkie minimax-m2", "GPT4O", ""],
  ["granite-embed-multi-97m", "GRANITE_EMB_MULTI", "IM"],
  ["tiny_aya cohere2moe", "TINY_AYA", ""],
  ["youtu", "YOUTU", "IM"],
  ["deepseek-llm", "DEEPSEEK_LLM", ""],
  ["deepseek-coder", "DEEPSEEK_CODER", ""],
  ["deepseek-v3 hunyuan-dense joyai-llm hy_v4", "DEEPSEEK3_LLM", ""],
  ["spark2_5", "SPARK2_5", ""],
  ["afmoe", "AFMOE", ""],
  ["kimi-k2", "KIMI_K2", ""],
  ["laguna", "LAGUNA", ""],
  ["superbpe", "SUPERBPE", ""],
  ["bloom gpt3-finnish", "PORO", "CS"],
  ["poro-chat", "PORO", ""],
  ["viking", "VIKING", ""],
  ["chameleon", "CHAMELEON", "BOS"],
  ["gemma4 granite-embed-multi-311m", "GEMMA4", "CS ESC BOS!"],
  ["sarvam-moe", "GEMMA4", "ESC"],
  ["k2-horizon", "K2_HORIZON", ""],
  ["mmbert", "MMBERT", "CS ESC"],
  ["whitespace", "WHITESPACE", "CS"],
];

const made = new Map<string, PreTokenizer>();

/** Every name that `preTokenizer` knows. */
export const PRE_TOKENIZER_NAMES: readonly string[] = NAMES.flatMap(([names]) => names.split(" "));

/**
 * The pre-tokenizer of that `tokenizer.ggml.pre`, or undefined for a name that is none.
 *
 * @param follow Whose cuts it makes where llama.cpp's are not those of the release.
 */
export function preTokenizer(name: string, follow: "llama.cpp" | "release" = "llama.cpp"): PreTokenizer | undefined {
  const key = `${follow} ${name}`;
  const known = made.get(key);
  if (known) return known;
  const row = NAMES.find(([names]) => names.split(" ").includes(name));
  if (!row) return undefined;
  const flags = row[2].split(" ");
  const pre: PreTokenizer = {
    name,
    cuts: row[1],
    steps: (follow === "release" && RELEASED_SETS[row[1]] || SETS[row[1]]).map((make) => make()),
    ignoreMerges: flags.includes("IM"),
    cleanSpaces: flags.includes("CS"),
    addBos: flags.includes("BOS") || flags.includes("BOS!"),
    forceBos: flags.includes("BOS!"),
    noBosId: flags.includes("nobos"),
    isRaw: flags.includes("ESC") || row[1] === "WHITESPACE",
    escapesSpaces: flags.includes("ESC"),
    dropsSpaces: row[1] === "WHITESPACE",
    wholeNewlines: row[1] === "GEMMA4",
    prefixesLines: row[1] === "MMBERT",
  };
  made.set(key, pre);
  return pre;
}
