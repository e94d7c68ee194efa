/**
 * `Backend` over a native library. Pointers stay in private fields; a status becomes a `NativeError`; every call that may
 * take long runs off the event loop and queues behind the calls on the same handle.
 * @module
 */
import type {
  Backend,
  CacheHandle,
  CacheSpec,
  DeviceInfo,
  FileRange,
  PoolHandle,
  PoolSpec,
  ProgramHandle,
  QuantizeJob,
  StepInput,
  TensorHandle,
  TensorSpec,
} from "../core/program/backend.ts";
import { encodeProgram } from "../core/program/encode.ts";
import type { Program } from "../core/program/program.ts";
import { type GgmlType, rowBytes } from "../core/gguf/types.ts";
import { bytesOf, check, Handle, handles, N_ERR, ne4, pointerFrom, text } from "./handle.ts";
import { type Library, type LibraryName, openLibrary, STATUS } from "./library.ts";
import { createPool } from "./pool.ts";
import { NativeTensor } from "./tensor.ts";

const STATUS_DATA = STATUS.indexOf("native.data");

class NativeCache extends Handle implements CacheHandle {
  readonly streamBytes: readonly number[];

  constructor(readonly library: Library, pointer: Deno.PointerObject, { streams, page_size }: CacheSpec) {
    super(pointer, (p) => library.symbols.bl_cache_free(p));
    this.streamBytes = streams.map((s) => Math.ceil(page_size / s.ratio) * rowBytes(s.type, s.ne));
  }

  get pageBytes(): number {
    return Number(this.library.symbols.bl_cache_page_bytes(this.pointer));
  }

  copyPages(src: readonly number[], dst: readonly number[]): void {
    const err = new Uint8Array(N_ERR);
    const n = src.length;
    check(
      this.library.symbols.bl_cache_copy(
        this.pointer,
        bytesOf(Int32Array.from(src)),
        bytesOf(Int32Array.from(dst)),
        n,
        err,
        BigInt(N_ERR),
      ),
      err,
    );
  }

  readPages(pages: readonly number[]): Uint8Array {
    const err = new Uint8Array(N_ERR);
    const data = new Uint8Array(pages.length * this.pageBytes);
    check(
      this.library.symbols.bl_cache_read(
        this.pointer,
        bytesOf(Int32Array.from(pages)),
        pages.length,
        data,
        BigInt(data.length),
        err,
        BigInt(N_ERR),
      ),
      err,
    );
    return data;
  }

  writePages(pages: readonly number[], data: Uint8Array): void {
    const err = new Uint8Array(N_ERR);
    check(
      this.library.symbols.bl_cache_write(
        this.pointer,
        bytesOf(Int32Array.from(pages)),
        pages.length,
        bytesOf(data),
        BigInt(data.length),
        err,
        BigInt(N_ERR),
      ),
      err,
    );
  }
}

/** A step's input as `bl_program_step` reads it. */
export function stepWords(input: StepInput): Int32Array<ArrayBuffer> {
  const counts = [input.tokens.length, input.outRows.length, input.n_seq, ...input.n_page];
  const derived = input.derived.map((d) => new Int32Array(d.buffer, d.byteOffset, d.length));
  const { tokens, positions, seqs, outRows, targets, pages } = input;
  const parts = [counts, tokens, positions, seqs, outRows, targets, ...pages, ...derived];
  const words = new Int32Array(parts.reduce((n, part) => n + part.length, 0));
  let at = 0;
  for (const part of parts) {
    words.set(part, at);
    at += part.length;
  }
  return words;
}

class NativeProgram extends Handle implements ProgramHandle {
  readonly #err = new Uint8Array(N_ERR);
  /** Calls on one handle may not overlap: each waits for the one before. */
  #tail: Promise<unknown> = Promise.resolve();

  constructor(readonly library: Library, pointer: Deno.PointerObject, readonly program: Program) {
    super(pointer, (p) => library.symbols.bl_program_free(p));
  }

  get scratchBytes(): number {
    return Number(this.library.symbols.bl_program_scratch_bytes(this.pointer));
  }

  step(input: StepInput, wanted: readonly string[]): Promise<Record<string, Float32Array | Int32Array>> {
    const run = this.#tail.then(() => this.#step(input, wanted));
    this.#tail = run.catch(() => {});
    return run;
  }

