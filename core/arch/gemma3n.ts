/**
 * Gemma 3n, text (`gemma3n`).
 * Differs from gemma4.ts: the residual is several streams (AltUp): a layer computes on one, after a prediction of all from all,
 * and what it found corrects them all. Beside attention runs a product of two narrow matrices (Laurel). In some layers only the
 * gates above a quantile of their row, taken as normal, are open.
 * Source: AltUp (arXiv 2301.13310), LAuReL (arXiv 2411.07501), Gemma 3n model card; huggingface/transformers
 * `modeling_gemma3n.py`.
 * @module
 */
import type { Ops, Segment, T, Weights } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, head, linear, readDecoderSpec, slidingLayers } from "./decoder.ts";
import { gemmaAttention, type GemmaLayer, kvSources, layerInput, layerInputs } from "./gemma.ts";
import { streamsOf } from "./hyper.ts";
import type { Keys } from "./keys.ts";
import { readRope } from "./rope.ts";

interface Gemma3nSpec extends DecoderSpec {
  readonly layers: readonly (GemmaLayer & {
    /** Gates are open above mean + sparsity deviation of their row; 0: all are. */
    readonly sparsity: number;
  })[];
  readonly n_embd_layer: number;
  readonly n_stream: number;
  /** The stream that layers compute on. */
  readonly active: number;
  readonly n_laurel: number;
  readonly final_softcap: number;
}

function spec(k: Keys): Gemma3nSpec {
  const s = readDecoderSpec(k), { n_layer, n_head, n_head_kv, head_dim } = s;
  const sliding = slidingLayers(k, n_layer, 5), sources = kvSources(k, sliding);
  const near = readRope(k, 2 * s.rope.inv_freq.length, {
    freq_base: k.f32("rope.freq_base_swa", 10000),
    scaled: false,
  });
  const window = k.u32("attention.sliding_window");
  // The quantile of no sparsity is -inf; some converters write 0.
  const sparsity = k.perLayer("activation_sparsity_scale", n_layer, 0).map((a) => a === -Infinity ? 0 : a);
  const odd = sparsity.find((a) => !Number.isFinite(a));
  k.want(odd === undefined, "activation_sparsity_scale", odd, "finite numbers, or -inf for none");
  const n_stream = k.u32("altup.num_inputs"), active = k.u32("altup.active_idx", 0);
  k.want(n_stream >= 2 && n_stream <= 16, "altup.num_inputs", n_stream, "2 to 16");
  k.want(active < n_stream, "altup.active_idx", active, `less than altup.num_inputs ${n_stream}`);
  return {
    ...s,
    layers: sliding.map((is, il) => ({
      n_head,
      n_head_kv,
      head_dim,
      window: is ? window : 0,
      rope: is ? near : s.rope,
      source: sources[il],
      same_kv: false,
      sparsity: sparsity[il],
    })),
    n_embd_layer: k.u32("embedding_length_per_layer_input"),
    n_stream,
    active,
    n_laurel: k.file.find("blk.0.laurel_l.weight")?.ne[1] ?? 64,
    final_softcap: k.f32("final_logit_softcapping", 0),
  };
}

/** The smallest mean square that a stream is scaled up from. */
const MIN_SQUARE = 1e-5;

/** Rows y `[n, m, R]` at the size of x `[n, 1, R]`: y |x| / |y|. */
function resized(op: Ops, y: T, x: T): T {
  const n = x.ne[0];
  const size = op.scale(op.unary("signed_sqrt", op.dot(x, x)), n ** -0.5); //              [1, 1, R]
  const small = op.unary("clamp", op.scale(op.unary("signed_sqrt", op.dot(y, y)), (n * MIN_SQUARE) ** -0.5), 0, 1);
  return op.mul(op.mul(op.rms_norm(y, undefined, 1e-30), small), size);
}

/** How much of each stream x `[n_embd, n_tok]` speaks for: `[n_stream, n_tok]`. */
function modalities(op: Ops, w: Weights, s: Gemma3nSpec, x: T): T {
  const normed = op.scale(op.rms_norm(x, w("altup_router_norm", [s.n_embd]), s.norm_eps), 1 / s.n_embd);
  return op.unary("tanh", linear(op, w, "altup_router", normed, s.n_stream));
}

