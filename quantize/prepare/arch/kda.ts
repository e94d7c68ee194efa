/**
 * Kimi delta attention and hyper-connections: rules shared by Kimi and GLM.
 * @module
 */
import type { Config } from "../config.ts";
import { expF32 } from "./exp_f32.ts";
import type { Rules } from "../rules.ts";
import { mapF32, reshape, sizeOf, sliceColumns, type View } from "../view.ts";

/** The decay rate as files have it. */
export const negativeExp = (v: View): View => mapF32(v, (x) => -expF32(x));

/**
 * @param blocks Blocks with linear attention; the others' q and o projections are the caller's.
 * @param decay How files shape the decay rate: a vector, or Kimi Linear's four dimensions.
 * @param gate Form of the output gate; a full one is the caller's.
 */
export function kdaRules(
  r: Rules,
  c: Config,
  blocks: (il: number) => boolean,
  decay: "vector" | "matrix",
  gate: "low rank" | "full" = "low rank",
): void {
  const linear = c.part("linear_attn_config");
  const n_head = linear.int("num_heads") ?? c.n_head;
  const width = n_head * linear.needInt("head_dim");
  const at = "model.layers.{il}.self_attn";
  for (const w of ["q", "k", "v"]) {
    // q of attention blocks has another width, so its shape is not checked here.
    r.weight(`${at}.${w}_proj`, `blk.{il}.attn_${w}`, w === "q" ? { blocks } : { shape: [width, c.n_embd], blocks });
    r.weight(`${at}.${w}_conv1d`, `blk.{il}.ssm_conv1d_${w}`, {
      blocks,
      map: (v) => reshape(v, [1, v.shape[0], 1, sizeOf(v.shape) / v.shape[0]]),
    });
  }
  r.exact(`${at}.A_log`, "blk.{il}.ssm_a", {
    blocks,
    map: (v) =>
      decay === "matrix" ? negativeExp(v) : sliceColumns(reshape(negativeExp(v), [sizeOf(v.shape)]), 0, n_head),
  })
    .exact(`${at}.dt_bias`, "blk.{il}.ssm_dt.bias", { blocks })
    .weight(`${at}.b_proj`, "blk.{il}.ssm_beta", { blocks, shape: [n_head, c.n_embd] })
    .weight(`${at}.f_a_proj`, "blk.{il}.ssm_f_a", { blocks })
    .weight(`${at}.f_b_proj`, "blk.{il}.ssm_f_b", { blocks })
    .weight(`${at}.o_norm`, "blk.{il}.ssm_norm", { blocks });
  if (gate === "full") return;
  r.weight(`${at}.g_a_proj`, "blk.{il}.ssm_g_a", { blocks }).weight(`${at}.g_b_proj`, "blk.{il}.ssm_g_b", { blocks });
}

/** Hyper-connections around attention and feed-forward; the checkpoint's names have no `.weight`. */
export function hyperRules(r: Rules, at = "model.layers.{il}."): void {
  for (const site of ["attn", "ffn"]) {
    for (const part of ["fn", "base", "scale"]) {
      r.exact(`${at}hc_${site}_${part}`, `blk.{il}.hc_${site}_${part}.weight`);
    }
  }
}
