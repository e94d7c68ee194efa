/**
 * Random models of a few hundred kilobytes, one per architecture, for comparing backends and for refusals.
 * @module
 */
import { Metadata } from "../core/gguf/metadata.ts";
import type { GgufValue } from "../core/gguf/metadata.ts";
import { ggmlType } from "../core/gguf/types.ts";
import { GgufWriter, type TensorInfo } from "../core/gguf/write.ts";
import type { Backend } from "../core/program/backend.ts";

export interface TinyOptions {
  readonly arch: "llama" | "qwen3" | "qwen3moe";
  /** Type of matrices; other than f32 needs a backend to encode them. */
  readonly type?: string;
  readonly backend?: Backend;
  readonly seed?: number;
  /** Changes keys before they are written. */
  readonly keys?: (m: Metadata) => void;
  /** Changes the tensor list before it is written. */
  readonly tensors?: (t: TensorInfo[]) => TensorInfo[];
}

export const TINY = {
  n_embd: 256,
  n_layer: 2,
  n_head: 4,
  n_head_kv: 2,
  head_dim: 64,
  n_ff: 512,
  n_vocab: 300,
  n_expert: 6,
  n_expert_used: 2,
};

/** A small generator, so that a failing model can be made again (mulberry32). */
export function random(seed: number): () => number {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Standard normal numbers from uniform ones (Box-Muller). */
export function normal(next: () => number): number {
  return Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
}

/** Writes a random model and returns its path. */
export async function writeTinyModel(path: string, options: TinyOptions): Promise<string> {
  const { arch } = options;
  const s = TINY;
  const next = random(options.seed ?? 1);
  const moe = arch === "qwen3moe";
  const u32 = (value: number): GgufValue => ({ type: "u32", value });
  const m = new Metadata(path, [
    ["general.architecture", { type: "str", value: arch }],
    [`${arch}.context_length`, u32(512)],
    [`${arch}.embedding_length`, u32(s.n_embd)],
    [`${arch}.block_count`, u32(s.n_layer)],
    [`${arch}.feed_forward_length`, u32(s.n_ff)],
    [`${arch}.attention.head_count`, u32(s.n_head)],
    [`${arch}.attention.head_count_kv`, u32(s.n_head_kv)],
    [`${arch}.attention.key_length`, u32(s.head_dim)],
    [`${arch}.attention.value_length`, u32(s.head_dim)],
    [`${arch}.attention.layer_norm_rms_epsilon`, { type: "f32", value: 1e-5 }],
    [`${arch}.rope.freq_base`, { type: "f32", value: 10000 }],
  ]);
  if (moe) {
    m.set(`${arch}.expert_count`, u32(s.n_expert));
    m.set(`${arch}.expert_used_count`, u32(s.n_expert_used));
    m.set(`${arch}.expert_feed_forward_length`, u32(s.n_ff));
  }
  options.keys?.(m);

  const type = ggmlType(options.type ?? "f32"), f32 = ggmlType("f32");
  let tensors: TensorInfo[] = [];
  const add = (name: string, ne: number[], t = type) => tensors.push({ name: `${name}.weight`, type: t, ne });
  add("token_embd", [s.n_embd, s.n_vocab]);
  add("output_norm", [s.n_embd], f32);
  if (arch === "llama") add("output", [s.n_embd, s.n_vocab]);
  for (let il = 0; il < s.n_layer; il++) {
    const b = `blk.${il}`;
    add(`${b}.attn_norm`, [s.n_embd], f32);
    add(`${b}.attn_q`, [s.n_embd, s.n_head * s.head_dim]);
    add(`${b}.attn_k`, [s.n_embd, s.n_head_kv * s.head_dim]);
    add(`${b}.attn_v`, [s.n_embd, s.n_head_kv * s.head_dim]);
    add(`${b}.attn_output`, [s.n_head * s.head_dim, s.n_embd]);
    if (arch !== "llama") {
      add(`${b}.attn_q_norm`, [s.head_dim], f32);
      add(`${b}.attn_k_norm`, [s.head_dim], f32);
    } else tensors.push({ name: `${b}.attn_q.bias`, type: f32, ne: [s.n_head * s.head_dim] });
    add(`${b}.ffn_norm`, [s.n_embd], f32);
    if (moe) add(`${b}.ffn_gate_inp`, [s.n_embd, s.n_expert], f32);
    const experts = moe ? [s.n_expert] : [];
    const suffix = moe ? "_exps" : "";
    add(`${b}.ffn_gate${suffix}`, [s.n_embd, s.n_ff, ...experts]);
    add(`${b}.ffn_up${suffix}`, [s.n_embd, s.n_ff, ...experts]);
    add(`${b}.ffn_down${suffix}`, [s.n_ff, s.n_embd, ...experts]);
  }
  tensors = options.tensors?.(tensors) ?? tensors;

  using writer = GgufWriter.create({ path, metadata: m, tensors });
  for (const [i, t] of tensors.entries()) {
    const n = t.ne.reduce((a, b) => a * b, 1), n_in = t.ne[0];
    const vector = n === n_in;
    const values = Float32Array.from({ length: n }, () => {
      return vector
        ? 1 + 0.2 * normal(next)
        : normal(next) * (t.name.startsWith("token_embd") ? 1 : 1.5 / Math.sqrt(n_in));
    });
    const src = new Uint8Array(values.buffer);
    writer.writeTensor(
      i,
      t.type.name === "f32" ? src : await options.backend!.quantize({
        srcType: f32,
        src,
        dstType: t.type,
        n_rows: n / n_in,
        n_per_row: n_in,
      }),
    );
  }
  writer.finish();
  return path;
}
