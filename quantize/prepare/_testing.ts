/**
 * Small checkpoints for tests: deterministic weights, a byte-level tokenizer of a few merges, any family.
 * @module
 */
import type { GgufValue } from "../../core/gguf/metadata.ts";
import { openGguf } from "../../core/gguf/read.ts";
import { GgufWriter } from "../../core/gguf/write.ts";
import { bytesOf, convertFloats } from "./dtype.ts";

export interface TestTensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data: Uint8Array;
}

export type TestTensors = Record<string, TestTensor>;

/** Numbers of about standard deviation 0.5 that depend on the name alone. */
export function noise(name: string, n: number): Float32Array {
  let x = 2166136261;
  for (const ch of name) x = Math.imul(x ^ ch.charCodeAt(0), 16777619) >>> 0;
  return Float32Array.from({ length: n }, () => {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
    return x / 2 ** 31 - 1;
  });
}

export function floats(name: string, shape: readonly number[], dtype: "F32" | "F16" | "BF16" = "BF16"): TestTensor {
  const values = noise(name, shape.reduce((a, b) => a * b, 1));
  return { dtype, shape, data: convertFloats(bytesOf(values), "F32", dtype) };
}

export const VOCAB_SIZE = 272;

/** GPT-2's printable stand-ins for bytes. */
function byteTexts(): string[] {
  const printable = (b: number) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCharCode(printable(b) ? b : next++));
}

/** Qwen2's way of cutting text. */
const SPLIT =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/** `tokenizer.json` and `tokenizer_config.json`. */
export function tokenizerFiles(more: readonly string[] = []): Record<string, unknown> {
  const merges = ["t h", "th e", "i n", "a n", "e r", "o n", "r e", "an d", "in g", "\u0120 t", ...more];
  const tokens = [...byteTexts(), ...merges.map((m) => m.replace(" ", ""))];
  const added = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>"];
  return {
    "tokenizer.json": {
      version: "1.0",
      added_tokens: added.map((content, i) => ({
        id: tokens.length + i,
        content,
        single_word: false,
        lstrip: false,
        rstrip: false,
        normalized: false,
        special: i < 3,
      })),
      normalizer: { type: "NFC" },
      pre_tokenizer: {
        type: "Sequence",
        pretokenizers: [
          { type: "Split", pattern: { Regex: SPLIT }, behavior: "Isolated", invert: false },
          { type: "ByteLevel", add_prefix_space: false, trim_offsets: false, use_regex: false },
        ],
      },
      post_processor: { type: "ByteLevel", add_prefix_space: false, trim_offsets: false, use_regex: false },
      decoder: { type: "ByteLevel", add_prefix_space: false, trim_offsets: false, use_regex: false },
      model: {
        type: "BPE",
        dropout: null,
        unk_token: null,
        continuing_subword_prefix: "",
        end_of_word_suffix: "",
        fuse_unk: false,
        byte_fallback: false,
        vocab: Object.fromEntries(tokens.map((t, i) => [t, i])),
        merges,
      },
    },
    "tokenizer_config.json": {
      add_bos_token: false,
      add_prefix_space: false,
      bos_token: null,
      eos_token: "<|im_end|>",
      pad_token: "<|endoftext|>",
      unk_token: null,
      tokenizer_class: "Qwen2Tokenizer",
      chat_template: "{% for m in messages %}{{ m.content }}{% endfor %}",
    },
  };
}

/** A safetensors file. */
export function safetensors(tensors: TestTensors): Uint8Array<ArrayBuffer> {
  const header: Record<string, unknown> = {};
  let offset = 0;
  for (const [name, t] of Object.entries(tensors)) {
    header[name] = { dtype: t.dtype, shape: t.shape, data_offsets: [offset, offset += t.data.length] };
  }
  const json = new TextEncoder().encode(JSON.stringify(header));
  const out = new Uint8Array(8 + json.length + offset);
  new DataView(out.buffer).setBigUint64(0, BigInt(json.length), true);
  out.set(json, 8);
  let at = 8 + json.length;
  for (const t of Object.values(tensors)) {
    out.set(t.data, at);
    at += t.data.length;
  }
  return out;
}

export interface TestCheckpoint {
  readonly config: Record<string, unknown>;
  readonly tensors: TestTensors;
  /** Files by name, over those of the tokenizer; text as it is, the rest as JSON. */
  readonly files?: Record<string, unknown>;
  /** Tensors are dealt to so many files, with an index. */
  readonly shards?: number;
}

