/**
 * The reference backend: every op in plain TypeScript, f64 arithmetic on f32 weights, one loop a formula. Slow and exact: it
 * is the oracle the native backends are tested against, and runs wherever JavaScript does.
 *
 * Activations are f64; cache rows are rounded to the cache's type as the native backends store them.
 * @module
 */
import { NativeError } from "../errors.ts";
import { fileSource } from "../bytes.ts";
import type { GgmlType } from "../gguf/types.ts";
import type {
  Backend,
  CacheHandle,
  CacheSpec,
  DeviceInfo,
  ProgramHandle,
  QuantizeJob,
  StepInput,
  TensorHandle,
  TensorSpec,
} from "./backend.ts";
import { dequantize, roundF16 } from "./dequantize.ts";
import { INPUT, KIND, ROPE_KIND, ROUTER_MIN_SUM, SCORE_KIND, USE } from "./ops.ts";
import type { OpDesc, Program } from "./program.ts";

/** Decoded lazily, whole for vectors and matrices, by row for embedding tables. */
class ReferenceTensor implements TensorHandle {
  readonly deviceBytes = 0;
  #whole: Float32Array | undefined;
  readonly #bytes: Uint8Array;

  constructor(readonly spec: TensorSpec) {
    const source = spec.source;
    if ("data" in source) this.#bytes = source.data;
    else {
      const file = fileSource(source.path);
      this.#bytes = file.read(source.offset, source.bytes);
      file.close();
    }
  }

  get all(): Float32Array {
    const n = this.spec.ne.reduce((a, b) => a * b, 1);
    return this.#whole ??= dequantize(this.spec.type, this.#bytes, n);
  }

  /** Row `i` of a matrix of `ne0` columns. */
  row(i: number): Float32Array {
    const n = this.spec.ne[0];
    if (this.spec.uses !== USE.ROWS) return this.all.subarray(i * n, (i + 1) * n);
    const bytes = n / this.spec.type.block * this.spec.type.bytes;
    return dequantize(this.spec.type, this.#bytes.subarray(i * bytes, (i + 1) * bytes), n);
  }

  [Symbol.dispose](): void {
    this.#whole = undefined;
  }
}

/** Rounds a row to what a stream of the type stores. */
function rounded(type: GgmlType, row: Float64Array): Float32Array {
  if (type.name === "f32") return Float32Array.from(row);
  if (type.name === "f16") return Float32Array.from(row, roundF16);
  const out = new Float32Array(row.length);
  for (let b = 0; b < row.length; b += 32) {
    let amax = 0;
    for (let i = b; i < b + 32; i++) amax = Math.max(amax, Math.abs(Math.fround(row[i])));
    const d = Math.fround(amax / 127);
    const stored = roundF16(d);
    for (let i = b; i < b + 32; i++) out[i] = stored * (d === 0 ? 0 : Math.round(Math.fround(row[i] / d)));
  }
  return out;
}

class ReferenceCache implements CacheHandle {
  /** `[stream][page]`, each `[page_size, ne]`. */
  readonly pages: Float32Array[][];

  constructor(readonly spec: CacheSpec) {
    this.pages = spec.streams.map((s) =>
      Array.from({ length: spec.n_pages }, () => new Float32Array(spec.page_size * s.ne))
    );
  }

  get pageBytes(): number {
    return this.spec.streams.reduce((sum, s) => sum + 4 * s.ne * this.spec.page_size, 0);
  }

  /** The stored row of a stream for the token slot `pos` of a sequence. */
  row(stream: number, pages: Int32Array, pos: number): Float32Array {
    const { page_size, streams } = this.spec;
    const ne = streams[stream].ne;
    const slot = pos % page_size;
    return this.pages[stream][pages[Math.floor(pos / page_size)]].subarray(slot * ne, (slot + 1) * ne);
  }

  copyPages(src: readonly number[], dst: readonly number[]): void {
    for (const stream of this.pages) src.forEach((s, i) => stream[dst[i]].set(stream[s]));
  }

