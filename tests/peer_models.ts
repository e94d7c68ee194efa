/**
 * The random models of `family_models.ts` with a vocabulary, as llama.cpp takes them: what `scripts/peer_logits.ts` and
 * `peer_logits_test.ts` share.
 * @module
 */
import { ggufValue } from "../core/gguf/metadata.ts";
import { FAMILY_MODELS, N_VOCAB, writeFamilyModel } from "./family_models.ts";
import { random } from "./ops/case.ts";
import { repoDir } from "./shared.ts";

/** A vocabulary for models that have none: a printable character a token. */
export const VOCABULARY = {
  "tokenizer.ggml.model": ggufValue.str("gpt2"),
  "tokenizer.ggml.pre": ggufValue.str("default"),
  "tokenizer.ggml.tokens": ggufValue.strs([
    ...Array.from({ length: N_VOCAB - 2 }, (_, i) => String.fromCharCode(33 + i)),
    "!!",
    "<end>",
  ]),
  "tokenizer.ggml.token_type": ggufValue.i32s(Array.from({ length: N_VOCAB }, (_, i) => i === N_VOCAB - 1 ? 3 : 1)),
  "tokenizer.ggml.merges": ggufValue.strs(["! !"]),
  "tokenizer.ggml.eos_token_id": ggufValue.u32(N_VOCAB - 1),
};

/** Of tests/goldens. */
export const PEER_LOGITS_PATH = `${repoDir}tests/goldens/peer_logits.json`;

/**
 * Changes to the random models, of which llama.cpp takes the first that it can load: some of its families have no head size of their
 * own, or take the width of experts from the dense layers.
 */
export const VARIANTS: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  "as they are": {},
  "two heads": { "attention.head_count": 2, "attention.head_count_kv": 1 },
  "two heads and keys": { "attention.head_count": 2, "attention.head_count_kv": 2 },
  "wide experts": { expert_feed_forward_length: 96 },
  "two heads, wide experts": {
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
    expert_feed_forward_length: 96,
  },
  "inner size of two widths": { "ssm.inner_size": 128 },
};

export interface PeerLogits {
  /** Of `VARIANTS`. */
  readonly variant: string;
  /** Of `peerText`. */
  readonly ids: readonly number[];
  /** `[n_vocab]` of the last one. */
  readonly logits: readonly number[];
}

export function peerModel(path: string, name: string, variant: string): Promise<string> {
  const model = FAMILY_MODELS[name];
  return writeFamilyModel(path, { ...model, keys: { ...model.keys, ...VARIANTS[variant] } }, {
    written: { ...VOCABULARY, "tokenizer.ggml.add_bos_token": ggufValue.bool(false) },
  });
}

/** A text of letters: more tokens than the windows of most models, fewer than those that llama.cpp has not (Mistral, Phi-3, StarCoder2). */
export function peerText(name: string): string {
  const next = random(1, `${name} peer`);
  return Array.from({ length: 38 }, () => String.fromCharCode(97 + Math.floor(next() * 26))).join("");
}
