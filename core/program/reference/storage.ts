/**
 * What the reference backend keeps between steps: weights and cache pages.
 * @module
 */
import { fileSource } from "../../bytes.ts";
import type { GgmlType } from "../../gguf/types.ts";
import type { CacheHandle, CacheSpec, TensorHandle, TensorSpec } from "../backend.ts";
import { dequantize, roundF16 } from "../dequantize.ts";
import { USE } from "../program.ts";

/** A weight, decoded when it is first used: whole, or by rows where rows are all that is read. */
export class ReferenceTensor implements TensorHandle {
  readonly deviceBytes = 0;
  #whole: Float32Array | undefined;
  #bytes: Uint8Array;

  constructor(readonly spec: TensorSpec) {
    const source = spec.source;
    if ("data" in source) this.#bytes = source.data;
    else {
      const file = fileSource(source.path);
      this.#bytes = file.read(source.offset, source.bytes);
      file.close();
    }
  }

  /** All values. */
  get all(): Float32Array {
    const n = this.spec.ne.reduce((a, b) => a * b, 1);
    return this.#whole ??= dequantize(this.spec.type, this.#bytes, n);
  }

  /** Row `i` of a table. */
  row(i: number): Float32Array | Int32Array {
    const { type, ne, uses } = this.spec, n = ne[0];
    if (type.name !== "i32" && (uses & ~USE.HOST) !== USE.ROWS) return this.all.subarray(i * n, (i + 1) * n);
    const bytes = n / type.block * type.bytes;
    const row = this.#bytes.slice(i * bytes, (i + 1) * bytes);
    return type.name === "i32" ? new Int32Array(row.buffer) : dequantize(type, row, n);
  }

  [Symbol.dispose](): void {
    this.#whole = undefined;
    this.#bytes = new Uint8Array();
  }
}

/** Writes a row to `out[at ..]` as a stream of the type keeps it. */
function store(type: GgmlType, row: ArrayLike<number>, from: number, n: number, out: Float32Array, at: number): void {
  if (type.name === "f32") {
    for (let i = 0; i < n; i++) out[at + i] = row[from + i];
  } else if (type.name === "f16") {
    for (let i = 0; i < n; i++) out[at + i] = roundF16(Math.fround(row[from + i]));
  } else {
    for (let b = 0; b < n; b += 32) {
      let amax = 0;
      for (let i = b; i < b + 32; i++) amax = Math.max(amax, Math.abs(Math.fround(row[from + i])));
      const d = Math.fround(amax / 127), stored = roundF16(d);
      for (let i = b; i < b + 32; i++) {
        out[at + i] = d === 0 ? 0 : stored * Math.round(Math.fround(row[from + i]) / d);
      }
    }
  }
}

/** Where rows of a stream lie: `page[i]` from `at[i]` on. */
export interface RowList {
  readonly page: Float32Array[];
  readonly at: number[];
}

/** Pages hold what a stream of its type would give back, as f32. Pages that were never written are zeros. */
export class ReferenceCache implements CacheHandle {
  /** `[stream][page]`, each `[rows of a page, ne]`. */
  readonly #pages: (Float32Array | undefined)[][];

  constructor(readonly spec: CacheSpec) {
    this.#pages = spec.streams.map(() => new Array<undefined>(spec.n_pages).fill(undefined));
  }

  get pageBytes(): number {
    return this.streamBytes.reduce((sum, n) => sum + n, 0);
  }

  get streamBytes(): number[] {
    return this.spec.streams.map((_, i) => 4 * this.#pageSize(i));
  }

  page(stream: number, page: number): Float32Array {
    if (!(page >= 0 && page < this.spec.n_pages)) throw new Error(`stream ${stream}: page ${page} is read or written`);
    return this.#pages[stream][page] ??= new Float32Array(this.#pageSize(stream));
  }

  /** Rows `from .. to` of a sequence whose pages are `pages[at ..]`. */
  rows(stream: number, pages: Int32Array, at: number, from: number, to: number): RowList {
    const list: RowList = { page: [], at: [] };
    for (let w = from; w < to; w++) this.addRow(list, stream, pages, at, w);
    return list;
  }

  addRow(list: RowList, stream: number, pages: Int32Array, at: number, w: number): void {
    const { page_size, streams } = this.spec, { ne, ratio } = streams[stream];
    const last = (w + 1) * ratio - 1; // the position whose page has the row
    list.page.push(this.page(stream, pages[at + Math.floor(last / page_size)]));
    list.at.push(Math.floor((last % page_size) / ratio) * ne);
  }

  /** Stores row `w` of a sequence. */
  write(stream: number, pages: Int32Array, at: number, w: number, x: ArrayLike<number>, from: number): void {
    const { type, ne } = this.spec.streams[stream];
    const to = this.rows(stream, pages, at, w, w + 1);
    store(type, x, from, ne, to.page[0], to.at[0]);
  }

  copyPages(src: readonly number[], dst: readonly number[]): void {
    this.#pages.forEach((_, stream) => {
      src.forEach((page, i) => this.page(stream, dst[i]).set(this.page(stream, page)));
    });
  }

  readPages(pages: readonly number[]): Uint8Array {
    const out = new Uint8Array(pages.length * this.pageBytes);
    let at = 0;
    for (const page of pages) {
      for (let stream = 0; stream < this.#pages.length; stream++) {
        const values = this.page(stream, page);
        out.set(new Uint8Array(values.buffer), at);
        at += values.byteLength;
      }
    }
    return out;
  }

  writePages(pages: readonly number[], data: Uint8Array): void {
    let at = 0;
    for (const page of pages) {
      for (let stream = 0; stream < this.#pages.length; stream++) {
        const values = this.page(stream, page);
        new Uint8Array(values.buffer).set(data.subarray(at, at + values.byteLength));
        at += values.byteLength;
      }
    }
  }

  [Symbol.dispose](): void {
    this.#pages.length = 0;
  }

  /** Values of a page of one stream. */
  #pageSize(stream: number): number {
    const { page_size, streams } = this.spec, { ne, ratio } = streams[stream];
    return Math.ceil(page_size / ratio) * ne;
  }
}
