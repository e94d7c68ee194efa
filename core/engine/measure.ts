/**
 * Measures what a machine moves and computes in a second, with calls that models use as well: products of each type with one row and with
 * many, small ops, copies to a card, and reads of a pool's experts from a drive.
 * @module
 */
import { FormatError } from "../errors.ts";
import { type GgmlType, ggmlType, rowBytes } from "../gguf/types.ts";
import {
  type Card,
  type Drive,
  type Machine,
  MACHINE_SCHEMA,
  type Processor,
  type ProductRate,
} from "../plan/machine.ts";
import { PAGE_SIZE } from "../plan/cache.ts";
import type { Backend, DeviceInfo, ProgramHandle, StepInput, TensorHandle } from "../program/backend.ts";
import { Ops, type Program, USE } from "../program/program.ts";

/** Types whose products are measured. */
export const MEASURED_TYPES = ["f16", "bf16", "q8_0", "q4_0", "q4_K", "q5_K", "q6_K", "iq4_xs", "mxfp4"] as const;

export interface MeasureOptions {
  /** Default: {@link MEASURED_TYPES}. */
  readonly types?: readonly string[];
  /** Numbers along a side of the matrices. Default: 4096. */
  readonly side?: number;
  /** Bytes of weights that one row meets, more than a processor's cache holds. Default: 256 MiB. */
  readonly bytes?: number;
  /** Rows of a pass. Default: 512. */
  readonly n_rows?: number;
  /** A file on the drive to measure, larger than memory's caches: its bytes are read as if they were experts. */
  readonly drive?: string;
  readonly signal?: AbortSignal;
  readonly onProgress?: (done: number, total: number) => void;
}

/** Runs of a step; the best one counts, since what else a machine does only takes time. */
const REPEATS = 7;

async function bestTime(run: () => unknown): Promise<number> {
  await run();
  let best = Infinity;
  for (let i = 0; i < REPEATS; i++) {
    const start = performance.now();
    await run();
    best = Math.min(best, (performance.now() - start) / 1000);
  }
  return best;
}

function stepInput(n_tok: number): StepInput {
  return {
    tokens: Int32Array.from({ length: n_tok }, (_, i) => i % TABLE_ROWS),
    positions: Int32Array.from({ length: n_tok }, (_, i) => i),
    seqs: new Int32Array(n_tok),
    outRows: Int32Array.of(0),
    targets: Int32Array.of(-1),
    pages: [],
    n_page: [],
    n_seq: 1,
    derived: [],
  };
}

/** Outputs of a program, at most. */
const MOST = 60;

/** Rows of the table that activations come from. */
const TABLE_ROWS = 64;

/** Values between -1 and 1. */
function someValues(n: number): Float32Array {
  let state = 12345;
  return Float32Array.from({ length: n }, () => {
    state = Math.imul(state, 1664525) + 1013904223 >>> 0;
    return state / 2 ** 31 - 1;
  });
}

interface Named {
  readonly name: string;
  readonly type: GgmlType;
  readonly ne: readonly number[];
}

/** Programs over weights that are no model's. */
class Bench implements Disposable {
  readonly #open: Disposable[] = [];
  readonly #weights = new Map<string, TensorHandle>();

  constructor(readonly backend: Backend, readonly device: number) {}

  async weight(w: Named & { readonly uses: number; readonly data: Uint8Array }): Promise<void> {
    const { type, ne, uses, data } = w;
    const handle = await this.backend.loadTensor({ device: this.device, type, ne, uses, source: { data } });
    this.#open.push(handle);
    this.#weights.set(w.name, handle);
  }

