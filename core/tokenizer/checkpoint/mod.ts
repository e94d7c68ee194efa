/**
 * A released checkpoint's tokenizer files as the vocabulary of a GGUF file, as llama.cpp's converter writes it.
 * @module
 */

import { TextError } from "../../errors.ts";
import { type GgufValue, ggufValue, Metadata } from "../../gguf/metadata.ts";
import { PRE_TOKENIZER_NAMES, preTokenizer } from "../pretokenizers.ts";
import { tokenizerFromGguf } from "../tokenizer.ts";
import { TOKEN_TYPE } from "../types.ts";
import {
  addedTokens,
  addedTokensDecoder,
  type CheckpointFiles,
  isObject,
  type JsonObject,
  jsonObject,
  malformed,
  tokenText,
} from "./files.ts";
import { idsAround, preTokenizerByDefinition, preTokenizerByHash, PROBE_TEXT } from "./pre_tokenizer_of.ts";
import { readSentencePiece, type SentencePieceModel } from "./sentencepiece.ts";
import { SpecialKeys } from "./special_keys.ts";
import { readTiktoken } from "./tiktoken.ts";
import { TokenList } from "./token_list.ts";
import {
  bpeModel,
  isByteLevel,
  isSpacedBpe,
  lostNormalizers,
  prependsSpace,
  scoreByMerges,
  specialTexts,
  tokenCount,
  unigramNormalizer,
  vocabOf,
} from "./tokenizer_json.ts";

export type { CheckpointFiles } from "./files.ts";

export interface VocabularyOptions {
  /** Class of the model in `config.json`; by default the first of its `architectures`. */
  architecture?: string;
  /** `tokenizer.ggml.pre` to write instead of the one that is found. */
  pre?: string;
}

/** What a GGUF file says about text. */
export interface Vocabulary {
  /** `tokenizer.ggml.model`. */
  readonly model: string;
  /** `tokenizer.ggml.pre`, where the model has one. */
  readonly pre: string | undefined;
  readonly n_vocab: number;
  /** All keys, `tokenizer.chat_template` among them, in the order in which llama.cpp's converter writes them. */
  readonly entries: readonly (readonly [key: string, value: GgufValue])[];
  /** What is suspect, in sentences for the user. */
  readonly warnings: readonly string[];
}

type Entry = [key: string, value: GgufValue];

/** Classes that llama.cpp's converter treats as Llama: `add_prefix_space` of the config is written. */
const LLAMA_CLASSES: ReadonlySet<string> = new Set([
  "LLaMAForCausalLM",
  "LlamaForCausalLM",
  "LlamaModel",
  "MistralForCausalLM",
  "MixtralForCausalLM",
  "Mistral3ForConditionalGeneration",
  "Ministral3ForCausalLM",
  "VLlama3ForCausalLM",
  "LlavaForConditionalGeneration",
  "VoxtralForConditionalGeneration",
  "IQuestCoderForCausalLM",
  "AfmoeForCausalLM",
  "CogVLMForCausalLM",
  "GraniteForCausalLM",
  "JanusForConditionalGeneration",
  "ArceeForCausalLM",
  "LlamaBidirectionalModel",
  "SmolLM3ForCausalLM",
  "ApertusForCausalLM",
  "NanbeigeForCausalLM",
]);

const GLM_CLASS = /^(Glm4MoeFor|Glm4vMoeFor|Glm4MoeLiteFor|GlmMoeDsaFor|Glm5NextFor|ChatGLM)/;
const GEMMA_CLASS = /^Gemma/;
const MODERN_BERT_CLASS = /^ModernBert/;
const T5_CLASS = /^(T5|MT5|UMT5)/;

/**
 * The vocabulary of a checkpoint's folder. Which file counts: `tiktoken.model`, then a SentencePiece `tokenizer.model`,
 * then `tokenizer.json`, then `vocab.json` with `merges.txt`.
 *
 * @throws {TextError} `text.checkpoint` for files that are missing or not of their form; `text.unknown_pre_tokenizer`
 * where the way text is cut is not one that GGUF has a name for.
 */
export function vocabularyFromCheckpoint(files: CheckpointFiles, options: VocabularyOptions = {}): Vocabulary {
  const config = jsonObject(files, "config.json") ?? {};
  const classes = Array.isArray(config.architectures) ? config.architectures : [];
  const reader = new Reader(files, config, options.architecture ?? String(classes[0] ?? ""), options.pre);
  return reader.read();
}

