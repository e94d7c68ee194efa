/**
 * Qwen3.8-Flash-Next (`qwen4exp`): the sublayers of qwen3next.ts on a residual of several streams. A sublayer reads a gated mean
 * of the normed streams, its result goes to each stream by a weight of its own. Attention reads blocks of positions that an
 * indexer picks by their mean keys. One layer adds rows of an n-gram table to the streams, through a short convolution.
 * Source: huggingface/transformers `modeling_qwen4_exp.py`.
 * @module
 */
import type { Ops, Segment, T, Weights } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { embed, linear, unembed } from "./decoder.ts";
import { gatedDelta } from "./delta.ts";
import { outStreams, streamsOf } from "./hyper.ts";
import { type IndexerSpec, readIndexer } from "./indexer.ts";
import type { Keys } from "./keys.ts";
import { sharedMoeFfn } from "./moe.ts";
import { checkNgram, ngramRows, type NgramSpec } from "./ngram.ts";
import { gatedAttention, type QwenNextSpec, readQwenNext } from "./qwen3next.ts";

interface Qwen4Spec extends QwenNextSpec {
  readonly n_stream: number;
  /** Width of the mixers' inner layer. */
  readonly n_mix: number;
  readonly indexer: IndexerSpec;
  /** Positions of a block the indexer ranks. */
  readonly block: number;
  readonly ple: (NgramSpec & { readonly il: number; readonly conv_kernel: number; readonly eos: number }) | undefined;
}

function spec(k: Keys): Qwen4Spec {
  const s = readQwenNext(k, "sigmoid"), indexer = readIndexer(k), n_stream = k.u32("hyper_connection.count");
  const block = Math.max(...k.perLayer("attention.compress_ratios", s.n_layer));
  k.want(n_stream >= 1 && n_stream <= 16, "hyper_connection.count", n_stream, "1 to 16");
  k.want(
    block >= 2 && indexer.top_k % block === 0,
    "attention.compress_ratios",
    block,
    `2 or more, a divisor of ${indexer.top_k}`,
  );
  return { ...s, n_stream, n_mix: k.u32("hyper_connection.low_rank"), indexer, block, ple: readPle(k) };
}

function readPle(k: Keys): Qwen4Spec["ple"] {
  const layers = k.ints("ple.layers", []);
  if (layers.length === 0) return undefined;
  k.want(layers.length === 1, "ple.layers", layers, "one layer");
  k.u32("ple.image_token_id", 0); // of no effect on text
  const names = { multipliers: "ple.layer_multipliers", primes: "ple.head_vocab_sizes", offsets: "ple.head_offsets" };
  const table = "per_layer_token_embd.weight", multipliers = k.bigints(names.multipliers), n = k.u32("ple.ngram_size");
  k.want(multipliers.length === n, names.multipliers, multipliers.length, `${n} numbers`);
  const ngram = checkNgram(k, {
    table,
    n_rows: k.file.tensor(table).ne[1] ?? 1,
    width: k.u32("embedding_length_per_layer_input"),
    multipliers,
    n_head: k.u32("ple.heads_per_ngram"),
    primes: k.bigints(names.primes),
    offsets: k.bigints(names.offsets),
  }, names);
  return { ...ngram, il: layers[0], conv_kernel: k.u32("ple.conv_kernel"), eos: k.u32("ple.eos_token_id") };
}

/** Each stream of h `[n_embd, n_stream, R]` normed by weights of its own. */
function streamNorm(op: Ops, w: Weights, s: Qwen4Spec, name: string, h: T): T {
  return op.rms_norm(h, w(name, [s.n_embd, s.n_stream], { reshape: true }), s.norm_eps);
}

/** What a sublayer reads of the streams `[n_embd, R]`, and the normed streams as one vector. */
function mixer(op: Ops, w: Weights, s: Qwen4Spec, name: string, h: T): { x: T; normed: T } {
  const n = s.n_stream, wide = n * s.n_embd, streams = streamNorm(op, w, s, `${name}_norm`, h), normed = streams.flat();
  const low = op.unary("silu", op.scale(op.mul_mat(w(`${name}_down`, [wide, s.n_mix]), normed), 1 / n));
  const gate = op.unary("sigmoid", op.mul_mat(w(`${name}_up`, [s.n_mix, wide]), low)).heads(n);
  const mean = op.constant("mean", new Float32Array(n).fill(1 / n), [n, 1]);
  return { x: op.mix(op.mul(streams, gate), mean).flat(), normed };
}

/** The streams after a sublayer. */
function around(op: Ops, w: Weights, s: Qwen4Spec, name: string, h: T, sublayer: (x: T) => T): T {
  const n = s.n_stream, { x, normed } = mixer(op, w, s, name, h);
  const shares = op.unary("sigmoid", op.scale(op.mul_mat(w(`${name}_inject`, [n * s.n_embd, n]), normed), 1 / n));
  return op.add(h, op.mul(sublayer(x).heads(1), op.scale(shares, 2).heads(n)));
}

