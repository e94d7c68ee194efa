/**
 * A tokenizer over a GGUF vocabulary: reads the file's keys, picks the algorithm, and joins the parts.
 * @module
 */

import { TextError } from "../errors.ts";
import { type Metadata, StringArray } from "../gguf/metadata.ts";
import { BytePairEncoder } from "./bpe.ts";
import { IdBuffer } from "./id_buffer.ts";
import { SpecialPartition, type SpecialToken } from "./partition.ts";
import { cleanSpaces, pieceBytes, type PieceForm } from "./pieces.ts";
import { PRE_TOKENIZER_NAMES, type PreTokenizer, preTokenizer } from "./pretokenizers.ts";
import { readSpecialTokens } from "./special_ids.ts";
import { SpmEncoder } from "./spm.ts";
import {
  type DecodeOptions,
  type EncodeOptions,
  type FragmentEncoder,
  type SpecialIds,
  TOKEN_TYPE,
  type Tokenizer,
  type TokenStream,
} from "./types.ts";
import { UnigramEncoder } from "./unigram.ts";
import { Vocab } from "./vocab.ts";
import { WpmEncoder } from "./wpm.ts";

/** What a tokenizer model implies where the file does not say otherwise. */
interface Traits {
  ids: Partial<SpecialIds>;
  addBos: boolean;
  addEos: boolean;
  addSpacePrefix: boolean;
  cleanSpaces: boolean;
  form: PieceForm;
}

/** Algorithms that are known, as `tokenizer.ggml.model` names them. */
const MODELS = ["gpt2", "gemma4", "whitespace", "llama", "bert", "t5"] as const;
type Model = typeof MODELS[number];

function traitsOf(model: Model, pre: PreTokenizer | undefined): Traits {
  switch (model) {
    case "gpt2":
    case "gemma4":
    case "whitespace":
      return {
        ids: model === "gemma4" ? {} : pre!.noBosId ? { eos: 11 } : { bos: 11, eos: 11 },
        addBos: pre!.addBos,
        addEos: false,
        addSpacePrefix: false,
        cleanSpaces: pre!.cleanSpaces,
        form: pre!.escapesSpaces ? "spaced" : pre!.isRaw ? "mapped-or-byte" : "mapped",
      };
    case "llama":
      return {
        ids: { bos: 1, eos: 2, unk: 0 },
        addBos: true,
        addEos: false,
        addSpacePrefix: true,
        cleanSpaces: false,
        form: "spaced",
      };
    case "bert":
      return {
        ids: { bos: 101, unk: 100, sep: 102, pad: 0, mask: 103 },
        addBos: true,
        addEos: false,
        addSpacePrefix: false,
        cleanSpaces: true,
        form: "spaced",
      };
    case "t5":
      return {
        ids: { eos: 1, unk: 2, pad: 0 },
        addBos: false,
        addEos: true,
        addSpacePrefix: false,
        cleanSpaces: false,
        form: "spaced",
      };
  }
}

/**
 * The tokenizer that a GGUF file's metadata describes.
 *
 * Opening costs a pass over the bytes of tokens and merges; nothing is decoded.
 *
 * @throws {TextError} `text.tokenizer_model` or `text.pre_tokenizer` for a name that is not known, `text.duplicate_token`,
 * `text.vocabulary_length`, `text.missing_merges`.
 * @throws {ModelError} `model.missing_key` or `model.key_type`.
 */
export function tokenizerFromGguf(metadata: Metadata, options: TokenizerOptions = {}): Tokenizer {
  return new GgufTokenizer(metadata, options.follow ?? "llama.cpp");
}

/** How a vocabulary is opened. */
export interface TokenizerOptions {
  /**
   * Whose ids to give where the two differ. The releases bring text into NFC where the file says so
   * (`normalizer.nfc`), and the families of GPT-4o, Tekken and Kimi K2 cut words by the case of all scripts; llama.cpp
   * does neither. Default: llama.cpp's, which is what other servers of the same file give.
   */
  follow?: "llama.cpp" | "release";
}