class Reader {
  private readonly warnings: string[] = [];
  private readonly entries: Entry[] = [];

  constructor(
    private readonly files: CheckpointFiles,
    private readonly config: JsonObject,
    private readonly architecture: string,
    private readonly givenPre: string | undefined,
  ) {}

  read(): Vocabulary {
    const tokenizer = jsonObject(this.files, "tokenizer.json");
    const tiktoken = this.files.bytes("tiktoken.model");
    const sentencePiece = this.files.bytes("tokenizer.model") ?? this.files.bytes("spiece.model");
    const type = isObject(tokenizer?.model) ? tokenizer.model.type : undefined;
    if (tiktoken && !tokenizer) this.readTiktoken(tiktoken);
    else if (sentencePiece && !isByteLevel(tokenizer)) this.readSentencePiece(sentencePiece);
    else if (type === "WordPiece") this.readWordPiece(tokenizer!);
    else if (type === "Unigram") this.readUnigramJson(tokenizer!);
    else if (tokenizer && isSpacedBpe(tokenizer)) this.readSpacedBpe(tokenizer);
    else this.readByteLevel(tokenizer ?? this.tokenizerFromParts());
    if (MODERN_BERT_CLASS.test(this.architecture)) this.wrapTexts();
    const value = (key: string) => this.entries.find(([name]) => name === `tokenizer.ggml.${key}`)?.[1].value;
    return {
      model: value("model") as string,
      pre: value("pre") as string | undefined,
      n_vocab: (value("tokens") as { length: number }).length,
      entries: this.entries,
      warnings: this.warnings,
    };
  }

  /** The keys that put tokens around texts come first; a file that says nothing has them all. */
  private wrapTexts(): void {
    const keys = ["bos", "eos", "sep"].map((kind) => `tokenizer.ggml.add_${kind}_token`);
    const first = keys.map((key): Entry => {
      const at = this.entries.findIndex(([name]) => name === key);
      return at < 0 ? [key, ggufValue.bool(true)] : this.entries.splice(at, 1)[0];
    });
    this.entries.unshift(...first);
  }

  private add(key: string, value: GgufValue): void {
    const known = this.entries.findIndex(([name]) => name === `tokenizer.ggml.${key}`);
    if (known >= 0) this.entries[known] = [`tokenizer.ggml.${key}`, value];
    else this.entries.push([`tokenizer.ggml.${key}`, value]);
  }

  /** @param tokens The list's texts where they are packed already. */
  private addTokens(
    model: string,
    pre: string | undefined,
    list: TokenList,
    withScores: boolean,
    tokens: GgufValue = ggufValue.strs(list.texts),
  ): void {
    this.add("model", ggufValue.str(model));
    if (pre !== undefined) this.add("pre", ggufValue.str(pre));
    this.add("tokens", tokens);
    if (withScores) this.add("scores", ggufValue.f32s(list.scores));
    this.add("token_type", ggufValue.i32s(list.types));
  }

  /** Mistral 4 shares its wrapper's class with models that are Llama. */
  private get isLlama(): boolean {
    const text = this.config.text_config;
    return LLAMA_CLASSES.has(this.architecture) && !(isObject(text) && text.model_type === "mistral4");
  }

  /** Rows of the model's embedding, as its config says. */
  private get configured(): number | undefined {
    const text = isObject(this.config.text_config) ? this.config.text_config : {};
    for (const size of [this.config.vocab_size, text.vocab_size]) {
      if (Number.isSafeInteger(size) && (size as number) > 0) return size as number;
    }
    return undefined;
  }

  private specialKeys(n_vocab?: number): SpecialKeys {
    return new SpecialKeys(this.files, n_vocab, this.warnings);
  }