  async #step(input: StepInput, wanted: readonly string[]): Promise<Record<string, Float32Array | Int32Array>> {
    const n_tok = input.tokens.length;
    const n_out = input.outRows.length;
    const words = stepWords(input);
    const p = this.program;
    let mask = 0n;
    let n_output = 0;
    const slices: { name: string; offset: number; n: number; i32: boolean }[] = [];
    p.outputs.forEach((o, i) => {
      if (!wanted.includes(o.name)) return;
      const t = p.tensors[o.tensor];
      const laidOut = t.rows === "tok" ? p.n_tok : p.n_out;
      const n = t.ne.reduce((a, b) => a * b, 1) / laidOut * (t.rows === "tok" ? n_tok : n_out);
      slices.push({ name: o.name, offset: n_output, n, i32: t.type.name === "i32" });
      n_output += n * 4;
      mask |= 1n << BigInt(i);
    });
    const output = new Uint8Array(n_output);
    const status = await this.library.symbols.bl_program_step(
      this.pointer,
      bytesOf(words),
      BigInt(words.byteLength),
      output,
      BigInt(n_output),
      mask,
      this.#err,
      BigInt(N_ERR),
    );
    check(status, this.#err);
    const result: Record<string, Float32Array | Int32Array> = {};
    for (const s of slices) {
      result[s.name] = s.i32
        ? new Int32Array(output.buffer, s.offset, s.n)
        : new Float32Array(output.buffer, s.offset, s.n);
    }
    return result;
  }
}

/** What a path leads to now. The library reports a missing file, so it is opened here without a check. */
function fileKey(path: string): string {
  try {
    const { dev, ino, size, mtime } = Deno.statSync(path);
    return JSON.stringify([path, dev, ino, size, mtime?.getTime()]);
  } catch {
    return path;
  }
}

class NativeBackend extends Handle implements Backend {
  readonly #library: Library;
  readonly #files = new Map<string, Handle>();
  /** Of logical devices: whose memory they have. */
  readonly #added = new Map<number, number>();

  constructor(library: Library, pointer: Deno.PointerObject) {
    super(pointer, (p) => library.symbols.bl_runtime_close(p));
    this.#library = library;
  }