/**
 * Whether the file has a vocabulary at all, by an algorithm that is known: what has none runs by token ids.
 * @internal
 */
export function hasVocabulary(metadata: Metadata): boolean {
  const model = metadata.str("tokenizer.ggml.model", "none");
  return MODELS.some((name) => name === model);
}

class GgufTokenizer implements Tokenizer {
  readonly n_vocab: number;
  readonly byIds = false;
  readonly model: Model;
  readonly pre: string;
  readonly bos: number | null;
  readonly eos: number | null;
  readonly eot: number | null;
  readonly eom: number | null;
  readonly unk: number | null;
  readonly sep: number | null;
  readonly pad: number | null;
  readonly mask: number | null;
  readonly fim_pre: number | null;
  readonly fim_suf: number | null;
  readonly fim_mid: number | null;
  readonly fim_pad: number | null;
  readonly fim_rep: number | null;
  readonly fim_sep: number | null;
  readonly addBos: boolean;
  readonly addEos: boolean;
  readonly addSep: boolean;
  readonly addSpacePrefix: boolean;
  readonly eogIds: ReadonlySet<number>;
  readonly warnings: readonly string[];

  private readonly vocab: Vocab;
  private readonly traits: Traits;
  private readonly partition: SpecialPartition;
  private readonly encoder: FragmentEncoder;
  private readonly composes: boolean;

  constructor(metadata: Metadata, follow: "llama.cpp" | "release") {
    const warnings: string[] = [];
    this.model = readModel(metadata);
    const pre = readPreTokenizer(metadata, this.model, follow, warnings);
    this.pre = pre?.name ?? metadata.str("tokenizer.ggml.pre", "default");
    const vocab = this.vocab = new Vocab(metadata);
    this.n_vocab = vocab.n;
    const traits = this.traits = traitsOf(this.model, pre);
    const { ids, eogIds } = readSpecialTokens(metadata, vocab, traits.ids, warnings);
    this.bos = ids.bos;
    this.eos = ids.eos;
    this.eot = ids.eot;
    this.eom = ids.eom;
    this.unk = ids.unk;
    this.sep = ids.sep;
    this.pad = ids.pad;
    this.mask = ids.mask;
    this.fim_pre = ids.fim_pre;
    this.fim_suf = ids.fim_suf;
    this.fim_mid = ids.fim_mid;
    this.fim_pad = ids.fim_pad;
    this.fim_rep = ids.fim_rep;
    this.fim_sep = ids.fim_sep;
    this.eogIds = eogIds;
    this.addBos = pre?.forceBos || metadata.bool("tokenizer.ggml.add_bos_token", traits.addBos);
    this.addEos = metadata.bool("tokenizer.ggml.add_eos_token", traits.addEos);
    this.addSep = metadata.bool("tokenizer.ggml.add_sep_token", this.model === "bert");
    this.addSpacePrefix = metadata.bool("tokenizer.ggml.add_space_prefix", traits.addSpacePrefix);
    this.partition = new SpecialPartition(specialTokens(metadata, vocab));
    this.encoder = this.makeEncoder(metadata, pre);
    this.composes = follow === "release" && metadata.bool("tokenizer.ggml.normalizer.nfc", false);
    this.warnings = warnings;
  }

