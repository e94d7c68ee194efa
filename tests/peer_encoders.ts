/**
 * The random models of `encoder_models.ts` with a vocabulary, and how their vectors are pooled: what `scripts/peer_vectors.ts` and
 * `encoders_test.ts` share.
 * @module
 */
import { ggufValue } from "../core/gguf/metadata.ts";
import { type Pooling, poolingOf } from "../serve/embedder.ts";
import { ENCODER_MODELS } from "./encoder_models.ts";
import { writeFamilyModel } from "./family_models.ts";
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
