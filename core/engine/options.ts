/**
 * What a user of the engine may ask for.
 * @module
 */
import type { CacheType } from "../plan/plan.ts";
import type { ExpertRank } from "./residency.ts";

/** How an engine is set up. */
export interface EngineOptions {
  /** Index of the backend's device that holds everything. */
  readonly device?: number;
  /** The most tokens of one sequence. Default: what the model was trained for, or the largest that fits. */
  readonly n_ctx?: number;
  /** Tokens the cache holds over all sequences. Default: `contexts` times `n_ctx`. */
  readonly n_cache?: number;
  /** Whole contexts that the cache holds where `n_cache` does not say. Default: 1. */
  readonly contexts?: number;
  /** Sequences that run at once, each with its own windows and recurrent states. Default: `contexts`. */
  readonly n_seq?: number;
  /** The most token rows of one native step. */
  readonly n_ubatch?: number;
  /** The most output rows of one native step: whole rows of logits are large. Default: `n_ubatch`. */
  readonly n_out?: number;
  /** Element type of cached keys; f16 where left out. */
  readonly cacheTypeK?: CacheType;
  /** Element type of cached values; f16 where left out. */
  readonly cacheTypeV?: CacheType;
  /** Candidates per output row. */
  readonly topK?: number;
  /** Bytes of host memory that the model may take. Default: what is free. */
  readonly hostRoom?: number;
  /**
   * Slots of experts in host memory, where the room is not to decide.
   * @internal
   */
  readonly slots?: number;
  /** Rows that each expert computed in earlier work: which ones stay in memory first, where not all do. */
  readonly rank?: ExpertRank;
  /** Called while weights load. */
  readonly onProgress?: (doneBytes: number, totalBytes: number) => void;
  /** Called with what the file holds and the architecture does not use. */
  readonly onWarning?: (message: string) => void;
}