  private makeEncoder(metadata: Metadata, pre: PreTokenizer | undefined): FragmentEncoder {
    const { vocab } = this;
    switch (this.model) {
      case "gpt2":
      case "gemma4":
      case "whitespace": {
        // Kimi K2's first files came without merges, and the peer takes them so
        const fallback = pre!.name === "kimi-k2" ? StringArray.from([]) : undefined;
        const merges = metadata.strs("tokenizer.ggml.merges", fallback);
        if (!merges) {
          throw new TextError(
            "text.missing_merges",
            `Cannot use the vocabulary of ${metadata.file}: tokenizer.ggml.merges is missing, expected one string per merge`,
            { at: { file: metadata.file, key: "tokenizer.ggml.merges" }, hint: "convert the checkpoint again" },
          );
        }
        const lowercase = pre!.name === "whitespace" && metadata.bool("tokenizer.ggml.normalizer.lowercase", false);
        return new BytePairEncoder(vocab.table, merges, pre!, lowercase);
      }
      case "llama":
        return new SpmEncoder(vocab.table, vocab.scores, {
          addSpacePrefix: this.addSpacePrefix,
          escapeSpaces: true,
          unk: this.unk,
        });
      case "bert": {
        const lowercase = metadata.bool("tokenizer.ggml.normalizer.lowercase", true);
        const stripAccents = metadata.bool("tokenizer.ggml.normalizer.strip_accents", lowercase);
        return new WpmEncoder(vocab.table, { lowercase, stripAccents, unk: this.unk });
      }
      case "t5":
        return new UnigramEncoder(vocab, metadata, {
          addSpacePrefix: this.addSpacePrefix,
          removeExtraSpaces: metadata.bool("tokenizer.ggml.remove_extra_whitespaces", false),
          unk: this.unk ?? 0,
        });
    }
  }

  encode(text: string, options: EncodeOptions = {}): Int32Array {
    const out = new IdBuffer();
    const addSpecial = options.addSpecial ?? false;
    const isWpm = this.model === "bert";
    if (addSpecial && (this.addBos || isWpm) && this.bos !== null) out.push(this.bos);
    let isStart = true;
    for (const fragment of this.partition.cut(text.toWellFormed(), options.parseSpecial ?? false)) {
      if (typeof fragment === "number") {
        out.push(fragment);
        isStart = true;
      } else {
        this.encoder.encode(this.composes ? fragment.normalize("NFC") : fragment, out, isStart);
        isStart = false;
      }
    }
    if (addSpecial && isWpm && this.sep !== null) out.push(this.sep);
    else if (addSpecial && this.addEos && this.eos !== null) out.push(this.eos);
    return out.take();
  }

  pieceBytes(id: number, special: boolean = false): Uint8Array {
    this.checkId(id);
    return pieceBytes(this.vocab, this.traits.form, id, special);
  }

  tokenText(id: number): string {
    this.checkId(id);
    return this.vocab.text(id);
  }

  tokenId(text: string): number | null {
    const id = this.vocab.find(text);
    return id >= 0 ? id : null;
  }

  isSpecial(id: number): boolean {
    const type = this.vocab.types[id];
    return type === TOKEN_TYPE.control || type === TOKEN_TYPE.unknown || type === TOKEN_TYPE.userDefined;
  }

  isControl(id: number): boolean {
    return this.vocab.types[id] === TOKEN_TYPE.control;
  }

  isUserDefined(id: number): boolean {
    return this.vocab.types[id] === TOKEN_TYPE.userDefined;
  }

  isUnused(id: number): boolean {
    return this.vocab.types[id] === TOKEN_TYPE.unused;
  }

  decodeBytes(ids: ArrayLike<number>, options: DecodeOptions = {}): Uint8Array {
    let start = 0;
    let end = ids.length;
    let dropSpace = this.addSpacePrefix;
    if (options.removeSpecial) {
      if (this.addBos && end > start && ids[start] === this.bos) {
        start++;
        dropSpace = false;
      }
      if (this.addEos && end > start && ids[end - 1] === this.eos) end--;
    }
    const pieces: Uint8Array[] = [];
    let length = 0;
    for (let i = start; i < end; i++) {
      let piece = this.pieceBytes(ids[i], options.special ?? false);
      if (dropSpace && piece[0] === 0x20) piece = piece.subarray(1);
      dropSpace = false;
      pieces.push(piece);
      length += piece.length;
    }
    const bytes = new Uint8Array(length);
    let at = 0;
    for (const piece of pieces) {
      bytes.set(piece, at);
      at += piece.length;
    }
    return this.traits.cleanSpaces ? cleanSpaces(bytes) : bytes;
  }

  decode(ids: ArrayLike<number>, options: DecodeOptions = {}): string {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(this.decodeBytes(ids, options));
  }

