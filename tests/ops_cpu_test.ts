/** Matmuls of every type on the CPU library: against float64 with fresh numbers, row by row by bits, over thread counts. */
import assert from "node:assert/strict";
import { GGML_TYPES, type GgmlType, ggmlType } from "../core/gguf/types.ts";
import { Ops } from "../core/program/program.ts";
import type { Backend } from "../core/program/backend.ts";
import { openBackend } from "../ffi/mod.ts";

const N_IN = 512, N_OUT = 19, N_TOK = 21, N_EXPERT = 3, N_USED = 2;

/** Types whose matmul rounds activations to int8 per 32 values: an NMSE of about 2.5e-5. The others keep them in f32. */
const PACKED = new Set(["q4_0", "q8_0", "q4_K", "q5_K", "q6_K"]);
const NOT_WEIGHTS = new Set(["q8_1", "q8_K", "i8", "i16", "i32", "i64", "f64"]);

function normal(n: number, scale: number): Float32Array {
  return Float32Array.from({ length: n }, () => scale * (Math.random() + Math.random() + Math.random() - 1.5));
}

async function encoded(backend: Backend, type: GgmlType, n_rows: number): Promise<Uint8Array> {
  const src = normal(n_rows * N_IN, 0.1);
  return await backend.quantize({
    srcType: ggmlType("f32"),
    src: new Uint8Array(src.buffer),
    dstType: type,
    n_rows,
    n_per_row: N_IN,
    weights: type.name.startsWith("iq") ? new Float32Array(N_IN).fill(1) : undefined,
  });
}

/** A table of activations [N_TOK + 1 rows, the last NaN] through a matrix and through experts chosen by a router. */
async function runAll(
  threads: number,
  type: GgmlType,
  data: { w: Uint8Array; experts: Uint8Array; x: Float32Array; router: Float32Array },
) {
  using opened = openBackend("cpu", { threads });
  const backend = opened.backend;
  const ops = new Ops({ n_tok: N_TOK, n_out: N_TOK, n_seq: 1, n_page: 0 });
  const f32 = ggmlType("f32");
  const x = ops.embed_rows(ops.weight("x", f32, [N_IN, N_TOK + 1]), ops.tokens);
  const y = ops.mul_mat(ops.weight("w", type, [N_IN, N_OUT]), x);
  const { ids, weights } = ops.router(ops.mul_mat(ops.weight("router", f32, [N_IN, N_EXPERT]), x), N_USED, {
    score: "softmax",
    renorm: true,
  });
  const e = ops.mul_mat_id(ops.weight("experts", type, [N_IN, N_OUT, N_EXPERT]), x, ids);
  ops.output("y", ops.out_rows(y));
  ops.output("sum", ops.out_rows(ops.expert_sum(e, weights)));
  const program = ops.finish();
  const bytes: Record<string, Uint8Array> = {
    x: new Uint8Array(data.x.buffer),
    w: data.w,
    router: new Uint8Array(data.router.buffer),
    experts: data.experts,
  };
  const handles = [];
  for (const w of program.weights) {
    handles.push(
      await backend.loadTensor({ device: 0, type: w.type, ne: w.ne, uses: w.uses, source: { data: bytes[w.name] } }),
    );
  }
  const handle = backend.createProgram(program, handles, []);
  const step = async (rows: number[]) => {
    const at = Int32Array.from(rows, (_, i) => i);
    return await handle.step({
      tokens: Int32Array.from(rows),
      positions: at,
      seqs: new Int32Array(rows.length),
      outRows: at,
      targets: new Int32Array(rows.length).fill(-1),
      pages: new Int32Array(0),
      n_seq: 1,
      n_page: 0,
    }, ["y", "sum"]);
  };
  const all = [...Array(N_TOK).keys()];
  await step(all.map(() => N_TOK)); // leaves NaN wherever a result could be forgotten
  const together = await step(all);
  const alone = [];
  for (const r of all) alone.push(await step([r]));
  handle[Symbol.dispose]();
  for (const h of handles) h[Symbol.dispose]();
  return { together, alone };
}

function floatBytes(a: Float32Array | Int32Array): Uint8Array {
  return new Uint8Array(a.buffer, a.byteOffset, a.byteLength);
}

/** y [rows, N_OUT] of one matrix in float64, and the size its error is measured by. */
function reference(w: Float32Array, x: Float32Array, row: number, out: number): { want: number; size: number } {
  let want = 0, size = 0;
  for (let i = 0; i < N_IN; i++) {
    const p = w[out * N_IN + i] * x[row * N_IN + i];
    want += p;
    size += p * p;
  }
  return { want, size };
}

for (const type of GGML_TYPES.filter((t) => !NOT_WEIGHTS.has(t.name))) {
  const bound = PACKED.has(type.name) ? 1e-4 : 1e-11;
  Deno.test(`cpu: mul_mat and mul_mat_id of ${type.name} against float64 (NMSE <= ${bound}), rows and threads by bits`, async () => {
    using opened = openBackend("cpu", { threads: 1 });
    const x = new Float32Array((N_TOK + 1) * N_IN);
    x.set(normal(N_TOK * N_IN, 1));
    x.fill(NaN, N_TOK * N_IN);
    const data = {
      w: await encoded(opened.backend, type, N_OUT),
      experts: await encoded(opened.backend, type, N_OUT * N_EXPERT),
      x,
      router: normal(N_EXPERT * N_IN, 0.1),
    };
    const one = await runAll(1, type, data), three = await runAll(3, type, data);
    for (const name of ["y", "sum"]) {
      assert.deepEqual(floatBytes(one.together[name]), floatBytes(three.together[name]), "1 thread = 3 threads");
      for (let r = 0; r < N_TOK; r++) {
        const row = one.together[name].subarray(r * N_OUT, (r + 1) * N_OUT);
        assert.deepEqual(floatBytes(row.slice()), floatBytes(one.alone[r][name]), `${name} row ${r} alone`);
      }
    }
    const w = await opened.backend.dequantize(type, data.w, N_IN * N_OUT);
    const experts = await opened.backend.dequantize(type, data.experts, N_IN * N_OUT * N_EXPERT);
    let error = 0, size = 0, expertError = 0, expertSize = 0;
    for (let r = 0; r < N_TOK; r++) {
      const logits = Array.from({ length: N_EXPERT }, (_, e) => reference(data.router, x, r, e).want);
      const best = logits.map((_, e) => e).sort((a, b) => logits[b] - logits[a]).slice(0, N_USED);
      const total = best.reduce((s, e) => s + Math.exp(logits[e]), 0);
      for (let o = 0; o < N_OUT; o++) {
        const y = reference(w, x, r, o);
        error += (one.together.y[r * N_OUT + o] - y.want) ** 2;
        size += y.size;
        let sum = 0;
        for (const e of best) {
          const part = reference(experts.subarray(e * N_IN * N_OUT), x, r, o);
          sum += Math.exp(logits[e]) / total * part.want;
          expertSize += (Math.exp(logits[e]) / total) ** 2 * part.size;
        }
        expertError += (one.together.sum[r * N_OUT + o] - sum) ** 2;
      }
    }
    assert.ok(error <= bound * size, `mul_mat: NMSE ${error / size}`);
    assert.ok(expertError <= bound * expertSize, `mul_mat_id: NMSE ${expertError / expertSize}`);
  });
}
