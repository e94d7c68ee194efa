/**
 * The lightning indexer of sparse attention: small queries and one small key a token rank the rows that attention then reads.
 * Sources: DeepSeek-V3.2-Exp report §2; huggingface/transformers `modeling_deepseek_v32.py`, `modeling_glm_moe_dsa.py`. Released
 * kernels turn queries and keys by a Hadamard matrix first, which changes no product.
 * @module
 */
import type { RopeKind } from "../program/ops.ts";
import type { Ops, T, Weights } from "../program/program.ts";
import type { Spec } from "./architecture.ts";
import { linear } from "./decoder.ts";
import type { Keys } from "./keys.ts";
import type { Rope } from "./rope.ts";

export interface IndexerSpec {
  readonly n_head: number;
  readonly head_dim: number;
  /** Rows that attention reads. */
  readonly top_k: number;
  /** Of the LayerNorm on keys. */
  readonly eps: number;
}

/** @throws {ModelError} `model.key_value`, `model.missing_key`, `model.key_type` */
export function readIndexer(k: Keys): IndexerSpec {
  const n_head = k.u32("attention.indexer.head_count"), top_k = k.u32("attention.indexer.top_k");
  k.want(n_head >= 1, "attention.indexer.head_count", n_head, "at least 1");
  k.want(top_k >= 1, "attention.indexer.top_k", top_k, "at least 1");
  return {
    n_head,
    head_dim: k.u32("attention.indexer.key_length"),
    top_k,
    eps: k.f32("attention.layer_norm_epsilon", 1e-6),
  };
}

/** Queries `[head_dim, n_head, n_tok]` from the query's latent, and weights of heads `[n_head, n_tok]` from the layer's input. */
export function indexQueries(op: Ops, w: Weights, s: IndexerSpec, x: T, latent: T): { q: T; heads: T } {
  return {
    q: linear(op, w, "indexer.attn_q_b", latent, s.n_head * s.head_dim).heads(s.n_head),
    heads: op.scale(linear(op, w, "indexer.proj", x, s.n_head), s.n_head ** -0.5),
  };
}

/** Keys before they are rotated or pooled: `[head_dim, n_tok]`. */
export function indexKeys(op: Ops, w: Weights, s: IndexerSpec, x: T): T {
  const k = linear(op, w, "indexer.attn_k", x, s.head_dim);
  return op.norm("layer", k, w("indexer.k_norm", [s.head_dim]), s.eps, w("indexer.k_norm.bias", [s.head_dim]));
}

/**
 * Rows that layer `il` reads: i32 `[top_k, n_tok]`. Stores the layer's keys.
 * @param rope Rotates the first numbers of queries and keys; left out where the layer rotates nothing.
 */
export function indexRows(
  op: Ops,
  w: Weights,
  s: IndexerSpec,
  il: number,
  { x, latent, rope }: { x: T; latent: T; rope?: (Rope & { readonly kind: RopeKind }) | undefined },
): T {
  const rotated = (y: T) =>
    rope ? op.rope(y, op.constant("rope.inv_freq", rope.inv_freq), { kind: rope.kind, mscale: rope.mscale }) : y;
  const { q, heads } = indexQueries(op, w, s, x, latent);
  const keys = op.stream(`blk.${il}.index_k`, s.head_dim, { role: "k" });
  op.write(rotated(indexKeys(op, w, s, x).heads(1)), keys);
  return op.index(rotated(q), keys, s.top_k, { scale: s.head_dim ** -0.5, w: heads });
}

/** Which layers have an indexer of their own; the others read the rows of the last one before them that has. */
export function readIndexTypes(k: Keys, s: Spec): boolean[] {
  // Files without the key: the tensors tell. A first layer without them is refused when it is bound.
  const has = Array.from({ length: s.n_layer }, (_, il) => il === 0 || k.file.has(`blk.${il}.indexer.attn_k.weight`));
  const own = k.has("attention.indexer.types")
    ? k.perLayer("attention.indexer.types", s.n_layer).map((v) => v !== 0)
    : has;
  k.want(own[0], "attention.indexer.types", own[0], "true for the first layer, which has none before it");
  return own;
}
