/**
 * Models of any size with made-up weights, as GGUF files and as Hugging Face folders, for tests and benchmarks: a real
 * architecture's tensors, numbers that look like weights and stay finite, no meaning. Written in pieces.
 * @module
 */
import { alignUp, elementCount } from "../../core/gguf/layout.ts";
import { type GgufValue, ggufValue, Metadata } from "../../core/gguf/metadata.ts";
import { type GgmlType, ggmlType, rowBytes } from "../../core/gguf/types.ts";
import { GgufWriter } from "../../core/gguf/write.ts";
import { tokenizerFiles } from "../../quantize/prepare/_testing.ts";

export interface SyntheticModel {
  /** `llama` where left out; `qwen3` has norms on heads, `qwen3moe` experts as well. */
  readonly arch?: string;
  readonly n_embd?: number;
  readonly n_ff?: number;
  readonly n_vocab?: number;
  readonly n_layer?: number;
  readonly n_head?: number;
  readonly n_head_kv?: number;
  /** `n_embd / n_head` where left out. */
  readonly head_dim?: number;
  readonly n_expert?: number;
  readonly n_expert_used?: number;
  /** Uneven routing: experts are chosen about as Zipf's law with this exponent says; left out or 0: evenly. */
  readonly skew?: number;
  /** No output head. */
  readonly tied?: boolean;
  /** Type of matrices; `f32` where left out. In block types, embeddings and head are q6_K. */
  readonly type?: string;
  /** Changes the values of an f32 tensor before it is written. */
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

function withDefaults(model: SyntheticModel) {
  const { n_embd = 256, n_ff = 512, n_vocab = 64, n_layer = 2, n_head = 4 } = model;
  const { arch = "llama", n_head_kv = n_head, head_dim = n_embd / n_head, n_expert = 0 } = model;
  return { ...model, arch, n_embd, n_ff, n_vocab, n_layer, n_head, n_head_kv, head_dim, n_expert };
}

/** Names and shapes, fastest first. */
export function syntheticTensors(model: SyntheticModel = {}): { name: string; ne: number[] }[] {
  const m = withDefaults(model);
  const { arch, n_embd, n_ff, n_vocab, n_layer, n_head, n_head_kv, head_dim, n_expert, tied } = m;
  const tensors = [
    { name: "token_embd.weight", ne: [n_embd, n_vocab] },
    { name: "output_norm.weight", ne: [n_embd] },
    ...tied ? [] : [{ name: "output.weight", ne: [n_embd, n_vocab] }],
  ];
  for (let il = 0; il < n_layer; il++) {
    const add = (name: string, ...ne: number[]) => tensors.push({ name: `blk.${il}.${name}.weight`, ne });
    add("attn_norm", n_embd);
    add("attn_q", n_embd, n_head * head_dim);
    add("attn_k", n_embd, n_head_kv * head_dim);
    add("attn_v", n_embd, n_head_kv * head_dim);
    add("attn_output", n_head * head_dim, n_embd);
    if (arch.startsWith("qwen3")) {
      add("attn_q_norm", head_dim);
      add("attn_k_norm", head_dim);
    }
    add("ffn_norm", n_embd);
    if (n_expert > 0) add("ffn_gate_inp", n_embd, n_expert);
    if (m.skew) tensors.push({ name: `blk.${il}.exp_probs_b.bias`, ne: [n_expert] });
    const [suffix, stack] = n_expert > 0 ? ["_exps", [n_expert]] : ["", []];
    add("ffn_gate" + suffix, n_embd, n_ff, ...stack);
    add("ffn_up" + suffix, n_embd, n_ff, ...stack);
    add("ffn_down" + suffix, n_ff, n_embd, ...stack);
  }
  return tensors;
}

export function syntheticMetadata(model: SyntheticModel = {}): Metadata {
  const m = withDefaults(model);
  const u32 = (key: string, n: number): [string, GgufValue] => [`${m.arch}.${key}`, ggufValue.u32(n)];
  const metadata = new Metadata("synthetic", [
    ["general.architecture", ggufValue.str(m.arch)],
    u32("block_count", m.n_layer),
    u32("vocab_size", m.n_vocab),
    u32("embedding_length", m.n_embd),
    u32("context_length", 40960),
    u32("feed_forward_length", m.n_ff),
    u32("attention.head_count", m.n_head),
    u32("attention.head_count_kv", m.n_head_kv),
    u32("attention.key_length", m.head_dim),
    u32("attention.value_length", m.head_dim),
    u32("rope.dimension_count", m.head_dim),
    [`${m.arch}.rope.freq_base`, ggufValue.f32(1e6)],
    [`${m.arch}.attention.layer_norm_rms_epsilon`, ggufValue.f32(1e-6)],
    ["tokenizer.ggml.model", ggufValue.str("no_vocab")],
  ]);
  if (m.type !== undefined && ggmlType(m.type).block > 1) {
    metadata.set("general.quantization_version", ggufValue.u32(2));
  }
  if (m.n_expert > 0) {
    metadata.set(...u32("expert_count", m.n_expert));
    metadata.set(...u32("expert_used_count", m.n_expert_used ?? 2));
    metadata.set(...u32("expert_feed_forward_length", m.n_ff));
  }
  return metadata;
}

/** Deviation of random blocks, times sqrt(n_in). */
const GAIN = 0.5;

/** Random blocks of a quantized type; values of deviation `GAIN / sqrt(n_in)`. */
function randomBlocks(type: GgmlType, n_in: number, bytes: number): Uint8Array {
  const n = Math.floor(bytes / type.bytes) * type.bytes;
  const out = new Uint8Array(n);
  for (let at = 0; at < n; at += 65536) crypto.getRandomValues(out.subarray(at, Math.min(n, at + 65536)));
  const view = new DataView(out.buffer);
  const sigma = GAIN / Math.sqrt(n_in);
  for (let at = 0; at < n; at += type.bytes) {
    switch (type.name) {
      case "q4_K":
      case "q5_K": {
        // d sc q - dmin m with 6-bit sc and m: means of 31.5, q of 7.5 (15.5) with deviation 4.6 (9.2).
        const spread = type.name === "q4_K" ? 4.6 : 9.2, middle = type.name === "q4_K" ? 7.5 : 15.5;
        const d = sigma / (36 * spread);
        view.setFloat16(at, d, true);
        view.setFloat16(at + 2, d * middle, true);
        break;
      }
      case "q6_K":
        view.setFloat16(at + 208, sigma / (74 * 18.5), true);
        break;
      case "q8_0":
        view.setFloat16(at, sigma / 74, true);
        break;
      case "q4_0":
        view.setFloat16(at, sigma / 4.6, true);
        break;
      default:
        throw new Error(`no random blocks of ${type.name}`);
    }
  }
  return out;
}

/** Bytes of made-up values; larger tensors repeat them. */
const POOL = 8 * 2 ** 20;

/** Bytes of weights in a float type; around 1 for a norm. */
function floatPool(type: string, n: number, seed: number, isNorm: boolean): Uint8Array {
  const values = new Float32Array(n);
  fillWeights(values, seed);
  if (isNorm) values.forEach((v, i) => values[i] = 1 + v);
  if (type === "f32") return new Uint8Array(values.buffer);
  if (type !== "bf16") throw new Error(`no made-up values of ${type}`);
  const bits = new Uint32Array(values.buffer);
  return new Uint8Array(Uint16Array.from(bits, (b) => b >>> 16).buffer);
}

/** Pieces of `pool`, from `at` on and around, `total` bytes in all. */
function* repeated(pool: Uint8Array, at: number, total: number): Generator<Uint8Array> {
  for (let left = total; left > 0; at = 0) {
    const n = Math.min(left, pool.length - at);
    yield pool.subarray(at, at + n);
    left -= n;
  }
}

/** In place of the row length of embeddings that outweigh what layers add: values of deviation 10 `GAIN`. */
const EMBEDDED = 0.01;

/** Deviation of `fillWeights`. */
const SPREAD = 0.05 / Math.sqrt(3);

/** Share of standard normal numbers below `z` (Abramowitz and Stegun 7.1.26). */
function normalShare(z: number): number {
  const t = 1 / (1 + 0.3275911 * Math.abs(z) / Math.SQRT2);
  const p = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  const tail = p * Math.exp(-z * z / 2) / 2;
  return z > 0 ? 1 - tail : tail;
}

/** Where `f`, which rises, reaches `value`. */
function solve(f: (x: number) => number, value: number, low: number, high: number): number {
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (f(middle) < value) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/**
 * A selection bias that makes routing uneven: expert of rank r is to be among the chosen `n_used` with a share of about c / r^skew. Router
 * logits are near normal, so its softmax score passes a threshold with a share that is known, and the bias moves the threshold.
 */
export function routingBias(
  n_embd: number,
  n_expert: number,
  n_used: number,
  skew: number,
  layer: number,
): Float32Array {
  const share = (c: number, i: number) => Math.min(0.95, c / (i + 1) ** skew);
  const ranks = Array.from({ length: n_expert }, (_, i) => i);
  const c = solve((c) => ranks.reduce((n, i) => n + share(c, i), 0), n_used, 0, n_expert);
  const sigma = SPREAD * Math.sqrt(n_embd), sum = n_expert * Math.exp(sigma * sigma / 2);
  const threshold = ranks.map((i) => Math.exp(sigma * solve(normalShare, 1 - share(c, i), -6, 6)) / sum);
  const most = Math.max(...threshold), bias = new Float32Array(n_expert);
  // Another order of experts in each layer: 37 and a power of two have no common divisor.
  ranks.forEach((i) => bias[(i * 37 + layer * 11) % n_expert] = most - threshold[i]);
  return bias;
}

/** Writes the model as a GGUF file and gives its size. */
export function writeSynthetic(path: string, model: SyntheticModel = {}): number {
  const named = ggmlType(model.type ?? "f32");
  const f32 = ggmlType("f32");
  const typeOf = (name: string, ne: readonly number[]) => {
    if (ne.length === 1 || name.includes("ffn_gate_inp")) return f32;
    return named.block > 1 && (name.startsWith("token_embd") || name.startsWith("output")) ? ggmlType("q6_K") : named;
  };
  const tensors = syntheticTensors(model).map((t) => ({ ...t, type: typeOf(t.name, t.ne) }));
  using writer = GgufWriter.create({ path, metadata: syntheticMetadata(model), tensors });
  const pools = new Map<string, Uint8Array>();
  for (const [i, { name, ne, type }] of tensors.entries()) {
    const total = rowBytes(type, ne[0]) * elementCount(ne) / ne[0];
    const layer = /^blk\.(\d+)\.exp_probs_b/.exec(name);
    if (layer) {
      const { n_embd = 256, n_expert = 0, n_expert_used = 2, skew = 0 } = model;
      writer.writeTensor(
        i,
        new Uint8Array(routingBias(n_embd, n_expert, n_expert_used, skew, Number(layer[1])).buffer),
      );
      continue;
    }
    if (type.block > 1) {
      // Uneven routing counts on routers that tell tokens apart: the token's own part of what they read must be the largest.
      const n_in = model.skew && name.startsWith("token_embd") ? EMBEDDED : ne[0];
      const key = `${type.name},${n_in}`;
      const pool = pools.get(key) ?? randomBlocks(type, n_in, POOL);
      pools.set(key, pool);
      // Starts at another block for each tensor, so that no two are equal.
      writer.writeTensor(i, ...repeated(pool, (i * 977 % 4096) * type.bytes, total));
    } else if (model.edit) {
      const values = new Float32Array(elementCount(ne));
      fillWeights(values, i + 1);
      model.edit(name, values);
      writer.writeTensor(i, new Uint8Array(values.buffer));
    } else {
      const pool = floatPool(type.name, Math.min(elementCount(ne), POOL / type.bytes), i + 1, ne.length === 1);
      writer.writeTensor(i, ...repeated(pool, 0, total));
    }
  }
  writer.finish();
  return writer.totalBytes;
}

/** Names of a llama checkpoint by those of the GGUF. */
const IN_CHECKPOINT: Readonly<Record<string, string>> = {
  token_embd: "model.embed_tokens",
  output_norm: "model.norm",
  output: "lm_head",
  attn_norm: "input_layernorm",
  attn_q: "self_attn.q_proj",
  attn_k: "self_attn.k_proj",
  attn_v: "self_attn.v_proj",
  attn_output: "self_attn.o_proj",
  ffn_norm: "post_attention_layernorm",
  ffn_gate: "mlp.gate_proj",
  ffn_up: "mlp.up_proj",
  ffn_down: "mlp.down_proj",
};

function checkpointName(name: string): string {
  const [, il, part] = /^(?:blk\.(\d+)\.)?(\w+)\.weight$/.exec(name)!;
  const at = IN_CHECKPOINT[part];
  return il === undefined ? `${at}.weight` : `model.layers.${il}.${at}.weight`;
}

/** Writes a llama model as a Hugging Face folder of bf16 files with an index, and gives the bytes of its tensors. */
export function writeSyntheticFolder(dir: string, model: SyntheticModel, n_file: number): number {
  const m = withDefaults(model);
  Deno.mkdirSync(dir, { recursive: true });
  const tensors = syntheticTensors(model);
  const weight_map: Record<string, string> = {};
  let total = 0;
  for (let no = 0; no < n_file; no++) {
    const of = (i: number) => String(i).padStart(5, "0");
    const file = `model-${of(no + 1)}-of-${of(n_file)}.safetensors`;
    const part = tensors.map((t, i) => ({ ...t, i }))
      .slice(Math.floor(no * tensors.length / n_file), Math.floor((no + 1) * tensors.length / n_file));
    const header: Record<string, unknown> = {};
    let offset = 0;
    for (const { name, ne } of part) {
      weight_map[checkpointName(name)] = file;
      const data_offsets = [offset, offset += 2 * elementCount(ne)];
      header[checkpointName(name)] = { dtype: "BF16", shape: ne.toReversed(), data_offsets };
    }
    const text = new TextEncoder().encode(JSON.stringify(header));
    const start = new Uint8Array(8 + alignUp(text.length, 8)).fill(32, 8);
    new DataView(start.buffer).setBigUint64(0, BigInt(start.length - 8), true);
    start.set(text, 8);
    using out = Deno.openSync(`${dir}/${file}`, { write: true, create: true, truncate: true });
    const write = (bytes: Uint8Array) => {
      for (let done = 0; done < bytes.length;) done += out.writeSync(bytes.subarray(done));
    };
    write(start);
    for (const { ne, i } of part) {
      const n = elementCount(ne);
      for (const piece of repeated(floatPool("bf16", Math.min(n, POOL / 2), i + 1, ne.length === 1), 0, 2 * n)) {
        write(piece);
      }
    }
    total += offset;
  }
  const files: Record<string, unknown> = {
    ...tokenizerFiles(),
    "model.safetensors.index.json": { metadata: { total_size: total }, weight_map },
    "config.json": {
      architectures: ["LlamaForCausalLM"],
      model_type: "llama",
      vocab_size: m.n_vocab,
      hidden_size: m.n_embd,
      intermediate_size: m.n_ff,
      num_hidden_layers: m.n_layer,
      num_attention_heads: m.n_head,
      num_key_value_heads: m.n_head_kv,
      head_dim: m.head_dim,
      max_position_embeddings: 40960,
      rms_norm_eps: 1e-6,
      rope_theta: 1e6,
      tie_word_embeddings: m.tied ?? false,
    },
  };
  for (const [name, content] of Object.entries(files)) {
    Deno.writeTextFileSync(`${dir}/${name}`, JSON.stringify(content));
  }
  return total;
}