/** What each gate is above mean + `a` deviations of its row, and 0 below. */
function sparse(op: Ops, gate: T, a: number): T {
  const z = op.norm("layer", gate, undefined, 1e-30);
  const deviation = op.scale(op.dot(z, gate), 1 / gate.ne[0]); // as z = (gate - mean) / deviation
  return op.mul(op.unary("relu", op.scale(z, 1, -a)), deviation);
}

/** The sublayers on one stream: `[n_embd, n_tok]`. */
function activated(op: Ops, w: Weights, s: Gemma3nSpec, il: number, x: T, kept: Map<number, Segment>): T {
  const l = s.layers[il], norm = (y: T, name: string) => op.rms_norm(y, w(name, [s.n_embd]), s.norm_eps);
  const a = norm(x, "attn_norm");
  const narrow = linear(op, w, "laurel_r", linear(op, w, "laurel_l", a, s.n_laurel), s.n_embd);
  const laurel = op.add(a, norm(narrow, "laurel_post_norm"));
  const o = norm(gemmaAttention(op, w, s, l, il, a, kept), "post_attention_norm");
  x = op.scale(op.add(op.add(x, o), laurel), Math.SQRT1_2);
  const f = norm(x, "ffn_norm"), up = linear(op, w, "ffn_up", f, s.n_ff);
  const gate = linear(op, w, "ffn_gate", f, s.n_ff), open = l.sparsity !== 0 ? sparse(op, gate, l.sparsity) : gate;
  return op.add(x, norm(linear(op, w, "ffn_down", op.gate("gelu_tanh", open, up), s.n_embd), "post_ffw_norm"));
}

function layer(op: Ops, s: Gemma3nSpec, il: number, h: T, inputs: T, kept: Map<number, Segment>): T {
  const w = op.weights(`blk.${il}`), n = s.n_stream; //                                    h [n_embd, n_stream, n_tok]
  const one = (streams: T) => streams.slice(s.active, 1, 1).flat();
  const mix = linear(op, w, "altup_predict_coef", modalities(op, w, s, one(h)), n * n);
  const predicted = op.add(h, op.mix(h, mix.heads(n)));
  const y = activated(op, w, s, il, one(predicted), kept);
  const found = op.add(y, op.scale(one(predicted), -1));
  const share = op.scale(linear(op, w, "altup_correct_coef", modalities(op, w, s, y), n), 1, 1);
  const corrected = op.add(predicted, op.mul(found.heads(1), share.heads(n)));
  const scaled = op.mul(one(corrected), w("altup_correct_scale", [s.n_embd]));
  const more = layerInput(op, w, s, s.n_embd_layer, il, scaled, inputs).heads(1);
  return op.concat([corrected.slice(0, 1, 1), op.add(corrected.slice(1, n - 1, 1), more)], 1);
}

function build(op: Ops, s: Gemma3nSpec): T {
  const w = op.weights(), n = s.n_stream, matrices = [s.n_embd, s.n_embd, n - 1];
  const x = op.scale(embed(op, s), Math.sqrt(s.n_embd)), inputs = layerInputs(op, s, s.n_embd_layer, x);
  const others = op.mul_mat(w("altup_proj", matrices), streamsOf(op, x, n - 1));
  let h = op.concat([x.heads(1), resized(op, others, x.heads(1))], 1);
  const kept = new Map<number, Segment>();
  for (let il = 0; il < s.n_layer; il++) h = layer(op, s, il, h, inputs, kept);
  const first = h.slice(0, 1, 1), rest = op.mul_mat(w("altup_unembd_proj", matrices), h.slice(1, n - 1, 1));
  const all = op.concat([first, resized(op, rest, first)], 1);
  const mean = op.mix(all, op.constant(`mean.${n}`, new Float32Array(n).fill(1 / n), [n, 1])).flat();
  const logits = head(op, s, mean);
  return s.final_softcap > 0 ? op.unary("softcap", logits, s.final_softcap) : logits;
}

export const gemma3n: Architecture<Gemma3nSpec> = { names: ["gemma3n"], spec, build };
