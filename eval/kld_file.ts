/**
 * Files of whole rows of log-probabilities, as `llama-perplexity --kl-divergence-base FILE` writes and reads them.
 *
 * ```
 * "_logits_"                                   8 bytes
 * n_ctx, n_vocab, n_chunk                      i32 each
 * token ids                                    i32 [n_chunk, n_ctx]
 * for each chunk, rows of positions n_ctx/2 .. n_ctx-2:
 *   scale, least                               f32 each
 *   codes                                      u16 [n_vocab, and one more where that is odd]
 * ```
 *
 * All little-endian. A log-probability is `scale * code + least`; what is more than 16 below the best has code 0. Every chunk is run
 * on its own, with bos in place of its first token where the vocabulary starts texts with it.
 * @module
 */
import { EvalError } from "../core/errors.ts";
import { scoredPositions, type Window } from "./windows.ts";

const MAGIC = "_logits_";
const HEAD = 20;
/** Log-probabilities are kept down to so much below the best of their row. */
const RANGE = 16;
/** Base probabilities below exp of this count for nothing in the divergence. */
const FLOOR = -16;
const MAX_CODE = 65535;
/** More than any file has; a number beyond is damage. */
const MAX_CTX = 1 << 24, MAX_VOCAB = 1 << 24, MAX_TOKENS = 1 << 28;

/** What a file says before its rows. */
export interface KldHeader {
  readonly n_ctx: number;
  readonly n_vocab: number;
  readonly n_chunk: number;
  /** `[n_chunk, n_ctx]` */
  readonly ids: Int32Array;
}

/** Positions at a chunk's start that are not scored. */
export function kldSkip(n_ctx: number): number {
  return Math.floor(n_ctx / 2);
}

/** Bytes of a row. */
export function kldRowBytes(n_vocab: number): number {
  return 8 + 4 * Math.ceil(n_vocab / 2);
}

function chunkBytes({ n_ctx, n_vocab }: Pick<KldHeader, "n_ctx" | "n_vocab">): number {
  return scoredPositions(n_ctx, kldSkip(n_ctx)) * kldRowBytes(n_vocab);
}

/** Bytes before the first row. */
function headBytes(h: KldHeader): number {
  return HEAD + 4 * h.ids.length;
}

/** Header and tokens as bytes. */
export function encodeKldHeader(h: KldHeader): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(headBytes(h)), view = new DataView(bytes.buffer);
  bytes.set(new TextEncoder().encode(MAGIC));
  [h.n_ctx, h.n_vocab, h.n_chunk, ...h.ids].forEach((x, i) => view.setInt32(8 + 4 * i, x, true));
  return bytes;
}

/**
 * A row as the file holds it.
 * @param logits `[n_vocab]`
 * @param lse Log-sum-exp of them.
 * @throws {EvalError} `eval.non_finite`
 */
export function encodeKldRow(logits: Float32Array, lse: number, out: Uint8Array, at: number): void {
  let best = -Infinity, least = Infinity;
  for (let i = 0; i < logits.length; i++) {
    const x = logits[i];
    if (x > best) best = x;
    if (x < least) least = x;
  }
  if (!Number.isFinite(best - lse)) {
    throw new EvalError("eval.non_finite", `Cannot keep a row of logits: its log-sum-exp is ${lse}, its best ${best}`, {
      at: { lse: String(lse), best: String(best) },
      hint: "the model's numbers are out of range: check the file with bloomery inspect",
    });
  }
  least = Math.max(least, best - RANGE);
  const scale = Math.fround((best - least) / MAX_CODE);
  const view = new DataView(out.buffer, out.byteOffset + at, kldRowBytes(logits.length));
  view.setFloat32(0, scale, true);
  view.setFloat32(4, least - lse, true);
  for (let i = 0; i < logits.length; i++) {
    const code = scale > 0 && logits[i] > least ? Math.min(MAX_CODE, Math.round((logits[i] - least) / scale)) : 0;
    view.setUint16(8 + 2 * i, code, true);
  }
}

/** A row of the base, as read. */
export interface KldRow {
  readonly scale: number;
  readonly least: number;
  readonly codes: Uint16Array;
}

/** What a row and a model's logits at the same position give. */
export interface KldPosition {
  /** KL(base || model), nats; base probabilities below e^-16 count for nothing. */
  readonly kl: number;
  /** Log-probability that the base gives the target. */
  readonly logprobBase: number;
  /** Both have the same best token. */
  readonly sameTop: boolean;
}

/** Compares a row of the base with a model's logits. @param best The model's best token. */
export function compareKldRow(
  base: KldRow,
  logits: Float32Array,
  lse: number,
  best: number,
  target: number,
): KldPosition {
  const { scale, least, codes } = base;
  let kl = 0, bestBase = 0;
  for (let i = 0; i < logits.length; i++) {
    if (codes[i] > codes[bestBase]) bestBase = i;
    const logprob = scale * codes[i] + least;
    if (logprob > FLOOR) kl += Math.exp(logprob) * (logprob - (logits[i] - lse));
  }
  return { kl, logprobBase: scale * codes[target] + least, sameTop: bestBase === best };
}

/** Whether a file begins as these do; one that cannot be read does not, and whoever opens it says why. */
export function isKldFile(path: string): boolean {
  try {
    using file = Deno.openSync(path);
    const bytes = new Uint8Array(MAGIC.length);
    return file.readSync(bytes) === bytes.length && new TextDecoder().decode(bytes) === MAGIC;
  } catch {
    return false;
  }
}

