/**
 * Options and progress of a `prepare` run that writes files.
 * @module
 */
import type { SplitLimits } from "../reshard.ts";
import type { FollowOptions } from "./follow.ts";
import type { PreparedTensor, PrepareOptions } from "./source.ts";

/** A tensor that was converted while other files were still to come. */
export interface EarlyProgress {
  /** Which one. */
  readonly tensor: PreparedTensor;
  /** Tensors converted so far, and their bytes. */
  readonly n_tensors: number;
  /** Of those. */
  readonly bytes: number;
}

/** How far a run has come. */
export interface PrepareProgress {
  /** The tensor being written. */
  readonly tensor: PreparedTensor;
  /** Its place among all tensors. */
  readonly index: number;
  /** How many there are. */
  readonly n_tensors: number;
  /** The tensor is whole with this. */
  readonly whole: boolean;
  /** Tensor bytes written, of all. */
  readonly bytes: number;
  /** Of them, those that an earlier run had written. */
  readonly resumed: number;
  /** Tensor bytes of the whole run. */
  readonly totalBytes: number;
}

/** What a run makes, and how. */
export interface PrepareFileOptions extends PrepareOptions, SplitLimits {
  /** Bytes that buffers may take; 16 MiB where left out. A read never takes less than one row. */
  room?: number;
  /** Continues an interrupted run. When `signal` or a full disk stops this run, its files stay for the next one. */
  resume?: boolean;
  /** Waits for files that are still arriving in the folder, and converts tensors as soon as they are there. */
  follow?: FollowOptions;
  /** Called for each tensor that was converted before all files were there. */
  onEarly?: (p: EarlyProgress) => void;
  /** Called after each piece that was written. */
  onProgress?: (p: PrepareProgress) => void;
  /** Stops the run. */
  signal?: AbortSignal;
}
