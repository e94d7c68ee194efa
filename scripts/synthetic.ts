/**
 * Writes a GGUF file with a real architecture's shapes and random blocks, for benchmarks: the bytes a model of that size
 * has, numbers that stay finite, no meaning.
 *
 *   deno run -A scripts/synthetic.ts SHAPE OUT.gguf [--arch llama] [--type q4_K]
 *
 * Every matrix is of the given type, token_embd and output are Q6_K; there is no vocabulary. `--arch llama` drops the head
 * norms of qwen3.
 * @module
 */
import { Metadata } from "../core/gguf/metadata.ts";
import { type GgmlType, ggmlType, rowBytes } from "../core/gguf/types.ts";
import { GgufWriter, type TensorInfo } from "../core/gguf/write.ts";
import type { GgufValue } from "../core/gguf/metadata.ts";

interface Shape {
  readonly n_embd: number;
  readonly n_layer: number;
  readonly n_head: number;
  readonly n_head_kv: number;
  readonly head_dim: number;
  readonly n_ff: number;
  readonly n_vocab: number;
  readonly n_expert?: number;
  readonly n_expert_used?: number;
  readonly tied?: boolean;
}

/** Released shapes; the `peer-` ones are those of the peer's published numbers, with head_dim = n_embd / n_head. */
export const SHAPES: Readonly<Record<string, Shape>> = {
  "qwen3-0.6b": {
    n_embd: 1024,
    n_layer: 28,
    n_head: 16,
    n_head_kv: 8,
    head_dim: 128,
    n_ff: 3072,
    n_vocab: 151936,
    tied: true,
  },
  "qwen3-8b": { n_embd: 4096, n_layer: 36, n_head: 32, n_head_kv: 8, head_dim: 128, n_ff: 12288, n_vocab: 151936 },
  "qwen3-30b-a3b": {
    n_embd: 2048,
    n_layer: 48,
    n_head: 32,
    n_head_kv: 4,
    head_dim: 128,
    n_ff: 768,
    n_vocab: 151936,
    n_expert: 128,
    n_expert_used: 8,
  },
  "peer-0.6b": { n_embd: 1024, n_layer: 28, n_head: 16, n_head_kv: 8, head_dim: 64, n_ff: 3072, n_vocab: 151936 },
  "peer-8b": { n_embd: 4096, n_layer: 36, n_head: 32, n_head_kv: 8, head_dim: 128, n_ff: 12288, n_vocab: 151936 },
  "peer-30b-a3b": {
    n_embd: 2048,
    n_layer: 48,
    n_head: 32,
    n_head_kv: 4,
    head_dim: 64,
    n_ff: 768,
    n_vocab: 151936,
    n_expert: 128,
    n_expert_used: 8,
  },
};

/** Rows of f32 ones, and matrices whose values have about this deviation times sqrt(n_in). */
const GAIN = 0.5;

/** A pool of random blocks of a type; values of deviation `GAIN / sqrt(n_in)`. */
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