/** Blocks of positions that layer `il` reads; those of the last block that is not complete are read in any case. */
function blocks(op: Ops, w: Weights, s: Qwen4Spec, il: number, x: T): Pick<Segment, "select" | "unit"> {
  const { indexer: { n_head, head_dim, top_k }, block } = s, freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  const normed = (y: T, name: string) => op.rms_norm(y, w(`indexer.${name}`, [head_dim]), s.norm_eps);
  const raw = op.stream(`blk.${il}.index_raw`, head_dim, { role: "f32", window: block });
  op.write(linear(op, w, "indexer.k_proj", x, head_dim), raw);
  const keys = op.stream(`blk.${il}.index_k`, head_dim, { role: "k", ratio: block });
  const key = normed(op.pool("mean", raw, block), "k_norm").heads(1);
  op.write(op.rope(key, freqs, { kind: "halves", shift: 1 - block }), keys); // at the block's first position
  const q = normed(linear(op, w, "indexer.q_proj", x, n_head * head_dim).heads(n_head), "q_norm");
  const turned = op.rope(q, freqs, { kind: "halves" });
  return { select: op.index(turned, keys, top_k / block, { scale: head_dim ** -0.5 }), unit: block };
}

/** Adds what the table holds for the last tokens: values that a key and the streams gate, and their convolution. */
function perLayerEmbedding(op: Ops, s: Qwen4Spec, ple: NonNullable<Qwen4Spec["ple"]>, h: T): T {
  const w = op.weights(`blk.${ple.il}`), n = s.n_stream, D = s.n_embd, eos = BigInt(ple.eos);
  const rows = ngramRows(op, "ple", ple, (token) => {
    // Text before the last end of text does not count.
    let ended = false;
    return ple.multipliers.map((_, back) => {
      const id = token(back);
      ended ||= id < 0 || (back > 0 && id === ple.eos);
      return ended ? eos : BigInt(id);
    });
  });
  const key = streamNorm(op, w, s, "ple_norm_key", linear(op, w, "ple_key", rows, n * D).heads(n));
  const dot = op.dot(streamNorm(op, w, s, "ple_norm_query", h), key); //                  [1, n_stream, n_tok]
  const gate = op.unary("sigmoid", op.unary("signed_sqrt", op.scale(dot, D ** -0.5), 1e-6));
  const value = op.mul(linear(op, w, "ple_value", rows, D).heads(1), gate);
  const conv = op.conv(
    `blk.${ple.il}.ple_conv`,
    streamNorm(op, w, s, "ple_norm_conv", value).flat(),
    w("ple_conv1d", [ple.conv_kernel, n * D], { reshape: true }),
    { dilation: ple.multipliers.length, silu: true },
  );
  return op.add(h, op.add(value, conv.heads(n)));
}

function layer(op: Ops, s: Qwen4Spec, il: number, h: T, full: boolean): T { //             h [n_embd, n_stream, n_tok]
  const w = op.weights(`blk.${il}`);
  if (s.ple?.il === il) h = perLayerEmbedding(op, s, s.ple, h);
  h = around(
    op,
    w,
    s,
    "hc_attn",
    h,
    (x) => full ? gatedAttention(op, w, s, il, x, blocks(op, w, s, il, x)) : gatedDelta(op, w, s.delta, il, x),
  );
  return around(op, w, s, "hc_ffn", h, (x) => sharedMoeFfn(op, w, s, il, x));
}

function build(op: Ops, s: Qwen4Spec): T {
  let h = streamsOf(op, embed(op, s), s.n_stream);
  for (let il = 0; il < s.n_layer; il++) h = layer(op, s, il, h, s.full[il]);
  return unembed(op, s, mixer(op, op.weights(), s, "output_hc", outStreams(op, h)).x);
}

/** Draft blocks read the streams: each beside the token's embedding goes through one matrix. Inferred from tensor shapes. */
function draft(op: Ops, s: Qwen4Spec): void {
  for (let il = s.n_layer; il < s.n_layer + s.n_nextn; il++) {
    const w = op.weights(`blk.${il}.nextn`), token = embed(op, s);
    const e = streamsOf(op, op.rms_norm(token, w("enorm", [s.n_embd]), s.norm_eps), s.n_stream);
    const both = op.concat([e, streamNorm(op, w, s, "hnorm", streamsOf(op, token, s.n_stream))]);
    const h = layer(op, s, il, op.mul_mat(w("eh_proj", [2 * s.n_embd, s.n_embd]), both), true);
    unembed(op, s, mixer(op, w, s, "hc_head", outStreams(op, h)).x);
  }
}

export const qwen4exp: Architecture<Qwen4Spec> = { names: ["qwen4exp"], spec, build, draft };
