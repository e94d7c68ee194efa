/**
 * The reference backend: every op of `csrc/ops.def` in plain TypeScript, f64 arithmetic on f32 weights, one loop a formula. Slow
 * and exact: it is the oracle the native backends are tested against, and runs wherever JavaScript does.
 *
 * Activations are f64; cache rows and states are rounded to the type they are kept in, as the native backends store them.
 * @module
 */
import { NativeError } from "../errors.ts";
import type { Backend, DeviceInfo, ProgramHandle, QuantizeJob, StepInput } from "./backend.ts";
import { dequantize } from "./dequantize.ts";
import type { OpName } from "./ops.ts";
import { INPUT, KIND, type OpDesc, type Program } from "./program.ts";
import { attention, index, pool, streamWrite } from "./reference/cached.ts";
import { router, targetLogprob, topK } from "./reference/choose.ts";
import { getRows, mulMat, mulMatId } from "./reference/matrices.ts";
import { add, concat, copy, dot, gate, mix, mul, norm, rope, sinkhorn, softmax, unary } from "./reference/rows.ts";
import { conv, delta, squares } from "./reference/states.ts";
import { Step } from "./reference/step.ts";
import { ReferenceCache, ReferenceTensor } from "./reference/storage.ts";

const RUN: Readonly<Record<OpName, (s: Step, op: OpDesc) => void>> = {
  GET_ROWS: getRows,
  NORM: norm,
  ADD: add,
  MUL: mul,
  UNARY: unary,
  GATE: gate,
  MUL_MAT: mulMat,
  MUL_MAT_ID: mulMatId,
  ROPE: rope,
  STREAM_WRITE: streamWrite,
  ATTENTION: attention,
  INDEX: index,
  POOL: pool,
  ROUTER: router,
  MIX: mix,
  CONCAT: concat,
  SOFTMAX: softmax,
  CONV: conv,
  DELTA: delta,
  SINKHORN: sinkhorn,
  DOT: dot,
  TOP_K: topK,
  TARGET_LOGPROB: targetLogprob,
  COPY: copy,
  SQUARES: squares,
};

class ReferenceProgram implements ProgramHandle {
  readonly scratchBytes = 0;

  constructor(
    readonly program: Program,
    readonly weights: readonly ReferenceTensor[],
    readonly caches: readonly ReferenceCache[],
  ) {}

  step(input: StepInput, wanted: readonly string[]): Promise<Record<string, Float32Array | Int32Array>> {
    this.#check(input);
    const step = new Step(this.program, this.weights, this.caches, input);
    for (const op of this.program.ops) RUN[op.op](step, op);
    const result: Record<string, Float32Array | Int32Array> = {};
    for (const o of this.program.outputs) {
      if (!wanted.includes(o.name)) continue;
      const v = step.values(o.tensor);
      result[o.name] = v instanceof Int32Array ? v.slice() : Float32Array.from(v);
    }
    // As a device's step does, this leaves the event loop a turn, so that signals and requests can arrive.
    return new Promise((resolve) => setTimeout(() => resolve(result), 0));
  }

  [Symbol.dispose](): void {}

  #check(input: StepInput): void {
    const p = this.program, n_tok = input.tokens.length;
    const refuse = (what: string, got: unknown, expected: string): never => {
      throw new NativeError("native.input", `Cannot run the step: ${what} is ${got}, expected ${expected}`, {
        at: { what, got, expected },
      });
    };
    const upTo = (what: string, n: number, max: number) => {
      if (!(n >= 0 && n <= max)) refuse(what, n, `at most ${max}`);
    };
    upTo("n_tok", n_tok, p.n_tok);
    upTo("n_out", input.outRows.length, p.n_out);
    upTo("n_seq", input.n_seq, p.n_seq);
    if (input.n_page.length !== p.caches.length) {
      refuse("n_page", input.n_page, `a number for ${p.caches.length} caches`);
    }
    p.caches.forEach((c, i) => upTo(`n_page[${i}]`, input.n_page[i], c.state ? 1 : p.n_page));
    for (let i = 0; i < n_tok; i++) {
      const seq = input.seqs[i], position = input.positions[i];
      if (!(seq >= 0 && seq < input.n_seq)) refuse(`seqs[${i}]`, seq, `0 to ${input.n_seq - 1}`);
      if (position < 0) refuse(`positions[${i}]`, position, "0 or more");
      this.caches.forEach((cache, c) => {
        const { page_size, n_pages } = cache.spec, desc = p.caches[c];
        const lastPage = desc.state ? 0 : Math.floor(position / page_size);
        const first = desc.state || desc.window === 0 ? 0 : Math.max(0, position - desc.window + 1);
        for (let page = Math.floor(first / page_size); page <= lastPage; page++) {
          const id = page < input.n_page[c] ? input.pages[c][seq * input.n_page[c] + page] : -1;
          if (!(id >= 0 && id < n_pages)) {
            refuse(`positions[${i}]`, position, `a position whose pages the sequence has (cache ${c}, page ${page})`);
          }
        }
      });
    }
    input.outRows.forEach((r, i) => {
      if (!(r >= 0 && r < n_tok)) refuse(`out_rows[${i}]`, r, `0 to ${n_tok - 1}`);
    });
    // Ids that come from outside and name rows of a table.
    for (const op of p.ops) {
      if (op.op !== "GET_ROWS" || p.tensors[op.src[0]].kind !== KIND.WEIGHT) continue;
      const ids = p.tensors[op.src[1]];
      if (ids.kind !== KIND.INPUT || ids.ref !== INPUT.TOKENS) continue;
      const rows = p.tensors[op.src[0]].ne[1];
      input.tokens.forEach((id, t) => {
        if (!(id >= 0 && id < rows)) refuse(`tokens[${t}]`, id, `0 to ${rows - 1}`);
      });
    }
    p.derived.forEach((d, i) => {
      if (input.derived[i]?.length !== n_tok * d.n) {
        refuse(`derived[${i}]`, input.derived[i]?.length, `${n_tok * d.n} numbers`);
      }
      if (d.type !== "i32") return;
      input.derived[i].forEach((v) => {
        if (!(v >= -1 && v < d.limit)) refuse(`derived[${i}]`, v, `-1 to ${d.limit - 1}`);
      });
    });
  }
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
    addDevice: (like) =>
      devices.push({ ...devices[like], index: devices.length, like: devices[like].like ?? like }) - 1,
    loadTensor: (spec) => Promise.resolve(new ReferenceTensor(spec)),
    createCache: (spec) => new ReferenceCache(spec),
    packTensor: () => nativeOnly("pack weights"),
    createPool: () => nativeOnly("keep experts in a pool"),
    createProgram: (program, weights, caches) =>
      new ReferenceProgram(program, weights as ReferenceTensor[], caches as ReferenceCache[]),
    measureProgram: () => undefined,
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
