/**
 * The random models of `encoder_models.ts` with a vocabulary, and how their vectors are pooled: what `scripts/peer_vectors.ts` and
 * `encoders_test.ts` share.
 * @module
 */
import { ggufValue } from "../core/gguf/metadata.ts";
import { type Pooling, poolingOf } from "../serve/embedder.ts";
import { ENCODER_MODELS } from "./encoder_models.ts";
import { N_VOCAB, writeFamilyModel } from "./family_models.ts";
import { VOCABULARY } from "./peer_models.ts";
import { repoDir } from "./shared.ts";

/** Of tests/goldens. */
export const PEER_VECTORS_PATH = `${repoDir}tests/goldens/peer_vectors.json`;

export interface PeerVectors {
  /** Of `peerText`. */
  readonly ids: readonly number[];
  /** By pooling; of `none` the first row, of `rank` the scores. */
  readonly vectors: Readonly<Record<string, readonly number[]>>;
}

/** The ways that a model's vectors are compared in: its own, and for one that is no reranker all that make one vector. */
export function poolingsOf(name: string): { pooling: Pooling; n: number }[] {
  const { keys, extra } = ENCODER_MODELS[name], own = poolingOf(keys.pooling_type as number)!;
  const head = extra?.find((t) => t.name === "cls.output.weight");
  if (own === "rank") return [{ pooling: own, n: head!.ne[1] }];
  return (["mean", "cls", "last"] as const).map((pooling) => ({ pooling, n: 64 }));
}

export function encoderModel(path: string, name: string): Promise<string> {
  return writeFamilyModel(path, ENCODER_MODELS[name], {
    written: { ...VOCABULARY, "tokenizer.ggml.add_bos_token": ggufValue.bool(false) },
  });
}

/** A vocabulary of word pieces: what BERT's files have, of letters only. */
export const WORDPIECE = (() => {
  const letters = Array.from({ length: 26 }, (_, i) => String.fromCharCode(97 + i));
  const tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ...letters.map((x) => `\u2581${x}`), ...letters];
  const words = ["the", "cat", "dog", "sat", "on", "mat", "who", "what", "is", "and"].map((x) => `\u2581${x}`);
  const all = [
    ...tokens,
    ...words,
    ...Array.from({ length: N_VOCAB - tokens.length - words.length }, (_, i) => `[unused${i}]`),
  ];
  return {
    "tokenizer.ggml.model": ggufValue.str("bert"),
    "tokenizer.ggml.pre": ggufValue.str("bert-bge"),
    "tokenizer.ggml.tokens": ggufValue.strs(all),
    "tokenizer.ggml.token_type": ggufValue.i32s(all.map((x) => x.startsWith("[") ? 3 : 1)),
    "tokenizer.ggml.padding_token_id": ggufValue.u32(0),
    "tokenizer.ggml.unknown_token_id": ggufValue.u32(1),
    "tokenizer.ggml.bos_token_id": ggufValue.u32(2),
    "tokenizer.ggml.seperator_token_id": ggufValue.u32(3),
    "tokenizer.ggml.mask_token_id": ggufValue.u32(4),
  };
})();

/** A vocabulary of pieces with scores: what XLM-R's files have, of letters only; a text and a pair stand between `<s>` and `</s>`. */
export const PIECES = (() => {
  const letters = Array.from({ length: 26 }, (_, i) => String.fromCharCode(97 + i));
  const words = ["the", "cat", "dog", "sat", "on", "mat", "who", "what", "is", "and"].map((x) => `\u2581${x}`);
  const tokens = ["<s>", "<pad>", "</s>", "<unk>", "\u2581", ...letters, ...words];
  const all = [...tokens, ...Array.from({ length: N_VOCAB - tokens.length }, (_, i) => `[PAD${i}]`)];
  const type = (i: number) => i === 3 ? 2 : i < 3 ? 3 : i < tokens.length ? 1 : 5;
  return {
    "tokenizer.ggml.model": ggufValue.str("t5"),
    "tokenizer.ggml.pre": ggufValue.str("default"),
    "tokenizer.ggml.tokens": ggufValue.strs(all),
    "tokenizer.ggml.scores": ggufValue.f32s(all.map((_, i) => i < 4 ? 0 : i < 31 ? -6 : i < tokens.length ? -3 : -1e4)),
    "tokenizer.ggml.token_type": ggufValue.i32s(all.map((_, i) => type(i))),
    "tokenizer.ggml.add_space_prefix": ggufValue.bool(true),
    "tokenizer.ggml.remove_extra_whitespaces": ggufValue.bool(true),
    "tokenizer.ggml.bos_token_id": ggufValue.u32(0),
    "tokenizer.ggml.eos_token_id": ggufValue.u32(2),
    "tokenizer.ggml.unknown_token_id": ggufValue.u32(3),
    "tokenizer.ggml.seperator_token_id": ggufValue.u32(2),
    "tokenizer.ggml.padding_token_id": ggufValue.u32(1),
    "tokenizer.ggml.add_bos_token": ggufValue.bool(true),
    "tokenizer.ggml.add_eos_token": ggufValue.bool(true),
    "tokenizer.ggml.add_sep_token": ggufValue.bool(true),
  };
})();

/** A vocabulary of bytes, and how Qwen3's rerankers want a pair, with their own words. */
export const RERANK_TEMPLATE = "Q:{query};D:{document}<end>";
