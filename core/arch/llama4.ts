/**
 * Llama 4 Scout and Maverick (`llama4`), text.
 * Differs from llama.ts: three of four layers see the chunk of positions that a token is in, the fourth sees all, rotates nothing and
 * has queries that grow with the position. RMSNorm without weights on q and k behind RoPE (not in Maverick). Routed layers have a shared
 * expert, and weights multiply what an expert reads.
 * Source: meta-llama/Llama-4-Scout-17B-16E model card; huggingface/transformers `modeling_llama4.py`.
 * @module
 */
import type { Ops, T, Weights } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, gatedFfn, head, linear, qkv, readDecoderSpec } from "./decoder.ts";
import type { Keys } from "./keys.ts";
import { experts, isDense, readSharedMoe, route, type SharedMoeSpec } from "./moe.ts";
import { queryFactor, type Temperature } from "./temperature.ts";

interface Llama4Spec extends DecoderSpec, SharedMoeSpec {
  /** Positions of a chunk. */
  readonly chunk: number;
  readonly normed: boolean;
  readonly temperature: Temperature;
}

/** One of this many layers sees all positions. */
const PERIOD = 4;
/** Experts of Maverick, whose queries and keys are not normed; no key tells. */
const EXPERTS_MAVERICK = 128;

function spec(k: Keys): Llama4Spec {
  const s = readDecoderSpec(k), chunk = k.u32("attention.sliding_window", 8192);
  k.want(chunk >= 2, "attention.sliding_window", chunk, "at least 2");
  const ffn = readSharedMoe(k, s.n_layer, { n_ff_exp: s.n_ff, score: "sigmoid", renorm: false });
  return {
    ...s,
    ...ffn,
    // Every routed layer has one shared expert.
    n_ff_shexp: ffn.n_ff_shexp || ffn.moe.n_ff_exp,
    chunk,
    normed: ffn.moe.n_expert !== EXPERTS_MAVERICK,
    temperature: {
      scale: k.f32("attention.temperature_scale", 0.1),
      length: k.u32("attention.temperature_length", 8192) || 8192,
      shift: 1,
    },
  };
}

/** The chunk that a token ends, where it ends one: the rows of a chunk that is not complete are seen in any case. `[1, n_tok]` */
function endedChunk(op: Ops, chunk: number): T {
  return op.derived({
    name: "attention.chunk",
    type: "i32",
    limit: 1 << 20,
    row: (out, at, position) => {
      out[at] = (position + 1) % chunk === 0 ? Math.floor(position / chunk) : -1;
    },
  }, [1]);
}

function attention(op: Ops, w: Weights, s: Llama4Spec, freqs: T, il: number, x: T): T {
  const near = (il + 1) % PERIOD !== 0, { q, k, v } = qkv(op, w, s, x);
  const turned = (y: T) => {
    const z = op.rope(y, freqs, { kind: "pairs", mscale: s.rope.mscale });
    return s.normed ? op.rms_norm(z, undefined, s.norm_eps) : z;
  };
  const kv = op.kv(`blk.${il}`, near ? turned(k) : k, v), options = { scale: s.attn_scale, n_head_kv: s.n_head_kv };
  const o = near
    ? op.attention(turned(q), { ...kv, select: endedChunk(op, s.chunk), unit: s.chunk }, options)
    : op.attention(op.mul(q, queryFactor(op, s.temperature)), kv, options);
  return linear(op, w, "attn_output", o.flat(), s.n_embd);
}

function ffn(op: Ops, w: Weights, s: Llama4Spec, il: number, x: T): T {
  if (isDense(s, il)) return gatedFfn(op, w, x, s.n_ff);
  const { ids, weights } = route(op, w, s.moe, x), [k, R] = ids.ne;
  const weighted = op.mul(x.heads(1), op.view(weights, [1, k, R])); //                     [n_embd, k, n_tok]
  return op.add(experts(op, w, s.moe, weighted, { ids }), gatedFfn(op, w, x, s.n_ff_shexp, s.moe.act, "_shexp"));
}

function build(op: Ops, s: Llama4Spec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s); //                                                                 [n_embd, n_tok]
  for (let il = 0; il < s.n_layer; il++) {
    const w = op.weights(`blk.${il}`);
    x = op.add(x, attention(op, w, s, freqs, il, op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps)));
    x = op.add(x, ffn(op, w, s, il, op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps)));
    x = op.layer_end(il, x);
  }
  return head(op, s, x);
}

export const llama4: Architecture<Llama4Spec> = { names: ["llama4"], spec, build };
