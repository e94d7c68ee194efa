/**
 * DeepSeek V4.1 (`deepseek41`). As deepseek4.ts, except: few layers make compressed rows and index keys, few choose rows, and the
 * layers after them use those; the first choice among single rows is narrowed to blocks of rows that one layer picks; a sublayer
 * reads the streams by the weights of the site before it; at some layers rows of n-gram tables are added to the streams.
 *
 * Cached rows are kept as the cache's type says; the vendor rounds them to FP8 and FP4, which no released file asks for.
 * Source: the vendor's `inference/model.py` and `inference/engram.py`; mHC (arXiv 2512.24880), Engram (arXiv 2601.07372).
 * @module
 */
import type { Ops, Stream, T, Weights } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { embed, head, linear } from "./decoder.ts";
import { attend, type DeepSeek4Spec, ffn, readDeepSeek4, turn } from "./deepseek4.ts";
import { engram, type EngramSpec, readEngram } from "./engram.ts";
import { collapse, site, streamsOf } from "./hyper.ts";
import { indexQueries } from "./indexer.ts";
import type { Keys } from "./keys.ts";

interface DeepSeek41Spec extends DeepSeek4Spec {
  /** Layers that make compressed rows, and layers that choose among them. */
  readonly kv_source: readonly boolean[];
  readonly index_source: readonly boolean[];
  /** The layer whose blocks later choices are limited to, positions of a block, and how many blocks. */
  readonly candidates: { readonly il: number; readonly unit: number; readonly n: number };
  readonly engram: EngramSpec;
}

function spec(k: Keys): DeepSeek41Spec {
  const s = readDeepSeek4(k), { ratios } = s;
  k.want(s.n_hash === 0, "hash_layer_count", s.n_hash, "0");
  // Roles follow from tensors; files may name them too.
  const having = (tensor: string) =>
    Array.from({ length: s.n_layer }, (_, il) => ratios[il] > 0 && k.file.has(`blk.${il}.${tensor}.weight`));
  const kv_source = having("attn_compressor_kv"), index_source = having("indexer.attn_q_b");
  for (const [key, has] of [["kv_source", kv_source], ["index_source", index_source]] as const) {
    const name = `attention.${key}_layer_ids`, found = has.flatMap((v, il) => v ? [il] : []);
    const ids = k.ints(name, found).filter((il) => il < s.n_layer);
    k.want(`${ids}` === `${found}`, name, ids, `the layers that have the tensors: ${found}`);
  }
  let source = -1;
  for (let il = 0; il < s.n_layer; il++) {
    if (kv_source[il]) source = il;
    const fits = ratios[il] === 0 || (ratios[il] === ratios[source] && index_source.indexOf(true) <= il);
    k.want(fits, "attention.compress_ratios", ratios[il], `that of the layer ${il} reads from, ${ratios[source]}`);
  }
  const candidates = {
    il: k.u32("attention.candidate_source_layer_id", 20),
    unit: k.u32("attention.candidate_block_size", 8),
    n: k.u32("attention.candidate_topk_blocks", 2048),
  };
  const key = "attention.candidate_source_layer_id", at = candidates.il;
  k.want(
    index_source[at] && kv_source.lastIndexOf(true) <= at,
    key,
    at,
    "a layer that chooses rows, none behind it that makes them",
  );
  return { ...s, kv_source, index_source, candidates, engram: readEngram(k, s) };
}

/** What layers leave to the layers after them. */
interface Shared {
  rows?: Stream;
  keys?: Stream;
  candidates?: T;
  select?: T;
}

/** Compressed rows and index keys of a source layer, one for `ratio` positions, turned at the first of them. */
function source(op: Ops, w: Weights, s: DeepSeek41Spec, il: number, x: T): { rows: Stream; keys: Stream } {
  const ratio = s.ratios[il], n = s.head_dim, n_index = s.indexer.head_dim;
  const raw = (part: "kv" | "gate") => {
    const rows = op.stream(`blk.${il}.attn_compressor_${part}`, n, { role: "f32", window: ratio });
    op.write(linear(op, w, `attn_compressor_${part}`, x, n), rows);
    return rows;
  };
  const pooled = ratio === 1
    ? linear(op, w, "attn_compressor_kv", x, n)
    : op.pool("softmax", raw("kv"), ratio, { z: raw("gate") });
  const latent = op.rms_norm(pooled, w("attn_compressor_norm", [n]), s.norm_eps);
  const key = op.rms_norm(linear(op, w, "indexer.attn_k", latent, n_index), w("indexer.k_norm", [n_index]), s.norm_eps);
  const rows = op.stream(`blk.${il}.attn_compressor`, n, { role: "k", ratio });
  const keys = op.stream(`blk.${il}.index_k`, n_index, { role: "k", ratio });
  op.write(turn(op, s, il, latent.heads(1), { shift: 1 - ratio }), rows);
  op.write(turn(op, s, il, key.heads(1), { shift: 1 - ratio }), keys);
  return { rows, keys };
}

function attention(op: Ops, s: DeepSeek41Spec, il: number, x: T, shared: Shared): T {
  const w = op.weights(`blk.${il}`), { n_head, head_dim, indexer, candidates } = s;
  const latent = op.rms_norm(
    linear(op, w, "attn_q_a", x, s.q_lora_rank),
    w("attn_q_a_norm", [s.q_lora_rank]),
    s.norm_eps,
  );
  const q = linear(op, w, "attn_q_b", latent, n_head * head_dim).heads(n_head);
  if (s.ratios[il] === 0) return attend(op, w, s, il, x, q);
  if (s.kv_source[il]) Object.assign(shared, source(op, w, s, il, x));
  if (s.index_source[il]) {
    const by = indexQueries(op, w, indexer, x, latent), turned = turn(op, s, il, by.q);
    const options = { scale: indexer.head_dim ** -0.5, w: by.heads }, keys = shared.keys!;
    const limit = shared.candidates ? { candidates: shared.candidates, candidateUnit: candidates.unit } : {};
    shared.select = op.index(turned, keys, indexer.top_k, { ...options, ...limit });
    if (il === candidates.il) {
      shared.candidates = op.index(turned, keys, candidates.n, { ...options, unit: candidates.unit, pin: true });
    }
  }
  return attend(op, w, s, il, x, q, { k: shared.rows!, select: shared.select! });
}

function build(op: Ops, s: DeepSeek41Spec): T {
  const n = s.hyper.n_stream, shared: Shared = {};
  let h = streamsOf(op, embed(op, s), n); //                                               [n_embd, n_stream, n_tok]
  // The first site reads the first stream.
  let pre = op.constant("first_stream", Float32Array.from({ length: n }, (_, j) => j === 0 ? 1 : 0), [n, 1]);
  for (let il = 0; il < s.n_layer; il++) {
    const w = op.weights(`blk.${il}`);
    h = engram(op, s.engram, il, h);
    for (const name of ["attn", "ffn"] as const) {
      const next = site(op, w, s.hyper, name, h);
      const x = op.rms_norm(collapse(op, h, pre), w(`${name}_norm`, [s.n_embd]), s.norm_eps);
      h = next.write(name === "attn" ? attention(op, s, il, x, shared) : ffn(op, s, il, x));
      pre = next.pre;
    }
  }
  return head(op, s, collapse(op, h, pre));
}

export const deepseek41: Architecture<DeepSeek41Spec> = { names: ["deepseek41"], spec, build };