  /** Byte-level BPE. */
  private readByteLevel(tokenizer: JsonObject): void {
    this.warnings.push(...lostNormalizers(tokenizer, "gpt2"));
    const model = bpeModel(tokenizer);
    const added = addedTokens(tokenizer);
    const list = new TokenList(this.configured ?? tokenCount(model.vocab, added), "tokenizer.json");
    for (const [text, id] of model.vocab) list.set(id, text, TOKEN_TYPE.normal);
    for (const token of added) list.setAdded(token);
    if (this.isLlama) {
      const space = jsonObject(this.files, "tokenizer_config.json")?.add_prefix_space;
      if (typeof space === "boolean") this.add("add_space_prefix", ggufValue.bool(space));
    }
    const tokens = ggufValue.strs(list.texts);
    const merges = ggufValue.strs(model.merges);
    const pre = this.givenPre ?? this.findPre(tokenizer, tokens, ggufValue.i32s(list.types), merges);
    if (!preTokenizer(pre)) throw unknownPre(`pre ${JSON.stringify(pre)} is no name that is known`);
    this.addTokens("gpt2", pre, list, false, tokens);
    this.add("merges", merges);
    const special = this.specialKeys();
    if (GLM_CLASS.test(this.architecture)) {
      const roles = { bos: "[gMASK]", eot: "<|user|>", unk: "<|endoftext|>", eom: "<|observation|>" };
      for (const [kind, text] of Object.entries(roles)) {
        special.setId(kind, added.find((token) => token.content === text)?.id);
      }
    }
    this.entries.push(...special.entries() as Entry[]);
  }

  /** By definition, and by hash among the names that cut alike; by hash alone where the definition is not known. */
  private findPre(tokenizer: JsonObject, tokens: GgufValue, types: GgufValue, merges: GgufValue): string {
    const byDefinition = preTokenizerByDefinition(tokenizer);
    const { before, after } = idsAround(tokenizer);
    const metadata = new Metadata("tokenizer.json", [
      ["tokenizer.ggml.model", ggufValue.str("gpt2")],
      ["tokenizer.ggml.tokens", tokens],
      ["tokenizer.ggml.token_type", types],
      ["tokenizer.ggml.merges", merges],
    ]);
    const tried = new Set<string>();
    for (const name of byDefinition ? [byDefinition] : PRE_TOKENIZER_NAMES) {
      const { cuts } = preTokenizer(name)!;
      if (tried.has(cuts)) continue;
      tried.add(cuts);
      metadata.set("tokenizer.ggml.pre", ggufValue.str(name));
      const ids = tokenizerFromGguf(metadata).encode(PROBE_TEXT, { parseSpecial: true });
      const byHash = preTokenizerByHash([...before, ...ids, ...after]);
      if (byHash !== undefined && preTokenizer(byHash)) return byHash;
    }
    if (byDefinition !== undefined) return byDefinition;
    throw unknownPre(`its pre_tokenizer is ${JSON.stringify(tokenizer.pre_tokenizer)?.slice(0, 200)}`);
  }

  /** The same from `vocab.json`, `merges.txt` and the config, for folders without a `tokenizer.json`. */
  private tokenizerFromParts(): JsonObject {
    const vocab = jsonObject(this.files, "vocab.json");
    const merges = this.files.bytes("merges.txt");
    if (!vocab || !merges) {
      throw new TextError(
        "text.checkpoint",
        "Cannot find the checkpoint's tokenizer: there is no tokenizer.json, tokenizer.model, tiktoken.model, nor " +
          "vocab.json with merges.txt",
        { hint: "download the tokenizer files of the model into the folder" },
      );
    }
    const lines = new TextDecoder().decode(merges).split("\n").map((line) => line.trim());
    const config = jsonObject(this.files, "tokenizer_config.json");
    return {
      model: { type: "BPE", vocab, merges: lines.filter((line, i) => line !== "" && !(i === 0 && line[0] === "#")) },
      added_tokens: addedTokensDecoder(config),
      pre_tokenizer: /Qwen2/.test(String(config?.tokenizer_class))
        ? { type: "Split", pattern: { Regex: QWEN2_REGEX }, behavior: "Isolated" }
        : { type: "ByteLevel", use_regex: true },
    };
  }

  /** SentencePiece: BPE as `llama`, unigram of the T5 classes as `t5`. */
  private readSentencePiece(bytes: Uint8Array): void {
    const file = this.files.bytes("tokenizer.model") ? "tokenizer.model" : "spiece.model";
    const model = readSentencePiece(bytes, file);
    const isT5 = T5_CLASS.test(this.architecture) && model.isUnigram;
    const list = new TokenList(this.configured ?? model.pieces.length, file);
    model.pieces.slice(0, list.n).forEach((piece, id) => list.set(id, piece.text, piece.type, piece.score));
    this.addSlowTokens(list);
    if (!isT5 && this.isLlama) {
      const space = jsonObject(this.files, "tokenizer_config.json")?.add_prefix_space;
      if (typeof space === "boolean") this.add("add_space_prefix", ggufValue.bool(space));
    }
    this.addTokens(isT5 ? "t5" : "llama", "default", list, true);
    if (isT5) this.addNormalizer(model);
    this.entries.push(...this.specialKeys(list.n).entries() as Entry[]);
    if (GEMMA_CLASS.test(this.architecture)) this.add("add_space_prefix", ggufValue.bool(false));
  }