  get devices(): readonly DeviceInfo[] {
    const all: DeviceInfo[] = JSON.parse(
      fetchText((out, n) => this.#library.symbols.bl_runtime_devices(this.pointer, out, n)),
    );
    return all.map((d) => {
      const like = this.#added.get(d.index);
      return like === undefined ? d : { ...d, like };
    });
  }

  addDevice(like: number): number {
    const err = new Uint8Array(N_ERR), out = new Uint32Array(1);
    check(this.#library.symbols.bl_runtime_add_device(this.pointer, like, bytesOf(out), err, BigInt(N_ERR)), err);
    this.#added.set(out[0], this.#added.get(like) ?? like);
    return out[0];
  }

  async loadTensor(spec: TensorSpec): Promise<TensorHandle> {
    const err = new Uint8Array(N_ERR);
    const out = new BigUint64Array(1);
    const { symbols } = this.#library;
    const { source, packed } = spec;
    const status = "path" in source && packed !== undefined
      ? symbols.bl_tensor_map(
        this.pointer,
        spec.device,
        spec.type.id,
        ne4(spec.ne),
        spec.uses,
        this.#file(source.path).pointer,
        BigInt(source.offset),
        BigInt(source.bytes),
        this.#file(packed.path).pointer,
        BigInt(packed.offset),
        BigInt(packed.stride),
        out,
        err,
        BigInt(N_ERR),
      )
      : "path" in source
      ? await symbols.bl_tensor_load(
        this.pointer,
        spec.device,
        spec.type.id,
        ne4(spec.ne),
        spec.uses,
        this.#file(source.path).pointer,
        BigInt(source.offset),
        BigInt(source.bytes),
        out,
        err,
        BigInt(N_ERR),
      )
      : await symbols.bl_tensor_create(
        this.pointer,
        spec.device,
        spec.type.id,
        ne4(spec.ne),
        spec.uses,
        bytesOf(source.data),
        BigInt(source.data.length),
        out,
        err,
        BigInt(N_ERR),
      );
    check(status, err);
    return new NativeTensor(this.#library, pointerFrom(out));
  }

  async packTensor(type: GgmlType, ne: readonly number[], source: FileRange, dst: Uint8Array): Promise<void> {
    const err = new Uint8Array(N_ERR);
    const status = await this.#library.symbols.bl_pack(
      this.pointer,
      0,
      type.id,
      ne4(ne),
      this.#file(source.path).pointer,
      BigInt(source.offset),
      BigInt(source.bytes),
      bytesOf(dst),
      BigInt(dst.length),
      err,
      BigInt(N_ERR),
    );
    check(status, err);
  }

  createCache(spec: CacheSpec): CacheHandle {
    const err = new Uint8Array(N_ERR);
    const out = new BigUint64Array(1);
    const status = this.#library.symbols.bl_cache_create(
      this.pointer,
      spec.device,
      spec.streams.length,
      bytesOf(Uint32Array.from(spec.streams, (s) => s.type.id)),
      bytesOf(Uint32Array.from(spec.streams, (s) => s.ne)),
      bytesOf(Uint32Array.from(spec.streams, (s) => s.ratio)),
      spec.page_size,
      spec.n_pages,
      out,
      err,
      BigInt(N_ERR),
    );
    check(status, err, "use a smaller --ctx-size or --parallel, or a q8_0 cache");
    return new NativeCache(this.#library, pointerFrom(out), spec);
  }

  createPool(spec: PoolSpec): PoolHandle {
    return createPool(this.#library, this.pointer, spec, (path) => this.#file(path).pointer);
  }

  createProgram(program: Program, weights: readonly TensorHandle[], caches: readonly CacheHandle[]): ProgramHandle {
    const err = new Uint8Array(N_ERR);
    const out = new BigUint64Array(1);
    const code = encodeProgram(program) as Uint8Array<ArrayBuffer>;
    const status = this.#library.symbols.bl_program_create(
      this.pointer,
      code,
      BigInt(code.length),
      handles(weights as NativeTensor[]),
      BigInt(weights.length),
      handles(caches as NativeCache[]),
      BigInt(caches.length),
      out,
      err,
      BigInt(N_ERR),
    );
    check(status, err);
    return new NativeProgram(this.#library, pointerFrom(out), program);
  }

  measureProgram(program: Program, device: number, caches: readonly CacheSpec[]): number | undefined {
    const err = new Uint8Array(N_ERR);
    const out = new BigUint64Array(1);
    const code = encodeProgram(program) as Uint8Array<ArrayBuffer>;
    const weights = program.weights.flatMap((w) => [w.type.id, ...w.ne, w.uses, w.device].map(BigInt));
    const words = caches.flatMap((c) => [
      c.device,
      c.page_size,
      c.n_pages,
      c.streams.length,
      ...c.streams.flatMap((s) => [s.type.id, s.ne, s.ratio]),
    ]);
    const status = this.#library.symbols.bl_program_measure(
      this.pointer,
      device,
      code,
      BigInt(code.length),
      BigUint64Array.from(weights),
      BigInt(program.weights.length),
      bytesOf(Uint32Array.from(words)),
      BigInt(words.length),
      out,
      err,
      BigInt(N_ERR),
    );
    if (STATUS[status] === "native.unsupported") return undefined;
    check(status, err);
    return Number(out[0]);
  }

  async quantize(job: QuantizeJob): Promise<Uint8Array> {
    const err = new Uint8Array(N_ERR);
    const dst = job.dst ?? new Uint8Array(job.n_rows * rowBytes(job.dstType, job.n_per_row));
    const { symbols } = this.#library;
    const rest = [
      job.dstType.id,
      bytesOf(dst),
      BigInt(dst.length),
      BigInt(job.n_rows),
      BigInt(job.n_per_row),
      job.weights === undefined ? null : bytesOf(job.weights),
      err,
      BigInt(N_ERR),
    ] as const;
    const { src, device = 0 } = job;
    const status = "path" in src
      ? await symbols.bl_quantize_file(
        this.pointer,
        device,
        job.srcType.id,
        this.#file(src.path).pointer,
        BigInt(src.offset),
        BigInt(src.bytes),
        ...rest,
      )
      : await symbols.bl_quantize(this.pointer, device, job.srcType.id, bytesOf(src), BigInt(src.length), ...rest);
    check(status, err);
    return dst;
  }

  async dequantize(type: GgmlType, src: Uint8Array, n: number, device = 0): Promise<Float32Array> {
    const err = new Uint8Array(N_ERR);
    const dst = new Float32Array(n);
    const status = await this.#library.symbols.bl_dequantize(
      this.pointer,
      device,
      type.id,
      bytesOf(src),
      BigInt(src.length),
      bytesOf(dst),
      BigInt(n),
      err,
      BigInt(N_ERR),
    );
    check(status, err);
    return dst;
  }

  async checkData(type: GgmlType, src: Uint8Array): Promise<{ first: number; count: number } | undefined> {
    const err = new Uint8Array(N_ERR);
    const bad = new BigUint64Array(2);
    const status = await this.#library.symbols.bl_check_data(
      this.pointer,
      type.id,
      bytesOf(src),
      BigInt(src.length),
      bad,
      err,
      BigInt(N_ERR),
    );
    if (status === STATUS_DATA) return { first: Number(bad[0]), count: Number(bad[1]) };
    check(status, err);
    return undefined;
  }

