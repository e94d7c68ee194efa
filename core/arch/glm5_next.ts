/**
 * GLM-5.3-Flash (`glm5-next`, `glm5next`): kimi_linear.ts with hyper-connections, clamped SwiGLU, and an indexer on latent
 * attention that ranks groups of tokens. The keys of a group are pooled, channel by channel, by a softmax over its tokens.
 * Source: huggingface/transformers `modeling_glm5_next.py`.
 * @module
 */
import type { Ops, Segment, T, Weights } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { embed, head, linear } from "./decoder.ts";
import { kda } from "./delta.ts";
import { draftBlocks } from "./draft.ts";
import { around, collapse, type HyperSpec, readHyper, streamsOf } from "./hyper.ts";
import { type IndexerSpec, indexKeys, indexQueries, readIndexer } from "./indexer.ts";
import type { Keys } from "./keys.ts";
import { type KimiSpec, readKimi } from "./kimi_linear.ts";
import { mla } from "./mla.ts";
import { type Clamps, readClamps, sharedMoeFfn } from "./moe.ts";

interface Glm5Spec extends KimiSpec {
  readonly hyper: HyperSpec;
  readonly indexer: IndexerSpec;
  /** Tokens of a group. */
  readonly pool: number;
  readonly clamps: Clamps;
}

function spec(k: Keys): Glm5Spec {
  const s = readKimi(k, { latent_eps: k.f32("attention.layer_norm_rms_epsilon") });
  k.want(s.qk_rope_head_dim === 0, "rope.dimension_count", s.qk_rope_head_dim, "0: this model does not rotate");
  k.want(s.q_lora_rank > 0, "attention.q_lora_rank", s.q_lora_rank, "at least 1: the indexer reads the query's latent");
  const indexer = readIndexer(k), pool = k.u32("attention.indexer.kpool"), tail = "attention.indexer.kpool_select_tail";
  k.want(
    pool >= 2 && indexer.top_k % pool === 0,
    "attention.indexer.kpool",
    pool,
    `2 or more, a divisor of ${indexer.top_k}`,
  );
  k.want(k.bool(tail, true), tail, false, "true");
  const types = k.perLayer("attention.indexer.types", s.n_layer, 1);
  k.want(
    types.every((t, il) => t !== 0 || !s.latent[il]),
    "attention.indexer.types",
    types,
    "an indexer on every layer with latent attention",
  );
  return { ...s, hyper: readHyper(k), indexer, pool, clamps: readClamps(k, s.n_layer + s.n_nextn) };
}

/** Groups of tokens that layer `il` reads; those of the last group that is not complete are read in any case. */
function groups(op: Ops, w: Weights, s: Glm5Spec, il: number, x: T, latent: T): Pick<Segment, "select" | "unit"> {
  const { indexer, pool } = s, n = indexer.head_dim;
  const raw = (name: string, y: T) => {
    const rows = op.stream(`blk.${il}.index_${name}`, n, { role: "f32", window: pool });
    op.write(y, rows);
    return rows;
  };
  const k = raw("raw", indexKeys(op, w, indexer, x)), z = raw("gate", linear(op, w, "indexer_compressor_gate", x, n));
  const keys = op.stream(`blk.${il}.index_k`, n, { role: "k", ratio: pool });
  op.write(op.pool("softmax", k, pool, { z, ape: w("indexer_compressor_ape", [n, pool]) }), keys);
  const { q, heads } = indexQueries(op, w, indexer, x, latent);
  return { select: op.index(q, keys, indexer.top_k / pool, { scale: n ** -0.5, w: heads }), unit: pool };
}

function attention(op: Ops, s: Glm5Spec, il: number, x: T, latent: boolean): T {
  const w = op.weights(`blk.${il}`), a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  if (!latent) return kda(op, w, s.kda, il, a);
  return mla(op, w, s, il, a, { select: (latent) => groups(op, w, s, il, a, latent) });
}

function ffn(op: Ops, s: Glm5Spec, il: number, x: T): T {
  const w = op.weights(`blk.${il}`), moe = { ...s.moe, act: s.clamps.routed[il] };
  const f = op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps);
  return sharedMoeFfn(op, w, { ...s, moe }, il, f, { act: s.clamps.shared[il] });
}

function build(op: Ops, s: Glm5Spec): T {
  const n = s.hyper.n_stream;
  let h = streamsOf(op, embed(op, s), n); //                                               [n_embd, n_stream, n_tok]
  for (let il = 0; il < s.n_layer; il++) {
    const w = op.weights(`blk.${il}`);
    h = around(op, w, s.hyper, "attn", h, (x) => attention(op, s, il, x, s.latent[il]));
    h = around(op, w, s.hyper, "ffn", h, (x) => ffn(op, s, il, x));
  }
  return head(op, s, collapse(op, h, op.constant("mean", new Float32Array(n).fill(1 / n), [n, 1])));
}

/** The draft block is a plain pre-norm layer with latent attention. */
function draftLayer(op: Ops, s: Glm5Spec, il: number, x: T): T {
  x = op.add(x, attention(op, s, il, x, true));
  return op.add(x, ffn(op, s, il, x));
}

export const glm5Next: Architecture<Glm5Spec> = {
  names: ["glm5-next", "glm5next"],
  spec,
  build,
  draft: (op, s) => draftBlocks(op, s, (il, x) => draftLayer(op, s, il, x)),
};
