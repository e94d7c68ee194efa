/**
 * Encoders: BERT, CamemBERT, RoBERTa and XLM-R (`bert`), Nomic Embed (`nomic-bert`, `nomic-bert-moe`) and ModernBERT (`modern-bert`),
 * with the heads of rerankers and classifiers.
 * @module
 */
import { ModelError } from "../../../core/errors.ts";
import type { Config } from "../config.ts";
import type { CheckpointFacts, Family } from "../family.ts";
import type { Keys } from "../keys.ts";
import { poolingType } from "../pooling.ts";
import type { Rules } from "../rules.ts";
import { reshape, sliceRows, transpose, type View } from "../view.ts";

const AT = "encoder.layer.{il}";

/** Labels that say something: two without names of their own are what a configuration has by default. */
function labelsOf(c: Config): string[] | undefined {
  const given = c.object("id2label");
  if (!given) return undefined;
  const labels = Object.keys(given).toSorted((a, b) => Number(a) - Number(b)).map((id) => String(given[id]));
  return labels.length === 0 || (labels.length === 2 && labels[0] === "LABEL_0") ? undefined : labels;
}

/** Keys that all encoders have after the common ones. */
function encoderKeys(k: Keys, c: Config, facts: CheckpointFacts): void {
  k.bool("attention.causal", false).u32("pooling_type", poolingType(facts));
  const pooling = c.str("classifier_pooling");
  if (pooling !== undefined) {
    k.u32("classifier.pooling_type", oneOf(c, "classifier_pooling", pooling, { mean: 1, cls: 2 }));
  }
  const act = c.str("classifier_activation");
  if (act !== undefined) {
    oneOf(c, "classifier_activation", act, { gelu: 1, silu: 1, tanh: 1 });
    k.str("classifier.activation", act);
  }
  const labels = labelsOf(c);
  if (labels) k.strs("classifier.output_labels", labels);
}

function oneOf(c: Config, field: string, got: string, known: Readonly<Record<string, number>>): number {
  if (got in known) return known[got];
  throw new ModelError(
    "model.config",
    `Cannot use field "${field}" of ${c.file}: found "${got}", expected ${Object.keys(known).join(" or ")}`,
    { at: { file: c.file, field, got, expected: Object.keys(known) } },
  );
}

/** The older names of LayerNorm's parts, and prefixes of classes with a head. */
function plainName(name: string): string {
  return name.replace(/^(bert|roberta)\./, "").replace(/\.gamma$/, ".weight").replace(/\.beta$/, ".bias");
}

/** A head: a matrix with an activation and one behind it, or the latter alone. */
function headRules(r: Rules, c: Config, dense: string): void {
  const optional = { optional: true };
  r.linear(dense, "cls", optional);
  r.linear("classifier.out_proj", "cls.output", optional);
  // A checkpoint whose labels have names has one matrix only.
  r.linear("classifier", labelsOf(c) ? "cls.output" : "cls", optional);
}

function bertRules(r: Rules, c: Config, positions?: (v: View) => View): void {
  const { n_embd } = c, n_ff = c.needSize("intermediate_size"), width = [n_embd, n_embd];
  r.weight("embeddings.word_embeddings", "token_embd", { shape: [c.needInt("vocab_size"), n_embd] })
    .weight("embeddings.position_embeddings", "position_embd", positions ? { map: positions } : {})
    .weight("embeddings.token_type_embeddings", "token_types")
    .linear("embeddings.LayerNorm", "token_embd_norm", { shape: [n_embd] });
  for (const [from, to] of [["query", "q"], ["key", "k"], ["value", "v"]]) {
    r.linear(`${AT}.attention.self.${from}`, `blk.{il}.attn_${to}`, { shape: width });
  }
  r.linear(`${AT}.attention.output.dense`, "blk.{il}.attn_output", { shape: width })
    .linear(`${AT}.attention.output.LayerNorm`, "blk.{il}.attn_output_norm", { shape: [n_embd] })
    .linear(`${AT}.intermediate.dense`, "blk.{il}.ffn_up", { shape: [n_ff, n_embd] })
    .linear(`${AT}.output.dense`, "blk.{il}.ffn_down", { shape: [n_embd, n_ff] })
    .linear(`${AT}.output.LayerNorm`, "blk.{il}.layer_output_norm", { shape: [n_embd] })
    .drop("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias");
  headRules(r, c, "classifier.dense");
}

