/**
 * Runs op cases on a backend in several orders of steps, and compares: with the reference backend within a case's bound, and
 * between orders by bits.
 * @module
 */
import assert from "node:assert/strict";
import { ggmlType, rowBytes } from "../../core/gguf/types.ts";
import type { Backend, CacheHandle, StepInput, TensorHandle } from "../../core/program/backend.ts";
import { KIND, type Program } from "../../core/program/program.ts";
import { CaseBuilder, computedRows, count, firstRow, type OpCase, type Random, random, type Source } from "./case.ts";

export const PAGE_SIZE = 64;

/** Rows `from .. to` of a sequence. */
interface Piece {
  readonly seq: number;
  readonly from: number;
  readonly to: number;
}

/** What each step computes. The rows of one sequence come in order. */
export type Schedule = readonly (readonly Piece[])[];

/** All sequences side by side, in steps of at most `n_tok` rows. */
export function together(c: OpCase, n_tok: number): Schedule {
  const steps: Piece[][] = [];
  const done = c.sequences.map(() => 0);
  while (done.some((d, seq) => d < c.sequences[seq])) {
    const step: Piece[] = [];
    let left = n_tok;
    c.sequences.forEach((n, seq) => {
      const rows = Math.min(left, n - done[seq]);
      if (rows === 0) return;
      step.push({ seq, from: done[seq], to: done[seq] + rows });
      done[seq] += rows;
      left -= rows;
    });
    steps.push(step);
  }
  return steps;
}

/** One sequence after the other. */
export function alone(c: OpCase, n_tok: number): Schedule {
  return c.sequences.flatMap((n, seq) =>
    Array.from({ length: Math.ceil(n / n_tok) }, (_, i) => [{ seq, from: i * n_tok, to: Math.min((i + 1) * n_tok, n) }])
  );
}

/** Pieces of 1 to `most` rows of the sequences that are not done, in a changing order. */
export function pieces(c: OpCase, most: number, next: Random): Schedule {
  const steps: Piece[][] = [];
  const done = c.sequences.map(() => 0);
  const open = () => [...done.keys()].filter((seq) => done[seq] < c.sequences[seq]);
  while (open().length > 0) {
    const step: Piece[] = [];
    const order = open().sort(() => next() - 0.5);
    for (const seq of order.slice(0, 1 + Math.floor(next() * order.length))) {
      const to = Math.min(done[seq] + 1 + Math.floor(next() * most), c.sequences[seq]);
      step.push({ seq, from: done[seq], to });
      done[seq] = to;
    }
    steps.push(step);
  }
  return steps;
}

/** Results by output: `[rows of the case, numbers of a row]`. */
export type Outputs = Record<string, Float32Array | Int32Array>;

export function mostRows(schedule: Schedule): number {
  return Math.max(...schedule.map((step) => step.reduce((n, p) => n + p.to - p.from, 0)));
}

/** Pages of a page table, in an order that is not that of positions. */
class Pages {
  readonly #free: number[];
  readonly n_pages: number;

  constructor(n: number, next: Random) {
    this.n_pages = n;
    this.#free = Array.from({ length: n }, (_, i) => i).sort(() => next() - 0.5);
  }

  take(): number {
    const page = this.#free.pop();
    if (page === undefined) throw new Error("the test has too few pages");
    return page;
  }

  give(page: number): void {
    this.#free.push(page); // taken next: what it holds must not be read
  }
}

/** A case on a backend: weights, caches and a program for steps of up to `n_tok` rows. */
export class CaseRun implements Disposable {
  readonly program: Program;
  readonly #handle;
  readonly #caches: CacheHandle[];
  readonly #pools: Pages[];
  /** `[cache][sequence]` page tables; the last sequence is the one that poisons. */
  readonly #tables: number[][][];
  readonly #n_page: number;