/** An opened file of whole rows. Hold it with `using`. */
export class KldFile implements Disposable {
  readonly #file: Deno.FsFile;
  readonly #path: string;
  readonly header: KldHeader;
  /** Chunks whose rows are all there; less than the header says where a run did not end. */
  readonly n_whole: number;

  private constructor(file: Deno.FsFile, path: string, header: KldHeader, size: number) {
    this.#file = file;
    this.#path = path;
    this.header = header;
    this.n_whole = Math.min(header.n_chunk, Math.max(0, Math.floor((size - headBytes(header)) / chunkBytes(header))));
  }

  /** @throws {EvalError} `eval.kld_file` */
  static open(path: string): KldFile {
    const file = Deno.openSync(path);
    try {
      const { size } = file.statSync();
      return new KldFile(file, path, readHeader(file, path, size), size);
    } catch (error) {
      file.close();
      throw error;
    }
  }

  /** Bytes of header, tokens and the first `n` chunks. */
  end(n: number): number {
    return headBytes(this.header) + n * chunkBytes(this.header);
  }

  /** A chunk's rows as bytes. */
  chunk(index: number): Uint8Array {
    if (index < 0 || index >= this.n_whole) {
      throw new Error(`chunk ${index} is not among the ${this.n_whole} of the file`);
    }
    this.#file.seekSync(this.end(index), Deno.SeekMode.Start);
    return readExactly(this.#file, this.#path, chunkBytes(this.header));
  }

  /** The rows of a chunk. @throws {EvalError} `eval.kld_file` for numbers that no log-probabilities are */
  rows(index: number): KldRow[] {
    const { n_ctx, n_vocab } = this.header;
    const bytes = this.chunk(index), size = kldRowBytes(n_vocab), view = new DataView(bytes.buffer);
    return Array.from({ length: scoredPositions(n_ctx, kldSkip(n_ctx)) }, (_, r) => {
      const scale = view.getFloat32(r * size, true), least = view.getFloat32(r * size + 4, true);
      // The best log-probability of a row is at most 0, give or take the rounding of 32-bit floats.
      if (!(scale >= 0 && Number.isFinite(scale) && Number.isFinite(least) && scale * MAX_CODE + least < 1e-2)) {
        throw wrong(this.#path, `row ${r} of chunk ${index} has scale ${scale} and least ${least}`);
      }
      const codes = new Uint16Array(n_vocab);
      for (let i = 0; i < n_vocab; i++) codes[i] = view.getUint16(r * size + 8 + 2 * i, true);
      return { scale, least, codes };
    });
  }

  /** The chunks as windows. @param bos What stands in place of each first token; null for what the file has. */
  windows(source: string, bos: number | null): Window[] {
    const { n_ctx, ids } = this.header;
    return Array.from({ length: this.n_whole }, (_, index) => {
      const window = ids.slice(index * n_ctx, (index + 1) * n_ctx);
      if (bos !== null) window[0] = bos;
      return { source, index, ids: window, skip: kldSkip(n_ctx) };
    });
  }

  [Symbol.dispose](): void {
    this.#file.close();
  }
}

function wrong(file: string, what: string): EvalError {
  return new EvalError("eval.kld_file", `Cannot read ${file}: ${what}`, {
    at: { file },
    hint: "give a file that llama-perplexity --kl-divergence-base or bloomery score --format kld wrote",
  });
}

function readExactly(file: Deno.FsFile, path: string, n: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(n);
  for (let at = 0; at < n;) {
    const got = file.readSync(bytes.subarray(at));
    if (got === null) throw wrong(path, `it ends after ${at} of ${n} bytes`);
    at += got;
  }
  return bytes;
}

function readHeader(file: Deno.FsFile, path: string, size: number): KldHeader {
  if (size < HEAD) throw wrong(path, `it has ${size} bytes, expected at least ${HEAD}`);
  const head = readExactly(file, path, HEAD), view = new DataView(head.buffer);
  const magic = new TextDecoder().decode(head.subarray(0, MAGIC.length));
  if (magic !== MAGIC) throw wrong(path, `it begins with ${JSON.stringify(magic)}, expected "${MAGIC}"`);
  const [n_ctx, n_vocab, n_chunk] = [8, 12, 16].map((at) => view.getInt32(at, true));
  for (
    const [name, n, least, most] of [
      ["n_ctx", n_ctx, 3, MAX_CTX],
      ["n_vocab", n_vocab, 1, MAX_VOCAB],
      ["n_chunk", n_chunk, 1, Math.floor(MAX_TOKENS / Math.max(n_ctx, 1))],
    ] as const
  ) {
    if (n < least || n > most) throw wrong(path, `${name} is ${n}, expected ${least} to ${most}`);
  }
  const n = n_ctx * n_chunk;
  if (size < HEAD + 4 * n) throw wrong(path, `it ends before its ${n} tokens`);
  const bytes = readExactly(file, path, 4 * n), tokens = new DataView(bytes.buffer);
  const ids = Int32Array.from({ length: n }, (_, i) => tokens.getInt32(4 * i, true));
  const outside = ids.findIndex((id) => id < 0 || id >= n_vocab);
  if (outside >= 0) throw wrong(path, `token ${outside} is ${ids[outside]}, expected 0 to ${n_vocab - 1}`);
  return { n_ctx, n_vocab, n_chunk, ids };
}