/** Heads for training, which files do not have. */
const isTraining = (name: string) => /^(cls\.(predictions|seq_relationship)|lm_head)\./.test(name);

export const BERT: Family = {
  classes: ["BertModel", "BertForMaskedLM", "BertForSequenceClassification", "CamembertModel"],
  arch: "bert",
  rename: (name) => isTraining(name) ? undefined : plainName(name),
  rules: (r, c) => bertRules(r, c),
  keys: (k, c, _, facts) => encoderKeys(k, c, facts),
};

/** Positions of RoBERTa and its kind begin behind the padding token's number. */
const firstPosition = (c: Config) => {
  const pad = c.int("pad_token_id");
  return pad === undefined ? 0 : pad + 1;
};

export const ROBERTA: Family = {
  classes: [
    "RobertaModel",
    "RobertaForSequenceClassification",
    "XLMRobertaModel",
    "XLMRobertaForSequenceClassification",
  ],
  arch: "bert",
  accepts: (c) => c.raw("lora_adaptations") === undefined,
  rename: (name) => isTraining(name) ? undefined : plainName(name),
  rules: (r, c) => bertRules(r, c, (v) => sliceRows(v, firstPosition(c), v.shape[0] - firstPosition(c))),
  keys(k, c, _, facts) {
    k.u32("context_length", c.needInt("max_position_embeddings") - firstPosition(c));
    encoderKeys(k, c, facts);
  },
};

const NOMIC = "encoder.layers.{il}";

function nomicRules(r: Rules, c: Config): void {
  const { n_embd } = c;
  r.weight("embeddings.word_embeddings", "token_embd")
    .weight("embeddings.token_type_embeddings", "token_types", { optional: true })
    .linear("emb_ln", "token_embd_norm", { shape: [n_embd] })
    .linear(`${NOMIC}.attn.Wqkv`, "blk.{il}.attn_qkv", { shape: [3 * n_embd, n_embd] })
    .linear(`${NOMIC}.attn.out_proj`, "blk.{il}.attn_output", { shape: [n_embd, n_embd] })
    .linear(`${NOMIC}.norm1`, "blk.{il}.attn_output_norm", { shape: [n_embd] })
    .linear(`${NOMIC}.norm2`, "blk.{il}.layer_output_norm", { shape: [n_embd] });
}

/** nomic-embed-text v1 and v1.5 are trained for 2048 tokens, v2 for 512; their configurations say more. */
function nomicContext(c: Config): number {
  const n = c.needInt("n_positions"), trained = c.int("max_trained_positions") ?? 2048;
  if (n === 8192 && trained === 2048) return 2048;
  if (n === 2048 && trained === 2048) return 512;
  throw new ModelError(
    "model.config",
    `Cannot use field "n_positions" of ${c.file}: found ${n} with ${trained} trained positions, expected 8192 or 2048 with 2048`,
    { at: { file: c.file, field: "n_positions", got: n } },
  );
}

const isMoe = (c: Config) => (c.int("moe_every_n_layers") ?? 0) > 0;

/** What the releases all are, and the forward pass takes for granted. */
function wantNomic(c: Config, act: string): void {
  const found = c.str("activation_function");
  if (found !== act) oneOf(c, "activation_function", found ?? "none", { [act]: 1 });
  for (const field of ["prenorm", "rotary_emb_interleaved"]) {
    if (!c.bool(field, false)) continue;
    throw new ModelError("model.config", `Cannot use field "${field}" of ${c.file}: found true, expected false`, {
      at: { file: c.file, field, got: true, expected: false },
    });
  }
}

export const NOMIC_BERT: Family = {
  classes: ["NomicBertModel"],
  accepts: (c) => !isMoe(c),
  arch: "nomic-bert",
  rename: plainName,
  rules(r, c) {
    wantNomic(c, "swiglu");
    nomicRules(r, c);
    const n_ff = c.n_ff!;
    r.weight(`${NOMIC}.mlp.fc11`, "blk.{il}.ffn_up", { shape: [n_ff, c.n_embd] })
      .weight(`${NOMIC}.mlp.fc12`, "blk.{il}.ffn_gate", { shape: [n_ff, c.n_embd] })
      .weight(`${NOMIC}.mlp.fc2`, "blk.{il}.ffn_down", { shape: [c.n_embd, n_ff] });
  },
  keys(k, c, _, facts) {
    k.u32("context_length", nomicContext(c));
    encoderKeys(k, c, facts);
  },
};

