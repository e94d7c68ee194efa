/**
 * Gemma 4, text (`gemma4`).
 * Differs from gemma3.ts: norm weights are stored as they are used; layers that see all have wider heads, of which a part
 * rotates, and may take their keys as values; values are normed; the last layers read the keys and values of earlier ones;
 * every layer adds something of the token itself, and scales what leaves it. Routed: experts beside the dense block, behind
 * norms of their own.
 * Source: Gemma 4 model cards; huggingface/transformers `modeling_gemma4.py`.
 * @module
 */
import type { Ops, Segment, T, Weights } from "../program/program.ts";
import type { Architecture, Spec } from "./architecture.ts";
import { type Act, embed, gatedFfn, head, readSpec, slidingLayers } from "./decoder.ts";
import { gemmaAttention, type GemmaLayer, kvSources, layerInput, layerInputs } from "./gemma.ts";
import type { Keys } from "./keys.ts";
import { experts, type MoeSpec, readMoe } from "./moe.ts";
import { readRope } from "./rope.ts";

interface Gemma4Spec extends Spec {
  readonly norm_eps: number;
  readonly layers: readonly (GemmaLayer & { readonly n_ff: number })[];
  readonly moe: MoeSpec;
  /** Numbers of a token for each layer; 0: none. */
  readonly n_embd_layer: number;
  readonly final_softcap: number;
}

const GELU: Act = { kind: "gelu_tanh" };

function spec(k: Keys): Gemma4Spec {
  const s = readSpec(k), { n_layer } = s, n_head = k.perLayer("attention.head_count", n_layer);
  const n_head_kv = k.perLayer("attention.head_count_kv", n_layer), n_ff = k.perLayer("feed_forward_length", n_layer);
  const odd = n_head_kv.findIndex((n, il) => !(n >= 1 && n_head[il] % n === 0));
  k.want(odd < 0, "attention.head_count_kv", n_head_kv[odd], `a divisor of head_count ${n_head[odd]}`);
  const sliding = slidingLayers(k, n_layer, 6), sources = kvSources(k, sliding);
  const width = (suffix: string, fallback?: number) => {
    const head_dim = k.u32(`attention.key_length${suffix}`, fallback);
    const head_dim_v = k.u32(`attention.value_length${suffix}`, head_dim);
    k.want(head_dim_v === head_dim, `attention.value_length${suffix}`, head_dim_v, `the keys' ${head_dim}`);
    const n_rot = k.u32(`rope.dimension_count${suffix}`, head_dim);
    const fits = n_rot >= 2 && n_rot % 2 === 0 && n_rot <= head_dim;
    k.want(fits, `rope.dimension_count${suffix}`, n_rot, `an even number up to the head's ${head_dim}`);
    return { head_dim, n_rot };
  };
  const full = width(""), near = width("_swa", full.head_dim);
  const far = { head_dim: full.head_dim, window: 0, rope: readRope(k, full.n_rot) };
  const swa = { freq_base: k.f32("rope.freq_base_swa", 10000), scaled: false };
  const local = {
    head_dim: near.head_dim,
    window: k.u32("attention.sliding_window"),
    rope: readRope(k, near.n_rot, swa),
  };
  return {
    ...s,
    norm_eps: k.f32("attention.layer_norm_rms_epsilon"),
    layers: sliding.map((is, il) => ({
      ...(is ? local : far),
      n_head: n_head[il],
      n_head_kv: n_head_kv[il],
      n_ff: n_ff[il],
      source: sources[il],
      same_kv: !is && !k.file.has(`blk.${il}.attn_v.weight`),
    })),
    moe: readMoe(k, { sum_min: 0, act: GELU }),
    n_embd_layer: k.u32("embedding_length_per_layer_input", 0),
    final_softcap: k.f32("final_logit_softcapping", 0),
  };
}

/** The experts of x, which are chosen by its direction, and weighted besides by a scale of each. */
function routed(op: Ops, w: Weights, s: Gemma4Spec, x: T): T {
  const { moe, n_embd, norm_eps } = s;
  const direction = op.scale(op.rms_norm(x, w("ffn_gate_inp.scale", [n_embd]), norm_eps), n_embd ** -0.5);
  const logits = op.mul_mat(w("ffn_gate_inp", [n_embd, moe.n_expert]), direction);
  const normed = op.rms_norm(x, w("pre_ffw_norm_2", [n_embd]), norm_eps);
  return experts(op, w, moe, normed, op.router(logits, moe.n_expert_used, moe));
}

function layer(op: Ops, s: Gemma4Spec, il: number, x: T, inputs: T | undefined, kept: Map<number, Segment>): T {
  const w = op.weights(`blk.${il}`), l = s.layers[il]; //                                  x [n_embd, n_tok]
  const norm = (y: T, name: string) => op.rms_norm(y, w(name, [s.n_embd]), s.norm_eps);
  x = op.add(x, norm(gemmaAttention(op, w, s, l, il, norm(x, "attn_norm"), kept), "post_attention_norm"));
  let f = gatedFfn(op, w, norm(x, "ffn_norm"), l.n_ff, GELU);
  if (s.moe.n_expert > 0) f = op.add(norm(f, "post_ffw_norm_1"), norm(routed(op, w, s, x), "post_ffw_norm_2"));
  x = op.add(x, norm(f, "post_ffw_norm"));
  if (inputs) x = op.add(x, layerInput(op, w, s, s.n_embd_layer, il, x, inputs));
  const scale = w.opt("layer_output_scale", [1]);
  return scale ? op.mul(x, scale) : x;
}

function build(op: Ops, s: Gemma4Spec): T {
  let x = op.scale(embed(op, s), Math.sqrt(s.n_embd));
  const inputs = s.n_embd_layer > 0 ? layerInputs(op, s, s.n_embd_layer, x) : undefined;
  const kept = new Map<number, Segment>();
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, il, x, inputs, kept));
  const logits = head(op, s, x);
  return s.final_softcap > 0 ? op.unary("softcap", logits, s.final_softcap) : logits;
}

export const gemma4: Architecture<Gemma4Spec> = { names: ["gemma4"], spec, build };
