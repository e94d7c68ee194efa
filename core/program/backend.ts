/**
 * `Backend`: the one interface between the engine and whatever does the arithmetic. `ffi/backend.ts` implements it over the
 * native libraries, `reference.ts` in plain TypeScript.
 * @module
 */
import type { GgmlType } from "../gguf/types.ts";
import type { Program } from "./program.ts";

/** A device of a backend. */
export interface DeviceInfo {
  /** Its number in the backend; 0 is the host. */
  readonly index: number;
  /** `cpu`, `cuda`, `reference`. */
  readonly kind: string;
  /** As its maker calls it. */
  readonly name: string;
  /** Memory it has. */
  readonly memory_bytes: number;
  /** Memory that was free when the backend was opened. */
  readonly free_bytes: number;
  /** Instruction sets, or compute capability. */
  readonly features: readonly string[];
  /** Of a logical device: the one whose memory and processors it shares. */
  readonly like?: number;
  /** Of the host: its worker threads, the caller among them. */
  readonly threads?: number;
  /** Of the host: the number of the layouts that `packTensor` gives. */
  readonly pack_layout?: number;
}

/** Bytes of a file. */
export interface FileRange {
  /** Of the file. */
  readonly path: string;
  /** First byte. */
  readonly offset: number;
  /** How many. */
  readonly bytes: number;
}

/** Where a tensor's bytes are: a range of a file, or memory. */
export type TensorSource = FileRange | { readonly data: Uint8Array };

/** Packed matrices of a weight in a file, `stride` bytes apart. */
export interface PackedRange {
  /** Of the file. */
  readonly path: string;
  /** Of the first matrix. */
  readonly offset: number;
  /** From one matrix to the next. */
  readonly stride: number;
}

export interface TensorSpec {
  readonly device: number;
  readonly type: GgmlType;
  /** Fastest first. */
  readonly ne: readonly number[];
  /** `USE` bits. */
  readonly uses: number;
  readonly source: TensorSource;
  /** Where its packed matrices lie, to be used as they are. */
  readonly packed?: PackedRange | undefined;
}

/** A weight on a device. */
export interface TensorHandle extends Disposable {
  /** Bytes it takes there; 0 when it is used from a file mapping. */
  readonly deviceBytes: number;
}

/** A pool of slots, each of which holds one expert of one layer. */
export interface PoolSpec {
  readonly device: number;
  readonly slot_bytes: number;
  readonly n_slots: number;
}

/** A routed weight `[n_in, n_out, n_expert]` of a pool. */
export interface PooledTensor {
  /** The tensors of one layer, numbered from 0 in the order they are added. */
  readonly group: number;
  readonly type: GgmlType;
  readonly ne: readonly number[];
}

/** Bytes of a routed weight for a pool: as a file has them, or packed. */
export type PooledSource = FileRange | PackedRange;

/** What a pool counted since it was made. */
export interface PoolCounts {
  readonly read_bytes: number;
  readonly n_reads: number;
  /** Time that steps waited for reads. */
  readonly wait_ms: number;
  /** Slots that hold an expert. */
  readonly n_held: number;
  /** Reads pass the system's page cache by. */
  readonly direct: boolean;
  /** Bytes of experts that were read before their layer was computed; of them, those that left without being used. */
  readonly ahead_bytes: number;
  readonly unused_bytes: number;
  readonly groups: readonly {
    /** Experts that were there when an op needed them. */
    readonly hits: number;
    readonly misses: number;
    /** Where experts were guessed before their layer was computed: those that it needed, those that were guessed, and both. */
    readonly n_needed: number;
    readonly n_guessed: number;
    readonly n_right: number;
    /** Rows that each expert computed. */
    readonly rows: Float64Array;
  }[];
}

/** Slots that experts are read into while steps run. An answer never depends on what they hold. */
export interface PoolHandle extends Disposable {
  /** Of the slots and of what is read into. */
  readonly bytes: number;
  /** @throws {NativeError} `native.argument`, `native.io` */
  addTensor(spec: PooledTensor, source: PooledSource): TensorHandle;
  /**
   * Names a file with the same bytes as another that the pool reads.
   * @throws {NativeError} `native.io` when the sizes differ
   */
  addCopy(of: string, copy: string): void;
  /** Experts with a 1 stay longer than those with a 0. */
  seat(group: number, seated: Uint8Array): void;
  /** Reads the experts with a 1 that are not there. @throws {NativeError} `native.io` */
  fill(): Promise<void>;
  counts(): PoolCounts;
}

export interface CacheSpec {
  readonly device: number;
  /** One entry per stream: element type (f32, f16 or q8_0), elements of a row, and positions for which there is a row. */
  readonly streams: readonly { readonly type: GgmlType; readonly ne: number; readonly ratio: number }[];
  readonly page_size: number;
  readonly n_pages: number;
}