  program(n_tok: number, known: ReadonlyMap<string, Named>, build: (op: Ops) => void): ProgramHandle {
    const op = new Ops(
      { n_tok, n_out: 1, n_seq: 1, n_page: 1 },
      { find: (name) => known.get(name) as never },
      this.device,
    );
    build(op);
    const program: Program = op.finish();
    const handle = this.backend.createProgram(program, program.weights.map((w) => this.#weights.get(w.name)!), []);
    this.#open.unshift(handle); // ends before its weights
    return handle;
  }

  [Symbol.dispose](): void {
    for (const o of this.#open) o[Symbol.dispose]();
  }
}

/** Products with `n` matrices of a type, all of them different, and the activations of `n_tok` rows. */
async function productRate(
  backend: Backend,
  device: number,
  type: GgmlType,
  options: MeasureOptions,
): Promise<ProductRate> {
  const { side = 4096, bytes = 256 << 20, n_rows = 512 } = options;
  const matrix = rowBytes(type, side) * side, n = Math.min(MOST, Math.max(2, Math.ceil(bytes / matrix)));
  using bench = new Bench(backend, device);
  const f32 = ggmlType("f32"), table: Named = { name: "x.weight", type: f32, ne: [side, TABLE_ROWS] };
  const named: Named[] = Array.from({ length: n }, (_, i) => ({ name: `w.${i}.weight`, type, ne: [side, side] }));
  const known = new Map([table, ...named].map((w) => [w.name, w]));
  // Real blocks, the same ones over and over: no number is out of the range that kernels meet.
  const values = someValues(side * TABLE_ROWS);
  const weights = new Float32Array(side).fill(1);
  const part = type.name === "f32" ? new Uint8Array(values.buffer) : await backend.quantize({
    srcType: f32,
    src: new Uint8Array(values.buffer),
    dstType: type,
    n_rows: TABLE_ROWS,
    n_per_row: side,
    weights,
  });
  const data = new Uint8Array(matrix);
  for (let at = 0; at < matrix; at += part.length) data.set(part.subarray(0, Math.min(part.length, matrix - at)), at);
  await bench.weight({ ...table, uses: USE.ROWS, data: new Uint8Array(values.buffer) });
  for (const w of named) await bench.weight({ ...w, uses: USE.MUL_MAT, data });
  const products = (count: number) => (op: Ops) => {
    const w = op.weights(), x = op.get_rows(w("x", table.ne), op.tokens);
    for (let i = 0; i < count; i++) op.output(`y${i}`, op.mul_mat(w(`w.${i}`, [side, side]), x));
  };
  // Outputs that nobody asks for are computed and not copied.
  const timed = async (n_tok: number, count: number) => {
    const program = bench.program(n_tok, known, products(count)), input = stepInput(n_tok);
    return await bestTime(() => program.step(input, []));
  };
  const one = await timed(1, n), few = Math.min(n, 2), many = await timed(n_rows, few);
  return { one: n * matrix / one, many: few * side * side * n_rows / many };
}

/** Seconds of an op with 256 numbers, in a chain. */
async function opTime(backend: Backend, device: number): Promise<number> {
  using bench = new Bench(backend, device);
  const table: Named = { name: "x.weight", type: ggmlType("f32"), ne: [256, TABLE_ROWS] };
  await bench.weight({ ...table, uses: USE.ROWS, data: new Uint8Array(someValues(256 * TABLE_ROWS).buffer) });
  const chain = async (n: number) => {
    const program = bench.program(1, new Map([[table.name, table]]), (op) => {
      let x = op.get_rows(op.weights()("x", table.ne), op.tokens);
      for (let i = 0; i < n; i++) x = op.rms_norm(x, undefined, 1e-6);
      op.output("y", x);
    });
    const input = stepInput(1);
    return await bestTime(() => program.step(input, ["y"]));
  };
  return Math.max(1e-8, (await chain(600) - await chain(100)) / 500);
}

async function processor(
  backend: Backend,
  device: DeviceInfo,
  options: MeasureOptions,
  done: () => void,
): Promise<Processor> {
  const products: Record<string, ProductRate> = {};
  for (const name of options.types ?? MEASURED_TYPES) {
    options.signal?.throwIfAborted();
    products[name] = await productRate(backend, device.index, ggmlType(name), options);
    done();
  }
  const op = await opTime(backend, device.index);
  done();
  return { name: device.name, bandwidth: Math.max(...Object.values(products).map((p) => p.one)), op, products };
}

/** Bytes of the pages that are copied to a card and back. */
const COPY = 64 << 20;

/** Rates of copies, by the calls that move pages of caches. */
async function copyRates(backend: Backend, device: number): Promise<Pick<Card, "to_card" | "to_host">> {
  const ne = 4096, page = 4 * ne * PAGE_SIZE, n_pages = COPY / page;
  using cache = backend.createCache({
    device,
    streams: [{ type: ggmlType("f32"), ne, ratio: 1 }],
    page_size: PAGE_SIZE,
    n_pages,
  });
  const pages = Array.from({ length: n_pages }, (_, i) => i);
  const data = cache.readPages(pages);
  const rate = async (run: () => unknown) => COPY / await bestTime(run);
  return {
    to_card: await rate(() => cache.writePages(pages, data)),
    to_host: await rate(() => cache.readPages(pages)),
  };
}

/** A read of about an expert, and reads of one measurement. */
const READ = 1 << 20, READS = 128;

/**
 * Rates of direct reads of a file, by a pool whose experts they are.
 * @throws {FormatError} `format.machine_drive` when the file is too short
 */
export async function measureDrive(backend: Backend, path: string): Promise<Drive> {
  const size = Deno.statSync(path).size, n_expert = Math.floor(size / READ);
  if (n_expert < 2 * READS) {
    throw new FormatError("format.machine_drive", `Cannot measure the drive of ${path}: it has ${size} bytes`, {
      at: { file: path, got: size, expected: 2 * READS * READ },
      hint: `give a file of at least ${2 * READS * READ >> 20} MiB, or a folder that has room for one`,
    });
  }
  const time = async (chosen: (i: number) => number) => {
    using pool = backend.createPool({ device: 0, slot_bytes: READ, n_slots: READS });
    const spec = { group: 0, type: ggmlType("bf16"), ne: [1024, READ / 2048, n_expert] };
    using _ = pool.addTensor(spec, { path, offset: 0, bytes: n_expert * READ });
    const seated = new Uint8Array(n_expert);
    for (let i = 0; i < READS; i++) seated[chosen(i)] = 1;
    pool.seat(0, seated);
    const start = performance.now();
    await pool.fill();
    return pool.counts().read_bytes / ((performance.now() - start) / 1000);
  };
  const rates = async (chosen: (run: number) => (i: number) => number) => {
    const all: number[] = [];
    for (let run = 0; run < 3; run++) all.push(await time(chosen(run)));
    return all.sort((a, b) => a - b)[1];
  };
  // Places that share no neighbours, other ones in each run.
  const step = Math.floor(n_expert / READS);
  const random = await rates((run) => (i) => i * step + (i * 7 + run) % step);
  const sequential = await rates((run) => (i) => Math.floor(run * (n_expert - READS) / 3) + i);
  return { path, random, sequential };
}

/** Measures the host of a backend, its cards, and a drive where a file of it is given. */
export async function measureMachine(backend: Backend, options: MeasureOptions = {}): Promise<Machine> {
  const [host, ...cards] = backend.devices, each = (options.types ?? MEASURED_TYPES).length + 1;
  const total = backend.devices.length * each + (options.drive === undefined ? 0 : 1);
  let n_done = 0;
  const done = () => options.onProgress?.(++n_done, total);
  const measured = await processor(backend, host, options, done);
  const all: Card[] = [];
  for (const card of cards) {
    all.push({ ...await processor(backend, card, options, done), ...await copyRates(backend, card.index) });
  }
  const drives = options.drive === undefined ? [] : [await measureDrive(backend, options.drive)];
  if (drives.length > 0) done();
  return { schema: MACHINE_SCHEMA, host: { ...measured, n_threads: host.threads ?? 1 }, cards: all, drives };
}