  readPages(pages: readonly number[]): Uint8Array {
    const out = new Uint8Array(pages.length * this.pageBytes);
    let at = 0;
    for (const p of pages) {
      for (const stream of this.pages) {
        out.set(new Uint8Array(stream[p].buffer), at);
        at += stream[p].byteLength;
      }
    }
    return out;
  }

  writePages(pages: readonly number[], data: Uint8Array): void {
    let at = 0;
    for (const p of pages) {
      for (const stream of this.pages) {
        new Uint8Array(stream[p].buffer).set(data.subarray(at, at + stream[p].byteLength));
        at += stream[p].byteLength;
      }
    }
  }

  [Symbol.dispose](): void {
    this.pages.length = 0;
  }
}

const silu = (x: number) => x / (1 + Math.exp(-x));

class ReferenceProgram implements ProgramHandle {
  readonly scratchBytes = 0;
  /** Values by tensor id while a step runs. */
  #values: (Float64Array | Int32Array)[] = [];
  #input!: StepInput;

  constructor(
    readonly program: Program,
    readonly weights: readonly ReferenceTensor[],
    readonly caches: readonly ReferenceCache[],
  ) {}

  step(input: StepInput, wanted: readonly string[]): Promise<Record<string, Float32Array | Int32Array>> {
    this.#check(input);
    this.#input = input;
    this.#values = [];
    for (const op of this.program.ops) this.#run(op);
    const result: Record<string, Float32Array | Int32Array> = {};
    for (const o of this.program.outputs) {
      if (!wanted.includes(o.name)) continue;
      const v = this.#value(o.tensor);
      result[o.name] = v instanceof Int32Array ? v : Float32Array.from(v);
    }
    // As a device's step does, this leaves the event loop a turn, so that signals and requests can arrive.
    return new Promise((resolve) => setTimeout(() => resolve(result), 0));
  }

  [Symbol.dispose](): void {
    this.#values = [];
  }

  #check(input: StepInput): void {
    const p = this.program;
    const refuse = (what: string, got: unknown, expected: string) => {
      throw new NativeError("native.input", `Cannot run the step: ${what} is ${got}, expected ${expected}`, {
        at: { what, got, expected },
      });
    };
    const upTo = (what: string, n: number, max: number) => {
      if (!(n >= 0 && n <= max)) refuse(what, n, `at most ${max}`);
    };
    upTo("n_tok", input.tokens.length, p.n_tok);
    upTo("n_out", input.outRows.length, p.n_out);
    upTo("n_seq", input.n_seq, p.n_seq);
    upTo("n_page", input.n_page, p.n_page);
    input.seqs.forEach((s, i) => {
      if (s < 0 || s >= input.n_seq) refuse(`seqs[${i}]`, s, `0 to ${input.n_seq - 1}`);
      const pos = input.positions[i];
      for (const c of this.caches) {
        const page = pos < 0 ? -1 : Math.floor(pos / c.spec.page_size);
        const id = page < 0 || page >= input.n_page ? -1 : input.pages[s * input.n_page + page];
        if (id < 0 || id >= c.spec.n_pages) refuse(`positions[${i}]`, pos, "a position whose page the sequence has");
      }
    });
    input.outRows.forEach((r, i) => {
      if (r < 0 || r >= input.tokens.length) refuse(`out_rows[${i}]`, r, `0 to ${input.tokens.length - 1}`);
    });
  }