  async compareLogits(
    p: Float32Array,
    q: Float32Array,
    n_vocab: number,
  ): Promise<{ kl: Float64Array; sameTop: Uint8Array }> {
    if (p.length !== q.length || p.length % n_vocab !== 0) throw new Error("compareLogits: sizes do not fit");
    const err = new Uint8Array(N_ERR);
    const n_rows = p.length / n_vocab;
    const kl = new Float64Array(n_rows);
    const sameTop = new Uint8Array(n_rows);
    const status = await this.#library.symbols.bl_compare_logits(
      this.pointer,
      bytesOf(p),
      bytesOf(q),
      BigInt(n_rows),
      BigInt(n_vocab),
      bytesOf(kl),
      sameTop,
      err,
      BigInt(N_ERR),
    );
    check(status, err);
    return { kl, sameTop };
  }

  override [Symbol.dispose](): void {
    for (const file of this.#files.values()) file[Symbol.dispose]();
    this.#files.clear();
    super[Symbol.dispose]();
  }

  /** A file that was replaced or changed is opened anew; what others have of the old one stays valid. */
  #file(path: string): Handle {
    const key = fileKey(path);
    const known = this.#files.get(key);
    if (known) return known;
    const err = new Uint8Array(N_ERR);
    const out = new BigUint64Array(1);
    check(
      this.#library.symbols.bl_file_open(
        this.pointer,
        new TextEncoder().encode(path + "\0"),
        out,
        err,
        BigInt(N_ERR),
      ),
      err,
    );
    const file = new Handle(pointerFrom(out), (p) => this.#library.symbols.bl_file_close(p));
    this.#files.set(key, file);
    return file;
  }
}

/** Calls a `(out, n_out) -> length` getter, growing the buffer until the text fits. */
function fetchText(get: (out: Uint8Array<ArrayBuffer>, n: bigint) => bigint): string {
  for (let size = 4096;; size *= 4) {
    const out = new Uint8Array(size);
    if (Number(get(out, BigInt(size))) < size) return text(out);
  }
}

/** What a library says of itself: `{"backends": [...], "compiler": "..."}`. */
export function buildInfo(name: LibraryName): { backends: string[]; compiler: string } {
  const library = openLibrary(name);
  return JSON.parse(fetchText((out, n) => library.symbols.bl_build_info(out, n)));
}

/**
 * Opens a native backend.
 * @param threads Worker threads of the host device; 0 = one per core.
 * @throws {NativeError} when the library is missing or no device can be opened
 */
export function openNativeBackend(name: LibraryName, options: { threads?: number } = {}): Backend {
  const library = openLibrary(name);
  const err = new Uint8Array(N_ERR);
  const out = new BigUint64Array(1);
  check(library.symbols.bl_runtime_open(options.threads ?? 0, out, err, BigInt(N_ERR)), err);
  return new NativeBackend(library, pointerFrom(out));
}
