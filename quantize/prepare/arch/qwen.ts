/**
 * Qwen 2 to 3, dense and with experts: `qwen2`, `qwen2moe`, `qwen3`, `qwen3moe`.
 * @module
 */
import { ModelError } from "../../../core/errors.ts";
import { ggufValue } from "../../../core/gguf/metadata.ts";
import type { Config } from "../config.ts";
import type { CheckpointFacts, Family } from "../family.ts";
import type { Keys } from "../keys.ts";
import { poolingType } from "../pooling.ts";
import type { Rules } from "../rules.ts";
import { pickRows, type View } from "../view.ts";
import { attentionRules, denseRules, normRules, trunkRules } from "./llama.ts";
import { expertRules, routerRules, sharedExpertRules, sharedGateRule, stackedExpertRules } from "./moe.ts";

/** Norms of each query and key head. */
export function headNormRules(r: Rules, c: Config, optional = false): void {
  for (const w of ["q", "k"]) {
    r.weight(`model.layers.{il}.self_attn.${w}_norm`, `blk.{il}.attn_${w}_norm`, { shape: [c.head_dim], optional });
  }
}

/** Router and experts, stored one by one or stacked with gate and up in one tensor. */
export function qwenExpertRules(r: Rules, c: Config): void {
  routerRules(r, c);
  expertRules(r, c, { optional: true });
  stackedExpertRules(r, c);
  r.need("blk.{il}.ffn_down_exps.weight", "blk.{il}.ffn_gate_exps.weight", "blk.{il}.ffn_up_exps.weight");
}

/**
 * The window of models that use theirs, and the blocks that have it. llama.cpp's converter loses it; released Qwen models state
 * a window and do not use it.
 */
function windowKeys(k: Keys, c: Config): void {
  const window = c.int("sliding_window") ?? 0;
  if (!c.bool("use_sliding_window", false) || window === 0) return;
  const types = c.strs("layer_types");
  const first = c.int("max_window_layers") ?? 0;
  const isWindow = (il: number) => types ? types[il] === "sliding_attention" : il >= first;
  k.u32("attention.sliding_window", window)
    .bools("attention.sliding_window_pattern", Array.from({ length: c.n_layer }, (_, il) => isWindow(il)));
}

/** Windows, and how vectors are pooled where the release gives them. */
function vectorKeys(k: Keys, c: Config, _: number, facts: CheckpointFacts): void {
  windowKeys(k, c);
  k.u32("pooling_type", poolingType(facts));
}

/** Embedding models leave out the name of the part that is all they have. */
const underModel = (name: string) => /^(embed_tokens|layers|norm)\./.test(name) ? `model.${name}` : name;

export const QWEN2: Family = {
  classes: ["Qwen2ForCausalLM"],
  arch: "qwen2",
  defaults: () => ({ num_key_value_heads: 32 }),
  rules(r, c) {
    trunkRules(r, c);
    normRules(r, c);
    attentionRules(r, c, false);
    denseRules(r, c);
  },
  rename: underModel,
  keys: vectorKeys,
};

export const QWEN2MOE: Family = {
  classes: ["Qwen2MoeForCausalLM"],
  arch: "qwen2moe",
  rules(r, c) {
    trunkRules(r, c);
    normRules(r, c);
    attentionRules(r, c, false);
    qwenExpertRules(r, c);
    sharedExpertRules(r, c, "shared_expert", c.needInt("shared_expert_intermediate_size"));
    sharedGateRule(r, c);
  },
  keys(k, c) {
    k.u32("expert_feed_forward_length", c.int("moe_intermediate_size"))
      .u32("expert_shared_feed_forward_length", c.int("shared_expert_intermediate_size"));
    windowKeys(k, c);
  },
};

export const QWEN3: Family = {
  classes: ["Qwen3ForCausalLM"],
  arch: "qwen3",
  defaults: () => ({ head_dim: 128, num_key_value_heads: 32 }),
  rules(r, c, options, facts) {
    QWEN2.rules(r, c, options, facts);
    headNormRules(r, c);
  },
  rename: underModel,
  keys: vectorKeys,
};

/** What Qwen3's rerankers are asked; the question and the text go into the braces. */
const RERANK =
  "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. " +
  'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n' +
  "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n" +
  "<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

/** Rows of the head for "yes" and "no". */
function answerRows(v: View, facts: CheckpointFacts): View {
  const tokens = Array.from(facts.vocabulary().strs("tokenizer.ggml.tokens"));
  const rows = ["yes", "no"].map((text) => {
    const id = tokens.indexOf(text);
    if (id >= 0) return id;
    throw new ModelError("model.config", `Cannot prepare a reranker: its vocabulary has no token "${text}"`, {
      at: { field: "tokenizer.ggml.tokens", got: null, expected: text },
    });
  });
  return pickRows(v, [2, v.shape[1]], (r) => rows[r]);
}

/** Qwen3-Reranker: what it answers is yes or no, so that two rows are left of its head. */
export const QWEN3_RERANKER: Family = {
  ...QWEN3,
  // Its class is that of the others: llama.cpp knows it by the names of its folder and its card.
  accepts: (c, text) =>
    /qwen3-reranker[^/]*\/[^/]*$/i.test(c.file) || /qwen3-reranker/i.test(String(c.raw("_name_or_path") ?? "")) ||
    /^# qwen3-reranker/im.test(text("README.md") ?? ""),
  rules(r, c, options, facts) {
    QWEN3.rules(r, c, options, facts);
    const tied = c.bool("tie_word_embeddings", false), from = tied ? "model.embed_tokens" : "lm_head";
    r.forget(`${from}.weight`).split(`${from}.weight`, (v) => [
      { name: "cls.output.weight", view: answerRows(v, facts) },
      ...tied ? [{ name: "token_embd.weight", view: v }] : [],
    ]);
    if (tied) r.drop("lm_head.weight");
  },
  keys(k, c, n_block, facts, options) {
    QWEN3.keys!(k, c, n_block, facts, options);
    k.u32("pooling_type", 4).strs("classifier.output_labels", ["yes", "no"]);
    k.metadata.set("tokenizer.chat_template.rerank", ggufValue.str(RERANK))
      .set("tokenizer.chat_templates", ggufValue.strs(["rerank"]));
  },
};

export const QWEN3MOE: Family = {
  classes: ["Qwen3MoeForCausalLM"],
  arch: "qwen3moe",
  rules(r, c) {
    trunkRules(r, c);
    normRules(r, c);
    attentionRules(r, c, false);
    headNormRules(r, c);
    qwenExpertRules(r, c);
  },
  keys(k, c) {
    k.u32("expert_feed_forward_length", c.int("moe_intermediate_size"));
    windowKeys(k, c);
  },
};

/** Qwen3-VL, its text model: three-axis RoPE; images reach several blocks. */
export const QWEN3VL: Family = {
  ...QWEN3,
  classes: ["Qwen3VLForConditionalGeneration"],
  arch: "qwen3vl",
  keys(k, c) {
    const vision = c.root["vision_config"] as { deepstack_visual_indexes?: unknown } | undefined;
    const indexes = vision?.deepstack_visual_indexes;
    k.u32("n_deepstack_layers", Array.isArray(indexes) ? indexes.length : 0);
  },
};