/** Writes the file and returns its size. */
export function writeSynthetic(name: string, path: string, options: { arch?: string; type?: string } = {}): number {
  const s = SHAPES[name];
  if (!s) throw new Error(`no shape "${name}": expected one of ${Object.keys(SHAPES).join(", ")}`);
  const moe = s.n_expert !== undefined;
  const arch = options.arch ?? (name.startsWith("peer-") ? "llama" : moe ? "qwen3moe" : "qwen3");
  const type = ggmlType(options.type ?? "q4_K"), big = ggmlType("q6_K"), f32 = ggmlType("f32");

  const u32 = (value: number): GgufValue => ({ type: "u32", value });
  const f = (value: number): GgufValue => ({ type: "f32", value });
  const str = (value: string): GgufValue => ({ type: "str", value });
  const m = new Metadata(path, [
    ["general.architecture", str(arch)],
    ["general.name", str(`synthetic ${name}`)],
    ["general.file_type", u32(15)],
    ["general.quantization_version", u32(2)],
    [`${arch}.vocab_size`, u32(s.n_vocab)],
    [`${arch}.context_length`, u32(40960)],
    [`${arch}.embedding_length`, u32(s.n_embd)],
    [`${arch}.block_count`, u32(s.n_layer)],
    [`${arch}.feed_forward_length`, u32(s.n_ff)],
    [`${arch}.attention.head_count`, u32(s.n_head)],
    [`${arch}.attention.head_count_kv`, u32(s.n_head_kv)],
    [`${arch}.attention.key_length`, u32(s.head_dim)],
    [`${arch}.attention.value_length`, u32(s.head_dim)],
    [`${arch}.attention.layer_norm_rms_epsilon`, f(1e-6)],
    [`${arch}.rope.freq_base`, f(1e6)],
    [`${arch}.rope.dimension_count`, u32(s.head_dim)],
    ["tokenizer.ggml.model", str("no_vocab")],
  ]);
  if (moe) {
    m.set(`${arch}.expert_count`, u32(s.n_expert!));
    m.set(`${arch}.expert_used_count`, u32(s.n_expert_used!));
    m.set(`${arch}.expert_feed_forward_length`, u32(s.n_ff));
  }

  const tensors: TensorInfo[] = [];
  const add = (tensor: string, ne: number[], t = type) => tensors.push({ name: `${tensor}.weight`, type: t, ne });
  add("token_embd", [s.n_embd, s.n_vocab], big);
  add("output_norm", [s.n_embd], f32);
  if (!s.tied) add("output", [s.n_embd, s.n_vocab], big);
  for (let il = 0; il < s.n_layer; il++) {
    const b = `blk.${il}`;
    add(`${b}.attn_norm`, [s.n_embd], f32);
    add(`${b}.attn_q`, [s.n_embd, s.n_head * s.head_dim]);
    add(`${b}.attn_k`, [s.n_embd, s.n_head_kv * s.head_dim]);
    add(`${b}.attn_v`, [s.n_embd, s.n_head_kv * s.head_dim]);
    add(`${b}.attn_output`, [s.n_head * s.head_dim, s.n_embd]);
    if (arch.startsWith("qwen3")) {
      add(`${b}.attn_q_norm`, [s.head_dim], f32);
      add(`${b}.attn_k_norm`, [s.head_dim], f32);
    }
    add(`${b}.ffn_norm`, [s.n_embd], f32);
    if (moe) {
      add(`${b}.ffn_gate_inp`, [s.n_embd, s.n_expert!], f32);
      add(`${b}.ffn_gate_exps`, [s.n_embd, s.n_ff, s.n_expert!]);
      add(`${b}.ffn_up_exps`, [s.n_embd, s.n_ff, s.n_expert!]);
      add(`${b}.ffn_down_exps`, [s.n_ff, s.n_embd, s.n_expert!]);
    } else {
      add(`${b}.ffn_gate`, [s.n_embd, s.n_ff]);
      add(`${b}.ffn_up`, [s.n_embd, s.n_ff]);
      add(`${b}.ffn_down`, [s.n_ff, s.n_embd]);
    }
  }

  using writer = GgufWriter.create({ path, metadata: m, tensors });
  const pools = new Map<string, Uint8Array>();
  tensors.forEach((t, i) => {
    const total = t.ne.slice(1).reduce((n, d) => n * d, rowBytes(t.type, t.ne[0]));
    if (t.type.name === "f32") {
      const router = t.name.includes("ffn_gate_inp");
      const values = Float32Array.from({ length: total / 4 }, () => router ? (Math.random() - 0.5) / 16 : 1);
      writer.writeTensor(i, new Uint8Array(values.buffer));
      return;
    }
    const key = `${t.type.name},${t.ne[0]}`;
    let pool = pools.get(key);
    if (!pool) pools.set(key, pool = randomBlocks(t.type, t.ne[0], 8 * 2 ** 20));
    const chunks: Uint8Array[] = [];
    // Start at another block for each tensor, so that no two are equal.
    for (let left = total, at = (i * 977 % 4096) * t.type.bytes; left > 0; at = 0) {
      const n = Math.min(left, pool.length - at);
      chunks.push(pool.subarray(at, at + n));
      left -= n;
    }
    writer.writeTensor(i, ...chunks);
  });
  writer.finish();
  return writer.totalBytes;
}

if (import.meta.main) {
  const flag = (name: string) => {
    const i = Deno.args.indexOf(`--${name}`);
    return i < 0 ? undefined : Deno.args[i + 1];
  };
  const [name, path] = Deno.args;
  if (!name || !path) {
    console.error(
      `usage: synthetic.ts SHAPE OUT.gguf [--arch llama] [--type q4_K]\nshapes: ${Object.keys(SHAPES).join(", ")}`,
    );
    Deno.exit(2);
  }
  const arch = flag("arch"), type = flag("type");
  const bytes = writeSynthetic(name, path, { ...(arch ? { arch } : {}), ...(type ? { type } : {}) });
  console.log(`${path}: ${bytes} bytes`);
}
