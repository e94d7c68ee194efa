/**
 * Writes the packed form of a model beside it (`core/gguf/packed.ts`).
 * @module
 */
import { bindModel, buildProgram } from "../arch/model.ts";
import { ModelError } from "../errors.ts";
import { PACK_ALIGN, packedPath, packMetadata } from "../gguf/packed.ts";
import type { GgufFile } from "../gguf/read.ts";
import { ggmlType, rowBytes } from "../gguf/types.ts";
import { GgufWriter } from "../gguf/write.ts";
import { isPackedWeight, packedBytes } from "../plan/weights.ts";
import type { Backend } from "../program/backend.ts";
import type { WeightDesc } from "../program/program.ts";

export interface PackOptions {
  readonly onProgress?: (doneBytes: number, totalBytes: number) => void;
  /** Bytes of the model that are packed at once; default: 64 MiB. */
  readonly piece?: number;
  /** Ends the work; what was written is removed. */
  readonly signal?: AbortSignal;
}

/** What a packed form holds. */
export interface Packed {
  readonly path: string;
  readonly n_tensor: number;
  readonly bytes: number;
}

/** Packed at once, of the file's bytes. */
const PIECE = 64 << 20;
/** Rows that are packed together. */
const GROUP = 8;

interface Job {
  readonly weight: WeightDesc;
  readonly n_matrix: number;
  /** Of one packed matrix, and from one to the next. */
  readonly bytes: number;
  readonly stride: number;
}

function jobOf(weight: WeightDesc): Job {
  const [n_in, n_out, ...rest] = weight.ne, n_matrix = rest.reduce((a, b) => a * b, 1);
  const bytes = packedBytes(weight.type, n_in, n_out), align = n_matrix > 1 ? PACK_ALIGN : 64;
  return { weight, n_matrix, bytes, stride: Math.ceil(bytes / align) * align };
}

/** Packed matrices of a job in order, in pieces with what fills them up to their stride. */
async function* pieces(file: GgufFile, backend: Backend, job: Job, most: number): AsyncGenerator<Uint8Array> {
  const { weight, n_matrix, bytes, stride } = job, [n_in, n_out] = weight.ne;
  const { path, offset } = file.place(file.tensor(weight.name)), row = rowBytes(weight.type, n_in);
  const pack = async (from: number, rows: number, matrices: number) => {
    const dst = new Uint8Array(packedBytes(weight.type, n_in, rows) * matrices);
    const source = { path, offset: offset + from, bytes: rows * row * matrices };
    await backend.packTensor(weight.type, [n_in, rows, matrices], source, dst);
    return dst;
  };
  const fill = new Uint8Array(stride - bytes), matrix = row * n_out;
  const together = fill.length > 0 ? 1 : Math.max(1, Math.floor(most / matrix));
  const rowsAtOnce = Math.max(GROUP, Math.floor(most / row / GROUP) * GROUP);
  for (let m = 0; m < n_matrix; m += together) {
    if (together > 1) {
      yield await pack(m * matrix, n_out, Math.min(together, n_matrix - m));
      continue;
    }
    for (let r = 0; r < n_out; r += rowsAtOnce) {
      yield await pack(m * matrix + r * row, Math.min(rowsAtOnce, n_out - r), 1);
    }
    if (fill.length > 0) yield fill;
  }
}

/**
 * Packs what the host's kernels want packed of a model. The file is written beside and renamed.
 * @throws {ModelError} `model.nothing_to_pack` · {@link NativeError} · {@link OsError}
 * @returns undefined when the signal ended it
 */
export async function packModel(
  file: GgufFile,
  backend: Backend,
  options: PackOptions = {},
): Promise<Packed | undefined> {
  const { weights } = buildProgram(bindModel(file), { n_tok: 1, n_out: 1, n_seq: 1, n_page: 1 }, 1, 0);
  const jobs = weights.filter(isPackedWeight).map(jobOf);
  if (jobs.length === 0) {
    throw new ModelError(
      "model.nothing_to_pack",
      `Cannot pack ${file.name}: the host uses all of its weights as they are`,
      {
        at: { file: file.name },
        hint: "no packed form is needed: its weights are mapped from the file itself",
      },
    );
  }
  const path = packedPath(file.name), i8 = ggmlType("i8");
  const tensors = jobs.map(({ weight, n_matrix, stride }) => ({ name: weight.name, type: i8, ne: [stride, n_matrix] }));
  using writer = GgufWriter.create({ path, metadata: packMetadata(file), tensors, alignment: PACK_ALIGN });
  const total = jobs.reduce((n, j) => n + j.stride * j.n_matrix, 0);
  let done = 0;
  for (const job of jobs) {
    for await (const piece of pieces(file, backend, job, options.piece ?? PIECE)) {
      if (options.signal?.aborted) return undefined;
      writer.writeTensor(job.weight.name, piece);
      done += piece.length;
      options.onProgress?.(done, total);
    }
  }
  writer.finish();
  return { path, n_tensor: jobs.length, bytes: writer.totalBytes };
}