  private addNormalizer(model: SentencePieceModel): void {
    this.add("add_space_prefix", ggufValue.bool(model.addDummyPrefix));
    this.add("remove_extra_whitespaces", ggufValue.bool(model.removeExtraWhitespaces));
    if (model.precompiledCharsmap.length > 0) {
      this.add("precompiled_charsmap", { type: "array", elem: "u8", value: model.precompiledCharsmap });
    }
  }

  /** `added_tokens.json` and `added_tokens_decoder`, which come on top of a SentencePiece model. */
  private addSlowTokens(list: TokenList): void {
    for (const [text, id] of Object.entries(jsonObject(this.files, "added_tokens.json") ?? {})) {
      if (!Number.isSafeInteger(id)) throw malformed("added_tokens.json", text, id, "an id");
      if ((id as number) < list.n) list.set(id as number, text, TOKEN_TYPE.userDefined, -1000);
    }
    for (const token of addedTokensDecoder(jsonObject(this.files, "tokenizer_config.json"))) {
      if (token.id < list.n) list.setAdded(token, -1000);
    }
  }

  /**
   * BPE over U+2581 text with byte fallback, in JSON. For Llama's classes and Gemma 4 as llama.cpp's converter has it:
   * every score -1000, tokens of the base vocabulary special only if the config names them; `gemma4` keeps the merges.
   * For others the converter has no way, and the vocabulary is written so that its ids are the release's.
   */
  private readSpacedBpe(tokenizer: JsonObject): void {
    const isGemma4 = this.architecture.startsWith("Gemma4");
    const model = bpeModel(tokenizer);
    const config = jsonObject(this.files, "tokenizer_config.json");
    const added = addedTokens(tokenizer);
    const isConverted = isGemma4 || this.isLlama;
    const count = tokenCount(model.vocab, added);
    const list = new TokenList(isConverted ? count : this.configured ?? count, "tokenizer.json");
    const isByte = (text: string) => /^<0x[0-9A-Fa-f]{2}>$/.test(text);
    for (const [text, id] of model.vocab) list.set(id, text, isByte(text) ? TOKEN_TYPE.byte : TOKEN_TYPE.normal, -1000);
    if (isConverted) {
      const special = new Set(specialTexts(config));
      const base = tokenCount(model.vocab, []);
      for (const { id, content } of added) {
        const type = special.has(content) ? TOKEN_TYPE.control : TOKEN_TYPE.userDefined;
        if (id >= base) list.set(id, content, type, -1000);
      }
      list.texts.forEach((text, id) => {
        if (special.has(text) && list.types[id] === TOKEN_TYPE.normal) list.types[id] = TOKEN_TYPE.control;
        if (isGemma4 && GEMMA4_VISIBLE.has(text)) list.types[id] = TOKEN_TYPE.userDefined;
      });
    } else {
      scoreByMerges(list, model.merges);
      for (const token of added) list.setAdded(token, -1000);
    }
    if (this.isLlama && typeof config?.add_prefix_space === "boolean") {
      this.add("add_space_prefix", ggufValue.bool(config.add_prefix_space));
    }
    this.addTokens(isGemma4 ? "gemma4" : "llama", isGemma4 ? undefined : "default", list, true);
    if (isGemma4) this.add("merges", ggufValue.strs(model.merges));
    this.entries.push(...this.specialKeys(isGemma4 ? undefined : list.n).entries() as Entry[]);
    if (!this.isLlama) {
      this.add("add_space_prefix", ggufValue.bool(!GEMMA_CLASS.test(this.architecture) && prependsSpace(tokenizer)));
    }
    if (isGemma4) this.add("add_bos_token", ggufValue.bool(true));
  }

