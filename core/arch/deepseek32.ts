/**
 * DeepSeek V3.2 (`deepseek32`) and GLM-5, 5.1, 5.2 (`glm-dsa`): deepseek2.ts with an indexer that picks the rows a layer reads.
 * V3.2's indexer rotates halves, GLM's pairs, both on the first numbers of a head; GLM-5.2 has one indexer for four layers.
 * Source: DeepSeek-V3.2-Exp report; huggingface/transformers `modeling_deepseek_v32.py`, `modeling_glm_moe_dsa.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { embed, head } from "./decoder.ts";
import { deepSeekLayer, type DeepSeekSpec, readDeepSeek } from "./deepseek2.ts";
import { draftBlocks } from "./draft.ts";
import { type IndexerSpec, indexRows, readIndexer, readIndexTypes } from "./indexer.ts";

interface SparseSpec extends DeepSeekSpec {
  readonly indexer: IndexerSpec;
  /** Layers that have an indexer. */
  readonly own: readonly boolean[];
}

/** @param select Rows that the last indexer chose; undefined: this layer has one. */
function layer(op: Ops, s: SparseSpec, il: number, x: T, select?: T): { x: T; select: T } {
  let rows = select;
  const rope = s.mla_rope && { ...s.mla_rope, kind: s.arch === "deepseek32" ? "halves" : "pairs" } as const;
  x = deepSeekLayer(op, s, il, x, (x) => ({
    select: (latent) => ({
      select: rows ??= indexRows(op, op.weights(`blk.${il}`), s.indexer, il, { x, latent, rope }),
    }),
  }));
  return { x, select: rows! };
}

function build(op: Ops, s: SparseSpec): T {
  let x = embed(op, s), select: T | undefined;
  for (let il = 0; il < s.n_layer; il++) {
    ({ x, select } = layer(op, s, il, x, s.own[il] ? undefined : select));
    x = op.layer_end(il, x);
  }
  return head(op, s, x);
}

export const deepseek32: Architecture<SparseSpec> = {
  names: ["deepseek32", "glm-dsa"],
  spec: (k) => {
    const s = readDeepSeek(k);
    k.want(
      s.q_lora_rank > 0,
      "attention.q_lora_rank",
      s.q_lora_rank,
      "at least 1: the indexer reads the query's latent",
    );
    return { ...s, indexer: readIndexer(k), own: readIndexTypes(k, s) };
  },
  build,
  draft: (op, s) => draftBlocks(op, s, (il, x) => layer(op, s, il, x).x),
};
