/**
 * The state of a run that collects, beside its output: sums in f64 and where the run is. A GGUF file, so that its reader trusts nothing.
 * @module
 */
import { FormatError } from "../../core/errors.ts";
import { ggufValue, Metadata } from "../../core/gguf/metadata.ts";
import { openGguf } from "../../core/gguf/read.ts";
import { ggmlType } from "../../core/gguf/types.ts";
import { GgufWriter } from "../../core/gguf/write.ts";
import type { CollectState } from "./collect.ts";

const KEY = "bloomery.collect";

/** Where the state of an output is. */
export function statePath(output: string): string {
  return `${output}.state`;
}

/** Writes beside and renames, so that a killed run leaves the earlier state. */
export function writeState(state: CollectState, path: string): void {
  const { job } = state, f64 = ggmlType("f64");
  const metadata = new Metadata(path)
    .set("general.type", ggufValue.str("imatrix-state"))
    .set(`${KEY}.model`, ggufValue.str(job.model))
    .set(`${KEY}.model_key`, ggufValue.str(job.model_key))
    .set(`${KEY}.datasets`, ggufValue.strs(job.datasets))
    .set(`${KEY}.n_ctx`, ggufValue.u32(job.n_ctx))
    .set(`${KEY}.tokens`, ggufValue.str(job.tokens))
    .set(`${KEY}.process_output`, ggufValue.u32(job.process_output ? 1 : 0))
    .set(`${KEY}.n_done`, ggufValue.u32(state.n_done))
    .set(`${KEY}.n_scored`, ggufValue.u32(state.n_scored));
  const parts = [
    { name: "nll", type: f64, ne: [1], data: Float64Array.of(state.nll) },
    ...[...state.sums].flatMap(([name, { sums, counts }]) => [
      { name: `${name}.in_sum2`, type: f64, ne: [sums.length / counts.length, counts.length], data: sums },
      { name: `${name}.counts`, type: f64, ne: [1, counts.length], data: counts },
    ]),
  ];
  using writer = GgufWriter.create({ path, metadata, tensors: parts });
  for (const [i, { data }] of parts.entries()) {
    writer.writeTensor(i, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  }
  writer.finish();
}

/**
 * Reads a state.
 * @throws {FormatError} `format.*`; `format.imatrix_state` where it is another file
 */
export function readState(path: string): CollectState {
  using file = openGguf(path);
  const { metadata } = file;
  const values = (name: string): Float64Array => {
    const t = file.find(name);
    if (t?.type.name !== "f64") {
      throw new FormatError(
        "format.imatrix_state",
        `Cannot continue from ${path}: tensor "${name}" is ${t?.type.name ?? "missing"}, expected f64`,
        { at: { file: path, tensor: name }, hint: "delete the file to begin anew" },
      );
    }
    return new Float64Array(file.readTensor(t).slice().buffer);
  };
  const sums = new Map<string, { sums: Float64Array; counts: Float64Array }>();
  for (const { name } of file.tensors) {
    const base = /^(.*)\.in_sum2$/s.exec(name)?.[1];
    if (base !== undefined) sums.set(base, { sums: values(name), counts: values(`${base}.counts`) });
  }
  return {
    job: {
      model: metadata.str(`${KEY}.model`),
      model_key: metadata.str(`${KEY}.model_key`),
      datasets: metadata.strs(`${KEY}.datasets`).toArray(),
      n_ctx: metadata.u32(`${KEY}.n_ctx`),
      tokens: metadata.str(`${KEY}.tokens`),
      process_output: metadata.u32(`${KEY}.process_output`) === 1,
    },
    n_done: metadata.u32(`${KEY}.n_done`),
    n_scored: metadata.u32(`${KEY}.n_scored`),
    nll: values("nll")[0],
    sums,
  };
}
