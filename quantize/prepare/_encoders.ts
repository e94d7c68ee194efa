/**
 * Small checkpoints of encoders for tests, whose files have golden sums (`scripts/peer_prepare.ts`).
 * @module
 */
import { floats, type TestCheckpoint, tokenizerFiles, VOCAB_SIZE } from "./_testing.ts";

type Shapes = Record<string, readonly number[]>;

/** Tokens of the vocabulary of `_testing.ts`: what is beyond them llama.cpp's converter cuts off for Gemma. */
const N_TOKEN = 270;

const N = 64, N_FF = 96, N_LAYER = 2;

/** `tokenizer.json` of word pieces. */
function wordPieces(): Record<string, unknown> {
  const special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
  const letters = Array.from({ length: 26 }, (_, i) => String.fromCharCode(97 + i));
  const tokens = [...special, ...letters, ...letters.map((x) => `##${x}`), "the", "cat", "##ing"];
  while (tokens.length < VOCAB_SIZE) tokens.push(`[unused${tokens.length}]`);
  const added = special.map((content, id) => ({
    id,
    content,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
  }));
  const around = (type: number, ...parts: string[]) =>
    parts.map((p) =>
      p.length === 1 ? { Sequence: { id: p, type_id: type } } : { SpecialToken: { id: p, type_id: type } }
    );
  const one = (id: string) => ({ id, ids: [tokens.indexOf(id)], tokens: [id] });
  return {
    "tokenizer.json": {
      version: "1.0",
      truncation: null,
      padding: null,
      added_tokens: added,
      normalizer: {
        type: "BertNormalizer",
        clean_text: true,
        handle_chinese_chars: true,
        strip_accents: null,
        lowercase: true,
      },
      pre_tokenizer: { type: "BertPreTokenizer" },
      post_processor: {
        type: "TemplateProcessing",
        single: around(0, "[CLS]", "A", "[SEP]"),
        pair: [...around(0, "[CLS]", "A", "[SEP]"), ...around(1, "B", "[SEP]")],
        special_tokens: { "[CLS]": one("[CLS]"), "[SEP]": one("[SEP]") },
      },
      decoder: { type: "WordPiece", prefix: "##", cleanup: true },
      model: {
        type: "WordPiece",
        unk_token: "[UNK]",
        continuing_subword_prefix: "##",
        max_input_chars_per_word: 100,
        vocab: Object.fromEntries(tokens.map((t, i) => [t, i])),
      },
    },
    "tokenizer_config.json": {
      cls_token: "[CLS]",
      mask_token: "[MASK]",
      pad_token: "[PAD]",
      sep_token: "[SEP]",
      unk_token: "[UNK]",
      do_lower_case: true,
      tokenizer_class: "BertTokenizer",
    },
  };
}

/** What sentence-transformers keeps beside a model. */
function pooled(mode: string): Record<string, unknown> {
  return {
    "modules.json": [
      { idx: 0, name: "0", path: "", type: "sentence_transformers.models.Transformer" },
      { idx: 1, name: "1", path: "1_Pooling", type: "sentence_transformers.models.Pooling" },
    ],
    "1_Pooling/config.json": { word_embedding_dimension: N, [mode]: true },
  };
}

function linear(name: string, out: number, n: number): Shapes {
  return { [`${name}.weight`]: [out, n], [`${name}.bias`]: [out] };
}

function norm(name: string): Shapes {
  return { [`${name}.weight`]: [N], [`${name}.bias`]: [N] };
}

function bertShapes(prefix: string): Shapes {
  const shapes: Shapes = {
    [`${prefix}embeddings.word_embeddings.weight`]: [VOCAB_SIZE, N],
    [`${prefix}embeddings.position_embeddings.weight`]: [128, N],
    [`${prefix}embeddings.token_type_embeddings.weight`]: [2, N],
    ...norm(`${prefix}embeddings.LayerNorm`),
    ...linear(`${prefix}pooler.dense`, N, N),
  };
  for (let il = 0; il < N_LAYER; il++) {
    const at = `${prefix}encoder.layer.${il}`;
    for (const w of ["query", "key", "value"]) Object.assign(shapes, linear(`${at}.attention.self.${w}`, N, N));
    Object.assign(shapes, linear(`${at}.attention.output.dense`, N, N), norm(`${at}.attention.output.LayerNorm`));
    Object.assign(shapes, linear(`${at}.intermediate.dense`, N_FF, N), linear(`${at}.output.dense`, N, N_FF));
    Object.assign(shapes, norm(`${at}.output.LayerNorm`));
  }
  return shapes;
}