  /** Values of a tensor, `[rows of the step, ...]`. */
  #value(id: number): Float64Array | Int32Array {
    const t = this.program.tensors[id];
    if (t.kind === KIND.VIEW) return this.#value(t.ref);
    if (t.kind === KIND.INPUT) {
      const i = this.#input;
      return {
        [INPUT.TOKENS]: i.tokens,
        [INPUT.POSITIONS]: i.positions,
        [INPUT.SEQS]: i.seqs,
        [INPUT.OUT_ROWS]: i.outRows,
        [INPUT.TARGETS]: i.targets,
      }[t.ref]!;
    }
    if (t.kind === KIND.WEIGHT) return Float64Array.from(this.weights[t.ref].all);
    return this.#values[id];
  }

  #weight(id: number): ReferenceTensor {
    return this.weights[this.program.tensors[id].ref];
  }

  #ne(id: number): readonly number[] {
    return this.program.tensors[id].ne;
  }

  #run(op: OpDesc): void {
    const src = op.src, dst = op.dst[0], params = op.params;
    const values = (i: number) => this.#value(src[i]);
    switch (op.op) {
      case "EMBED_ROWS": {
        const n = this.#ne(dst)[0];
        const ids = values(1);
        const out = new Float64Array(n * ids.length);
        ids.forEach((id: number, t: number) => {
          const rows = this.#ne(src[0])[1];
          if (id < 0 || id >= rows) {
            throw new NativeError(
              "native.input",
              `Cannot run the step: tokens[${t}] is ${id}, expected 0 to ${rows - 1}`,
            );
          }
          out.set(this.#weight(src[0]).row(id), t * n);
        });
        this.#values[dst] = out;
        return;
      }
      case "RMS_NORM": {
        const x = values(0), w = this.#weight(src[1]).all, n = w.length;
        const out = new Float64Array(x.length);
        for (let r = 0; r < x.length; r += n) {
          let sum = 0;
          for (let i = 0; i < n; i++) sum += x[r + i] ** 2;
          const scale = 1 / Math.sqrt(sum / n + params[0]);
          for (let i = 0; i < n; i++) out[r + i] = x[r + i] * scale * w[i];
        }
        this.#values[dst] = out;
        return;
      }
      case "ADD": {
        const a = values(0), b = values(1);
        this.#values[dst] = Float64Array.from(a, (v, i) => v + b[i % b.length]);
        return;
      }
      case "MUL_MAT": {
        const w = this.#weight(src[0]).all, x = values(1);
        const [n_in, n_out] = this.#ne(src[0]);
        const n_rows = x.length / n_in;
        const out = new Float64Array(n_rows * n_out);
        for (let r = 0; r < n_rows; r++) {
          for (let o = 0; o < n_out; o++) out[r * n_out + o] = dot(w, o * n_in, x, r * n_in, n_in);
        }
        this.#values[dst] = out;
        return;
      }
      case "SILU_MUL": {
        const a = values(0), b = values(1);
        this.#values[dst] = Float64Array.from(a, (v, i) => silu(v) * b[i]);
        return;
      }
      case "ROPE":
        this.#values[dst] = this.#rope(op);
        return;
      case "KV_WRITE":
        this.#kvWrite(op);
        return;
      case "ATTENTION":
        this.#values[dst] = this.#attention(op);
        return;
      case "ROUTER":
        this.#router(op);
        return;
      case "MUL_MAT_ID": {
        const w = this.#weight(src[0]).all, x = values(1), ids = values(2);
        const [n_in, n_out] = this.#ne(src[0]);
        const k = this.#ne(src[2])[0], perSlot = this.#ne(src[1])[1] === k;
        const out = new Float64Array(ids.length * n_out);
        ids.forEach((e: number, i: number) => {
          const row = perSlot ? i : Math.floor(i / k);
          for (let o = 0; o < n_out; o++) {
            out[i * n_out + o] = dot(w, (e * n_out + o) * n_in, x, row * n_in, n_in);
          }
        });
        this.#values[dst] = out;
        return;
      }
      case "EXPERT_SUM": {
        const x = values(0), weights = values(1);
        const [n, k] = this.#ne(src[0]);
        const out = new Float64Array(x.length / k);
        for (let i = 0; i < out.length; i++) {
          const t = Math.floor(i / n);
          for (let e = 0; e < k; e++) out[i] += weights[t * k + e] * x[(t * k + e) * n + (i % n)];
        }
        this.#values[dst] = out;
        return;
      }
      case "GET_ROWS": {
        const x = values(0), rows = values(1), n = this.#ne(src[0])[0];
        const out = new Float64Array(rows.length * n);
        rows.forEach((r: number, i: number) => out.set(x.subarray(r * n, (r + 1) * n), i * n));
        this.#values[dst] = out;
        return;
      }
      case "TOP_K": {
        const x = values(0), n = this.#ne(src[0])[0], k = this.#ne(dst)[0];
        const n_rows = x.length / n;
        const ids = new Int32Array(n_rows * k), top = new Float64Array(n_rows * k), lse = new Float64Array(n_rows);
        for (let r = 0; r < n_rows; r++) {
          const row = x.subarray(r * n, (r + 1) * n) as Float64Array;
          // Ranked as the f32 values a backend reports, so that ties are the same.
          const best = Array.from(row.keys()).sort((a, b) => Math.fround(row[b]) - Math.fround(row[a]) || a - b);
          for (let i = 0; i < k; i++) {
            ids[r * k + i] = best[i];
            top[r * k + i] = row[best[i]];
          }
          const max = row[best[0]];
          lse[r] = max + Math.log(row.reduce((sum, v) => sum + Math.exp(v - max), 0));
        }
        [ids, top, lse].forEach((v, i) => this.#values[op.dst[i]] = v);
        return;
      }
      case "TARGET_LOGPROB": {
        const x = values(0), lse = values(1), targets = values(2), n = this.#ne(src[0])[0];
        this.#values[dst] = Float64Array.from(lse, (l, r) => targets[r] < 0 ? 0 : x[r * n + targets[r]] - l);
        return;
      }
    }
  }

  #rope(op: OpDesc): Float64Array {
    const x = this.#value(op.src[0]), positions = this.#value(op.src[1]);
    const freqs = this.#weight(op.src[2]).all;
    const [head_dim, n_head] = this.#ne(op.src[0]);
    const [kind, n_rot, mscale] = op.params;
    const out = Float64Array.from(x);
    for (let t = 0; t < positions.length; t++) {
      for (let h = 0; h < n_head; h++) {
        const base = (t * n_head + h) * head_dim;
        for (let i = 0; i < n_rot / 2; i++) {
          const angle = positions[t] * freqs[i];
          const cos = Math.cos(angle) * mscale, sin = Math.sin(angle) * mscale;
          const [a, b] = kind === ROPE_KIND.halves
            ? [base + i, base + i + n_rot / 2]
            : [base + 2 * i, base + 2 * i + 1];
          out[a] = x[a] * cos - x[b] * sin;
          out[b] = x[b] * cos + x[a] * sin;
        }
      }
    }
    return out;
  }

  #pagesOf(seq: number): Int32Array {
    const { pages, n_page } = this.#input;
    return pages.subarray(seq * n_page, (seq + 1) * n_page);
  }

  #kvWrite(op: OpDesc): void {
    const [cacheIndex, ...streams] = op.params;
    const cache = this.caches[cacheIndex];
    const positions = this.#value(op.src[2]), seqs = this.#value(op.src[3]);
    streams.forEach((stream, i) => {
      const x = this.#value(op.src[i]) as Float64Array;
      const { ne, type } = cache.spec.streams[stream];
      for (let t = 0; t < positions.length; t++) {
        cache.row(stream, this.#pagesOf(seqs[t]), positions[t]).set(rounded(type, x.subarray(t * ne, (t + 1) * ne)));
      }
    });
  }

  #attention(op: OpDesc): Float64Array {
    const [cacheIndex, k_stream, v_stream, n_head_kv, scale, window] = op.params;
    const cache = this.caches[cacheIndex];
    const q = this.#value(op.src[0]), positions = this.#value(op.src[1]), seqs = this.#value(op.src[2]);
    const [head_dim, n_head] = this.#ne(op.src[0]);
    const head_dim_v = this.#ne(op.dst[0])[0];
    const out = new Float64Array(positions.length * n_head * head_dim_v);
    for (let t = 0; t < positions.length; t++) {
      const pages = this.#pagesOf(seqs[t]);
      const first = window > 0 ? Math.max(0, positions[t] - window + 1) : 0;
      for (let h = 0; h < n_head; h++) {
        const hk = Math.floor(h / (n_head / n_head_kv));
        const scores: number[] = [];
        for (let p = first; p <= positions[t]; p++) {
          const k = cache.row(k_stream, pages, p);
          scores.push(scale * dot(k, hk * head_dim, q, (t * n_head + h) * head_dim, head_dim));
        }
        const max = Math.max(...scores);
        const weights = scores.map((s) => Math.exp(s - max));
        const sum = weights.reduce((a, b) => a + b, 0);
        const o = (t * n_head + h) * head_dim_v;
        weights.forEach((weight, i) => {
          const v = cache.row(v_stream, pages, first + i);
          for (let d = 0; d < head_dim_v; d++) out[o + d] += weight / sum * v[hk * head_dim_v + d];
        });
      }
    }
    return out;
  }

  #router(op: OpDesc): void {
    const [score, renorm, scale] = op.params;
    const logits = this.#value(op.src[0]) as Float64Array;
    const n_expert = this.#ne(op.src[0])[0], k = this.#ne(op.dst[0])[0];
    const n_rows = logits.length / n_expert;
    const ids = new Int32Array(n_rows * k), weights = new Float64Array(n_rows * k);
    for (let r = 0; r < n_rows; r++) {
      const row = logits.subarray(r * n_expert, (r + 1) * n_expert);
      let p: Float64Array;
      if (score === SCORE_KIND.softmax) {
        const max = Math.max(...row);
        const e = row.map((v) => Math.exp(v - max));
        const sum = e.reduce((a, b) => a + b, 0);
        p = e.map((v) => v / sum);
      } else p = row.map((v) => 1 / (1 + Math.exp(-v)));
      const best = Array.from(p.keys()).sort((a, b) => p[b] - p[a] || a - b).slice(0, k);
      const sum = renorm ? Math.max(best.reduce((s, e) => s + p[e], 0), ROUTER_MIN_SUM) : 1;
      best.forEach((e, i) => {
        ids[r * k + i] = e;
        weights[r * k + i] = p[e] / sum * scale;
      });
    }
    this.#values[op.dst[0]] = ids;
    this.#values[op.dst[1]] = weights;
  }
}

