/**
 * The head of a reranker or a classifier, on whatever model the file holds: `cls`, `cls.norm` and `cls.output`, each optional. An
 * encoder is read at its first row, or at the mean of all rows where the file says so; a decoder at its last row.
 * Source: huggingface/transformers `modeling_xlm_roberta.py`, `modeling_modernbert.py`; Qwen3-Reranker's model card.
 * @module
 */
import type { UnaryKind } from "../program/ops.ts";
import type { Ops, T } from "../program/program.ts";
import { linear } from "./decoder.ts";
import type { Keys, ModelFile } from "./keys.ts";

/** Whether the file has such a head. */
export function hasClassifier(file: Pick<ModelFile, "has">): boolean {
  return file.has("cls.weight") || file.has("cls.output.weight");
}

export interface ClassifierSpec {
  readonly pooling: "row" | "mean";
  readonly act: UnaryKind;
  readonly norm_eps: number;
  /** Its numbers are weighed against each other, as Qwen3's rerankers do with "yes" and "no". */
  readonly softmax: boolean;
}

/** As `PoolingType` counts. */
const POOLINGS: Readonly<Record<number, ClassifierSpec["pooling"]>> = { 1: "mean", 2: "row" };
const ACTS: Readonly<Record<string, UnaryKind>> = { gelu: "gelu_tanh", silu: "silu", tanh: "tanh" };

/** @throws {ModelError} `model.key_value`, `model.key_type` */
export function readClassifier(k: Keys): ClassifierSpec {
  const modern = k.arch === "modern-bert";
  const pooling = k.u32("classifier.pooling_type", modern ? 1 : 2);
  const act = k.str("classifier.activation", modern ? "gelu" : "tanh");
  k.want(pooling in POOLINGS, "classifier.pooling_type", pooling, "1 or 2");
  k.want(act in ACTS, "classifier.activation", act, Object.keys(ACTS).join(", "));
  k.has("classifier.output_labels");
  return {
    pooling: POOLINGS[pooling],
    act: ACTS[act],
    norm_eps: k.f32("attention.layer_norm_epsilon", 1e-5),
    softmax: k.arch === "qwen3" || k.arch === "qwen3vl",
  };
}

/** The mean of all rows of the text, in each of them: attention that weighs all alike, over streams that the first layer is done with. */
function meanRow(op: Ops, x: T): T {
  const segment = op.kept("blk.0");
  op.write(x, segment.v);
  return op.attention(x.heads(1), segment, { scale: 0, n_head_kv: 1, ahead: Infinity }).flat();
}

/** What the head makes of the rows it would see: `[n_class, n_out]` for x `[n_embd, n_tok or n_out]`. */
export function classifier(op: Ops, s: ClassifierSpec, x: T): T {
  const { pooling, act } = s, w = op.weights("cls"), root = op.weights();
  let y = op.wanted_rows(pooling === "mean" && x.rows === "tok" ? meanRow(op, x) : x);
  if (root.has("cls")) {
    y = op.unary(act, linear(op, root, "cls", y, op.source.find("cls.weight")!.ne[1] ?? 1));
    const norm = w.opt("norm", [y.ne[0]]);
    if (norm) y = op.norm("layer", y, norm, s.norm_eps);
  }
  if (w.has("output")) y = linear(op, w, "output", y, op.source.find("cls.output.weight")!.ne[1] ?? 1);
  return s.softmax ? op.softmax(y) : y;
}