function nomicShapes(moe: boolean): Shapes {
  const shapes: Shapes = {
    "embeddings.word_embeddings.weight": [VOCAB_SIZE, N],
    "embeddings.token_type_embeddings.weight": [2, N],
    ...norm("emb_ln"),
  };
  for (let il = 0; il < N_LAYER; il++) {
    const at = `encoder.layers.${il}`,
      bias = (name: string, out: number, n: number) => moe ? linear(name, out, n) : { [`${name}.weight`]: [out, n] };
    Object.assign(shapes, bias(`${at}.attn.Wqkv`, 3 * N, N), bias(`${at}.attn.out_proj`, N, N));
    Object.assign(shapes, norm(`${at}.norm1`), norm(`${at}.norm2`));
    if (moe && il % 2 === 1) {
      shapes[`${at}.mlp.router.layer.weight`] = [4, N];
      shapes[`${at}.mlp.experts.mlp.w1`] = [4 * N_FF, N];
      shapes[`${at}.mlp.experts.mlp.w2`] = [4 * N_FF, N];
      shapes[`${at}.mlp.experts.bias`] = [N];
    } else if (moe) Object.assign(shapes, linear(`${at}.mlp.fc1`, N_FF, N), linear(`${at}.mlp.fc2`, N, N_FF));
    else {
      for (const w of ["fc11", "fc12"]) shapes[`${at}.mlp.${w}.weight`] = [N_FF, N];
      shapes[`${at}.mlp.fc2.weight`] = [N, N_FF];
    }
  }
  return shapes;
}

function modernShapes(prefix: string): Shapes {
  const shapes: Shapes = {
    [`${prefix}embeddings.tok_embeddings.weight`]: [VOCAB_SIZE, N],
    [`${prefix}embeddings.norm.weight`]: [N],
    [`${prefix}final_norm.weight`]: [N],
  };
  for (let il = 0; il < N_LAYER; il++) {
    const at = `${prefix}layers.${il}`;
    if (il > 0) shapes[`${at}.attn_norm.weight`] = [N];
    Object.assign(shapes, {
      [`${at}.attn.Wqkv.weight`]: [3 * N, N],
      [`${at}.attn.Wo.weight`]: [N, N],
      [`${at}.mlp_norm.weight`]: [N],
      [`${at}.mlp.Wi.weight`]: [2 * N_FF, N],
      [`${at}.mlp.Wo.weight`]: [N, N_FF],
    });
  }
  return shapes;
}

function gemmaShapes(n_vocab: number): Shapes {
  const shapes: Shapes = { "embed_tokens.weight": [n_vocab, N], "norm.weight": [N] };
  for (let il = 0; il < N_LAYER; il++) {
    const at = `layers.${il}`;
    for (const w of ["input", "post_attention", "pre_feedforward", "post_feedforward"]) {
      shapes[`${at}.${w}_layernorm.weight`] = [N];
    }
    Object.assign(shapes, {
      [`${at}.self_attn.q_proj.weight`]: [N, N],
      [`${at}.self_attn.k_proj.weight`]: [32, N],
      [`${at}.self_attn.v_proj.weight`]: [32, N],
      [`${at}.self_attn.o_proj.weight`]: [N, N],
      [`${at}.self_attn.q_norm.weight`]: [32],
      [`${at}.self_attn.k_norm.weight`]: [32],
      [`${at}.mlp.gate_proj.weight`]: [N_FF, N],
      [`${at}.mlp.up_proj.weight`]: [N_FF, N],
      [`${at}.mlp.down_proj.weight`]: [N, N_FF],
    });
  }
  return shapes;
}

function qwenShapes(): Shapes {
  const shapes = gemmaShapes(VOCAB_SIZE);
  for (const name of Object.keys(shapes)) if (/feedforward_layernorm/.test(name)) delete shapes[name];
  return shapes;
}