function dot(a: ArrayLike<number>, ai: number, b: ArrayLike<number>, bi: number, n: number): number {
  let sum = 0;
  for (let i = 0; i < n; i++) sum += a[ai + i] * b[bi + i];
  return sum;
}

function nativeOnly(what: string): never {
  throw new NativeError("native.unsupported", `The reference backend cannot ${what}`, { hint: "use --device cpu" });
}

/** Opens the reference backend: one device, nothing native. */
export function openReferenceBackend(): Backend {
  const devices: DeviceInfo[] = [{
    index: 0,
    kind: "reference",
    name: "TypeScript reference",
    memory_bytes: 2 ** 33,
    free_bytes: 2 ** 33,
    features: [],
  }];
  return {
    devices,
    loadTensor: (spec) => Promise.resolve(new ReferenceTensor(spec)),
    createCache: (spec) => new ReferenceCache(spec),
    createProgram: (program, weights, caches) =>
      new ReferenceProgram(program, weights as ReferenceTensor[], caches as ReferenceCache[]),
    quantize: (_: QuantizeJob) => nativeOnly("encode tensors"),
    dequantize: (type, src, n) => Promise.resolve(dequantize(type, src, n)),
    checkData: () => nativeOnly("check tensor data"),
    compareLogits: (p, q, n_vocab) => {
      const n = p.length / n_vocab;
      const kl = new Float64Array(n), sameTop = new Uint8Array(n);
      for (let r = 0; r < n; r++) {
        const a = logSoftmax(p.subarray(r * n_vocab, (r + 1) * n_vocab));
        const b = logSoftmax(q.subarray(r * n_vocab, (r + 1) * n_vocab));
        kl[r] = a.reduce((sum, v, i) => sum + Math.exp(v) * (v - b[i]), 0);
        sameTop[r] = a.indexOf(Math.max(...a)) === b.indexOf(Math.max(...b)) ? 1 : 0;
      }
      return Promise.resolve({ kl, sameTop });
    },
    [Symbol.dispose]() {},
  };
}

function logSoftmax(row: Float32Array): Float64Array {
  const x = Float64Array.from(row);
  const max = x.reduce((a, b) => Math.max(a, b), -Infinity);
  const lse = max + Math.log(x.reduce((s, v) => s + Math.exp(v - max), 0));
  return x.map((v) => v - lse);
}
