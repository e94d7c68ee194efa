/**
 * Llama 2/3, Mistral, Mixtral, Mistral 3 (`mistral3`), SmolLM 3 (`smollm3`), InternLM2 (`internlm2`), ERNIE 4.5 (`ernie4_5`,
 * `ernie4_5-moe`) and Arcee (`arcee`). Pre-norm decoder, grouped-query attention, SwiGLU or routed experts.
 * Rotates pairs (2i, 2i+1): converters permute q and k rows for it. A sliding window (Mistral v0.1) is kept where the file names it.
 * mistral3: queries grow with the position, by 1 + scale ln(1 + floor(p / length)). smollm3: every fourth layer does not rotate.
 * ernie4_5-moe: softmax scores with a selection bias, shared experts, the first layers dense. arcee: a feed-forward block without
 * a gate, of squared ReLU.
 * Source: LLaMA (arXiv 2302.13971), Llama 3 (arXiv 2407.21783), Mistral 7B (arXiv 2310.06825), Mixtral (arXiv 2401.04088);
 * huggingface/transformers `modeling_ministral3.py`, `modeling_smollm3.py`, `modeling_ernie4_5.py`, `modeling_ernie4_5_moe.py`,
 * `modeling_arcee.py`; InternLM2 (arXiv 2403.17297).
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { type DecoderSpec, embed, head, plainFfn, readDecoderSpec, selfAttention } from "./decoder.ts";
import type { Keys } from "./keys.ts";
import { readSharedMoe, sharedMoeFfn, type SharedMoeSpec } from "./moe.ts";
import { queryFactor, readTemperature, type Temperature } from "./temperature.ts";

interface LlamaSpec extends DecoderSpec, SharedMoeSpec {
  readonly plain: boolean;
  readonly window: number;
  readonly temperature: Temperature | undefined;
  /** The last of so many layers does not rotate; 0: all rotate. */
  readonly rest_period: number;
}

function spec(k: Keys): LlamaSpec {
  const s = readDecoderSpec(k);
  return {
    ...s,
    ...readSharedMoe(k, s.n_layer, { n_ff_exp: s.n_ff, ...(k.arch === "ernie4_5-moe" ? { sum_min: 1e-12 } : {}) }),
    plain: k.arch === "arcee",
    window: k.u32("attention.sliding_window", 0),
    temperature: k.arch === "mistral3" ? readTemperature(k) : undefined,
    rest_period: k.arch === "smollm3" ? 4 : 0, // no key tells
  };
}

function layer(op: Ops, s: LlamaSpec, freqs: T, il: number, x: T): T { //                  x [n_embd, n_tok]
  const w = op.weights(`blk.${il}`);
  const rests = s.rest_period > 0 && il % s.rest_period === s.rest_period - 1;
  const turn = (y: T, of: "q" | "k") => {
    if (rests) return y;
    const turned = op.rope(y, freqs, { kind: "pairs", mscale: s.rope.mscale });
    return of === "q" && s.temperature ? op.mul(turned, queryFactor(op, s.temperature)) : turned;
  };
  const a = op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps);
  x = op.add(x, selfAttention(op, w, s, il, a, { turn, window: s.window }));
  const f = op.rms_norm(x, w("ffn_norm", [s.n_embd]), s.norm_eps);
  return op.add(x, s.plain ? plainFfn(op, w, f, s.n_ff, "relu2") : sharedMoeFfn(op, w, s, il, f));
}

function build(op: Ops, s: LlamaSpec): T {
  const freqs = op.constant("rope.inv_freq", s.rope.inv_freq);
  let x = embed(op, s);
  for (let il = 0; il < s.n_layer; il++) x = op.layer_end(il, layer(op, s, freqs, il, x));
  return head(op, s, x);
}

export const llama: Architecture<LlamaSpec> = {
  names: ["llama", "mistral3", "smollm3", "internlm2", "ernie4_5", "ernie4_5-moe", "arcee"],
  spec,
  build,
};