const BERT = {
  model_type: "bert",
  vocab_size: VOCAB_SIZE,
  hidden_size: N,
  intermediate_size: N_FF,
  num_hidden_layers: N_LAYER,
  num_attention_heads: 2,
  max_position_embeddings: 128,
  type_vocab_size: 2,
  layer_norm_eps: 1e-12,
  hidden_act: "gelu",
  pad_token_id: 0,
};
/** Without a model type: a library that llama.cpp's converter reads configurations with puts its own sizes in their place. */
const NOMIC = {
  vocab_size: VOCAB_SIZE,
  n_embd: N,
  n_inner: N_FF,
  n_layer: N_LAYER,
  n_head: 2,
  type_vocab_size: 2,
  layer_norm_epsilon: 1e-12,
  causal: false,
  prenorm: false,
  rotary_emb_base: 1000,
  rotary_emb_fraction: 1.0,
  rotary_emb_interleaved: false,
  rotary_emb_scale_base: null,
  max_trained_positions: 2048,
};
const MODERN = {
  model_type: "modernbert",
  vocab_size: VOCAB_SIZE,
  hidden_size: N,
  intermediate_size: N_FF,
  num_hidden_layers: N_LAYER,
  num_attention_heads: 2,
  max_position_embeddings: 512,
  local_attention: 16,
  global_attn_every_n_layers: 3,
  global_rope_theta: 160000,
  local_rope_theta: 10000,
  norm_eps: 1e-5,
  layer_norm_eps: 1e-5,
  hidden_activation: "gelu",
  classifier_pooling: "mean",
  classifier_activation: "gelu",
};
const DECODER = {
  vocab_size: VOCAB_SIZE,
  hidden_size: N,
  intermediate_size: N_FF,
  num_hidden_layers: N_LAYER,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 32,
  max_position_embeddings: 512,
  rms_norm_eps: 1e-6,
  rope_theta: 1e6,
  tie_word_embeddings: true,
};

interface Described {
  readonly config: Record<string, unknown>;
  readonly shapes: Shapes;
  readonly files?: Record<string, unknown>;
}

/** By the name of their folder, which is written into the file. */
const DESCRIBED: Readonly<Record<string, Described>> = {
  "tiny-bert": {
    config: { ...BERT, architectures: ["BertModel"] },
    shapes: bertShapes(""),
    files: { ...wordPieces(), ...pooled("pooling_mode_cls_token") },
  },
  "tiny-bert-reranker": {
    config: { ...BERT, architectures: ["BertForSequenceClassification"], id2label: { 0: "score" } },
    shapes: { ...bertShapes("bert."), ...linear("classifier", 1, N) },
    files: wordPieces(),
  },
  "tiny-nomic-bert": {
    config: {
      ...NOMIC,
      architectures: ["NomicBertModel"],
      activation_function: "swiglu",
      n_positions: 8192,
      qkv_proj_bias: false,
      mlp_fc1_bias: false,
      mlp_fc2_bias: false,
    },
    shapes: nomicShapes(false),
    files: { ...wordPieces(), ...pooled("pooling_mode_mean_tokens") },
  },
  "tiny-nomic-bert-moe": {
    config: {
      ...NOMIC,
      architectures: ["NomicBertModel"],
      activation_function: "gelu",
      n_positions: 2048,
      qkv_proj_bias: true,
      mlp_fc1_bias: true,
      mlp_fc2_bias: true,
      moe_every_n_layers: 2,
      moe_top_k: 2,
      num_experts: 4,
    },
    shapes: nomicShapes(true),
    files: { ...wordPieces(), ...pooled("pooling_mode_mean_tokens") },
  },
  "tiny-modern-bert": {
    config: { ...MODERN, architectures: ["ModernBertModel"] },
    shapes: modernShapes(""),
    files: pooled("pooling_mode_cls_token"),
  },
  "tiny-modern-bert-reranker": {
    config: { ...MODERN, architectures: ["ModernBertForSequenceClassification"], id2label: { 0: "score" } },
    shapes: {
      ...modernShapes("model."),
      "head.dense.weight": [N, N],
      "head.norm.weight": [N],
      ...linear("classifier", 1, N),
    },
  },
  "tiny-gemma-embedding": {
    config: {
      ...DECODER,
      architectures: ["Gemma3TextModel"],
      model_type: "gemma3_text",
      vocab_size: N_TOKEN,
      sliding_window: 32,
      rope_local_base_freq: 10000,
      use_bidirectional_attention: true,
    },
    shapes: gemmaShapes(N_TOKEN),
    files: pooled("pooling_mode_mean_tokens"),
  },
  "tiny-qwen3-embedding": {
    config: { ...DECODER, architectures: ["Qwen3ForCausalLM"], model_type: "qwen3" },
    shapes: qwenShapes(),
    files: pooled("pooling_mode_lasttoken"),
  },
  "Qwen3-Reranker-tiny": {
    config: { ...DECODER, architectures: ["Qwen3ForCausalLM"], model_type: "qwen3", vocab_size: N_TOKEN + 3 },
    shapes: { ...qwenShapes(), "embed_tokens.weight": [N_TOKEN + 3, N] },
    files: tokenizerFiles(["n o", "y e", "ye s"]),
  },
};

export const ENCODERS: readonly string[] = Object.keys(DESCRIBED);

export function testEncoder(name: string): TestCheckpoint {
  const { config, shapes, files } = DESCRIBED[name];
  const tensors = Object.fromEntries(Object.keys(shapes).sort().map((n) => [n, floats(n, shapes[n], "F32")]));
  return { config, tensors, ...(files ? { files } : {}) };
}
