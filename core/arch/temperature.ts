/**
 * A factor on queries that grows with the position (Llama 4, Ministral 3, Mistral Small 4, Mistral Large 3).
 * Source: huggingface/transformers `modeling_ministral3.py`, `get_llama_4_attn_scale`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Keys } from "./keys.ts";

export interface Temperature {
  readonly scale: number;
  /** Positions for which the factor stays the same. */
  readonly length: number;
  /** Added to positions; 0 where left out. */
  readonly shift?: number;
}

/**
 * Reads `attention.temperature_*`; undefined if the file has none of them. The length is YaRN's original context unless the file has its own.
 * @param fallback The scale of a family whose files do not always say.
 */
export function readTemperature(k: Keys, fallback = 0): Temperature | undefined {
  const scale = k.f32("attention.temperature_scale", fallback);
  if (scale === 0) return undefined;
  const key = "attention.temperature_length";
  const length = k.u32(key, k.u32("rope.scaling.original_context_length", 0));
  k.want(length >= 1, key, length, "at least 1, or rope.scaling.original_context_length");
  return { scale, length };
}

/** `1 + scale ln(1 + floor((p + shift) / length))` of each token: `[1, 1, n_tok]`. */
export function queryFactor(op: Ops, t: Temperature): T {
  return op.derived({
    name: "attention.temperature",
    type: "f32",
    limit: 0,
    row: (out, at, position) => {
      out[at] = 1 + t.scale * Math.log(1 + Math.floor((position + (t.shift ?? 0)) / t.length));
    },
  }, [1, 1]);
}