  private constructor(
    readonly spec: OpCase,
    readonly builder: CaseBuilder,
    backend: Backend,
    device: number,
    weights: readonly TensorHandle[],
    next: Random,
  ) {
    this.program = builder.op.finish();
    this.#n_page = this.program.n_page;
    const n_seq = spec.sequences.length + 1;
    this.#pools = this.program.caches.map((c) => new Pages(c.state ? n_seq : n_seq * this.#n_page, next));
    this.#caches = this.program.caches.map((c, i) =>
      backend.createCache({
        device,
        streams: c.streams.map((s) => ({
          type: ggmlType(s.role === "f32" ? "f32" : spec.cache ?? "f32"),
          ne: s.ne,
          ratio: s.ratio,
        })),
        page_size: c.state ? 1 : PAGE_SIZE,
        n_pages: this.#pools[i].n_pages,
      })
    );
    this.#tables = this.program.caches.map(() => Array.from({ length: n_seq }, () => []));
    this.#handle = backend.createProgram(this.program, weights, this.#caches);
  }

  static async open(data: CaseData, backend: Backend, device: number, n_tok: number, seed: number): Promise<CaseRun> {
    const { spec } = data, builder = data.builder(n_tok, device);
    const weights: TensorHandle[] = [];
    for (const w of builder.op.finish().weights) {
      weights.push(
        await backend.loadTensor({
          device,
          type: data.typeOn(backend, w.name),
          ne: w.ne,
          uses: w.uses,
          source: { data: await data.bytesFor(backend, w.name) },
        }),
      );
    }
    const run = new CaseRun(spec, builder, backend, device, weights, random(seed, `${spec.name} pages`));
    run.#weights = weights;
    return run;
  }

  #weights: readonly TensorHandle[] = [];

  /** Runs a schedule behind a step that leaves NaN wherever a result could be forgotten. */
  async run(schedule: Schedule): Promise<Outputs> {
    const last = this.spec.sequences.length, n_tok = this.program.n_tok;
    await this.step([{ seq: last, from: 0, to: n_tok }]);
    const all: Outputs = {};
    for (const step of schedule) {
      const out = await this.step(step);
      for (const [name, values] of Object.entries(out)) {
        const rows = step.reduce((n, p) => n + p.to - p.from, 0), n = values.length / rows;
        all[name] ??= values instanceof Int32Array
          ? new Int32Array(n * this.builder.n_rows)
          : new Float32Array(n * this.builder.n_rows);
        let from = 0;
        for (const p of step) {
          const size = (p.to - p.from) * n;
          all[name].set(values.subarray(from, from + size), (firstRow(this.spec, p.seq) + p.from) * n);
          from += size;
        }
      }
    }
    return this.spec.collects ? { ...all, ...this.#states() } : all;
  }

  /** The states of the case's sequences, one after the other. */
  #states(): Outputs {
    const all: Outputs = {};
    this.program.caches.forEach((c, i) => {
      if (!c.state) return;
      const pages = this.#tables[i].slice(0, this.spec.sequences.length).map(([page]) => page);
      all[`state ${i}`] = new Float32Array(this.#caches[i].readPages(pages).slice().buffer);
    });
    return all;
  }

  /** One step; outputs of its rows in the order of the pieces. */
  async step(
    step: readonly Piece[],
    names: readonly string[] = this.program.outputs.map((o) => o.name),
  ): Promise<Outputs> {
    const input = this.input(step);
    const out = await this.#handle.step(input, names);
    // Output rows were asked for last to first.
    for (const o of this.program.outputs) {
      if (names.includes(o.name) && this.program.tensors[o.tensor].rows === "out") {
        out[o.name] = reversedRows(out[o.name], input.outRows.length);
      }
    }
    return out;
  }

  /** Whether a tensor of the program is a table that stands for activations. */
  isTable(id: number): boolean {
    const t = this.program.tensors[id];
    return t.kind === KIND.WEIGHT && this.builder.tables.has(this.program.weights[t.ref].name);
  }

  input(step: readonly Piece[]): StepInput {
    const rows = step.flatMap((p) => Array.from({ length: p.to - p.from }, (_, i) => ({ seq: p.seq, at: p.from + i })));
    const poison = this.spec.sequences.length, n_rows = this.builder.n_rows;
    const id = (seq: number, at: number) => {
      if (at < 0) return -1;
      if (seq === poison) return n_rows;
      return firstRow(this.spec, seq) + at - (this.spec.sequences[seq] - computedRows(this.spec, seq));
    };
    const seqs = [...new Set(step.map((p) => p.seq))];
    const n = rows.length;
    const outRows = Int32Array.from(rows, (_, i) => n - 1 - i);
    const pages = this.program.caches.map((_, c) =>
      Int32Array.from(seqs.flatMap((seq) => this.#pagesOf(c, step, seq)))
    );
    return {
      tokens: Int32Array.from(rows, (r) => id(r.seq, r.at)),
      positions: Int32Array.from(rows, (r) => r.at),
      seqs: Int32Array.from(rows, (r) => seqs.indexOf(r.seq)),
      outRows,
      targets: Int32Array.from(outRows, (r) => (id(rows[r].seq, rows[r].at) % 8) - 1),
      pages,
      n_page: this.program.caches.map((c) => c.state ? 1 : this.#n_page),
      n_seq: seqs.length,
      derived: this.program.derived.map((d) => {
        const out = d.type === "i32" ? new Int32Array(n * d.n) : new Float32Array(n * d.n);
        rows.forEach((r, i) => d.row(out, i * d.n, r.at, (back) => id(r.seq, r.at - back), () => 0));
        return out;
      }),
    };
  }

  /** The page table of a sequence for a step: pages behind a window are given back. */
  #pagesOf(cache: number, step: readonly Piece[], seq: number): number[] {
    const desc = this.program.caches[cache], table = this.#tables[cache][seq], pool = this.#pools[cache];
    const piece = step.find((p) => p.seq === seq)!;
    if (desc.state) {
      if (table.length === 0) table.push(pool.take());
      return table;
    }
    while (table.length * PAGE_SIZE < piece.to) table.push(pool.take());
    if (desc.window > 0) {
      const reach = Math.max(0, piece.from - desc.window + 1);
      for (let page = 0; (page + 1) * PAGE_SIZE <= reach; page++) {
        if (table[page] < 0) continue;
        pool.give(table[page]);
        table[page] = -1;
      }
    }
    return [...table, ...new Array<number>(this.#n_page - table.length).fill(-1)];
  }

  [Symbol.dispose](): void {
    this.#handle[Symbol.dispose]();
    for (const c of this.#caches) c[Symbol.dispose]();
    for (const w of this.#weights) w[Symbol.dispose]();
  }
}

function reversedRows<A extends Float32Array | Int32Array>(values: A, rows: number): A {
  const out = values.slice() as A, n = values.length / rows;
  for (let r = 0; r < rows; r++) out.set(values.subarray((rows - 1 - r) * n, (rows - r) * n), r * n);
  return out;
}

/** The numbers of a case, encoded once; the reference backend gets what the native library decodes from them. */
export class CaseData {
  /** By the numbers that were encoded. */
  readonly #encoded: Map<Source["values"], Uint8Array>;
  readonly #sources: Map<string, Source>;

  /**
   * @param native The library whose encoders make quantized weights.
   * @param like A case with the same numbers, which are taken over.
   */
  constructor(readonly spec: OpCase, readonly seed: number, readonly native: Backend, like?: CaseData) {
    this.#encoded = like ? like.#encoded : new Map();
    this.#sources = like ? like.#sources : new Map();
    this.builder(1, 0);
  }

  /** The program of the case for steps of up to `n_tok` rows. */
  builder(n_tok: number, device: number): CaseBuilder {
    const longest = Math.max(...this.spec.sequences, n_tok);
    const bucket = {
      n_tok,
      n_out: n_tok,
      n_seq: this.spec.sequences.length,
      n_page: Math.ceil(longest / PAGE_SIZE),
    };
    const builder = new CaseBuilder(this.spec, this.seed, bucket, device, this.#sources);
    this.spec.build(builder);
    return builder;
  }

  /** The reference backend decodes few types: it gets f32 for quantized weights. */
  typeOn(backend: Backend, name: string) {
    const { type } = this.#source(name);
    return backend.devices[0].kind === "reference" && type.block > 1 ? ggmlType("f32") : type;
  }

  async bytesFor(backend: Backend, name: string): Promise<Uint8Array> {
    const bytes = await this.#bytes(name), { type, ne } = this.#source(name);
    if (this.typeOn(backend, name) === type) return bytes;
    const values = await this.native.dequantize(type, bytes, count(ne));
    return new Uint8Array(values.buffer);
  }

  #source(name: string): Source {
    const s = this.#sources.get(name);
    if (!s) throw new Error(`the case has no weight ${name}`);
    return s;
  }

  async #bytes(name: string): Promise<Uint8Array> {
    const { type, ne, values } = this.#source(name);
    const known = this.#encoded.get(values);
    if (known) return known;
    const raw = new Uint8Array(values.buffer);
    const bytes = ["f32", "i32"].includes(type.name) ? raw : await this.native.quantize({
      srcType: ggmlType("f32"),
      src: raw,
      dstType: type,
      n_rows: count(ne) / ne[0],
      n_per_row: ne[0],
      weights: type.name.startsWith("iq") ? new Float32Array(ne[0]).fill(1) : undefined,
    });
    assert.equal(bytes.length, rowBytes(type, ne[0]) * count(ne) / ne[0]);
    this.#encoded.set(values, bytes);
    return bytes;
  }
}

/** Mean squared difference over mean square. @throws where `got` is not finite */
export function nmse(got: Float32Array, want: Float32Array, what: string): number {
  let error = 0, size = 0;
  for (let i = 0; i < want.length; i++) {
    if (!Number.isFinite(got[i])) assert.fail(`${what}: number ${i} is ${got[i]}, expected ${want[i]}`);
    error += (got[i] - want[i]) ** 2;
    size += want[i] ** 2;
  }
  return error === 0 ? 0 : error / size;
}

/** Compares outputs with the reference's within the case's bound. */
export function assertClose(c: OpCase, got: Outputs, want: Outputs, what: string): void {
  for (const [name, values] of Object.entries(want)) {
    const label = `${c.name}, ${name}, ${what}`;
    if (values instanceof Int32Array) assert.deepEqual(got[name], values, label);
    else {
      const e = nmse(got[name] as Float32Array, values, label);
      assert.ok(e <= c.nmse, `${label}: NMSE ${e}, expected at most ${c.nmse}`);
    }
  }
}

/** Compares outputs by bits. */
export function assertSame(c: OpCase, got: Outputs, want: Outputs, what: string): void {
  for (const [name, values] of Object.entries(want)) {
    const a = new Int32Array(got[name].buffer, got[name].byteOffset, got[name].length);
    const b = new Int32Array(values.buffer, values.byteOffset, values.length);
    const n = values.length / c.sequences.reduce((x, y) => x + y, 0);
    const at = a.findIndex((v, i) => v !== b[i]);
    assert.ok(
      at < 0,
      `${c.name}, ${name}, ${what}: row ${Math.floor(at / n)} differs at ${at % n}: ${got[name][at]} and ${values[at]}`,
    );
  }
}

export interface CheckOptions {
  /** The backend under test and its device. */
  readonly backend: Backend;
  readonly device: number;
  /** The same device with another number of threads. */
  readonly other?: Backend;
  /** A device that gives the same bits: its backend, as device 0. */
  readonly same?: Backend;
  readonly reference: Backend;
  /** Encodes quantized weights. */
  readonly native: Backend;
  readonly seed: number;
}

/** Everything a case promises on one device. */
export async function checkCase(c: OpCase, o: CheckOptions): Promise<void> {
  const data = new CaseData(c, o.seed, o.native);
  const total = c.sequences.reduce((a, b) => a + b, 0), n_tok = c.n_tok ?? Math.min(total, 512);
  const outputs = async (backend: Backend, device: number, schedule: Schedule, most: number) => {
    using run = await CaseRun.open(data, backend, device, most, o.seed);
    return await run.run(schedule);
  };
  const want = await outputs(o.reference, 0, together(c, n_tok), n_tok);
  const got = await outputs(o.backend, o.device, together(c, n_tok), n_tok);
  assertClose(c, got, want, "against the reference");
  const again = async (what: string, backend: Backend, schedule: Schedule, most: number, device = o.device) => {
    assertSame(c, await outputs(backend, device, schedule, most), got, what);
  };
  await again("one sequence after the other", o.backend, alone(c, n_tok), n_tok);
  const next = random(o.seed, `${c.name} pieces`);
  if (c.whole) {
    const turned = [c.sequences.map((n, seq) => ({ seq, from: 0, to: n })).toReversed()];
    await again("sequences in another order", o.backend, turned, n_tok);
  } else {
    const cut = pieces(c, 9, next);
    await again("pieces of a few rows", o.backend, cut, mostRows(cut));
    await again("one row of each sequence a step", o.backend, singles(c), c.sequences.length);
  }
  if (o.other) await again("another number of threads", o.other, together(c, n_tok), n_tok);
  if (o.same) await again("the host", o.same, together(c, n_tok), n_tok, 0);
}

/** One row of every sequence that is not done, step by step. */
export function singles(c: OpCase): Schedule {
  return Array.from(
    { length: Math.max(...c.sequences) },
    (_, at) =>
      [...c.sequences.keys()].filter((seq) => at < c.sequences[seq]).map((seq) => ({ seq, from: at, to: at + 1 })),
  );
}
