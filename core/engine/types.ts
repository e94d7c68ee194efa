/**
 * The part of an engine that a scheduler of many sequences needs, as interfaces: whoever keeps these promises can be served.
 * @module
 */
import type { Engine, Sequence, Snapshot, StepOutput, StepRequest } from "./mod.ts";
import type { Residency } from "./residency.ts";

export interface TokenSequence
  extends Pick<Sequence, "length" | "adapters" | "reach" | "rewind" | "truncate" | "dispose"> {
  fork(): TokenSequence;
}

/** A request of a step, of any kind of sequence. */
export type TokenRequest<S extends TokenSequence = TokenSequence> =
  & Omit<StepRequest, "sequence">
  & { readonly sequence: S };

export interface TokenEngine<S extends TokenSequence = TokenSequence>
  extends Pick<Engine, "n_vocab" | "n_ctx" | "n_ubatch" | "topK" | "oneStep" | "n_rank" | "n_free"> {
  /** Experts that come and go; undefined where all are resident. */
  readonly residency?: Pick<Residency, "stats" | "reset"> | undefined;
  /** @param adapters How much of each of the model's adapters; what the engine was told where left out. */
  createSequence(adapters?: readonly number[]): S;
  /** Whether there are pages for these tokens besides what is cached; where left out nobody may count on it. */
  hasRoom?(wanted: readonly { readonly sequence: S; readonly n: number }[]): boolean;
  /** A sequence as data. Not while a step runs. */
  snapshot(sequence: S): Snapshot;
  /** @throws EngineError `engine.no_pages`, `engine.snapshot`. Not while a step runs. */
  restore(snapshot: Snapshot): S;
  /** Gives weights and caches back; no sequence may be left. */
  sleep(): void;
  /** Loads them again. */
  wake(): Promise<void>;
  /** @throws EngineError `engine.no_pages` when the cache is full: then no sequence has changed. */
  step(requests: readonly TokenRequest<S>[]): Promise<StepOutput[]>;
}
