import assert from "node:assert/strict";
import { NativeError } from "../../core/errors.ts";
import { Metadata } from "../../core/gguf/metadata.ts";
import { ggmlType } from "../../core/gguf/types.ts";
import { openBackend } from "../../ffi/mod.ts";
import type { QuantizeSource } from "../quantize_source.ts";
import type { Candidate } from "./candidates.ts";
import { encodeTensor, measure } from "./measure.ts";
import type { MeasureFile, MeasureJob } from "./measure_file.ts";

const JOB: MeasureJob = { model: "m", model_key: "ab", by: "kl", imatrix: null, imatrix_key: null, over: {} };

Deno.test("measure() leaves out a type that cannot hold a tensor, and stops behind a loss", async () => {
  const types = ["q2_K", "q4_K", "q8_0"].map(ggmlType);
  const candidate = (name: string) =>
    ({
      name,
      types,
      importance: undefined,
      source: { name, ne: [256, 4], type: ggmlType("f32"), shard: 0 },
    }) as Candidate;
  const all = [candidate("a"), candidate("b")], warnings: string[] = [], steps: number[][] = [];
  const whole = await measure({
    job: JOB,
    candidates: all,
    lossOf: ({ name }, type) => {
      if (name === "b" && type.name === "q4_K") return Promise.reject(new NativeError("native.data", "too large"));
      return Promise.resolve({ mean: type.name === "q8_0" ? -1e-12 : 1, se: null });
    },
    onWarning: (text) => warnings.push(text),
    onLoss: (...step) => steps.push(step),
  });
  assert.deepEqual(whole.tensors.map((t) => t.losses.map((l) => [l.type.name, l.loss])), [
    [["q2_K", 1], ["q4_K", 1], ["q8_0", 0]],
    [["q2_K", 1], ["q8_0", 0]],
  ]);
  assert.deepEqual(warnings, ["b cannot become q4_K: too large"]);
  assert.deepEqual([steps[0], steps.at(-1)], [[0, 6, 0], [6, 6, 0]]);

  const stop = new AbortController(), seen: string[] = [];
  let last: MeasureFile | undefined;
  await assert.rejects(measure({
    job: JOB,
    candidates: all,
    lossOf: ({ name }, type) => {
      seen.push(`${name} ${type.name}`);
      if (name === "b") stop.abort();
      return Promise.resolve({ mean: 1, se: null });
    },
    onTensor: (file) => last = file,
    signal: stop.signal,
  }));
  assert.deepEqual(seen, ["a q2_K", "a q4_K", "a q8_0", "b q2_K"]);
  assert.deepEqual(last!.tensors.map((t) => t.name), ["a"]);
  const rest: string[] = [];
  const from: number[][] = [];
  await measure({
    job: JOB,
    candidates: all,
    from: last,
    lossOf: ({ name }) => (rest.push(name), Promise.resolve({ mean: 1, se: null })),
    onLoss: (...step) => from.push(step),
  });
  assert.deepEqual([rest, from[0]], [["b", "b", "b"], [3, 6, 3]]);
});

Deno.test("measure() ends at an error that is not the tensor's", async () => {
  const source = { name: "a", ne: [256, 4], type: ggmlType("f32"), shard: 0 };
  const candidates: Candidate[] = [{ name: "a", types: [ggmlType("q4_K")], importance: undefined, source }];
  for (const error of [new NativeError("native.io", "gone"), new Error("a bug")]) {
    await assert.rejects(measure({ job: JOB, candidates, lossOf: () => Promise.reject(error) }), error);
  }
});

Deno.test("measure() measures the types that an earlier run has not", async () => {
  const types = ["q2_K", "q4_K", "q8_0"].map(ggmlType), ne = [256, 4], loss = { bytes: 1, loss: 7, se: null };
  const source = { name: "a", ne, type: ggmlType("f32"), shard: 0 };
  const from: MeasureFile = { job: JOB, tensors: [{ name: "a", ne, losses: [{ type: types[1], ...loss }] }] };
  const { tensors } = await measure({
    job: JOB,
    candidates: [{ name: "a", types, importance: undefined, source }],
    from,
    lossOf: (_, type) => Promise.resolve({ mean: type.name === "q2_K" ? 9 : 1, se: 0.5 }),
  });
  assert.deepEqual(tensors[0].losses.map((l) => [l.type.name, l.loss]), [["q4_K", 7], ["q2_K", 9], ["q8_0", 1]]);
});

Deno.test("encodeTensor() gives every expert its own importance, from rows that are made", async () => {
  const n = 256, perExpert = 3, n_expert = 4, type = ggmlType("q4_K"), f32 = ggmlType("f32");
  const values = Float32Array.from({ length: n * perExpert * n_expert }, (_, i) => Math.sin(i * i));
  const importance = Float32Array.from({ length: n * n_expert }, (_, i) => 1 + (i * 31) % 17);
  const tensor = { name: "x", ne: [n, perExpert, n_expert], type: f32, shard: 0 };
  const source: QuantizeSource = {
    name: "m",
    paths: [],
    metadata: new Metadata("m"),
    tensors: [tensor],
    warnings: [],
    read: (_, row, rows) => new Uint8Array(values.slice(row * n, (row + rows) * n).buffer),
    [Symbol.dispose]() {},
  };
  using opened = openBackend("cpu");
  const whole = await encodeTensor(opened.backend, source, { source: tensor, importance }, type);
  const parts: number[] = [];
  for (let e = 0; e < n_expert; e++) {
    const weights = importance.slice(e * n, (e + 1) * n), src = await source.read(tensor, e * perExpert, perExpert);
    parts.push(
      ...await opened.backend.quantize({ srcType: f32, src, dstType: type, n_rows: perExpert, n_per_row: n, weights }),
    );
  }
  assert.deepEqual([...whole], parts);
});