  private readWordPiece(tokenizer: JsonObject): void {
    this.warnings.push(...lostNormalizers(tokenizer, "bert"));
    const vocab = vocabOf(tokenizer);
    const added = addedTokens(tokenizer);
    const list = new TokenList(this.configured ?? tokenCount(vocab, added), "tokenizer.json");
    for (const [text, id] of vocab) list.set(id, text, TOKEN_TYPE.normal);
    for (const token of added) list.setAdded(token);
    // continuations lose their ##, word starts get U+2581
    list.texts.forEach((text, id) => {
      if (list.types[id] !== TOKEN_TYPE.control) {
        list.texts[id] = text.startsWith("##") ? text.slice(2) : "\u2581" + text;
      }
    });
    const types = this.config.type_vocab_size;
    this.add("token_type_count", ggufValue.u32(Number.isSafeInteger(types) ? types as number : 1));
    this.addTokens("bert", this.givenPre ?? "default", list, false);
    this.entries.push(...this.specialKeys(list.n).entries() as Entry[]);
  }

  private readUnigramJson(tokenizer: JsonObject): void {
    this.warnings.push(...lostNormalizers(tokenizer, "t5"));
    const model = tokenizer.model as JsonObject;
    const pieces = Array.isArray(model.vocab) ? model.vocab : [];
    const added = addedTokens(tokenizer);
    const n = Math.max(pieces.length, ...added.map((token) => token.id + 1));
    const list = new TokenList(this.configured ?? n, "tokenizer.json");
    pieces.forEach((piece, id) => {
      if (!Array.isArray(piece) || typeof piece[0] !== "string" || typeof piece[1] !== "number") {
        throw malformed("tokenizer.json", `model.vocab[${id}]`, piece, "a text and its score");
      }
      const type = id === model.unk_id
        ? TOKEN_TYPE.unknown
        : /^<0x[0-9A-Fa-f]{2}>$/.test(piece[0])
        ? TOKEN_TYPE.byte
        : TOKEN_TYPE.normal;
      list.set(id, piece[0], type, piece[1]);
    });
    for (const token of added) if (token.id !== model.unk_id) list.setAdded(token, -1000);
    const normal = unigramNormalizer(tokenizer);
    this.addTokens("t5", "default", list, true);
    this.add("add_space_prefix", ggufValue.bool(normal.addPrefix));
    this.add("remove_extra_whitespaces", ggufValue.bool(normal.removeExtra));
    if (normal.charsmap) this.add("precompiled_charsmap", { type: "array", elem: "u8", value: normal.charsmap });
    this.entries.push(...this.specialKeys(list.n).entries() as Entry[]);
  }

  /** Kimi: ranks in `tiktoken.model`, special tokens in the config, the pattern in the release's own code. */
  private readTiktoken(bytes: Uint8Array): void {
    const model = readTiktoken(bytes, "tiktoken.model");
    const config = jsonObject(this.files, "tokenizer_config.json");
    const named = new Map(addedTokensDecoder(config).map((token) => [token.id, token.content]));
    const base = model.texts.length;
    const list = new TokenList(this.configured ?? base + KIMI_RESERVED, "tiktoken.model");
    model.texts.forEach((text, id) => text !== undefined && list.set(id, text, TOKEN_TYPE.normal));
    for (let id = base; id < Math.min(base + KIMI_RESERVED, list.n); id++) {
      list.set(id, named.get(id) ?? `<|reserved_token_${id}|>`, TOKEN_TYPE.control);
    }
    this.addTokens("gpt2", this.givenPre ?? "kimi-k2", list, false);
    this.add("merges", ggufValue.strs(model.merges));
    const special = this.specialKeys();
    if (this.architecture.startsWith("KimiLinear")) {
      const eos = [...named].find(([, text]) => text === tokenText(config?.eos_token));
      if (eos) special.overrideId("eos", eos[0]);
    }
    this.entries.push(...special.entries() as Entry[]);
  }
}

const QWEN2_REGEX =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" +
  "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/** Special tokens that Kimi's tokenizer keeps after its ranks. */
const KIMI_RESERVED = 256;

/** Gemma 4's markers that whoever reads the stream must see. */
const GEMMA4_VISIBLE: ReadonlySet<string> = new Set([
  "<|channel>",
  "<channel|>",
  "<|tool_call>",
  "<tool_call|>",
  "<|tool_response>",
  "<tool_response|>",
  '<|"|>',
]);

function unknownPre(what: string): TextError {
  return new TextError(
    "text.unknown_pre_tokenizer",
    `Cannot tell how tokenizer.json cuts text into words: ${what}, expected a definition that GGUF has a name for`,
    { at: { file: "tokenizer.json" }, hint: `name one yourself (pre): ${PRE_TOKENIZER_NAMES.join(", ")}` },
  );
}