export const NOMIC_BERT_MOE: Family = {
  classes: ["NomicBertModel"],
  accepts: isMoe,
  arch: "nomic-bert-moe",
  rename: plainName,
  rules(r, c) {
    wantNomic(c, "gelu");
    nomicRules(r, c);
    const n_ff = c.n_ff!, { n_embd } = c, n_expert = c.n_expert ?? 0, step = c.needInt("moe_every_n_layers");
    const routed = { blocks: (il: number) => il % step === 1 }, dense = { blocks: (il: number) => il % step !== 1 };
    const shape = [n_expert, n_ff, n_embd];
    r.linear(`${NOMIC}.mlp.fc1`, "blk.{il}.ffn_up", { shape: [n_ff, n_embd], ...dense })
      .linear(`${NOMIC}.mlp.fc2`, "blk.{il}.ffn_down", { shape: [n_embd, n_ff], ...dense })
      .weight(`${NOMIC}.mlp.router.layer`, "blk.{il}.ffn_gate_inp", { shape: [n_expert, n_embd], ...routed })
      .exact(`${NOMIC}.mlp.experts.mlp.w1`, "blk.{il}.ffn_up_exps.weight", { map: (v) => reshape(v, shape), ...routed })
      .exact(`${NOMIC}.mlp.experts.mlp.w2`, "blk.{il}.ffn_down_exps.weight", {
        map: (v) => transpose(reshape(v, shape)),
        ...routed,
      })
      .drop(`${NOMIC}.mlp.experts.bias`);
  },
  keys(k, c, _, facts) {
    k.u32("context_length", nomicContext(c));
    encoderKeys(k, c, facts);
    k.u32("moe_every_n_layers", c.needInt("moe_every_n_layers")).u32("expert_used_count", c.needInt("moe_top_k"));
  },
};

export const MODERN_BERT: Family = {
  classes: ["ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"],
  arch: "modern-bert",
  rename(name) {
    const plain = name.replace(/^model\./, "");
    // The head of its language model has the names of a classifier's.
    return /^decoder\./.test(plain) ? undefined : plain;
  },
  rules(r, c) {
    const { n_embd } = c, n_ff = c.needSize("intermediate_size"), at = "layers.{il}";
    r.weight("embeddings.tok_embeddings", "token_embd", { shape: [c.needInt("vocab_size"), n_embd] })
      .linear("embeddings.norm", "token_embd_norm", { shape: [n_embd] })
      .linear(`${at}.attn_norm`, "blk.{il}.attn_norm", { shape: [n_embd], blocks: (il) => il > 0 })
      .linear(`${at}.attn.Wqkv`, "blk.{il}.attn_qkv", { shape: [3 * n_embd, n_embd] })
      .linear(`${at}.attn.Wo`, "blk.{il}.attn_output", { shape: [n_embd, n_embd] })
      .linear(`${at}.mlp_norm`, "blk.{il}.ffn_norm", { shape: [n_embd] })
      .linear(`${at}.mlp.Wi`, "blk.{il}.ffn_up", { shape: [2 * n_ff, n_embd] })
      .linear(`${at}.mlp.Wo`, "blk.{il}.ffn_down", { shape: [n_embd, n_ff] })
      .linear("final_norm", "output_norm", { shape: [n_embd] })
      .weight("head.norm", "cls.norm", { optional: true });
    headRules(r, c, "head.dense");
  },
  keys(k, c, _, facts) {
    encoderKeys(k, c, facts);
    k.u32("attention.sliding_window", c.needInt("local_attention"))
      .u32("attention.sliding_window_pattern", c.int("global_attn_every_n_layers"))
      .str("rope.scaling.type", "none")
      .u32("vocab_size", c.needInt("vocab_size"))
      .str("hidden_activation", c.str("hidden_activation"));
  },
};