  stream(options: { special?: boolean } = {}): TokenStream {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return {
      push: (id) => decoder.decode(this.pieceBytes(id, options.special ?? false), { stream: true }),
      flush: () => decoder.decode(),
    };
  }

  private checkId(id: number): void {
    if (Number.isInteger(id) && id >= 0 && id < this.n_vocab) return;
    throw new TextError("text.token_id", `Cannot decode token ${id}: the vocabulary has ids 0 to ${this.n_vocab - 1}`, {
      at: { got: id, n_vocab: this.n_vocab },
    });
  }
}

function readModel(metadata: Metadata): Model {
  const model = metadata.str("tokenizer.ggml.model");
  const known = MODELS.find((name) => name === model);
  if (known) return known;
  throw new TextError(
    "text.tokenizer_model",
    `Cannot use the vocabulary of ${metadata.file}: tokenizer.ggml.model is ${
      JSON.stringify(model)
    }, expected one of ` +
      MODELS.join(", "),
    { at: { file: metadata.file, key: "tokenizer.ggml.model", got: model, expected: MODELS } },
  );
}

function readPreTokenizer(
  metadata: Metadata,
  model: Model,
  follow: "llama.cpp" | "release",
  warnings: string[],
): PreTokenizer | undefined {
  if (model === "gemma4" || model === "whitespace") return preTokenizer(model);
  if (model !== "gpt2") return undefined;
  const key = "tokenizer.ggml.pre";
  if (!metadata.has(key)) {
    warnings.push(
      `${metadata.file} does not say how its text is cut into words (${key} is missing): "default" is used, which is ` +
        "wrong for nearly every model of today and makes its answers worse. Convert the checkpoint again.",
    );
    return preTokenizer("default");
  }
  const name = metadata.str(key);
  const pre = preTokenizer(name, follow);
  // only the model of that name drops spaces
  if (pre) return pre.dropsSpaces ? { ...pre, dropsSpaces: false } : pre;
  throw new TextError(
    "text.pre_tokenizer",
    `Cannot use the vocabulary of ${metadata.file}: ${key} is ${JSON.stringify(name)}, expected one of the ` +
      `${PRE_TOKENIZER_NAMES.length} names that are known`,
    {
      at: { file: metadata.file, key, got: name, expected: PRE_TOKENIZER_NAMES },
      hint: `set ${key} to the name that fits the model, or convert the checkpoint again`,
    },
  );
}

/** Phi-3's special tokens swallow the whitespace after them, but for these. */
const PHI3_KEEPS_SPACE: ReadonlySet<string> = new Set(["<unk>", "<s>", "<|endoftext|>"]);

/** The tokens matched as a whole in text. Which of them swallow whitespace is known by name: files do not say. */
function specialTokens(metadata: Metadata, vocab: Vocab): SpecialToken[] {
  const name = metadata.str("general.name", "").toLowerCase();
  const pre = metadata.str("tokenizer.ggml.pre", "");
  const architecture = metadata.str("general.architecture", "");
  const isPhi3 = name.includes("phi-3") || name.includes("phi3");
  const lstripText = ["jina-v2-de", "jina-v2-es", "jina-v2-code"].some((part) => pre.includes(part)) ||
      architecture.includes("nomic-bert-moe") || architecture.includes("jina-bert-v3")
    ? "<mask>"
    : name.includes("modern-bert")
    ? "[MASK]"
    : undefined;
  const tokens: SpecialToken[] = [];
  for (let id = 0; id < vocab.n; id++) {
    const type = vocab.types[id];
    if (type !== TOKEN_TYPE.control && type !== TOKEN_TYPE.userDefined && type !== TOKEN_TYPE.unknown) {
      continue;
    }
    const text = vocab.text(id);
    tokens.push({
      id,
      text,
      bytes: vocab.bytes(id).length,
      isControl: type !== TOKEN_TYPE.userDefined,
      lstrip: text === lstripText,
      rstrip: isPhi3 && !PHI3_KEEPS_SPACE.has(text),
    });
  }
  return tokens;
}
