/**
 * The part of an engine that a scheduler of many sequences needs, as interfaces: whoever keeps these promises can be served.
 * @module
 */
import type { Residency } from "./residency.ts";
import type { Engine, Sequence, StepOutput, StepRequest } from "./mod.ts";

export interface TokenSequence extends Pick<Sequence, "length" | "reach" | "truncate" | "dispose"> {
  fork(): TokenSequence;
}

/** A request of a step, of any kind of sequence. */
export type TokenRequest<S extends TokenSequence = TokenSequence> =
  & Omit<StepRequest, "sequence">
  & { readonly sequence: S };

export interface TokenEngine<S extends TokenSequence = TokenSequence>
  extends Pick<Engine, "n_vocab" | "n_ctx" | "n_ubatch" | "topK"> {
  /** Experts that come and go; undefined where all are resident. */
  readonly residency?: Pick<Residency, "stats" | "reset"> | undefined;
  createSequence(): S;
  /** @throws EngineError `engine.no_pages` when the cache is full: then no sequence has changed. */
  step(requests: readonly TokenRequest<S>[]): Promise<StepOutput[]>;
}
