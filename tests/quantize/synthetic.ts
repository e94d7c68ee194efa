/**
 * Small llama-shaped GGUF files with made-up weights, for tests of the quantizer.
 * @module
 */
import { elementCount } from "../../core/gguf/layout.ts";
import { ggufValue, Metadata } from "../../core/gguf/metadata.ts";
import { ggmlType } from "../../core/gguf/types.ts";
import { GgufWriter } from "../../core/gguf/write.ts";

export interface SyntheticModel {
  readonly n_embd?: number;
  readonly n_ff?: number;
  readonly n_vocab?: number;
  readonly n_layer?: number;
  /** Changes the values of a tensor before it is written. */
  readonly edit?: (name: string, values: Float32Array) => void;
}

/** Values that look like weights: a bell, made by a small generator. */
export function fillWeights(out: Float32Array, seed: number): void {
  let state = seed * 2654435761 + 1 >>> 0;
  for (let i = 0; i < out.length; i++) {
    let sum = 0;
    for (let k = 0; k < 4; k++) {
      state = Math.imul(state, 1664525) + 1013904223 >>> 0;
      sum += state / 2 ** 32 - 0.5;
    }
    out[i] = 0.05 * sum;
  }
}

/** Names and shapes, fastest first. */
export function syntheticTensors(model: SyntheticModel = {}): { name: string; ne: number[] }[] {
  const { n_embd = 256, n_ff = 512, n_vocab = 64, n_layer = 2 } = model;
  const tensors = [
    { name: "token_embd.weight", ne: [n_embd, n_vocab] },
    { name: "output_norm.weight", ne: [n_embd] },
    { name: "output.weight", ne: [n_embd, n_vocab] },
  ];
  for (let il = 0; il < n_layer; il++) {
    const add = (name: string, ...ne: number[]) => tensors.push({ name: `blk.${il}.${name}.weight`, ne });
    add("attn_norm", n_embd);
    for (const name of ["attn_q", "attn_k", "attn_v", "attn_output"]) add(name, n_embd, n_embd);
    add("ffn_norm", n_embd);
    add("ffn_gate", n_embd, n_ff);
    add("ffn_up", n_embd, n_ff);
    add("ffn_down", n_ff, n_embd);
  }
  return tensors;
}

export function syntheticMetadata(model: SyntheticModel = {}): Metadata {
  return new Metadata("synthetic", [
    ["general.architecture", ggufValue.str("llama")],
    ["llama.block_count", ggufValue.u32(model.n_layer ?? 2)],
    ["llama.embedding_length", ggufValue.u32(model.n_embd ?? 256)],
    ["llama.context_length", ggufValue.u32(512)],
    ["llama.feed_forward_length", ggufValue.u32(model.n_ff ?? 512)],
    ["llama.attention.layer_norm_rms_epsilon", ggufValue.f32(1e-5)],
    ["llama.attention.head_count", ggufValue.u32(4)],
    ["llama.attention.head_count_kv", ggufValue.u32(2)],
  ]);
}

/** Writes an f32 model. */
export function writeSynthetic(path: string, model: SyntheticModel = {}): void {
  const tensors = syntheticTensors(model).map((t) => ({ ...t, type: ggmlType("f32") }));
  using writer = GgufWriter.create({ path, metadata: syntheticMetadata(model), tensors });
  for (const [i, t] of tensors.entries()) {
    const values = new Float32Array(elementCount(t.ne));
    fillWeights(values, i + 1);
    model.edit?.(t.name, values);
    writer.writeTensor(i, new Uint8Array(values.buffer));
  }
  writer.finish();
}