/** Writes a checkpoint's folder. */
export function writeCheckpoint(dir: string, c: TestCheckpoint): void {
  Deno.mkdirSync(dir, { recursive: true });
  const files = { ...tokenizerFiles(), "config.json": c.config, ...c.files };
  for (const [name, content] of Object.entries(files)) {
    if (content === undefined) continue;
    if (name.includes("/")) Deno.mkdirSync(`${dir}/${name.slice(0, name.lastIndexOf("/"))}`, { recursive: true });
    Deno.writeTextFileSync(`${dir}/${name}`, typeof content === "string" ? content : JSON.stringify(content, null, 1));
  }
  const n = c.shards ?? 1;
  if (n === 1) return Deno.writeFileSync(`${dir}/model.safetensors`, safetensors(c.tensors));
  const names = Object.keys(c.tensors);
  const weight_map: Record<string, string> = {};
  for (let i = 0; i < n; i++) {
    const file = `model-0000${i + 1}-of-0000${n}.safetensors`;
    const part = names.slice(Math.floor(i * names.length / n), Math.floor((i + 1) * names.length / n));
    for (const name of part) weight_map[name] = file;
    Deno.writeFileSync(`${dir}/${file}`, safetensors(Object.fromEntries(part.map((name) => [name, c.tensors[name]]))));
  }
  Deno.writeTextFileSync(`${dir}/model.safetensors.index.json`, JSON.stringify({ metadata: {}, weight_map }));
}

const COMMON = {
  vocab_size: VOCAB_SIZE,
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 512,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  hidden_act: "silu",
  eos_token_id: 268,
  torch_dtype: "bfloat16",
};

/** Names of a decoder block's attention and norms, with shapes, for width 64 and heads of 16. */
function attention(at: string, head_dim: number, bias: boolean): Record<string, readonly number[]> {
  const q = 4 * head_dim;
  const kv = 2 * head_dim;
  return {
    [`${at}.input_layernorm.weight`]: [64],
    [`${at}.post_attention_layernorm.weight`]: [64],
    [`${at}.self_attn.q_proj.weight`]: [q, 64],
    [`${at}.self_attn.k_proj.weight`]: [kv, 64],
    [`${at}.self_attn.v_proj.weight`]: [kv, 64],
    [`${at}.self_attn.o_proj.weight`]: [64, q],
    ...bias
      ? {
        [`${at}.self_attn.q_proj.bias`]: [q],
        [`${at}.self_attn.k_proj.bias`]: [kv],
        [`${at}.self_attn.v_proj.bias`]: [kv],
      }
      : {},
  };
}

function swiglu(at: string, n_ff: number, names = ["gate_proj", "up_proj", "down_proj"]) {
  const [gate, up, down] = names;
  return {
    [`${at}.${gate}.weight`]: [n_ff, 64],
    [`${at}.${up}.weight`]: [n_ff, 64],
    [`${at}.${down}.weight`]: [64, n_ff],
  };
}

function build(shapes: Record<string, readonly number[]>, dtype: "F32" | "F16" | "BF16" = "BF16"): TestTensors {
  return Object.fromEntries(
    Object.keys(shapes).sort().map((name) => [name, floats(name, shapes[name], dtype)]),
  );
}