/** Paged per-token storage on a device; pages are numbered, the engine decides who has which. */
export interface CacheHandle extends Disposable {
  readonly pageBytes: number;
  /** Of each stream in a page, in their order: together `pageBytes`. */
  readonly streamBytes: readonly number[];
  copyPages(src: readonly number[], dst: readonly number[]): void;
  readPages(pages: readonly number[]): Uint8Array;
  writePages(pages: readonly number[], data: Uint8Array): void;
}

/** The small inputs of one step. Counts are at most the program's. */
export interface StepInput {
  readonly tokens: Int32Array;
  readonly positions: Int32Array;
  /** Row of the page tables for each token. */
  readonly seqs: Int32Array;
  readonly outRows: Int32Array;
  /** One per output row, -1 for none. */
  readonly targets: Int32Array;
  /** For each cache `[n_seq, n_page]` page ids: -1 past a sequence's end, and before what a row of the step can still reach. */
  readonly pages: readonly Int32Array[];
  /** Pages of one sequence, for each cache. */
  readonly n_page: readonly number[];
  readonly n_seq: number;
  /** For each derived input of the program `[n_tok, n]`. */
  readonly derived: readonly (Int32Array | Float32Array)[];
}

export interface ProgramHandle extends Disposable {
  readonly scratchBytes: number;
  /**
   * Runs one step and resolves with the wanted outputs, by name, each `[rows of the step, ...]`.
   * @throws {NativeError} `native.input` when an input is out of range; nothing was written then.
   */
  step(input: StepInput, outputs: readonly string[]): Promise<Record<string, Float32Array | Int32Array>>;
}

export interface QuantizeJob {
  readonly srcType: GgmlType;
  readonly src: Uint8Array | FileRange;
  /** Rows that have this type already are copied. */
  readonly dstType: GgmlType;
  readonly n_rows: number;
  readonly n_per_row: number;
  /** Importance, `[n_per_row]`. */
  readonly weights?: Float32Array | undefined;
  /** Where the rows go, of exactly their size; a new array where left out. */
  readonly dst?: Uint8Array | undefined;
  /** Which device encodes; 0, the host, where left out. */
  readonly device?: number;
}

/** Whatever does the arithmetic. Users of the library get one from `openBackend` and hand it on; its methods are for the engine. */
export interface Backend extends Disposable {
  /** All devices; the first is the host. */
  readonly devices: readonly DeviceInfo[];
  /**
   * Adds a logical device: the memory and the processors of one that is there.
   * @returns its number
   * @throws {NativeError} `native.unsupported` where a device can be there once only
   * @internal
   */
  addDevice(like: number): number;
  /** @internal */
  loadTensor(spec: TensorSpec): Promise<TensorHandle>;
  /**
   * Matrices `[n_in, n_out, n_matrix]` of a file as `loadTensor` packs them on the host; `dst` has exactly their size.
   * @internal
   */
  packTensor(type: GgmlType, ne: readonly number[], source: FileRange, dst: Uint8Array): Promise<void>;
  /** @internal */
  createCache(spec: CacheSpec): CacheHandle;
  /**
   * @throws {NativeError} `native.unsupported` on a device that has no pools
   * @internal
   */
  createPool(spec: PoolSpec): PoolHandle;
  /**
   * `weights` in the order of `program.weights`.
   * @internal
   */
  createProgram(program: Program, weights: readonly TensorHandle[], caches: readonly CacheHandle[]): ProgramHandle;
  /**
   * Bytes of scratch memory that a program needs on one of its devices, before there are weights and caches; undefined where the
   * device cannot tell. The others need not be there.
   * @internal
   */
  measureProgram(program: Program, device: number, caches: readonly CacheSpec[]): number | undefined;

  /**
   * Encodes rows; bit-exact on every backend. Gives `dst` back.
   * @throws {NativeError} `native.data` when the source has a NaN, an infinity or an invalid scale, or the result has one;
   * `native.io` when the source cannot be read
   * @internal
   */
  quantize(job: QuantizeJob): Promise<Uint8Array>;
  /** Decodes `n` elements to f32; `device` 0 is the host. */
  dequantize(type: GgmlType, src: Uint8Array, n: number, device?: number): Promise<Float32Array>;
  /** Index of the first NaN, infinity or invalid scale and how many blocks have one; undefined when all is well. */
  checkData(type: GgmlType, src: Uint8Array): Promise<{ first: number; count: number } | undefined>;
  /** KL divergence and top-1 agreement of two sets of logits, row by row. */
  compareLogits(
    p: Float32Array,
    q: Float32Array,
    n_vocab: number,
  ): Promise<{ kl: Float64Array; sameTop: Uint8Array }>;
}