/** One checkpoint of each form that the tests go through; the golden sums are of these. */
export function testCheckpoint(
  kind: "llama" | "mixtral" | "qwen2" | "qwen2moe" | "qwen3" | "qwen3moe",
): TestCheckpoint {
  const shapes: Record<string, readonly number[]> = {
    "model.embed_tokens.weight": [VOCAB_SIZE, 64],
    "model.norm.weight": [64],
  };
  const head_dim = kind.startsWith("qwen3") ? 32 : 16;
  for (let il = 0; il < 2; il++) {
    const at = `model.layers.${il}`;
    Object.assign(shapes, attention(at, head_dim, kind.startsWith("qwen2")));
    if (kind.startsWith("qwen3")) {
      shapes[`${at}.self_attn.q_norm.weight`] = [head_dim];
      shapes[`${at}.self_attn.k_norm.weight`] = [head_dim];
    }
    if (kind === "mixtral") {
      shapes[`${at}.block_sparse_moe.gate.weight`] = [12, 64];
      for (let e = 0; e < 12; e++) {
        Object.assign(shapes, swiglu(`${at}.block_sparse_moe.experts.${e}`, 96, ["w1", "w3", "w2"]));
      }
    } else if (kind.endsWith("moe")) {
      shapes[`${at}.mlp.gate.weight`] = [12, 64];
      for (let e = 0; e < 12; e++) Object.assign(shapes, swiglu(`${at}.mlp.experts.${e}`, 32));
      if (kind === "qwen2moe") {
        Object.assign(shapes, swiglu(`${at}.mlp.shared_expert`, 64));
        shapes[`${at}.mlp.shared_expert_gate.weight`] = [1, 64];
      }
    } else Object.assign(shapes, swiglu(`${at}.mlp`, 96));
  }
  const tied = kind === "qwen2" || kind === "qwen3";
  if (!tied) shapes["lm_head.weight"] = [VOCAB_SIZE, 64];
  const classes = {
    llama: "LlamaForCausalLM",
    mixtral: "MixtralForCausalLM",
    qwen2: "Qwen2ForCausalLM",
    qwen2moe: "Qwen2MoeForCausalLM",
    qwen3: "Qwen3ForCausalLM",
    qwen3moe: "Qwen3MoeForCausalLM",
  };
  const special: Record<string, Record<string, unknown>> = {
    llama: {
      head_dim: 16,
      rope_scaling: {
        rope_type: "llama3",
        factor: 8,
        low_freq_factor: 1,
        high_freq_factor: 4,
        original_max_position_embeddings: 128,
      },
    },
    mixtral: { head_dim: 16, num_local_experts: 12, num_experts_per_tok: 2 },
    qwen2: { rope_scaling: { type: "yarn", factor: 4, original_max_position_embeddings: 128 } },
    qwen2moe: {
      num_experts: 12,
      num_experts_per_tok: 2,
      moe_intermediate_size: 32,
      shared_expert_intermediate_size: 64,
    },
    qwen3: { head_dim },
    qwen3moe: { head_dim, num_experts: 12, num_experts_per_tok: 2, moe_intermediate_size: 32, norm_topk_prob: true },
  };
  const model_type = kind.replace("moe", "_moe");
  return {
    config: {
      architectures: [classes[kind]],
      model_type,
      ...COMMON,
      tie_word_embeddings: tied,
      ...special[kind],
    },
    tensors: build(shapes, kind === "qwen2" ? "F16" : kind === "mixtral" ? "F32" : "BF16"),
    ...kind === "qwen3moe" || kind === "mixtral" ? { shards: 3 } : {},
  };
}

/** Runs with a folder that is gone afterwards. */
export async function withFolder<T>(run: (dir: string) => Promise<T> | T): Promise<T> {
  const dir = Deno.makeTempDirSync({ prefix: "prepare-" });
  try {
    return await run(dir + "/");
  } finally {
    Deno.removeSync(dir, { recursive: true });
  }
}

export async function sha256(path: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", Deno.readFileSync(path));
  return [...new Uint8Array(digest)].map((b) => b.toString(16).padStart(2, "0")).join("");
}

/** Keys of the other converter: `undefined` where it has none, or its value in the place of ours. */
export type PeerKeys = Readonly<Record<string, GgufValue | undefined>>;

/** SHA-256 of a file as another converter would have written it, whose keys differ in these. */
export async function sha256As(path: string, keys: PeerKeys): Promise<string> {
  if (Object.keys(keys).length === 0) return await sha256(path);
  const copy = `${path}.peer`;
  {
    using file = openGguf(path);
    const { tensors } = file;
    const metadata = file.metadata.clone();
    for (const [key, value] of Object.entries(keys)) {
      if (!metadata.has(key)) throw new Error(`${path} has no key ${key}`);
      if (value) metadata.set(key, value);
      else metadata.remove(key);
    }
    using writer = GgufWriter.create({ path: copy, metadata, tensors });
    for (const [i, t] of tensors.entries()) writer.writeTensor(i, file.readTensor(t));
    writer.finish();
  }
  return await sha256(copy);
}

/** First 16 digits of the SHA-256 of a tensor's bytes. */
export async function digest16(bytes: Uint8Array): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new Uint8Array(bytes));
  return [...new Uint8Array(digest)].slice(0, 8).map((b) => b.toString(16).padStart(2, "0")).join("");
}
